//! The DNS configuration of the system.

use std::io;
#[cfg(unix)]
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
#[cfg(unix)]
use std::sync::Arc;

#[cfg(unix)]
use hickory_resolver::config::NameServerConfig;
use hickory_resolver::config::ResolverOpts;
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
use crate::dns::hickory::servers::server::Endpoint;

/// The DNS configuration of the system.
pub(in crate::dns::hickory) struct SystemConfig {
    pub(in crate::dns::hickory) plan: Plan,
    pub(in crate::dns::hickory) options: Options,
    pub(in crate::dns::hickory) hickory: ResolverOpts,
}

#[cfg(unix)]
impl SystemConfig {
    /// Reads the text of resolv.conf.
    pub(in crate::dns::hickory) fn parse(text: io::Result<Vec<u8>>) -> Result<Self, NetError> {
        let text = text.map_err(|error| NetError::Io(Arc::new(error)))?;
        let conf = resolv_conf::parse(&text);
        let options = conf.options;
        let mut skipped = conf.skipped;
        let config = if options.use_vc { NameServerConfig::tcp } else { NameServerConfig::udp_and_tcp };
        let mut servers = Vec::new();
        for server in &conf.nameservers {
            match scope_id(server) {
                Some(scope) => servers.push(Endpoint { config: config(server.ip), scope }),
                None => skipped.push(Skipped { line: server.line, word: server.to_string().into() }),
            }
        }
        let is_assumed = servers.is_empty();
        if is_assumed {
            servers.push(Endpoint { config: config(Ipv4Addr::LOCALHOST.into()), scope: 0 });
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
        let hickory = with_edns(ResolverOpts::default(), options.edns0);
        Ok(Self { plan, options, hickory })
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
        let servers =
            config.name_servers().iter().map(|config| Endpoint { config: config.clone(), scope: 0 }).collect();
        let search_list = SearchList { suffixes, ndots: hickory.ndots, no_tld_query: false };
        let plan = Plan { servers, search_list, ..Plan::default() };
        Ok(Self { plan, options: Options::default(), hickory })
    }
}

#[cfg(unix)]
fn with_edns(mut hickory: ResolverOpts, edns: bool) -> ResolverOpts {
    hickory.edns0 = edns;
    hickory
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
    #[cfg(target_os = "linux")]
    use crate::dns::Server;

    #[cfg(unix)]
    fn read(text: &str) -> SystemConfig {
        SystemConfig::parse(Ok(text.as_bytes().to_vec())).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn without_a_server_this_machine_is_asked() {
        for text in ["", "search a.test\n", "nameserver nowhere\n", "nameserver fe80::1%no_such_interface\n"] {
            let servers = read(text).plan.servers;
            assert!(servers.len() == 1 && servers[0].config.ip == Ipv4Addr::LOCALHOST, "{text:?}: {servers:?}");
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
