//! What happens, as it is told to observers.
//!
//! | file | what it does |
//! |---|---|
//! | `event.rs` | the events, what was known of a host, and the phases of a call |
//! | `mod.rs` | their parts: lookups of DNS, why connections close |

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::trace::text::exact;

pub(super) mod event;

/// The reason why a request waits for a connection: mostly the limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// No limit: a connection is being opened for the request.
    Opening,
    /// The limit of connections being opened to one host at the same time.
    Dials,
    /// The limit of connections to one host.
    ConnectionsPerHost,
    /// The limit of HTTP/2 connections to one host, all of whose streams are in use.
    Streams,
    /// No limit that is known: the server has opened an HTTP/2 connection and has not said yet, by its SETTINGS, how many requests at a
    /// time it takes. Until then it gets one.
    Settings,
    /// The pool's limit of connections in total.
    Connections,
    /// The lack of file descriptors: the process or the system has none left at the moment (EMFILE, ENFILE).
    Descriptors,
    /// The lack of local ports: all that may lead to the host's address are taken (EADDRNOTAVAIL, EADDRINUSE).
    Ports,
    /// The server asked for fewer requests (HTTP/2's ENHANCE_YOUR_CALM), so its host is not dialled for a while.
    EnhanceYourCalm,
    /// The client is being drained and serves no new calls.
    Draining,
}

impl Limit {
    /// All limits.
    pub const ALL: [Self; 10] = [
        Self::Opening,
        Self::Dials,
        Self::ConnectionsPerHost,
        Self::Streams,
        Self::Settings,
        Self::Connections,
        Self::Descriptors,
        Self::Ports,
        Self::EnhanceYourCalm,
        Self::Draining,
    ];

    /// Returns a clause that explains the wait, for use in a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "its connection is being opened",
            Self::Dials => "enough connections to the host are being opened",
            Self::ConnectionsPerHost => "the host has all the connections it may have",
            Self::Streams => "all streams of the host's HTTP/2 connections are taken",
            Self::Settings => "the server has not sent the SETTINGS of its HTTP/2 connection",
            Self::Connections => "the pool has all the connections it may have",
            Self::Descriptors => "no more sockets can be opened at the moment: the descriptors are used up (EMFILE)",
            Self::Ports => "no more sockets can be opened at the moment: the local ports are used up (EADDRNOTAVAIL)",
            Self::EnhanceYourCalm => "the server asked for fewer requests, and is not dialled for a while",
            Self::Draining => "the pool is being drained",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The reason why a connection takes no new requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseCause {
    /// The peer or the network closed the connection.
    Peer,
    /// The peer announced that it serves no more requests on the connection (`Connection: close`, `Keep-Alive: max=0`, or GOAWAY).
    PeerAnnounced,
    /// A request on the connection failed, or was cancelled before its response was complete.
    Unfinished,
    /// The idle timeout passed.
    IdleTimeout,
    /// The limit of idle connections was exceeded.
    IdleLimit,
    /// The connection made room for one to another host, because the limit of connections in total was reached.
    MadeRoom,
    /// The process or the system had no file descriptors left, so this idle connection was closed to free one.
    Descriptors,
    /// The lifetime of the connection ended.
    Lifetime,
    /// Another connection was opened in its place, shortly before its idle timeout or lifetime ended
    /// ([`PoolConfig::min_idle_per_host`](crate::PoolConfig::min_idle_per_host)).
    Replaced,
    /// The connection reached the limit of requests per connection.
    RequestLimit,
    /// The address of the connection left the DNS answers for its host.
    AddressMoved,
    /// The connection switched to another protocol ([`Response::upgrade`](crate::Response::upgrade)), and the stream of
    /// that was dropped.
    Upgraded,
    /// The program closed the idle connections, drained the pool, dropped the client, or ended the runtime on which the
    /// connection was opened.
    Program,
    /// The client was reconfigured: the connection was made with settings that it no longer has, such as a client certificate that was
    /// replaced.
    Reconfigured,
}

impl CloseCause {
    /// All causes.
    pub const ALL: [Self; 14] = [
        Self::Peer,
        Self::PeerAnnounced,
        Self::Unfinished,
        Self::IdleTimeout,
        Self::IdleLimit,
        Self::MadeRoom,
        Self::Descriptors,
        Self::Lifetime,
        Self::Replaced,
        Self::RequestLimit,
        Self::AddressMoved,
        Self::Upgraded,
        Self::Program,
        Self::Reconfigured,
    ];

    /// Returns the cause's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::PeerAnnounced => "peer announced",
            Self::Unfinished => "unfinished",
            Self::IdleTimeout => "idle timeout",
            Self::IdleLimit => "idle limit",
            Self::MadeRoom => "made room",
            Self::Descriptors => "descriptors",
            Self::Lifetime => "lifetime",
            Self::Replaced => "replaced",
            Self::RequestLimit => "request limit",
            Self::AddressMoved => "address moved",
            Self::Upgraded => "upgraded",
            Self::Program => "program",
            Self::Reconfigured => "reconfigured",
        }
    }
}

impl fmt::Display for CloseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The reason why a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RepeatCause {
    /// The connection closed before any byte of the request was sent.
    NotSent,
    /// The peer said that it did not process the request: it refused the stream, or sent a GOAWAY that leaves the stream
    /// out (RFC 9113 §8.7).
    Refused,
    /// A reused connection closed without a byte of a response, as idle connections do, and the request is idempotent
    /// (RFC 9112 §9.3.1). Also the cause if the runtime ended on which the connection was opened.
    Closed,
    /// A reused connection carried a 408 that answers no request: the server had closed it for being idle
    /// (RFC 9110 §15.5.9).
    TimedOutIdle,
    /// The response had this status, which the client's [`RetryPolicy`](crate::RetryPolicy) retries.
    Status(StatusCode),
    /// The server rejected the token (401), and the [`TokenSource`](crate::token::TokenSource) has another one.
    Unauthorized,
    /// The server does not do what `Expect: 100-continue` asks for (417, RFC 9110 §10.1.1), and gets the request without it.
    ExpectationFailed,
    /// There was no response, which the client's [`RetryPolicy`](crate::RetryPolicy) retries.
    Failed,
}

impl RepeatCause {
    /// Returns the cause's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not sent",
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::TimedOutIdle => "timed out idle",
            Self::Status(_) => "status",
            Self::Unauthorized => "unauthorized",
            Self::ExpectationFailed => "expectation failed",
            Self::Failed => "failed",
        }
    }

    /// Returns true for a retry, which the client's retry policy asked for, and false for a resend, which is always safe.
    pub fn is_retry(self) -> bool {
        matches!(self, Self::Status(_) | Self::Failed)
    }

    /// Returns a clause that explains why another attempt is safe, for use in a sentence.
    pub fn why_safe(self) -> &'static str {
        match self {
            Self::NotSent => "nothing of the request was sent",
            Self::Refused => "the peer did not process the request",
            Self::Closed => "the request is idempotent, and the reused connection had been idle",
            Self::TimedOutIdle => "the peer closed the idle connection before the request came",
            Self::Status(_) => "the request is idempotent",
            Self::Unauthorized => "the server rejected the token, and the next attempt has another one",
            Self::ExpectationFailed => "the server refused the expectation (417), and took nothing else of the request",
            Self::Failed => "the request is idempotent, or was not sent",
        }
    }
}

impl fmt::Display for RepeatCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => f.pad(&format!("status {}", status.as_u16())),
            _ => f.pad(self.as_str()),
        }
    }
}

/// A request that is sent once more only as far as the origin's budget goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Budgeted {
    /// A retry ([`RetryPolicy::budget`](crate::RetryPolicy::budget)).
    Retry,
    /// A resend after the server turned the request away, or closed a new connection at once.
    Resend,
    /// A hedge ([`HedgePolicy::budget`](crate::HedgePolicy::budget)).
    Hedge,
}

impl Budgeted {
    /// Returns the name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Resend => "resend",
            Self::Hedge => "hedge",
        }
    }
}

/// The reason why a request is not sent again, unless it is the origin's budget or the number of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotRetried {
    /// The server asks for a longer wait than the policy allows.
    RetryAfter { asked: Duration, most: Duration },
    /// The server may have acted on the request, which must not be acted on twice.
    NotIdempotent,
    /// The body was a stream, so that the request is not `retried` or `resent`.
    BodyIsGone(&'static str),
    /// The call's time limit passes before the wait is over.
    NoTime { wait: Duration },
}

impl fmt::Display for NotRetried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RetryAfter { asked: Duration::MAX, most } => {
                write!(f, "not retried, since Retry-After is above {}", exact(*most))
            }
            Self::RetryAfter { asked, most } => {
                write!(f, "not retried, since Retry-After {} is above {}", exact(*asked), exact(*most))
            }
            Self::NotIdempotent => {
                f.write_str("not retried, since the server may have acted on it, and it is not idempotent")
            }
            Self::BodyIsGone(verb) => write!(f, "not {verb}, since its body was a stream, which cannot be sent again"),
            Self::NoTime { wait } => {
                write!(f, "not retried, since the call has no time left for a wait of {}", exact(*wait))
            }
        }
    }
}

impl fmt::Display for Budgeted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The result of a second attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HedgeOutcome {
    /// Neither attempt has ended.
    Pending,
    /// The second attempt was answered first, or was the only one that was answered.
    Won,
    /// The first attempt was answered first.
    Lost,
    /// The second attempt failed, or was answered with status 429 or 5xx while the first one went on.
    Failed,
    /// The call's timeout passed before either attempt had ended.
    Timeout,
    /// The call was dropped before either attempt had ended.
    Cancelled,
}

impl HedgeOutcome {
    /// Returns the outcome for a call that failed in this way before either attempt had ended.
    pub(in crate::trace) fn of_failed_call(why: &str) -> Self {
        match why {
            "timeout" => Self::Timeout,
            "cancelled" => Self::Cancelled,
            _ => Self::Failed,
        }
    }

    /// Returns the outcome's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Won => "won",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for HedgeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An address family. The two families are looked up and cached separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there are two address families")]
pub enum Family {
    /// IPv4: A records.
    V4,
    /// IPv6: AAAA records.
    V6,
}

impl Family {
    /// Both families, IPv6 first.
    pub const BOTH: [Self; 2] = [Self::V6, Self::V4];

    /// Returns the family of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the other family.
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

/// The source of a DNS answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The cache, within the answer's TTL.
    Hit,
    /// A query that was already in flight for another lookup.
    Coalesced,
    /// A query made for this lookup.
    Miss,
    /// The cache, after the answer's TTL expired, because a new answer failed to come or came too late (RFC 8767).
    Stale,
    /// The cache, for a name that the program pinned to addresses.
    Pinned,
    /// The hosts file, or the fixed addresses of `localhost` (RFC 6761), without a query.
    Hosts,
    /// A fixed table of addresses, without a query.
    Fixed,
    /// The URL itself, which names an IP address. Nothing was looked up.
    Literal,
}

impl Source {
    /// Returns the source's name in lower case.
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

/// The lookup of a name in one address family, and its result.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DnsLookup {
    /// The name looked up, or the address if the URL has one.
    pub name: Arc<str>,
    /// The family asked for.
    pub family: Family,
    /// The addresses. Empty if the lookup failed.
    pub addresses: Arc<[IpAddr]>,
    /// The time for which the answer may still be used. Zero if the lookup failed.
    pub ttl: Duration,
    /// The source of the answer, or of the failure.
    pub source: Source,
    /// The reason for the failure, if the lookup failed.
    pub error: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// The servers that were asked, if the resolver tells and the query was made for this lookup or one beside it.
    pub servers: Option<Arc<AskedServers>>,
    /// The duration of the lookup, as far as it belongs to the call.
    pub elapsed: Duration,
}

/// The DNS servers that were asked for a lookup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AskedServers {
    /// The server that answered; `None` if no server did.
    pub answered: Option<IpAddr>,
    /// The servers that had not answered when the answer came, or that had failed, in the order in which they were asked.
    pub silent: Vec<IpAddr>,
    /// The number of names of the search list that were asked for, and do not exist, before the one that was answered.
    pub searched: u32,
}

impl DnsLookup {
    pub(crate) fn answered(
        name: Arc<str>,
        family: Family,
        addresses: Arc<[IpAddr]>,
        ttl: Duration,
        source: Source,
    ) -> Self {
        Self { name, family, addresses, ttl, source, error: None, servers: None, elapsed: Duration::ZERO }
    }

    /// Adds the servers that were asked.
    pub(crate) fn with_servers(self, servers: Option<Arc<AskedServers>>) -> Self {
        Self { servers, ..self }
    }

    pub(crate) fn failed(
        name: Arc<str>,
        family: Family,
        source: Source,
        error: Arc<dyn std::error::Error + Send + Sync>,
    ) -> Self {
        Self {
            name,
            family,
            addresses: Arc::default(),
            ttl: Duration::ZERO,
            source,
            error: Some(error),
            servers: None,
            elapsed: Duration::ZERO,
        }
    }
}
