//! [`HickoryResolver`]: DNS servers and the hosts file, asked with the hickory-resolver crate.
//!
//! hickory speaks the DNS protocols. The cache, the search list, the order of servers and all timeouts are this crate's.
//!
//! | step of a lookup | file |
//! |---|---|
//! | literal addresses, the hosts file, `localhost` | `mod.rs`, `system/config.rs` |
//! | the system's configuration, read again when it changes | `system/config.rs`, `system/resolv_conf.rs`, `system/mod.rs` |
//! | the turn of a lookup, the full names that its name may stand for | `search/mod.rs`, `search/verdict.rs` |
//! | what the search for the other family finds | `search/questions.rs` |
//! | one full name: server after server | `servers/group.rs`, `servers/tries.rs`, `servers/records.rs` |
//! | one server: its clients and connections | `servers/upstream.rs`, `servers/shared_connection.rs`, `servers/sockets.rs` |

#[cfg(feature = "doctor")]
mod inspection;
mod search;
pub(super) mod servers;
mod system;

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::PoolContext;
use hickory_resolver::net::NetError;

use crate::dns::hickory::servers::{MAX_TIMEOUT, ServerLimits, upstream};
use crate::dns::hickory::system::config::{HostsFile, MAX_TRIES, UserLimits};
use crate::dns::hickory::system::{CHECK_INTERVAL, WatchedFile};
use crate::dns::resolve::Asking;
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};
use crate::sync::lock;
use crate::trace::{self, Hooks, Observer, ObserverHandle};
#[cfg(feature = "dns-over-tls")]
use crate::trust::{self, TrustedRoots};
use search::SearchResolver;
use system::config::Plan;
use system::resolv_conf::Skipped;

#[cfg(feature = "doctor")]
pub use crate::dns::hickory::inspection::DnsTransport;
#[cfg(feature = "doctor")]
pub(crate) use crate::dns::hickory::inspection::{DnsProbe, Reply};
pub use crate::dns::hickory::servers::Server;
#[cfg(feature = "doctor")]
pub(crate) use inspection::{Inspection, Reading, ResolvConfSettings};
#[cfg(feature = "doctor")]
pub(crate) use servers::records::NOT_OF_A_HOST;
#[cfg(feature = "doctor")]
pub(crate) use system::resolv_conf::Options;

/// Asks DNS servers, one after the other, until one answers that there are addresses or that there are none.
///
/// The order of the servers is kept, because names may exist for the first one only (split horizon). Each lookup begins with the first
/// server. While one was silent for a whole try within the last 5 s, it and the next one are asked at once. An answer counts by the place
/// of its server: a cache does not let a later server's word replace what an earlier one said, until the TTL of that and 30 s are over.
///
/// A server is asked by UDP, by TCP if an answer is truncated, and by TCP on its next try if UDP went unanswered. With the
/// features `dns-over-tls` and `dns-over-https`, it can be asked by TLS or HTTPS instead.
///
/// * The next try starts at once when a server fails (SERVFAIL), refuses, or turns out to be closed.
/// * The next server is asked after 300 ms when a server is silent by UDP, and the same server again after 1 s.
/// * The first answer with addresses counts. A negative answer counts when the first tries of all servers before are over, of which one that
///   was silent lately is waited for no longer than 300 ms.
/// * A server that failed or refused is not asked again for the same lookup.
/// * A try takes at most 2 s, there are at most 2 for each server, and a lookup takes at most 5 s.
///
/// With a search list, a name stands for one full name in both families: the first one that has addresses in either family, as
/// with getaddrinfo.
///
/// * Each lookup searches the list from its beginning, as getaddrinfo does: with `ndots:5` and three suffixes these are eight questions.
/// * Where a [`CachedResolver`](crate::dns::CachedResolver) on top knows addresses, a later server's "does not exist" for their full name
///   ends the search: it does not lead to the next full name.
///
/// The resolver keeps no answers; put a [`CachedResolver`](crate::dns::CachedResolver) on top. Names with underscores are
/// resolved. The TTL of an answer is the smallest of its CNAME chain, as the server that was asked states it: a server that caches
/// states what is left. `localhost` is resolved without a query (RFC 6761 §6.3).
pub struct HickoryResolver {
    configuration: Configuration,
    limits: UserLimits,
    only: Option<Family>,
    hooks: Hooks,
    #[cfg(feature = "dns-over-tls")]
    tls: Option<rustls::ClientConfig>,
}

/// The source of the servers.
enum Configuration {
    /// The system's configuration.
    System { resolv_conf: WatchedFile<SearchResolver>, hosts: WatchedFile<HostsFile> },
    /// Servers that the user has named. Their resolver is made at the first lookup, so that creating a client cannot fail.
    Named { servers: Vec<Server>, made: Mutex<Option<Arc<SearchResolver>>> },
}

impl HickoryResolver {
    /// Creates a resolver with the system's configuration: the servers, search list and options of resolv.conf, and the hosts
    /// file.
    ///
    /// The files are read at the first lookup, and again when they have changed, which is checked every 5 s.
    ///
    /// * If resolv.conf cannot be read, lookups fail with [`ResolveErrorKind::Config`].
    /// * A word in resolv.conf that cannot be understood is left out, and reported to [observers](Self::with_observer).
    /// * Without a server in resolv.conf, 127.0.0.1 is asked.
    /// * These options are followed: `ndots`, `timeout`, `attempts`, `rotate`, `use-vc`, `edns0`, `no-aaaa`, `single-request`
    ///   and `no-tld-query`.
    /// * A name that the hosts file lists in one family is not asked for in the other.
    pub fn system() -> Self {
        Self::new(Configuration::System {
            resolv_conf: WatchedFile::new("/etc/resolv.conf"),
            hosts: WatchedFile::new("/etc/hosts"),
        })
    }

    /// Creates a resolver that asks these servers, without a hosts file or a search list. Without servers, every lookup fails
    /// with [`ResolveErrorKind::Config`].
    pub fn with_servers(servers: impl IntoIterator<Item = impl Into<Server>>) -> Self {
        let servers = servers.into_iter().map(Into::into).collect();
        Self::new(Configuration::Named { servers, made: Mutex::default() })
    }

    /// Sets the TLS configuration for servers that are asked by TLS or HTTPS. By default, their certificates have to be ones
    /// that the platform trusts.
    #[cfg(feature = "dns-over-tls")]
    pub fn with_tls_config(self, config: rustls::ClientConfig) -> Self {
        Self { tls: Some(config), ..self }
    }

    /// Asks for addresses of one family only. A name has no addresses of the other one, and with a search list it stands for
    /// the first full name that has addresses of this one. Both families by default.
    pub fn with_family(self, family: Family) -> Self {
        Self { only: Some(family), ..self }
    }

    /// Sets the observer that is told of words in resolv.conf that are left out
    /// ([`Event::ConfigSkipped`](crate::trace::Event::ConfigSkipped)). The default resolver of a client tells the client's
    /// observers.
    pub fn with_observer(self, observer: impl Observer) -> Self {
        self.with_hooks(Hooks::new(vec![ObserverHandle::new(observer)]))
    }

    pub(crate) fn with_hooks(self, hooks: Hooks) -> Self {
        Self { hooks, ..self }
    }

    /// Sets the longest time for one try of one server, at most an hour. By default the timeout of resolv.conf, or 2 s.
    pub fn with_try_timeout(mut self, timeout: Duration) -> Self {
        self.limits.try_timeout = Some(timeout.min(MAX_TIMEOUT));
        self
    }

    /// Sets the number of tries of each server, from 1 to 100. By default the attempts of resolv.conf, or 2.
    pub fn with_tries(mut self, tries: usize) -> Self {
        self.limits.tries = Some(tries.clamp(1, MAX_TRIES));
        self
    }

    /// Sets the longest time for a lookup, at most an hour. It starts when the lookup gets its [turn](Self::with_max_in_flight).
    /// By default 5 s, or longer if resolv.conf gives one server's tries more time. A cache on top has its own limit.
    pub fn with_total_timeout(mut self, timeout: Duration) -> Self {
        self.limits.total_timeout = Some(timeout.min(MAX_TIMEOUT));
        self
    }

    /// Sets the maximum number of lookups that ask servers at the same time, at least one. The others wait for their turn.
    ///
    /// 256 by default. That is 5,000 lookups a second from a server that is 50 ms away, and fits into the receive buffer of a
    /// busy one.
    ///
    /// A lookup without an answer after 1 s gives its turn to another one and goes on. At most as many lookups as this limit may
    /// go on in this way; others fail with [`ResolveErrorKind::Timeout`].
    ///
    /// Each lookup has a socket. While its servers are silent it has more: up to three for each server, and a connection. A
    /// server that is asked by TLS or HTTPS is asked over one connection, which carries at most 32 unanswered questions at once.
    /// Questions that have waited for 200 ms do not count.
    pub fn with_max_in_flight(mut self, lookups: usize) -> Self {
        self.limits.max_in_flight = Some(lookups);
        self
    }

    fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            limits: UserLimits::default(),
            only: None,
            hooks: Hooks::default(),
            #[cfg(feature = "dns-over-tls")]
            tls: None,
        }
    }

    async fn lookup(&self, name: &str, family: Family, asking: Asking) -> Result<Answer, ResolveError> {
        if let Some(result) = self.without_query(name, family) {
            return result;
        }
        let error = |kind| ResolveError::new(kind, name, family);
        let search_resolver = self.current().map_err(|cause| error(ResolveErrorKind::Config).with_cause(cause))?;
        if !search_resolver.asks_for(family) {
            return Err(error(ResolveErrorKind::NoData).with_negative_ttl(Some(CHECK_INTERVAL)));
        }
        // Parsed here, because hickory refuses strings with the underscores that container platforms put into names.
        let parsed = servers::parse(name)
            .map_err(|cause| error(ResolveErrorKind::InvalidName).with_cause(NetError::from(cause)))?;
        search_resolver.lookup(&parsed, name, family, &asking).await
    }

    /// Resolves literal addresses, names of the hosts file, and `localhost`. Returns `None` for all other names.
    fn without_query(&self, name: &str, family: Family) -> Option<Result<Answer, ResolveError>> {
        let no_data = || ResolveError::new(ResolveErrorKind::NoData, name, family);
        if let Ok(ip) = name.parse::<IpAddr>() {
            if Family::of(ip) != family {
                return Some(Err(no_data().with_source(Source::Literal)));
            }
            return Some(Ok(Answer::new([ip], MAX_TIMEOUT, Source::Literal)));
        }
        let listed = match &self.configuration {
            Configuration::Named { .. } => None,
            Configuration::System { hosts, .. } => {
                hosts.get(read_hosts).ok().and_then(|hosts| hosts.lookup(name, family))
            }
        };
        let addresses = listed.or_else(|| system::config::localhost(name, family).map(|ip| vec![ip]))?;
        if addresses.is_empty() {
            return Some(Err(no_data().with_source(Source::Hosts).with_negative_ttl(Some(CHECK_INTERVAL))));
        }
        Some(Ok(Answer::new(addresses, CHECK_INTERVAL, Source::Hosts)))
    }

    /// Returns the resolver for the current configuration. The words of resolv.conf that are left out are reported once.
    fn current(&self) -> Result<Arc<SearchResolver>, NetError> {
        let search_resolver = self.search_resolver()?;
        for Skipped { line, word } in search_resolver.take_skipped() {
            trace::config_skipped(&self.hooks, line, &word);
        }
        Ok(search_resolver)
    }

    fn search_resolver(&self) -> Result<Arc<SearchResolver>, NetError> {
        match &self.configuration {
            Configuration::System { resolv_conf, .. } => {
                resolv_conf.get(|text| Plan::parse(text).and_then(|plan| self.build(plan)))
            }
            Configuration::Named { servers, made } => {
                let mut made = lock(made);
                if let Some(made) = &*made {
                    return Ok(made.clone());
                }
                servers.iter().try_for_each(Server::check)?;
                let search_resolver = Arc::new(self.build(Plan::named(servers))?);
                Ok(made.insert(search_resolver).clone())
            }
        }
    }

    fn build(&self, plan: Plan) -> Result<SearchResolver, NetError> {
        let (limits, context) = self.context(&plan)?;
        SearchResolver::new(Plan { only: self.only.or(plan.only), ..plan }, limits, &context)
    }

    /// Returns the limits of lookups by a plan, and what hickory needs to open connections.
    fn context(&self, plan: &Plan) -> Result<(ServerLimits, Arc<PoolContext>), NetError> {
        let limits = self.limits.or(&plan.options);
        let context = upstream::context(
            plan.options.edns0,
            limits,
            #[cfg(feature = "dns-over-tls")]
            self.tls_config(&plan.servers)?,
        )?;
        Ok((limits, context))
    }

    #[cfg(feature = "dns-over-tls")]
    fn tls_config(&self, servers: &[Server]) -> Result<rustls::ClientConfig, NetError> {
        if let Some(tls) = &self.tls {
            return Ok(tls.clone());
        }
        let is_needed = servers.iter().any(Server::is_encrypted);
        let roots = if is_needed { TrustedRoots::Platform } else { TrustedRoots::Empty };
        trust::client_config(roots).map_err(|error| NetError::Io(Arc::new(io::Error::other(error))))
    }
}

/// Reads the text of the hosts file. No file is the same as an empty one.
fn read_hosts(text: io::Result<Vec<u8>>) -> io::Result<HostsFile> {
    match text {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HostsFile::default()),
        text => text.map(|text| HostsFile::parse(&text)),
    }
}

impl Resolver for HickoryResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        self.resolve_for(name, family, Asking::default())
    }

    fn resolve_for<'a>(&'a self, name: &'a str, family: Family, asking: Asking) -> ResolverFuture<'a> {
        Box::pin(self.lookup(name, family, asking))
    }

    /// Returns another number when resolv.conf or the hosts file has changed.
    fn version(&self) -> u64 {
        match &self.configuration {
            Configuration::Named { .. } => 0,
            Configuration::System { resolv_conf, hosts } => {
                let make = |text| Plan::parse(text).and_then(|plan| self.build(plan));
                resolv_conf.version(make) + hosts.version(read_hosts)
            }
        }
    }
}

impl std::fmt::Debug for HickoryResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let servers = match &self.configuration {
            Configuration::System { .. } => None,
            Configuration::Named { servers, .. } => Some(servers),
        };
        f.debug_struct("HickoryResolver")
            .field("servers", &servers)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use hickory_resolver::config::ProtocolConfig;

    #[cfg(unix)]
    use super::system::resolv_conf::Options;
    use super::*;

    const NO_SERVERS: [Server; 0] = [];

    #[cfg(unix)]
    fn parse(text: &str) -> Plan {
        Plan::parse(Ok(text.as_bytes().to_vec())).unwrap()
    }

    #[tokio::test]
    async fn without_servers_every_lookup_fails() {
        let error = HickoryResolver::with_servers(NO_SERVERS).resolve("api.test", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::Config);
    }

    #[tokio::test]
    async fn a_name_too_long_for_dns_is_refused_without_a_query() {
        let resolver = HickoryResolver::with_servers([Server::plain(([127, 0, 0, 1], 9).into())]);
        let error = resolver.resolve(&"a".repeat(64), Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::InvalidName);
    }

    fn system(folder: &std::path::Path) -> HickoryResolver {
        HickoryResolver::new(Configuration::System {
            resolv_conf: WatchedFile::new(folder.join("resolv.conf")),
            hosts: WatchedFile::new(folder.join("hosts")),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn the_hosts_file_counts_for_both_families_and_is_read_again_when_it_changes() {
        let folder = std::env::temp_dir().join(format!("speeddial-system-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hosts"), "192.0.2.1 api.test\n").unwrap();
        let resolver = system(&folder);
        let answer = resolver.resolve("API.test", Family::V4).await.unwrap();
        assert_eq!((answer.source(), answer.ttl()), (Source::Hosts, CHECK_INTERVAL));
        let error = resolver.resolve("api.test", Family::V6).await.unwrap_err();
        assert_eq!((error.kind(), error.answered_from()), (ResolveErrorKind::NoData, Source::Hosts));
        let error = resolver.resolve("other.test", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::Config, "there is no resolv.conf");
        std::fs::write(folder.join("hosts"), "192.0.2.22 api.test\n").unwrap();
        tokio::time::advance(CHECK_INTERVAL).await;
        let answer = resolver.resolve("api.test", Family::V4).await.unwrap();
        assert_eq!(answer.addresses()[0].to_string(), "192.0.2.22");
        std::fs::write(folder.join("resolv.conf"), "search example.test\nnameserver 127.0.0.1\n").unwrap();
        let search_resolver = resolver.search_resolver().unwrap();
        assert_eq!(search_resolver.servers.servers.len(), 1);
        std::fs::write(folder.join("resolv.conf"), "nameserver 127.0.0.1\nnameserver 127.0.0.2\n").unwrap();
        tokio::time::advance(CHECK_INTERVAL).await;
        assert_eq!(resolver.search_resolver().unwrap().servers.servers.len(), 2);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn options_of_resolv_conf_are_followed() {
        let system =
            parse("nameserver 192.0.2.1\noptions use-vc edns0 rotate single-request no-aaaa ndots:5 no-tld-query\n");
        let server = &system.servers[0];
        assert!(server.udp().is_none() && server.connection().protocol == ProtocolConfig::Tcp);
        assert!(system.options.edns0 && system.options.rotate && system.options.single_request);
        assert_eq!((system.options.ndots, system.options.no_tld_query), (Some(5), true));
        let search_resolver = HickoryResolver::system().build(system).unwrap();
        assert!(search_resolver.asks_for(Family::V4) && !search_resolver.asks_for(Family::V6));
        let system = parse("nameserver 192.0.2.1\n");
        assert!(system.servers[0].udp().is_some());
        assert_eq!(system.options, Options::default());
    }

    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn observers_are_told_of_skipped_words_once_for_each_change_of_resolv_conf() {
        #[derive(Clone, Default)]
        struct SkippedWords(Arc<Mutex<Vec<String>>>);
        impl Observer for SkippedWords {
            fn observe(&self, record: &trace::Record) {
                if let trace::Event::ConfigSkipped { line, word } = &record.event {
                    self.0.lock().unwrap().push(format!("{line} {word}"));
                }
            }
        }
        let folder = std::env::temp_dir().join(format!("speeddial-skipped-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let words = SkippedWords::default();
        let resolver = system(&folder).with_observer(words.clone());
        for text in ["nameserver 127.0.0.1\nsearch a.test x..y\n", "nameserver nowhere\n"] {
            std::fs::write(folder.join("resolv.conf"), text).unwrap();
            tokio::time::advance(CHECK_INTERVAL).await;
            for _ in 0..3 {
                assert_eq!(resolver.current().unwrap().servers.servers.len(), 1);
            }
        }
        assert_eq!(*words.0.lock().unwrap(), ["2 x..y", "1 nowhere"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn localhost_needs_no_query() {
        let resolver = HickoryResolver::with_servers(NO_SERVERS);
        for family in Family::BOTH {
            let answer = resolver.resolve("localhost", family).await.unwrap();
            assert!(answer.source() == Source::Hosts && answer.addresses()[0].is_loopback());
        }
    }
}
