//! Names to addresses: the [`Resolver`] trait, a cache that honours TTLs, and resolvers to put under the cache.
//!
//! A client looks names up in a [`CachedResolver`]. The cache asks the resolver under it, which by default is a
//! [`HickoryResolver`] with the system's configuration. Any type that implements [`Resolver`] can take that place.
//!
//! | question | answer | see |
//! |---|---|---|
//! | How long is an answer used? | Until its TTL expires. | [`ttl_floor`], [`ttl_ceiling`] |
//! | What happens to an answer with a TTL of 0? | The lookups that wait for it receive it; the cache does not keep it. | [`lookup`] |
//! | When is a name refreshed ahead of its expiry? | In the last tenth of its TTL, if it was used since its last answer. | [`touch`] |
//! | When is an expired answer served? | When no newer one is to be had, or none within 1.8 s (RFC 8767). | [`stale`], [`Source::Stale`] |
//! | What ends a stale answer? | A newer answer, "does not exist", "no addresses", or one hour after its expiry. | [`stale`] |
//! | How long is "does not exist" kept? | As long as its SOA record says (RFC 2308), at most 30 s; 1 s without one. | [`negative_ceiling`] |
//! | When is a name asked for again after a failure? | After 1 s, then twice as long each time, at most 30 s (RFC 9520). | [`ResolveErrorKind::is_local`] |
//! | How many queries run for one name? | One for each family; all lookups wait for the same one. | [`CacheStats::coalesced`] |
//! | How often is a search list searched? | For each query of the cache, from its beginning. | [`HickoryResolver`] |
//! | How is a changed answer noticed? | A subscriber receives each change. | [`subscribe`] |
//!
//! [`lookup`]: CachedResolver::lookup
//! [`negative_ceiling`]: CachedResolverBuilder::negative_ceiling
//! [`stale`]: CachedResolverBuilder::stale
//! [`subscribe`]: CachedResolver::subscribe
//! [`touch`]: CachedResolver::touch
//! [`ttl_ceiling`]: CachedResolverBuilder::ttl_ceiling
//! [`ttl_floor`]: CachedResolverBuilder::ttl_floor

mod answer;
mod by_name;
mod cache;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzed;
mod hickory;
mod resolve;

pub(crate) use crate::dns::answer::comparable;
pub use crate::dns::resolve::FixedResolver;
pub use crate::dns::resolve::SystemResolver;
pub use answer::Answer;
pub(crate) use answer::Sockets;
pub use by_name::{Addrs, IntoResolver, InvalidNameError, Name, Resolve, ResolveAdapter, Resolving};
pub use cache::{CacheStats, CachedResolver, CachedResolverBuilder, Change, Changes, ChangesError, Snapshot};
pub(crate) use error::Pause;
pub use error::{ResolveError, ResolveErrorKind};
#[cfg(feature = "doctor")]
pub use hickory::DnsTransport;
#[cfg(feature = "doctor")]
pub(crate) use hickory::{DnsProbe, Inspection, NOT_OF_A_HOST, Options, Reading, Reply, ResolvConfSettings};
pub use hickory::{HickoryResolver, Server};
pub use resolve::{Resolver, ResolverFuture};

pub use crate::trace::events::{Family, Source};
