//! Deadlines: a call ends by its deadline in any phase, and the error names the phase.

use std::time::Duration;

use futures_util::future::join_all;
use speeddial::dns::FixedResolver;
use speeddial::trace::{Event, Phase};
use speeddial::{Client, ErrorKind, PoolConfig, RetryPolicy};
use tokio::time::Instant;

use support::fake_net::{FakeNet, Host};
use support::net_by_path::NetByPath;
use support::recorder::Recorder;
use support::v4;

const PATHS: [&str; 9] = ["ok", "slow", "early", "to/3", "away", "later", "stale", "die", "never"];

#[tokio::test(start_paused = true)]
async fn hazard_ten_thousand_calls_with_random_deadlines_end_in_time_and_name_the_phase() {
    let mut names = FixedResolver::new().with("mixed.test", [v4(3), v4(4), v4(1)]);
    for (host, last) in [("a.test", 1), ("b.test", 2), ("refused.test", 3), ("silent.test", 4), ("tired.test", 5)] {
        names = names.with(host, [v4(last)]);
    }
    let hosts = ["a.test", "b.test", "refused.test", "silent.test", "tired.test", "mixed.test"];
    let net = NetByPath::default();
    let pool = PoolConfig::new().max_connections_per_host(6).wait_timeout(Duration::from_millis(150));
    let builder = Client::builder().dns_resolver(names).transport(net.clone()).no_proxy().pool(pool);
    let client =
        builder.retry(RetryPolicy::new().backoff(Duration::from_millis(20), Duration::from_millis(80))).build();
    let client = client.unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut phases = [0; Phase::ALL.len()];
    let mut answered = 0;
    let mut failed = 0;
    let mut late = 0;
    let mut just_there = 0;
    for _ in 0..100 {
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let url = format!("http://{}/{}", random.choice(hosts).unwrap(), random.choice(PATHS).unwrap());
                let limit = Duration::from_millis(random.u64(0..250));
                let request = match random.u8(0..3) {
                    0 => client.post(url).body("hello"),
                    _ => client.get(url),
                };
                let request = match random.u8(0..4) {
                    0 => request.connect_timeout(Duration::from_millis(30)),
                    1 => request.queue_timeout(Duration::from_millis(30)),
                    2 => request.headers_timeout(Duration::from_millis(40)),
                    _ => request.body_idle_timeout(Duration::from_millis(5)),
                };
                let pause = Duration::from_millis(random.u64(0..50));
                async move {
                    tokio::time::sleep(pause).await;
                    let start = Instant::now();
                    let made = match request.timeout(limit).send().await {
                        Ok(response) => response.bytes().await,
                        Err(error) => Err(error),
                    };
                    (made, start.elapsed(), limit)
                }
            })
            .collect();
        for (made, took, limit) in join_all(calls).await {
            // The timer has a resolution of 1 ms.
            assert!(took <= limit + Duration::from_millis(1), "{took:?} of {limit:?}: {made:?}");
            late += u32::from(took > limit);
            let error = match made {
                Ok(body) => {
                    assert!(body == "hello");
                    answered += 1;
                    continue;
                }
                Err(error) => error,
            };
            failed += 1;
            let timings = error.timings().expect("the call had begun");
            assert_eq!(Phase::ALL.iter().map(|phase| timings.spent(*phase)).sum::<Duration>(), timings.total());
            assert_eq!(error.remaining(), Some(limit.saturating_sub(took)), "{error}");
            if let ErrorKind::Timeout(phase) = error.kind() {
                phases[phase as usize] += 1;
                // Some calls entered the phase at the moment of their deadline, or wait for another dial after theirs was given up.
                just_there += u32::from(timings.spent(phase).is_zero() && !limit.is_zero());
                assert!(error.to_string().contains(&format!("in phase {phase}")), "{error}");
            }
        }
    }
    assert!(answered > 1_000 && failed > 1_000, "{answered} answered, {failed} failed");
    let reached = [Phase::Queue, Phase::Connect, Phase::Wait, Phase::Receive].map(|phase| phases[phase as usize]);
    assert!(reached.iter().all(|count| *count > 20), "{reached:?}");
    assert!(just_there < 300, "{just_there}");
    assert_eq!(late, 0, "in paused time deadlines are exact");
    client.drain().await;
    // A server that thinks about a request notices the close when it is done.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((net.open(), client.pool_stats().in_use), (0, 0));
}

/// A busy runtime comes to the dial's task late. The error is the dial's own all the same, which says what it was doing.
#[tokio::test(start_paused = true)]
async fn a_dial_that_begins_late_ends_with_its_request_and_says_where_it_was() {
    let silent = FakeNet::new([(v4(1), Host::Silent)]);
    let client = Client::builder().no_proxy().transport(silent).connect_timeout(Duration::from_millis(100)).build();
    let start = Instant::now();
    let mut call = std::pin::pin!(client.unwrap().get(format!("http://{}/", v4(1))).send());
    assert!(futures_util::poll!(&mut call).is_pending());
    tokio::time::advance(Duration::from_millis(50)).await;
    let error = call.await.unwrap_err();
    assert_eq!((error.kind(), start.elapsed()), (ErrorKind::Timeout(Phase::Connect), Duration::from_millis(100)));
    assert!(error.to_string().contains("192.0.2.1"), "{error}");
    assert_eq!(error.dialled().len(), 1, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_arrives_after_the_deadline_is_not_used() {
    let seen = Recorder::default();
    let net = FakeNet::new([(v4(1), Host::Serves { connect: 0, think: 0, body: 0 })]);
    let names = FixedResolver::new().with("a.test", [v4(1)]);
    let builder = Client::builder().dns_resolver(names).transport(net).no_proxy().observer(seen.clone());
    let client = builder.pool(PoolConfig::new().max_connections_per_host(1)).build().unwrap();
    let first = client.get("http://a.test/").send().await.unwrap();
    let queued = client.post("http://a.test/").body("x").timeout(Duration::from_millis(50)).send();
    let mut queued = std::pin::pin!(queued);
    assert!(futures_util::poll!(queued.as_mut()).is_pending());
    assert_eq!(client.pool_stats().waiting, 1);
    first.bytes().await.unwrap();
    while client.pool_stats().waiting > 0 {
        tokio::task::yield_now().await;
    }
    // The pool has given the connection to the call, which is polled only after its deadline.
    tokio::time::advance(Duration::from_millis(60)).await;
    let error = queued.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Queue), "{error}");
    assert_eq!(seen.count(|event| matches!(event, Event::Leased { .. })), 1);
    assert_eq!((client.pool_stats().idle, client.pool_stats().in_use), (1, 0), "the connection is idle again");
}

/// tokio moves paused time ahead whenever all tasks wait, also for a socket: any limit would pass at once.
#[tokio::test(start_paused = true)]
async fn without_time_limits_real_sockets_go_with_paused_time() {
    let (server, never) = (support::ok_server(), Duration::MAX);
    let client =
        Client::builder().connect_timeout(never).headers_timeout(never).body_idle_timeout(never).build().unwrap();
    let url = format!("http://{}/", server.address());
    for _ in 0..20 {
        assert!(client.get(&url).send().await.unwrap().bytes().await.is_ok());
        assert!(client.post(&url).body("x").send().await.unwrap().bytes().await.is_ok());
    }
}
