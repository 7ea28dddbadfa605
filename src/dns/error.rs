//! The errors of lookups.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Place;
use crate::trace::{AskedServers, Family, Source};

/// The reason why a lookup found no addresses. `Display` names the name and the kind; what the kind does not say is the
/// [`source`](std::error::Error::source). Cheap to clone: all lookups that waited for one query get the same error.
#[derive(Debug, Clone)]
pub struct ResolveError {
    kind: ResolveErrorKind,
    family: Family,
    name: Arc<str>,
    negative_ttl: Option<Duration>,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
    source: Source,
    place: Place,
    /// The servers that were asked, if one did not answer.
    servers: Option<Arc<AskedServers>>,
    pause: Option<Box<Pause>>,
}

/// When DNS was asked for a name whose lookup failed, and when it is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    /// The time since then; `None` for the lookup that asked.
    pub(crate) asked_ago: Option<Duration>,
    pub(crate) again_in: Duration,
}

/// The kinds of [`ResolveError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResolveErrorKind {
    /// The name does not exist, in either family (RFC 2308 §2.1).
    NxDomain,
    /// The name exists, but has no addresses of this family (RFC 2308 §2.2).
    NoData,
    /// The server failed (SERVFAIL).
    ServFail,
    /// The server refused the query (REFUSED).
    Refused,
    /// No answer came in time.
    Timeout,
    /// No server could be reached.
    Unreachable,
    /// No server could be asked, for a reason of this machine: it has no network, or no more sockets.
    Local,
    /// The name is not a valid DNS name.
    InvalidName,
    /// The resolver's configuration could not be read.
    Config,
    /// The answer could not be understood, or the resolver failed in some other way.
    Other,
}

impl ResolveErrorKind {
    /// Returns true if a server said that there are no addresses; false if the lookup failed.
    pub fn is_negative(self) -> bool {
        matches!(self, Self::NxDomain | Self::NoData)
    }

    /// Returns true if the failure is this machine's, not a server's. After such a failure the DNS cache waits only 100 ms
    /// before it asks for the name again.
    pub fn is_local(self) -> bool {
        matches!(self, Self::Local | Self::Config)
    }

    /// Returns true if no server has responded.
    pub(in crate::dns) fn is_silence(self) -> bool {
        matches!(self, Self::Timeout | Self::Unreachable) || self.is_local()
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::NxDomain => "the name does not exist",
            Self::NoData => "the name has no addresses in this family",
            Self::ServFail => "the DNS server failed (SERVFAIL)",
            Self::Refused => "the DNS server refused (REFUSED)",
            Self::Timeout => "no answer from DNS in time",
            Self::Unreachable => "no DNS server could be reached",
            Self::Local => "no DNS server could be asked from this machine",
            Self::InvalidName => "not a valid name",
            Self::Config => "the DNS configuration could not be read",
            Self::Other => "the lookup failed",
        }
    }
}

impl ResolveError {
    /// Creates an error about the lookup of `name` in one family.
    pub fn new(kind: ResolveErrorKind, name: &str, family: Family) -> Self {
        Self {
            kind,
            family,
            name: name.into(),
            negative_ttl: None,
            cause: None,
            source: Source::Miss,
            place: Place::default(),
            servers: None,
            pause: None,
        }
    }

    /// Sets the time for which a negative answer may be kept, which its SOA record states (RFC 2308 §5).
    pub fn with_negative_ttl(self, negative_ttl: Option<Duration>) -> Self {
        Self { negative_ttl, ..self }
    }

    /// Sets the cause, which [`source`](std::error::Error::source) returns.
    pub fn with_cause(self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { cause: Some(cause.into().into()), ..self }
    }

    /// Sets a cause that other errors have as well.
    pub(super) fn with_shared_cause(self, cause: Arc<dyn std::error::Error + Send + Sync>) -> Self {
        Self { cause: Some(cause), ..self }
    }

    /// Returns the servers that were asked, if a server did not answer.
    pub(crate) fn servers(&self) -> Option<&Arc<AskedServers>> {
        self.servers.as_ref()
    }

    pub(super) fn with_servers(self, servers: Option<Arc<AskedServers>>) -> Self {
        Self { servers, ..self }
    }

    /// Returns the place of the servers and full names that the error is of: the last one of those that count.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn with_place(self, place: Place) -> Self {
        Self { place, ..self }
    }

    pub(crate) fn with_source(self, source: Source) -> Self {
        Self { source, ..self }
    }

    pub(super) fn with_pause(self, asked_ago: Option<Duration>, again_in: Duration) -> Self {
        Self { pause: Some(Pause { asked_ago, again_in }.into()), ..self }
    }

    pub(crate) fn pause(&self) -> Option<Pause> {
        self.pause.as_deref().copied()
    }

    pub(crate) fn into_cause(self) -> Option<Arc<dyn std::error::Error + Send + Sync>> {
        self.cause
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> ResolveErrorKind {
        self.kind
    }

    /// Returns the name that was looked up.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address family that was looked up.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the time for which a negative answer may still be kept; `None` if the answer states none.
    pub fn negative_ttl(&self) -> Option<Duration> {
        self.negative_ttl
    }

    /// Returns the time since DNS was asked, if the cache has remembered this failure; `None` otherwise.
    pub fn asked_ago(&self) -> Option<Duration> {
        self.pause()?.asked_ago
    }

    /// Returns the time after which the cache asks DNS again for the next lookup; `None` if it does not wait.
    pub fn asked_again_in(&self) -> Option<Duration> {
        Some(self.pause()?.again_in).filter(|again_in| !again_in.is_zero())
    }

    /// Returns the source of the error: the cache, this lookup's query, or the query of another lookup.
    pub fn answered_from(&self) -> Source {
        self.source
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            // These hold for both families.
            ResolveErrorKind::NxDomain | ResolveErrorKind::InvalidName => {
                write!(f, "resolve {}: {}", self.name, self.kind.as_str())?;
            }
            kind => write!(f, "resolve {} ({}): {}", self.name, self.family, kind.as_str())?,
        }
        if let Some(Pause { asked_ago: Some(ago), again_in }) = self.pause() {
            let is_unasked = matches!(self.kind, ResolveErrorKind::Local | ResolveErrorKind::Config);
            let verb = if is_unasked { "tried" } else { "asked" };
            let (ago, again_in) = (ago.as_secs_f64(), again_in.as_secs_f64());
            write!(f, "; {verb} {ago:.1} s ago, {verb} again in {again_in:.1} s")?;
        }
        Ok(())
    }
}

impl std::error::Error for ResolveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.cause.as_deref()?;
        Some(cause)
    }
}
