//! Events of calls, connections, the DNS resolver and the client, as values.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use bytes::Bytes;
use http::{Extensions, Method, StatusCode, Uri, Version};

use crate::origin::Origin;
use crate::redact::{self, Query};
use crate::trace::events::{Budgeted, CloseCause, DnsLookup, Family, HedgeOutcome, Limit, RepeatCause};

/// One event with its subject and time, as an [`Observer`](crate::trace::Observer) gets it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Record {
    /// The call, connection, resolver or client that the event belongs to.
    pub subject: Subject,
    /// The time at which the event happened. Observers may be told a little later.
    pub at: Instant,
    /// The event.
    pub event: Event,
}

/// The call, connection, resolver or client that an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// A call, by a number that is unique in its client.
    Call(u64),
    /// A connection, from the start of its dial until its socket is closed, by a number that is unique in its client.
    Connection(u64),
    /// The DNS resolver.
    Resolver,
    /// The client as a whole.
    Client,
}

/// A step of a call, of a connection, of the DNS resolver or of the client.
///
/// [`Event::Leased`] ties a call to the connection that it uses.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A call began.
    CallStart(Arc<RequestInfo>),
    /// The call entered the queue for a connection. [`Leased`](Self::Leased) or a failure ends the wait.
    #[non_exhaustive]
    Queued {
        /// The reason for the wait.
        limit: Limit,
        /// The number of requests to the same host that were in the queue before this one.
        position: usize,
        /// The origin whose connection the request waits for.
        origin: Origin,
        /// The number of connections, dials or streams that count against the limit, and the limit itself; `None` for a limit
        /// that is no number.
        usage: Option<Usage>,
    },
    /// The call got a connection.
    #[non_exhaustive]
    Leased {
        /// The connection's number.
        connection: u64,
        /// The peer's address, if the transport knows it.
        remote: Option<SocketAddr>,
        /// The number of requests that the connection carried before this one. 0 for a new connection.
        requests: u64,
        /// The time for which the connection was idle.
        idle: Duration,
        /// The result of the connection's TLS handshake, even if that was long ago. `None` without TLS.
        tls: Option<Arc<TlsFacts>>,
        /// The time for which the call was queued. Zero if it was not.
        waited: Duration,
        /// True if another request released this connection while a new one was still being opened for the call.
        freed: bool,
        /// True if the peer is a proxy that takes requests in absolute form (RFC 9112 §3.2.2).
        forwarded: bool,
    },
    /// The request's headers were handed to the socket; over HTTP/2, to the connection.
    ///
    /// This event, [`RequestSent`](Self::RequestSent) and [`FirstByte`](Self::FirstByte) are told, with their own times,
    /// when the response's headers have come or the attempt has failed.
    HeadersSent,
    /// The last byte of the request was handed to the socket; over HTTP/2, to the connection, as far as the peer's flow
    /// control window allowed.
    #[non_exhaustive]
    RequestSent {
        /// The length of the request's body in bytes.
        body: u64,
    },
    /// An interim response came, for example `100 Continue` or `103 Early Hints` (RFC 9110 §15.2). Only over HTTP/1.1:
    /// hyper passes none on over HTTP/2.
    #[non_exhaustive]
    Informational {
        /// The interim response's status.
        status: StatusCode,
    },
    /// The first byte of the response came. Interim responses do not count.
    FirstByte,
    /// The response's headers were read.
    #[non_exhaustive]
    Headers {
        /// The response's status.
        status: StatusCode,
        /// The response's version.
        version: Version,
    },
    /// What the call waited for was here before the program came to it: a connection, the server's part of a handshake, an answer. A
    /// runtime was busy, or had no processor. Told from 10 ms on. Where the connection's own task came late, only Linux tells, over TCP.
    #[non_exhaustive]
    ReadLate {
        /// The phase to which the time belongs: `Queue` for a connection of the pool, `Connect`, `Proxy`, `Tls`, `Wait` until the response's head
        /// was read, `Receive` after that.
        phase: Phase,
        /// The least time for which it was here. More bytes may have come meanwhile, which hides a part.
        by: Duration,
    },
    /// A timer was due before the call, or its dial, acted on it: a timeout, the wait before a retry or before a hedge. A runtime was busy,
    /// or had no processor. Told from 10 ms on.
    #[non_exhaustive]
    TimerLate {
        /// The phase to which the time belongs.
        phase: Phase,
        /// The time since the timer was due.
        by: Duration,
    },
    /// A processor quota stopped the program while it was late (Linux, `cpu.stat` of its control group). Told behind [`ReadLate`](Self::ReadLate)
    /// and [`TimerLate`](Self::TimerLate), if that is at least half of the delay, and if the program was late within the 2 s before as well:
    /// the quota is read only then.
    #[non_exhaustive]
    Throttled {
        /// The time for which the program was stopped, all processors together.
        stopped: Duration,
        /// The time between the two readings whose difference this is.
        within: Duration,
    },
    /// The call sends its request again: as a resend, which is always safe, or as a retry of the client's retry policy.
    /// [`BackoffStart`](Self::BackoffStart) follows if it waits before that; it comes first where the wait is for a token.
    #[non_exhaustive]
    Repeated {
        /// The reason.
        cause: RepeatCause,
    },
    /// The call does not send its request once more though its policy wants that, because the origin's budget is used up.
    #[non_exhaustive]
    OverBudget {
        /// What is not made.
        repeat: Budgeted,
    },
    /// The call waits before its next attempt: for a backoff, or for a token, which takes an unknown time. After a 401 there is no next
    /// attempt if there is no newer token.
    #[non_exhaustive]
    BackoffStart {
        /// The intended length of the wait; zero for a token.
        wait: Duration,
    },
    /// The wait before the next attempt is over.
    BackoffEnd,
    /// The answer was late, and the call sends its request once more, on another connection, while it goes on waiting for
    /// the first one ([`HedgePolicy`](crate::HedgePolicy)).
    ///
    /// Until [`HedgeEnd`](Self::HedgeEnd) observers are told the events of both attempts. Those of one attempt are in
    /// order; [`Leased`](Self::Leased) has the connection of each.
    #[non_exhaustive]
    Hedged {
        /// The time for which the first attempt has had its connection.
        after: Duration,
    },
    /// One of the two attempts at a request has been answered, or the second one has failed. If both were still waiting,
    /// the other one is cancelled, and no more events of it are told.
    #[non_exhaustive]
    HedgeEnd {
        /// The result of the second attempt.
        outcome: HedgeOutcome,
    },
    /// The call follows a redirect.
    #[non_exhaustive]
    Redirected {
        /// The response's status.
        status: StatusCode,
        /// The next request.
        to: Arc<RequestInfo>,
    },
    /// A piece of the response's body was read. Only observers see this event; the timings ignore it.
    #[non_exhaustive]
    BodyChunk {
        /// The piece's length in bytes.
        bytes: u64,
    },
    /// The response's body was read to its end, or to its announced length. The call is over.
    #[non_exhaustive]
    BodyEnd {
        /// The body's length in bytes.
        bytes: u64,
    },
    /// The response was dropped before the end of its body. The call is over, and has not failed.
    #[non_exhaustive]
    BodyDropped {
        /// The bytes of the body that were read.
        bytes: u64,
    },
    /// The call failed, or was dropped before it had a response. The call is over.
    #[non_exhaustive]
    CallFailed {
        /// The phase that the call was in.
        phase: Phase,
        /// The kind of the error in a word, as [`ErrorKind::as_str`](crate::ErrorKind::as_str) returns it, or `cancelled`.
        why: &'static str,
        /// The bytes of the response's body that were read.
        bytes: u64,
    },

    /// A connection is being opened.
    #[non_exhaustive]
    DialStart {
        /// The origin to connect to.
        origin: Origin,
        /// The state of the host's connections, from which follows why another one is opened.
        host: HostAtDial,
    },
    /// A DNS lookup began.
    #[non_exhaustive]
    DnsStart {
        /// The name looked up, or the address if the URL has one.
        name: Arc<str>,
        /// The family asked for.
        family: Family,
    },
    /// A DNS lookup ended.
    DnsEnd(DnsLookup),
    /// The dial no longer waits for a lookup, because an address of the other family connected first or the time ran out.
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
    /// An attempt to dial an address ended: it connected or failed.
    #[non_exhaustive]
    AttemptEnd {
        /// The address.
        address: SocketAddr,
        /// The reason for the failure; `None` if the address connected.
        error: Option<Arc<io::Error>>,
    },
    /// The first packet (SYN) to the address that connected last had been lost: the operating system sent it again. Known on Linux
    /// only.
    #[non_exhaustive]
    SynResent {
        /// The address.
        address: SocketAddr,
        /// The number of times that it was sent again.
        times: u32,
    },
    /// An attempt to dial an address was cancelled, because another address was faster or the time ran out.
    #[non_exhaustive]
    AttemptCancelled {
        /// The address.
        address: SocketAddr,
    },
    /// A Unix domain socket is being connected to.
    #[non_exhaustive]
    UnixStart {
        /// The socket's path.
        path: Arc<Path>,
    },
    /// A proxy is connected, and is asked to connect to the origin or to forward requests to it.
    #[non_exhaustive]
    ProxyStart {
        /// The proxy's host and port.
        proxy: Origin,
    },
    /// The proxy connected to the origin, or is ready to forward requests.
    ProxyEnd,
    /// A TLS handshake with the origin began. Handshakes with a proxy are part of [`Phase::Proxy`].
    #[non_exhaustive]
    TlsStart {
        /// The address of the peer, or of the proxy in between. `None` for a Unix domain socket.
        address: Option<SocketAddr>,
    },
    /// A TLS handshake succeeded.
    TlsEnd(Arc<TlsFacts>),
    /// A TLS handshake failed. The dial goes on with the host's other addresses, if there are any.
    #[non_exhaustive]
    TlsFailed {
        /// The address of the peer, or of the proxy in between. `None` for a Unix domain socket.
        address: Option<SocketAddr>,
        /// The reason for the failure.
        error: Arc<io::Error>,
    },
    /// The HTTP handshake began: over HTTP/2 with a preface and settings (RFC 9113 §3.4), over HTTP/1.1 without any
    /// message.
    #[non_exhaustive]
    HandshakeStart {
        /// The version that the client speaks on the connection.
        version: Version,
    },
    /// The connection is ready for requests.
    #[non_exhaustive]
    Opened {
        /// The peer's address, if the transport knows it.
        remote: Option<SocketAddr>,
    },
    /// The connection could not be opened.
    DialFailed,
    /// The dial was given up before the connection was open: no request needed it any more, or its client or runtime ended.
    DialCancelled,
    /// The connection could not be opened because the process or the system has no free descriptor or port. Its request
    /// waits on.
    DialPostponed,
    /// The stream of another protocol, which the connection or one of its HTTP/2 streams had switched to, was dropped.
    /// [`Released`](Self::Released) follows.
    #[non_exhaustive]
    UpgradeEnd {
        /// The number of bytes that were read from the stream.
        received: u64,
        /// The number of bytes that were written to the stream.
        sent: u64,
    },
    /// The client of another crate began to use the connection, which an `interop::Connector` opened. [`Released`](Self::Released)
    /// follows: over HTTP/2 when all its streams are over; over HTTP/1.1 when the client waits for more behind bytes that have come,
    /// which is all that is known of its requests.
    Active,
    /// A request released the connection.
    #[non_exhaustive]
    Released {
        /// True if the connection is fit for another request. It may be closed nevertheless, for example because of its
        /// age.
        kept: bool,
    },
    /// The connection takes no new requests. It closes when those that it still carries are over.
    #[non_exhaustive]
    Retired {
        /// The reason.
        cause: CloseCause,
    },
    /// The connection's socket was closed.
    #[non_exhaustive]
    Closed {
        /// The reason.
        cause: CloseCause,
    },

    /// A word of resolv.conf is not understood and is left out. The rest of the file is used.
    #[non_exhaustive]
    ConfigSkipped {
        /// The number of the word's line, counted from 1.
        line: usize,
        /// The word.
        word: Arc<str>,
    },

    /// Files of certificates or keys have changed, and new connections are made with what they hold now. Connections that were made
    /// with a certificate that is gone take no new requests.
    TlsFilesReloaded,
    /// Files of certificates or keys were read again, and cannot be used. The client goes on with what it read from them last. Told
    /// after each reading, until the files can be used.
    #[non_exhaustive]
    TlsFilesRefused {
        /// The reason, with the path of the file.
        reason: Arc<str>,
    },
    /// A setting of the client has no effect beside another one. Told when the client is built.
    #[non_exhaustive]
    SettingIgnored {
        /// The method that sets what has no effect.
        setting: &'static str,
        /// The method that sets what counts instead.
        beside: &'static str,
    },
}

/// A request as events describe it: method, origin and target. Its `Debug` output omits the query, which may hold secrets.
#[derive(Clone)]
#[non_exhaustive]
pub struct RequestInfo {
    /// The method.
    pub method: Method,
    /// The origin that the request is sent to.
    pub origin: Origin,
    /// The path and query.
    pub target: Uri,
    /// The values that go along with the request ([`RequestBuilder::extension`](crate::RequestBuilder::extension)).
    pub extensions: Extensions,
}

impl RequestInfo {
    /// Returns the URL without user, password and fragment, and with this part of its query.
    pub fn url(&self, query: Query) -> String {
        redact::url(&url_of(&self.origin, &self.target), query)
    }
}

/// Returns the URL of a request, with its query, and without what a target that is a whole URL has before its path.
fn url_of(origin: &Origin, target: &Uri) -> String {
    let target = target.path_and_query().map_or("/", |target| target.as_str());
    match origin.has_default_port() {
        true => format!("{}://{}{target}", origin.scheme(), origin.host()),
        false => format!("{}://{origin}{target}", origin.scheme()),
    }
}

impl fmt::Debug for RequestInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestInfo({} {})", self.method, self.url(Query::LeftOut))
    }
}

/// The result of a TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsFacts {
    /// The protocol version, for example `TLSv1_3`.
    pub version: &'static str,
    /// The cipher suite, by its name in IANA's registry as rustls writes it.
    pub cipher_suite: &'static str,
    /// The application protocol that was agreed on by ALPN (RFC 7301), for example `h2`.
    pub alpn: Option<Arc<str>>,
    /// True if an earlier session was resumed.
    pub resumed: bool,
    /// True if the server's certificate was verified: the configuration does not turn verification off, neither that of
    /// the certificate nor that of its name.
    ///
    /// A verifier in a `rustls::ClientConfig` that the caller made is assumed to verify.
    pub verified: bool,
    /// The server's certificate chain in DER, the server's own certificate first.
    pub peer_certificates: Vec<Bytes>,
}

/// The number of connections, dials or streams that count against a limit, and the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The number that count against the limit. Of a request that waits for no limit, the connections to its host that are being
    /// opened, against the limit of those.
    pub taken: usize,
    /// The limit.
    pub limit: usize,
    /// True if the limit is set for this host ([`PoolConfig::for_host`](crate::PoolConfig::for_host)), and not for all.
    pub is_own: bool,
}

impl Usage {
    pub(crate) fn new(taken: usize, limit: usize) -> Self {
        Self { taken, limit, is_own: false }
    }

    /// Marks the limit as one that is set for the host itself, if it is.
    pub(crate) fn of_host(self, is_own: bool) -> Self {
        Self { is_own, ..self }
    }
}

/// The state of a host's connections when a new one is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostAtDial {
    /// The number of the host's open connections, all of which were in use.
    pub open: usize,
    /// The number of connections to the host that were opened before in the same second.
    pub opened_lately: u32,
    /// The host's connection that ended last, if one has.
    pub last_close: Option<HostClose>,
    /// The limit of the machine that a dial met lately: [`Limit::Descriptors`], for any host, or [`Limit::Ports`], for this one. `None` if
    /// there was none.
    pub lacking: Option<Limit>,
}

/// The end of a host's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostClose {
    /// The reason.
    pub cause: CloseCause,
    /// The number of requests that the connection carried.
    pub requests: u64,
    /// True if the connection was idle, and would have been used again.
    pub was_idle: bool,
}

impl HostAtDial {
    pub(crate) fn new(open: usize, opened_lately: u32, last_close: Option<HostClose>) -> Self {
        Self { open, opened_lately, last_close, lacking: None }
    }
}

impl HostClose {
    pub(crate) fn new(cause: CloseCause, requests: u64, was_idle: bool) -> Self {
        Self { cause, requests, was_idle }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_the_part_of_its_query_that_is_asked_for() {
        let request = |origin, target: &str| {
            let origin = Origin::from_url(&url::Url::parse(origin).unwrap()).unwrap();
            RequestInfo { method: Method::GET, origin, target: target.parse().unwrap(), extensions: Extensions::new() }
        };
        let usual = request("http://api.test", "/x?a=1");
        assert_eq!(
            [Query::LeftOut, Query::Names, Query::Whole].map(|query| usual.url(query)),
            ["http://api.test/x", "http://api.test/x?a=removed", "http://api.test/x?a=1"]
        );
        let whole = request("https://[::1]:8443", "http://me:secret@other.test/y");
        assert_eq!(whole.url(Query::Whole), "https://[::1]:8443/y");
        assert_eq!(request("http://api.test:80", "*").url(Query::Whole), "http://api.test*");
    }
}
