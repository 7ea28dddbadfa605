//! From an origin to a connection: resolve, race, secure, begin to speak HTTP.
//!
//! | step | file |
//! |---|---|
//! | which proxy, if any | `proxy/mod.rs`, `proxy/server.rs`, `proxy/no_proxy.rs` |
//! | addresses of the host | `resolve/lookup.rs`, by the settings in `resolve/mod.rs` |
//! | the first address that connects | the `race` module |
//! | the hosts whose requests are balanced over their addresses | `mod.rs` |
//! | the way through a proxy | `proxy/tunnel.rs`, `proxy/server.rs`; by CONNECT, `proxy/http_connect.rs`; by SOCKS5, `proxy/socks5.rs` |
//! | TLS, with a proxy too | `secure/mod.rs` |
//! | HTTP/1.1 or HTTP/2 | `io/mod.rs`, `conn/handshake.rs`, by the settings in `conn/http_config.rs` |
//! | the open connection | `conn/mod.rs`, and its task in `conn/handshake.rs` |
//! | the HTTP/2 task | `http2/runtime.rs`, `http2/timer.rs`, `http2/frames.rs`, `http2/mod.rs` |
//! | the bytes of another protocol after an upgrade | `conn/upgraded.rs` |
//! | the bytes of a connection | `conn/verbose.rs`, `io/stream_io.rs`, `io/io_record.rs`, `io/mod.rs`, `http2/watch.rs`, `http2/frames.rs` |
//! | the single steps of a dial, for a report | `probe.rs` |
//! | tower layers around a dial | `layers.rs` |
//! | failures | `error.rs` |

mod conn;
#[cfg(test)]
mod conn_tests;
mod dial;
mod error;
mod http2;
mod io;
mod layers;
#[cfg(feature = "doctor")]
mod probe;
mod proxy;
mod resolve;
mod secure;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::connect::io::io_record::DialWait;
use conn::handshake::handshake;
use error::is_exhaustion;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use proxy::server::ProxyServer;
use proxy::tunnel::{ProxyRoute, hosts_for, with_ports};
use resolve::lookup::NameLookup;
use secure::Security;

use crate::clock::{self, Instant};
use crate::connect::conn::ConnectedStream;
use crate::connect::error::TunnelError;
use crate::dns::CachedResolver;
use crate::origin::{Host, Origin};
use crate::race::{FailedAddress, Scores};
use crate::tls::Tls;
use crate::trace::{DialTrace, Event};
use crate::transport::{Probe, Transport, connect_unix};

pub(crate) use crate::connect::conn::handshake::OpenedConn;
pub(crate) use crate::connect::io::{ExchangeTimes, Message, SendError};
pub(crate) use crate::connect::resolve::AddressPolicy;
pub(crate) use conn::http_config::HttpConfig;
pub(crate) use conn::upgraded::UpgradedStream;
pub(crate) use conn::{Conn, Sent};
pub(crate) use error::ConnectError;
pub(crate) use http2::runtime::note_stream;
pub(crate) use http2::watch::ANSWERS_IN_HTTP1;
pub(crate) use proxy::server::Forwarding;
pub(crate) use proxy::{Proxies, is_name_of_this_machine};
pub(crate) use secure::{clause_after_handshake, is_of_proxy, tls_reason};

pub(crate) use crate::connect::error::refused_status;
pub(crate) use crate::connect::io::{Capacity, Protocol, Versions};
pub(crate) use crate::connect::proxy::ProxyChoice;
pub use crate::connect::resolve::Addresses;
#[cfg(feature = "hyper-util")]
pub(crate) use crate::connect::resolve::NameUse;
pub(crate) use crate::connect::resolve::lookup::Pins;
pub use error::ProxyError;
pub use layers::{ConnectorService, DialRequest, DialedStream};
#[cfg(feature = "doctor")]
pub(crate) use probe::{ProbeTarget, ProbedRoute};
pub use proxy::Proxy;
pub use proxy::no_proxy::NoProxy;

/// Opens connections, as a client's settings say.
pub(crate) struct Connector {
    pub(crate) resolver: CachedResolver,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) proxies: Proxies,
    /// The client's default `User-Agent`, which HTTP proxies are told when they are asked for a tunnel.
    pub(crate) user_agent: Option<HeaderValue>,
    /// The Unix domain socket that all connections lead to; `None` to connect to the origin's addresses.
    pub(crate) unix: Option<Arc<std::path::Path>>,
    pub(crate) versions: Versions,
    pub(crate) addresses: Addresses,
    pub(crate) policy: AddressPolicy,
    pub(crate) pins: Pins,
    /// The results of connecting to addresses. Shared by all connectors of a client.
    pub(crate) scores: Arc<Scores>,
    /// TLS with origins.
    pub(crate) tls: Tls,
    /// TLS with proxies.
    pub(crate) proxy_tls: Tls,
    /// True if the streams are for the pool of another crate, which cannot add a `Proxy-Authorization` header to
    /// requests.
    pub(crate) for_other_pools: bool,
    pub(crate) http: HttpConfig,
    /// True if the bytes of connections are logged.
    pub(crate) verbose: bool,
    /// True if errors do not show the bodies of proxies.
    pub(crate) hides_bodies: bool,
    /// The user's layers around each dial; `None` if there are none.
    pub(crate) layered: Option<ConnectorService>,
    /// The longest that a dial may take, from the lookup to the HTTP handshake.
    pub(crate) timeout: Duration,
    /// The longest that a TLS handshake with one address may take.
    pub(crate) tls_timeout: Duration,
}

/// The failures of a dial that led to no connection.
#[derive(Default)]
struct DialFailed {
    addresses: Vec<FailedAddress>,
    /// True if a TLS handshake was among the failures.
    has_tls_failed: bool,
}

/// The time limits of a dial, and its wishes about addresses.
#[derive(Clone, Copy)]
struct DialTerms {
    start: Instant,
    /// The time at which the connect timeout passes; `None` if that is too far away for the clock.
    end: Option<Instant>,
    /// The address that is dialled after others, which do well as far as is known.
    avoid: Option<IpAddr>,
    /// The address that is dialled before all others.
    first: Option<SocketAddr>,
}

impl Connector {
    /// Returns true if connections that `earlier` opened to `origin` may go on beside those of this connector, which took its place:
    /// neither a client certificate nor a trusted authority was removed, and the same servers are reached in the same way. `choice` is
    /// used in place of the client's proxies.
    pub(crate) fn continues(&self, earlier: &Self, origin: &Origin, choice: Option<&Arc<ProxyChoice>>) -> bool {
        if !self.is_without_tls(origin, choice) && !self.tls.includes(&earlier.tls) {
            return false;
        }
        if self.unix != earlier.unix {
            return false;
        }
        self.versions == earlier.versions && self.proxies.is_same(&earlier.proxies)
    }

    /// Returns true if it is known, without asking a function of the user, that TLS is no part of connections to `origin`. A proxy may
    /// be spoken to over TLS.
    fn is_without_tls(&self, origin: &Origin, choice: Option<&Arc<ProxyChoice>>) -> bool {
        origin.scheme() == crate::origin::Scheme::Http && choice.is_none() && self.proxies.surely_none_for(origin)
    }

    /// Opens a connection to `origin` and begins to speak HTTP on it. `choice` is used in place of the client's proxies. The
    /// address `first` is dialled before others, and `avoid` after them.
    pub(crate) async fn open<B: Message>(
        self: &Arc<Self>,
        origin: &Origin,
        choice: Option<&Arc<ProxyChoice>>,
        first: Option<SocketAddr>,
        avoid: Option<IpAddr>,
        trace: &Arc<DialTrace>,
    ) -> Result<OpenedConn<B>, ConnectError> {
        let terms = DialTerms { first, avoid, ..self.start(origin, trace) };
        let opening = std::pin::pin!(async {
            let connected = self.connect_in_layers(origin, choice, &terms, trace).await?;
            self.begin_http(connected, trace).await
        });
        self.within(&terms, opening, trace).await
    }

    /// Connects to `origin` for the pool of another crate, which speaks HTTP by itself.
    #[cfg(feature = "hyper-util")]
    pub(crate) async fn open_stream(
        self: &Arc<Self>,
        origin: &Origin,
        trace: &Arc<DialTrace>,
    ) -> Result<ConnectedStream, ConnectError> {
        let terms = self.start(origin, trace);
        let opening = std::pin::pin!(self.connect_in_layers(origin, None, &terms, trace));
        let connected = self.within(&terms, opening, trace).await?;
        let version = self.protocol(&connected).version();
        trace.emit(Event::HandshakeStart { version });
        trace.emit(Event::Opened { remote: connected.remote });
        Ok(connected)
    }

    /// Returns the protocol of all connections to `origin`; `None` if each of them negotiates it by ALPN.
    pub(crate) fn known_protocol(&self, origin: &Origin) -> Option<Protocol> {
        self.versions.known_for(origin)
    }

    /// Returns the protocol to speak on a connected stream.
    pub(crate) fn protocol(&self, connected: &ConnectedStream) -> Protocol {
        self.versions.negotiated(connected.tls.as_ref().and_then(|tls| tls.alpn.as_deref()))
    }

    /// Traces the start of a dial. Its time runs since it was asked for, as that of its request does.
    fn start(&self, origin: &Origin, trace: &DialTrace) -> DialTerms {
        let start = trace.emit(Event::DialStart { origin: origin.clone(), host: trace.host() });
        DialTerms { start, end: trace.asked_at().checked_add(self.timeout), avoid: None, first: None }
    }

    /// Waits for a dial until the connect timeout passes.
    async fn within<T>(
        &self,
        terms: &DialTerms,
        dial: Pin<&mut impl Future<Output = Result<T, ConnectError>>>,
        trace: &DialTrace,
    ) -> Result<T, ConnectError> {
        match clock::before(terms.end, dial).await {
            Some(opened) => opened,
            None => Err(self.timed_out(terms, trace)),
        }
    }

    /// Describes a dial that took longer than the connect timeout.
    fn timed_out(&self, terms: &DialTerms, trace: &DialTrace) -> ConnectError {
        let events = trace.events();
        let (now, phase) = (clock::now(), error::last_phase(&events));
        trace.note_timer(terms.end.unwrap_or(now), now, phase);
        match &self.unix {
            Some(path) => error::unix_timed_out(path, events, phase, self.timeout),
            None => error::timed_out(events, phase, self.timeout),
        }
    }

    /// Connects to `origin` through the user's layers, if there are any.
    async fn connect_in_layers(
        self: &Arc<Self>,
        origin: &Origin,
        choice: Option<&Arc<ProxyChoice>>,
        terms: &DialTerms,
        trace: &Arc<DialTrace>,
    ) -> Result<ConnectedStream, ConnectError> {
        if let Some(layered) = &self.layered {
            let dial = {
                let connector = self.clone();
                let origin = origin.clone();
                let choice = choice.cloned();
                let terms = *terms;
                let trace = trace.clone();
                move || -> BoxFuture<'static, _> {
                    Box::pin(async move { connector.connect(&origin, choice.as_deref(), &terms, &trace).await })
                }
            };
            return Box::pin(layered.clone().open(DialRequest::new(origin.clone(), dial))).await;
        }
        self.connect(origin, choice.map(Arc::as_ref), terms, trace).await
    }

    /// Connects to `origin` by the way that the settings name: a Unix domain socket, a proxy, or its own addresses.
    ///
    /// The first two are boxed because few dials need them, and the future of all other dials would be as large.
    async fn connect(
        &self,
        origin: &Origin,
        choice: Option<&ProxyChoice>,
        terms: &DialTerms,
        trace: &DialTrace,
    ) -> Result<ConnectedStream, ConnectError> {
        if let Some(path) = &self.unix {
            if choice.is_some_and(|choice| !choice.is_none()) {
                return Err(ConnectError::ProxyBesideUnixSocket);
            }
            return Box::pin(self.connect_by_unix_socket(path, origin, trace)).await;
        }
        let server = match choice {
            Some(choice) => choice.find(origin),
            None => self.proxies.find(origin),
        };
        // Without the server itself, for which this future would hold room while it connects directly.
        let by_proxy = server
            .map_err(ConnectError::InvalidProxy)?
            .map(|server| Box::pin(async move { self.connect_by_proxy(&server, origin, terms, trace).await }));
        match by_proxy {
            Some(dial) => dial.await,
            None => self.connect_directly(origin, terms, trace).await,
        }
    }

    /// Connects to one of the origin's addresses.
    async fn connect_directly(
        &self,
        origin: &Origin,
        terms: &DialTerms,
        trace: &DialTrace,
    ) -> Result<ConnectedStream, ConnectError> {
        let lookup = NameLookup::new(&self.resolver, &self.policy, &self.pins, trace);
        let answers = lookup.answers(origin.host(), self.families_of(origin), terms.start);
        let dialled = self.dial(origin, &lookup, answers, terms, trace).await;
        dialled.map_err(|failed| self.explain(&lookup, failed))
    }

    /// Connects to `origin` through a proxy. If the connection to an address of the proxy breaks, the next one is
    /// tried; an answer of the proxy is final.
    async fn connect_by_proxy(
        &self,
        server: &ProxyServer,
        origin: &Origin,
        terms: &DialTerms,
        trace: &DialTrace,
    ) -> Result<ConnectedStream, ConnectError> {
        let route = self.proxy_route(server, origin, terms.end, trace).await?;
        let terms = &DialTerms { start: clock::now(), ..*terms };
        let proxy = &server.origin;
        // The policy is about origins. A proxy that the user names may have any address.
        let policy = AddressPolicy::default();
        let lookup = NameLookup::new(&self.resolver, &policy, &self.pins, trace);
        let reach = self.reach(proxy, &[]);
        let answers = lookup.answers(proxy.host(), self.families_of(proxy), terms.start);
        let mut race = self.race(&reach, answers, terms, trace);
        let mut tunnel_error = None;
        let mut tls_failed = None;
        let mut next_host = 0;
        loop {
            let wait = DialWait { dial: terms.start, race: clock::now() };
            let Some((remote, stream, at)) = race.next().await else { break };
            wait.note_connected(at, remote, Probe::of(&*stream).as_ref(), trace);
            let mut stream = stream;
            let failed = loop {
                let (tunnel, probe) = match route.open(remote, stream, &mut next_host).await {
                    Ok(opened) => opened,
                    Err(failed) => break failed,
                };
                // From here on it is the origin that takes its time, so the proxy's address has done well.
                race.confirm();
                match self.security().secure(origin, Some(remote), tunnel, None, probe.as_ref(), trace).await {
                    Ok((stream, tls)) => {
                        let (remote, forwarding) = (Some(remote), route.forwarding.map(Box::new));
                        let name_use = self.name_use(proxy, terms, None);
                        return Ok(ConnectedStream { stream, tls, remote, forwarding, name_use, probe });
                    }
                    // The connection to an `https` proxy may end with an alert while the origin shakes hands.
                    Err(error) if is_of_proxy(&error) => return Err(ConnectError::Proxy(proxy.clone(), error)),
                    Err(error) if !route.has_hosts_left(next_host) => {
                        return Err(ConnectError::TunnelTls(proxy.clone(), error));
                    }
                    // Another address of the origin may do better, as without a proxy.
                    Err(error) => {
                        tls_failed = Some(error);
                        match self.transport.connect(remote).await {
                            Ok(again) => stream = again,
                            Err(error) => break TunnelError::Unanswered(error),
                        }
                    }
                }
            };
            match failed {
                // That says more than what became of the other addresses.
                TunnelError::Refused(_) | TunnelError::HostRefused(_) if tls_failed.is_some() => break,
                TunnelError::Refused(error) | TunnelError::HostRefused(error) => {
                    return Err(ConnectError::Proxy(proxy.clone(), Arc::new(error)));
                }
                TunnelError::Unanswered(error) if is_exhaustion(&error) => {
                    return Err(ConnectError::Exhausted(vec![(remote, Arc::new(error))]));
                }
                TunnelError::Unanswered(error) => {
                    let error = Arc::new(error);
                    tunnel_error = Some(error.clone());
                    race.reject(remote, error);
                }
            }
        }
        let failed = race.into_failed();
        if self.failed_by_exhaustion(&failed) {
            return Err(ConnectError::Exhausted(failed));
        }
        if let Some(error) = tls_failed {
            Err(ConnectError::TunnelTls(proxy.clone(), error))
        } else if let Some(error) = tunnel_error {
            Err(ConnectError::Proxy(proxy.clone(), error))
        } else {
            Err(ConnectError::ProxyUnreachable(proxy.clone(), lookup.explain(failed).into()))
        }
    }

    /// Connects to the Unix domain socket at `path` for requests to `origin`.
    async fn connect_by_unix_socket(
        &self,
        path: &Arc<std::path::Path>,
        origin: &Origin,
        trace: &DialTrace,
    ) -> Result<ConnectedStream, ConnectError> {
        trace.emit(Event::UnixStart { path: path.clone() });
        let stream = connect_unix(path).await.map_err(|error| ConnectError::Unix(path.clone(), error.into()))?;
        let secured = self.security().secure(origin, None, stream, None, None, trace).await;
        let (stream, tls) = secured.map_err(|error| ConnectError::UnixTls(path.clone(), error))?;
        Ok(ConnectedStream { stream, tls, remote: None, forwarding: None, name_use: None, probe: None })
    }

    /// Begins to speak HTTP on a connected stream.
    async fn begin_http<B: Message>(
        &self,
        connected: ConnectedStream,
        trace: &DialTrace,
    ) -> Result<OpenedConn<B>, ConnectError> {
        let protocol = self.protocol(&connected);
        let remote = connected.remote;
        let connected = match self.verbose {
            true => ConnectedStream { stream: conn::verbose(connected.stream), ..connected },
            false => connected,
        };
        let start = trace.emit(Event::HandshakeStart { version: protocol.version() });
        let opened =
            handshake(connected, protocol, self.http).await.map_err(|error| ConnectError::Handshake(error.into()))?;
        let end = match protocol {
            // Nothing is sent or waited for, so the clock need not be read again.
            Protocol::Http1 => start,
            Protocol::Http2 => clock::now(),
        };
        trace.emit_at(end, Event::Opened { remote });
        Ok(opened)
    }

    /// Prepares the way through a proxy: looks up the origin's addresses if the proxy wants them.
    async fn proxy_route<'a>(
        &'a self,
        server: &'a ProxyServer,
        origin: &Origin,
        end: Option<Instant>,
        trace: &'a DialTrace,
    ) -> Result<ProxyRoute<'a>, ConnectError> {
        let host = origin.host();
        let hosts = match host {
            Host::Ip(ip) if !self.policy.allows(*ip) => return Err(ConnectError::Denied(*ip)),
            Host::Name(_) if server.wants_addresses() => {
                let lookup = NameLookup::new(&self.resolver, &self.policy, &self.pins, trace);
                let hosts = hosts_for(&lookup, host, self.families_of(origin)).await?;
                let is_balanced = self.addresses == Addresses::Spread;
                let own = if is_balanced { self.pins.sockets(origin) } else { lookup.sockets(origin) };
                with_ports(hosts, origin.port(), &own)
            }
            Host::Name(name) => match self.denied(host, name) {
                Some(denied) => return Err(ConnectError::Denied(denied)),
                None => vec![(host.clone(), origin.port())],
            },
            Host::Ip(_) => vec![(host.clone(), origin.port())],
        };
        Ok(ProxyRoute {
            server,
            forwarding: self.forwarding(server, origin),
            hosts,
            user_agent: self.user_agent.as_ref(),
            hides_bodies: self.hides_bodies,
            security: self.proxy_security(),
            transport: &*self.transport,
            trace,
            end,
        })
    }

    /// Returns an address that a name stands for, if none of those is allowed. Of a name that a proxy resolves by itself only these are
    /// known: names of this machine (RFC 6761 §6.3), and those whose addresses the user has set.
    fn denied(&self, host: &Host, name: &str) -> Option<IpAddr> {
        let known: Vec<IpAddr> = match self.pins.of(host) {
            Some(pinned) => pinned.iter().map(SocketAddr::ip).collect(),
            None if is_name_of_this_machine(name) => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            None => return None,
        };
        known.first().copied().filter(|_| !known.iter().any(|ip| self.policy.allows(*ip)))
    }

    /// Returns how the proxy forwards requests to `origin`; `None` if they need a tunnel. HTTP/2 by prior knowledge
    /// does, and so do requests that cannot be given the proxy's credentials.
    fn forwarding(&self, server: &ProxyServer, origin: &Origin) -> Option<Forwarding> {
        let forwarding = server.forwards(origin)?;
        if self.versions == Versions::Http2 {
            return None;
        }
        if self.for_other_pools && (forwarding.authorization.is_some() || !forwarding.headers.is_empty()) {
            return None;
        }
        Some(forwarding)
    }

    /// Returns the TLS settings for proxies.
    fn proxy_security(&self) -> Security<'_> {
        Security { tls: &self.proxy_tls, ..self.security() }
    }
}

/// A host whose requests are balanced over its addresses.
pub(crate) struct SpreadHost {
    pub(crate) name: Arc<str>,
    pub(crate) port: u16,
    /// The addresses that the user has set; empty if DNS is asked.
    pub(crate) pinned: Vec<SocketAddr>,
}

impl Connector {
    /// Returns the host of `origin` if requests are balanced over its addresses: if the settings say so, it has a name, and no proxy
    /// and no Unix domain socket is in between. Calls no function of the user.
    pub(crate) fn spread(&self, origin: &Origin, choice: Option<&ProxyChoice>) -> Option<SpreadHost> {
        if self.addresses != Addresses::Spread || self.has_unix_socket() {
            return None;
        }
        let is_direct = match choice {
            Some(choice) => choice.surely_none_for(origin),
            None => self.proxies.surely_none_for(origin),
        };
        let name = origin.name().filter(|_| is_direct)?.clone();
        Some(SpreadHost { name, port: origin.port(), pinned: self.pins.sockets(origin) })
    }

    /// Returns the addresses of a DNS answer that the client may dial.
    pub(crate) fn usable(&self, ips: &Arc<[IpAddr]>) -> Arc<[IpAddr]> {
        self.policy.filter(ips)
    }

    fn has_unix_socket(&self) -> bool {
        self.unix.is_some()
    }
}
