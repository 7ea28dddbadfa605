//! The report: what each step found, and how long it took.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use super::failure::Failure;
use super::finding::Finding;
use crate::dns::{DnsTransport, Source};
use crate::doctor::finding::FileRead;
use crate::origin::Origin;
#[cfg(feature = "__tls")]
use crate::tls::{CertificateProblem, CertificateSummary};
use crate::trace::Family;
#[cfg(feature = "serde")]
use crate::trace::{serialize_known_nanos, serialize_nanos};

/// The report of [`Client::doctor`](crate::Client::doctor): how the client reaches an origin, step by step.
///
/// `Display` prints it as text. With the feature `serde` it can be serialized; durations are whole nanoseconds.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Report {
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_url"))]
    pub(super) origin: Origin,
    pub(super) at: SystemTime,
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub(super) elapsed: Duration,
    pub(super) route: RouteReport,
    pub(super) names: Option<NameReport>,
    pub(super) addresses: Vec<AddressReport>,
    #[cfg(feature = "__tls")]
    pub(super) tunnelled_tls: Option<TlsReport>,
    pub(super) requests: Vec<RequestReport>,
    pub(super) clock: Option<ClockReport>,
    pub(super) findings: Vec<Finding>,
}

getters!(Report {
    /// The origin.
    origin: &Origin = borrow,
    /// The time of this machine at which the report was made.
    at: SystemTime = copy,
    /// The time that the whole report took.
    elapsed: Duration = copy,
    /// The way to the origin.
    route: &RouteReport = borrow,
    /// The lookup of the host that the client connects to: the origin's, or that of its proxy. `None` if it is an address.
    names: Option<&NameReport> = as_ref,
    /// The addresses of that host in the order in which the client dials them, at most 16.
    addresses: &[AddressReport] = borrow,
    /// TLS with the origin through its proxy or a Unix domain socket, as far as a request got; `None` for a direct connection.
    #[cfg(feature = "__tls")]
    tunnelled_tls: Option<&TlsReport> = as_ref,
    /// A few requests (HEAD), one after the other; none if no connection could be opened.
    requests: &[RequestReport] = borrow,
    /// The server's time; `None` if no response had a `Date`.
    clock: Option<&ClockReport> = as_ref,
    /// The problems, and advice for each; nothing in a healthy setup.
    findings: &[Finding] = borrow,
});

/// The way to the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RouteReport {
    pub(super) proxy: Option<String>,
    pub(super) reason: String,
    pub(super) error: Option<String>,
    pub(super) unix_socket: Option<String>,
    pub(super) https_only: bool,
}

getters!(RouteReport {
    /// The proxy's URL without credentials; `None` if the client connects directly.
    proxy: Option<&str> = as_deref,
    /// The reason for this proxy, or for none.
    reason: &str = borrow,
    /// The reason why the proxy cannot be used.
    error: Option<&str> = as_deref,
    /// The path of the Unix domain socket that the client connects to in place of any host.
    unix_socket: Option<&str> = as_deref,
    /// True if the client sends requests to `https` URLs alone, so that none goes to this `http` URL. The report has no other step then.
    https_only: bool = copy,
});

/// The lookup of a name.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NameReport {
    pub(super) name: String,
    pub(super) resolver: ResolverKind,
    pub(super) files: Vec<FileRead>,
    pub(super) lists_no_server: bool,
    pub(super) is_known: bool,
    pub(super) questions: Vec<QuestionReport>,
    pub(super) lookups: Vec<LookupReport>,
}

getters!(NameReport {
    /// The name.
    name: &str = borrow,
    /// The resolver that the client asks.
    resolver: ResolverKind = copy,
    /// The configuration files, as they were read; none if the resolver reads none.
    files: &[FileRead] = borrow,
    /// True if resolv.conf lists no server, so that the client asks this machine.
    lists_no_server: bool = copy,
    /// True if no server is asked: the name is in the hosts file, or is one of this machine.
    is_known: bool = copy,
    /// The questions to each DNS server by itself. With a search list they are about each full name up to the first one that has
    /// addresses. Servers of a resolver of the user cannot be asked.
    questions: &[QuestionReport] = borrow,
    /// The lookups by the resolver as a whole, one for each family, without the client's DNS cache.
    lookups: &[LookupReport] = borrow,
});

/// The resolver of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ResolverKind {
    /// [`HickoryResolver`](crate::dns::HickoryResolver), which asks DNS servers.
    Hickory,
    /// [`SystemResolver`](crate::dns::SystemResolver), the platform's own, which is asked as a whole.
    System,
    /// [`FixedResolver`](crate::dns::FixedResolver), which makes no query.
    Fixed,
    /// Addresses that the user has set for the name by [`resolve`](crate::ClientBuilder::resolve).
    Pinned,
    /// A resolver of the user, which is asked as a whole.
    Other,
}

/// A question to one DNS server.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct QuestionReport {
    pub(super) server: SocketAddr,
    pub(super) transport: DnsTransport,
    pub(super) name: String,
    pub(super) family: Family,
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub(super) elapsed: Duration,
    pub(super) reply: Result<DnsReply, Failure>,
}

getters!(QuestionReport {
    /// The server.
    server: SocketAddr = copy,
    /// The protocol by which it was asked.
    transport: DnsTransport = copy,
    /// The full name that it was asked for.
    name: &str = borrow,
    /// The address family that it was asked for.
    family: Family = copy,
    /// The time until its answer.
    elapsed: Duration = copy,
    /// The server's answer.
    reply: Result<&DnsReply, &Failure> = as_ref,
});

/// The answer of one DNS server to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DnsReply {
    pub(super) code: String,
    pub(super) addresses: Vec<IpAddr>,
    #[cfg_attr(feature = "serde", serde(rename = "ttl_ns", serialize_with = "serialize_known_nanos"))]
    pub(super) ttl: Option<Duration>,
    pub(super) truncated: bool,
}

getters!(DnsReply {
    /// The response code under its name in RFC 6895 §2.3: `NOERROR`, `NXDOMAIN`, `SERVFAIL`, `REFUSED`, or its number.
    code: &str = borrow,
    /// The addresses at the end of the chain of aliases, at most 16 of them.
    addresses: &[IpAddr] = borrow,
    /// The smallest TTL of that chain; `None` without addresses.
    ttl: Option<Duration> = copy,
    /// True if the server left records out because the answer was too long for UDP.
    truncated: bool = copy,
});

/// A lookup by the client's resolver.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LookupReport {
    pub(super) family: Family,
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub(super) elapsed: Duration,
    pub(super) answer: Result<LookupAnswer, Failure>,
}

getters!(LookupReport {
    /// The address family.
    family: Family = copy,
    /// The time that the lookup took.
    elapsed: Duration = copy,
    /// The addresses.
    answer: Result<&LookupAnswer, &Failure> = as_ref,
});

/// The addresses that a lookup found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LookupAnswer {
    pub(super) addresses: Vec<IpAddr>,
    /// The addresses with ports of their own.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) sockets: Vec<SocketAddr>,
    #[cfg_attr(feature = "serde", serde(rename = "ttl_ns", serialize_with = "serialize_known_nanos"))]
    pub(super) ttl: Option<Duration>,
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_name"))]
    pub(super) source: Source,
}

getters!(LookupAnswer {
    /// The addresses, at most 16.
    addresses: &[IpAddr] = borrow,
    /// The time for which they are valid; `None` if that is not limited.
    ttl: Option<Duration> = copy,
    /// The source of the answer.
    source: Source = copy,
});

/// An address, connected to by itself.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AddressReport {
    pub(super) address: SocketAddr,
    pub(super) is_proxy: bool,
    pub(super) source: Option<IpAddr>,
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub(super) elapsed: Duration,
    pub(super) failure: Option<Failure>,
    #[cfg(feature = "__tls")]
    pub(super) tls: Option<TlsReport>,
}

getters!(AddressReport {
    /// The address.
    address: SocketAddr = copy,
    /// True if it is one of the proxy, not of the origin.
    is_proxy: bool = copy,
    /// The local address that packets to it come from; `None` if there is no route, or if the transport does not know.
    source: Option<IpAddr> = copy,
    /// The time that the connection took, or until it failed.
    elapsed: Duration = copy,
    /// The failure; `None` if the address could be connected to.
    failure: Option<&Failure> = as_ref,
    /// The TLS handshake; `None` if there was no connection, or if no TLS is spoken.
    #[cfg(feature = "__tls")]
    tls: Option<&TlsReport> = as_ref,
});

impl AddressReport {
    /// Returns true if a request could be sent there: it can be connected to, and the TLS handshake succeeds.
    pub fn is_usable(&self) -> bool {
        #[cfg(feature = "__tls")]
        if self.tls.as_ref().is_some_and(|tls| tls.session.is_err()) {
            return false;
        }
        self.failure.is_none()
    }
}

/// A TLS handshake. One with an address is made without an earlier session. One through a proxy or a Unix domain socket is that of
/// the first request, which may resume an earlier session as every request may.
#[cfg(feature = "__tls")]
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TlsReport {
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub(super) elapsed: Duration,
    pub(super) session: Result<TlsSession, Failure>,
    pub(super) problem: Option<CertificateProblem>,
    pub(super) chain: Vec<CertificateSummary>,
    pub(super) checked_name: String,
    pub(super) name_matches: Option<bool>,
}

#[cfg(feature = "__tls")]
getters!(TlsReport {
    /// The time that the handshake took, or until it failed.
    elapsed: Duration = copy,
    /// The agreed protocols.
    session: Result<&TlsSession, &Failure> = as_ref,
    /// The reason why the client refuses the certificate; `None` if it accepts it, or if there is none.
    problem: Option<CertificateProblem> = copy,
    /// The certificates that the server sent, its own first; at most 8.
    chain: &[CertificateSummary] = borrow,
    /// The name or address that the certificate must be for: the host's, unless
    /// [`TlsConfig::server_name`](crate::tls::TlsConfig::server_name) is set.
    checked_name: &str = borrow,
    /// True if the server's certificate is for that name; `None` if that cannot be told.
    name_matches: Option<bool> = copy,
});

/// The result of a TLS handshake.
#[cfg(feature = "__tls")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TlsSession {
    pub(super) version: &'static str,
    pub(super) cipher_suite: &'static str,
    pub(super) alpn: Option<String>,
}

#[cfg(feature = "__tls")]
getters!(TlsSession {
    /// The version of TLS: `TLSv1_3`.
    version: &'static str = copy,
    /// The cipher suite.
    cipher_suite: &'static str = copy,
    /// The protocol that the server chose by ALPN.
    alpn: Option<&str> = as_deref,
});

/// A request.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RequestReport {
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub(super) elapsed: Duration,
    pub(super) response: Result<ResponseReport, Failure>,
}

getters!(RequestReport {
    /// The time from the request to the head of the response, the opening of a connection included.
    elapsed: Duration = copy,
    /// The response.
    response: Result<&ResponseReport, &Failure> = as_ref,
});

/// The head of a response, as far as it matters for connections.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ResponseReport {
    pub(super) status: u16,
    pub(super) version: String,
    pub(super) remote: Option<SocketAddr>,
    pub(super) reused: bool,
    pub(super) keep_alive: Option<String>,
    pub(super) closes: bool,
}

getters!(ResponseReport {
    /// The status code.
    status: u16 = copy,
    /// The version of HTTP: `HTTP/1.1`.
    version: &str = borrow,
    /// The address that answered; `None` behind a Unix domain socket.
    remote: Option<SocketAddr> = copy,
    /// True if the connection had carried an earlier request.
    reused: bool = copy,
    /// The value of the `Keep-Alive` header, of at most 100 characters.
    keep_alive: Option<&str> = as_deref,
    /// True if the server announced that it closes the connection (`Connection: close`).
    closes: bool = copy,
});

/// The server's time beside this machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ClockReport {
    pub(super) date: SystemTime,
    pub(super) skew_secs: i64,
}

getters!(ClockReport {
    /// The value of the `Date` header.
    date: SystemTime = copy,
    /// The seconds by which the server's clock is ahead of this machine's; negative if it is behind.
    skew_secs: i64 = copy,
});

#[cfg(feature = "serde")]
fn as_url<S: serde::Serializer>(origin: &Origin, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}://{origin}", origin.scheme()))
}

#[cfg(feature = "serde")]
fn as_name<S: serde::Serializer>(source: &Source, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(source.as_str())
}
