//! hickory-resolver behind the [`Resolve`] seam: its own cache off, one query a family, server after server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record};

use super::hosts::{self, Hosts, Watched};
use super::server::Server;
use super::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};

/// Asks DNS servers: one after the other, until one gives an answer or says that there is none.
///
/// Each is asked by UDP, by TCP where an answer is truncated, and by TCP on its next try where UDP went unanswered; or,
/// with the features for it, by TLS or HTTPS. A
/// server that failed (SERVFAIL) or refused is not asked again for the same lookup. A try takes at most 2 s, there are
/// at most 2 for each server, and a lookup takes at most 5 s.
///
/// It has no cache of its own; [`CachedResolver`](super::CachedResolver) is to sit on top. Names with underscores
/// resolve, and the TTL of an answer is the smallest of its whole CNAME chain. `localhost` is known without asking
/// (RFC 6761 §6.3).
pub struct HickoryResolver {
    servers: Servers,
    limits: Limits,
    #[cfg(feature = "dns-over-tls")]
    tls: Option<rustls::ClientConfig>,
}

enum Servers {
    /// resolv.conf and the hosts file.
    System { configuration: Watched<Upstreams>, hosts: Watched<Hosts> },
    /// Made at the first lookup, so that making a client cannot fail.
    Named { servers: Vec<Server>, made: Mutex<Option<Arc<Upstreams>>> },
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    one_try: Duration,
    tries: usize,
    total: Duration,
}

impl std::fmt::Debug for HickoryResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let servers = match &self.servers {
            Servers::System { .. } => None,
            Servers::Named { servers, .. } => Some(servers),
        };
        f.debug_struct("HickoryResolver").field("servers", &servers).field("limits", &self.limits).finish()
    }
}

impl HickoryResolver {
    /// Uses the system's configuration: the servers and the search list of resolv.conf, and the hosts file.
    ///
    /// The files are read at the first lookup, and again when they have changed, which is looked at every 5 s. When
    /// resolv.conf cannot be read, lookups fail with [`ResolveErrorKind::Config`]. A name that the hosts file has in
    /// either family is not asked for in the other.
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

    /// How long one try of one server may take. 2 s by default.
    pub fn with_try_timeout(mut self, timeout: Duration) -> Self {
        self.limits.one_try = timeout;
        self
    }

    /// How often each server is tried, at least once. Twice by default.
    pub fn with_tries(mut self, tries: usize) -> Self {
        self.limits.tries = tries.max(1);
        self
    }

    /// How long a lookup may take over all. 5 s by default; a cache on top has a limit of its own.
    pub fn with_total_timeout(mut self, timeout: Duration) -> Self {
        self.limits.total = timeout;
        self
    }

    fn new(servers: Servers) -> Self {
        let limits = Limits { one_try: Duration::from_secs(2), tries: 2, total: Duration::from_secs(5) };
        Self {
            servers,
            limits,
            #[cfg(feature = "dns-over-tls")]
            tls: None,
        }
    }

    async fn ask(&self, name: &str, family: Family) -> Result<Answer, ResolveError> {
        if let Some(known) = self.without_asking(name, family) {
            return known;
        }
        let fail = |kind| ResolveError::new(kind, name, family);
        let upstreams = self.upstreams().map_err(|error| fail(ResolveErrorKind::Config).with_cause(error))?;
        // Not as a string: hickory would refuse the underscores that container platforms put into names.
        let parsed = Name::from_str_relaxed(name)
            .map_err(|error| fail(ResolveErrorKind::InvalidName).with_cause(NetError::from(error)))?;
        let asking = upstreams.search(&parsed, name, family, self.limits.tries);
        match tokio::time::timeout(self.limits.total, asking).await {
            Ok(answered) => answered,
            Err(_) => Err(fail(ResolveErrorKind::Timeout)),
        }
    }

    /// What the hosts file says, and `localhost`.
    fn without_asking(&self, name: &str, family: Family) -> Option<Result<Answer, ResolveError>> {
        let listed = match &self.servers {
            Servers::Named { .. } => None,
            Servers::System { hosts, .. } => {
                // A machine without a hosts file has none of its names.
                let read = hosts.get(|text| match text {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Hosts::default()),
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

    fn upstreams(&self) -> Result<Arc<Upstreams>, NetError> {
        match &self.servers {
            Servers::System { configuration, .. } => configuration.get(|text| {
                let (config, options) = system_configuration(text)?;
                self.build(&config, options)
            }),
            Servers::Named { servers, made } => {
                let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(made) = &*made {
                    return Ok(made.clone());
                }
                let servers = servers.iter().map(Server::configuration).collect();
                let config = ResolverConfig::from_parts(None, Vec::new(), servers);
                let upstreams = Arc::new(self.build(&config, ResolverOpts::default())?);
                Ok(made.insert(upstreams).clone())
            }
        }
    }

    fn build(&self, config: &ResolverConfig, mut options: ResolverOpts) -> Result<Upstreams, NetError> {
        options.cache_size = 0;
        options.timeout = self.limits.one_try;
        options.attempts = 0;
        options.use_hosts_file = ResolveHosts::Never;
        Upstreams::new(config, options.ndots, self.limits.one_try, |server| {
            #[cfg(feature = "dns-over-tls")]
            let encrypted = server
                .connections
                .iter()
                .any(|connection| !matches!(connection.protocol, ProtocolConfig::Udp | ProtocolConfig::Tcp));
            let config = ResolverConfig::from_parts(config.domain().cloned(), config.search().to_vec(), vec![server]);
            let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
            let builder = builder.with_options(options.clone());
            #[cfg(feature = "dns-over-tls")]
            let builder = if encrypted { builder.with_tls_config(self.tls_config()?) } else { builder };
            builder.build()
        })
    }

    #[cfg(feature = "dns-over-tls")]
    fn tls_config(&self) -> Result<rustls::ClientConfig, NetError> {
        match &self.tls {
            Some(tls) => Ok(tls.clone()),
            None => crate::trust::platform().map_err(|error| NetError::Io(Arc::new(std::io::Error::other(error)))),
        }
    }
}

impl Resolve for HickoryResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        Box::pin(self.ask(name, family))
    }
}

#[cfg(unix)]
fn system_configuration(text: std::io::Result<Vec<u8>>) -> Result<(ResolverConfig, ResolverOpts), NetError> {
    hickory_resolver::system_conf::parse_resolv_conf(text.map_err(|error| NetError::Io(Arc::new(error)))?)
}

#[cfg(not(unix))]
fn system_configuration(_: std::io::Result<Vec<u8>>) -> Result<(ResolverConfig, ResolverOpts), NetError> {
    hickory_resolver::system_conf::read_system_conf().map_err(Into::into)
}

/// The servers of a configuration, each with a resolver of its own: hickory would not go on to the next one after
/// SERVFAIL or REFUSED, nor to TCP where UDP goes unanswered.
struct Upstreams {
    servers: Vec<Upstream>,
    /// What is appended to names that have no trailing dot.
    suffixes: Vec<Name>,
    /// A name with so many dots is asked for as it is before it is asked for with a suffix.
    ndots: usize,
    /// How long one try may take: hickory has limits of its own for some of its steps.
    one_try: Duration,
    /// The one that answered last is asked first.
    first: AtomicUsize,
}

struct Upstream {
    resolver: TokioResolver,
    /// The same by TCP, for a server that is silent by UDP.
    by_tcp: Option<TokioResolver>,
}

impl Upstreams {
    fn new(
        config: &ResolverConfig,
        ndots: usize,
        one_try: Duration,
        resolver: impl Fn(NameServerConfig) -> Result<TokioResolver, NetError>,
    ) -> Result<Self, NetError> {
        if config.name_servers().is_empty() {
            return Err(NetError::Message("no DNS servers given"));
        }
        let servers = config.name_servers().iter().map(|server| {
            let mut by_tcp = server.clone();
            by_tcp.connections.retain(|connection| matches!(connection.protocol, ProtocolConfig::Tcp));
            let by_tcp = (!by_tcp.connections.is_empty()).then(|| resolver(by_tcp)).transpose()?;
            Ok(Upstream { resolver: resolver(server.clone())?, by_tcp })
        });
        let servers = servers.collect::<Result<_, NetError>>()?;
        let suffixes = match config.search() {
            [] => config.domain().cloned().into_iter().collect(),
            search => search.to_vec(),
        };
        Ok(Self { servers, suffixes, ndots, one_try, first: AtomicUsize::new(0) })
    }

    /// Asks for the name, and for it with each suffix, until there is an answer. That none of them exists is only said
    /// when that was the answer to each.
    async fn search(&self, parsed: &Name, name: &str, family: Family, tries: usize) -> Result<Answer, ResolveError> {
        let mut failed = None;
        let mut missing = None;
        for candidate in self.candidates(parsed) {
            match self.ask(&candidate, name, family, tries).await {
                Ok(answer) => return Ok(answer),
                Err(error) => match error.kind() {
                    // Whoever is silent now is silent about the next candidate as well.
                    ResolveErrorKind::Timeout | ResolveErrorKind::Unreachable => return Err(error),
                    ResolveErrorKind::NoData => missing = Some(error),
                    ResolveErrorKind::NxDomain => missing = missing.or(Some(error)),
                    _ => failed = Some(error),
                },
            }
        }
        Err(failed.or(missing).unwrap_or_else(|| ResolveError::new(ResolveErrorKind::InvalidName, name, family)))
    }

    /// The full names a name may stand for, in the order of resolv.conf(5).
    fn candidates(&self, name: &Name) -> Vec<Name> {
        let mut bare = name.clone();
        bare.set_fqdn(true);
        if name.is_fqdn() {
            return vec![bare];
        }
        let dots = usize::from(name.num_labels()).saturating_sub(1);
        let mut candidates: Vec<_> =
            self.suffixes.iter().filter_map(|suffix| name.clone().append_domain(suffix).ok()).collect();
        for candidate in &mut candidates {
            candidate.set_fqdn(true);
        }
        let place = if dots >= self.ndots { 0 } else { candidates.len() };
        candidates.insert(place, bare);
        candidates
    }

    async fn ask(&self, parsed: &Name, name: &str, family: Family, tries: usize) -> Result<Answer, ResolveError> {
        let count = self.servers.len();
        let first = self.first.load(Ordering::Relaxed);
        let mut states = vec![State::Unasked; count];
        let mut last = ResolveError::new(ResolveErrorKind::Timeout, name, family);
        for turn in 0..tries * count {
            let index = (first + turn) % count;
            let server = &self.servers[index];
            let resolver = match states[index] {
                State::Unasked => &server.resolver,
                State::Silent => server.by_tcp.as_ref().unwrap_or(&server.resolver),
                State::Failed => continue,
            };
            let asking = query(resolver, parsed.clone(), family);
            let asked = tokio::time::timeout(self.one_try, asking).await;
            match asked.unwrap_or(Err(NetError::Timeout)) {
                Ok(lookup) => {
                    self.first.store(index, Ordering::Relaxed);
                    let nothing = || ResolveError::new(ResolveErrorKind::NoData, name, family);
                    return answer(lookup.answers(), parsed, family).ok_or_else(nothing);
                }
                Err(error) => last = explain(error, name, family),
            }
            states[index] = match last.kind() {
                kind if kind.is_negative() => {
                    self.first.store(index, Ordering::Relaxed);
                    return Err(last);
                }
                ResolveErrorKind::Timeout | ResolveErrorKind::Unreachable => {
                    let next = (index + 1) % count;
                    // Another lookup may have found a better one in the meantime.
                    let _ = self.first.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
                    State::Silent
                }
                _ => State::Failed,
            };
        }
        Err(last)
    }
}

/// What came of asking a server so far.
#[derive(Debug, Clone, Copy)]
enum State {
    Unasked,
    Silent,
    Failed,
}

/// One family's lookup.
async fn query(resolver: &TokioResolver, name: Name, family: Family) -> Result<Lookup, NetError> {
    match family {
        Family::V4 => resolver.ipv4_lookup(name).await,
        Family::V6 => resolver.ipv6_lookup(name).await,
    }
}

/// The addresses of the name, or of the end of its chain of aliases, and the chain's smallest TTL; `None` without
/// addresses. What an answer says about other names is not for it to say, and left out.
fn answer(records: &[Record], name: &Name, family: Family) -> Option<Answer> {
    let mut owner = name;
    let mut smallest = Duration::MAX;
    // A chain has no more links than the answer has records; a loop ends there.
    for _ in records {
        let alias = records.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == *owner => Some((&target.0, ttl(record.ttl))),
            _ => None,
        });
        let Some((target, ttl)) = alias else { break };
        (owner, smallest) = (target, smallest.min(ttl));
    }
    let mut addresses = Vec::new();
    for record in records.iter().filter(|record| record.name == *owner) {
        if let Some(ip) = record.data.ip_addr().filter(|ip| Family::of(*ip) == family) {
            addresses.push(ip);
            smallest = smallest.min(ttl(record.ttl));
        }
    }
    (!addresses.is_empty()).then(|| Answer::new(addresses, smallest, Source::Miss))
}

/// A TTL with its high bit set counts as zero (RFC 2181 §8).
fn ttl(seconds: u32) -> Duration {
    Duration::from_secs(if seconds > i32::MAX as u32 { 0 } else { seconds.into() })
}

fn explain(error: NetError, name: &str, family: Family) -> ResolveError {
    let (kind, negative_ttl) = match &error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            let kind = match none.response_code {
                ResponseCode::NXDomain => ResolveErrorKind::NxDomain,
                ResponseCode::NoError => ResolveErrorKind::NoData,
                code => failure(code),
            };
            (kind, none.negative_ttl.map(ttl))
        }
        NetError::Dns(DnsError::ResponseCode(code)) => (failure(*code), None),
        NetError::Timeout => (ResolveErrorKind::Timeout, None),
        NetError::Io(_) | NetError::NoConnections => (ResolveErrorKind::Unreachable, None),
        _ => (ResolveErrorKind::Other, None),
    };
    ResolveError::new(kind, name, family).with_negative_ttl(negative_ttl).with_cause(error)
}

fn failure(code: ResponseCode) -> ResolveErrorKind {
    match code {
        ResponseCode::ServFail => ResolveErrorKind::ServFail,
        ResponseCode::Refused => ResolveErrorKind::Refused,
        _ => ResolveErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use hickory_resolver::proto::rr::rdata::{A, CNAME};

    use super::*;

    const NOBODY: [Server; 0] = [];

    #[test]
    fn a_ttl_with_its_high_bit_set_is_zero() {
        assert_eq!(ttl(60), Duration::from_secs(60));
        assert_eq!(ttl(i32::MAX as u32), Duration::from_secs(i32::MAX as u64));
        assert_eq!(ttl(1 << 31), Duration::ZERO);
    }

    fn record(name: &str, seconds: u32, data: RData) -> Record {
        Record::from_rdata(Name::from_ascii(name).unwrap(), seconds, data)
    }

    fn alias(name: &str, seconds: u32, target: &str) -> Record {
        record(name, seconds, RData::CNAME(CNAME(Name::from_ascii(target).unwrap())))
    }

    fn address(name: &str, seconds: u32, last: u8) -> Record {
        record(name, seconds, RData::A(A([192, 0, 2, last].into())))
    }

    fn answered(records: &[Record]) -> Option<(Vec<u8>, u64)> {
        let answer = answer(records, &Name::from_ascii("a.test.").unwrap(), Family::V4)?;
        let last = |ip: &IpAddr| ip.to_string().rsplit('.').next().unwrap().parse().unwrap();
        Some((answer.addresses().iter().map(last).collect(), answer.ttl().as_secs()))
    }

    #[test]
    fn records_for_other_names_are_left_out() {
        let records = [address("A.test.", 60, 1), address("other.test.", 5, 66), address("a.test.", 50, 2)];
        assert_eq!(answered(&records), Some((vec![1, 2], 50)));
        assert_eq!(answered(&[address("other.test.", 60, 66)]), None);
    }

    #[test]
    fn a_chain_is_followed_in_any_order_and_its_smallest_ttl_counts() {
        let records = [address("c.test.", 60, 1), alias("b.test.", 5, "c.test."), alias("a.test.", 30, "b.test.")];
        assert_eq!(answered(&records), Some((vec![1], 5)));
    }

    #[test]
    fn a_chain_that_loops_or_dangles_has_no_addresses() {
        assert_eq!(answered(&[alias("a.test.", 5, "b.test."), alias("b.test.", 5, "a.test.")]), None);
        assert_eq!(answered(&[alias("a.test.", 5, "b.test."), address("c.test.", 5, 1)]), None);
    }

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

    #[test]
    fn names_are_searched_for_in_the_order_of_resolv_conf() {
        let text = b"search corp.test lan\noptions ndots:2\nnameserver 127.0.0.1\n".to_vec();
        let (config, options) = system_configuration(Ok(text)).unwrap();
        let upstreams = HickoryResolver::system().build(&config, options).unwrap();
        let candidates = |name: &str| {
            let candidates = upstreams.candidates(&Name::from_str_relaxed(name).unwrap());
            candidates.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(candidates("api"), ["api.corp.test.", "api.lan.", "api."]);
        assert_eq!(candidates("a.b"), ["a.b.corp.test.", "a.b.lan.", "a.b."]);
        assert_eq!(candidates("a.b.c"), ["a.b.c.", "a.b.c.corp.test.", "a.b.c.lan."]);
        assert_eq!(candidates("api."), ["api."]);
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
