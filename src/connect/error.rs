//! Why no connection could be opened.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::ProxyError;
use crate::dns::ResolveError;
use crate::origin::Origin;
use crate::race::FailedAddress;
use crate::trace::Phase;

/// Why no connection could be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The name has no addresses, or they could not be found out.
    #[error("{0}")]
    Resolve(ResolveError),
    /// No address could be connected to.
    #[error("{}", describe(.0))]
    Refused(Vec<FailedAddress>),
    /// Addresses failed for want of sockets.
    #[error("{}", describe(.0))]
    Exhausted(Vec<FailedAddress>),
    #[cfg(unix)]
    #[error("{}: {}", .0.display(), reason(.1))]
    Unix(Arc<std::path::Path>, std::io::Error),
    #[cfg(unix)]
    #[error("{}: {}", .0.display(), .1)]
    UnixTls(Arc<std::path::Path>, Arc<std::io::Error>),
    /// A proxy was reached, and would not lead on.
    #[error("the proxy {}: {}", .0, refusal(.1))]
    Proxy(Origin, Arc<std::io::Error>),
    /// There is no connection to the proxy.
    #[error("the proxy {0}: {1}")]
    NoProxy(Origin, Box<ConnectError>),
    /// There is to be a proxy, and it cannot be one.
    #[error("{0}")]
    Proxies(ProxyError),
    /// There are addresses, and the client's policy allows none of them.
    #[error("the client may not connect to {0}")]
    Denied(IpAddr),
    /// The same, and with the last one it was the TLS handshake that failed.
    #[error("{}", describe(.0))]
    Tls(Vec<FailedAddress>),
    /// It took too long.
    #[error("nothing within {after:?}{}", so_far(.failed))]
    Timeout { after: Duration, phase: Phase, failed: Vec<FailedAddress> },
    #[error("the HTTP handshake failed")]
    Handshake(hyper::Error),
}

impl ConnectError {
    /// Whether there are no more sockets to be had, for connections or for DNS.
    pub(crate) fn is_exhausted(&self) -> bool {
        match self {
            Self::Exhausted(_) => true,
            #[cfg(unix)]
            Self::Unix(_, error) => is_exhaustion(error),
            Self::Resolve(error) => causes(error).any(is_exhaustion),
            Self::NoProxy(_, error) => error.is_exhausted(),
            _ => false,
        }
    }

    /// Returns true if the next dial would fail for the same reason: an address that is denied, a certificate that is refused, a
    /// proxy that cannot be one. A TLS handshake that was reset or took too long may succeed.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Denied(_) | Self::Proxies(_) => true,
            Self::Tls(failed) => !failed.last().is_some_and(|(_, error)| is_broken(error)),
            #[cfg(unix)]
            Self::UnixTls(_, error) => !is_broken(error),
            Self::NoProxy(_, error) => error.is_lasting(),
            _ => false,
        }
    }

    /// What lies under it: it says the rest itself.
    pub(crate) fn into_cause(self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        match self {
            Self::Resolve(error) => error.into_cause().map(Into::into),
            Self::Refused(failed) | Self::Exhausted(failed) | Self::Tls(failed) | Self::Timeout { failed, .. } => {
                failed.into_iter().next_back().map(|(_, e)| e.into())
            }
            Self::Denied(_) => None,
            #[cfg(unix)]
            Self::Unix(_, error) => Some(error.into()),
            #[cfg(unix)]
            Self::UnixTls(_, error) => Some(error.into()),
            Self::Proxy(_, error) => Some(error.into()),
            Self::Proxies(error) => Some(error.into()),
            Self::NoProxy(_, error) => error.into_cause(),
            Self::Handshake(error) => Some(error.into()),
        }
    }
}

/// Whether an error of the operating system says that the process, or the system, has no more descriptors or ports.
pub(super) fn is_exhaustion(error: &std::io::Error) -> bool {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        // Connections ask for any port, so one that is in use means that all are.
        let wants = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::ADDRINUSE];
        error.raw_os_error().is_some_and(|code| wants.iter().any(|errno| errno.raw_os_error() == code))
    }
    #[cfg(not(unix))]
    {
        error.kind() == std::io::ErrorKind::AddrNotAvailable
    }
}

/// Returns true if an error says that a connection broke or was silent, rather than what its peer said.
fn is_broken(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, NetworkUnreachable, NotConnected, TimedOut,
        UnexpectedEof,
    };
    let broken = [
        BrokenPipe,
        ConnectionAborted,
        ConnectionReset,
        HostUnreachable,
        NetworkUnreachable,
        NotConnected,
        TimedOut,
        UnexpectedEof,
    ];
    broken.contains(&error.kind())
}

/// The errors of the operating system below an error.
fn causes<'a>(error: &'a (dyn std::error::Error + 'static)) -> impl Iterator<Item = &'a std::io::Error> {
    std::iter::successors(Some(error), |error| error.source()).filter_map(|error| error.downcast_ref())
}

fn describe(failed: &[FailedAddress]) -> String {
    match failed {
        [] => "no address that could be connected to".to_owned(),
        [(address, error)] => format!("{}: {}", address.ip(), reason(error)),
        [.., (address, error)] => {
            format!("{} addresses failed, last {}: {}", failed.len(), address.ip(), reason(error))
        }
    }
}

/// What became of asking a proxy: what lies at the bottom says most.
fn refusal(error: &std::io::Error) -> String {
    let mut text = reason(error);
    let mut cause = error.get_ref().and_then(|error| error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn so_far(failed: &[FailedAddress]) -> String {
    if failed.is_empty() { String::new() } else { format!(", {}", describe(failed)) }
}

/// The operating system's word for it, without its number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(_) if error.kind() != std::io::ErrorKind::Other => {
            let kind = error.kind().to_string();
            if kind == "uncategorized error" { error.to_string() } else { kind }
        }
        _ => error.to_string(),
    }
}
