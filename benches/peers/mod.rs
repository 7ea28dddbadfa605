//! The four clients that benches compare, behind one trait: hyper's bare connection, speeddial, hyper-util's legacy client and
//! reqwest.

#![allow(dead_code, reason = "each bench uses a part of this module")]

mod server;
pub(crate) mod work;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::time::{ClockId, clock_gettime};
pub(crate) use server::Server;
use speeddial::PoolConfig;
use speeddial::dns::{CachedResolver, FixedResolver};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

/// The name of the server. A bench with several names uses names that end in this one.
pub(crate) const NAME: &str = "api.test";

/// The names of the clients, in the order of their numbers.
pub(crate) const CLIENTS: [&str; 4] = ["hyper", "speeddial", "hyper-util", "reqwest"];

/// True if all clients support TLS.
pub(crate) const HAS_TLS: bool = cfg!(feature = "tls");

/// The protocol between client and server, and the use of connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Setup {
    /// True for HTTP/2, false for HTTP/1.1.
    pub(crate) http2: bool,
    /// True for TLS.
    pub(crate) secure: bool,
    /// True if each request has a connection of its own.
    pub(crate) cold: bool,
    /// True if the server issues no session tickets, so that no handshake is resumed.
    pub(crate) no_tickets: bool,
}

/// The name and value of a header.
pub(crate) type Header = (&'static str, &'static str);

pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A client under test.
pub(crate) trait Ask: Clone {
    /// Sends a request with `headers` and `body`, and returns the length of the response's body.
    fn ask(&mut self, headers: &[Header], body: Bytes) -> impl Future<Output = Result<usize, Failed>>;

    /// Returns this client for another name of the server.
    fn named(&self, name: &str) -> Self;
}

/// The number of names of a server, beside [`NAME`].
pub(crate) const NAMES: usize = 1_000;

pub(crate) fn name(number: usize) -> String {
    format!("n{number}.{NAME}")
}

fn names() -> impl Iterator<Item = String> {
    std::iter::once(NAME.to_owned()).chain((0..NAMES).map(name))
}

/// One client of each kind, for one server.
pub(crate) struct Clients {
    pub(crate) bare: Bare,
    pub(crate) speeddial: Speeddial,
    pub(crate) legacy: Legacy,
    pub(crate) reqwest: Reqwest,
}

/// Evaluates `$do` with the client of number `$number`. Each client keeps its own type, as it does for its users.
macro_rules! with {
    ($number:expr, $clients:expr, $client:ident => $do:expr) => {{
        use $crate::peers::{Bare, Legacy};
        let clients = &$clients;
        match ($number, &clients.bare, &clients.legacy) {
            (0, Bare::One($client), _) => with!(@clone $client => $do),
            (0, Bare::Many($client), _) => with!(@clone $client => $do),
            (2, _, Legacy::Plain($client)) => with!(@clone $client => $do),
            (2, _, Legacy::Secure($client)) => with!(@clone $client => $do),
            (1, _, _) => {
                let $client = &clients.speeddial;
                with!(@clone $client => $do)
            }
            _ => {
                let $client = &clients.reqwest;
                with!(@clone $client => $do)
            }
        }
    }};
    (@clone $client:ident => $do:expr) => {{
        let $client = $client.clone();
        $do
    }};
}
pub(crate) use with;

impl Clients {
    /// Builds the clients of `server`. Must be called in a runtime.
    pub(crate) async fn new(server: &Server, setup: Setup) -> Self {
        Self {
            bare: match setup.http2 && !setup.cold {
                true => Bare::Many(BareMany::new(server).await),
                false => Bare::One(BareOne {
                    address: server.address(),
                    tls: server.client_tls(&["http/1.1"]),
                    cold: setup.cold,
                    sender: None,
                }),
            },
            speeddial: Speeddial::new(server, setup, PoolConfig::new()),
            legacy: Legacy::new(server, setup),
            reqwest: Reqwest::new(server, setup),
        }
    }
}

fn message(url: hyper::Uri, headers: &[Header], body: Bytes) -> hyper::Request<Full<Bytes>> {
    let method = if body.is_empty() { "GET" } else { "POST" };
    let request = hyper::Request::builder().method(method).uri(url);
    let add = |request: hyper::http::request::Builder, &(name, value): &Header| request.header(name, value);
    headers.iter().fold(request, add).body(Full::new(body)).expect("a request")
}

async fn drained(response: hyper::Response<hyper::body::Incoming>) -> Result<usize, Failed> {
    let mut body = response.into_body();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(length)
}

fn uri(url: &hyper::Uri, name: &str) -> hyper::Uri {
    let port = url.port_u16().expect("a port");
    format!("{}://{name}:{port}/", url.scheme_str().expect("a scheme")).parse().expect("a URI")
}

/// hyper's own connection, the lower limit for every client that is built on hyper.
///
/// Over HTTP/1.1 each clone has a connection; over HTTP/2 all clones share one.
pub(crate) enum Bare {
    One(BareOne),
    Many(BareMany),
}

pub(crate) struct BareOne {
    address: SocketAddr,
    tls: Option<Arc<rustls::ClientConfig>>,
    cold: bool,
    sender: Option<http1::SendRequest<Full<Bytes>>>,
}

impl Clone for BareOne {
    fn clone(&self) -> Self {
        Self { address: self.address, tls: self.tls.clone(), cold: self.cold, sender: None }
    }
}

impl BareOne {
    /// Opens the connection.
    pub(crate) async fn warm_up(&mut self) -> Result<(), Failed> {
        self.sender = Some(self.open().await?);
        Ok(())
    }

    async fn open(&self) -> Result<http1::SendRequest<Full<Bytes>>, Failed> {
        let socket = connect(self.address).await?;
        Ok(match &self.tls {
            Some(tls) => serve_one(shake(tls.clone(), socket).await?).await?,
            None => serve_one(socket).await?,
        })
    }
}

async fn serve_one<S>(stream: S) -> Result<http1::SendRequest<Full<Bytes>>, Failed>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

impl Ask for BareOne {
    async fn ask(&mut self, headers: &[Header], body: Bytes) -> Result<usize, Failed> {
        if self.cold || self.sender.is_none() {
            self.sender = Some(self.open().await?);
        }
        let sender = self.sender.as_mut().expect("just opened");
        sender.ready().await?;
        let mut request = message(hyper::Uri::from_static("/"), headers, body);
        request.headers_mut().insert("host", hyper::header::HeaderValue::from_static(NAME));
        drained(sender.send_request(request).await?).await
    }

    fn named(&self, _: &str) -> Self {
        self.clone()
    }
}

#[derive(Clone)]
pub(crate) struct BareMany(http2::SendRequest<Full<Bytes>>, hyper::Uri);

impl BareMany {
    async fn new(server: &Server) -> Self {
        let socket = connect(server.address()).await.expect("a connection");
        let sender = match server.client_tls(&["h2"]) {
            Some(tls) => serve_many(shake(tls, socket).await.expect("a handshake")).await,
            None => serve_many(socket).await,
        };
        Self(sender, server.url(NAME).parse().expect("a URI"))
    }
}

/// Opens an HTTP/2 connection with the same windows that speeddial uses.
async fn serve_many<S>(stream: S) -> http2::SendRequest<Full<Bytes>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("http");
    tokio::spawn(connection);
    sender
}

const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

impl Ask for BareMany {
    async fn ask(&mut self, headers: &[Header], body: Bytes) -> Result<usize, Failed> {
        self.0.ready().await?;
        let request = message(self.1.clone(), headers, body);
        drained(self.0.send_request(request).await?).await
    }

    fn named(&self, _: &str) -> Self {
        self.clone()
    }
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

async fn shake(
    tls: Arc<rustls::ClientConfig>,
    socket: TcpStream,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = rustls::pki_types::ServerName::try_from(NAME).expect("a name");
    TlsConnector::from(tls).connect(name, socket).await
}

fn alpn(setup: Setup) -> &'static [&'static str] {
    if setup.http2 { &["h2"] } else { &["http/1.1"] }
}

#[derive(Clone)]
pub(crate) struct Speeddial {
    pub(crate) client: speeddial::Client,
    pub(crate) url: speeddial::Url,
}

impl Speeddial {
    pub(crate) fn new(server: &Server, setup: Setup, pool: PoolConfig) -> Self {
        let known = |all: FixedResolver, name: String| all.with(&name, [Ipv4Addr::LOCALHOST.into()]);
        let names = names().fold(FixedResolver::new(), known);
        let builder = speeddial::Client::builder().dns_cache(CachedResolver::new(names)).no_proxy();
        let pool = if setup.cold { pool.max_requests_per_connection(1) } else { pool };
        let builder = match (setup.http2, setup.secure) {
            (true, false) => builder.http2_prior_knowledge(),
            (false, true) => builder.http1_only(),
            _ => builder,
        };
        #[cfg(feature = "tls")]
        let builder = match server.client_tls(alpn(setup)) {
            Some(tls) => builder.tls(tls),
            // The bench uses no TLS, and its preparation takes long.
            None => builder.tls(speeddial::tls::TlsConfig::new().prepare_in_background(false)),
        };
        let client = builder.pool(pool).build().expect("a client");
        Self { client, url: server.url(NAME).parse().expect("a URL") }
    }
}

impl Ask for Speeddial {
    async fn ask(&mut self, headers: &[Header], body: Bytes) -> Result<usize, Failed> {
        let request = match body.is_empty() {
            true => self.client.get(&self.url),
            false => self.client.post(&self.url).body(body),
        };
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let mut response = request.send().await?;
        let mut length = 0;
        while let Some(chunk) = response.chunk().await? {
            length += chunk.len();
        }
        Ok(length)
    }

    fn named(&self, name: &str) -> Self {
        let mut url = self.url.clone();
        url.set_host(Some(name)).expect("a name");
        Self { client: self.client.clone(), url }
    }
}

pub(crate) enum Legacy {
    Plain(LegacyOver<HttpConnector<Fixed>>),
    Secure(LegacyOver<HttpsConnector<HttpConnector<Fixed>>>),
}

#[derive(Clone)]
pub(crate) struct LegacyOver<C>(legacy::Client<C, Full<Bytes>>, hyper::Uri);

impl Legacy {
    fn new(server: &Server, setup: Setup) -> Self {
        let mut connector = HttpConnector::new_with_resolver(Fixed);
        connector.set_nodelay(true);
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.http2_only(setup.http2).http2_initial_stream_window_size(STREAM_WINDOW);
        builder.http2_initial_connection_window_size(CONNECTION_WINDOW);
        if setup.cold {
            builder.pool_max_idle_per_host(0);
        }
        let url = server.url(NAME).parse().expect("a URI");
        match server.client_tls(&[]) {
            Some(tls) => {
                connector.enforce_http(false);
                let https =
                    HttpsConnectorBuilder::new().with_tls_config(rustls::ClientConfig::clone(&tls)).https_only();
                let https = match setup.http2 {
                    true => https.enable_http2().wrap_connector(connector),
                    false => https.enable_http1().wrap_connector(connector),
                };
                Self::Secure(LegacyOver(builder.build(https), url))
            }
            None => Self::Plain(LegacyOver(builder.build(connector), url)),
        }
    }
}

impl<C: legacy::connect::Connect + Clone + Send + Sync + 'static> Ask for LegacyOver<C> {
    async fn ask(&mut self, headers: &[Header], body: Bytes) -> Result<usize, Failed> {
        drained(self.0.request(message(self.1.clone(), headers, body)).await?).await
    }

    fn named(&self, name: &str) -> Self {
        Self(self.0.clone(), uri(&self.1, name))
    }
}

/// A resolver for hyper-util that answers every name with 127.0.0.1.
#[derive(Clone)]
pub(crate) struct Fixed;

impl Service<Name> for Fixed {
    type Response = std::iter::Once<SocketAddr>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        std::future::ready(Ok(std::iter::once((Ipv4Addr::LOCALHOST, 0).into())))
    }
}

#[derive(Clone)]
pub(crate) struct Reqwest(reqwest::Client, reqwest::Url);

impl Reqwest {
    fn new(server: &Server, setup: Setup) -> Self {
        let builder = reqwest::Client::builder().no_proxy().tcp_nodelay(true);
        let known = |all: reqwest::ClientBuilder, name: String| all.resolve(&name, (Ipv4Addr::LOCALHOST, 0).into());
        let builder = names().fold(builder, known);
        let builder = match (setup.http2, setup.secure) {
            (true, false) => builder.http2_prior_knowledge(),
            (false, _) => builder.http1_only(),
            (true, true) => builder,
        };
        let builder = builder.http2_initial_stream_window_size(STREAM_WINDOW);
        let builder = builder.http2_initial_connection_window_size(CONNECTION_WINDOW);
        let builder = if setup.cold { builder.pool_max_idle_per_host(0) } else { builder };
        let builder = match server.client_tls(alpn(setup)) {
            Some(tls) => builder.tls_backend_preconfigured(rustls::ClientConfig::clone(&tls)),
            // The bench uses no TLS, and the default configuration takes long to build.
            None => builder.tls_backend_preconfigured(support::certs::Authority::new().client()),
        };
        Self(builder.build().expect("a client"), server.url(NAME).parse().expect("a URL"))
    }
}

impl Ask for Reqwest {
    async fn ask(&mut self, headers: &[Header], body: Bytes) -> Result<usize, Failed> {
        let request = match body.is_empty() {
            true => self.0.get(self.1.clone()),
            false => self.0.post(self.1.clone()).body(body),
        };
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let mut response = request.send().await?;
        let mut length = 0;
        while let Some(chunk) = response.chunk().await? {
            length += chunk.len();
        }
        Ok(length)
    }

    fn named(&self, name: &str) -> Self {
        let mut url = self.1.clone();
        url.set_host(Some(name)).expect("a name");
        Self(self.0.clone(), url)
    }
}

/// The time of a request or of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    /// The processor time of the client's thread.
    pub(crate) cpu: Duration,
    /// The elapsed time.
    pub(crate) wall: Duration,
}

/// Returns the processor time that this thread has used.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(crate) fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<_> = times.collect();
    times.sort();
    times[times.len() / 2]
}
