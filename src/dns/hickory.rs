//! hickory-resolver behind the [`Resolve`] seam: its own cache off, one query a family, server after server.

use std::io;
use std::net::IpAddr;
#[cfg(unix)]
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[cfg(unix)]
use hickory_resolver::config::NameServerConfig;
use hickory_resolver::config::ResolverOpts;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;

use super::hosts::{self, Hosts, Watched};
#[cfg(unix)]
use super::resolv_conf::{self, Nameserver};
use super::resolv_conf::{Options, Skipped};
use super::search::SearchList;
use super::server::Server;
use super::upstreams::{Endpoint, LONGEST, Limits, MOST_TRIES, Plan, Upstreams, Workshop};
use super::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};
use crate::sync::lock;
use crate::trace::{self, Hooks, Observer, Own};
#[cfg(feature = "dns-over-tls")]
use crate::trust::{self, TrustedRoots};

/// Asks DNS servers: one after the other, until one gives an answer or says that there is none.
///
/// Each is asked by UDP, by TCP where an answer is truncated, and by TCP on its next try where UDP went unanswered; or,
/// with the features for it, by TLS or HTTPS. The next try begins at once where a server fails (SERVFAIL), refuses, or
/// turns out to be closed, and after 250 ms where it is silent by UDP, which is then still listened to. A server that
/// failed or refused is not asked again for the same lookup. A try takes at most 2 s, there are at most 2 for each server,
/// and a lookup takes at most 5 s.
///
/// A name that a search list makes several of stands for one of them in both families: the first one that has addresses
/// in either, as the platform has it.
///
/// It has no cache of its own; [`CachedResolver`](super::CachedResolver) is to sit on top. Names with underscores
/// resolve, and the TTL of an answer is the smallest of its whole CNAME chain. `localhost` is known without asking
/// (RFC 6761 §6.3).
pub struct HickoryResolver {
    servers: Servers,
    wishes: Wishes,
    only: Option<Family>,
    hooks: Hooks,
    #[cfg(feature = "dns-over-tls")]
    tls: Option<rustls::ClientConfig>,
}

enum Servers {
    /// resolv.conf and the hosts file.
    System { configuration: Watched<Upstreams>, hosts: Watched<Hosts> },
    /// Made at the first lookup, so that making a client cannot fail.
    Named { servers: Vec<Server>, made: Mutex<Option<Arc<Upstreams>>> },
}

/// How long and how often servers are asked, as far as the user says so. What resolv.conf says comes next, and the
/// defaults last.
#[derive(Debug, Clone, Copy, Default)]
struct Wishes {
    one_try: Option<Duration>,
    tries: Option<usize>,
    total: Option<Duration>,
    in_flight: Option<usize>,
}

const ONE_TRY: Duration = Duration::from_secs(2);
const TRIES: usize = 2;
const TOTAL: Duration = Duration::from_secs(5);
const IN_FLIGHT: usize = 256;

impl Wishes {
    fn limits(self, options: &Options) -> Limits {
        let one_try = self.one_try.or(options.timeout).unwrap_or(ONE_TRY);
        let tries = self.tries.or(options.attempts).unwrap_or(TRIES);
        let is_stated = options.timeout.is_some() || options.attempts.is_some();
        let stated = if is_stated { one_try.saturating_mul(tries as u32) } else { Duration::ZERO };
        let total = self.total.unwrap_or(TOTAL.max(stated));
        Limits { one_try, tries, total, in_flight: self.in_flight.unwrap_or(IN_FLIGHT) }
    }
}

/// What the system says of its DNS.
struct System {
    plan: Plan,
    options: Options,
    hickory: ResolverOpts,
}

impl std::fmt::Debug for HickoryResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let servers = match &self.servers {
            Servers::System { .. } => None,
            Servers::Named { servers, .. } => Some(servers),
        };
        f.debug_struct("HickoryResolver")
            .field("servers", &servers)
            .field("limits", &self.wishes)
            .finish_non_exhaustive()
    }
}

impl HickoryResolver {
    /// Uses the system's configuration: the servers, the search list and the options of resolv.conf, and the hosts file.
    ///
    /// The files are read at the first lookup, and again when they have changed, which is looked at every 5 s. When
    /// resolv.conf cannot be read, lookups fail with [`ResolveErrorKind::Config`]. A word in it that cannot be understood is
    /// left out, and told to [observers](Self::with_observer); without a server, 127.0.0.1 is asked. The options that count
    /// are `ndots`, `timeout`, `attempts`, `rotate`, `use-vc`, `edns0`, `no-aaaa`, `single-request` and `no-tld-query`. A name
    /// that the hosts file has in either family is not asked for in the other.
    pub fn system() -> Self {
        let (configuration, hosts) = (Watched::new("/etc/resolv.conf"), Watched::new("/etc/hosts"));
        Self::new(Servers::System { configuration, hosts })
    }

    /// Asks these servers, and no hosts file. Without any, every lookup fails with [`ResolveErrorKind::Config`].
    pub fn with_servers(servers: impl IntoIterator<Item = impl Into<Server>>) -> Self {
        let servers = servers.into_iter().map(Into::into).collect();
        Self::new(Servers::Named { servers, made: Mutex::default() })
    }

    /// How servers that are asked by TLS or HTTPS are known. By default their certificates have to be ones that the
    /// platform trusts.
    #[cfg(feature = "dns-over-tls")]
    pub fn with_tls_config(self, config: rustls::ClientConfig) -> Self {
        Self { tls: Some(config), ..self }
    }

    /// Asks for addresses of one family alone: a name has none of the other, and stands for the first of a search list's
    /// that has addresses of this one. Both by default.
    pub fn with_family(self, family: Family) -> Self {
        Self { only: Some(family), ..self }
    }

    /// Tells an observer of words in resolv.conf that are left out
    /// ([`Event::ConfigSkipped`](crate::trace::Event::ConfigSkipped)). The resolver that a client has by default tells the
    /// client's observers.
    pub fn with_observer(self, observer: impl Observer) -> Self {
        self.with_hooks(Hooks::new(vec![Own::new(observer)]))
    }

    pub(crate) fn with_hooks(self, hooks: Hooks) -> Self {
        Self { hooks, ..self }
    }

    /// How long one try of one server may take, an hour at most. By default as long as resolv.conf says, or 2 s.
    pub fn with_try_timeout(mut self, timeout: Duration) -> Self {
        self.wishes.one_try = Some(timeout.min(LONGEST));
        self
    }

    /// How often each server is tried, at least once and at most 100 times. By default as often as resolv.conf says, or
    /// twice.
    pub fn with_tries(mut self, tries: usize) -> Self {
        self.wishes.tries = Some(tries.clamp(1, MOST_TRIES));
        self
    }

    /// How long a lookup may take over all, from its turn on. 5 s by default, or longer where resolv.conf says so of the tries
    /// of one server; a cache on top has a limit of its own.
    pub fn with_total_timeout(mut self, timeout: Duration) -> Self {
        self.wishes.total = Some(timeout.min(LONGEST));
        self
    }

    /// How many lookups ask at once, at least one; the others wait for their turn. 256 by default, which is 5,000 lookups a
    /// second of a server that is 50 ms away, and fits into the receive buffer of one that is busy. A lookup without an
    /// answer for a second makes way for another one, and as many as that may go on so; beyond, they end as timed out. Each
    /// has a socket, and more while its servers are silent: up to three for each, and a connection. A server that is asked by
    /// TLS or HTTPS is asked over one connection, with at most 64 questions under way at once.
    pub fn with_max_in_flight(mut self, lookups: usize) -> Self {
        self.wishes.in_flight = Some(lookups);
        self
    }

    fn new(servers: Servers) -> Self {
        Self {
            servers,
            wishes: Wishes::default(),
            only: None,
            hooks: Hooks::default(),
            #[cfg(feature = "dns-over-tls")]
            tls: None,
        }
    }

    async fn ask(&self, name: &str, family: Family) -> Result<Answer, ResolveError> {
        if let Some(known) = self.without_asking(name, family) {
            return known;
        }
        let fail = |kind| ResolveError::new(kind, name, family);
        let upstreams = self.configured().map_err(|error| fail(ResolveErrorKind::Config).with_cause(error))?;
        if !upstreams.asks_for(family) {
            return Err(fail(ResolveErrorKind::NoData).with_negative_ttl(Some(hosts::LOOK_EVERY)));
        }
        // Not as a string: hickory would refuse the underscores that container platforms put into names.
        let parsed = Name::from_str_relaxed(name)
            .map_err(|error| fail(ResolveErrorKind::InvalidName).with_cause(NetError::from(error)))?;
        upstreams.lookup(&parsed, name, family).await
    }

    /// What the hosts file says, `localhost`, and addresses that are written as names.
    fn without_asking(&self, name: &str, family: Family) -> Option<Result<Answer, ResolveError>> {
        if let Ok(ip) = name.parse::<IpAddr>() {
            let nothing = || ResolveError::new(ResolveErrorKind::NoData, name, family).with_source(Source::Literal);
            let answer = Answer::new([ip], LONGEST, Source::Literal);
            return Some(if Family::of(ip) == family { Ok(answer) } else { Err(nothing()) });
        }
        let listed = match &self.servers {
            Servers::Named { .. } => None,
            Servers::System { hosts, .. } => {
                // A machine without a hosts file has none of its names.
                let read = hosts.get(|text| match text {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Hosts::default()),
                    text => text.map(|text| Hosts::parse(&text)),
                });
                read.ok().and_then(|hosts| hosts.lookup(name, family))
            }
        };
        let addresses = listed.or_else(|| hosts::localhost(name, family).map(|ip| vec![ip]))?;
        Some(match addresses.is_empty() {
            true => {
                let error = ResolveError::new(ResolveErrorKind::NoData, name, family).with_source(Source::Hosts);
                Err(error.with_negative_ttl(Some(hosts::LOOK_EVERY)))
            }
            false => Ok(Answer::new(addresses, hosts::LOOK_EVERY, Source::Hosts)),
        })
    }

    /// The servers as they are configured now. What of the configuration is left out is told once.
    fn configured(&self) -> Result<Arc<Upstreams>, NetError> {
        let upstreams = self.upstreams()?;
        for Skipped { line, word } in upstreams.take_skipped() {
            trace::config_skipped(&self.hooks, line, &word);
        }
        Ok(upstreams)
    }

    fn upstreams(&self) -> Result<Arc<Upstreams>, NetError> {
        match &self.servers {
            Servers::System { configuration, .. } => {
                configuration.get(|text| system_configuration(text).and_then(|system| self.build(system)))
            }
            Servers::Named { servers, made } => {
                let mut made = lock(made);
                if let Some(made) = &*made {
                    return Ok(made.clone());
                }
                let plan = Plan { servers: servers.iter().map(Server::endpoint).collect(), ..Plan::default() };
                let system = System { plan, options: Options::default(), hickory: ResolverOpts::default() };
                let upstreams = Arc::new(self.build(system)?);
                Ok(made.insert(upstreams).clone())
            }
        }
    }

    fn build(&self, System { plan, options, hickory }: System) -> Result<Upstreams, NetError> {
        let limits = self.wishes.limits(&options);
        let workshop = Workshop {
            options: Workshop::options(hickory, limits),
            #[cfg(feature = "dns-over-tls")]
            tls: self.tls_config(&plan.servers)?,
        };
        let only = self.only.or(options.no_aaaa.then_some(Family::V4));
        Upstreams::new(Plan { only, ..plan }, limits, workshop)
    }

    #[cfg(feature = "dns-over-tls")]
    fn tls_config(&self, servers: &[Endpoint]) -> Result<rustls::ClientConfig, NetError> {
        let encrypted = servers.iter().any(|server| Server::is_encrypted(&server.config));
        let trusting = match &self.tls {
            Some(tls) => return Ok(tls.clone()),
            None if encrypted => TrustedRoots::Platform,
            None => TrustedRoots::Empty,
        };
        trust::client_config(trusting).map_err(|error| NetError::Io(Arc::new(io::Error::other(error))))
    }
}

impl Resolve for HickoryResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        Box::pin(self.ask(name, family))
    }
}

#[cfg(unix)]
fn system_configuration(text: io::Result<Vec<u8>>) -> Result<System, NetError> {
    let conf = resolv_conf::parse(&text.map_err(|error| NetError::Io(Arc::new(error)))?);
    let (options, mut skipped) = (conf.options, conf.skipped);
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
    let search = SearchList { suffixes, ndots: options.ndots.unwrap_or(1), no_tld_query: options.no_tld_query };
    let hickory = with_edns(ResolverOpts::default(), options.edns0);
    let (rotate, single_request) = (options.rotate, options.single_request);
    let plan = Plan { servers, is_assumed, search, rotate, single_request, only: None, skipped };
    Ok(System { plan, options, hickory })
}

#[cfg(unix)]
fn with_edns(mut hickory: ResolverOpts, edns: bool) -> ResolverOpts {
    hickory.edns0 = edns;
    hickory
}

/// The index of the network card that leads to a server, zero for none; `None` where there is no such card.
#[cfg(unix)]
fn scope_id(server: &Nameserver) -> Option<u32> {
    let (IpAddr::V6(ip), Some(scope)) = (server.ip, &server.scope) else { return Some(0) };
    // Other addresses mean the same on all cards.
    if !ip.is_unicast_link_local() {
        return Some(0);
    }
    if let Ok(index) = scope.parse() {
        return Some(index);
    }
    // The platform knows its cards by name. It asks nobody about an address that is written in figures.
    match (&*server.to_string(), 0).to_socket_addrs().ok()?.next()? {
        SocketAddr::V6(address) => Some(address.scope_id()),
        SocketAddr::V4(_) => None,
    }
}

/// The domain of this machine's name: the search list of a file that has none.
#[cfg(unix)]
fn host_domain() -> Option<Name> {
    let machine = rustix::system::uname();
    let (_, domain) = machine.nodename().to_str().ok()?.split_once('.')?;
    resolv_conf::suffix(domain)
}

#[cfg(not(unix))]
fn system_configuration(_: io::Result<Vec<u8>>) -> Result<System, NetError> {
    let (config, hickory) = hickory_resolver::system_conf::read_system_conf()?;
    let suffixes = match config.search() {
        [] => config.domain().cloned().into_iter().collect(),
        search => search.to_vec(),
    };
    let servers = config.name_servers().iter().map(|config| Endpoint { config: config.clone(), scope: 0 }).collect();
    let search = SearchList { suffixes, ndots: hickory.ndots, no_tld_query: false };
    Ok(System { plan: Plan { servers, search, ..Plan::default() }, options: Options::default(), hickory })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: [Server; 0] = [];

    #[tokio::test]
    async fn without_servers_every_lookup_says_so() {
        let error = HickoryResolver::with_servers(NOBODY).resolve("api.test", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::Config);
    }

    #[tokio::test]
    async fn a_name_too_long_for_dns_is_refused_without_a_query() {
        let resolver = HickoryResolver::with_servers([Server::plain(([127, 0, 0, 1], 9).into())]);
        let error = resolver.resolve(&"a".repeat(64), Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::InvalidName);
    }

    fn system(folder: &std::path::Path) -> HickoryResolver {
        let watch = |file: &str| folder.join(file);
        let (configuration, hosts) = (Watched::new(watch("resolv.conf")), Watched::new(watch("hosts")));
        HickoryResolver::new(Servers::System { configuration, hosts })
    }

    #[tokio::test(start_paused = true)]
    async fn the_hosts_file_counts_for_both_families_and_is_read_again_when_it_changes() {
        let folder = std::env::temp_dir().join(format!("speeddial-system-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hosts"), "192.0.2.1 api.test\n").unwrap();
        let resolver = system(&folder);
        let answer = resolver.resolve("API.test", Family::V4).await.unwrap();
        assert_eq!((answer.source(), answer.ttl()), (Source::Hosts, hosts::LOOK_EVERY));
        let error = resolver.resolve("api.test", Family::V6).await.unwrap_err();
        assert_eq!((error.kind(), error.answered_from()), (ResolveErrorKind::NoData, Source::Hosts));
        let error = resolver.resolve("other.test", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::Config, "there is no resolv.conf");
        std::fs::write(folder.join("hosts"), "192.0.2.22 api.test\n").unwrap();
        tokio::time::advance(hosts::LOOK_EVERY).await;
        let answer = resolver.resolve("api.test", Family::V4).await.unwrap();
        assert_eq!(answer.addresses()[0].to_string(), "192.0.2.22");
        std::fs::write(folder.join("resolv.conf"), "search example.test\nnameserver 127.0.0.1\n").unwrap();
        let upstreams = resolver.upstreams().unwrap();
        assert_eq!(upstreams.servers.len(), 1);
        std::fs::write(folder.join("resolv.conf"), "nameserver 127.0.0.1\nnameserver 127.0.0.2\n").unwrap();
        tokio::time::advance(hosts::LOOK_EVERY).await;
        assert_eq!(resolver.upstreams().unwrap().servers.len(), 2);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    fn read(text: &str) -> System {
        system_configuration(Ok(text.as_bytes().to_vec())).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn a_file_without_a_server_means_this_machine() {
        for text in ["", "search a.test\n", "nameserver nowhere\n", "nameserver fe80::1%no_such_card\n"] {
            let servers = read(text).plan.servers;
            assert!(servers.len() == 1 && servers[0].config.ip == Ipv4Addr::LOCALHOST, "{text:?}: {servers:?}");
        }
        let skipped = read("nameserver fe80::1%no_such_card\nsearch -x").plan.skipped;
        let skipped: Vec<_> = skipped.iter().map(|skipped| (skipped.line, &*skipped.word)).collect();
        assert_eq!(skipped, [(2, "-x"), (1, "fe80::1%no_such_card")]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_scope_is_the_number_of_a_network_card_or_its_name() {
        let loopback = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap().trim().parse().unwrap();
        let text = "nameserver fe80::1%7\nnameserver fe80::1%lo\nnameserver 2001:db8::1%lo\nnameserver 192.0.2.1\n";
        let scopes: Vec<u32> = read(text).plan.servers.iter().map(|server| server.scope).collect();
        assert_eq!(scopes, [7, loopback, 0, 0]);
        let server: std::net::SocketAddr = "[fe80::1%7]:53".parse().unwrap();
        assert_eq!(Server::plain(server).endpoint().scope, 7);
    }

    #[cfg(unix)]
    #[test]
    fn options_of_resolv_conf_count() {
        let system =
            read("nameserver 192.0.2.1\noptions use-vc edns0 rotate single-request no-aaaa ndots:5 no-tld-query\n");
        let connections = &system.plan.servers[0].config.connections;
        assert!(matches!(&connections[..], [only] if only.protocol == hickory_resolver::config::ProtocolConfig::Tcp));
        assert!(system.hickory.edns0 && system.plan.rotate && system.plan.single_request);
        assert_eq!((system.plan.search.ndots, system.plan.search.no_tld_query), (5, true));
        let upstreams = HickoryResolver::system().build(system).unwrap();
        assert!(upstreams.asks_for(Family::V4) && !upstreams.asks_for(Family::V6));
        let system = read("nameserver 192.0.2.1\n");
        assert_eq!(system.plan.servers[0].config.connections.len(), 2);
        assert!(!system.hickory.edns0 && !system.plan.rotate && !system.plan.single_request);
        assert_eq!((system.plan.search.ndots, system.plan.search.no_tld_query), (1, false));
    }

    #[test]
    fn the_user_has_the_first_say_about_limits_and_resolv_conf_the_next() {
        let second = Duration::from_secs(1);
        let said = |timeout: Option<u32>, attempts| Options {
            timeout: timeout.map(|seconds| second * seconds),
            attempts,
            ..Options::default()
        };
        let of = |wishes: Wishes, options| {
            let limits = wishes.limits(&options);
            (limits.one_try.as_secs(), limits.tries, limits.total.as_secs())
        };
        let none = Wishes::default();
        assert_eq!(of(none, said(None, None)), (2, 2, 5));
        assert_eq!(of(none, said(Some(1), Some(1))), (1, 1, 5));
        assert_eq!(of(none, said(Some(3), None)), (3, 2, 6), "longer, where the file asks for it");
        let user = Wishes { one_try: Some(second), tries: Some(4), total: Some(second * 2), in_flight: None };
        assert_eq!(of(user, said(Some(9), Some(1))), (1, 4, 2));
    }

    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn observers_are_told_what_is_left_out_of_resolv_conf_once_for_each_change() {
        #[derive(Clone, Default)]
        struct Told(Arc<Mutex<Vec<String>>>);
        impl Observer for Told {
            fn observe(&self, record: &trace::Record) {
                if let trace::Event::ConfigSkipped { line, word } = &record.event {
                    self.0.lock().unwrap().push(format!("{line} {word}"));
                }
            }
        }
        let folder = std::env::temp_dir().join(format!("speeddial-skipped-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let told = Told::default();
        let resolver = system(&folder).with_observer(told.clone());
        for text in ["nameserver 127.0.0.1\nsearch a.test -x\n", "nameserver nowhere\n"] {
            std::fs::write(folder.join("resolv.conf"), text).unwrap();
            tokio::time::advance(hosts::LOOK_EVERY).await;
            for _ in 0..3 {
                assert_eq!(resolver.configured().unwrap().servers.len(), 1);
            }
        }
        assert_eq!(*told.0.lock().unwrap(), ["2 -x", "1 nowhere"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn localhost_is_known_without_asking() {
        let resolver = HickoryResolver::with_servers(NOBODY);
        for family in Family::BOTH {
            let answer = resolver.resolve("localhost", family).await.unwrap();
            assert!(answer.source() == Source::Hosts && answer.addresses()[0].is_loopback());
        }
    }
}
