//! The cache's driver under many thread schedules: lookups share a query, leave it, and outlive its loss, while answers expire.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use futures_util::FutureExt;
use shuttle::future::block_on;
use shuttle::thread::{self, JoinHandle};

use super::*;
use crate::dns::Source;
use crate::sync::{explore, point, rounds, until};

/// Answers after a round of the runtime, each time with another address, and counts its queries.
#[derive(Clone, Default)]
struct Numbered {
    begun: Arc<AtomicU8>,
    running: Arc<AtomicUsize>,
    ttl: Duration,
}

impl Resolver for Numbered {
    fn resolve<'a>(&'a self, _: &'a str, _: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            assert_eq!(self.running.fetch_add(1, Ordering::SeqCst), 0, "two queries for one name and family");
            let _running = Running(self.running.clone());
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(Answer::new([[192, 0, 2, number].into()], self.ttl, Source::Miss))
        })
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn cached(ttl: u64) -> (CachedResolver, Numbered) {
    let upstream = Numbered { ttl: Duration::from_millis(ttl), ..Numbered::default() };
    (CachedResolver::new(upstream.clone()), upstream)
}

/// Looks the name up in a thread of its own.
fn looking_up(cache: &CachedResolver) -> JoinHandle<Source> {
    let cache = cache.clone();
    thread::spawn(move || block_on(cache.lookup("n", Family::V4)).expect("an answer").source())
}

#[test]
fn lookups_at_once_share_one_query_and_those_after_it_its_answer() {
    explore(1_500, || {
        let (cache, upstream) = cached(60_000);
        let others: Vec<_> = (0..3).map(|_| looking_up(&cache)).collect();
        let mut sources: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
        sources.push(block_on(cache.lookup("n", Family::V4)).unwrap().source());
        let count = |source| sources.iter().filter(|at| **at == source).count();
        assert_eq!((count(Source::Miss), upstream.begun.load(Ordering::SeqCst)), (1, 1), "{sources:?}");
        assert!(count(Source::Stale) == 0 && count(Source::Hit) >= 1, "{sources:?}");
        let stats = cache.stats();
        assert_eq!((stats.misses, stats.coalesced + stats.hits), (1, 3), "{stats:?}");
    });
}

#[test]
fn a_query_goes_on_without_the_lookup_that_began_it() {
    explore(1_500, || {
        let (cache, upstream) = cached(60_000);
        let leaving = {
            let cache = cache.clone();
            // Polled once, and dropped at any time after it.
            thread::spawn(move || {
                let mut lookup = Box::pin(cache.lookup("n", Family::V4));
                let _ = lookup.as_mut().now_or_never();
                point();
            })
        };
        let others = [looking_up(&cache), looking_up(&cache)];
        for other in others {
            other.join().unwrap();
        }
        leaving.join().unwrap();
        assert_eq!(upstream.begun.load(Ordering::SeqCst), 1);
        assert_eq!(block_on(cache.lookup("n", Family::V4)).unwrap().source(), Source::Hit);
    });
}

#[test]
fn a_name_that_is_forgotten_while_it_is_asked_for_is_asked_for_again() {
    explore(1_500, || {
        let upstream = Forgettable::default();
        let cache = CachedResolver::new(upstream.clone());
        let others = [looking_up(&cache), looking_up(&cache)];
        // What a lookup gets that begins after this call must have been asked for after it.
        let asked = upstream.0.load(Ordering::SeqCst);
        cache.invalidate("n");
        let after = block_on(cache.lookup("n", Family::V4)).unwrap().addresses()[0];
        assert!(after > IpAddr::from([192, 0, 2, asked]), "{after} of query {asked} or before");
        for other in others {
            other.join().unwrap();
        }
        let last = block_on(cache.lookup("n", Family::V4)).unwrap();
        assert!(last.addresses()[0] >= after, "an answer from before the name was forgotten");
    });
}

/// Like [`Numbered`], for names that are forgotten: a query of before may still run.
#[derive(Clone, Default)]
struct Forgettable(Arc<AtomicU8>);

impl Resolver for Forgettable {
    fn resolve<'a>(&'a self, _: &'a str, _: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(Answer::new([[192, 0, 2, number].into()], Duration::from_secs(60), Source::Miss))
        })
    }
}

#[test]
fn a_name_in_use_is_refreshed_by_one_query_at_a_time_and_no_lookup_fails() {
    explore(300, || {
        let (cache, upstream) = cached(12);
        let users: Vec<_> = (0..2)
            .map(|_| {
                let cache = cache.clone();
                thread::spawn(move || {
                    let mut before = 0;
                    for _ in 0..4 {
                        let at = now();
                        let answer = block_on(cache.lookup("n", Family::V4)).expect("an answer");
                        let last = answer.addresses()[0].to_string().rsplit('.').next().unwrap().parse::<u8>().unwrap();
                        assert!(last >= before, "{last} after {before}");
                        assert!(answer.source() != Source::Stale || now() - at >= STALE_ANSWER_TIMEOUT);
                        before = last;
                        rounds(4);
                    }
                })
            })
            .collect();
        users.into_iter().for_each(|user| user.join().unwrap());
        assert!(upstream.begun.load(Ordering::SeqCst) >= 2, "the TTL passed");
        until(|| upstream.running.load(Ordering::SeqCst) == 0);
    });
}
