//! Requests to several origins on one HTTP/2 connection, against servers with TLS on loopback.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::dns::{Answer, CachedResolver, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};
use speeddial::tls::{Identity, TlsConfig};
use speeddial::trace::{Event, RepeatCause};
use speeddial::{Body, Client, ClientBuilder, ErrorKind, PoolConfig, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use support::certs::Authority;
use support::full;
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;

mod conditions;
mod load;
mod lookups;
mod misdirected;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const BESIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A request as a server saw it: the number of its connection from 0, and its method, host and body.
type Seen = (usize, String);

/// The behaviour of a server.
#[derive(Clone)]
struct Manner {
    max_streams: u32,
    /// The host that is answered with 421 on connections before the one with this number.
    misdirected: Option<(&'static str, usize)>,
    /// Requests for `/late` get no answer on connections before the one with this number.
    stuck: usize,
    /// The host whose requests are redirected, and to where.
    redirects: Option<(&'static str, &'static str)>,
    /// The number of requests after which a connection ends with a GOAWAY.
    goaway_after: Option<usize>,
    /// A response is held back until this is notified, if there is one.
    gate: Option<Arc<Notify>>,
}

impl Default for Manner {
    fn default() -> Self {
        Self { max_streams: 200, misdirected: None, stuck: 0, goaway_after: None, redirects: None, gate: None }
    }
}

/// The state of a server, which stops with the test's runtime.
#[derive(Clone, Default)]
struct Server {
    manner: Manner,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    fn new(manner: Manner) -> Self {
        Self { manner, ..Self::default() }
    }

    /// Listens on these addresses, all with the same port, which is returned.
    async fn listen(&self, authority: &Authority, names: &[&str], ips: &[IpAddr]) -> u16 {
        let acceptor = TlsAcceptor::from(authority.server(names, &["h2"]));
        let mut port = 0;
        for ip in ips {
            let listener = TcpListener::bind((*ip, port)).await.unwrap();
            port = listener.local_addr().unwrap().port();
            let (server, acceptor) = (self.clone(), acceptor.clone());
            tokio::spawn(async move {
                while let Ok((socket, _)) = listener.accept().await {
                    let number = server.connections.fetch_add(1, Ordering::SeqCst);
                    let (server, acceptor) = (server.clone(), acceptor.clone());
                    tokio::spawn(async move {
                        if let Ok(stream) = acceptor.accept(socket).await {
                            server.serve(number, stream).await;
                        }
                    });
                }
            });
        }
        port
    }

    async fn serve(self, number: usize, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams(self.manner.max_streams);
        let count = Arc::new(AtomicUsize::new(0));
        let (goaway, ends) = (self.manner.goaway_after, Arc::new(Notify::new()));
        let end = ends.clone();
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let server = self.clone();
            if Some(count.fetch_add(1, Ordering::SeqCst) + 1) == goaway {
                end.notify_one();
            }
            async move { Ok::<_, Infallible>(server.answer(number, request).await) }
        });
        let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            _ = serving.as_mut() => return,
            () = ends.notified() => serving.as_mut().graceful_shutdown(),
        }
        let _ = serving.await;
    }

    async fn answer(&self, number: usize, request: hyper::Request<Incoming>) -> hyper::Response<support::ServerBody> {
        let host = request.uri().host().unwrap_or("none").to_owned();
        let method = request.method().clone();
        let is_late = request.uri().path() == "/late";
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let line = format!("{method} {host} {}", String::from_utf8_lossy(&body));
        self.seen.lock().unwrap().push((number, line.trim_end().to_owned()));
        if let Some(gate) = &self.manner.gate {
            gate.notified().await;
        }
        let is_of = |what: Option<(&str, usize)>| what.is_some_and(|(name, until)| name == host && number < until);
        if is_late && number < self.manner.stuck {
            std::future::pending::<()>().await;
        }
        let is_misdirected = is_of(self.manner.misdirected);
        let location = self.manner.redirects.filter(|(name, _)| *name == host).map(|(_, to)| to);
        let mut response = hyper::Response::new(full(host));
        if let Some(to) = location {
            *response.status_mut() = hyper::StatusCode::FOUND;
            response.headers_mut().insert("location", to.parse().unwrap());
        }
        if is_misdirected {
            *response.status_mut() = hyper::StatusCode::MISDIRECTED_REQUEST;
            response.headers_mut().insert("set-cookie", "from=another".parse().unwrap());
        }
        response
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// Names and their IPv4 addresses, which tests change.
#[derive(Clone, Default)]
struct Names {
    addresses: Arc<Mutex<HashMap<String, Vec<IpAddr>>>>,
    queries: Arc<AtomicUsize>,
    delay: Duration,
    /// An IPv6 address of every name, which is known after 10 ms.
    v6: Option<IpAddr>,
}

impl Names {
    fn new(names: &[(&str, IpAddr)]) -> Self {
        let all = Self::default();
        names.iter().for_each(|(name, ip)| all.set(name, &[*ip]));
        all
    }

    fn set(&self, name: &str, ips: &[IpAddr]) {
        self.addresses.lock().unwrap().insert(name.to_owned(), ips.to_vec());
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        Box::pin(async move {
            self.queries.fetch_add(1, Ordering::SeqCst);
            if let Some(v6) = self.v6.filter(|_| family == Family::V6) {
                tokio::time::sleep(Duration::from_millis(10)).await;
                return Ok(Answer::new([v6], Duration::from_secs(10), Source::Miss));
            }
            tokio::time::sleep(self.delay).await;
            let known = self.addresses.lock().unwrap().get(name).cloned();
            match known.filter(|_| family == Family::V4) {
                Some(ips) => Ok(Answer::new(ips, Duration::from_secs(10), Source::Miss)),
                None => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)),
            }
        })
    }
}

/// Returns the names a.test and b.test, at the same address.
fn two_names() -> Names {
    Names::new(&[("a.test", HERE), ("b.test", HERE), ("c.test", HERE)])
}

fn trusting(authority: &Authority) -> TlsConfig {
    TlsConfig::new().add_root_der(authority.certificate().to_vec()).only_added_roots().prepare_in_background(false)
}

/// Returns the builder of a client that trusts `authority`, and whose origins share connections.
fn builder(authority: &Authority, names: &Names) -> ClientBuilder {
    let builder = Client::builder().no_proxy().tls(trusting(authority)).dns_cache(CachedResolver::new(names.clone()));
    builder.http2_coalesce_origins(true)
}

async fn get(client: &Client, host: &str, port: u16) -> Response {
    client.get(format!("https://{host}:{port}/")).send().await.unwrap()
}

/// Makes a GET and reads it to its end. Returns the status and the origin that the connection was opened for, if it is another one.
async fn got(client: &Client, host: &str, port: u16) -> (u16, Option<String>) {
    let response = get(client, host, port).await;
    let timings = response.timings_handle();
    let status = response.status().as_u16();
    response.bytes().await.unwrap();
    (status, timings.timings().opened_for().map(ToString::to_string))
}

/// Returns a network in memory at every address, with servers of this certificate.
fn net_of(server: &Server, authority: &Authority, names: &[&str]) -> ScriptedNet {
    let acceptor = TlsAcceptor::from(authority.server(names, &["h2"]));
    let server = server.clone();
    ScriptedNet::new(move |number, stream| {
        let (server, acceptor) = (server.clone(), acceptor.clone());
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                server.serve(number, stream).await;
            }
        }
    })
}
