//! The failure of a request for a tunnel.

use std::io;

use crate::origin::Host;

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

impl TunnelError {
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
