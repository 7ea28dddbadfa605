//! The platform's own resolver, for machines that have names outside of DNS.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use dns_lookup::{AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};
use socket2::Domain;

use super::{Answer, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};

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
