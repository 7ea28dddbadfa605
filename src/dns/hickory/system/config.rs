//! The DNS configuration of the system.

use std::io;
#[cfg(unix)]
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
#[cfg(unix)]
use std::sync::Arc;

use hickory_resolver::config::ConnectionConfig;
#[cfg(not(unix))]
use hickory_resolver::config::{NameServerConfig, ProtocolConfig};
use hickory_resolver::net::NetError;
#[cfg(unix)]
use hickory_resolver::proto::rr::Name;

use super::resolv_conf::Options;
#[cfg(unix)]
use super::resolv_conf::{self, Nameserver};
use crate::dns::hickory::search::Plan;
#[cfg(unix)]
use crate::dns::hickory::search::Skipped;
use crate::dns::hickory::search::list::SearchList;
use crate::dns::hickory::servers::server::{Endpoint, Server};

/// The DNS configuration of the system.
pub(in crate::dns::hickory) struct SystemConfig {
    pub(in crate::dns::hickory) plan: Plan,
    pub(in crate::dns::hickory) options: Options,
}

impl SystemConfig {
    /// Returns the configuration for servers that the user has named.
    pub(in crate::dns::hickory) fn named(servers: &[Server]) -> Self {
        let plan = Plan { servers: servers.iter().map(Server::endpoint).collect(), ..Plan::default() };
        Self { plan, options: Options { edns0: true, ..Options::default() } }
    }
}

#[cfg(unix)]
impl SystemConfig {
    /// Reads the text of resolv.conf.
    pub(in crate::dns::hickory) fn parse(text: io::Result<Vec<u8>>) -> Result<Self, NetError> {
        let text = text.map_err(|error| NetError::Io(Arc::new(error)))?;
        let conf = resolv_conf::parse(&text);
        let options = conf.options;
        let mut skipped = conf.skipped;
        let endpoint = |ip, scope| Endpoint {
            ip,
            scope,
            udp: if options.use_vc { None } else { Some(ConnectionConfig::udp()) },
            connection: Some(ConnectionConfig::tcp()),
        };
        let mut servers = Vec::new();
        for server in &conf.nameservers {
            match scope_id(server) {
                Some(scope) => servers.push(endpoint(server.ip, scope)),
                None => skipped.push(Skipped { line: server.line, word: server.to_string().into() }),
            }
        }
        let is_assumed = servers.is_empty();
        if is_assumed {
            servers.push(endpoint(Ipv4Addr::LOCALHOST.into(), 0));
        }
        let suffixes = conf.search.unwrap_or_else(|| host_domain().into_iter().collect());
        let ndots = options.ndots.unwrap_or(1);
        let plan = Plan {
            servers,
            is_assumed,
            search_list: SearchList { suffixes, ndots, no_tld_query: options.no_tld_query },
            rotate: options.rotate,
            single_request: options.single_request,
            only: None,
            skipped,
        };
        Ok(Self { plan, options })
    }
}

#[cfg(not(unix))]
impl SystemConfig {
    /// Asks the platform for its configuration.
    pub(in crate::dns::hickory) fn parse(_: io::Result<Vec<u8>>) -> Result<Self, NetError> {
        let (config, hickory) = hickory_resolver::system_conf::read_system_conf()?;
        let suffixes = match config.search() {
            [] => config.domain().cloned().into_iter().collect(),
            search => search.to_vec(),
        };
        let endpoint = |server: &NameServerConfig| {
            let of = |is_udp: bool| {
                move |connection: &&ConnectionConfig| (connection.protocol == ProtocolConfig::Udp) == is_udp
            };
            let [udp, connection] = [true, false].map(|is_udp| server.connections.iter().find(of(is_udp)).cloned());
            Endpoint { ip: server.ip, scope: 0, udp, connection }
        };
        let servers = config.name_servers().iter().map(endpoint).collect();
        let search_list = SearchList { suffixes, ndots: hickory.ndots, no_tld_query: false };
        let plan = Plan { servers, search_list, ..Plan::default() };
        Ok(Self { plan, options: Options { edns0: hickory.edns0, ..Options::default() } })
    }
}

/// Returns the index of the network interface that leads to a server, zero for none in particular. Returns `None` if there is
/// no such interface.
#[cfg(unix)]
fn scope_id(server: &Nameserver) -> Option<u32> {
    let (IpAddr::V6(ip), Some(scope)) = (server.ip, &server.scope) else { return Some(0) };
    // Other addresses are the same on all interfaces.
    if !ip.is_unicast_link_local() {
        return Some(0);
    }
    if let Ok(index) = scope.parse() {
        return Some(index);
    }
    // The platform knows its interfaces by name. It makes no query for a numeric address.
    match (&*server.to_string(), 0).to_socket_addrs().ok()?.next()? {
        SocketAddr::V6(address) => Some(address.scope_id()),
        SocketAddr::V4(_) => None,
    }
}

/// Returns the domain of this machine's name, which is the search list of a file without one.
#[cfg(unix)]
fn host_domain() -> Option<Name> {
    let machine = rustix::system::uname();
    let (_, domain) = machine.nodename().to_str().ok()?.split_once('.')?;
    resolv_conf::suffix(domain)
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use super::*;

    #[cfg(unix)]
    fn read(text: &str) -> SystemConfig {
        SystemConfig::parse(Ok(text.as_bytes().to_vec())).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn without_a_server_this_machine_is_asked() {
        for text in ["", "search a.test\n", "nameserver nowhere\n", "nameserver fe80::1%no_such_interface\n"] {
            let servers = read(text).plan.servers;
            assert!(servers.len() == 1 && servers[0].ip == Ipv4Addr::LOCALHOST, "{text:?}: {servers:?}");
        }
        let skipped = read("nameserver fe80::1%no_such_interface\nsearch x..y").plan.skipped;
        let skipped: Vec<_> = skipped.iter().map(|skipped| (skipped.line, &*skipped.word)).collect();
        assert_eq!(skipped, [(2, "x..y"), (1, "fe80::1%no_such_interface")]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_scope_is_the_index_or_the_name_of_a_network_interface() {
        let loopback = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap().trim().parse().unwrap();
        let text = "nameserver fe80::1%7\nnameserver fe80::1%lo\nnameserver 2001:db8::1%lo\nnameserver 192.0.2.1\n";
        let scopes: Vec<u32> = read(text).plan.servers.iter().map(|server| server.scope).collect();
        assert_eq!(scopes, [7, loopback, 0, 0]);
        let server: std::net::SocketAddr = "[fe80::1%7]:53".parse().unwrap();
        assert_eq!(Server::plain(server).endpoint().scope, 7);
    }
}
