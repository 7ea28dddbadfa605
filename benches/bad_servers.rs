//! Bursts of calls to servers that are dead, hung or half dead, beside reqwest: the claim of BENCHMARKS.md, section Bad servers.
//!
//! Fails if more calls fail than with reqwest, or if the longest of them takes 100 ms more.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod machine;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use speeddial::tls::TlsConfig;
use support::certs::Authority;
use support::page;
use support::process::allow_descriptors;
use support::tls_server::TlsServer;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which a server is frozen.
const FROZEN: Duration = Duration::from_millis(600);

/// What a server does with the connections to it.
#[derive(Clone, Copy, PartialEq)]
enum Conduct {
    Healthy,
    DropsSyns,
    Refuses,
    Silent,
    /// One connection of four is silent.
    OneOfFourSilent,
    FrozenAtFirst,
}

const CONDUCTS: [(Conduct, &str); 6] = [
    (Conduct::Healthy, "healthy"),
    (Conduct::DropsSyns, "drops SYNs"),
    (Conduct::Refuses, "refuses connections"),
    (Conduct::Silent, "accepts, and is silent in TLS"),
    (Conduct::OneOfFourSilent, "one connection of four is silent in TLS"),
    (Conduct::FrozenAtFirst, "frozen for 600 ms, then back"),
];

/// Returns the address of a server, which goes on for as long as the second value lives.
async fn server(conduct: Conduct, origin: SocketAddr) -> (SocketAddr, Vec<Box<dyn std::any::Any>>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    if conduct == Conduct::Refuses {
        return (address, Vec::new());
    }
    let is_full = conduct == Conduct::DropsSyns;
    let listener = socket.listen(if is_full { 0 } else { 4_096 }).expect("it is bound");
    if is_full {
        // The kernel drops what comes beyond the backlog.
        let filling = (0..4).map(|_| tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address)));
        return (address, vec![Box::new(listener), Box::new(join_all(filling).await)]);
    }
    let began = Instant::now();
    let forwarding = tokio::spawn(async move {
        if conduct == Conduct::FrozenAtFirst {
            tokio::time::sleep_until((began + FROZEN).into()).await;
        }
        forward(&listener, conduct, origin).await;
    });
    (address, vec![Box::new(AbortOnDrop(forwarding))])
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn forward(listener: &TcpListener, conduct: Conduct, origin: SocketAddr) {
    let mut silent = Vec::new();
    for number in 0.. {
        let Ok((mut from, _)) = listener.accept().await else { return };
        if conduct == Conduct::Silent || (conduct == Conduct::OneOfFourSilent && number % 4 == 0) {
            silent.push(from);
            continue;
        }
        tokio::spawn(async move {
            if let Ok(mut to) = TcpStream::connect(origin).await {
                let _ = copy_bidirectional(&mut from, &mut to).await;
            }
        });
    }
}

/// What came of the calls.
struct Outcome {
    failed: usize,
    longest: Duration,
}

/// Makes calls at once, by a function that says whether one succeeded.
async fn burst<F: Future<Output = bool>>(calls: usize, call: impl Fn() -> F) -> Outcome {
    let (failed, start) = (AtomicUsize::new(0), Instant::now());
    let each = || async {
        if !call().await {
            failed.fetch_add(1, Ordering::Relaxed);
        }
        start.elapsed()
    };
    let longest = join_all((0..calls).map(|_| each())).await.into_iter().max().unwrap_or_default();
    Outcome { failed: failed.into_inner(), longest }
}

async fn with_speeddial(authority: &Authority, url: &str, calls: usize) -> Outcome {
    let tls = TlsConfig::new().add_roots([authority.root()]).only_added_roots();
    let builder = speeddial::Client::builder().no_proxy().tls(tls).connect_timeout(CONNECT_TIMEOUT);
    let client = builder.build().expect("the settings are valid");
    burst(calls, || async {
        match client.get(url).send().await {
            Ok(response) => response.bytes().await.is_ok(),
            Err(_) => false,
        }
    })
    .await
}

async fn with_reqwest(authority: &Authority, url: &str, calls: usize) -> Outcome {
    let root = reqwest::Certificate::from_der(&authority.certificate()).expect("it is a certificate");
    let builder = reqwest::Client::builder().no_proxy().tls_certs_only([root]).connect_timeout(CONNECT_TIMEOUT);
    let client = builder.build().expect("the settings are valid");
    burst(calls, || async {
        match client.get(url).send().await {
            Ok(response) => response.bytes().await.is_ok(),
            Err(_) => false,
        }
    })
    .await
}

fn main() {
    allow_descriptors();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let bursts: &[usize] = if has("--test") { &[3] } else { &[1, 20, 600] };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut text = String::from("| server | calls at once | speeddial | reqwest |\n|---|---|---|---|\n");
    let mut is_worse = false;
    runtime.block_on(async {
        let authority = Authority::new();
        let origin = TlsServer::start(Arc::clone(&authority.server(&["localhost"], &["http/1.1"]))).await;
        for (conduct, name) in CONDUCTS {
            for calls in bursts.iter().copied() {
                let mut outcomes = Vec::new();
                for ours in [true, false] {
                    let (address, _alive) = server(conduct, origin.address()).await;
                    let url = format!("https://localhost:{}/", address.port());
                    outcomes.push(match ours {
                        true => with_speeddial(&authority, &url, calls).await,
                        false => with_reqwest(&authority, &url, calls).await,
                    });
                }
                let cell = |Outcome { failed, longest }: &Outcome| {
                    format!("{failed} failed, longest {} ms", longest.as_millis())
                };
                let (ours, theirs) = (&outcomes[0], &outcomes[1]);
                writeln!(text, "| {name} | {calls} | {} | {} |", cell(ours), cell(theirs)).expect("a string");
                let saves = ours.failed < theirs.failed;
                is_worse |= ours.failed > theirs.failed;
                is_worse |= !saves && ours.longest > theirs.longest + Duration::from_millis(100);
            }
        }
    });
    writeln!(text, "\n{}, {}.", machine::name(), machine::today()).expect("a string");
    println!("{text}");
    if has("--test") {
        return;
    }
    if has("--write") {
        page::write("bad_servers", &text).expect("BENCHMARKS.md can be written");
    }
    assert!(!is_worse, "more calls failed, or took longer, than with reqwest");
}
