//! Servers that are dead, silent or half dead: calls fail for reasons of their own, at their own connect timeout.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
#[cfg(feature = "__tls")]
use speeddial::Proxy;
use speeddial::dns::{Family, FixedResolver, Resolver, ResolverFuture};
use speeddial::trace::Phase;
use speeddial::transport::{Connecting, Transport};
use speeddial::{Client, ClientBuilder, ErrorKind, PoolConfig};
use tokio::time::{Instant, sleep, timeout};

use super::common::{URL, client, get, ms, serve};
use support::fake_net::{FakeNet, Host};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::v4;

const SECOND: Duration = Duration::from_secs(1);
#[cfg(feature = "__tls")]
const HTTPS_URL: &str = "https://api.test/";

fn to(host: Host) -> ClientBuilder {
    let names = FixedResolver::new().with("api.test", [v4(1)]);
    Client::builder().no_proxy().dns_resolver(names).transport(FakeNet::new([(v4(1), host)])).connect_timeout(SECOND)
}

/// Makes calls at once, and checks that each fails in this phase at its own connect timeout.
async fn all_fail_in_time(client: Client, url: &str, calls: usize, phase: Phase) {
    let call = || async {
        let start = Instant::now();
        let error = client.get(url).send().await.unwrap_err();
        (error, start.elapsed())
    };
    for (error, took) in join_all((0..calls).map(|_| call())).await {
        assert!((SECOND..SECOND + ms(100)).contains(&took), "{took:?}: {error}");
        assert_eq!(error.kind(), ErrorKind::Timeout(phase), "{error}");
        assert!(!error.to_string().contains("max_dials_per_host"), "{error}");
    }
    let queue = client.pool_stats().queue;
    assert_eq!((queue.entered, queue.failed + queue.timed_out, queue.served), (calls as u64, calls as u64, 0));
    sleep(SECOND).await;
    assert_eq!(client.pool_stats().dialling, 0, "no dial is left");
}

#[tokio::test(start_paused = true)]
async fn hazard_all_calls_to_a_host_that_drops_syns_fail_at_their_connect_timeout() {
    for calls in [1, 20, 100, 600] {
        all_fail_in_time(to(Host::Silent).http2_prior_knowledge().build().unwrap(), URL, calls, Phase::Connect).await;
        all_fail_in_time(to(Host::Silent).build().unwrap(), URL, calls, Phase::Connect).await;
        #[cfg(feature = "__tls")]
        all_fail_in_time(to(Host::Silent).build().unwrap(), HTTPS_URL, calls, Phase::Connect).await;
    }
}

/// A resolver that never answers.
struct Mute;

impl Resolver for Mute {
    fn resolve<'a>(&'a self, _: &'a str, _: Family) -> ResolverFuture<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_all_calls_fail_at_their_connect_timeout_where_dns_is_dead() {
    for calls in [1, 20, 600] {
        for http2 in [false, true] {
            let client = Client::builder().no_proxy().dns_resolver(Mute).connect_timeout(SECOND);
            let client = if http2 { client.http2_prior_knowledge() } else { client };
            all_fail_in_time(client.build().unwrap(), URL, calls, Phase::Dns).await;
        }
    }
}

#[cfg(feature = "__tls")]
#[tokio::test(start_paused = true)]
async fn hazard_all_calls_fail_at_their_connect_timeout_where_tls_or_a_proxy_is_silent() {
    let silent = || ScriptedNet::new(|_, stream| async move { read_to_end_of(stream).await });
    for calls in [1, 20, 600] {
        let client = flaky(&silent(), |_| false).build().unwrap();
        all_fail_in_time(client, HTTPS_URL, calls, Phase::Tls).await;
        let proxied = flaky(&silent(), |_| false).proxy(Proxy::all("http://api.test:3128").unwrap());
        all_fail_in_time(proxied.build().unwrap(), "https://other.test/", calls, Phase::Proxy).await;
    }
}

/// Reads what comes, and answers nothing.
#[cfg(feature = "__tls")]
async fn read_to_end_of(mut stream: tokio::io::DuplexStream) {
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

/// A network of which some connections never open.
struct Flaky {
    net: ScriptedNet,
    begun: AtomicUsize,
    /// Says by a dial's number whether it hangs.
    hangs: fn(usize) -> bool,
}

impl Transport for Flaky {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        if (self.hangs)(self.begun.fetch_add(1, Ordering::SeqCst)) {
            return Box::pin(std::future::pending());
        }
        self.net.connect(address)
    }
}

fn flaky(net: &ScriptedNet, hangs: fn(usize) -> bool) -> ClientBuilder {
    let names = FixedResolver::new().with("api.test", [v4(1)]);
    let network = Flaky { net: net.clone(), begun: AtomicUsize::new(0), hangs };
    Client::builder().no_proxy().dns_resolver(names).transport(network).connect_timeout(SECOND)
}

#[tokio::test(start_paused = true)]
async fn hazard_dials_that_hang_do_not_hold_up_the_calls_that_come_later() {
    for pause in [10, 300] {
        let net = ScriptedNet::new(|_, stream| serve(stream, 5));
        let client = flaky(&net, |number| number < 8).build().unwrap();
        let hung = (0..8).map(|_| timeout(ms(pause), client.get(URL).send()));
        // Those that may wait for 300 ms have other dials by then.
        let answered = join_all(hung).await.into_iter().filter(Result::is_ok).count();
        assert_eq!(answered, if pause < 100 { 0 } else { 8 });
        client.close_idle();
        let start = Instant::now();
        for answer in join_all((0..3).map(|_| get(&client, URL))).await {
            assert_eq!(answer.unwrap(), "ok");
        }
        assert!(start.elapsed() <= ms(120), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_no_call_fails_where_one_of_four_connections_never_opens() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5));
    let pool = PoolConfig::new().max_requests_per_connection(20);
    let client = flaky(&net, |number| number % 4 == 0).pool(pool).build().unwrap();
    let caller = || async {
        for _ in 0..50 {
            get(&client, URL).await.unwrap();
        }
    };
    join_all((0..20).map(|_| caller())).await;
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_healthy_host_open_as_many_connections_as_there_are_callers() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5));
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let caller = || async {
        for _ in 0..100 {
            get(&client, URL).await.unwrap();
        }
    };
    join_all((0..64).map(|_| caller())).await;
    assert!(net.connections() <= 64, "{} connections for 64 callers", net.connections());
}
