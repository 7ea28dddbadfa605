//! The class of a failed call: what its failure means for sending the request again, for libraries with retries of their own.

use std::io;

use super::explain::{io_cause, unshared};
use super::{Error, ErrorKind, FailureClass};
use crate::trace::Phase;

impl Error {
    /// Returns what the failure means for sending the request again.
    pub(crate) fn class(&self) -> FailureClass {
        let class = self.class_of_last_attempt();
        let is_unsent = matches!(class, FailureClass::NotConnected | FailureClass::Unprocessed);
        if !is_unsent || !self.may_have_been_processed() {
            return class;
        }
        if self.is_timeout() { FailureClass::TimedOut } else { FailureClass::Interrupted }
    }

    fn class_of_last_attempt(&self) -> FailureClass {
        if self.0.is_lasting {
            return FailureClass::Final;
        }
        match (self.0.class, self.0.kind) {
            (Some(class), _) => class,
            (None, ErrorKind::Resolve | ErrorKind::Connect | ErrorKind::Tls) => FailureClass::NotConnected,
            (None, ErrorKind::Timeout(Phase::Dns | Phase::Connect | Phase::Proxy | Phase::Tls)) => {
                FailureClass::NotConnected
            }
            (None, ErrorKind::Pool | ErrorKind::Timeout(Phase::Queue)) => FailureClass::Unprocessed,
            (None, ErrorKind::Timeout(_)) => FailureClass::TimedOut,
            (None, ErrorKind::Exchange | ErrorKind::Body | ErrorKind::Layer) if self.is_timeout() => {
                FailureClass::TimedOut
            }
            (None, ErrorKind::Exchange | ErrorKind::Body) if self.is_malformed() => FailureClass::Malformed,
            (None, ErrorKind::Exchange | ErrorKind::Body) => FailureClass::Interrupted,
            (None, ErrorKind::Decode) => FailureClass::Malformed,
            (None, ErrorKind::Request | ErrorKind::Redirect | ErrorKind::Upgrade) => FailureClass::Final,
            (None, ErrorKind::Layer | ErrorKind::Status(_)) => FailureClass::Final,
        }
    }

    /// Returns true if bytes arrived that are not what they should be.
    fn is_malformed(&self) -> bool {
        let cause = self.0.cause.as_deref().map(|cause| unshared(cause));
        let Some(error) = cause.and_then(|cause| cause.downcast_ref::<hyper::Error>()) else { return false };
        error.is_parse() || io_cause(error).is_some_and(|io| io.kind() == io::ErrorKind::InvalidData)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trace::Limit;

    #[test]
    fn a_failure_before_anything_was_sent_is_told_from_one_behind_it() {
        let timeout = |phase| Error::timeout(phase, Duration::from_secs(1)).class();
        assert_eq!(
            [Phase::Dns, Phase::Connect, Phase::Proxy, Phase::Tls].map(timeout),
            [FailureClass::NotConnected; 4]
        );
        assert_eq!(timeout(Phase::Queue), FailureClass::Unprocessed);
        assert_eq!(
            [Phase::Backoff, Phase::Send, Phase::Wait, Phase::Receive].map(timeout),
            [FailureClass::TimedOut; 4]
        );
        assert_eq!(
            Error::closed_before_send(None).class(),
            FailureClass::Interrupted,
            "unless it is known to be the only attempt"
        );
        assert_eq!(
            Error::closed_before_send(None).with_class(FailureClass::Unprocessed).class(),
            FailureClass::Unprocessed
        );
        assert_eq!(Error::closed_body("stream", 1, Some(2)).class(), FailureClass::Interrupted);
    }

    #[test]
    fn what_would_fail_again_is_final() {
        assert_eq!(Error::refused_request("no").class(), FailureClass::Final);
        assert_eq!(Error::long_body(1).class(), FailureClass::Final);
        assert_eq!(Error::upload("the disk is gone".into()).class(), FailureClass::Final);
        assert_eq!(Error::no_lease(crate::pool::LeaseError::Refused(Limit::Draining)).class(), FailureClass::Final);
    }
}
