//! Measures new connections beside hyper-util's legacy client and reqwest: the claim of BENCHMARKS.md, section New connections.
//!
//! The first group is the connector alone beside tokio's connect; the second is a whole request on each connection. Times are
//! processor time of the client's thread. The server runs in other threads.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http_body_util::{BodyExt, Empty};
use hyper::Uri;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustix::time::{ClockId, clock_gettime};
use speeddial::dns::{CachedResolver, FixedResolver};
use speeddial::transport::{TcpTransport, Transport};
use speeddial::{Client, PoolConfig};
use speeddial_reqwest::Dns;
use tokio::runtime::{Builder, Runtime};
use tower_service::Service;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn cache() -> CachedResolver {
    CachedResolver::new(FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]))
}

/// Returns the processor time that this thread has used.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the processor time of `rounds` rounds, of which 16 run at a time.
fn spent_at_once<F: Future<Output = ()>>(runtime: &Runtime, rounds: u64, round: impl Fn() -> F) -> Duration {
    let start = cpu_time();
    let left = std::cell::Cell::new(rounds);
    let work = || async {
        while let Some(less) = left.get().checked_sub(1) {
            left.set(less);
            round().await;
        }
    };
    runtime.block_on(futures_util::future::join_all((0..IN_FLIGHT).map(|_| work())));
    cpu_time() - start
}

/// Returns the processor time of `rounds` rounds, one after the other.
fn spent<F: Future<Output = ()>>(runtime: &Runtime, rounds: u64, mut round: impl FnMut() -> F) -> Duration {
    let start = cpu_time();
    runtime.block_on(async {
        for _ in 0..rounds {
            round().await;
        }
    });
    cpu_time() - start
}

const IN_FLIGHT: usize = 16;

/// The server's threads. They are enough for one to wait in `accept` at any time: to wake a thread costs the client time, and
/// with fewer threads that cost would depend on whether the client closes a connection before or after it opens the next one.
const SERVERS: usize = 2 * IN_FLIGHT;

/// Starts a server that answers the requests on each connection and resets the connection when the client has closed it.
///
/// Without the reset, closed connections would stay in TIME_WAIT for minutes, and no ports would be left for new ones.
fn server() -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port on loopback");
    let address = listener.local_addr().expect("a bound socket");
    for _ in 0..SERVERS {
        let listener = listener.try_clone().expect("a descriptor");
        std::thread::spawn(move || listener.incoming().for_each(|stream| drop(stream.and_then(serve))));
    }
    address
}

fn serve(mut stream: std::net::TcpStream) -> std::io::Result<()> {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    let mut request = [0; 4096];
    while stream.read(&mut request)? > 0 {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
    }
    Ok(())
}

fn connect(criterion: &mut Criterion) {
    let runtime = runtime();
    let address = server();
    let mut group = criterion.benchmark_group("connect");
    group.bench_function("tokio alone", |bencher| {
        bencher.iter_custom(|rounds| {
            spent(&runtime, rounds, || async {
                drop(tokio::net::TcpStream::connect(address).await.expect("connected"));
            })
        });
    });
    let transport = TcpTransport::new();
    group.bench_function("with the socket options", |bencher| {
        bencher.iter_custom(|rounds| {
            spent(&runtime, rounds, || async { drop(transport.connect(address).await.expect("connected")) })
        });
    });
    let connector = speeddial::interop::Connector::new(Client::builder().dns_cache(cache()).no_proxy());
    let connector = connector.expect("the defaults are valid");
    for (name, host) in [("speeddial, address", "127.0.0.1"), ("speeddial, cached name", "api.test")] {
        let url: Uri = format!("http://{host}:{}/", address.port()).parse().expect("a URL");
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                spent(&runtime, rounds, || async {
                    drop(connector.clone().call(url.clone()).await.expect("connected"));
                })
            });
        });
    }
    let theirs = HttpConnector::new_with_resolver(cache());
    let url: Uri = format!("http://api.test:{}/", address.port()).parse().expect("a URL");
    group.bench_function("hyper-util's connector, cached name", |bencher| {
        bencher.iter_custom(|rounds| {
            spent(&runtime, rounds, || async { drop(theirs.clone().call(url.clone()).await.expect("connected")) })
        });
    });
    group.finish();
}

fn request(criterion: &mut Criterion) {
    let runtime = runtime();
    let text = format!("http://api.test:{}/", server().port());
    let mut group = criterion.benchmark_group("a request on a new connection, 16 in flight");
    let client =
        Client::builder().dns_cache(cache()).no_proxy().pool(PoolConfig::new().max_requests_per_connection(1)).build();
    let client = client.expect("the defaults are valid");
    let url = speeddial::Url::parse(&text).expect("a URL");
    group.bench_function("speeddial", |bencher| {
        bencher.iter_custom(|rounds| {
            spent_at_once(&runtime, rounds, || async {
                client.get(&url).send().await.expect("a response").bytes().await.expect("a body");
            })
        });
    });
    let uri: Uri = text.parse().expect("a URL");
    let mut alike = HttpConnector::new_with_resolver(cache());
    alike.set_nodelay(true);
    alike.set_keepalive(Some(Duration::from_secs(15)));
    alike.set_keepalive_interval(Some(Duration::from_secs(15)));
    #[cfg(target_os = "linux")]
    alike.set_tcp_user_timeout(Some(Duration::from_secs(30)));
    let defaults = HttpConnector::new_with_resolver(cache());
    for (name, connector) in
        [("hyper-util legacy", defaults), ("hyper-util legacy with the same socket options", alike)]
    {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        let client = builder.pool_max_idle_per_host(0).build::<_, Empty<Bytes>>(connector);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                spent_at_once(&runtime, rounds, || async {
                    client.get(uri.clone()).await.expect("a response").into_body().collect().await.expect("a body");
                })
            });
        });
    }
    let builder = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
    let client = builder.dns_resolver(Dns(cache())).build().expect("a client");
    group.bench_function("reqwest", |bencher| {
        bencher.iter_custom(|rounds| {
            spent_at_once(&runtime, rounds, || async {
                client.get(url.clone()).send().await.expect("a response").bytes().await.expect("a body");
            })
        });
    });
    group.finish();
}

criterion_group!(benches, connect, request);
criterion_main!(benches);
