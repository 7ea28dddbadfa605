//! Names whose addresses change: which connections are closed, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use speeddial::dns::{
    Answer, CachedResolver, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source,
};
use speeddial::pool::FollowDns;
use speeddial::trace::{CloseCause, Event};
use speeddial::{Client, PoolConfig};
use tokio::time::{Instant, sleep};

use super::common::{URL, get, ms, serve};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::v4;

/// A resolver that answers each query with the next set of addresses, valid for 2 s unless said otherwise.
struct ChangingResolver {
    answers: Vec<Vec<u8>>,
    queries: AtomicUsize,
    ttl: Duration,
}

impl ChangingResolver {
    fn new(answers: Vec<Vec<u8>>) -> Self {
        Self { answers, queries: AtomicUsize::new(0), ttl: ms(2_000) }
    }
}

impl Resolver for ChangingResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            if family == Family::V6 {
                return Err(ResolveError::new(ResolveErrorKind::NoData, name, family));
            }
            let turn = self.queries.fetch_add(1, Ordering::SeqCst);
            let answer = &self.answers[turn % self.answers.len()];
            let ips: Vec<_> = answer.iter().map(|last| v4(*last)).collect();
            Ok(Answer::new(ips, self.ttl, Source::Miss))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn rotating_dns_answers_close_no_connection() {
    let twenty = (0..20).map(|last| vec![last]).collect();
    for answers in [vec![vec![1], vec![2]], vec![vec![1, 2], vec![3, 4], vec![5, 6]], twenty] {
        let net = ScriptedNet::new(|_, stream| serve(stream, 5));
        let resolver = ChangingResolver::new(answers);
        let client = Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone()).build().unwrap();
        for _ in 0..3_000 {
            get(&client, URL).await.unwrap();
            sleep(ms(95)).await;
        }
        assert_eq!((client.pool_stats().closed, net.connections()), (0, 1), "five minutes, 150 answers");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_follow_a_moved_name_as_configured() {
    for (follow, stays) in
        [(FollowDns::AfterTwoTtls, Some(2_300..4_500)), (FollowDns::AtOnce, Some(1_800..2_100)), (FollowDns::Off, None)]
    {
        let net = ScriptedNet::new(|_, stream| serve(stream, 5));
        let answers = std::iter::once(vec![1]).chain(vec![vec![2]; 999]).collect();
        let resolver = ChangingResolver::new(answers);
        let pool = PoolConfig::new().follow_dns(follow);
        let recorder = Recorder::default();
        let builder = Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone()).pool(pool);
        let client = builder.observer(recorder.clone()).build().unwrap();
        let start = Instant::now();
        let mut moved = None;
        for _ in 0..600 {
            let response = client.get(URL).send().await.unwrap();
            if response.remote_addr().unwrap().ip() == v4(2) {
                moved.get_or_insert(start.elapsed().as_millis());
            }
            response.text().await.unwrap();
            sleep(ms(20)).await;
        }
        match stays {
            Some(stays) => assert!(moved.is_some_and(|at| stays.contains(&at)), "{follow:?}: {moved:?}"),
            None => assert_eq!(moved, None),
        }
        assert_eq!(client.pool_stats().closed_by(CloseCause::AddressMoved), u64::from(moved.is_some()));
        let events = recorder.count(|event| matches!(event, Event::Closed { cause: CloseCause::AddressMoved, .. }));
        assert_eq!(events, usize::from(moved.is_some()), "{follow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_the_connection_of_a_name_that_is_seldom_used_follows_it_before_the_next_use_but_one() {
    let moved: Vec<_> = std::iter::once(vec![1]).chain(vec![vec![2]; 999]).collect();
    for (answers, last_one) in [(moved, 2), (vec![vec![1], vec![2]], 1)] {
        let net = ScriptedNet::new(|_, stream| serve(stream, 5));
        let resolver = Arc::new(ChangingResolver::new(answers));
        let builder = Client::builder().no_proxy().dns_resolver(Shared(resolver.clone()));
        let client = builder.transport(net.clone()).build().unwrap();
        let mut reached = Vec::new();
        for _ in 0..6 {
            let response = client.get(URL).send().await.unwrap();
            reached.push(response.remote_addr().unwrap().ip());
            response.text().await.unwrap();
            sleep(ms(25_000)).await;
        }
        let expected: Vec<_> = [1, 1].into_iter().chain([last_one; 4]).map(v4).collect();
        assert_eq!(reached, expected);
        // At most one for each TTL of a name that rotates.
        let queries = resolver.queries.load(Ordering::SeqCst);
        assert!(queries <= if last_one == 1 { 75 } else { 15 }, "{queries} queries");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_busy_connections_follow_a_name_whose_ttl_is_zero() {
    let moved = std::iter::repeat_n(vec![1], 3).chain(std::iter::repeat_n(vec![2], 999)).collect();
    let twenty = (0..20).map(|last| vec![last]).collect();
    for (answers, follows) in [(moved, true), (twenty, false)] {
        let net = ScriptedNet::new(|_, stream| serve(stream, 5));
        let resolver = Arc::new(ChangingResolver { ttl: Duration::ZERO, ..ChangingResolver::new(answers) });
        let client =
            Client::builder().no_proxy().dns_resolver(Shared(resolver.clone())).transport(net.clone()).build().unwrap();
        let mut moved_at = None;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            let response = client.get(URL).send().await.unwrap();
            if follows && response.remote_addr().unwrap().ip() == v4(2) {
                moved_at.get_or_insert(start.elapsed().as_secs());
            }
            response.text().await.unwrap();
            sleep(ms(20)).await;
        }
        assert_eq!(
            (moved_at.is_some_and(|at| at < 15), net.connections()),
            (follows, if follows { 2 } else { 1 }),
            "{moved_at:?}"
        );
        let queries = resolver.queries.load(Ordering::SeqCst);
        assert!((25..=40).contains(&queries), "one in two seconds: {queries}");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_warm_connections_follow_a_pin_and_its_end() {
    for pinned in ["api.test", "api.test."] {
        let net = ScriptedNet::new(|_, stream| serve(stream, 5));
        let cache = CachedResolver::new(ChangingResolver::new(vec![vec![1]]));
        let client = Client::builder().no_proxy().dns_cache(cache.clone()).transport(net.clone()).build().unwrap();
        let used = async || {
            let mut used = Vec::new();
            for _ in 0..400 {
                let response = client.get(URL).send().await.unwrap();
                used.push(response.remote_addr().unwrap().ip());
                response.text().await.unwrap();
                sleep(ms(20)).await;
            }
            (used[0], *used.last().unwrap())
        };
        assert_eq!(used().await, (v4(1), v4(1)));
        cache.pin(pinned, [v4(7)]);
        assert_eq!(used().await, (v4(1), v4(7)), "within ten seconds");
        assert!(cache.unpin("api.test"));
        assert_eq!(used().await, (v4(7), v4(1)));
    }
}

struct Shared(Arc<ChangingResolver>);

impl Resolver for Shared {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        self.0.resolve(name, family)
    }
}
