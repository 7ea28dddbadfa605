//! Lookups of HTTPS records in the DNS cache.

use futures_util::future::Either;

use super::CachedResolver;
use crate::clock::Instant;
use crate::dns::https::{HttpsAnswer, HttpsOutcome, host_of};
use crate::dns::name::normalized;
use crate::dns::{Resolver, ResolvingHttps};

impl CachedResolver {
    /// Looks up the HTTPS records of `name`. Returns the outcome, or a future that waits for it. A name whose addresses are
    /// pinned has none. A hit allocates nothing.
    pub(crate) fn lookup_https_at(
        &self,
        now: Instant,
        name: &str,
    ) -> Either<HttpsOutcome, impl Future<Output = HttpsOutcome> + Send + use<>> {
        let name = normalized(name);
        if self.is_pinned(&name) {
            return Either::Left(Ok([].into()));
        }
        self.driver.https().lookup(now, &name)
    }

    /// Asks the resolver under this cache. The cache on top of this one keeps the records.
    pub(super) fn pass_on_https<'a>(&'a self, name: &'a str) -> ResolvingHttps<'a> {
        if self.is_pinned(&normalized(name)) {
            return Box::pin(std::future::ready(Ok(HttpsAnswer::absent(None))));
        }
        let upstream = self.driver.upstream.current();
        Box::pin(async move { upstream.resolve_https(name).await })
    }

    fn is_pinned(&self, name: &str) -> bool {
        self.driver.lock().is_pinned(host_of(name))
    }
}
