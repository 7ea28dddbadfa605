//! The errors of opening a connection, also through a proxy, and of a dial that took longer than the connect timeout.
//!
//! # A process without free descriptors
//! Running out of descriptors (EMFILE, ENFILE) or local ports is not an error of the host, and a request does not fail
//! for it:
//!
//! 1. `Transport::connect` returns the error of the system call, and the race keeps it as that address's failure.
//! 2. If any address failed so ([`is_exhaustion`], and `Connector::failed_by_exhaustion` in `dial.rs`, which rules out an
//!    EADDRNOTAVAIL for want of a source address), the dial's error is [`ConnectError::Exhausted`]. The connection to a proxy
//!    and to a Unix domain socket, and the sockets of the DNS resolver, end in the variants that
//!    [`ConnectError::lacking`] lists.
//! 3. The pool asks `Dial::lacking`, which is [`ConnectError::lacking`], for each dial that failed.
//! 4. If something is lacking, the pool keeps the request in the queue, closes its least recently used idle connection, and opens
//!    no more connections than it has (`dial_postponed` in `pool/state/events/dials.rs`). A timer dials again
//!    (`retry_descriptors` in `pool/state/steps/timeouts.rs`).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use http::StatusCode;

use super::secure::{is_tls, is_tls_limit, tls_clause};
use crate::clock::Instant;
use crate::dns::{ResolveError, ResolveErrorKind};
use crate::origin::{Host, Origin};
use crate::os;
use crate::race::FailedAddress;
use crate::trace::{Event, Limit, Phase, exact};

/// An invalid proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The text is not a URL with a host.
    #[error("the proxy's URL is invalid: {0}")]
    Url(String),
    /// The URL's scheme is none of `http`, `https`, `socks5` and `socks5h`.
    #[error("`{0}` is not the scheme of a proxy")]
    Scheme(String),
    /// The named setting is about HTTP proxies, and the proxy is a SOCKS5 one.
    #[error("{0} has no effect with a SOCKS5 proxy, which is sent no HTTP")]
    NotHttp(&'static str),
    /// The header frames or routes a message, so it is not for the user to add.
    #[error("the header `{0}` cannot be added to the requests to a proxy")]
    Header(http::HeaderName),
}

/// The reason why no connection could be opened. `Display` is one clause, without the error that
/// [`into_cause`](ConnectError::into_cause) returns. Cheap to clone: a failure may concern several requests.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The name has no addresses, or the lookup failed.
    #[error("{0}")]
    Resolve(ResolveError),
    /// No address could be connected to. The list is empty if there was none to connect to.
    #[error("{}{}", describe(.0), no_source(.0))]
    Unreachable(Vec<FailedAddress>),
    /// The process or the system has no free descriptors or ports.
    #[error("{}: {}", lacking(.0), describe(.0))]
    Exhausted(Vec<FailedAddress>),
    /// The Unix domain socket could not be connected to.
    #[error("connect to {} failed", .0.display())]
    Unix(Arc<std::path::Path>, Arc<io::Error>),
    /// The TLS handshake over the Unix domain socket failed.
    #[error("{}", tls_with(.1, &.0.display().to_string()))]
    UnixTls(Arc<std::path::Path>, Arc<io::Error>),
    /// The proxy was connected to, and did not connect to the origin.
    #[error("{}", proxy_clause(.0, .1))]
    Proxy(Origin, Arc<io::Error>),
    /// The TLS handshake with the origin failed, in a tunnel through this proxy.
    #[error("{}", tls_with(.1, &format!("the origin, through the proxy {},", .0)))]
    TunnelTls(Origin, Arc<io::Error>),
    /// The proxy could not be connected to.
    #[error("the proxy {0}: {1}")]
    ProxyUnreachable(Origin, Box<ConnectError>),
    /// The environment names an invalid proxy.
    #[error("the proxy of the environment cannot be used")]
    InvalidProxy(ProxyError),
    /// The request names a proxy, and the client connects to a Unix domain socket.
    #[error("a proxy of the request has no effect beside the client's Unix domain socket")]
    ProxyBesideUnixSocket,
    /// The client's address policy allows none of the host's addresses; this is one of them.
    #[error("the client may not connect to {0}")]
    Denied(IpAddr),
    /// No address could be connected to, and on at least one of them the TLS handshake failed.
    #[error("{}", describe(.0))]
    Tls(Vec<FailedAddress>),
    /// The connect timeout passed in this phase. The addresses had failed until then.
    #[error("no connection within {}{}", exact(*.after), so_far(.failed))]
    Timeout { after: Duration, phase: Phase, failed: Vec<FailedAddress> },
    /// A layer of the user around the dial failed.
    #[error("a connector layer failed")]
    Layer(Arc<dyn std::error::Error + Send + Sync>),
    /// The HTTP handshake failed.
    #[error("the HTTP handshake failed")]
    Handshake(Arc<hyper::Error>),
}

impl ConnectError {
    /// Returns what was lacking if the dial failed because no descriptors or local ports were free, for the connection or for DNS.
    pub(crate) fn lacking(&self) -> Option<Limit> {
        let of = |error: &io::Error| if is_about_local_address(error) { Limit::Ports } else { Limit::Descriptors };
        match self {
            Self::Exhausted(failed) => Some(lacking(failed)),
            Self::Unix(_, error) => Some(of(error)).filter(|_| is_exhaustion(error)),
            Self::Resolve(error) => io_causes(error).find(|error| is_exhaustion(error)).map(of),
            Self::ProxyUnreachable(_, error) => error.lacking(),
            _ => None,
        }
    }

    /// Returns true if the next dial would fail for the same reason: a denied address, a rejected certificate, an
    /// invalid proxy. A TLS handshake that was reset or took too long may succeed the next time.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Denied(_) | Self::InvalidProxy(_) => true,
            Self::ProxyBesideUnixSocket => true,
            Self::Tls(failed) => match failed.last() {
                Some((_, error)) => !is_broken(error),
                None => true,
            },
            Self::UnixTls(_, error) => !is_broken(error),
            Self::TunnelTls(_, error) => !is_broken(error),
            Self::ProxyUnreachable(_, error) => error.is_lasting(),
            _ => false,
        }
    }

    /// Returns the phase whose time limit passed; `None` if no time limit of the client did.
    pub(crate) fn timed_out_in(&self) -> Option<Phase> {
        match self {
            Self::Timeout { phase, .. } => Some(*phase),
            Self::Resolve(error) if error.kind() == ResolveErrorKind::Timeout => Some(Phase::Dns),
            // The socket's backlog was full.
            Self::Unix(_, error) if error.kind() == io::ErrorKind::TimedOut => Some(Phase::Connect),
            Self::UnixTls(_, error) if is_tls_limit(error) => Some(Phase::Tls),
            Self::TunnelTls(_, error) if is_tls_limit(error) => Some(Phase::Tls),
            Self::Tls(failed) if failed.last().is_some_and(|(_, error)| is_tls_limit(error)) => Some(Phase::Tls),
            Self::Proxy(_, error) if is_tls_limit(error) => Some(Phase::Proxy),
            Self::ProxyUnreachable(_, error) => error.timed_out_in(),
            _ => None,
        }
    }

    /// Returns true if the clause says what its cause says, so that only the errors below the cause add something.
    pub(crate) fn tells_cause(&self) -> bool {
        match self {
            Self::Unreachable(failed) | Self::Exhausted(failed) | Self::Tls(failed) => {
                failed.last().is_some_and(|(_, error)| is_tls(error))
            }
            Self::UnixTls(_, error) => is_tls(error),
            Self::Proxy(_, error) => is_of_client(error),
            Self::TunnelTls(_, error) => is_tls(error),
            Self::ProxyUnreachable(_, error) => error.tells_cause(),
            Self::Handshake(_) => true,
            _ => false,
        }
    }

    /// Returns the error to report as the source of this one: that of the address that failed last, or of the layer
    /// below.
    pub(crate) fn into_cause(self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        match self {
            Self::Resolve(error) => error.into_cause().map(Into::into),
            Self::Unreachable(failed) | Self::Exhausted(failed) | Self::Tls(failed) | Self::Timeout { failed, .. } => {
                failed.into_iter().next_back().map(|(_, error)| error.into())
            }
            Self::Denied(_) => None,
            Self::ProxyBesideUnixSocket => None,
            Self::Unix(_, error) => Some(error.into()),
            Self::UnixTls(_, error) => Some(error.into()),
            Self::Proxy(_, error) | Self::TunnelTls(_, error) => Some(error.into()),
            Self::InvalidProxy(error) => Some(error.into()),
            Self::ProxyUnreachable(_, error) => error.into_cause(),
            Self::Layer(error) => Some(error.into()),
            Self::Handshake(error) => Some(error.into()),
        }
    }
}

/// Returns true if the process or the system has no free descriptors (EMFILE, ENFILE) or local ports (EADDRNOTAVAIL,
/// EADDRINUSE).
pub(super) fn is_exhaustion(error: &io::Error) -> bool {
    os::lacks_descriptors(error) || os::lacks_ports(error)
}

/// Returns true if the routing table has no route to an address.
pub(super) fn is_no_route(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), NetworkUnreachable | HostUnreachable | AddrNotAvailable)
}

/// Returns true if a connection broke or was silent; false if the peer answered with something that was not accepted.
fn is_broken(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, NetworkUnreachable, NotConnected, TimedOut,
        UnexpectedEof,
    };
    matches!(
        error.kind(),
        BrokenPipe
            | ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | NetworkUnreachable
            | NotConnected
            | TimedOut
            | UnexpectedEof
    )
}

/// Returns the errors of the operating system in an error's chain of sources.
fn io_causes<'a>(error: &'a (dyn std::error::Error + 'static)) -> impl Iterator<Item = &'a io::Error> {
    std::iter::successors(Some(error), |error| error.source()).filter_map(|error| error.downcast_ref())
}

/// Describes a dial whose addresses failed: how many, and how the last one did.
fn describe(failed: &[FailedAddress]) -> String {
    let Some((address, error)) = failed.last() else { return "the host has no address to connect to".to_owned() };
    let ip = address.ip();
    match (failed.len(), tls_clause(error, &ip.to_string())) {
        (1, None) => format!("connect to {ip} failed"),
        (1, Some(clause)) => clause,
        (count, None) => format!("connect: {count} addresses failed, last {ip}"),
        (count, Some(clause)) => format!("connect: {count} addresses failed, last: {clause}"),
    }
}

/// Returns what this machine lacks for another socket.
fn lacking(failed: &[FailedAddress]) -> Limit {
    match failed.iter().any(|(_, error)| is_exhaustion(error) && !is_about_local_address(error)) {
        true => Limit::Descriptors,
        false => Limit::Ports,
    }
}

/// Explains EADDRNOTAVAIL where it is no lack of ports: there is no address to connect from.
fn no_source(failed: &[FailedAddress]) -> &'static str {
    match failed.last() {
        Some((_, error)) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            " (no local address could be used: one that is set with local_address has to be this machine's own)"
        }
        _ => "",
    }
}

/// Returns true for EADDRINUSE and EADDRNOTAVAIL.
fn is_about_local_address(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
}

/// Describes the addresses that had failed when the time was over.
fn so_far(failed: &[FailedAddress]) -> String {
    match failed {
        [] => String::new(),
        [(address, _)] => format!(", after {} failed", address.ip()),
        [.., (address, _)] => format!(", after {} addresses failed, last {}", failed.len(), address.ip()),
    }
}

/// Describes a proxy that was connected to and did not connect to the origin. What the client says about the proxy's answer
/// belongs to the clause, unlike an error of the operating system.
fn proxy_clause(proxy: &Origin, error: &io::Error) -> String {
    match tls_clause(error, &format!("the proxy {proxy}")) {
        Some(clause) => clause,
        None if is_of_client(error) => format!("the proxy {proxy}: {error}"),
        None => format!("no way through the proxy {proxy}"),
    }
}

/// Returns true if an error is not the operating system's.
fn is_of_client(error: &io::Error) -> bool {
    error.get_ref().is_some()
}

/// Describes TLS that failed with `peer`.
fn tls_with(error: &io::Error, peer: &str) -> String {
    tls_clause(error, peer).unwrap_or_else(|| format!("TLS handshake with {peer} failed"))
}

/// Describes a dial whose time limit, `after`, has passed. `phase` is the one that it was in.
pub(super) fn timed_out(events: Vec<(Instant, Event)>, phase: Phase, after: Duration) -> ConnectError {
    let failed = events.into_iter().filter_map(|(_, event)| match event {
        Event::AttemptEnd { address, error: Some(error), .. } => Some((address, error)),
        Event::TlsFailed { address, error } => Some((address?, error)),
        _ => None,
    });
    ConnectError::Timeout { after, phase, failed: failed.collect() }
}

/// Describes a dial to a Unix domain socket whose time limit has passed. Unless the TLS handshake had begun, it can
/// only have waited for room in the socket's backlog.
pub(super) fn unix_timed_out(
    path: &std::sync::Arc<std::path::Path>,
    events: Vec<(Instant, Event)>,
    phase: Phase,
    after: Duration,
) -> ConnectError {
    let is_tls = |event: &Event| matches!(event, Event::TlsStart { .. } | Event::TlsEnd(_) | Event::TlsFailed { .. });
    if events.iter().any(|(_, event)| is_tls(event)) {
        return timed_out(events, phase, after);
    }
    let message = format!("its backlog was full for {}", exact(after));
    ConnectError::Unix(path.clone(), std::io::Error::new(std::io::ErrorKind::TimedOut, message).into())
}

/// Returns the phase that the last events of a dial belong to.
pub(super) fn last_phase(events: &[(Instant, Event)]) -> Phase {
    let mut open_attempts = 0;
    let mut is_in_proxy = false;
    let mut is_in_tls = false;
    for (_, event) in events {
        match event {
            Event::AttemptStart { .. } | Event::UnixStart { .. } => {
                open_attempts += 1;
                is_in_proxy = false;
            }
            Event::AttemptEnd { .. } | Event::AttemptCancelled { .. } => open_attempts -= 1,
            Event::ProxyStart { .. } => is_in_proxy = true,
            Event::ProxyEnd => is_in_proxy = false,
            Event::TlsStart { .. } => is_in_tls = true,
            Event::TlsEnd(_) | Event::TlsFailed { .. } => is_in_tls = false,
            _ => {}
        }
    }
    if is_in_tls {
        Phase::Tls
    } else if is_in_proxy {
        Phase::Proxy
    } else if open_attempts > 0 {
        Phase::Connect
    } else {
        // No attempt was open, so the dial waited for addresses.
        Phase::Dns
    }
}

/// The failure of a proxy that was connected to. The variants say what may still be tried.
#[derive(Debug)]
pub(in crate::connect) enum TunnelError {
    /// The connection to the proxy failed before the proxy answered. Another address of the proxy may do better.
    Unanswered(io::Error),
    /// The proxy refused the tunnel, or its answer was none. This is final.
    Refused(io::Error),
    /// The proxy refused this host or could not reach it. It may still reach another one.
    HostRefused(io::Error),
}

/// The refusal of an HTTP proxy, inside of an [`io::Error`].
#[derive(thiserror::Error)]
#[error("{text}")]
struct RefusedBy {
    status: StatusCode,
    text: String,
}

impl fmt::Debug for RefusedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// Returns the status with which a proxy refused a tunnel; `None` for any other error.
pub(crate) fn refused_status(error: &io::Error) -> Option<StatusCode> {
    Some(error.get_ref()?.downcast_ref::<RefusedBy>()?.status)
}

impl TunnelError {
    /// Returns the error for an HTTP proxy that answered with this status.
    pub(in crate::connect) fn with_status(status: u16, text: String) -> Self {
        let kind = if status == 407 { io::ErrorKind::PermissionDenied } else { io::ErrorKind::Other };
        Self::Refused(match StatusCode::from_u16(status) {
            Ok(status) => io::Error::new(kind, RefusedBy { status, text }),
            Err(_) => io::Error::new(kind, text),
        })
    }

    /// Returns the error for a proxy that does not say in time whether it reaches a host.
    pub(in crate::connect) fn silent_about(host: &Host) -> Self {
        Self::HostRefused(io::Error::new(io::ErrorKind::TimedOut, format!("no answer about {host} in time")))
    }

    /// Makes the failure one of the host that the proxy was asked for.
    pub(in crate::connect) fn of_host(self) -> Self {
        match self {
            Self::Unanswered(error) | Self::Refused(error) | Self::HostRefused(error) => Self::HostRefused(error),
        }
    }

    /// Returns the error for an answer that is a refusal or makes no sense.
    pub(in crate::connect) fn refused(what: impl Into<String>) -> Self {
        Self::Refused(io::Error::other(what.into()))
    }

    /// Returns the error for a proxy that asks for credentials, or does not accept those that it got.
    pub(in crate::connect) fn needs_credentials(what: impl Into<String>) -> Self {
        Self::Refused(io::Error::new(io::ErrorKind::PermissionDenied, what.into()))
    }

    /// Returns the error of a connection that failed while the proxy was asked. `has_answered` is true if it had begun
    /// to answer.
    pub(in crate::connect) fn broken(error: io::Error, has_answered: bool) -> Self {
        let error = match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let when = if has_answered { "in the middle of its answer" } else { "without an answer" };
                io::Error::new(io::ErrorKind::UnexpectedEof, format!("it closed the connection {when}"))
            }
            _ => error,
        };
        if has_answered { Self::Refused(error) } else { Self::Unanswered(error) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn failed(last: u8, kind: io::ErrorKind) -> FailedAddress {
        (SocketAddr::from(([192, 0, 2, last], 443)), Arc::new(kind.into()))
    }

    #[test]
    fn the_last_failed_address_is_described() {
        assert_eq!(ConnectError::Unreachable(Vec::new()).to_string(), "the host has no address to connect to");
        let one = vec![failed(1, io::ErrorKind::ConnectionRefused)];
        assert_eq!(ConnectError::Unreachable(one.clone()).to_string(), "connect to 192.0.2.1 failed");
        let two = [one, vec![failed(2, io::ErrorKind::TimedOut)]].concat();
        let error = ConnectError::Unreachable(two);
        assert_eq!(error.to_string(), "connect: 2 addresses failed, last 192.0.2.2");
        assert_eq!(error.timed_out_in(), None, "the limit was the operating system's");
        assert_eq!(error.into_cause().unwrap().to_string(), "timed out");
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn a_slow_handshake_is_a_timeout_of_its_phase_and_names_its_limit() {
        let late = || Arc::new(crate::tls::TlsFailed::timed_out(Duration::from_secs(5)));
        let address = |last| SocketAddr::from(([192, 0, 2, last], 443));
        let one = ConnectError::Tls(vec![(address(1), late())]);
        assert_eq!(one.to_string(), "no TLS handshake with 192.0.2.1 within 5 s");
        assert_eq!((one.timed_out_in(), one.tells_cause()), (Some(Phase::Tls), true));
        let two = ConnectError::Tls(vec![failed(1, io::ErrorKind::ConnectionRefused), (address(2), late())]);
        let text = "connect: 2 addresses failed, last: no TLS handshake with 192.0.2.2 within 5 s";
        assert_eq!(two.to_string(), text);
        let url = url::Url::parse("http://proxy.test:3128").unwrap();
        let proxy = ConnectError::Proxy(Origin::from_url(&url).unwrap(), late());
        assert_eq!(proxy.to_string(), "no TLS handshake with the proxy proxy.test:3128 within 5 s");
        assert_eq!(proxy.timed_out_in(), Some(Phase::Proxy));
    }

    #[cfg(unix)]
    #[test]
    fn a_process_without_descriptors_is_told_from_a_host_that_refuses() {
        use rustix::io::Errno;
        let os = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(is_exhaustion(&os(Errno::MFILE)) && is_exhaustion(&os(Errno::NFILE)));
        assert!(!is_exhaustion(&os(Errno::CONNREFUSED)) && !is_exhaustion(&io::ErrorKind::AddrInUse.into()));
        let path: Arc<std::path::Path> = Arc::from(std::path::Path::new("/run/api.sock"));
        assert_eq!(ConnectError::Unix(path, Arc::new(os(Errno::MFILE))).lacking(), Some(Limit::Descriptors));
    }

    #[test]
    fn only_a_handshake_that_broke_may_succeed_the_next_time() {
        assert!(!ConnectError::Tls(vec![failed(1, io::ErrorKind::ConnectionReset)]).is_lasting());
        assert!(ConnectError::Tls(vec![failed(1, io::ErrorKind::InvalidData)]).is_lasting());
        assert!(!ConnectError::Unreachable(vec![failed(1, io::ErrorKind::ConnectionRefused)]).is_lasting());
    }
}

#[cfg(test)]
mod timeout_tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::*;

    fn phase_after(events: impl IntoIterator<Item = Event>) -> Phase {
        let now = crate::clock::now();
        last_phase(&events.into_iter().map(|event| (now, event)).collect::<Vec<_>>())
    }

    #[test]
    fn the_phase_is_that_of_the_last_events() {
        let address = SocketAddr::from(([192, 0, 2, 1], 443));
        let start = || Event::AttemptStart { address };
        let end = || Event::AttemptEnd { address, error: None };
        let tls = || Event::TlsStart { address: Some(address) };
        let tls_failed = || {
            let error = Arc::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
            Event::TlsFailed { address: Some(address), error }
        };
        assert_eq!(phase_after([]), Phase::Dns);
        assert_eq!(phase_after([start()]), Phase::Connect);
        assert_eq!(phase_after([start(), end()]), Phase::Dns, "other addresses are waited for");
        assert_eq!(phase_after([start(), end(), tls()]), Phase::Tls);
        assert_eq!(phase_after([start(), end(), tls(), tls_failed(), start()]), Phase::Connect);
    }
}
