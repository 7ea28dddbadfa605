//! The way through a proxy: TLS to the proxy if it wants that, then a tunnel to the origin unless the proxy forwards
//! requests.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;

use futures_util::StreamExt;
use http::HeaderValue;
use http::header::USER_AGENT;

use super::http_connect::{self, ConnectHeaders};
use super::server::{Forwarding, ProxyProtocol, ProxyServer};
use super::socks5;
use crate::clock::{self, Instant};
use crate::connect::error::{ConnectError, TunnelError};
use crate::connect::io::io_record::DialRead;
use crate::connect::resolve::lookup::NameLookup;
use crate::connect::secure::Security;
use crate::origin::Host;
use crate::race;
use crate::trace::{DialTrace, Event, Family, Phase};
use crate::transport::{Probe, Stream, Transport};

/// A way through a proxy to an origin.
pub(in crate::connect) struct ProxyRoute<'a> {
    pub(in crate::connect) server: &'a ProxyServer,
    /// Set if the proxy forwards the origin's requests one by one; otherwise it is asked for a tunnel.
    pub(in crate::connect) forwarding: Option<Forwarding>,
    /// The origin's host and port as the proxy is asked for them: its name, or its addresses in the order to try them.
    pub(in crate::connect) hosts: Vec<(Host, u16)>,
    /// The client's default `User-Agent`, which HTTP proxies are told.
    pub(in crate::connect) user_agent: Option<&'a HeaderValue>,
    /// True if errors do not show the body of a refusal.
    pub(in crate::connect) hides_bodies: bool,
    /// TLS with the proxy itself.
    pub(in crate::connect) security: Security<'a>,
    pub(in crate::connect) transport: &'a dyn Transport,
    pub(in crate::connect) trace: &'a DialTrace,
    /// The end of the dial's time; `None` if it has no limit.
    pub(in crate::connect) end: Option<Instant>,
}

impl ProxyRoute<'_> {
    /// Turns `stream`, which is connected to the proxy at `remote`, into one for requests to the origin. Also returns a
    /// probe of the socket below it. The proxy is asked for the hosts from `next_host` on, which counts those it was asked for.
    pub(in crate::connect) async fn open(
        &self,
        remote: SocketAddr,
        stream: Box<dyn Stream>,
        next_host: &mut usize,
    ) -> Result<(Box<dyn Stream>, Option<Probe>), TunnelError> {
        self.trace.emit(Event::ProxyStart { proxy: self.server.origin.clone() });
        let opened = match self.forwarding {
            Some(_) => {
                let probe = Probe::of(&*stream);
                (self.secure(stream, probe.as_ref()).await?, probe)
            }
            None => self.open_tunnel(remote, stream, next_host).await?,
        };
        self.trace.emit(Event::ProxyEnd);
        Ok(opened)
    }

    /// Asks the proxy for a tunnel to one of the hosts after the other, from `next_host` on. A refusal ends the stream, so each
    /// further host has a connection of its own. A host that is not the last one has half of the time that is left.
    async fn open_tunnel(
        &self,
        remote: SocketAddr,
        mut stream: Box<dyn Stream>,
        next_host: &mut usize,
    ) -> Result<(Box<dyn Stream>, Option<Probe>), TunnelError> {
        loop {
            let probe = Probe::of(&*stream);
            let mut secured = self.secure(stream, probe.as_ref()).await?;
            let Some((host, port)) = self.hosts.get(*next_host) else { return Ok((secured, probe)) };
            let is_last = *next_host + 1 == self.hosts.len();
            let now = clock::now();
            let limit = self.end.filter(|_| !is_last).map(|end| now + (end - now) / 2);
            let reading = self.reading(probe.as_ref());
            let asked = reading.until(limit, pin!(self.request_tunnel(&mut secured, host, *port))).await;
            match asked.unwrap_or_else(|| Err(TunnelError::silent_about(host))) {
                Ok(()) => {
                    *next_host += 1;
                    return Ok((secured, probe));
                }
                Err(TunnelError::HostRefused(_)) if !is_last => {
                    *next_host += 1;
                    stream = self.transport.connect(remote).await.map_err(TunnelError::Unanswered)?;
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    /// Returns true if the proxy can be asked for another host of those that it has not been asked for.
    pub(in crate::connect) fn has_hosts_left(&self, next_host: usize) -> bool {
        next_host < self.hosts.len()
    }

    /// Shakes hands with the proxy, if it is spoken to over TLS.
    async fn secure(&self, stream: Box<dyn Stream>, probe: Option<&Probe>) -> Result<Box<dyn Stream>, TunnelError> {
        let secured = self.security.secure_proxy(&self.server.origin, stream, self.reading(probe));
        secured.await.map_err(TunnelError::Unanswered)
    }

    fn reading<'a>(&'a self, probe: Option<&'a Probe>) -> DialRead<'a> {
        DialRead { phase: Phase::Proxy, probe, trace: self.trace }
    }

    /// Asks the proxy at the other end of `stream` to connect to `host`, in its own protocol.
    async fn request_tunnel(&self, stream: &mut Box<dyn Stream>, host: &Host, port: u16) -> Result<(), TunnelError> {
        match &self.server.protocol {
            ProxyProtocol::Http { authorization, headers } => {
                let headers = ConnectHeaders {
                    authorization: authorization.as_ref(),
                    user_agent: self.user_agent.filter(|_| !headers.contains_key(USER_AGENT)),
                    added: Some(headers),
                };
                http_connect::connect(stream, host, port, headers, self.hides_bodies).await
            }
            ProxyProtocol::Socks5 { credentials, .. } => {
                socks5::connect(stream, host, port, credentials.as_ref()).await
            }
        }
    }
}

/// Looks up the addresses to ask a proxy for, in the order to try them: the families take turns, IPv4 first, because a
/// proxy does not say which of them it can reach. After the first addresses, the other family has the race's resolution
/// delay to answer.
pub(in crate::connect) async fn hosts_for(
    lookup: &NameLookup<'_>,
    host: &Host,
    families: &[Family],
) -> Result<Vec<Host>, ConnectError> {
    let config = race::Config::default();
    let mut answers = lookup.answers(host, families, clock::now());
    let mut deadline = None;
    let mut known = [const { Vec::new() }; 2];
    while let Some(Some((family, addresses, at))) = clock::before(deadline, std::pin::pin!(answers.next())).await {
        if deadline.is_none() && !addresses.is_empty() {
            deadline = Some(at + config.resolution_delay);
        }
        known[family as usize] = addresses.to_vec();
    }
    let hosts = taking_turns(&known, config.max_in_flight);
    if hosts.is_empty() { Err(lookup.explain(Vec::new())) } else { Ok(hosts) }
}

/// Adds the port to each host: that of the origin, or those that its address has of its own.
pub(in crate::connect) fn with_ports(hosts: Vec<Host>, port: u16, own: &[SocketAddr]) -> Vec<(Host, u16)> {
    let ports_of = |host: &Host| {
        let is_host = |address: &&SocketAddr| matches!(host, Host::Ip(ip) if *ip == address.ip());
        let ports: Vec<_> = own.iter().filter(is_host).map(SocketAddr::port).collect();
        if ports.is_empty() { vec![port] } else { ports }
    };
    hosts.into_iter().flat_map(|host| ports_of(&host).into_iter().map(move |port| (host.clone(), port))).collect()
}

/// Takes the first address of each family, then the second of each, and so on, up to `max` addresses.
fn taking_turns(families: &[Vec<IpAddr>; 2], max: usize) -> Vec<Host> {
    let longest = families.iter().map(Vec::len).max().unwrap_or_default();
    let turns = (0..longest).flat_map(|turn| families.iter().filter_map(move |addresses| addresses.get(turn)));
    turns.take(max).map(|ip| Host::Ip(*ip)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_families_take_turns_and_ipv4_is_first() {
        let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let families = [ips(&["192.0.2.1"]), ips(&["2001:db8::1", "2001:db8::2", "2001:db8::3"])];
        let hosts = |max| taking_turns(&families, max).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(hosts(3), ["192.0.2.1", "[2001:db8::1]", "[2001:db8::2]"]);
        assert_eq!(hosts(1), ["192.0.2.1"]);
    }
}
