//! A resolver for paused time: addresses or a failure for each family, after a delay.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use speeddial::dns::{Answer, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};

/// Answers every name with the same addresses, each family after its delay.
#[derive(Clone)]
pub struct FakeDns {
    /// The delay in milliseconds and the outcome for IPv4.
    pub v4: (u64, Result<Vec<IpAddr>, ResolveErrorKind>),
    /// The delay in milliseconds and the outcome for IPv6.
    pub v6: (u64, Result<Vec<IpAddr>, ResolveErrorKind>),
    /// The time to live of answers and of failures.
    pub ttl: Duration,
    /// The number of queries so far, shared by clones.
    pub queries: Arc<AtomicUsize>,
}

impl FakeDns {
    /// Returns a resolver that answers with one IPv4 address after `delay` milliseconds, valid for `ttl` seconds.
    pub fn v4(delay: u64, address: IpAddr, ttl: u64) -> Self {
        let v6 = (delay, Err(ResolveErrorKind::NoData));
        Self { v4: (delay, Ok(vec![address])), v6, ttl: Duration::from_secs(ttl), queries: Arc::default() }
    }

    /// The number of queries so far.
    pub fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

impl Resolver for FakeDns {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            self.queries.fetch_add(1, Ordering::SeqCst);
            let (delay, answer) = match family {
                Family::V4 => &self.v4,
                Family::V6 => &self.v6,
            };
            tokio::time::sleep(Duration::from_millis(*delay)).await;
            match answer {
                Ok(addresses) => Ok(Answer::new(addresses.clone(), self.ttl, Source::Miss)),
                Err(kind) => Err(ResolveError::new(*kind, name, family).with_negative_ttl(Some(self.ttl))),
            }
        })
    }
}
