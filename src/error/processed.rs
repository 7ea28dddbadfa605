//! The answer to a question: may a server have acted on the request of a failed call?

use super::{Error, ErrorKind, FailureClass};
use crate::trace::{HopEnd, Phase, RepeatCause};

impl Error {
    /// Returns true if a server may have acted on the request, in the last attempt at it or in one before.
    ///
    /// Where it returns false, nothing of the request was sent, or each server that got some of it said that it did not process it
    /// (REFUSED_STREAM, GOAWAY; RFC 9113 §8.7). Then the request can be sent again whatever its method.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let refused = speeddial::Client::new().post("http://127.0.0.1:1/").body("pay").send().await.unwrap_err();
    /// assert!(!refused.may_have_been_processed());
    /// # }
    /// ```
    pub fn may_have_been_processed(&self) -> bool {
        let last = match (self.0.class, self.0.kind) {
            (Some(class), _) => !matches!(class, FailureClass::NotConnected | FailureClass::Unprocessed),
            (None, ErrorKind::Request | ErrorKind::Resolve | ErrorKind::Connect | ErrorKind::Tls | ErrorKind::Pool) => {
                false
            }
            (None, ErrorKind::Timeout(phase)) => matches!(phase, Phase::Send | Phase::Wait | Phase::Receive),
            _ => true,
        };
        last || self.earlier_may_be_processed()
    }

    /// Returns true if the server may have acted on an attempt before the last one.
    fn earlier_may_be_processed(&self) -> bool {
        let is_harmless = |end| {
            let HopEnd::Repeated(cause) = end else { return false };
            matches!(
                cause,
                RepeatCause::NotSent
                    | RepeatCause::Refused
                    | RepeatCause::TimedOutIdle
                    | RepeatCause::ExpectationFailed
            )
        };
        // Nothing is known of what became of a second attempt.
        self.timings().is_some_and(|timings| {
            let is_hedged = !timings.hedges().is_empty();
            timings.acted_before() || is_hedged || !timings.hops().iter().all(|hop| is_harmless(hop.end))
        })
    }
}
