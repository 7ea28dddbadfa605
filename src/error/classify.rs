//! Says of a failed call whether its request can be sent again: by its class, and by whether a server may have acted on it.

use std::io;

use super::explain::{io_cause, is_behind_http2, unshared};
use super::{Error, ErrorKind, FailureClass};
use crate::trace::{HopEnd, Phase, RepeatCause};

impl Error {
    /// Returns what the failure means for sending the request again.
    ///
    /// ```
    /// use speeddial::error::FailureClass;
    ///
    /// # fn may_repeat(error: &speeddial::Error, is_idempotent: bool) -> bool {
    /// match error.class() {
    ///     FailureClass::NotConnected | FailureClass::Unprocessed => true,
    ///     FailureClass::TimedOut | FailureClass::Interrupted => is_idempotent,
    ///     _ => false,
    /// }
    /// # }
    /// ```
    pub fn class(&self) -> FailureClass {
        if self.may_have_been_processed() { self.class_behind_another() } else { self.class_of_last_attempt() }
    }

    /// Returns the error of a run through layers of which a server may have acted on an attempt: a run is repeated with all its attempts,
    /// whatever became of the last one.
    pub(crate) fn behind_another_attempt(self) -> Self {
        if self.0.is_lasting {
            return self; // it says itself that it is final
        }
        let class = self.class_behind_another();
        self.with_class(class)
    }

    /// Returns the class of the failure if a server may have acted on an attempt before the last one.
    fn class_behind_another(&self) -> FailureClass {
        match self.class_of_last_attempt() {
            FailureClass::NotConnected | FailureClass::Unprocessed if self.is_timeout() => FailureClass::TimedOut,
            FailureClass::NotConnected | FailureClass::Unprocessed => FailureClass::Interrupted,
            class => class,
        }
    }

    /// Returns what the failure means for sending the last attempt again, whatever became of those before it.
    pub(crate) fn class_of_last_attempt(&self) -> FailureClass {
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
        if cause.is_some_and(is_behind_http2) {
            let io = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
            return io.is_some_and(|io| io.kind() == io::ErrorKind::InvalidData);
        }
        let Some(error) = cause.and_then(|cause| cause.downcast_ref::<hyper::Error>()) else { return false };
        error.is_parse() || io_cause(error).is_some_and(|io| io.kind() == io::ErrorKind::InvalidData)
    }
}

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

    /// A stream whose first read fails.
    struct Failing(io::ErrorKind);

    impl hyper::rt::Read for Failing {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: hyper::rt::ReadBufCursor<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Err(io::Error::new(self.0, "torn")))
        }
    }

    impl hyper::rt::Write for Failing {
        fn poll_write(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            bytes: &[u8],
        ) -> std::task::Poll<io::Result<usize>> {
            std::task::Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn poll_shutdown(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Ok(()))
        }
    }

    /// Returns hyper's error of an HTTP/2 connection whose stream fails.
    async fn over_http2(kind: io::ErrorKind) -> hyper::Error {
        let executor = hyper_util::rt::TokioExecutor::new();
        type Body = http_body_util::Empty<bytes::Bytes>;
        let opened = hyper::client::conn::http2::handshake::<_, _, Body>(executor, Failing(kind)).await;
        let (_sender, connection) = opened.expect("nothing is read yet");
        connection.await.expect_err("the stream fails")
    }

    #[tokio::test]
    async fn an_error_over_http2_leads_to_both_and_is_classified() {
        use std::error::Error as _;

        for (kind, class) in [
            (io::ErrorKind::InvalidData, FailureClass::Malformed),
            (io::ErrorKind::ConnectionReset, FailureClass::Interrupted),
        ] {
            let exchange = Error::exchange(over_http2(kind).await, false, None);
            assert_eq!(exchange.class(), class);
            let refused = crate::connect::ConnectError::Handshake(over_http2(kind).await.into());
            for error in [exchange, Error::no_connection(refused), Error::body(over_http2(kind).await, 1, None)] {
                let causes: Vec<_> = std::iter::successors(error.source(), |error| (*error).source()).collect();
                let io = causes.iter().find_map(|cause| cause.downcast_ref::<io::Error>()).expect("that of the stream");
                assert_eq!(io.kind(), kind);
                #[cfg(feature = "doctor")]
                assert!(!super::super::explain::is_behind_http2(error.io_cause().expect("that of the system")));
                assert!(causes.iter().any(|cause| cause.is::<hyper::Error>()), "{causes:?}");
                let text = format!("{error:#}");
                assert!(text.ends_with(": torn") && text.matches("torn").count() == 1, "{text}");
                let carried = format!("{:#}", Error::upload(error.into()));
                assert!(carried.ends_with(": torn"), "{carried}");
            }
        }
    }
}
