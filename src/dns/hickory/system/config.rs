//! The DNS configuration of the system.

use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::net::{IpAddr, Ipv4Addr, SocketAddrV6, ToSocketAddrs};
#[cfg(unix)]
use std::sync::Arc;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;

#[cfg(unix)]
use super::resolv_conf::{self, Nameserver};
use super::resolv_conf::{Options, Skipped};
use crate::dns::Family;
use crate::dns::hickory::servers::server::Server;

/// The servers to ask, and how names are searched for.
#[derive(Debug, Clone, Default)]
pub(in crate::dns::hickory) struct Plan {
    pub(in crate::dns::hickory) servers: Vec<Server>,
    /// True if no server is configured, and this machine is asked in case it is one.
    pub(in crate::dns::hickory) is_assumed: bool,
    /// The search list: the suffixes for names without a trailing dot.
    pub(in crate::dns::hickory) suffixes: Vec<Name>,
    pub(in crate::dns::hickory) options: Options,
    /// The only family to ask for; `None` for both.
    pub(in crate::dns::hickory) only: Option<Family>,
    /// The words of resolv.conf that were left out.
    pub(in crate::dns::hickory) skipped: Vec<Skipped>,
}

/// The usual port of DNS servers.
const PORT: u16 = 53;

impl Plan {
    /// Returns the plan for servers that the user has named.
    pub(in crate::dns::hickory) fn named(servers: &[Server]) -> Self {
        let options = Options { edns0: true, ..Options::default() };
        Self { servers: servers.to_vec(), options, ..Self::default() }
    }

    /// Reads the text of resolv.conf.
    #[cfg(unix)]
    pub(in crate::dns::hickory) fn parse(text: io::Result<Vec<u8>>) -> Result<Self, NetError> {
        let text = text.map_err(|error| NetError::Io(Arc::new(error)))?;
        let resolv_conf::ResolvConf { nameservers, search, options, mut skipped } = resolv_conf::parse(&text);
        let server = if options.use_vc { Server::by_tcp } else { Server::plain };
        let mut servers = Vec::new();
        for nameserver in &nameservers {
            match address(nameserver) {
                Some(address) => servers.push(server(address)),
                None => skipped.push(Skipped { line: nameserver.line, word: nameserver.to_string().into() }),
            }
        }
        let is_assumed = servers.is_empty();
        if is_assumed {
            servers.push(server((Ipv4Addr::LOCALHOST, PORT).into()));
        }
        let suffixes = search.unwrap_or_else(|| host_domain().into_iter().collect());
        let only = options.no_aaaa.then_some(Family::V4);
        Ok(Self { servers, is_assumed, suffixes, options, only, skipped })
    }

    /// Asks the platform for its configuration.
    #[cfg(not(unix))]
    pub(in crate::dns::hickory) fn parse(_: io::Result<Vec<u8>>) -> Result<Self, NetError> {
        let (config, hickory) = hickory_resolver::system_conf::read_system_conf()?;
        let suffixes = match config.search() {
            [] => config.domain().cloned().into_iter().collect(),
            search => search.to_vec(),
        };
        let servers = config.name_servers().iter().map(|server| {
            let port = server.connections.first().map_or(PORT, |connection| connection.port);
            Server::plain(SocketAddr::new(server.ip, port))
        });
        let options = Options { ndots: Some(hickory.ndots), edns0: hickory.edns0, ..Options::default() };
        Ok(Self { servers: servers.collect(), suffixes, options, ..Self::default() })
    }
}

/// Returns the address of a server, with the index of the network interface that leads to it. Returns `None` if there is no such
/// interface.
#[cfg(unix)]
fn address(server: &Nameserver) -> Option<SocketAddr> {
    match (server.ip, &server.scope) {
        // Other addresses are the same on all interfaces.
        (IpAddr::V6(ip), Some(scope)) if ip.is_unicast_link_local() => match scope.parse() {
            Ok(index) => Some(SocketAddrV6::new(ip, PORT, 0, index).into()),
            // The platform knows its interfaces by name. It makes no query for a numeric address.
            Err(_) => (&*server.to_string(), PORT).to_socket_addrs().ok()?.find(SocketAddr::is_ipv6),
        },
        (ip, _) => Some(SocketAddr::new(ip, PORT)),
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
    fn read(text: &str) -> Plan {
        Plan::parse(Ok(text.as_bytes().to_vec())).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn without_a_server_this_machine_is_asked() {
        for text in ["", "search a.test\n", "nameserver nowhere\n", "nameserver fe80::1%no_such_interface\n"] {
            let servers = read(text).servers;
            assert!(servers.len() == 1 && servers[0].address().ip() == Ipv4Addr::LOCALHOST, "{text:?}: {servers:?}");
        }
        let skipped = read("nameserver fe80::1%no_such_interface\nsearch x..y").skipped;
        let skipped: Vec<_> = skipped.iter().map(|skipped| (skipped.line, &*skipped.word)).collect();
        assert_eq!(skipped, [(2, "x..y"), (1, "fe80::1%no_such_interface")]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_scope_is_the_index_or_the_name_of_a_network_interface() {
        let loopback: u32 = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap().trim().parse().unwrap();
        let text = "nameserver fe80::1%7\nnameserver fe80::1%lo\nnameserver 2001:db8::1%lo\nnameserver 192.0.2.1\n";
        let addresses: Vec<_> = read(text).servers.iter().map(|server| server.address().to_string()).collect();
        let by_name = format!("[fe80::1%{loopback}]:53");
        assert_eq!(addresses, ["[fe80::1%7]:53", &by_name, "[2001:db8::1]:53", "192.0.2.1:53"]);
    }
}
