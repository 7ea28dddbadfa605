//! Measures the pool, and bursts of cold requests beside hyper-util's legacy client: the claim of BENCHMARKS.md, section Pool.
//!
//! The first groups measure a lease and the queue without any network. The last one measures 3,000 cold requests to servers
//! with a short and a long backlog, near and far away.

use std::convert::Infallible;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use futures_util::future::join_all;
use http_body_util::{BodyExt, Empty, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::benched::BenchedPool;
use speeddial::origin::Origin;
use speeddial::transport::{Connecting, TcpTransport, Transport};
use speeddial::url::Url;
use speeddial::{Client, PoolConfig};
use support::process::allow_descriptors;
use tokio::runtime::{Builder, Runtime};

fn origin() -> Origin {
    Origin::from_url(&Url::parse("http://api.test/").expect("a URL")).expect("an origin")
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Returns a pool with `idle` idle connections.
async fn warm(idle: usize) -> BenchedPool {
    let pool = BenchedPool::new(usize::MAX);
    let origin = origin();
    let leases = join_all((0..idle).map(|_| pool.wait(&origin))).await;
    leases.into_iter().for_each(|lease| lease.give_back(Instant::now()));
    pool
}

/// Measures one lease: taken and given back.
///
/// The time is passed in, as a call does: it knows the time from its start and from the end of its body.
fn lease(criterion: &mut Criterion) {
    let runtime = runtime();
    let origin = origin();
    let _entered = runtime.enter();
    let mut group = criterion.benchmark_group("pool/acquire and release");
    for idle in [1, 10, 10_000] {
        let pool = runtime.block_on(warm(idle));
        group.bench_function(BenchmarkId::new("idle", idle), |bencher| {
            let now = Instant::now();
            bencher.iter(|| pool.take(black_box(&origin), now).give_back(now));
        });
    }
    let pool = runtime.block_on(warm(16));
    group.bench_function("16 threads", |bencher| {
        bencher.iter_custom(|rounds| {
            let barrier = Arc::new(Barrier::new(17));
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    let pool = pool.clone();
                    let origin = origin.clone();
                    let barrier = barrier.clone();
                    std::thread::spawn(move || {
                        barrier.wait();
                        let now = Instant::now();
                        for _ in 0..rounds {
                            pool.take(&origin, now).give_back(now);
                        }
                    })
                })
                .collect();
            barrier.wait();
            let start = Instant::now();
            for thread in threads {
                thread.join().expect("no panic");
            }
            // The time of one lease on one core, of which there are two.
            start.elapsed() * 2 / 16
        });
    });
    group.finish();
}

/// Measures 10,000 requests that wait for 100 connections.
fn queue(criterion: &mut Criterion) {
    let runtime = runtime();
    let origin = origin();
    criterion.bench_function("pool/10,000 wait for 100 connections", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let pool = BenchedPool::new(100);
                let call = async || {
                    let lease = pool.wait(&origin).await;
                    tokio::task::yield_now().await;
                    lease.give_back(Instant::now());
                };
                join_all((0..10_000).map(|_| call())).await;
            });
        });
    });
}

/// Starts a server in a thread of its own that answers after `think`, with a listen backlog of `backlog`.
fn server(backlog: u32, think: Duration) -> SocketAddr {
    allow_descriptors();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
            let listener = socket.listen(backlog).expect("a listener");
            let _ = sender.send(listener.local_addr().expect("an address"));
            while let Ok((socket, _)) = listener.accept().await {
                let _ = socket.set_nodelay(true);
                // A reset leaves nothing in TIME_WAIT.
                let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
                let service = service_fn(move |_| async move {
                    if !think.is_zero() {
                        tokio::time::sleep(think).await;
                    }
                    Ok::<_, Infallible>(hyper::Response::new(Full::new(Bytes::from_static(b"ok"))))
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
    });
    receiver.recv().expect("an address")
}

/// TCP to a server whose connections take this much longer to open.
struct Far(TcpTransport, Duration);

impl Transport for Far {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            tokio::time::sleep(self.1).await;
            self.0.connect(address).await
        })
    }
}

const BURST: usize = 3_000;

/// Returns the time of a burst through a new speeddial client.
fn speeddial(address: SocketAddr, away: Duration, dials: usize) -> Duration {
    runtime().block_on(async {
        let pool = PoolConfig::new().max_connections(4_096).max_idle(4_096).max_dials_per_host(dials);
        let builder = Client::builder().no_proxy().pool(pool);
        let builder = if away.is_zero() { builder } else { builder.transport(Far(TcpTransport::new(), away)) };
        let client = builder.build().expect("valid");
        let url = Url::parse(&format!("http://{address}/")).expect("a URL");
        let start = Instant::now();
        let get = async || client.get(&url).send().await?.bytes().await;
        for answer in join_all((0..BURST).map(|_| get())).await {
            assert_eq!(answer.expect("an answer").len(), 2);
        }
        start.elapsed()
    })
}

/// Returns the time of a burst through a new hyper-util legacy client.
fn hyper_util(address: SocketAddr) -> Duration {
    runtime().block_on(async {
        let client = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let url: hyper::Uri = format!("http://{address}/").parse().expect("a URL");
        let start = Instant::now();
        let get = async || client.get(url.clone()).await.expect("an answer").into_body().collect().await;
        for answer in join_all((0..BURST).map(|_| get())).await {
            assert_eq!(answer.expect("a body").to_bytes().len(), 2);
        }
        start.elapsed()
    })
}

/// Measures 3,000 cold requests at once.
fn burst(criterion: &mut Criterion) {
    let near = Duration::from_millis(1);
    let at_work = Duration::from_millis(5);
    let far = Duration::from_millis(50);
    let mut group = criterion.benchmark_group("pool/3000 cold GETs");
    group.sample_size(10);
    let bursts = [
        ("backlog 128", 128, Duration::ZERO, Duration::ZERO),
        ("backlog 4096", 4_096, Duration::ZERO, Duration::ZERO),
        ("1 ms away, 5 ms of work each", 4_096, near, at_work),
        ("50 ms away", 4_096, far, far),
    ];
    for (name, backlog, away, think) in bursts {
        let address = server(backlog, think);
        for dials in [16, 1_024] {
            group.bench_function(BenchmarkId::new(name, format!("speeddial, at most {dials} dials")), |bencher| {
                bencher.iter_custom(|rounds| (0..rounds).map(|_| speeddial(address, away, dials)).sum());
            });
        }
        if away.is_zero() {
            group.bench_function(BenchmarkId::new(name, "hyper-util"), |bencher| {
                bencher.iter_custom(|rounds| (0..rounds).map(|_| hyper_util(address)).sum());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, lease, queue, burst);
criterion_main!(benches);
