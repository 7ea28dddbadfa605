//! The DNS configuration of the system.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;

use super::resolv_conf::Skipped;
use crate::dns::Family;
use crate::dns::hickory::servers::{Server, ServerLimits};
use crate::dns::hickory::system::resolv_conf::Options;
#[cfg(unix)]
use std::net::{SocketAddrV6, ToSocketAddrs};
#[cfg(unix)]
use std::sync::Arc;

#[cfg(unix)]
use super::resolv_conf;
#[cfg(unix)]
use super::resolv_conf::Nameserver;

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

/// The limits that the user has set. Those of resolv.conf come next, and the defaults last.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::dns::hickory) struct UserLimits {
    pub(in crate::dns::hickory) try_timeout: Option<Duration>,
    pub(in crate::dns::hickory) tries: Option<usize>,
    pub(in crate::dns::hickory) total_timeout: Option<Duration>,
    pub(in crate::dns::hickory) max_in_flight: Option<usize>,
}

const DEFAULT_TRY_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_TRIES: usize = 2;
const DEFAULT_TOTAL_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_MAX_IN_FLIGHT: usize = 256;

/// The upper limit of the number of tries.
pub(in crate::dns::hickory) const MAX_TRIES: usize = 100;

impl UserLimits {
    /// Completes the limits by the options of resolv.conf. The total timeout leaves time for all tries of one server, if
    /// resolv.conf states their number or their timeout.
    pub(in crate::dns::hickory) fn or(self, options: &Options) -> ServerLimits {
        let try_timeout = self.try_timeout.or(options.timeout).unwrap_or(DEFAULT_TRY_TIMEOUT);
        let tries = self.tries.or(options.attempts).unwrap_or(DEFAULT_TRIES);
        let mut default_total = DEFAULT_TOTAL_TIMEOUT;
        if options.timeout.is_some() || options.attempts.is_some() {
            default_total = default_total.max(try_timeout.saturating_mul(tries as u32));
        }
        ServerLimits {
            try_timeout,
            tries,
            total_timeout: self.total_timeout.unwrap_or(default_total),
            max_in_flight: self.max_in_flight.unwrap_or(DEFAULT_MAX_IN_FLIGHT),
        }
    }
}

/// The names of a hosts file and their addresses.
#[derive(Debug, Default)]
pub(in crate::dns::hickory) struct HostsFile(HashMap<Box<str>, Vec<IpAddr>>);

impl HostsFile {
    /// Reads the lines that are well formed, and leaves out the others.
    pub(in crate::dns::hickory) fn parse(text: &[u8]) -> Self {
        let mut table: HashMap<Box<str>, Vec<IpAddr>> = HashMap::new();
        for line in String::from_utf8_lossy(text).lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(ip) = words.next().and_then(|word| word.parse().ok()) else { continue };
            for name in words {
                let known = table.entry(canonical(name).into()).or_default();
                if !known.contains(&ip) {
                    known.push(ip);
                }
            }
        }
        Self(table)
    }

    /// Returns a name's addresses in one family, which may be none. Returns `None` if the file does not list the name in either
    /// family.
    pub(in crate::dns::hickory) fn lookup(&self, name: &str, family: Family) -> Option<Vec<IpAddr>> {
        let known = self.0.get(&*canonical(name))?;
        Some(known.iter().copied().filter(|ip| Family::of(*ip) == family).collect())
    }
}

/// Returns the loopback address for `localhost` and the names below it (RFC 6761 §6.3).
pub(in crate::dns::hickory) fn localhost(name: &str, family: Family) -> Option<IpAddr> {
    let name = canonical(name);
    if name != "localhost" && !name.ends_with(".localhost") {
        return None;
    }
    Some(match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    })
}

fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
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

#[cfg(test)]
mod limits_tests {
    use super::*;

    #[test]
    fn limits_of_the_user_come_first_and_those_of_resolv_conf_second() {
        let second = Duration::from_secs(1);
        let said = |timeout: Option<u32>, attempts| Options {
            timeout: timeout.map(|seconds| second * seconds),
            attempts,
            ..Options::default()
        };
        let of = |user: UserLimits, options| {
            let limits = user.or(&options);
            (limits.try_timeout.as_secs(), limits.tries, limits.total_timeout.as_secs())
        };
        let none = UserLimits::default();
        assert_eq!(of(none, said(None, None)), (2, 2, 5));
        assert_eq!(of(none, said(Some(1), Some(1))), (1, 1, 5));
        assert_eq!(of(none, said(Some(3), None)), (3, 2, 6), "longer, because the file asks for it");
        let user = UserLimits {
            try_timeout: Some(second),
            tries: Some(4),
            total_timeout: Some(second * 2),
            max_in_flight: None,
        };
        assert_eq!(of(user, said(Some(9), Some(1))), (1, 4, 2));
    }
}

#[cfg(test)]
mod hosts_tests {
    use super::*;
    use Family::{V4, V6};

    #[test]
    fn comments_and_malformed_lines_are_left_out() {
        let hosts = HostsFile::parse(
            b"127.0.0.1 localhost Api.Test # alias\n::1\tlocalhost\n\n# 10.0.0.1 no.test\nbroken no.test\n10.0.0.2 api.test. api.test\n",
        );
        let v4 = |last: [u8; 4]| IpAddr::from(last);
        assert_eq!(hosts.lookup("API.test.", V4), Some(vec![v4([127, 0, 0, 1]), v4([10, 0, 0, 2])]));
        assert_eq!(hosts.lookup("api.test", V6), Some(vec![]), "a name listed in one family is known in both");
        assert_eq!(hosts.lookup("localhost", V6), Some(vec![Ipv6Addr::LOCALHOST.into()]));
        assert_eq!(hosts.lookup("no.test", V4), None);
    }

    #[test]
    fn localhost_needs_no_file() {
        assert_eq!(localhost("LocalHost.", V4), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(localhost("a.localhost", V6), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(localhost("notlocalhost", V4), None);
    }
}
