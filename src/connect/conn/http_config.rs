//! The user's settings of HTTP on a connection, and which of them contradict each other.

use hyper::client::conn::{http1, http2};

use crate::connect::http2::frames::PingConfig;
use crate::connect::http2::runtime::H2Executor;

/// The settings of HTTP on a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HttpConfig {
    pub(crate) http1: Http1Config,
    pub(crate) http2: Http2Config,
}

/// The settings of HTTP/1.1.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Http1Config {
    /// The most headers of a response; `None` for hyper's own limit of 100.
    pub(crate) max_headers: Option<usize>,
    /// True if header names are sent in title case.
    pub(crate) title_case_headers: bool,
    /// True if a response's header may go on in the next line.
    pub(crate) allow_multiline_headers: bool,
    /// True if lines of a response's head that are no headers are left out.
    pub(crate) ignore_invalid_headers: bool,
    /// True if spaces may follow the name of a response's header.
    pub(crate) allow_spaces_after_names: bool,
    /// True if bytes that are no HTTP/1.1 response are the body of an HTTP/0.9 response.
    pub(crate) http09_responses: bool,
}

/// The settings of HTTP/2.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Http2Config {
    pub(crate) pings: PingConfig,
    /// The bytes of one response body that the server may send before they are read.
    pub(crate) stream_window: Option<u32>,
    /// The bytes of all response bodies of a connection that the server may send before they are read.
    pub(crate) connection_window: Option<u32>,
    /// True if the windows grow with the bandwidth and the round-trip time that are measured.
    pub(crate) adaptive_window: bool,
    /// The most bytes of a frame that the server may send.
    pub(crate) max_frame_size: Option<u32>,
    /// The most bytes of a response's headers.
    pub(crate) max_header_list_size: Option<u32>,
    /// The most bytes of the table by which the server compresses response headers; `None` for 4,096.
    pub(crate) header_table_size: Option<u32>,
    /// The most bytes of one request body that wait to be written; `None` for hyper's own limit of 1 MiB.
    pub(crate) max_send_buf_size: Option<usize>,
}

/// The most headers that fit into [`MAX_HEAD`], at three bytes each. hyper allocates room for as many as are allowed.
const MAX_HEADERS: usize = MAX_HEAD / 3;

/// The most bytes of a response head.
///
/// hyper keeps the buffer that it has once grown for a long HTTP/1.1 body, so this is also the most that an idle
/// connection costs.
pub(in crate::connect) const MAX_HEAD: usize = 64 * 1024;

/// The bytes of one response body that the server may send before they are read.
const STREAM_WINDOW: u32 = 1 << 20;

/// The bytes of all response bodies of a connection that the server may send before they are read: so many that responses which are
/// not read, of as many streams as the pool uses on a connection, do not keep others from arriving.
const CONNECTION_WINDOW: u32 = 1 << 30;

/// The largest window (RFC 9113 §6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// The window that each connection begins with, which no setting makes smaller (RFC 9113 §6.9.2).
const MIN_CONNECTION_WINDOW: u32 = 65_535;

/// The sizes of frames that a client may announce (RFC 9113 §6.5.2).
const FRAME_SIZES: std::ops::RangeInclusive<u32> = 16_384..=16_777_215;

/// The largest table of response headers: each connection may hold one of this size.
const MAX_HEADER_TABLE: u32 = 1 << 20;

/// The largest buffer for a request body. hyper panics for more.
const MAX_SEND_BUF: usize = u32::MAX as usize;

impl HttpConfig {
    /// Returns what is wrong with the settings, in the words of an error message.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        let Http2Config { stream_window, connection_window, adaptive_window, pings, .. } = self.http2;
        let is_outside = |value: Option<u32>, min, max| value.is_some_and(|value| !(min..=max).contains(&value));
        if self.http1.max_headers == Some(0) {
            Some("http1_max_headers must not be 0, or no response could be read")
        } else if adaptive_window && (stream_window.is_some() || connection_window.is_some()) {
            Some("http2_adaptive_window chooses the windows, so their sizes must not be set beside it")
        } else if is_outside(stream_window, 1, MAX_WINDOW) {
            Some("http2_initial_stream_window_size must be 1 to 2,147,483,647 bytes")
        } else if is_outside(connection_window, MIN_CONNECTION_WINDOW, MAX_WINDOW) {
            Some("http2_initial_connection_window_size must be 65,535 to 2,147,483,647 bytes")
        } else if self.http2.max_frame_size.is_some_and(|size| !FRAME_SIZES.contains(&size)) {
            Some("http2_max_frame_size must be 16,384 to 16,777,215 bytes")
        } else if self.http2.max_header_list_size == Some(0) {
            Some("http2_max_header_list_size must not be 0, or no response could be read")
        } else if is_outside(self.http2.header_table_size, 0, MAX_HEADER_TABLE) {
            Some("http2_header_table_size must be at most 1,048,576 bytes")
        } else if self.http2.max_send_buf_size.is_some_and(|size| !(1..=MAX_SEND_BUF).contains(&size)) {
            Some("http2_max_send_buf_size must be 1 to 4,294,967,295 bytes")
        } else if pings.interval.is_none() && pings.timeout.is_some() {
            Some("http2_keep_alive_timeout has no effect without http2_keep_alive_interval")
        } else if pings.interval.is_none() && pings.while_idle {
            Some("http2_keep_alive_while_idle has no effect without http2_keep_alive_interval")
        } else {
            None
        }
    }

    /// Returns each setting's name, and true if it was set.
    #[cfg(feature = "hyper-util")]
    pub(crate) fn set(&self) -> [(&'static str, bool); 16] {
        // Every field is named, so that the compiler asks about each new one.
        let Self { http1, http2 } = self;
        let Http1Config {
            max_headers,
            title_case_headers,
            allow_multiline_headers,
            ignore_invalid_headers,
            allow_spaces_after_names,
            http09_responses,
        } = *http1;
        let Http2Config {
            pings,
            stream_window,
            connection_window,
            adaptive_window,
            max_frame_size,
            max_header_list_size,
            header_table_size,
            max_send_buf_size,
        } = *http2;
        let PingConfig { interval, timeout, while_idle } = pings;
        [
            ("http1_max_headers", max_headers.is_some()),
            ("http1_title_case_headers", title_case_headers),
            ("http1_allow_obsolete_multiline_headers_in_responses", allow_multiline_headers),
            ("http1_ignore_invalid_headers_in_responses", ignore_invalid_headers),
            ("http1_allow_spaces_after_header_name_in_responses", allow_spaces_after_names),
            ("http09_responses", http09_responses),
            ("http2_keep_alive_interval", interval.is_some()),
            ("http2_keep_alive_timeout", timeout.is_some()),
            ("http2_keep_alive_while_idle", while_idle),
            ("http2_initial_stream_window_size", stream_window.is_some()),
            ("http2_initial_connection_window_size", connection_window.is_some()),
            ("http2_adaptive_window", adaptive_window),
            ("http2_max_frame_size", max_frame_size.is_some()),
            ("http2_max_header_list_size", max_header_list_size.is_some()),
            ("http2_header_table_size", header_table_size.is_some()),
            ("http2_max_send_buf_size", max_send_buf_size.is_some()),
        ]
    }
}

impl Http1Config {
    /// Gives the settings to hyper. Those that are not set are hyper's own, which costs a connection nothing.
    pub(in crate::connect) fn apply(self, builder: &mut http1::Builder) {
        builder.max_buf_size(MAX_HEAD);
        if let Some(max_headers) = self.max_headers {
            builder.max_headers(max_headers.min(MAX_HEADERS));
        }
        builder
            .title_case_headers(self.title_case_headers)
            .allow_obsolete_multiline_headers_in_responses(self.allow_multiline_headers)
            .ignore_invalid_headers_in_responses(self.ignore_invalid_headers)
            .allow_spaces_after_header_name_in_responses(self.allow_spaces_after_names)
            .http09_responses(self.http09_responses);
    }
}

impl Http2Config {
    /// Gives the windows and sizes to hyper.
    pub(in crate::connect) fn apply(self, builder: &mut http2::Builder<H2Executor>) {
        builder
            .initial_stream_window_size(self.stream_window.unwrap_or(STREAM_WINDOW))
            .initial_connection_window_size(self.connection_window.unwrap_or(CONNECTION_WINDOW))
            .max_header_list_size(self.max_header_list_size.unwrap_or(MAX_HEAD as u32))
            .max_frame_size(self.max_frame_size)
            .header_table_size(self.header_table_size);
        if let Some(size) = self.max_send_buf_size {
            builder.max_send_buf_size(size);
        }
        if self.adaptive_window {
            // It makes both windows 64 KiB at first.
            builder.adaptive_window(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn settings_of_http2_that_the_protocol_does_not_allow_are_found() {
        let found = |change: fn(&mut Http2Config)| {
            let mut config = HttpConfig::default();
            change(&mut config.http2);
            config.contradiction().map(|what| what.split(' ').next().unwrap())
        };
        assert_eq!(found(|_| {}), None);
        assert_eq!(found(|config| config.stream_window = Some(0)), Some("http2_initial_stream_window_size"));
        assert_eq!(found(|config| config.stream_window = Some(1 << 31)), Some("http2_initial_stream_window_size"));
        assert_eq!(found(|config| config.stream_window = Some(MAX_WINDOW)), None);
        assert_eq!(
            found(|config| config.connection_window = Some(65_534)),
            Some("http2_initial_connection_window_size")
        );
        assert_eq!(found(|config| config.connection_window = Some(65_535)), None);
        assert_eq!(found(|config| config.max_frame_size = Some(16_383)), Some("http2_max_frame_size"));
        assert_eq!(found(|config| config.max_frame_size = Some(1 << 24)), Some("http2_max_frame_size"));
        assert_eq!(found(|config| config.max_frame_size = Some(16_384)), None);
        assert_eq!(found(|config| config.max_header_list_size = Some(0)), Some("http2_max_header_list_size"));
        assert_eq!(found(|config| config.header_table_size = Some((1 << 20) + 1)), Some("http2_header_table_size"));
        assert_eq!(found(|config| config.header_table_size = Some(1 << 20)), None);
        assert_eq!(found(|config| config.header_table_size = Some(0)), None, "then nothing is kept");
        assert_eq!(found(|config| config.max_send_buf_size = Some(0)), Some("http2_max_send_buf_size"));
        assert_eq!(found(|config| config.max_send_buf_size = Some(usize::MAX)), Some("http2_max_send_buf_size"));
        assert_eq!(found(|config| config.max_send_buf_size = Some(1)), None);
        let both = |config: &mut Http2Config| {
            config.adaptive_window = true;
            config.stream_window = Some(1 << 20);
        };
        assert_eq!(found(both), Some("http2_adaptive_window"));
        assert_eq!(found(|config| config.adaptive_window = true), None);
    }

    #[test]
    fn settings_of_pings_that_are_not_sent_are_found() {
        let found = |interval, timeout, while_idle| {
            let mut config = HttpConfig::default();
            config.http2.pings = PingConfig { interval, timeout, while_idle };
            config.contradiction().map(|what| what.split(' ').next().unwrap())
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(found(None, second, false), Some("http2_keep_alive_timeout"));
        assert_eq!(found(None, None, true), Some("http2_keep_alive_while_idle"));
        assert_eq!(found(second, second, true), None);
    }
}
