//! The settings of HTTP: its versions, the syntax of HTTP/1.1, the windows and sizes of HTTP/2, the use of `https`.

use std::time::Duration;

use super::ClientBuilder;
use crate::connect::Versions;
use crate::error::Error;

impl ClientBuilder {
    /// Sets whether only `https` URLs are requested. False by default. A request to an `http` URL is an error, and so is
    /// a redirect to one.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it beside a [`base_url`](Self::base_url) of the scheme `http`.
    pub fn https_only(mut self, enabled: bool) -> Self {
        self.defaults.https_only = enabled;
        self
    }

    /// Sets whether a redirected request names the URL that redirected it in a `Referer` header (RFC 9110 §10.1.3),
    /// without credentials and fragment. False by default: a URL may hold secrets, and a redirect may lead to another
    /// company.
    ///
    /// A request that leaves `https` for `http` gets no `Referer`. In place of one that the request had before, the
    /// header names the redirecting URL.
    pub fn referer(mut self, enable: bool) -> Self {
        self.defaults.sends_referer = enable;
        self
    }

    /// Uses HTTP/1.1 only, even with servers that prefer HTTP/2. Settings of HTTP/2 then have no effect.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it beside [`http2_prior_knowledge`](Self::http2_prior_knowledge).
    pub fn http1_only(self) -> Self {
        self.with_versions(Versions::Http1)
    }

    /// Uses HTTP/2 without negotiation, even without TLS (RFC 9113 §3.3). Settings of HTTP/1.1 then have no effect.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it beside [`http1_only`](Self::http1_only).
    pub fn http2_prior_knowledge(self) -> Self {
        self.with_versions(Versions::Http2)
    }

    /// Sends the names of headers in title case (`Content-Type`) over HTTP/1.1, for servers that wrongly insist on it. By
    /// default they are in lower case.
    pub fn http1_title_case_headers(mut self) -> Self {
        self.connect.http.http1.title_case_headers = true;
        self
    }

    /// Sets whether a header of an HTTP/1.1 response may go on in the next line, after a space or a tab (RFC 9112
    /// §5.2). False by default: such a response is an error.
    pub fn http1_allow_obsolete_multiline_headers_in_responses(mut self, value: bool) -> Self {
        self.connect.http.http1.allow_multiline_headers = value;
        self
    }

    /// Sets whether lines of an HTTP/1.1 response's head that are no headers are left out. False by default: such a
    /// response is an error.
    ///
    /// A client that takes what a server or a proxy in between does not take can be made to see another response than
    /// they do. It is for one server that is known to send such lines.
    pub fn http1_ignore_invalid_headers_in_responses(mut self, value: bool) -> Self {
        self.connect.http.http1.ignore_invalid_headers = value;
        self
    }

    /// Sets whether spaces may stand between the name of an HTTP/1.1 response's header and its colon (RFC 9112 §5.1).
    /// False by default: such a response is an error.
    pub fn http1_allow_spaces_after_header_name_in_responses(mut self, value: bool) -> Self {
        self.connect.http.http1.allow_spaces_after_names = value;
        self
    }

    /// Sets the maximum number of headers of a response over HTTP/1.1; a response with more is an error. 100 by
    /// default. A client that sets it pays two more allocations for each response. In any case, all
    /// headers of a response together may have at most 64 KiB; over HTTP/2
    /// [`http2_max_header_list_size`](Self::http2_max_header_list_size) sets that.
    pub fn http1_max_headers(mut self, count: usize) -> Self {
        self.connect.http.http1.max_headers = Some(count);
        self
    }

    /// Takes bytes that are no HTTP/1.1 response for the body of an HTTP/0.9 response: status 200, without headers, up
    /// to the end of the connection. By default they are an error. With it, whatever a server of another protocol sends
    /// counts as a success.
    pub fn http09_responses(mut self) -> Self {
        self.connect.http.http1.http09_responses = true;
        self
    }

    /// Sets how many bytes of one response body an HTTP/2 server may send before they are read
    /// (SETTINGS_INITIAL_WINDOW_SIZE, RFC 9113 §6.9.2). 1 MiB by default, also for `None`.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses 0 and more than 2,147,483,647, and a size beside
    /// [`http2_adaptive_window`](Self::http2_adaptive_window).
    pub fn http2_initial_stream_window_size(mut self, size: impl Into<Option<u32>>) -> Self {
        self.connect.http.http2.stream_window = size.into();
        self
    }

    /// Sets how many bytes of all response bodies of an HTTP/2 connection its server may send before they are read. 1
    /// GiB by default, also for `None`. Where less is left than a response needs, those that are not read keep it from arriving.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses less than 65,535, with which each connection begins, more than 2,147,483,647, and a
    /// size beside [`http2_adaptive_window`](Self::http2_adaptive_window).
    pub fn http2_initial_connection_window_size(mut self, size: impl Into<Option<u32>>) -> Self {
        self.connect.http.http2.connection_window = size.into();
        self
    }

    /// Sets whether both windows of HTTP/2 begin with 65,535 bytes and grow with the measured bandwidth and round-trip
    /// time, up to 16 MiB. False by default. To measure, the client sends pings while a body arrives; some servers close
    /// a connection with many of them.
    pub fn http2_adaptive_window(mut self, enabled: bool) -> Self {
        self.connect.http.http2.adaptive_window = enabled;
        self
    }

    /// Sets the longest frame that an HTTP/2 server may send, in bytes (SETTINGS_MAX_FRAME_SIZE, RFC 9113 §6.5.2).
    /// 16,384 by default, also for `None`.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses less than 16,384 and more than 16,777,215.
    pub fn http2_max_frame_size(mut self, size: impl Into<Option<u32>>) -> Self {
        self.connect.http.http2.max_frame_size = size.into();
        self
    }

    /// Sets how many bytes the headers of a response may have over HTTP/2 (SETTINGS_MAX_HEADER_LIST_SIZE, RFC 9113
    /// §6.5.2). 64 KiB by default.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses 0.
    pub fn http2_max_header_list_size(mut self, bytes: u32) -> Self {
        self.connect.http.http2.max_header_list_size = Some(bytes);
        self
    }

    /// Sets the size in bytes of the table from which an HTTP/2 server takes response headers that it has sent before
    /// (SETTINGS_HEADER_TABLE_SIZE, RFC 9113 §6.5.2). 4,096 by default, also for `None`; with 0 the server sends each header in full.
    ///
    /// A larger table saves bytes where responses repeat long headers. Each connection may take that much memory.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses more than 1,048,576.
    pub fn http2_header_table_size(mut self, size: impl Into<Option<u32>>) -> Self {
        self.connect.http.http2.header_table_size = size.into();
        self
    }

    /// Sets how many bytes of one request body may wait in memory to be written to an HTTP/2 connection. 1 MiB by
    /// default, also for `None`. More is read from the body only when the server has taken some; a piece of the body that
    /// is larger than the limit waits as a whole.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses 0 and more than 4,294,967,295.
    pub fn http2_max_send_buf_size(mut self, size: impl Into<Option<usize>>) -> Self {
        self.connect.http.http2.max_send_buf_size = size.into();
        self
    }

    /// Sets the interval after which an HTTP/2 server is pinged if no piece of a response arrived, while requests are
    /// under way. `None` by default; zero is the same.
    ///
    /// There is no such timer by default because servers count pings: grpc-go closes a connection at the fourth ping
    /// within minutes. Without it, a server is pinged if nothing arrived for 10 s in which a request was under way, at
    /// most two times between two pieces of responses, and the connection is closed if nothing arrives for 15 s after
    /// that.
    pub fn http2_keep_alive_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.connect.http.http2.pings.interval = interval.into().filter(|interval| !interval.is_zero());
        self
    }

    /// Sets the longest time a server may take to answer a ping of
    /// [`http2_keep_alive_interval`](Self::http2_keep_alive_interval) before its connection is closed. 20 s by default.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it without an interval.
    pub fn http2_keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.connect.http.http2.pings.timeout = Some(timeout);
        self
    }

    /// Sets whether pings of [`http2_keep_alive_interval`](Self::http2_keep_alive_interval) are also sent while no
    /// request is under way. False by default.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses `true` without an interval.
    pub fn http2_keep_alive_while_idle(mut self, while_idle: bool) -> Self {
        self.connect.http.http2.pings.while_idle = while_idle;
        self
    }

    fn with_versions(mut self, versions: Versions) -> Self {
        if self.connect.versions != Versions::Any && self.connect.versions != versions {
            self.refuse(Error::refused_request("build a client: http1_only contradicts http2_prior_knowledge"));
        }
        self.connect.versions = versions;
        self
    }
}
