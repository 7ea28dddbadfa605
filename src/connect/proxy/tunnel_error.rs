//! The failure of a request for a tunnel.

use std::fmt;
use std::io;

use http::StatusCode;

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
