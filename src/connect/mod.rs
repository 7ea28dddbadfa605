//! From an origin to a connection: resolve, race, shake hands.

mod addresses;
mod conn;
#[cfg(test)]
mod conn_tests;
mod connected;
mod error;
mod frames;
mod h2_pings;
mod h2_runtime;
mod h2_timer;
mod h2_watch;
mod handshake;
mod interim;
mod io;
mod io_record;
mod lookup;
mod message;
mod name_use;
mod no_proxy;
mod part_wakers;
mod protocol;
mod proxy;
mod serve;
mod streams;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use addresses::AddressPolicy;
pub use addresses::Addresses;
pub(crate) use conn::Conn;
use connected::ConnectedStream;
use error::is_exhaustion;
pub(crate) use error::{ConnectError, reason};
use futures_util::StreamExt;
pub(crate) use h2_runtime::has_body;
pub(crate) use handshake::HttpConfig;
use handshake::handshake;
use lookup::Lookups;
pub(crate) use message::{Message, SendError, Times};
pub(crate) use name_use::Interest;
pub(crate) use protocol::{Protocol, Versions};
use proxy::{Detour, NotLed};
pub(crate) use proxy::{Forwarding, Proxies};
pub use proxy::{Proxy, ProxyError};
pub(crate) use serve::Opened;
pub(crate) use streams::Capacity;

use crate::clock::{self, Instant};
use crate::dns::CachedResolver;
use crate::origin::{Host, Origin, Scheme};
use crate::race::{self, Failed, Field, Race, Scores, Way};
#[cfg(feature = "__tls")]
use crate::tls::{Shaken, Tls};
use crate::trace::{DialTrace, Event, Phase, TlsFacts};
use crate::transport::{self, Probe, Transport};

/// Opens connections.
pub(crate) struct Connector {
    pub(crate) resolver: CachedResolver,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) proxies: Proxies,
    /// The Unix domain socket that all connections lead to.
    #[cfg(unix)]
    pub(crate) unix: Option<Arc<std::path::Path>>,
    pub(crate) versions: Versions,
    pub(crate) addresses: Addresses,
    pub(crate) policy: AddressPolicy,
    pub(crate) scores: Scores,
    #[cfg(feature = "__tls")]
    pub(crate) tls: Tls,
    /// For proxies that want TLS themselves.
    #[cfg(feature = "__tls")]
    pub(crate) proxy_tls: Tls,
    /// Whether others speak over its lines, who do not know what a proxy wants to be shown.
    pub(crate) for_others: bool,
    pub(crate) http: HttpConfig,
    /// For everything from the lookup to the handshake.
    pub(crate) timeout: Duration,
    /// For the TLS handshake with one address.
    #[cfg(feature = "__tls")]
    pub(crate) tls_timeout: Duration,
}

impl Connector {
    /// Opens a connection to `origin` and begins to speak HTTP, telling `trace` what happens.
    pub(crate) async fn open<B: Message>(
        &self,
        origin: &Origin,
        trace: &Arc<DialTrace>,
    ) -> Result<Opened<B>, ConnectError> {
        let begun = trace.emit(Event::DialStart { origin: origin.clone() });
        let until = begun.checked_add(self.timeout);
        let opening = std::pin::pin!(async {
            let line = self.walk(origin, begun, until, trace).await?;
            self.shake(line, trace).await
        });
        self.in_time(until, opening, trace).await
    }

    /// The same for somebody else to speak over.
    #[cfg(feature = "hyper-util")]
    pub(crate) async fn open_line(
        &self,
        origin: &Origin,
        trace: &Arc<DialTrace>,
    ) -> Result<ConnectedStream, ConnectError> {
        let begun = trace.emit(Event::DialStart { origin: origin.clone() });
        let until = begun.checked_add(self.timeout);
        let line = self.in_time(until, std::pin::pin!(self.walk(origin, begun, until, trace)), trace).await?;
        trace.emit(Event::Opened { remote: line.remote });
        Ok(line)
    }

    /// The protocol of all connections to `origin`; `None` if each of them negotiates it by ALPN.
    pub(crate) fn speaks(&self, origin: &Origin) -> Option<Protocol> {
        self.versions.known_for(origin)
    }

    /// The protocol to speak on a connected stream.
    pub(crate) fn protocol(&self, connected: &ConnectedStream) -> Protocol {
        self.versions.negotiated(connected.tls.as_ref().and_then(|tls| tls.alpn.as_deref()))
    }

    async fn in_time<T>(
        &self,
        until: Option<Instant>,
        opening: Pin<&mut impl Future<Output = Result<T, ConnectError>>>,
        trace: &DialTrace,
    ) -> Result<T, ConnectError> {
        match clock::before(until, opening).await {
            Some(opened) => opened,
            None => Err(self.timed_out(trace)),
        }
    }

    async fn walk(
        &self,
        origin: &Origin,
        begun: Instant,
        until: Option<Instant>,
        trace: &Arc<DialTrace>,
    ) -> Result<ConnectedStream, ConnectError> {
        if let Some(detour) = self.detour(origin)? {
            // Boxed, because few dials make one, and none of the others is to be as large.
            return Box::pin(self.make_detour(origin, detour, until, trace)).await;
        }
        self.race(origin, None, origin, (begun, until), trace).await
    }

    async fn make_detour(
        &self,
        origin: &Origin,
        detour: Detour,
        until: Option<Instant>,
        trace: &Arc<DialTrace>,
    ) -> Result<ConnectedStream, ConnectError> {
        match detour {
            #[cfg(unix)]
            Detour::Unix(path) => {
                trace.emit(Event::UnixStart { path: path.clone() });
                let stream = transport::connect_unix(&path).await;
                let stream = stream.map_err(|error| ConnectError::Unix(path.clone(), error))?;
                let secured = self.secure(origin, None, stream, None, trace).await;
                let (stream, facts) = secured.map_err(|error| ConnectError::UnixTls(path, error))?;
                Ok(ConnectedStream { stream, tls: facts, remote: None, forwarding: None, interest: None, probe: None })
            }
            Detour::Through(way) => {
                let hosts = self.hosts_for(&way, origin.host(), trace).await?;
                let through = Through { way: &way, hosts };
                let reached = self.race(&way.proxy, Some(&through), origin, (clock::now(), until), trace).await;
                reached.map_err(|error| match error {
                    ConnectError::Resolve(_) | ConnectError::Refused(_) => {
                        ConnectError::NoProxy(way.proxy.clone(), error.into())
                    }
                    error => error,
                })
            }
        }
    }

    fn detour(&self, origin: &Origin) -> Result<Option<Detour>, ConnectError> {
        #[cfg(unix)]
        if let Some(path) = &self.unix {
            return Ok(Some(Detour::Unix(path.clone())));
        }
        Ok(self.proxies.find(origin).map_err(ConnectError::Proxies)?.map(Detour::Through))
    }

    /// Connects to an address of `target`, which is the origin or a proxy on the way to it. It is `now`, and there is time `until`
    /// the end of the connect timeout.
    async fn race(
        &self,
        target: &Origin,
        through: Option<&Through<'_>>,
        origin: &Origin,
        (now, until): (Instant, Option<Instant>),
        trace: &Arc<DialTrace>,
    ) -> Result<ConnectedStream, ConnectError> {
        let lookups = Lookups::default();
        // The policy is about origins; who names a proxy means it.
        let policy = if through.is_none() { &self.policy } else { &AddressPolicy::default() };
        let (families, answers) = self.resolve(target.host(), policy, &lookups, now, trace);
        let dial = |address: SocketAddr| self.transport.connect(address);
        let source = |ip| match self.transport.source_of((ip, target.port()).into()) {
            None => Way::Unknown,
            Some(Ok(source)) => Way::From(source),
            Some(Err(error)) if is_no_route(&error) => Way::Unreachable,
            Some(Err(_)) => Way::Unknown,
        };
        let host = match target.host() {
            Host::Name(name) => Some(name),
            Host::Ip(_) => None,
        };
        let spread = self.addresses == Addresses::Spread;
        let turn = host.filter(|_| spread).map(|host| self.scores.turn(now, host, target.port()));
        let field = Field { families, port: target.port(), host, scores: &self.scores, way: &source, turn };
        let rules = race::Config { until, ..race::Config::default() };
        let mut race = Race::new(rules, field, answers, dial, now, trace);
        let (mut spoiled, mut lost) = (false, None);
        loop {
            let Some((remote, stream)) = race.next().await else {
                let failed = race.into_failed();
                if failed.iter().any(|failed| self.is_exhausted(failed)) {
                    return Err(ConnectError::Exhausted(failed));
                }
                if let Some((through, error)) = through.zip(lost) {
                    return Err(ConnectError::Proxy(through.way.proxy.clone(), error));
                }
                return Err(if spoiled { ConnectError::Tls(failed) } else { lookups.explain(failed) });
            };
            let (stream, probe) = match through {
                None => {
                    let probe = Probe::of(&*stream);
                    (stream, probe)
                }
                // Boxed, because few dials have a proxy, and none of the others is to be as large.
                Some(through) => match Box::pin(self.lead_on(through, remote, stream, origin, trace)).await {
                    Ok(led) => led,
                    Err(NotLed { error, answered: true, .. }) => {
                        return Err(ConnectError::Proxy(through.way.proxy.clone(), Arc::new(error)));
                    }
                    Err(NotLed { error, .. }) if is_exhaustion(&error) => {
                        return Err(ConnectError::Exhausted(vec![(remote, Arc::new(error))]));
                    }
                    // Another address of the proxy's may do better.
                    Err(NotLed { error, .. }) => {
                        let error = Arc::new(error);
                        lost = Some(error.clone());
                        race.spoiled(remote, error);
                        continue;
                    }
                },
            };
            let forwarding = through.and_then(|through| self.forwarding(through.way, origin));
            let mut part_of_time = None;
            if through.is_some() {
                // The proxy has led on: from here on it is the origin that takes its time.
                race.proved();
            } else if origin.scheme() == Scheme::Https {
                part_of_time = race.part_of_time(clock::now());
            }
            match self.secure(origin, Some(remote), stream, part_of_time, trace).await {
                Ok((stream, facts)) => {
                    race.proved();
                    let interest = host.map(|name| Interest::new(&self.resolver, name, families, now));
                    return Ok(ConnectedStream {
                        stream,
                        tls: facts,
                        remote: Some(remote),
                        forwarding,
                        interest,
                        probe,
                    });
                }
                // It is not the proxy that would not do.
                Err(error) if through.is_some() => return Err(ConnectError::Tls(vec![(remote, error)])),
                Err(error) => {
                    spoiled = true;
                    race.spoiled(remote, error);
                }
            }
        }
    }

    /// Whether an attempt failed because there are no more sockets to be had. An address that cannot be assigned is a port
    /// that cannot be had only where there is an address to connect from at all.
    fn is_exhausted(&self, (address, error): &Failed) -> bool {
        let has_source = || matches!(self.transport.source_of(*address), Some(Ok(_)));
        is_exhaustion(error) && (error.kind() != std::io::ErrorKind::AddrNotAvailable || has_source())
    }

    /// Has a proxy lead on to the origin, unless it is to forward requests one by one. Also what looks at the socket below.
    async fn lead_on(
        &self,
        through: &Through<'_>,
        remote: SocketAddr,
        stream: Box<dyn transport::Stream>,
        origin: &Origin,
        trace: &DialTrace,
    ) -> Result<(Box<dyn transport::Stream>, Option<Probe>), NotLed> {
        let Through { way, hosts } = through;
        let mut probe = Probe::of(&*stream);
        trace.emit(Event::ProxyStart { proxy: way.proxy.clone() });
        let lost = |error| NotLed { error, answered: false, refused: false };
        let mut stream = self.secure_proxy(way, stream).await.map_err(lost)?;
        if self.forwarding(way, origin).is_none() {
            let mut hosts = hosts.iter().peekable();
            while let Some(host) = hosts.next() {
                match way.lead_on(stream, host, origin.port()).await {
                    Ok(led) => {
                        stream = led;
                        break;
                    }
                    // It may have a way to another address of the origin's.
                    Err(failed) if failed.refused && hosts.peek().is_some() => {
                        let again = self.transport.connect(remote).await.map_err(lost)?;
                        probe = Probe::of(&*again);
                        stream = self.secure_proxy(way, again).await.map_err(lost)?;
                    }
                    Err(failed) => return Err(failed),
                }
            }
        }
        trace.emit(Event::ProxyEnd);
        Ok((stream, probe))
    }

    /// How the proxy forwards requests to the origin, if it does: one that is to be spoken to in HTTP/2 is tunnelled to, and
    /// so is one whose requests could not show the proxy what it wants to see.
    fn forwarding(&self, way: &proxy::Way, origin: &Origin) -> Option<Forwarding> {
        let shows = |forwarding: &Forwarding| !(self.for_others && forwarding.authorization.is_some());
        way.forwards(origin).filter(|forwarding| self.versions != Versions::Http2 && shows(forwarding))
    }

    /// The origin's host as the proxy wants to have it: its name, or addresses of that name, in the order to try them. IPv4
    /// comes first: a proxy does not say what it has a way to.
    async fn hosts_for(
        &self,
        way: &proxy::Way,
        host: &Host,
        trace: &Arc<DialTrace>,
    ) -> Result<Vec<Host>, ConnectError> {
        self.permitted(host)?;
        if matches!(host, Host::Ip(_)) || !way.wants_addresses() {
            return Ok(vec![host.clone()]);
        }
        let (lookups, rules) = (Lookups::default(), race::Config::default());
        let (_, mut answers) = self.resolve(host, &self.policy, &lookups, clock::now(), trace);
        let (mut until, mut known) = (None, [const { Vec::new() }; 2]);
        while let Some(Some((family, addresses, at))) = clock::before(until, std::pin::pin!(answers.next())).await {
            if !addresses.is_empty() {
                until = until.or(Some(at + rules.resolution_delay));
            }
            known[family as usize] = addresses.to_vec();
        }
        let longest = known.iter().map(Vec::len).max().unwrap_or_default();
        let taking_turns = (0..longest).flat_map(|place| known.iter().filter_map(move |family| family.get(place)));
        let hosts: Vec<_> = taking_turns.take(rules.max_in_flight).map(|ip| Host::Ip(*ip)).collect();
        if hosts.is_empty() { Err(lookups.explain(Vec::new())) } else { Ok(hosts) }
    }

    fn permitted(&self, host: &Host) -> Result<(), ConnectError> {
        match host {
            Host::Ip(ip) if !self.policy.allows(*ip) => Err(ConnectError::Denied(*ip)),
            _ => Ok(()),
        }
    }

    async fn shake<B: Message>(&self, line: ConnectedStream, trace: &DialTrace) -> Result<Opened<B>, ConnectError> {
        let (protocol, remote) = (self.protocol(&line), line.remote);
        let begun = trace.emit(Event::HandshakeStart { version: protocol.version() });
        let opened = handshake(line, protocol, self.http).await.map_err(ConnectError::Handshake)?;
        // For HTTP/1.1 nothing is sent, nor waited for.
        let at = if protocol == Protocol::Http1 { begun } else { clock::now() };
        trace.emit_at(at, Event::Opened { remote });
        Ok(opened)
    }

    /// The stream to a proxy after the TLS handshake with it, where it wants one. The origin's configuration is used: its
    /// certificate, and nothing of HTTP/2.
    #[cfg(feature = "__tls")]
    async fn secure_proxy(
        &self,
        way: &proxy::Way,
        stream: Box<dyn transport::Stream>,
    ) -> std::io::Result<Box<dyn transport::Stream>> {
        if way.proxy.scheme() != Scheme::Https {
            return Ok(stream);
        }
        let shaking = Box::pin(self.proxy_tls.shake(stream, way.proxy.host()));
        Ok(Box::new(within(self.tls_timeout, shaking).await?.stream))
    }

    #[cfg(not(feature = "__tls"))]
    async fn secure_proxy(
        &self,
        _: &proxy::Way,
        stream: Box<dyn transport::Stream>,
    ) -> std::io::Result<Box<dyn transport::Stream>> {
        Ok(stream)
    }

    /// The stream after its TLS handshake, where the origin wants one. It may take the TLS timeout, and no more than its part of
    /// the connect timeout.
    #[cfg(feature = "__tls")]
    async fn secure(
        &self,
        origin: &Origin,
        remote: Option<SocketAddr>,
        stream: Box<dyn transport::Stream>,
        part_of_time: Option<Duration>,
        trace: &DialTrace,
    ) -> Result<Secured, Arc<std::io::Error>> {
        if origin.scheme() != Scheme::Https {
            return Ok((stream, None));
        }
        trace.emit(Event::TlsStart { address: remote });
        let limit = part_of_time.map_or(self.tls_timeout, |part| part.min(self.tls_timeout));
        // Boxed, because a handshake is large and most dials are waited for in the pool.
        let shaken = within(limit, Box::pin(self.tls.shake(stream, origin.host()))).await;
        match shaken {
            Ok(Shaken { stream, facts }) => {
                let facts = Arc::new(facts);
                trace.emit(Event::TlsEnd(facts.clone()));
                Ok((Box::new(stream), Some(facts)))
            }
            Err(error) => {
                let error = Arc::new(error);
                trace.emit(Event::TlsFailed { address: remote, error: error.clone() });
                Err(error)
            }
        }
    }

    #[cfg(not(feature = "__tls"))]
    async fn secure(
        &self,
        _: &Origin,
        _: Option<SocketAddr>,
        stream: Box<dyn transport::Stream>,
        _: Option<Duration>,
        _: &DialTrace,
    ) -> Result<Secured, Arc<std::io::Error>> {
        Ok((stream, None))
    }

    fn timed_out(&self, trace: &DialTrace) -> ConnectError {
        let events = trace.events();
        let dialling = events.iter().fold(0, |dialling, (_, event)| match event {
            Event::AttemptStart { .. } => dialling + 1,
            Event::AttemptEnd { .. } | Event::AttemptCancelled { .. } => dialling - 1,
            _ => dialling,
        });
        // The race is still there, and its attempts with it; without any, it was an answer that it waited for.
        let shaking = events.iter().rev().find_map(|(_, event)| match event {
            Event::TlsStart { .. } => Some(true),
            Event::TlsEnd(_) | Event::TlsFailed { .. } => Some(false),
            _ => None,
        });
        #[cfg(unix)]
        if let Some(path) = self.unix.as_ref().filter(|_| shaking.is_none()) {
            // Nothing else keeps a connect to a Unix domain socket waiting.
            let what = format!("its backlog was full for {:?}", self.timeout);
            return ConnectError::Unix(path.clone(), std::io::Error::new(std::io::ErrorKind::TimedOut, what));
        }
        let leading = events.iter().rev().find_map(|(_, event)| match event {
            Event::ProxyStart { .. } => Some(true),
            Event::ProxyEnd | Event::AttemptStart { .. } => Some(false),
            _ => None,
        });
        let phase = match dialling {
            _ if shaking == Some(true) => Phase::Tls,
            _ if leading == Some(true) => Phase::Proxy,
            1.. => Phase::Connect,
            _ => Phase::Dns,
        };
        let failed = events.into_iter().filter_map(|(_, event)| match event {
            Event::AttemptEnd { address, error: Some(error) } => Some((address, error)),
            Event::TlsFailed { address, error } => Some((address?, error)),
            _ => None,
        });
        ConnectError::Timeout { after: self.timeout, phase, failed: failed.collect() }
    }
}

/// Waits for a TLS handshake.
#[cfg(feature = "__tls")]
async fn within<T>(limit: Duration, shaking: impl Future<Output = std::io::Result<T>> + Unpin) -> std::io::Result<T> {
    let shaken = clock::before(clock::now().checked_add(limit), shaking).await;
    shaken.unwrap_or_else(|| {
        // In whole milliseconds: a part of some time has nanoseconds.
        let limit = Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let what = format!("no TLS handshake within {limit:?}");
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, what))
    })
}

/// Whether an error says that there is no way to an address, rather than that it could not be found out.
fn is_no_route(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), NetworkUnreachable | HostUnreachable | AddrNotAvailable)
}

/// A proxy, and what it is asked to lead on to: one of these.
struct Through<'a> {
    way: &'a proxy::Way,
    hosts: Vec<Host>,
}

/// A stream, and what its TLS handshake came to.
type Secured = (Box<dyn transport::Stream>, Option<Arc<TlsFacts>>);
