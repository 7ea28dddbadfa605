//! Whether a failed attempt may be made again without anybody noticing. A core.

use http::Method;

use crate::trace::RetryCause;

/// What became of an attempt without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing of the request was sent.
    NotSent,
    /// The peer says that it did nothing about it.
    Refused,
    /// The peer said that it had waited for too long (408).
    TimedOutIdle,
    /// The peer closed the connection, and no byte of a response had come.
    ClosedSilently,
    /// Anything else.
    Failed,
}

impl Fate {
    /// Whether the peer may have done something about the request.
    pub(super) fn may_have_been_processed(self) -> bool {
        matches!(self, Self::ClosedSilently | Self::Failed)
    }
}

/// What is known about an attempt that got no response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempted {
    pub(super) fate: Fate,
    /// The connection was kept before, so the peer may have closed it for being idle.
    pub(super) kept: bool,
    /// Sending the request twice does what sending it once does (RFC 9110 §9.2.2).
    pub(super) idempotent: bool,
    /// The request is there to be sent again: its body is no stream that has been read.
    pub(super) replayable: bool,
    /// How many attempts were made, this one among them.
    pub(super) attempts: u32,
    /// In how many of them the peer may have done something.
    pub(super) sent: u32,
}

/// The most attempts a call makes, and the most in which the peer may do something.
const MAX_ATTEMPTS: u32 = 12;
const MAX_SENT: u32 = 3;

impl Attempted {
    /// Why another attempt is safe, where it is: nothing was done, or the request may be repeated and the peer closed a kept
    /// connection before it said anything (RFC 9112 §9.3.1).
    pub(super) fn may_be_repeated(self) -> Option<RetryCause> {
        let cause = match self.fate {
            Fate::NotSent => RetryCause::NotSent,
            Fate::Refused => RetryCause::Refused,
            Fate::TimedOutIdle if self.kept => RetryCause::TimedOutIdle,
            Fate::ClosedSilently if self.kept && self.idempotent && self.sent < MAX_SENT => RetryCause::Closed,
            _ => return None,
        };
        (self.replayable && self.attempts < MAX_ATTEMPTS).then_some(cause)
    }
}

/// Whether a method is idempotent (RFC 9110 §9.2.2).
pub(super) fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS, Method::TRACE].contains(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE: Attempted =
        Attempted { fate: Fate::ClosedSilently, kept: true, idempotent: true, replayable: true, attempts: 1, sent: 1 };

    #[test]
    fn what_was_not_processed_may_be_sent_whatever_it_is() {
        for (fate, cause) in [(Fate::NotSent, RetryCause::NotSent), (Fate::Refused, RetryCause::Refused)] {
            let unprocessed = Attempted { fate, idempotent: false, kept: false, sent: 0, ..STALE };
            assert_eq!(unprocessed.may_be_repeated(), Some(cause));
        }
    }

    #[test]
    fn a_stale_connection_is_worth_another_attempt_if_the_request_may_be_repeated() {
        assert_eq!(STALE.may_be_repeated(), Some(RetryCause::Closed));
        assert_eq!(Attempted { idempotent: false, ..STALE }.may_be_repeated(), None);
        assert_eq!(Attempted { fate: Fate::Failed, ..STALE }.may_be_repeated(), None);
        assert_eq!(
            Attempted { kept: false, ..STALE }.may_be_repeated(),
            None,
            "a failure on a new connection is final"
        );
    }

    #[test]
    fn a_stream_that_was_read_is_not_sent_again() {
        for fate in [Fate::NotSent, Fate::Refused, Fate::TimedOutIdle, Fate::ClosedSilently] {
            assert!(Attempted { fate, ..STALE }.may_be_repeated().is_some());
            assert_eq!(Attempted { fate, replayable: false, ..STALE }.may_be_repeated(), None);
        }
    }

    #[test]
    fn a_408_is_for_nobody_on_a_kept_connection_alone() {
        let told = Attempted { fate: Fate::TimedOutIdle, idempotent: false, sent: 0, ..STALE };
        assert_eq!(told.may_be_repeated(), Some(RetryCause::TimedOutIdle));
        assert_eq!(Attempted { kept: false, ..told }.may_be_repeated(), None);
    }

    #[test]
    fn attempts_are_bounded() {
        assert_eq!(Attempted { attempts: 3, sent: 3, ..STALE }.may_be_repeated(), None);
        assert!(Attempted { attempts: 11, sent: 1, ..STALE }.may_be_repeated().is_some());
        for fate in [Fate::NotSent, Fate::Refused, Fate::TimedOutIdle] {
            assert_eq!(Attempted { attempts: 12, sent: 0, fate, ..STALE }.may_be_repeated(), None);
        }
    }

    #[test]
    fn post_and_patch_are_not_idempotent() {
        assert!(is_idempotent(&Method::GET) && is_idempotent(&Method::DELETE));
        assert!(!is_idempotent(&Method::POST) && !is_idempotent(&Method::PATCH));
    }
}
