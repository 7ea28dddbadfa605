//! The phases that a call's time is divided into.

use std::fmt;

/// A part of a call's time. Each moment of a call belongs to exactly one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// The wait before an attempt at a request: the backoff before a retry or a resend, and the wait for a token of a
    /// [`TokenSource`](crate::token::TokenSource).
    Backoff,
    /// The wait for a connection, without the time in which the connection that the request got was being opened.
    Queue,
    /// Name resolution: from the start of the first DNS lookup until the first address is dialled.
    Dns,
    /// From the first dialled address until a connection is established.
    Connect,
    /// The request to a proxy to connect to the origin (CONNECT or SOCKS), with the TLS handshake with the proxy itself.
    Proxy,
    /// The TLS handshake with the origin.
    Tls,
    /// From the lease of a connection until the last byte of the request is sent.
    Send,
    /// From the last byte of the request until the first byte of the response.
    Wait,
    /// From the first byte of the response until its last.
    Receive,
}

impl Phase {
    /// All phases, in the order in which a request goes through them.
    pub const ALL: [Self; 9] = [
        Self::Backoff,
        Self::Queue,
        Self::Dns,
        Self::Connect,
        Self::Proxy,
        Self::Tls,
        Self::Send,
        Self::Wait,
        Self::Receive,
    ];

    /// Returns the phase's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::Queue => "queue",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Proxy => "proxy",
            Self::Tls => "tls",
            Self::Send => "send",
            Self::Wait => "wait",
            Self::Receive => "receive",
        }
    }

    /// Returns true if a picture has a row for the phase although it took no time: most requests go through it.
    pub(crate) fn is_usual(self) -> bool {
        !matches!(self, Self::Backoff | Self::Proxy)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
