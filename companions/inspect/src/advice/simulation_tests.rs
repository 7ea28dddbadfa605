//! Loads of a client in paused time: following the advice reaches what the best limit of a sweep does.
//!
//! A run sends requests over a network in memory, and measures the time of each from its arrival to its end: the wait for a connection,
//! and the time for which it holds one. The best limit is the one with the least mean. Each run of a load has the same arrivals and the
//! same service times.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::dns::FixedResolver;
use speeddial::pool::HostLimits;
use speeddial::{Client, PoolConfig};
use support::scripted_net::ScriptedNet;
use support::{full, v4};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Advice, Setting, SettingValue};
use crate::samples::ms;

const URL: &str = "http://api.test/";
/// The header of a request with the microseconds for which the server works on it.
const WORK: &str = "x-work";
/// The limits of a sweep.
const SWEEP: [usize; 7] = [1, 4, 8, 16, 32, 64, 128];
const HOUR: Duration = Duration::from_secs(3_600);
/// The most rounds in which the advice is followed.
const ROUNDS: usize = 5;

/// The time at which requests arrive.
#[derive(Clone, Copy)]
enum Arrivals {
    /// At random, so many in a second.
    Random { per_second: f64 },
    /// So many at once, each second.
    Bursts { size: usize },
    /// Each of so many tasks sends its next request when the last one is over.
    Loop { tasks: usize },
}

/// The time for which a request holds its connection.
#[derive(Clone, Copy)]
enum Service {
    Fixed(Duration),
    /// Exponential, with this mean.
    Random(Duration),
}

#[derive(Clone, Copy)]
struct Scenario {
    arrivals: Arrivals,
    service: Service,
    /// The requests that the server works on at the same time. The others wait there, and hold their connection.
    workers: usize,
    http2_streams: Option<u32>,
    requests: usize,
}

impl Scenario {
    const fn new(arrivals: Arrivals, service: Service) -> Self {
        Self { arrivals, service, workers: Semaphore::MAX_PERMITS, http2_streams: None, requests: 800 }
    }
}

/// The result of a run.
struct Run {
    mean: Duration,
    p99: Duration,
    /// The connections opened.
    opened: u64,
    advice: Advice,
}

fn exponential(random: &mut fastrand::Rng, mean: f64) -> f64 {
    -(1.0 - random.f64()).ln() * mean
}

fn run(scenario: Scenario, config: &PoolConfig) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let resolver = FixedResolver::new().with("api.test", [v4(1)]);
        let builder = Client::builder().no_proxy().dns_resolver(resolver).transport(network(scenario));
        let builder = if scenario.http2_streams.is_some() { builder.http2_prior_knowledge() } else { builder };
        let client = builder.pool(config.clone()).build().unwrap();
        let mut times = load(&client, scenario).await;
        let advice = Advice::of(&client);
        times.sort_unstable();
        let mean = times.iter().sum::<Duration>() / times.len() as u32;
        Run { mean, p99: times[times.len() * 99 / 100], opened: client.pool_stats().opened, advice }
    })
}

/// Returns a network of servers that work on each request for as long as it says. Connecting takes 10 ms.
fn network(scenario: Scenario) -> ScriptedNet {
    let workers = Arc::new(Semaphore::new(scenario.workers));
    ScriptedNet::new(move |_, stream| {
        let workers = workers.clone();
        let service = service_fn(move |request: hyper::Request<_>| {
            let workers = workers.clone();
            async move {
                let work: u64 = request.headers()[WORK].to_str().unwrap().parse().unwrap();
                let _: hyper::body::Incoming = request.into_body();
                let _worker = workers.acquire().await;
                sleep(Duration::from_micros(work)).await;
                Ok::<_, Infallible>(hyper::Response::new(full("ok")))
            }
        });
        async move {
            let stream = TokioIo::new(stream);
            // The client may close at any time.
            let _ = match scenario.http2_streams {
                Some(streams) => {
                    let mut server = http2::Builder::new(TokioExecutor::new());
                    server.max_concurrent_streams(streams).serve_connection(stream, service).await
                }
                None => http1::Builder::new().serve_connection(stream, service).await,
            };
        }
    })
}

/// Sends the requests of a scenario. Returns the time of each.
async fn load(client: &Client, scenario: Scenario) -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(7);
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    let tasks_in_loop = match scenario.arrivals {
        Arrivals::Loop { tasks } => tasks,
        _ => scenario.requests,
    };
    let mut at = 0.0;
    for number in 0..tasks_in_loop {
        match scenario.arrivals {
            Arrivals::Random { per_second } => at += exponential(&mut random, 1.0 / per_second),
            Arrivals::Bursts { size } => at = (number / size) as f64,
            Arrivals::Loop { .. } => {}
        }
        let (client, mut random) = (client.clone(), random.fork());
        let arrival = start + Duration::from_secs_f64(at);
        tasks.spawn(async move {
            sleep_until(arrival).await;
            let mut times = Vec::new();
            for _ in 0..scenario.requests / tasks_in_loop {
                times.push(request(&client, scenario.service, &mut random).await);
            }
            times
        });
    }
    tasks.join_all().await.concat()
}

async fn request(client: &Client, service: Service, random: &mut fastrand::Rng) -> Duration {
    let arrival = Instant::now();
    let work = match service {
        Service::Fixed(time) => time,
        Service::Random(mean) => Duration::from_secs_f64(exponential(random, mean.as_secs_f64())),
    };
    let response = client.get(URL).header(WORK, work.as_micros() as u64).timeout(HOUR).send().await.unwrap();
    assert_eq!(response.bytes().await.unwrap(), "ok");
    arrival.elapsed()
}

fn limited_to(limit: usize) -> PoolConfig {
    PoolConfig::new().max_connections(4_096).wait_timeout(HOUR).max_connections_per_host(limit)
}

/// Returns the suggested limit of connections.
fn limit_of(advice: &Advice) -> usize {
    let item = advice.items().find(|item| item.setting == Setting::MaxConnectionsPerHost).expect("enough data");
    match item.suggested {
        SettingValue::Count(limit) => limit,
        other => panic!("a limit: {other}"),
    }
}

/// Follows the advice until it is to change nothing. Returns the last run, whose limit is the one advised.
fn follow(scenario: Scenario, present: usize) -> Run {
    let mut run_of_advice = run(scenario, &limited_to(present));
    for _ in 0..ROUNDS {
        if !run_of_advice.advice.items().any(|item| item.is_change()) {
            return run_of_advice;
        }
        let config = run_of_advice.advice.pool_config();
        run_of_advice = run(scenario, &config);
    }
    panic!("the advice still changes after {ROUNDS} rounds:\n{:#}", run_of_advice.advice);
}

/// The means and 99th percentiles of a sweep.
struct Sweep {
    runs: Vec<(usize, Duration, Duration)>,
}

impl Sweep {
    fn of(scenario: Scenario) -> Self {
        let run = |limit| {
            let Run { mean, p99, .. } = run(scenario, &limited_to(limit));
            (limit, mean, p99)
        };
        Self { runs: SWEEP.into_iter().map(run).collect() }
    }

    fn best_mean(&self) -> Duration {
        self.runs.iter().map(|(_, mean, _)| *mean).min().unwrap()
    }

    fn best_p99(&self) -> Duration {
        self.runs.iter().map(|(_, _, p99)| *p99).min().unwrap()
    }

    fn worst_mean(&self) -> Duration {
        self.runs.iter().map(|(_, mean, _)| *mean).max().unwrap()
    }

    /// Returns true if a mean and a 99th percentile are at most a tenth above the best ones.
    fn is_good(&self, mean: Duration, p99: Duration) -> bool {
        mean <= self.best_mean().mul_f64(1.1) && p99 <= self.best_p99().mul_f64(1.1)
    }

    /// Returns the lowest limit that is good.
    fn fewest(&self) -> usize {
        let good = |(_, mean, p99): &&(usize, Duration, Duration)| self.is_good(*mean, *p99);
        self.runs.iter().find(good).expect("a limit that is good by both").0
    }
}

/// Checks that following the advice, from each of these limits, takes at most a tenth more time than the best of the sweep. Returns
/// the sweep and the limits reached, with a text for failures.
fn check_times(scenario: Scenario, from: &[usize]) -> (Sweep, Vec<(usize, String)>) {
    let sweep = Sweep::of(scenario);
    let reached = from.iter().map(|present| {
        let followed = follow(scenario, *present);
        let limit = limit_of(&followed.advice);
        let text = format!(
            "from {present} to {limit}: mean {:.1?}, p99 {:.1?}, {} opened; the sweep (limit, mean, p99): {:.1?}\n{:#}",
            followed.mean, followed.p99, followed.opened, sweep.runs, followed.advice
        );
        assert!(sweep.is_good(followed.mean, followed.p99), "slower than the best: {text}");
        (limit, text)
    });
    let reached = reached.collect();
    (sweep, reached)
}

/// Like [`check_times`]. The limits must also be at most three times the lowest one that is as good, and three more, and the worst
/// limit of the sweep must take twice the time of the best one.
fn check(scenario: Scenario, from: &[usize]) {
    let (sweep, reached) = check_times(scenario, from);
    assert!(sweep.worst_mean() > sweep.best_mean() * 2, "every limit is as good: {:?}", sweep.runs);
    check_frugal(&sweep, &reached);
}

fn check_frugal(sweep: &Sweep, reached: &[(usize, String)]) {
    for (limit, text) in reached {
        assert!(*limit <= sweep.fewest() * 3 + 3, "more connections than are needed: {text}");
    }
}

#[test]
fn random_arrivals_with_random_times() {
    let scenario = Scenario::new(Arrivals::Random { per_second: 400.0 }, Service::Random(ms(50)));
    check(scenario, &[4, 16, 22, 128, usize::MAX]);
}

#[test]
fn random_arrivals_with_fixed_times() {
    let scenario = Scenario::new(Arrivals::Random { per_second: 100.0 }, Service::Fixed(ms(30)));
    check(scenario, &[1, 3, 64, usize::MAX]);
}

#[test]
fn bursts_need_more_than_random_arrivals() {
    let scenario = Scenario::new(Arrivals::Bursts { size: 60 }, Service::Fixed(ms(30)));
    check(scenario, &[4, 16, 32, usize::MAX]);
}

#[test]
fn a_loop_of_tasks_needs_a_connection_for_each() {
    let scenario = Scenario::new(Arrivals::Loop { tasks: 40 }, Service::Random(ms(25)));
    check(scenario, &[2, 10, 39, usize::MAX]);
}

#[test]
fn low_traffic_needs_few_connections() {
    let scenario =
        Scenario { requests: 500, ..Scenario::new(Arrivals::Random { per_second: 2.0 }, Service::Fixed(ms(20))) };
    let (sweep, reached) = check_times(scenario, &[1, 200, usize::MAX]);
    check_frugal(&sweep, &reached);
}

/// The pool cannot see that requests wait in the server: the advice has more connections than the server has workers, which takes
/// no more time, so only the time is checked.
#[test]
fn a_server_with_few_workers_is_as_fast_as_with_the_best_limit() {
    let scenario = Scenario { workers: 8, ..Scenario::new(Arrivals::Loop { tasks: 40 }, Service::Fixed(ms(20))) };
    let (sweep, _) = check_times(scenario, &[2, 8, usize::MAX]);
    assert!(sweep.worst_mean() > sweep.best_mean() * 2, "every limit is as good: {:?}", sweep.runs);
}

#[test]
fn http2_streams_are_counted_instead_of_connections() {
    let arrivals = Arrivals::Random { per_second: 400.0 };
    let scenario = Scenario { http2_streams: Some(10), ..Scenario::new(arrivals, Service::Random(ms(100))) };
    let config = |connections| limited_to(usize::MAX).max_http2_connections_per_host(connections);
    let narrow = run(scenario, &config(1));
    let limit = |advice: &Advice| {
        let item = advice.items().find(|item| item.setting == Setting::MaxHttp2ConnectionsPerHost).unwrap();
        item.suggested
    };
    let wider = run(scenario, &narrow.advice.pool_config());
    let advised = run(scenario, &wider.advice.pool_config());
    let best = run(scenario, &config(50));
    assert!(narrow.mean > best.mean * 3, "{:?}", narrow.mean);
    assert!(advised.mean <= best.mean.mul_f64(1.1), "{:?} of {:?}", advised.mean, best.mean);
    assert_eq!(limit(&narrow.advice), SettingValue::Count(4), "four times as many at most");
    assert_eq!(limit(&advised.advice), limit(&wider.advice), "it is enough, so it stays");
    assert!(limit(&wider.advice) <= SettingValue::Count(12), "{}", limit(&wider.advice));
    // 40 requests at a time are 4 connections of 10 streams, where HTTP/1 would need 40.
    assert_eq!(run(scenario, &config(12)).advice.pool_config(), config(12));
}

#[test]
fn the_limits_are_set_for_the_host_alone() {
    let scenario = Scenario::new(Arrivals::Loop { tasks: 8 }, Service::Fixed(ms(20)));
    let limits = HostLimits::new().max_connections(2).max_waiting(500);
    let before = PoolConfig::new().max_connections(50).for_host("api.test", limits);
    let advised = run(scenario, &before).advice;
    let suggested = limit_of(&advised);
    assert!(suggested > 2);
    let expected = before.for_host("api.test:80", limits.max_connections(suggested));
    assert_eq!(advised.pool_config(), expected, "its other limits stay");
    let code = advised.to_code();
    assert!(code.starts_with("PoolConfig::new()\n    .max_connections(50)\n    .for_host(\"api.test\", "), "{code}");
    assert!(
        code.ends_with(&format!("(\"api.test:80\", HostLimits::new().max_connections({suggested}).max_waiting(500))"))
    );
}
