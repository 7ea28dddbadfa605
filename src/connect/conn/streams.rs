//! The number of requests that a connection takes, as it is reported to the pool.

/// The number of requests that a connection carries from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// Up to this many requests at the same time. HTTP/2 servers announce it (RFC 9113 §5.1.2).
    Streams(usize),
    /// No new requests. Those under way go on.
    NoMore,
    /// No new requests, because the server is overloaded: its GOAWAY had the code ENHANCE_YOUR_CALM (RFC 9113 §7).
    EnhanceYourCalm,
    /// No requests at all: the runtime that served the connection ended before the socket was closed. The server did
    /// nothing.
    Abandoned,
}
