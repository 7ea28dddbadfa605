//! The rules of the cache, event by event.

mod answers;
mod doubt;
mod eviction;
mod failures;
mod random_events;
mod refreshes;
mod snapshots;

use super::*;
use crate::dns::Source;
use Family::{V4, V6};

const NAMES: usize = 4;

fn cache(max_names: usize) -> Cache<u32> {
    Cache::new(Config { max_names, ..Config::default() }, 0)
}

fn t0() -> Instant {
    crate::clock::now()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// An answer with the address `192.0.2.last`.
fn ok(last: u8, ttl: u64) -> Result<Answer, ResolveError> {
    Ok(Answer::new([[192, 0, 2, last].into()], secs(ttl), Source::Miss))
}

/// A negative answer or a failure.
fn err(kind: ResolveErrorKind, ttl: Option<u64>) -> Result<Answer, ResolveError> {
    Err(ResolveError::new(kind, "n", V4).with_negative_ttl(ttl.map(secs)))
}

fn get(cache: &mut Cache<u32>, now: Instant, name: &str, family: Family) -> Lookup<u32> {
    cache.get(now, name, family)
}

/// Returns true if the cache answers a lookup without a query. A query that it starts is abandoned.
fn is_known(cache: &mut Cache<u32>, now: Instant, name: &str, family: Family) -> bool {
    match get(cache, now, name, family) {
        Lookup::Known(..) => true,
        Lookup::Start(query, _) => !cache.abandon(now, name, family, query.serial),
        Lookup::Join(..) => false,
    }
}

/// Completes the query for a name, which is started if none is running.
fn resolve(
    cache: &mut Cache<u32>,
    now: Instant,
    name: &str,
    family: Family,
    result: Result<Answer, ResolveError>,
) -> Result<Answer, ResolveError> {
    cache.refresh(now, name, family);
    let serial = cache.queries.serial(&(name.into(), family));
    cache.complete(now, name, family, serial, result).outcome
}

/// An answer or an error of the server at this place.
fn from(server: u8, result: Result<Answer, ResolveError>) -> Result<Answer, ResolveError> {
    let place = Place { server, candidate: 0 };
    result.map(|answer| answer.with_place(place)).map_err(|error| error.with_place(place))
}

/// The last byte of the only address, and the source of the answer.
fn address(lookup: Lookup<u32>) -> (u8, Source) {
    let Lookup::Known(Ok(answer), _) = lookup else { panic!("no answer: {lookup:?}") };
    (answer.addresses()[0].to_string().rsplit('.').next().unwrap().parse().unwrap(), answer.source())
}

fn is_kept(cache: &Cache<u32>, name: &str) -> bool {
    cache.entries.find(name).is_some()
}
