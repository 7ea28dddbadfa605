//! The platform's own resolver, for machines whose names do not all live in DNS.

use std::time::Duration;

use super::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};

/// Asks the platform (`getaddrinfo`), on tokio's threads for blocking work.
///
/// The platform knows sources other than DNS (LDAP, mDNS, WINS), but tells no TTL, so the caller states one; and it does
/// not tell a name that does not exist from one that could not be found out, so neither is kept as "does not exist".
/// A lookup that is given up still holds its thread until the platform answers.
///
/// ```
/// use std::time::Duration;
/// use speeddial::dns::{Family, Resolve, SystemResolver};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let resolver = SystemResolver::new(Duration::from_secs(30));
/// let answer = resolver.resolve("localhost", Family::V4).await.expect("every machine has one");
/// assert_eq!(answer.ttl(), Duration::from_secs(30));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SystemResolver {
    ttl: Duration,
}

impl SystemResolver {
    /// A resolver whose answers have this TTL.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl }
    }

    async fn ask(&self, name: &str, family: Family) -> Result<Answer, ResolveError> {
        let found = tokio::net::lookup_host((name, 0)).await;
        let found =
            found.map_err(|error| ResolveError::new(ResolveErrorKind::Other, name, family).with_cause(error))?;
        let addresses: Vec<_> =
            found.map(|address| address.ip()).filter(|address| Family::of(*address) == family).collect();
        if addresses.is_empty() {
            // For a moment only: the platform may have given up on this family rather than found nothing.
            return Err(ResolveError::new(ResolveErrorKind::NoData, name, family));
        }
        Ok(Answer::new(addresses, self.ttl, Source::Miss))
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
    async fn a_name_that_is_not_known_is_not_kept_as_one_that_does_not_exist() {
        let resolver = SystemResolver::new(Duration::from_secs(1));
        let error = resolver.resolve("no such name", Family::V4).await.unwrap_err();
        assert!(!error.kind().is_negative() && std::error::Error::source(&error).is_some());
    }
}
