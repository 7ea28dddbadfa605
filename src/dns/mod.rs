//! Names to addresses: the [`Resolve`] seam, a cache that honours TTLs, and resolvers to put under it.

mod cache;
mod fixed;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzed;
mod hickory;
mod system;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use cache::{CacheStats, CachedResolver, CachedResolverBuilder, Change, Changes, ChangesError, Snapshot};
pub use fixed::FixedResolver;
pub use hickory::{HickoryResolver, Server};
pub use system::SystemResolver;

pub use crate::latency::Latency;
pub use crate::trace::{Family, Source};

/// Resolves a name to the addresses of one family: the seam under the DNS cache.
///
/// Implement it to take addresses from anywhere; a client puts its cache on top.
///
/// ```
/// use std::{net::Ipv4Addr, sync::Arc, time::Duration};
/// use speeddial::dns::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};
///
/// struct Local;
/// impl Resolve for Local {
///     fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
///         Box::pin(async move {
///             match family {
///                 Family::V4 => Ok(Answer::new([Ipv4Addr::LOCALHOST.into()], Duration::from_secs(60), Source::Fixed)),
///                 Family::V6 => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)),
///             }
///         })
///     }
/// }
/// ```
pub trait Resolve: Send + Sync + 'static {
    /// Asks for the addresses of `name` in one family.
    ///
    /// # Errors
    /// [`ResolveErrorKind::NxDomain`] and [`NoData`](ResolveErrorKind::NoData) say that there are no addresses, and
    /// may be remembered; every other kind says that it could not be found out.
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a>;
}

/// A lookup under way: what [`Resolve::resolve`] returns.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = Result<Answer, ResolveError>> + Send + 'a>>;

impl<R: Resolve + ?Sized> Resolve for Arc<R> {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        (**self).resolve(name, family)
    }
}

/// The addresses of a name in one family, how long they may be used, and where they came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    addresses: Arc<[IpAddr]>,
    ttl: Duration,
    source: Source,
}

impl Answer {
    /// An answer with a TTL that starts now. An answer without addresses counts as "no data".
    pub fn new(addresses: impl Into<Arc<[IpAddr]>>, ttl: Duration, source: Source) -> Self {
        Self { addresses: addresses.into(), ttl, source }
    }

    /// The addresses, in the order they were given.
    pub fn addresses(&self) -> &Arc<[IpAddr]> {
        &self.addresses
    }

    /// How long the answer may still be used.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Where it came from.
    pub fn source(&self) -> Source {
        self.source
    }

    pub(crate) fn with_source(self, source: Source) -> Self {
        Self { source, ..self }
    }
}

/// Why a name has no addresses of a family. Cheap to clone: all who waited for a lookup get the same one.
#[derive(Debug, Clone)]
pub struct ResolveError {
    kind: ResolveErrorKind,
    family: Family,
    name: Arc<str>,
    negative_ttl: Option<Duration>,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
    source: Source,
}

/// What went wrong in a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResolveErrorKind {
    /// The name does not exist, in either family (RFC 2308 §2.1).
    NxDomain,
    /// The name exists, but not in this family (RFC 2308 §2.2).
    NoData,
    /// The server failed (SERVFAIL).
    ServFail,
    /// The server refused (REFUSED).
    Refused,
    /// No answer came in time.
    Timeout,
    /// No server could be reached.
    Unreachable,
    /// No server could be asked, for a reason of this machine: it has no network, or no more sockets.
    Local,
    /// The name is not one that can be asked for.
    InvalidName,
    /// The resolver's configuration could not be read.
    Config,
    /// The answer could not be understood, or the resolver failed in some other way.
    Other,
}

impl ResolveErrorKind {
    /// Whether it says that there are no addresses, rather than that it could not be found out.
    pub fn is_negative(self) -> bool {
        matches!(self, Self::NxDomain | Self::NoData)
    }

    /// Returns true if the failure is this machine's, rather than what a server said or did not say. The DNS cache leaves
    /// such a name alone for 100 ms only.
    pub fn is_local(self) -> bool {
        matches!(self, Self::Local | Self::Config)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::NxDomain => "the name does not exist",
            Self::NoData => "no addresses",
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
    /// An error about one lookup.
    pub fn new(kind: ResolveErrorKind, name: &str, family: Family) -> Self {
        Self { kind, family, name: name.into(), negative_ttl: None, cause: None, source: Source::Miss }
    }

    /// The same with the time for which a negative answer may be remembered (RFC 2308 §5: from the SOA record).
    pub fn with_negative_ttl(self, negative_ttl: Option<Duration>) -> Self {
        Self { negative_ttl, ..self }
    }

    /// The same with its cause.
    pub fn with_cause(self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { cause: Some(cause.into().into()), ..self }
    }

    pub(crate) fn with_source(self, source: Source) -> Self {
        Self { source, ..self }
    }

    /// What lies under it.
    pub(crate) fn into_cause(self) -> Option<Arc<dyn std::error::Error + Send + Sync>> {
        self.cause
    }

    /// What went wrong.
    pub fn kind(&self) -> ResolveErrorKind {
        self.kind
    }

    /// The name that was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The family that was asked for.
    pub fn family(&self) -> Family {
        self.family
    }

    /// How long a negative answer may still be remembered, where the answer said so.
    pub fn negative_ttl(&self) -> Option<Duration> {
        self.negative_ttl
    }

    /// Where the word came from: the cache, somebody else's query, or one of its own.
    pub fn answered_from(&self) -> Source {
        self.source
    }
}

/// A name as URLs and queries have it: in lower case, in its ASCII (punycode) form.
fn normalized(name: &str) -> Cow<'_, str> {
    if !name.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
        return Cow::Borrowed(name);
    }
    match url::Host::parse(name) {
        Ok(url::Host::Domain(ascii)) if !name.is_ascii() => Cow::Owned(ascii),
        // In ASCII, or not a name that a URL can have.
        _ => Cow::Owned(name.to_ascii_lowercase()),
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resolve {} ({}): {}", self.name(), self.family(), self.kind().as_str())
    }
}

impl std::error::Error for ResolveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.cause.as_deref()?;
        Some(cause)
    }
}
