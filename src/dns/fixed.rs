//! A resolver over a fixed table, for tests and for names that are not in DNS.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::name::comparable;
use super::{Answer, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};

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
