//! The failure of one step of a report.

use std::time::Duration;
use std::{fmt, io};

use crate::dns::{ResolveError, ResolveErrorKind};
use crate::error::Error;
use crate::redact::shown;
use crate::trace::exact;

/// The failure of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Failure {
    pub(super) kind: FailureKind,
    pub(super) text: String,
}

getters!(Failure {
    /// The kind of the failure.
    kind: FailureKind = copy,
    /// The error in words, without secrets, of at most 400 characters.
    text: &str = borrow,
});

/// The kinds of [`Failure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FailureKind {
    /// No answer came within the step's time limit.
    TimedOut,
    /// The port is closed.
    Refused,
    /// This machine has no route to the address.
    NoRoute,
    /// The name does not exist.
    NoSuchName,
    /// The name has no addresses in this family.
    NoAddresses,
    /// A rule of the client excludes the address.
    NotAllowed,
    /// The proxy asks for credentials.
    NeedsCredentials,
    /// The proxy does not connect to the origin.
    NoTunnel,
    /// The peer does not speak TLS.
    NoTls,
    /// The server speaks none of the versions of HTTP that the client offers.
    NoCommonProtocol,
    /// The server speaks no HTTP/1.1, the one version that the client offers.
    NoHttp1,
    /// The peer rejects the client's certificate, or the lack of one.
    ClientCertificate,
    /// The Unix domain socket does not exist, or does not accept the connection.
    NoUnixSocket,
    /// The origin's name could not be looked up for a proxy that is told its address.
    LookupFailed,
    /// Any other failure, which the text describes.
    Other,
}

/// The way of a request to its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    Addresses,
    Proxy,
    UnixSocket,
}

/// The most characters of a text.
const MAX_TEXT: usize = 400;

impl Failure {
    pub(super) fn new(kind: FailureKind, text: impl AsRef<str>) -> Self {
        Self { kind, text: shown(text.as_ref(), MAX_TEXT) }
    }

    /// Returns the failure of a step that took longer than `limit`.
    pub(super) fn timed_out(limit: Duration) -> Self {
        Self::new(FailureKind::TimedOut, format!("no answer within {}", exact(limit)))
    }

    pub(super) fn of_io(error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::TimedOut => FailureKind::TimedOut,
            io::ErrorKind::ConnectionRefused => FailureKind::Refused,
            io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::Unsupported => FailureKind::NoRoute,
            _ if crate::os::lacks_family(error) => FailureKind::NoRoute,
            _ => FailureKind::Other,
        };
        Self::new(kind, error.to_string())
    }

    pub(super) fn of_lookup(error: &ResolveError) -> Self {
        let kind = match error.kind() {
            ResolveErrorKind::NxDomain => FailureKind::NoSuchName,
            ResolveErrorKind::NoData => FailureKind::NoAddresses,
            ResolveErrorKind::Timeout => FailureKind::TimedOut,
            _ => FailureKind::Other,
        };
        Self::new(kind, with_causes(error))
    }

    /// Returns the failure of a request, without its URL.
    pub(super) fn of_request(error: Error, via: Via) -> Self {
        let has_connected = !error.is_connect() || error.is_tls();
        let kind = match error.io_cause() {
            _ if error.is_dns() => FailureKind::LookupFailed,
            #[cfg(feature = "__tls")]
            Some(cause) if crate::tls::refuses_client(cause) => FailureKind::ClientCertificate,
            _ if via == Via::UnixSocket && !has_connected => FailureKind::NoUnixSocket,
            Some(cause) if via == Via::Proxy && !has_connected && asks_for_credentials(cause) => {
                FailureKind::NeedsCredentials
            }
            _ if via == Via::Proxy && !has_connected => FailureKind::NoTunnel,
            _ if error.is_timeout() => FailureKind::TimedOut,
            Some(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => FailureKind::Refused,
            _ => FailureKind::Other,
        };
        Self::new(kind, format!("{:#}", error.without_url()))
    }
}

/// Returns true for the refusal of a proxy. The system has errors of this kind too, for which a firewall may be the reason.
fn asks_for_credentials(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}

fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_of_one_line_and_bounded() {
        let failure = Failure::new(FailureKind::Other, format!("a\r\n\u{1b}[1m{}", "x".repeat(1_000)));
        assert!(failure.text.starts_with("a\u{fffd}\u{fffd}\u{fffd}[1mx"), "{failure}");
        assert_eq!(failure.text.chars().count(), MAX_TEXT);
    }

    #[test]
    fn the_kind_is_that_of_the_operating_system() {
        let kind = |kind: io::ErrorKind| Failure::of_io(&kind.into()).kind;
        assert_eq!(kind(io::ErrorKind::ConnectionRefused), FailureKind::Refused);
        assert_eq!(kind(io::ErrorKind::NetworkUnreachable), FailureKind::NoRoute);
        assert_eq!(kind(io::ErrorKind::Unsupported), FailureKind::NoRoute);
        #[cfg(unix)]
        assert_eq!(Failure::of_io(&rustix::io::Errno::AFNOSUPPORT.into()).kind, FailureKind::NoRoute);
        assert_eq!(kind(io::ErrorKind::TimedOut), FailureKind::TimedOut);
        assert_eq!(kind(io::ErrorKind::ConnectionReset), FailureKind::Other);
    }
}
