//! Names whose addresses change: which connections are closed, and when.

use std::sync::atomic::{AtomicUsize, Ordering};

use speeddial::dns::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};
use speeddial::trace::{CloseCause, Event};
use speeddial::{Client, FollowDns, PoolConfig};
use tokio::time::{Instant, sleep};

use super::common::{URL, get, ms, serve};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::v4;

/// A resolver that answers each query with the next set of addresses, valid for 2 s.
struct ChangingResolver {
    answers: Vec<Vec<u8>>,
    queries: AtomicUsize,
}

impl Resolve for ChangingResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        Box::pin(async move {
            if family == Family::V6 {
                return Err(ResolveError::new(ResolveErrorKind::NoData, name, family));
            }
            let turn = self.queries.fetch_add(1, Ordering::SeqCst);
            let answer = &self.answers[turn % self.answers.len()];
            let ips: Vec<_> = answer.iter().map(|last| v4(*last)).collect();
            Ok(Answer::new(ips, ms(2_000), Source::Miss))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn rotating_dns_answers_close_no_connection() {
    let twenty = (0..20).map(|last| vec![last]).collect();
    for answers in [vec![vec![1], vec![2]], vec![vec![1, 2], vec![3, 4], vec![5, 6]], twenty] {
        let net = ScriptedNet::new(|_, stream| serve(stream, 5));
        let resolver = ChangingResolver { answers, queries: AtomicUsize::new(0) };
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
        let resolver = ChangingResolver { answers, queries: AtomicUsize::new(0) };
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
