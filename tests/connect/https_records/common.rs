//! A resolver and a network in memory for paused time, with TLS.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use speeddial::dns::{
    Answer, CachedResolver, Family, HttpsAnswer, HttpsRecord, ResolveError, ResolveErrorKind, Resolver, ResolverFuture,
    ResolvingHttps, Source,
};
use speeddial::tls::TlsConfig;
use speeddial::trace::Event;
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Client, ClientBuilder};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use support::certs::Authority;
use support::http_server::describe;
use support::recorder::Recorder;

/// An outcome after a delay in milliseconds.
type Delayed<T> = (u64, Result<T, ResolveErrorKind>);

/// A resolver with scripted answers. A name that is not in it does not exist. Clones share the log.
#[derive(Clone)]
pub(super) struct Names {
    addresses: HashMap<String, Delayed<Vec<IpAddr>>>,
    records: HashMap<String, Delayed<Vec<HttpsRecord>>>,
    pub(super) ttl: Duration,
    /// The queries so far, as in `HTTPS api.test`.
    pub(super) queries: Arc<Mutex<Vec<String>>>,
}

impl Names {
    pub(super) fn new() -> Self {
        Self {
            addresses: HashMap::new(),
            records: HashMap::new(),
            ttl: Duration::from_secs(60),
            queries: Arc::default(),
        }
    }

    /// Adds the addresses of a name, which come after `delay` milliseconds.
    pub(super) fn host(mut self, name: &str, delay: u64, addresses: &[IpAddr]) -> Self {
        self.addresses.insert(name.to_owned(), (delay, Ok(addresses.to_vec())));
        self
    }

    /// Adds the records of a name, which come after `delay` milliseconds.
    pub(super) fn records(mut self, name: &str, delay: u64, records: &[HttpsRecord]) -> Self {
        self.records.insert(name.to_owned(), (delay, Ok(records.to_vec())));
        self
    }

    /// Lets the lookup of a name's records fail after `delay` milliseconds.
    pub(super) fn failing(mut self, name: &str, delay: u64, kind: ResolveErrorKind) -> Self {
        self.records.insert(name.to_owned(), (delay, Err(kind)));
        self
    }

    /// Returns the queries for HTTPS records so far.
    pub(super) fn https_queries(&self) -> Vec<String> {
        let queries = self.queries.lock().unwrap();
        queries.iter().filter_map(|query| query.strip_prefix("HTTPS ").map(str::to_owned)).collect()
    }
}

impl Resolver for Names {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            self.queries.lock().unwrap().push(format!("{family} {name}"));
            let error = |kind| ResolveError::new(kind, name, family).with_negative_ttl(Some(self.ttl));
            let Some((delay, addresses)) = self.addresses.get(name.trim_end_matches('.')) else {
                return Err(error(ResolveErrorKind::NxDomain));
            };
            sleep(*delay).await;
            let addresses = addresses.clone().map_err(error)?;
            let of_family: Vec<_> = addresses.into_iter().filter(|ip| Family::of(*ip) == family).collect();
            match of_family.is_empty() {
                true => Err(error(ResolveErrorKind::NoData)),
                false => Ok(Answer::new(of_family, self.ttl, Source::Miss)),
            }
        })
    }

    fn resolve_https<'a>(&'a self, name: &'a str) -> ResolvingHttps<'a> {
        Box::pin(async move {
            self.queries.lock().unwrap().push(format!("HTTPS {name}"));
            let Some((delay, records)) = self.records.get(name.trim_end_matches('.')) else {
                return Ok(HttpsAnswer::absent(Some(self.ttl)));
            };
            sleep(*delay).await;
            records.clone().map(|records| HttpsAnswer::new(records, self.ttl))
        })
    }
}

/// The behaviour of an address.
#[derive(Clone, Copy)]
pub(super) enum Peer {
    /// Connects after this many milliseconds and serves HTTPS.
    Serves(u64),
    /// Refuses after this many milliseconds.
    Refuses(u64),
    /// Never answers.
    Silent,
}

/// A network of HTTPS servers. Addresses that are not in it refuse at once. Clones share the log.
#[derive(Clone)]
pub(super) struct Net {
    peers: HashMap<SocketAddr, Peer>,
    config: Arc<ServerConfig>,
    /// The dials so far, as in `10 192.0.2.1:443`, with the milliseconds since the network was made.
    pub(super) dials: Arc<Mutex<Vec<String>>>,
    start: Instant,
}

impl Net {
    fn new(authority: &Authority, peers: &[(&str, Peer)]) -> Self {
        let peers = peers.iter().map(|(address, peer)| (address.parse().unwrap(), *peer)).collect();
        let config = authority.server(&["api.test"], &["h2", "http/1.1"]);
        Self { peers, config, dials: Arc::default(), start: Instant::now() }
    }

    /// Returns the dials so far.
    pub(super) fn dials(&self) -> Vec<String> {
        self.dials.lock().unwrap().clone()
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<Box<dyn Stream>> {
        self.dials.lock().unwrap().push(format!("{} {address}", self.start.elapsed().as_millis()));
        match self.peers.get(&address).copied().unwrap_or(Peer::Refuses(0)) {
            Peer::Serves(delay) => {
                sleep(delay).await;
                let (near, far) = tokio::io::duplex(64 * 1024);
                tokio::spawn(serve(far, self.config.clone()));
                Ok(Box::new(near))
            }
            Peer::Refuses(delay) => {
                sleep(delay).await;
                Err(io::ErrorKind::ConnectionRefused.into())
            }
            Peer::Silent => std::future::pending().await,
        }
    }
}

impl Transport for Net {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(self.dial(address))
    }
}

async fn serve(stream: tokio::io::DuplexStream, config: Arc<ServerConfig>) {
    let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(stream);
    let service = service_fn(|request| async { Ok::<_, std::convert::Infallible>(describe(request).await) });
    let _ = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
        false => http1::Builder::new().serve_connection(stream, service).await,
    };
}

/// A client in a world of names and peers.
pub(super) struct World {
    pub(super) names: Names,
    pub(super) net: Net,
    pub(super) cache: CachedResolver,
    pub(super) client: Client,
    pub(super) recorder: Recorder,
}

impl World {
    pub(super) fn new(names: Names, peers: &[(&str, Peer)]) -> Self {
        Self::with(names, peers, |builder| builder)
    }

    /// Makes a client with more settings. HTTP/1.1 unless they say otherwise.
    pub(super) fn with(
        names: Names,
        peers: &[(&str, Peer)],
        settings: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Self {
        let authority = Authority::new();
        let net = Net::new(&authority, peers);
        let recorder = Recorder::default();
        let tls = TlsConfig::new().add_root_der(authority.certificate().to_vec()).only_added_roots();
        let cache = CachedResolver::new(names.clone());
        let builder = Client::builder().no_proxy().dns_cache(cache.clone()).transport(net.clone()).tls(tls);
        let client = settings(builder.https_records(true).observer(recorder.clone())).build().unwrap();
        Self { names, net, cache, client, recorder }
    }

    /// Gets a URL. Returns the address that answered.
    pub(super) async fn get(&self, url: &str) -> Result<String, speeddial::Error> {
        let response = self.client.get(url).send().await?;
        let remote = response.remote_addr().unwrap().to_string();
        response.bytes().await?;
        Ok(remote)
    }

    /// Returns the endpoints that were chosen so far, as in `1 svc.test:443`.
    pub(super) fn endpoints(&self) -> Vec<String> {
        self.recorder.pick(|event| match event {
            Event::EndpointChosen { host, port, priority, .. } => Some(format!("{priority} {host}:{port}")),
            _ => None,
        })
    }

    /// Returns the lookups of records so far: name, number of records, milliseconds.
    pub(super) fn lookups(&self) -> Vec<String> {
        self.recorder.pick(|event| match event {
            Event::HttpsLookup { name, records, elapsed, .. } => {
                Some(format!("{name} {records:?} {}", elapsed.as_millis()))
            }
            _ => None,
        })
    }
}

/// Returns the address 192.0.2.`last`.
pub(super) fn ip(last: u8) -> IpAddr {
    support::v4(last)
}

async fn sleep(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
