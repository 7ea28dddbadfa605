//! The platform's own resolver, for machines that have names outside of DNS.

use std::time::Duration;

use super::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};

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
/// use speeddial::dns::{Family, Resolve, SystemResolver};
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
        let found = tokio::net::lookup_host((name, 0))
            .await
            .map_err(|error| ResolveError::new(ResolveErrorKind::Other, name, family).with_cause(error))?;
        let addresses: Vec<_> =
            found.map(|address| address.ip()).filter(|address| Family::of(*address) == family).collect();
        if addresses.is_empty() {
            // Without a TTL, so that the cache keeps it for 1 s only: the lookup of this family may have failed.
            return Err(ResolveError::new(ResolveErrorKind::NoData, name, family));
        }
        Ok(Answer::new(addresses, self.ttl, Source::Miss))
    }
}

/// A resolver whose answers have a TTL of 30 s.
impl Default for SystemResolver {
    fn default() -> Self {
        Self::new(PLATFORM_TTL)
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        Box::pin(self.ask(name, family))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_name_is_a_failure_rather_than_a_negative_answer() {
        let resolver = SystemResolver::new(Duration::from_secs(1));
        let error = resolver.resolve("no such name", Family::V4).await.unwrap_err();
        assert!(!error.kind().is_negative() && std::error::Error::source(&error).is_some());
    }
}
