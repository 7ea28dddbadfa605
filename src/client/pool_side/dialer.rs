//! The pool's `Dial` trait, implemented by the client's connectors: one for each group of hosts with the same settings.

use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::RwLock;
use smallvec::SmallVec;
use tokio::task::AbortHandle;

use super::file_watch::FileWatch;
use crate::clock::Instant;
use crate::connect::{
    self, Capacity, Conn, ConnectError, Connector, Message, OpenedConn, Protocol, ProxyChoice, SpreadHost,
};
use crate::host_pattern::{ByHost, HostPattern};
use crate::origin::Origin;
use crate::pool::{AddressWish, Addresses, BalancedHost, Dial, Lease, Location, Slot, Speaks, Started};
use crate::trace::{CloseCause, DialTrace, Family, Limit};

/// The most requests that are sent to an HTTP/2 server and dropped without a sign of it in between.
///
/// A server that was held up reads all of them at once, each with the RST_STREAM that followed it. It then takes them for an
/// attack (CVE-2023-44487), and closes the connection under the requests that still wait: h2 at more than 20.
const MAX_DROPPED: u32 = 16;

/// Opens the pool's connections, for requests with bodies of type `B`.
pub(crate) struct Dialer<B> {
    body: PhantomData<fn(B)>,
    /// Replaced as a whole when the client is reconfigured.
    connectors: RwLock<Arc<Connectors>>,
    files: Arc<FileWatch>,
}

impl<B> Dialer<B> {
    pub(in crate::client) fn new(connectors: Connectors, files: Arc<FileWatch>) -> Self {
        Self { body: PhantomData, connectors: RwLock::new(Arc::new(connectors)), files }
    }

    /// Returns the watch of the files that the connectors are made of.
    pub(in crate::client) fn files(&self) -> &Arc<FileWatch> {
        &self.files
    }

    /// Returns the connectors by which dials begin now.
    pub(in crate::client) fn connectors(&self) -> Arc<Connectors> {
        self.connectors.read().clone()
    }

    /// Replaces the connectors of dials that begin from now on.
    pub(in crate::client) fn replace(&self, connectors: Arc<Connectors>) {
        *self.connectors.write() = connectors;
    }

    /// Returns the connector by which a dial to `origin` begins now.
    pub(in crate::client) fn connector_for(&self, origin: &Origin) -> Arc<Connector> {
        self.connectors.read().find(origin).clone()
    }
}

impl<B: Message> Dial for Dialer<B> {
    type Key = PoolKey;
    type Opened = OpenedConn<B>;
    type Conn = Conn<B>;
    type Error = ConnectError;

    async fn dial(
        &self,
        key: &PoolKey,
        addresses: AddressWish,
        trace: &Arc<DialTrace>,
    ) -> Result<OpenedConn<B>, ConnectError> {
        // Boxed: the code that drops this future takes 5 kB, and would be repeated in each place where it may be dropped.
        let AddressWish { first, avoid } = addresses;
        if self.files.are_late() {
            self.files.read_in_time().boxed().await;
        }
        let connector = self.connector_for(&key.origin);
        connector.open(&key.origin, key.proxy.as_ref(), first, avoid, trace).boxed().await
    }

    fn start(
        &self,
        opened: OpenedConn<B>,
        slot: Slot,
        task: AbortHandle,
    ) -> (Started<Conn<B>>, impl Future<Output = ()> + Send + Unpin + use<B>) {
        let remote = opened.remote();
        let location = opened.name().zip(remote);
        let location = location.map(|((name, port), remote)| Location { name, ip: remote.ip(), port });
        let number = slot.connection();
        let reporter = slot.capacity_reporter();
        let (conn, serving) = opened.start(number, slot, task, move |capacity| match capacity {
            Capacity::Streams(count) => reporter.announce_streams(count),
            Capacity::NoMore => reporter.take_no_more(),
            Capacity::EnhanceYourCalm => reporter.back_off(),
            Capacity::Abandoned => reporter.abandon(),
        });
        let speaks = speaks(Some(conn.protocol()));
        (Started { conn, speaks, location, remote }, serving)
    }

    fn close(conn: &Conn<B>) {
        conn.close();
    }

    fn address(key: &PoolKey) -> (String, u16) {
        host_and_port(&key.origin)
    }

    fn speaks(&self, key: &PoolKey) -> Speaks {
        speaks(self.connector_for(&key.origin).known_protocol(&key.origin))
    }

    fn balanced(&self, key: &PoolKey) -> Option<BalancedHost> {
        let SpreadHost { name, port, pinned } =
            self.connector_for(&key.origin).spread(&key.origin, key.proxy.as_deref())?;
        Some(BalancedHost { name, port, pinned, seed: fastrand::u64(..) })
    }

    fn usable(&self, ips: &Arc<[IpAddr]>) -> Arc<[IpAddr]> {
        self.connectors().general().usable(ips)
    }

    fn lacking(error: &ConnectError) -> Option<Limit> {
        error.lacking()
    }

    fn answers(&self, now: Instant, name: &str) -> SmallVec<[Addresses; 2]> {
        let resolver = self.connectors().general().resolver.clone();
        let answers = Family::BOTH.into_iter().zip(resolver.peek(now, name));
        let known: SmallVec<[_; 2]> = answers.filter_map(|(family, known)| Some((family, known?))).collect();
        // An address that one answer lacks has moved if the next one lacks it too. Requests ask for that one only where they are frequent.
        for (family, _) in known.iter().filter(|(_, (known, _))| known.ttl().is_zero()) {
            resolver.touch_families(name, &[*family]);
        }
        let addresses = known.into_iter().map(|(family, (known, is_sure))| Addresses {
            family,
            ips: known.addresses().clone(),
            sockets: known.sockets().cloned(),
            ttl: known.ttl(),
            is_sure,
            serial: None,
        });
        addresses.collect()
    }
}

fn speaks(protocol: Option<Protocol>) -> Speaks {
    match protocol {
        Some(Protocol::Http1) => Speaks::Http1,
        Some(Protocol::Http2) => Speaks::Http2,
        None => Speaks::Unknown,
    }
}

impl<B: Message> Lease<Dialer<B>> {
    /// Retires the connection if it may be dead: nothing has come on it since its count of frames was `progress`, and
    /// the peer's system is not known to have acknowledged what was written. Called when a time limit of the request
    /// passes.
    pub(in crate::client) fn retire_if_silent(&mut self, progress: u64) {
        if self.conn().progress() == progress && !self.conn().is_acknowledged() {
            self.retire(CloseCause::Unfinished);
        }
    }

    /// Notes that a request was dropped before its response came; its connection's count of frames was `progress` at its
    /// start. Retires the connection after [`MAX_DROPPED`] of them without a sign of the server in between.
    pub(in crate::client) fn note_dropped(&mut self, progress: u64) {
        if self.conn().progress() == progress && self.conn().count_dropped() >= MAX_DROPPED {
            self.retire(CloseCause::Unfinished);
        }
    }
}

/// The key of pooled connections. Only requests with equal keys share a connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PoolKey {
    pub(in crate::client) origin: Origin,
    /// The request's own choice of a proxy; `None` if the client's proxies apply.
    pub(in crate::client) proxy: Option<Arc<ProxyChoice>>,
}

// Without a choice the hash is the origin's alone: it is computed for each request.
impl Hash for PoolKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.origin.hash(state);
        if let Some(proxy) = &self.proxy {
            proxy.hash(state);
        }
    }
}

impl From<Origin> for PoolKey {
    /// Creates the key of requests that leave the proxy to the client.
    fn from(origin: Origin) -> Self {
        Self { origin, proxy: None }
    }
}

/// The connectors of a client.
pub(in crate::client) struct Connectors {
    general: Arc<Connector>,
    /// The connectors of hosts with settings of their own.
    of_hosts: ByHost<Arc<Connector>>,
}

impl Connectors {
    pub(in crate::client) fn new(general: Arc<Connector>, of_hosts: ByHost<Arc<Connector>>) -> Self {
        Self { general, of_hosts }
    }

    /// Returns the connector of hosts without settings of their own.
    pub(in crate::client) fn general(&self) -> &Arc<Connector> {
        &self.general
    }

    /// Returns the connector of the hosts of this very pattern, if they have their own.
    pub(in crate::client) fn of(&self, hosts: &HostPattern) -> Option<&Arc<Connector>> {
        self.of_hosts.get(hosts)
    }

    /// Returns true if the requests to some hosts are balanced over their addresses.
    pub(in crate::client) fn balance_some_hosts(&self) -> bool {
        let mut all = self.of_hosts.iter().map(|(_, connector)| connector).chain([&self.general]);
        all.any(|connector| connector.addresses == connect::Addresses::Spread)
    }

    /// Returns the connector of an origin.
    pub(in crate::client) fn find(&self, origin: &Origin) -> &Arc<Connector> {
        if self.of_hosts.is_empty() {
            return &self.general;
        }
        let (host, port) = host_and_port(origin);
        self.of_hosts.find(&host, port).unwrap_or(&self.general)
    }
}

impl Connectors {
    /// Returns true if both, which have connectors for the same hosts, make the same TLS handshakes.
    pub(in crate::client) fn has_same_tls(&self, other: &Self) -> bool {
        let of_hosts = self.of_hosts.iter().zip(other.of_hosts.iter());
        let mut pairs = of_hosts.map(|((_, own), (_, other))| (own, other)).chain([(&self.general, &other.general)]);
        pairs.all(|(own, other)| own.tls.is_same(&other.tls))
    }
}

/// Returns the host and port by which an origin is found among host patterns.
pub(in crate::client) fn host_and_port(origin: &Origin) -> (String, u16) {
    // Only DNS knows the dot at the end of a fully qualified name.
    (origin.host().to_string().trim_end_matches('.').to_owned(), origin.port())
}
