//! The headers by which a server announces how long it keeps an idle connection. A core.

use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The announcements of the `Connection` and `Keep-Alive` headers of HTTP/1.1 (RFC 9112 §9.6, RFC 2068 §19.7.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::client) struct KeepAlive {
    /// The longest the connection should be idle: a little less than the server's timeout.
    pub(in crate::client) idle: Option<Duration>,
    /// True if the server accepts no other request on the connection.
    pub(in crate::client) is_last: bool,
}

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// The time by which the client closes an idle connection before the server does, or half of the server's timeout if
/// that is shorter.
const MARGIN: Duration = Duration::from_secs(1);

impl KeepAlive {
    /// Reads the headers of a response. Invalid parts are ignored.
    pub(in crate::client) fn of(headers: &HeaderMap) -> Self {
        let mut keep_alive = Self::default();
        headers.iter().for_each(|(name, value)| keep_alive.note(name, value));
        keep_alive
    }

    /// Reads one header of a response.
    #[inline]
    pub(in crate::client) fn note(&mut self, name: &HeaderName, value: &HeaderValue) {
        if *name == CONNECTION {
            self.is_last |= is_close(value);
        } else if *name == KEEP_ALIVE {
            self.read(value);
        }
    }

    /// Reads the parameters of a `Keep-Alive` header.
    fn read(&mut self, value: &HeaderValue) {
        for parameter in value.to_str().unwrap_or_default().split(',') {
            let Some((name, value)) = parameter.split_once('=') else { continue };
            let Ok(number) = value.trim().trim_matches('"').parse::<u32>() else { continue };
            match name.trim() {
                name if name.eq_ignore_ascii_case("timeout") => {
                    let timeout = Duration::from_secs(number.into());
                    self.idle = Some(timeout - MARGIN.min(timeout / 2));
                }
                name if name.eq_ignore_ascii_case("max") => self.is_last |= number == 0,
                _ => {}
            }
        }
    }
}

/// Returns true if a `Connection` header has the option `close`.
fn is_close(value: &HeaderValue) -> bool {
    let is_close = |option: &[u8]| option.trim_ascii().eq_ignore_ascii_case(b"close");
    value.as_bytes().split(|byte| *byte == b',').any(is_close)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &'static str) -> (Option<u128>, bool) {
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static("keep-alive"), text.parse().unwrap())]);
        let KeepAlive { idle, is_last } = KeepAlive::of(&headers);
        (idle.map(|idle| idle.as_millis()), is_last)
    }

    #[test]
    fn the_client_closes_a_little_before_the_server() {
        assert_eq!(KeepAlive::of(&HeaderMap::new()), KeepAlive::default());
        assert!(KeepAlive::of(&HeaderMap::from_iter([(CONNECTION, "Close".parse().unwrap())])).is_last);
        assert_eq!(parsed("timeout=5, max=1000"), (Some(4_000), false));
        assert_eq!(parsed(" Max = 0 ,TIMEOUT= \"15\""), (Some(14_000), true));
        assert_eq!((parsed("timeout=1"), parsed("timeout=0")), ((Some(500), false), (Some(0), false)));
    }

    #[test]
    fn invalid_parts_are_ignored() {
        for text in ["", "5", "timeout", "timeout=", "timeout=-1", "timeout=5s", "timeout=99999999999", "max=x", "a=1"]
        {
            assert_eq!(parsed(text), (None, false), "{text}");
        }
    }
}
