//! Advice on the limits of the pool: for a load it is as fast as the best of a sweep, and it names what a server does with idle
//! connections.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::dns::FixedResolver;
use speeddial::pool::HostLimits;
use speeddial::{Client, PoolConfig};
use speeddial_inspect::{Advice, AdviceItem, Setting, SettingValue, StatsSnapshot};
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::common::{OK, URL, client, get, ms, request, serve};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::{full, v4};

/// The tasks of a load: each sends its next request after the answer to the last one.
const TASKS: usize = 12;
/// The requests of a load, enough for advice.
const REQUESTS: usize = 120;

/// A load, and the setting that its sweep goes through.
struct Scenario {
    http2: bool,
    /// The time for which the server works on a request.
    hold: Duration,
    /// The requests that the server works on at the same time. The others wait in the server.
    workers: usize,
    /// The values of the sweep, the worst one first.
    sweep: &'static [usize],
    /// The lowest value with which every task has a connection or a stream.
    enough: usize,
    setting: Setting,
    config: fn(usize) -> PoolConfig,
}

/// Returns a network with a server that works on each request for a while.
fn start(scenario: &Scenario) -> ScriptedNet {
    let (workers, hold, is_http2) = (Arc::new(Semaphore::new(scenario.workers)), scenario.hold, scenario.http2);
    ScriptedNet::new(move |_, stream| {
        let workers = workers.clone();
        let service = service_fn(move |_| {
            let workers = workers.clone();
            async move {
                let _worker = workers.acquire().await;
                sleep(hold).await;
                Ok::<_, Infallible>(hyper::Response::new(full("ok")))
            }
        });
        async move {
            let stream = TokioIo::new(stream);
            // The client may close at any time.
            let _ = match is_http2 {
                true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
                false => http1::Builder::new().serve_connection(stream, service).await,
            };
        }
    })
}

/// Sends the load with a new client. Returns the time it took, and the advice after it.
async fn run(scenario: &Scenario, server: &ScriptedNet, config: PoolConfig) -> (Duration, Advice) {
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().dns_resolver(resolver).transport(server.clone()).pool(config);
    let builder = if scenario.http2 { builder.http2_prior_knowledge() } else { builder };
    let client = builder.build().unwrap();
    let start = Instant::now();
    join_all((0..TASKS).map(async |_| {
        for _ in 0..REQUESTS / TASKS {
            assert_eq!(get(&client, URL).await.unwrap(), "ok");
        }
    }))
    .await;
    (start.elapsed(), Advice::of(&client))
}

fn item(advice: &Advice, setting: Setting) -> &AdviceItem {
    advice.items().find(|item| item.setting == setting).expect("advice on the setting")
}

fn suggested(advice: &Advice, setting: Setting) -> usize {
    match item(advice, setting).suggested {
        SettingValue::Count(count) => count,
        other => panic!("a number: {other}"),
    }
}

/// Follows the advice from the worst of the sweep, until it is to change the setting no more. Returns the last configuration.
async fn follow(scenario: &Scenario, server: &ScriptedNet) -> (PoolConfig, Advice) {
    let mut config = (scenario.config)(scenario.sweep[0]);
    for _ in 0..5 {
        let (_, advice) = run(scenario, server, config.clone()).await;
        if !item(&advice, scenario.setting).is_change() {
            return (config, advice);
        }
        config = advice.pool_config();
    }
    panic!("the advice still changes after five rounds");
}

/// Checks that following the advice from the worst of a sweep is within a tenth of its best.
async fn check(scenario: Scenario) {
    let server = start(&scenario);
    let mut times = Vec::new();
    for value in scenario.sweep {
        times.push((run(&scenario, &server, (scenario.config)(*value)).await.0, *value));
    }
    let (worst, (_, best_value)) = (times[0].0, *times.iter().min().unwrap());
    let (config, advice) = follow(&scenario, &server).await;
    let best_config = (scenario.config)(best_value);
    let (advised, _) = run(&scenario, &server, config).await;
    let (best, _) = run(&scenario, &server, best_config).await;
    let text = format!("{advised:?} with the advice, {best:?} with {best_value}; the sweep: {times:?}\n{advice:#}");
    assert!(worst > best * 2, "the sweep shows no difference: {text}");
    assert!(advised <= best.mul_f64(1.1), "{text}");
    assert!(suggested(&advice, scenario.setting) <= scenario.enough * 2, "no more than that is needed: {text}");
}

#[tokio::test(start_paused = true)]
async fn following_the_advice_is_as_fast_as_the_best_of_a_sweep() {
    check(Scenario {
        http2: false,
        hold: ms(20),
        workers: Semaphore::MAX_PERMITS,
        sweep: &[2, 4, 8, 12, 24],
        enough: TASKS,
        setting: Setting::MaxConnectionsPerHost,
        config: |limit| PoolConfig::new().max_connections_per_host(limit),
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn following_the_advice_is_as_fast_as_the_best_of_a_sweep_before_a_server_with_four_workers() {
    check(Scenario {
        http2: false,
        hold: ms(10),
        workers: 4,
        sweep: &[1, 2, 4, 12],
        enough: TASKS,
        setting: Setting::MaxConnectionsPerHost,
        config: |limit| PoolConfig::new().max_connections_per_host(limit),
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn following_the_advice_is_as_fast_as_the_best_of_a_sweep_over_http2() {
    check(Scenario {
        http2: true,
        hold: ms(20),
        workers: Semaphore::MAX_PERMITS,
        sweep: &[1, 3, 6, 12],
        enough: 6,
        setting: Setting::MaxHttp2ConnectionsPerHost,
        config: |limit| PoolConfig::new().max_streams_per_connection(2).max_http2_connections_per_host(limit),
    })
    .await;
}

/// Sends `rounds` times ten requests at once, and waits after each time.
async fn bursts(client: &Client, rounds: usize, pause: Duration) {
    for _ in 0..rounds {
        for result in join_all((0..10).map(|_| get(client, URL))).await {
            result.unwrap();
        }
        sleep(pause).await;
    }
}

/// A server that closes connections after `kept` without a request.
fn closing_after(kept: Duration) -> ScriptedNet {
    ScriptedNet::new(move |_, mut stream| async move {
        while matches!(tokio::time::timeout(kept, request(&mut stream)).await, Ok(true)) {
            sleep(ms(5)).await;
            if stream.write_all(OK).await.is_err() {
                return;
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_idle_timeout_is_below_that_of_a_server_that_closes_idle_connections() {
    let client = client(&closing_after(ms(8_000)), PoolConfig::new(), &Recorder::default());
    bursts(&client, 4, ms(20_000)).await;
    bursts(&client, 10, ms(100)).await;
    let advice = Advice::of(&client);
    let timeout = item(&advice, Setting::IdleTimeout);
    assert_eq!(timeout.suggested, SettingValue::Time(ms(7_000)), "{advice:#}");
    assert!(timeout.reason.contains("the server closes idle connections a little after 7 s"), "{}", timeout.reason);
    let code = advice.to_code();
    assert!(code.contains("\"api.test:80\", HostLimits::new()"), "{code}");
    assert!(code.contains(".idle_timeout(Duration::from_secs(7))"), "{code}");
}

#[tokio::test(start_paused = true)]
async fn the_idle_timeout_stays_if_the_server_keeps_connections() {
    let client = client(&closing_after(ms(600_000)), PoolConfig::new(), &Recorder::default());
    bursts(&client, 4, ms(20_000)).await;
    bursts(&client, 10, ms(100)).await;
    let advice = Advice::of(&client);
    let changes: Vec<_> = advice.items().filter(|item| item.is_change()).map(|item| item.setting).collect();
    assert_eq!(changes, [Setting::MaxConnectionsPerHost], "{advice:#}");
}

#[tokio::test(start_paused = true)]
async fn an_announced_idle_timeout_is_advised() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        let kept = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nkeep-alive: timeout=15\r\n\r\nok";
        while request(&mut stream).await && stream.write_all(kept).await.is_ok() {}
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    bursts(&client, 12, ms(100)).await;
    let advice = Advice::of(&client);
    let timeout = item(&advice, Setting::IdleTimeout);
    assert_eq!((timeout.present, timeout.suggested), (SettingValue::Time(ms(50_000)), SettingValue::Time(ms(14_000))));
    assert!(timeout.reason.contains("it announced that"), "{}", timeout.reason);
}

#[tokio::test(start_paused = true)]
async fn requests_further_apart_than_the_idle_timeout_lengthen_it() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5));
    let short = PoolConfig::new().idle_timeout(ms(2_000));
    // Each connection is closed before the next request, so that the pool has no connection at all in between.
    let load = async |pool| {
        let client = client(&net, pool, &Recorder::default());
        for _ in 0..120 {
            get(&client, URL).await.unwrap();
            sleep(ms(3_000)).await;
        }
        (client.pool_stats().opened, Advice::of(&client))
    };
    let (opened, advice) = load(short).await;
    assert_eq!((opened, advice.hosts()[0].requests), (120, 120), "{advice:#}");
    let timeout = item(&advice, Setting::IdleTimeout);
    assert_eq!(timeout.suggested, SettingValue::Time(ms(10_000)), "{advice:#}");
    let (opened, advice) = load(advice.pool_config()).await;
    assert_eq!(opened, 1, "{advice:#}");
    assert!(!item(&advice, Setting::IdleTimeout).is_change(), "{advice:#}");
}

#[tokio::test(start_paused = true)]
async fn two_snapshots_make_advice_for_the_time_between() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 50));
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    sleep(ms(3_600_000)).await;
    bursts(&client, 5, ms(1_000)).await;
    let before = StatsSnapshot::of(&client);
    bursts(&client, 20, ms(50)).await;
    let busy = Advice::between(&before, &StatsSnapshot::of(&client));
    let host = &busy.hosts()[0];
    assert_eq!((host.requests, host.handshakes), (200, 0));
    assert!((90.0..=100.0).contains(&host.rate), "10 in 100 ms and a little: {}", host.rate);
    let since_built = Advice::of(&client);
    let host = &since_built.hosts()[0];
    assert_eq!(host.requests, 250);
    assert!(host.rate < 0.1, "the hour counts: {}", host.rate);
    let after = StatsSnapshot::of(&client);
    assert_eq!(Advice::between(&after, &StatsSnapshot::of(&client)).hosts().len(), 0, "there was no request");
}

#[tokio::test(start_paused = true)]
async fn the_advice_reads_as_a_table_and_as_code() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 50));
    let pool = PoolConfig::new().max_connections(100).max_connections_per_host(4);
    let client = client(&net, pool.clone(), &Recorder::default());
    bursts(&client, 20, ms(1_000)).await;
    let advice = Advice::of(&client);
    let table = advice.to_string();
    for line in table.lines() {
        assert!(!line.ends_with([' ', '.']), "{line}");
    }
    let expected = "\
advice from 23.0 s
api.test:80: 200 requests, 8.69/s; each waited 40.5 ms and held a connection for 50 ms: 0.435 at a time on average; 4 handshakes
  setting                             now   better  why
  max_connections_per_host              4       15  60 % of the requests waited for the limit: only 0.435 hold a
                                                    connection on average, so they come in bursts; with 15, about 1 in
                                                    100 waits
  idle_timeout                       50 s     same  4 connections were opened for 200 requests
all hosts
  setting                             now   better  why
  max_connections                     100     same  the hosts need 15 connections together, which is within the limit
";
    assert!(table.starts_with(expected), "{table}");
    // The line about descriptors is there if the process has a limit of them.
    assert_eq!(table.contains("15 connections take"), table.contains("RLIMIT_NOFILE"), "{table}");
    let figures = format!("{advice:#}");
    assert!(figures.contains("(arrivals 8.69/s, held 50 ms, queued 40.5 ms, "), "{figures}");
    let code = "PoolConfig::new()\n    .max_connections(100)\n    .max_connections_per_host(4)\n    \
                .for_host(\"api.test:80\", HostLimits::new().max_connections(15))";
    assert_eq!(advice.to_code(), code);
    let limits = HostLimits::new().max_connections(15);
    assert_eq!(advice.pool_config(), pool.for_host("api.test:80", limits));
    assert!(Advice::of(&Client::new()).to_string().starts_with("no advice: there was no request in "));
}

#[tokio::test(start_paused = true)]
async fn time_before_the_window_counts_for_nothing() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        while let Some(head) = support::read_request_head(&mut stream).await {
            sleep(ms(if head.starts_with("GET /long") { 60_000 } else { 5 })).await;
            if stream.write_all(OK).await.is_err() {
                return;
            }
        }
    });
    let client = client(&net, PoolConfig::new().max_connections_per_host(34), &Recorder::default());
    let long = join_all((0..34).map(|_| get(&client, "http://api.test/long")));
    let window = async {
        sleep(ms(59_000)).await;
        let before = StatsSnapshot::of(&client);
        join_all((0..200).map(|_| get(&client, URL))).await;
        Advice::between(&before, &StatsSnapshot::of(&client))
    };
    let (_, advice) = tokio::join!(long, window);
    assert!(advice.hosts()[0].concurrency <= 34.0, "{advice:#}");
    assert!(suggested(&advice, Setting::MaxConnectionsPerHost) <= 4 * 34, "{advice:#}");
}
