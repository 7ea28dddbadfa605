//! The report: what each step found, and how long it took.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use super::failure::Failure;
use super::finding::Finding;
use crate::dns::{DnsReply, DnsTransport, FileRead, Source};
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
#[non_exhaustive]
pub struct Report {
    /// The origin.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_url"))]
    pub origin: Origin,
    /// The time of this machine at which the report was made.
    pub at: SystemTime,
    /// The time that the whole report took.
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub elapsed: Duration,
    /// The way to the origin.
    pub route: RouteReport,
    /// The lookup of the host that the client connects to: the origin's, or that of its proxy. `None` if it is an address.
    pub names: Option<NameReport>,
    /// The addresses of that host in the order in which the client dials them, at most 16.
    pub addresses: Vec<AddressReport>,
    /// TLS with the origin through its proxy or a Unix domain socket, as far as a request got; `None` for a direct connection.
    #[cfg(feature = "__tls")]
    pub tunnelled_tls: Option<TlsReport>,
    /// A few requests (HEAD), one after the other; none if no connection could be opened.
    pub requests: Vec<RequestReport>,
    /// The server's time; `None` if no response had a `Date`.
    pub clock: Option<ClockReport>,
    /// The problems, and the changes that solve them; nothing in a healthy setup.
    pub findings: Vec<Finding>,
}

/// The way to the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RouteReport {
    /// The proxy's URL without credentials; `None` if the client connects directly.
    pub proxy: Option<String>,
    /// The reason for this proxy, or for none.
    pub reason: String,
    /// The reason why the proxy cannot be used.
    pub error: Option<String>,
    /// The path of the Unix domain socket that the client connects to in place of any host.
    pub unix_socket: Option<String>,
    /// True if the client sends requests to `https` URLs alone, so that none goes to this `http` URL. The report has no other step then.
    pub https_only: bool,
}

/// The lookup of a name.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NameReport {
    /// The name.
    pub name: String,
    /// The resolver that the client asks.
    pub resolver: ResolverKind,
    /// The configuration files, as they were read; none if the resolver reads none.
    pub files: Vec<FileRead>,
    /// True if resolv.conf lists no server, so that the client asks this machine.
    pub lists_no_server: bool,
    /// True if no server is asked: the name is in the hosts file, or is one of this machine.
    pub is_known: bool,
    /// The questions to each DNS server by itself. With a search list they are about each full name up to the first one that has
    /// addresses. Servers of a resolver of the user cannot be asked.
    pub questions: Vec<QuestionReport>,
    /// The lookups by the resolver as a whole, one for each family, without the client's DNS cache.
    pub lookups: Vec<LookupReport>,
}

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
#[non_exhaustive]
pub struct QuestionReport {
    /// The server.
    pub server: SocketAddr,
    /// The protocol by which it was asked.
    pub transport: DnsTransport,
    /// The full name that it was asked for.
    pub name: String,
    /// The address family that it was asked for.
    pub family: Family,
    /// The time until its answer.
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub elapsed: Duration,
    /// The server's answer.
    pub reply: Result<DnsReply, Failure>,
}

/// A lookup by the client's resolver.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LookupReport {
    /// The address family.
    pub family: Family,
    /// The time that the lookup took.
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub elapsed: Duration,
    /// The addresses.
    pub answer: Result<LookupAnswer, Failure>,
}

/// The addresses that a lookup found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LookupAnswer {
    /// The addresses, at most 16.
    pub addresses: Vec<IpAddr>,
    /// The addresses with ports of their own.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) sockets: Vec<SocketAddr>,
    /// The time for which they are valid; `None` if that is not limited.
    #[cfg_attr(feature = "serde", serde(rename = "ttl_ns", serialize_with = "serialize_known_nanos"))]
    pub ttl: Option<Duration>,
    /// The source of the answer.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_name"))]
    pub source: Source,
}

/// An address, connected to by itself.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AddressReport {
    /// The address.
    pub address: SocketAddr,
    /// True if it is one of the proxy, not of the origin.
    pub is_proxy: bool,
    /// The local address that packets to it come from; `None` if there is no route, or if the transport does not know.
    pub source: Option<IpAddr>,
    /// The time that the connection took, or until it failed.
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub elapsed: Duration,
    /// The failure; `None` if the address could be connected to.
    pub failure: Option<Failure>,
    /// The TLS handshake; `None` if there was no connection, or if no TLS is spoken.
    #[cfg(feature = "__tls")]
    pub tls: Option<TlsReport>,
}

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
#[non_exhaustive]
pub struct TlsReport {
    /// The time that the handshake took, or until it failed.
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub elapsed: Duration,
    /// The agreed protocols.
    pub session: Result<TlsSession, Failure>,
    /// The reason why the client refuses the certificate; `None` if it accepts it, or if there is none.
    pub problem: Option<CertificateProblem>,
    /// The certificates that the server sent, its own first; at most 8.
    pub chain: Vec<CertificateSummary>,
    /// The name or address that the certificate must be for: the host's, unless
    /// [`TlsConfig::server_name`](crate::tls::TlsConfig::server_name) is set.
    pub checked_name: String,
    /// True if the server's certificate is for that name; `None` if that cannot be told.
    pub name_matches: Option<bool>,
}

/// The result of a TLS handshake.
#[cfg(feature = "__tls")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TlsSession {
    /// The version of TLS: `TLSv1_3`.
    pub version: &'static str,
    /// The cipher suite.
    pub cipher_suite: &'static str,
    /// The protocol that the server chose by ALPN.
    pub alpn: Option<String>,
}

/// A request.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RequestReport {
    /// The time from the request to the head of the response, the opening of a connection included.
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_ns", serialize_with = "serialize_nanos"))]
    pub elapsed: Duration,
    /// The response.
    pub response: Result<ResponseReport, Failure>,
}

/// The head of a response, as far as it matters for connections.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ResponseReport {
    /// The status code.
    pub status: u16,
    /// The version of HTTP: `HTTP/1.1`.
    pub version: String,
    /// The address that answered; `None` behind a Unix domain socket.
    pub remote: Option<SocketAddr>,
    /// True if the connection had carried an earlier request.
    pub reused: bool,
    /// The value of the `Keep-Alive` header, of at most 100 characters.
    pub keep_alive: Option<String>,
    /// True if the server announced that it closes the connection (`Connection: close`).
    pub closes: bool,
}

/// The server's time beside this machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClockReport {
    /// The value of the `Date` header.
    pub date: SystemTime,
    /// The seconds by which the server's clock is ahead of this machine's; negative if it is behind.
    pub skew_secs: i64,
}

#[cfg(feature = "serde")]
fn as_url<S: serde::Serializer>(origin: &Origin, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}://{origin}", origin.scheme()))
}

#[cfg(feature = "serde")]
fn as_name<S: serde::Serializer>(source: &Source, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(source.as_str())
}
