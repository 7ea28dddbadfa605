//! The message of an exchange: the bodies that can be sent, the times on the wire, and the result of a failure.

use std::sync::Arc;

use http::Request;
use http_body::Body;

use crate::clock::Instant;

/// A body that can be sent.
pub(crate) trait Message: Body<Data: Send, Error: Into<Cause>> + Send + Unpin + 'static {}

impl<B: Body<Data: Send, Error: Into<Cause>> + Send + Unpin + 'static> Message for B {}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The failure of a request that got no response.
pub(crate) struct SendError<B> {
    /// The error of the exchange; `None` if the connection had ended before the request reached it.
    pub(crate) error: Option<hyper::Error>,
    /// The error that ended the connection before it took the request; `None` if there was none, or it is `error`.
    pub(crate) ended_by: Option<Arc<hyper::Error>>,
    /// The request, if nothing of it was sent.
    pub(crate) unsent: Option<Request<B>>,
}

impl<B> SendError<B> {
    /// Returns the error that says most about the failure.
    pub(crate) fn cause(&self) -> Option<&hyper::Error> {
        self.ended_by.as_deref().or(self.error.as_ref())
    }

    /// Returns true if the server said that it did not process the request (RFC 9113 §8.7).
    pub(crate) fn is_refused(&self) -> bool {
        self.error.as_ref().is_some_and(is_refused)
    }
}

/// Returns true for a stream reset with REFUSED_STREAM, and for a GOAWAY whose last stream is below the request's.
fn is_refused(error: &hyper::Error) -> bool {
    let cause = h2_cause(error).filter(|cause| cause.is_remote());
    cause.is_some_and(|cause| {
        cause.is_go_away() || (cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// Returns the error of h2 that caused one of hyper.
pub(in crate::connect) fn h2_cause(error: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// The times of a request and its response on the wire.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExchangeTimes {
    /// The time at which the first byte of the request was written. Over HTTP/2: at which the request was handed to the
    /// connection.
    pub(crate) begun: Option<Instant>,
    /// The time at which the last byte so far was written. Over HTTP/2: the same as `begun`.
    pub(crate) sent: Option<Instant>,
    /// The time at which the first byte of the response was read.
    pub(crate) answered: Option<Instant>,
    /// The time at which the end of the response's head was read, if it is known: all came in one read, or as one frame.
    pub(crate) head_read: Option<Instant>,
    /// True if any byte was read over HTTP/1.1, also one of an interim response.
    pub(crate) heard: bool,
}

impl ExchangeTimes {
    /// Returns the nanoseconds from the last byte of the request to the first one of the response.
    #[inline]
    pub(crate) fn waited_nanos(&self) -> u64 {
        let sent = self.sent.or(self.begun);
        self.answered.zip(sent).map_or(0, |(answered, sent)| answered.nanos_since(sent))
    }
}
