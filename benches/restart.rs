//! Measures the first second of a process that is restarted under load, with and without what the last one had learned: the claim
//! of BENCHMARKS.md, section Restart.
//!
//! Fails if what was learned does not make the first second shorter.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod machine;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use speeddial::Client;
use speeddial::dns::{Answer, Family, Resolver, ResolverFuture, Source};
use speeddial::settings::Learned;
use speeddial::tls::TlsConfig;
use speeddial::transport::{Connecting, TcpTransport, Transport};
use support::certs::Authority;
use support::page;
use support::tls_server::TlsServer;
use tokio::runtime::Builder;

/// The hosts that are called in turn.
const HOSTS: usize = 50;
/// The calls, one each millisecond.
const CALLS: usize = 1_000;
/// The time that a DNS server takes for an answer.
const DNS: Duration = Duration::from_millis(40);
/// The time that a packet takes to a server and back.
const ROUND_TRIP: Duration = Duration::from_millis(10);

/// Answers with a dead IPv6 address and a good IPv4 one, after a while.
struct SlowDns;

impl Resolver for SlowDns {
    fn resolve<'a>(&'a self, _: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            tokio::time::sleep(DNS).await;
            let address: IpAddr = match family {
                Family::V4 => [127, 0, 0, 1].into(),
                Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            };
            Ok(Answer::new([address], Duration::from_secs(60), Source::Miss))
        })
    }
}

/// A network in which connecting takes a round trip, and packets to IPv6 addresses are lost.
struct FarNet(TcpTransport);

impl Transport for FarNet {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            if address.is_ipv6() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(ROUND_TRIP).await;
            self.0.connect(address).await
        })
    }
}

/// The first calls of a process.
struct Run {
    /// In order, the shortest one first.
    waits: Vec<Duration>,
    /// The time until all had their answers.
    all: Duration,
}

impl Run {
    fn quantile(&self, share: f64) -> Duration {
        self.waits[((self.waits.len() - 1) as f64 * share) as usize]
    }
}

fn client(authority: &Authority) -> Client {
    let tls = TlsConfig::new().add_roots([authority.root()]).only_added_roots();
    let builder = Client::builder().no_proxy().dns_resolver(SlowDns).transport(FarNet(TcpTransport::new()));
    builder.tls(tls).build().expect("the settings are valid")
}

async fn load(client: &Client, port: u16, calls: usize) -> Run {
    let start = Instant::now();
    let call = async |number: usize| {
        tokio::time::sleep_until((start + Duration::from_millis(number as u64)).into()).await;
        let began = Instant::now();
        let url = format!("https://{}.test:{port}/", number % HOSTS);
        let response = client.get(url).send().await.expect("an answer");
        response.bytes().await.expect("a body");
        began.elapsed()
    };
    let mut waits = join_all((0..calls).map(call)).await;
    let all = start.elapsed();
    waits.sort_unstable();
    Run { waits, all }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn row(name: &str, runs: &[Run]) -> String {
    let figure = |of: fn(&Run) -> Duration| median(runs.iter().map(of).collect());
    let [p50, p99] = [figure(|run| run.quantile(0.5)), figure(|run| run.quantile(0.99))];
    format!("| {name} | {p50:.1} ms | {p99:.1} ms | {:.0} ms |\n", figure(|run| run.all))
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (calls, rounds) = if has("--test") { (100, 1) } else { (CALLS, 7) };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (without, with, learned) = runtime.block_on(async {
        let authority = Authority::new();
        let names: Vec<_> = (0..HOSTS).map(|number| format!("{number}.test")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let server = TlsServer::start(authority.server(&names, &["h2", "http/1.1"])).await;
        let port = server.address().port();
        let earlier = client(&authority);
        load(&earlier, port, calls).await;
        let learned: Arc<Learned> = Arc::new(earlier.learned());
        drop(earlier);
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            without.push(load(&client(&authority), port, calls).await);
            let restored = client(&authority);
            restored.restore(&learned).expect("it is of this version");
            with.push(load(&restored, port, calls).await);
        }
        (without, with, learned)
    });
    let text = format!(
        "| | p50 | p99 | {CALLS} answers after |\n|---|---|---|---|\n{}{}\n{} entries were restored. {}, {}.\n",
        row("nothing restored", &without),
        row("`client.restore(&learned)`", &with),
        learned.len(),
        machine::name(),
        machine::today(),
    );
    println!("{text}");
    if has("--test") {
        return;
    }
    let p99 = |runs: &[Run]| median(runs.iter().map(|run| run.quantile(0.99)).collect());
    assert!(p99(&with) < p99(&without) / 2.0, "{:.1} ms and {:.1} ms", p99(&with), p99(&without));
    if has("--write") {
        page::write("restart", &text).expect("BENCHMARKS.md can be written");
    }
}
