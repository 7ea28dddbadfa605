//! The configuration of a resolver for a report: its files are read anew, and each of its servers is
//! asked by itself.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use hickory_resolver::PoolContext;
use hickory_resolver::config::ProtocolConfig;
use hickory_resolver::net::NetError;

use super::system::config::Plan;
use super::system::resolv_conf::{Options, Skipped};
use super::{Configuration, HickoryResolver, read_hosts};
use crate::clock::now;
use crate::dns::Family;
use crate::dns::hickory::search::verdict::candidates;
use crate::dns::hickory::servers;
use crate::dns::hickory::servers::upstream::ServerClient;
use crate::dns::hickory::servers::{Server, records};
use crate::dns::hickory::system::WatchedFile;
use crate::dns::hickory::system::config::HostsFile;

/// The most servers of a configuration that are asked by themselves.
const MAX_SERVERS: usize = 8;
/// The most full names that a name is taken to stand for.
const MAX_NAMES: usize = 4;

/// The configuration of a resolver with regard to one name.
#[derive(Default)]
pub(crate) struct Inspection {
    pub(crate) resolv_conf: Option<Reading<ResolvConfSettings>>,
    /// The addresses of the name in the hosts file.
    pub(crate) hosts: Option<Reading<Vec<IpAddr>>>,
    /// True if the name is known without a query: a name of the hosts file, or one below `localhost`.
    pub(crate) is_known: bool,
    /// The full names that the name may stand for, in their order.
    pub(crate) full_names: Vec<String>,
    /// The families that are asked for.
    pub(crate) families: Vec<Family>,
    pub(crate) probes: Vec<DnsProbe>,
}

/// A file that was read anew, and the time that it took.
pub(crate) struct Reading<T> {
    pub(crate) path: PathBuf,
    pub(crate) elapsed: Duration,
    pub(crate) contents: Result<T, String>,
}

/// The settings in resolv.conf that the resolver uses.
pub(crate) struct ResolvConfSettings {
    /// The servers; none if this machine is asked because the file lists none.
    pub(crate) servers: Vec<IpAddr>,
    pub(crate) suffixes: Vec<String>,
    pub(crate) options: Options,
    pub(crate) skipped: Vec<Skipped>,
}

impl HickoryResolver {
    /// Reads the configuration anew, and returns it with what it says about `name`. The resolver itself is not touched.
    pub(crate) fn inspect(&self, name: &str) -> Inspection {
        let is_known = Family::BOTH.iter().any(|family| self.without_query(name, *family).is_some());
        let mut inspection = Inspection { is_known, ..Inspection::default() };
        let plan = match &self.configuration {
            Configuration::Named { servers, .. } => Plan::named(servers),
            Configuration::System { resolv_conf, hosts } => {
                let addresses = |hosts: HostsFile| {
                    Family::BOTH.iter().filter_map(|family| hosts.lookup(name, *family)).flatten().collect()
                };
                inspection.hosts = Some(read(hosts, |text| read_hosts(text).map(addresses)));
                let mut plan = None;
                let read = read(resolv_conf, |text| Plan::parse(text).map(|parsed| settings(plan.insert(parsed))));
                inspection.resolv_conf = Some(read);
                let Some(plan) = plan else { return inspection };
                plan
            }
        };
        let only = self.only.or(plan.only);
        inspection.families =
            Family::BOTH.into_iter().filter(|family| only.is_none_or(|only| only == *family)).collect();
        if let Ok(parsed) = servers::parse(name) {
            let candidates = candidates(&plan.suffixes, &plan.options, &parsed);
            inspection.full_names =
                candidates.iter().take(MAX_NAMES).map(|candidate| candidate.name.to_string()).collect();
        }
        if let Ok((_, context)) = self.context(&plan) {
            let servers = plan.servers.iter().take(MAX_SERVERS);
            inspection.probes = servers.flat_map(|server| DnsProbe::all_of(server, &context)).collect();
        }
        inspection
    }
}

/// Reads a file anew.
fn read<K, T, E: ToString>(
    watched: &WatchedFile<K>,
    parse: impl FnOnce(io::Result<Vec<u8>>) -> Result<T, E>,
) -> Reading<T> {
    let start = now();
    let contents = parse(std::fs::read(watched.path())).map_err(|error| error.to_string());
    Reading { path: watched.path().to_owned(), elapsed: now() - start, contents }
}

fn settings(plan: &Plan) -> ResolvConfSettings {
    let listed = plan.servers.iter().filter(|_| !plan.is_assumed);
    ResolvConfSettings {
        servers: listed.map(|server| server.address().ip()).collect(),
        suffixes: plan.suffixes.iter().map(ToString::to_string).collect(),
        options: plan.options.clone(),
        skipped: plan.skipped.clone(),
    }
}

/// The protocol by which a DNS server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum DnsTransport {
    /// Datagrams (RFC 1035 §4.2.1).
    Udp,
    /// A TCP connection (RFC 7766).
    Tcp,
    /// TLS (RFC 7858).
    Tls,
    /// HTTPS (RFC 8484).
    Https,
}

impl fmt::Display for DnsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Https => "HTTPS",
        })
    }
}

/// The answer of one DNS server to one question.
pub(crate) struct Reply {
    /// The response code (RFC 6895 §2.3).
    pub(crate) code: u16,
    /// The addresses at the end of the chain of aliases.
    pub(crate) addresses: Vec<IpAddr>,
    /// The smallest TTL of that chain; `None` without addresses.
    pub(crate) ttl: Option<Duration>,
    pub(crate) is_truncated: bool,
}

/// A server and one of the protocols by which it can be asked.
pub(crate) struct DnsProbe {
    server: SocketAddr,
    protocol: ProtocolConfig,
    client: ServerClient,
}

impl DnsProbe {
    /// Returns a probe for each protocol of a server.
    pub(super) fn all_of(server: &Server, context: &Arc<PoolContext>) -> Vec<Self> {
        let connection = server.connection();
        let protocol = connection.protocol.clone();
        let by_udp = server.udp().map(|udp| (ProtocolConfig::Udp, Some(udp), None));
        let by_connection = (protocol, None, Some(connection));
        let probe = |(protocol, udp, connection)| Self {
            server: server.address(),
            protocol,
            client: ServerClient::new(server.address(), udp, connection, context),
        };
        by_udp.into_iter().chain([by_connection]).map(probe).collect()
    }

    pub(crate) fn server(&self) -> SocketAddr {
        self.server
    }

    #[allow(unreachable_patterns, reason = "which protocols there are depends on the features of hickory")]
    pub(crate) fn transport(&self) -> DnsTransport {
        match self.protocol {
            ProtocolConfig::Udp => DnsTransport::Udp,
            ProtocolConfig::Tcp => DnsTransport::Tcp,
            #[cfg(feature = "dns-over-tls")]
            ProtocolConfig::Tls { .. } => DnsTransport::Tls,
            _ => DnsTransport::Https,
        }
    }

    /// Asks for the addresses of a full name in one family.
    ///
    /// # Errors
    /// If no answer came: the system's error, or `TimedOut` of hickory's own limit. The caller sets a shorter one.
    pub(crate) async fn ask(&self, full_name: &str, family: Family) -> io::Result<Reply> {
        let mut name = servers::parse(full_name).map_err(io::Error::other)?;
        name.set_fqdn(true);
        let response = self.client.ask(name.clone(), family).await.map_err(io_error)?;
        let answer = records::answer(&response, &name, full_name, family).ok();
        Ok(Reply {
            code: response.metadata.response_code.into(),
            addresses: answer.iter().flat_map(|answer| answer.addresses().iter().copied()).collect(),
            ttl: answer.as_ref().map(crate::dns::Answer::ttl),
            is_truncated: response.metadata.truncation,
        })
    }
}

fn io_error(error: NetError) -> io::Error {
    match error {
        NetError::Timeout => io::ErrorKind::TimedOut.into(),
        NetError::Io(error) => records::own(&error),
        error => io::Error::other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::fs;

    use super::*;

    #[test]
    fn the_servers_and_the_names_of_a_lookup_are_those_of_the_configuration() {
        let servers: [std::net::SocketAddr; 2] = ["192.0.2.1:53".parse().unwrap(), "192.0.2.2:54".parse().unwrap()];
        let resolver = HickoryResolver::with_servers(servers).with_family(Family::V4);
        let inspection = resolver.inspect("api.test");
        let asked: Vec<_> =
            inspection.probes.iter().map(|probe| format!("{} {}", probe.server(), probe.transport())).collect();
        assert_eq!(asked, ["192.0.2.1:53 UDP", "192.0.2.1:53 TCP", "192.0.2.2:54 UDP", "192.0.2.2:54 TCP"]);
        assert_eq!(
            (&inspection.full_names[..], &inspection.families[..]),
            (&["api.test.".to_owned()][..], &[Family::V4][..])
        );
        assert!(inspection.resolv_conf.is_none() && inspection.hosts.is_none() && !inspection.is_known);
        assert!(resolver.inspect("localhost").is_known);
    }

    #[cfg(unix)]
    #[test]
    fn files_are_read_with_what_is_left_out() {
        let folder = std::env::temp_dir().join(format!("speeddial-inspected-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("resolv.conf"), "search a.test x..y\noptions ndots:2 rotate\n").unwrap();
        fs::write(folder.join("hosts"), "192.0.2.1 api other\n").unwrap();
        let resolver = HickoryResolver::new(Configuration::System {
            resolv_conf: WatchedFile::new(folder.join("resolv.conf")),
            hosts: WatchedFile::new(folder.join("hosts")),
        });
        let inspection = resolver.inspect("api");
        let (resolv_conf, hosts) = (inspection.resolv_conf.unwrap(), inspection.hosts.unwrap());
        assert_eq!([&resolv_conf.path, &hosts.path], [&folder.join("resolv.conf"), &folder.join("hosts")]);
        let read = resolv_conf.contents.unwrap();
        let options = Options { ndots: Some(2), rotate: true, ..Options::default() };
        assert_eq!((&read.suffixes[..], read.options), (&["a.test.".to_owned()][..], options));
        assert_eq!(read.skipped, [Skipped { line: 1, word: "x..y".into() }]);
        assert_eq!((read.servers, hosts.contents), (Vec::new(), Ok(vec![[192, 0, 2, 1].into()])));
        assert!(inspection.is_known);
        assert_eq!(inspection.full_names, ["api.a.test.", "api."]);
        fs::remove_dir_all(&folder).unwrap();
        let gone = resolver.inspect("api");
        assert!(gone.resolv_conf.unwrap().contents.is_err() && gone.probes.is_empty());
        assert_eq!(gone.hosts.unwrap().contents, Ok(Vec::new()), "no file is the same as an empty one");
    }
}
