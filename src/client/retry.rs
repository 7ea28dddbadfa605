//! Whether a failed attempt may be made again without anybody noticing. A core.

use http::Method;

/// What is known about an attempt that got no response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempted {
    /// The peer did nothing about the request: none of it was sent, or the peer says so.
    pub(crate) unprocessed: bool,
    /// The connection was kept before, so the peer may have closed it for being idle.
    pub(crate) kept: bool,
    /// The peer closed the connection, and no byte of a response had come.
    pub(crate) closed_silently: bool,
    /// Sending the request twice does what sending it once does (RFC 9110 §9.2.2).
    pub(crate) idempotent: bool,
    /// How many attempts were made, this one among them.
    pub(crate) attempts: u32,
    /// In how many of them the peer may have done something.
    pub(crate) sent: u32,
}

/// The most attempts a call makes, and the most in which the peer may do something.
pub(super) const MAX_ATTEMPTS: u32 = 12;
const MAX_SENT: u32 = 3;

impl Attempted {
    /// Whether another attempt is safe: nothing was done, or the request may be repeated and the peer closed a kept
    /// connection before it said anything (RFC 9112 §9.3.1).
    pub(crate) fn may_be_repeated(self) -> bool {
        let stale = self.kept && self.closed_silently && self.idempotent && self.sent < MAX_SENT;
        (self.unprocessed || stale) && self.attempts < MAX_ATTEMPTS
    }
}

/// Whether a method is idempotent (RFC 9110 §9.2.2).
pub(crate) fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS, Method::TRACE].contains(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE: Attempted =
        Attempted { unprocessed: false, kept: true, closed_silently: true, idempotent: true, attempts: 1, sent: 1 };

    #[test]
    fn what_was_not_sent_may_be_sent_whatever_it_is() {
        let unsent = Attempted { unprocessed: true, idempotent: false, kept: false, sent: 0, ..STALE };
        assert!(unsent.may_be_repeated());
    }

    #[test]
    fn a_stale_connection_is_worth_another_attempt_if_the_request_may_be_repeated() {
        assert!(STALE.may_be_repeated());
        assert!(!Attempted { idempotent: false, ..STALE }.may_be_repeated());
        assert!(!Attempted { closed_silently: false, ..STALE }.may_be_repeated());
        assert!(!Attempted { kept: false, ..STALE }.may_be_repeated(), "a failure on a new connection is final");
    }

    #[test]
    fn attempts_are_bounded() {
        assert!(!Attempted { attempts: 3, sent: 3, ..STALE }.may_be_repeated());
        assert!(Attempted { attempts: 11, sent: 1, ..STALE }.may_be_repeated());
        assert!(!Attempted { attempts: 12, sent: 0, unprocessed: true, ..STALE }.may_be_repeated());
    }

    #[test]
    fn post_and_patch_are_not_idempotent() {
        assert!(is_idempotent(&Method::GET) && is_idempotent(&Method::DELETE));
        assert!(!is_idempotent(&Method::POST) && !is_idempotent(&Method::PATCH));
    }
}
