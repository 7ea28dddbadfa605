//! What can happen to a call or a connection, as values.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode, Uri, Version};

use crate::origin::Origin;

/// The parts of a request's time; each moment of a call belongs to exactly one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Waiting for a connection, except while the one the request got was being opened.
    Queue,
    /// Until the first address was dialled.
    Dns,
    /// From the first dialled address to an established connection.
    Connect,
    /// Asking a proxy to lead on, its own TLS handshake included.
    Proxy,
    /// The TLS handshake.
    Tls,
    /// From the lease of a connection to the last byte of the request.
    Send,
    /// From the last byte of the request to the first byte of the response.
    Wait,
    /// From the first byte of the response to its last.
    Receive,
}

impl Phase {
    /// All phases, in the order a request goes through them.
    pub const ALL: [Self; 8] =
        [Self::Queue, Self::Dns, Self::Connect, Self::Proxy, Self::Tls, Self::Send, Self::Wait, Self::Receive];

    /// The phase's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
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
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An address family, asked for and cached apart from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there are two address families")]
pub enum Family {
    /// IPv4: A records.
    V4,
    /// IPv6: AAAA records.
    V6,
}

impl Family {
    /// Both families.
    pub const BOTH: [Self; 2] = [Self::V6, Self::V4];

    /// The family of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The one that this is not.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        })
    }
}

/// Where a DNS answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The cache, within the answer's TTL.
    Hit,
    /// A query that was already in flight for somebody else.
    Coalesced,
    /// A query of its own.
    Miss,
    /// The cache, past the answer's TTL: a newer one could not be had, or not soon enough (RFC 8767).
    Stale,
    /// The cache, where somebody pinned the name to addresses.
    Pinned,
    /// The hosts file, or what is known of `localhost`, without a query.
    Hosts,
    /// A fixed table, without a query.
    Fixed,
    /// The URL named an IP address, so nothing was looked up.
    Literal,
}

impl Source {
    /// The source's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Coalesced => "coalesced",
            Self::Miss => "miss",
            Self::Stale => "stale",
            Self::Pinned => "pinned",
            Self::Hosts => "hosts",
            Self::Fixed => "fixed",
            Self::Literal => "literal",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What keeps a request from having a connection at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// None: a connection is being opened for it.
    Opening,
    /// As many connections to the host as there may be at the same time are being opened, or nothing is known of it yet,
    /// and the first connection shows whether one is enough for all.
    Dials,
    /// The host has as many connections as it may have.
    ConnectionsPerHost,
    /// The host has as many HTTP/2 connections as it may have, and all of their streams are taken.
    Streams,
    /// There are as many connections as there may be.
    Connections,
    /// The process, or the system, can open no more sockets at the moment.
    Descriptors,
    /// The server asked for fewer requests (HTTP/2's ENHANCE_YOUR_CALM), and is not dialled for a while.
    Calm,
    /// The pool is being drained.
    Draining,
}

impl Limit {
    /// What it is, as it reads in a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "its connection is being opened",
            Self::Dials => "enough connections to the host are being opened",
            Self::ConnectionsPerHost => "the host has all the connections it may have",
            Self::Streams => "all streams of the host's HTTP/2 connections are taken",
            Self::Connections => "the pool has all the connections it may have",
            Self::Descriptors => "no more sockets can be opened at the moment",
            Self::Calm => "the server asked for calm, and is not dialled for a while",
            Self::Draining => "the pool is being drained",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a connection is not used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseCause {
    /// The peer closed it, or the network did.
    Peer,
    /// The peer said that it would not serve more requests (GOAWAY, or `Keep-Alive: max=0`).
    PeerAsked,
    /// An exchange on it failed, or was given up in the middle.
    Unfinished,
    /// Nobody used it for too long.
    IdleTimeout,
    /// There were more idle connections than are kept.
    IdleLimit,
    /// It made room for another host's, which waited for its turn.
    MadeRoom,
    /// Descriptors had run out, and it gave its own back.
    Descriptors,
    /// Its lifetime is over.
    Lifetime,
    /// It carried as many requests as one may.
    Requests,
    /// DNS has left its address.
    Dns,
    /// The program asked for it: idle ones were to be closed, or the pool to be drained, or the client is gone, or the
    /// runtime ended on which it was opened.
    Asked,
}

impl CloseCause {
    /// All causes.
    pub const ALL: [Self; 11] = [
        Self::Peer,
        Self::PeerAsked,
        Self::Unfinished,
        Self::IdleTimeout,
        Self::IdleLimit,
        Self::MadeRoom,
        Self::Descriptors,
        Self::Lifetime,
        Self::Requests,
        Self::Dns,
        Self::Asked,
    ];

    /// The cause's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::PeerAsked => "peer asked",
            Self::Unfinished => "unfinished",
            Self::IdleTimeout => "idle timeout",
            Self::IdleLimit => "idle limit",
            Self::MadeRoom => "made room",
            Self::Descriptors => "descriptors",
            Self::Lifetime => "lifetime",
            Self::Requests => "requests",
            Self::Dns => "dns",
            Self::Asked => "asked",
        }
    }
}

impl fmt::Display for CloseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a request asks. Its `Debug` leaves the query out, in which there may be secrets.
#[derive(Clone)]
#[non_exhaustive]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// Where it goes.
    pub origin: Origin,
    /// The path and query it asks for.
    pub target: Uri,
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Asked({} {}{})", self.method, self.origin, self.target.path())
    }
}

/// Why a call is made again, and why it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryCause {
    /// The connection closed before anything of the request was sent.
    NotSent,
    /// The peer says that it did nothing about the request: it refused the stream, or left it out of its GOAWAY
    /// (RFC 9113 §8.7).
    Refused,
    /// A kept connection closed without a byte of a response, as connections do that were idle for too long, and the
    /// request is idempotent (RFC 9112 §9.3.1). Or the runtime ended on which the connection was opened.
    Closed,
    /// A kept connection had a 408 in it, which is said to nobody's request (RFC 9110 §15.5.9).
    TimedOutIdle,
    /// The response had a status for which the client's [`RetryPolicy`](crate::RetryPolicy) has requests made again.
    Status(StatusCode),
    /// There was no response, and the client's [`RetryPolicy`](crate::RetryPolicy) has such requests made again.
    Failed,
}

impl RetryCause {
    /// The cause's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not sent",
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::TimedOutIdle => "timed out idle",
            Self::Status(_) => "status",
            Self::Failed => "failed",
        }
    }

    /// Why another attempt is safe, as it reads in a sentence.
    pub fn why_safe(self) -> &'static str {
        match self {
            Self::NotSent => "nothing of the request was sent",
            Self::Refused => "the peer says that it did nothing about the request",
            Self::Closed => "the request is idempotent, and the connection was a kept one",
            Self::TimedOutIdle => "the peer gave up waiting before the request came",
            Self::Status(_) => "the request is idempotent",
            Self::Failed => "the request is idempotent, or was not sent",
        }
    }
}

impl fmt::Display for RetryCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Whom an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// One call of a client, by a number that is unique in this client.
    Call(u64),
    /// One connection, from the start of its dial to the end of its socket, by a number that is unique in this client.
    Connection(u64),
    /// The DNS resolver.
    Resolver,
}

/// One event with its subject and time, as an [`Observer`](super::Observer) gets it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Record {
    /// Whom it is about.
    pub subject: Subject,
    /// When it happened, which may be a little before it is told.
    pub at: Instant,
    /// What happened.
    pub event: Event,
}

/// What happened. Calls, connections and the resolver have events of their own; [`Event::Leased`] ties a call to a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A call began.
    CallStart(Arc<Asked>),
    /// The call waits for a connection, until it is [`Leased`](Self::Leased) one or fails.
    #[non_exhaustive]
    Queued {
        /// What keeps it from having one at once.
        limit: Limit,
        /// How many of the host's requests wait before it.
        position: usize,
    },
    /// The call has a connection.
    #[non_exhaustive]
    Leased {
        /// The connection's number.
        connection: u64,
        /// The peer's address, where the transport knows it.
        remote: Option<SocketAddr>,
        /// How many requests it carried before this one; 0 for a new connection.
        requests: u64,
        /// For how long nobody had used it.
        idle: Duration,
        /// What its TLS handshake came to, be it long ago.
        tls: Option<Arc<TlsFacts>>,
        /// How long the call waited in the queue for it; zero where it did not have to.
        waited: Duration,
        /// Whether somebody else gave the connection back while one was being opened for this call.
        freed: bool,
    },
    /// The request's headers were handed to the socket; over HTTP/2, to the connection. This and the next events are told, with
    /// their own times, when the response's headers have come, or the attempt is over.
    HeadersSent,
    /// The last byte of the request was handed to the socket; over HTTP/2, to the connection, as far as the peer's window takes it.
    #[non_exhaustive]
    RequestSent {
        /// How many bytes the body has.
        body: u64,
    },
    /// An interim response came: `100 Continue`, `103 Early Hints` (RFC 9110 §15.2). It is told of over HTTP/1.1 alone.
    #[non_exhaustive]
    Informational {
        /// Its status.
        status: StatusCode,
    },
    /// The first byte of the response came. Those of interim responses do not count.
    FirstByte,
    /// The response's headers were read.
    #[non_exhaustive]
    Headers {
        /// The response's status.
        status: StatusCode,
        /// The response's version.
        version: Version,
    },
    /// The call will be made again, because that is safe.
    #[non_exhaustive]
    Retried {
        /// What became of the last attempt, and why it may be repeated.
        cause: RetryCause,
    },
    /// The call goes on with another request, because the response says so.
    #[non_exhaustive]
    Redirected {
        /// The response's status.
        status: StatusCode,
        /// The next request.
        to: Arc<Asked>,
    },
    /// A piece of the response's body was read. Observers alone are told.
    #[non_exhaustive]
    BodyChunk {
        /// The piece's length in bytes.
        bytes: u64,
    },
    /// The response's body was read to its end; the call is over.
    #[non_exhaustive]
    BodyEnd {
        /// The body's length in bytes.
        bytes: u64,
    },
    /// The call failed, or was given up by dropping it; the call is over.
    #[non_exhaustive]
    CallFailed {
        /// The phase it was in.
        phase: Phase,
        /// The kind of the error in a word, as [`ErrorKind::as_str`](crate::ErrorKind::as_str) has it; `cancelled` where
        /// the caller gave it up.
        why: &'static str,
    },

    /// A connection is being opened.
    #[non_exhaustive]
    DialStart {
        /// Where to.
        origin: Origin,
    },
    /// A lookup began.
    #[non_exhaustive]
    DnsStart {
        /// The name looked up; an address where the URL has one.
        name: Arc<str>,
        /// The family asked for.
        family: Family,
    },
    /// A lookup ended.
    DnsEnd(DnsLookup),
    /// A lookup is no longer waited for, because the other family's addresses were faster or the time ran out.
    #[non_exhaustive]
    DnsCancelled {
        /// The family asked for.
        family: Family,
    },
    /// An address is being dialled.
    #[non_exhaustive]
    AttemptStart {
        /// The address.
        address: SocketAddr,
    },
    /// An address was dialled: it connected, or it failed.
    #[non_exhaustive]
    AttemptEnd {
        /// The address.
        address: SocketAddr,
        /// Why it failed; `None` when it connected.
        error: Option<Arc<io::Error>>,
    },
    /// Dialling an address was given up, because another one was faster or the time ran out.
    #[non_exhaustive]
    AttemptCancelled {
        /// The address.
        address: SocketAddr,
    },
    /// A Unix domain socket is being connected to.
    #[non_exhaustive]
    UnixStart {
        /// Where it is.
        path: Arc<Path>,
    },
    /// There is a connection to a proxy, which is asked to lead on.
    #[non_exhaustive]
    ProxyStart {
        /// The proxy's host and port.
        proxy: Origin,
    },
    /// The proxy leads on.
    ProxyEnd,
    /// A TLS handshake began.
    #[non_exhaustive]
    TlsStart {
        /// The peer's address, or the proxy's; none where there is a Unix domain socket.
        address: Option<SocketAddr>,
    },
    /// A TLS handshake is done.
    TlsEnd(Arc<TlsFacts>),
    /// A TLS handshake failed; the other addresses still have their turn.
    #[non_exhaustive]
    TlsFailed {
        /// The peer's address, or the proxy's; none where there is a Unix domain socket.
        address: Option<SocketAddr>,
        /// Why it failed.
        error: Arc<io::Error>,
    },
    /// HTTP begins: over HTTP/2 with a preface and settings (RFC 9113 §3.4), over HTTP/1.1 without a word.
    #[non_exhaustive]
    HandshakeStart {
        /// What will be spoken.
        version: Version,
    },
    /// The connection is ready for requests.
    #[non_exhaustive]
    Opened {
        /// The peer's address, where the transport knows it.
        remote: Option<SocketAddr>,
    },
    /// The connection could not be opened.
    DialFailed,
    /// The connection could not be opened because sockets have run out. Its request waits until there are more.
    DialPostponed,
    /// A request is done with the connection.
    #[non_exhaustive]
    Released {
        /// Whether the request leaves it fit for others; it may be closed all the same, for its age, say.
        kept: bool,
    },
    /// The connection takes no more requests, and closes when those it carries are over.
    #[non_exhaustive]
    Retired {
        /// Why.
        cause: CloseCause,
    },
    /// The connection's socket was closed.
    #[non_exhaustive]
    Closed {
        /// Why.
        cause: CloseCause,
    },

    /// A word of resolv.conf cannot be understood, and is left out; the rest of the file counts.
    #[non_exhaustive]
    ConfigSkipped {
        /// The number of its line, counted from 1.
        line: usize,
        /// The word.
        word: Arc<str>,
    },
}

/// What a TLS handshake came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsFacts {
    /// The version, `TLSv1_3` say.
    pub version: &'static str,
    /// The cipher suite, by its name in IANA's registry as rustls writes it.
    pub cipher_suite: &'static str,
    /// The protocol that was agreed on (ALPN).
    pub alpn: Option<Arc<str>>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// Whether the server's certificate was verified: `false` where the configuration says not to. What a verifier in a
    /// `rustls::ClientConfig` of the user's own does is not known, and taken for verification.
    pub verified: bool,
    /// The certificates the server showed, in DER, its own first.
    pub peer_certificates: Vec<Bytes>,
}

/// One family's lookup: what it answered, and where the answer came from.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DnsLookup {
    /// The name looked up; an address where the URL has one.
    pub name: Arc<str>,
    /// The family asked for.
    pub family: Family,
    /// The addresses; empty when it failed.
    pub addresses: Arc<[IpAddr]>,
    /// How long the answer may still be used; zero when it failed.
    pub ttl: Duration,
    /// Where the answer, or the word that there is none, came from.
    pub source: Source,
    /// Why there is no answer.
    pub error: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl DnsLookup {
    pub(crate) fn answered(
        name: Arc<str>,
        family: Family,
        addresses: Arc<[IpAddr]>,
        ttl: Duration,
        source: Source,
    ) -> Self {
        Self { name, family, addresses, ttl, source, error: None }
    }

    pub(crate) fn failed(
        name: Arc<str>,
        family: Family,
        source: Source,
        error: Arc<dyn std::error::Error + Send + Sync>,
    ) -> Self {
        Self { name, family, addresses: Arc::default(), ttl: Duration::ZERO, source, error: Some(error) }
    }
}
