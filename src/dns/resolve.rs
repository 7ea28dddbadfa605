//! The trait that every resolver implements, and the two that ask no DNS server: the operating system's, and fixed addresses.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dns_lookup::{AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};
use parking_lot::RwLock;
use socket2::Domain;

use super::answer::Place;
use crate::dns::answer::comparable;
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind, Source};

/// Resolves a name to the addresses of one family. The DNS cache takes its answers from here.
///
/// Implement it to take addresses from any other place. [`ClientBuilder::dns_resolver`](crate::ClientBuilder::dns_resolver)
/// puts the cache in front of it.
///
/// ```
/// use std::{net::Ipv4Addr, sync::Arc, time::Duration};
/// use speeddial::dns::{Answer, Family, Resolver, ResolveError, ResolveErrorKind, ResolverFuture, Source};
///
/// struct Local;
/// impl Resolver for Local {
///     fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
///         Box::pin(async move {
///             match family {
///                 Family::V4 => Ok(Answer::new([Ipv4Addr::LOCALHOST.into()], Duration::from_secs(60), Source::Fixed)),
///                 Family::V6 => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)),
///             }
///         })
///     }
/// }
/// ```
pub trait Resolver: Any + Send + Sync {
    /// Asks for the addresses of `name` in one family.
    ///
    /// # Errors
    /// [`ResolveErrorKind::NxDomain`] and
    /// [`NoData`](super::ResolveErrorKind::NoData) mean that there are no addresses; the cache may keep them. Every other
    /// kind means that the lookup failed.
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a>;

    /// Like [`resolve`](Self::resolve), for a cache that says what it knows already.
    #[doc(hidden)]
    fn resolve_for<'a>(&'a self, name: &'a str, family: Family, asking: Asking) -> ResolverFuture<'a> {
        drop(asking);
        self.resolve(name, family)
    }

    /// Returns a number that differs from the last one when answers from before count for nothing any more: the resolver has read other
    /// files, or has other servers. A cache then asks for each of its names again at its next use. 0 by default, for a resolver to which that
    /// does not happen.
    ///
    /// The cache calls it when it is used, at most once in 5 s. It must not wait.
    fn version(&self) -> u64 {
        0
    }
}

/// The facts that a cache passes on with its question.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct Asking {
    /// The place of the addresses that the cache knows.
    pub(crate) known: Option<Place>,
    /// Takes addresses of an earlier server that come after the answer.
    pub(crate) late: Option<Arc<dyn Fn(Answer) + Send + Sync>>,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking").field("known", &self.known).finish_non_exhaustive()
    }
}

/// The future of a lookup, returned by [`Resolver::resolve`].
pub type ResolverFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer, ResolveError>> + Send + 'a>>;

impl<R: Resolver + ?Sized> Resolver for Arc<R> {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        (**self).resolve(name, family)
    }

    fn resolve_for<'a>(&'a self, name: &'a str, family: Family, asking: Asking) -> ResolverFuture<'a> {
        (**self).resolve_for(name, family, asking)
    }

    fn version(&self) -> u64 {
        (**self).version()
    }
}

/// The resolver that the queries of a cache go to. It can be replaced.
pub(super) struct Upstream(RwLock<Arc<dyn Resolver>>);

impl Upstream {
    pub(super) fn new(resolver: impl Resolver) -> Self {
        Self(RwLock::new(Arc::new(resolver)))
    }

    /// Returns the resolver of queries that begin now.
    pub(super) fn current(&self) -> Arc<dyn Resolver> {
        self.0.read().clone()
    }

    /// Replaces the resolver. Queries that are running go on with the old one.
    pub(super) fn replace(&self, resolver: impl Resolver) {
        let resolver: Arc<dyn Resolver> = Arc::new(resolver);
        let old = std::mem::replace(&mut *self.0.write(), resolver);
        // Without the lock: its destructor is the user's.
        drop(old);
    }
}

/// Resolves names from a fixed table. A name that is not in it does not exist.
///
/// ```
/// use speeddial::dns::FixedResolver;
///
/// let resolver = FixedResolver::new().with("api.test", ["127.0.0.1".parse()?]);
/// let client = speeddial::Client::builder().dns_resolver(resolver).build();
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone)]
pub struct FixedResolver {
    table: HashMap<Box<str>, Vec<IpAddr>>,
    ttl: Duration,
}

impl Default for FixedResolver {
    fn default() -> Self {
        Self { table: HashMap::new(), ttl: Duration::from_secs(24 * 60 * 60) }
    }
}

impl FixedResolver {
    /// Creates an empty table, whose answers have a TTL of one day.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a name with its addresses, which replace those added before. Case does not matter, nor does a dot at the end, and an
    /// international name is the same in Unicode and in ASCII (punycode).
    pub fn with(mut self, name: impl AsRef<str>, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.table.insert(comparable(name.as_ref()).into(), addresses.into_iter().collect());
        self
    }

    /// Sets the TTL of all answers.
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    fn answer(&self, name: &str, family: Family) -> Result<Answer, ResolveError> {
        let known = self.table.get(&*comparable(name));
        let known = known.ok_or_else(|| ResolveError::new(ResolveErrorKind::NxDomain, name, family))?;
        let addresses: Vec<_> = known.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
        if addresses.is_empty() {
            let error = ResolveError::new(ResolveErrorKind::NoData, name, family);
            return Err(error.with_negative_ttl(Some(self.ttl)));
        }
        Ok(Answer::new(addresses, self.ttl, Source::Fixed))
    }
}

impl Resolver for FixedResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(std::future::ready(self.answer(name, family)))
    }
}

/// The TTL of answers by default, as the platform reports none.
const PLATFORM_TTL: Duration = Duration::from_secs(30);

/// Resolves names with the platform's `getaddrinfo`, on tokio's threads for blocking work.
///
/// The platform has sources other than DNS (LDAP, mDNS, WINS). It has limits, too:
///
/// * It reports no TTL. All answers have the one that the caller sets, or 30 s.
/// * It does not distinguish a name that does not exist from a failed lookup, so the cache keeps neither as "does not exist".
/// * A lookup that is cancelled occupies its thread until the platform answers.
///
/// ```
/// use std::time::Duration;
/// use speeddial::dns::{Family, Resolver, SystemResolver};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let resolver = SystemResolver::new(Duration::from_secs(30));
/// let answer = resolver.resolve("localhost", Family::V4).await.expect("every machine resolves it");
/// assert_eq!(answer.ttl(), Duration::from_secs(30));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SystemResolver {
    ttl: Duration,
}

impl SystemResolver {
    /// Creates a resolver whose answers have this TTL.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl }
    }

    async fn ask(&self, name: &str, family: Family) -> Result<Answer, ResolveError> {
        let failed = |kind| ResolveError::new(kind, name, family);
        let asked = name.to_owned();
        let addresses = match tokio::task::spawn_blocking(move || addresses(&asked, family)).await {
            Ok(Ok(addresses)) => addresses,
            Ok(Err(error)) if matches!(error.kind(), LookupErrorKind::NoData) => Vec::new(),
            Ok(Err(error)) => return Err(failed(ResolveErrorKind::Other).with_cause(io::Error::from(error))),
            Err(error) => return Err(failed(ResolveErrorKind::Other).with_cause(error)),
        };
        if addresses.is_empty() {
            // Without a TTL, so that the cache keeps it for 1 s only: the lookup of this family may have failed.
            return Err(failed(ResolveErrorKind::NoData));
        }
        Ok(Answer::new(addresses, self.ttl, Source::Miss))
    }
}

/// Asks the platform for the addresses of one family. The other one is not asked for: the answer would wait for it.
fn addresses(name: &str, family: Family) -> Result<Vec<IpAddr>, LookupError> {
    let domain = match family {
        Family::V4 => Domain::IPV4,
        Family::V6 => Domain::IPV6,
    };
    let ask = |address| -> Result<Vec<IpAddr>, LookupError> {
        let hints = AddrInfoHints { address, socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
        let found = getaddrinfo(Some(name), None, Some(hints))?;
        Ok(found.filter_map(Result::ok).map(|info| info.sockaddr.ip()).collect())
    };
    match ask(domain.into()) {
        // Some platforms say so of a name that has addresses in the other family alone, as of one in the hosts file.
        Err(error) if matches!(error.kind(), LookupErrorKind::NoName) && ask(0).is_ok() => Ok(Vec::new()),
        answer => answer,
    }
}

/// A resolver whose answers have a TTL of 30 s.
impl Default for SystemResolver {
    fn default() -> Self {
        Self::new(PLATFORM_TTL)
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(self.ask(name, family))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn families_are_apart_and_case_and_a_final_dot_do_not_matter() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let resolver = FixedResolver::new().with("API.test", [local]).with("Bücher.test", [local]);
        assert!(resolver.resolve("xn--bcher-kva.test", Family::V4).await.is_ok());
        let answer = resolver.resolve("api.TEST.", Family::V4).await.unwrap();
        assert_eq!(answer.addresses().len(), 1);
        let error = resolver.resolve("api.test", Family::V6).await.unwrap_err();
        assert_eq!((error.kind(), error.negative_ttl()), (ResolveErrorKind::NoData, Some(answer.ttl())));
        let error = resolver.resolve("other.test", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::NxDomain);
        assert_eq!(error.to_string(), "resolve other.test: the name does not exist");
    }
}

#[cfg(test)]
mod system_tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_name_is_a_failure_rather_than_a_negative_answer() {
        let resolver = SystemResolver::new(Duration::from_secs(1));
        let error = resolver.resolve("no such name", Family::V4).await.unwrap_err();
        assert!(!error.kind().is_negative() && std::error::Error::source(&error).is_some());
    }

    // The hosts files of some machines have it in one family alone, and the other one is asked for in DNS. Without a server that can be
    // reached, that is a failure like those of all other names.
    #[tokio::test]
    async fn a_name_has_addresses_in_a_family_or_is_said_to_have_none_in_it() {
        let resolver = SystemResolver::new(Duration::from_secs(1));
        let unknown = getaddrinfo(Some("localhost.invalid"), None, None).map(|_| ());
        let has_dns = !unknown.is_err_and(|error| matches!(error.kind(), LookupErrorKind::Again));
        let mut found = 0;
        for family in Family::BOTH {
            let answer = resolver.resolve("localhost", family).await;
            let is_said = answer.as_ref().map_or_else(|error| error.kind().is_negative(), |_| true);
            assert!(is_said || !has_dns, "{answer:?}");
            found += usize::from(answer.is_ok());
        }
        assert!(found > 0);
    }
}
