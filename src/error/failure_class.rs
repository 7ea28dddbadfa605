//! The classes of failed calls, for libraries with retries of their own.

/// The classes of failed calls, for those who may send the request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "object-store-0-14", feature = "opendal-0-59")),
    expect(dead_code, reason = "only adapters for libraries with retries of their own need all of it")
)]
pub(crate) enum FailureClass {
    /// No connection could be opened. Nothing was sent.
    NotConnected,
    /// The server cannot have acted on the request.
    Unprocessed,
    /// A time limit passed, and the server may have acted on the request.
    TimedOut,
    /// The connection broke, and the server may have acted on the request.
    Interrupted,
    /// The response is not HTTP, or its body cannot be decoded.
    Malformed,
    /// The next attempt would fail for the same reason.
    Final,
}
