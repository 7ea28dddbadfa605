//! The same GETs through hyper's bare connection, speeddial, hyper-util's legacy client and reqwest.
//!
//! The server has a thread, and on two cores a core, of its own.

#[path = "../tests/support/http_server.rs"]
mod http_server;

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use http_body_util::{BodyExt, Empty, Full};
use http_server::HttpServer;
use hyper::client::conn::http1;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::runtime::{Builder, Runtime};

/// A client under test; it counts the bytes of the body.
trait Get: Clone {
    fn get(&mut self) -> impl Future<Output = usize>;
}

#[derive(Clone)]
struct Speeddial(speeddial::Client, speeddial::url::Url);

impl Get for Speeddial {
    async fn get(&mut self) -> usize {
        let response = self.0.get(&self.1).send().await.expect("a response");
        response.bytes().await.expect("a body").len()
    }
}

#[derive(Clone)]
struct Legacy(legacy::Client<HttpConnector, Empty<Bytes>>, hyper::Uri);

impl Get for Legacy {
    async fn get(&mut self) -> usize {
        let response = self.0.get(self.1.clone()).await.expect("a response");
        response.into_body().collect().await.expect("a body").to_bytes().len()
    }
}

#[derive(Clone)]
struct Reqwest(reqwest::Client, reqwest::Url);

impl Get for Reqwest {
    async fn get(&mut self) -> usize {
        let response = self.0.get(self.1.clone()).send().await.expect("a response");
        response.bytes().await.expect("a body").len()
    }
}

/// hyper's own connection, one a task: the limit for everybody who builds on it.
struct Bare {
    address: std::net::SocketAddr,
    sender: Option<http1::SendRequest<Empty<Bytes>>>,
}

impl Clone for Bare {
    fn clone(&self) -> Self {
        Self { address: self.address, sender: None }
    }
}

impl Get for Bare {
    async fn get(&mut self) -> usize {
        let sender = match &mut self.sender {
            Some(sender) => sender,
            none => none.insert(connect(self.address).await),
        };
        sender.ready().await.expect("an open connection");
        let request = hyper::Request::get("/").header("host", "localhost").body(Empty::new()).expect("a request");
        let response = sender.send_request(request).await.expect("a response");
        response.into_body().collect().await.expect("a body").to_bytes().len()
    }
}

async fn connect(address: std::net::SocketAddr) -> http1::SendRequest<Empty<Bytes>> {
    let socket = tokio::net::TcpStream::connect(address).await.expect("a connection");
    socket.set_nodelay(true).expect("nodelay");
    let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// One task's share of the requests; keeps its client for the next round.
async fn share<G: Get>(mut client: G, requests: u64) -> G {
    for _ in 0..requests {
        assert_eq!(client.get().await, BODY.len());
    }
    client
}

const BODY: &[u8] = b"hello, world";

struct Servers {
    http: HttpServer,
    bursts: Cell<usize>,
    runtime: Runtime,
}

impl Servers {
    fn start() -> Self {
        let http = HttpServer::start(|_| async {
            hyper::Response::new(Full::new(Bytes::from_static(BODY)).map_err(|error| match error {}).boxed())
        });
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { http: http.expect("a port on loopback"), bursts: Cell::new(0), runtime }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.http.address())
    }

    fn bare(&self) -> Bare {
        Bare { address: self.http.address(), sender: None }
    }

    fn speeddial(&self) -> Speeddial {
        Speeddial(speeddial::Client::new(), self.url().parse().expect("a URL"))
    }

    fn legacy(&self) -> Legacy {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
        Legacy(client, self.url().parse().expect("a URI"))
    }

    fn reqwest(&self) -> Reqwest {
        let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build().expect("a client");
        Reqwest(client, self.url().parse().expect("a URL"))
    }
}

/// `in_flight` tasks make `rounds` requests each, after one to warm up.
fn warm<G: Get>(runtime: &Runtime, client: &G, in_flight: usize, rounds: u64) -> Duration {
    runtime.block_on(async {
        let clients = join_all((0..in_flight).map(|_| share(client.clone(), 1))).await;
        let start = Instant::now();
        join_all(clients.into_iter().map(|client| share(client, rounds))).await;
        start.elapsed()
    })
}

fn warm_get(criterion: &mut Criterion) {
    let servers = Servers::start();
    for in_flight in [1, 64] {
        let mut group = criterion.benchmark_group(format!("request/warm GET, {in_flight} in flight"));
        group.throughput(Throughput::Elements(in_flight as u64));
        let mut bench = |name: &str, run: &dyn Fn(u64) -> Duration| {
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| bencher.iter_custom(run));
        };
        let runtime = &servers.runtime;
        let (bare, speeddial) = (servers.bare(), servers.speeddial());
        let (legacy, reqwest) = (servers.legacy(), servers.reqwest());
        bench("hyper", &|rounds| warm(runtime, &bare, in_flight, rounds));
        bench("speeddial", &|rounds| warm(runtime, &speeddial, in_flight, rounds));
        bench("hyper-util", &|rounds| warm(runtime, &legacy, in_flight, rounds));
        bench("reqwest", &|rounds| warm(runtime, &reqwest, in_flight, rounds));
        group.finish();
    }
}

/// 3,000 requests at once through a new client, which opens at most one connection a request. (The server may accept
/// the last connections of one burst only in the next.)
fn burst<G: Get>(servers: &Servers, client: G) -> Duration {
    servers.bursts.set(servers.bursts.get() + 1);
    let tasks = servers.runtime.metrics();
    let elapsed = servers.runtime.block_on(async {
        let start = Instant::now();
        join_all((0..3_000).map(|_| share(client.clone(), 1))).await;
        let elapsed = start.elapsed();
        drop(client);
        // The connections close before the next burst, or the descriptors run out.
        while tasks.num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
        elapsed
    });
    assert!(servers.http.connections() <= 3_000 * servers.bursts.get());
    elapsed
}

fn cold_burst(criterion: &mut Criterion) {
    let servers = Servers::start();
    let mut group = criterion.benchmark_group("request/3000 cold GETs at once");
    group.sample_size(10);
    let mut bench = |name: &str, run: &dyn Fn() -> Duration| {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|rounds| (0..rounds).map(|_| run()).sum());
        });
    };
    bench("speeddial", &|| burst(&servers, servers.speeddial()));
    bench("hyper-util", &|| burst(&servers, servers.legacy()));
    bench("reqwest", &|| burst(&servers, servers.reqwest()));
    group.finish();
}

criterion_group!(benches, warm_get, cold_burst);
criterion_main!(benches);
