//! hickory-resolver behind the [`Resolve`] seam: its own cache off, one query a family, server after server.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::config::{ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;

use super::hosts::{self, Hosts, Watched};
use super::server::Server;
use super::upstreams::{LONGEST, Limits, MOST_TRIES, Upstreams, Workshop};
use super::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};
#[cfg(feature = "dns-over-tls")]
use crate::trust::{self, Trusting};

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

    /// How long one try of one server may take, an hour at most. 2 s by default.
    pub fn with_try_timeout(mut self, timeout: Duration) -> Self {
        self.limits.one_try = timeout.min(LONGEST);
        self
    }

    /// How often each server is tried, at least once and at most 100 times. Twice by default.
    pub fn with_tries(mut self, tries: usize) -> Self {
        self.limits.tries = tries.clamp(1, MOST_TRIES);
        self
    }

    /// How long a lookup may take over all, from its turn on. 5 s by default; a cache on top has a limit of its own.
    pub fn with_total_timeout(mut self, timeout: Duration) -> Self {
        self.limits.total = timeout.min(LONGEST);
        self
    }

    /// How many lookups ask at once, at least one; the others wait for their turn. 256 by default, which is 5,000 lookups a
    /// second of a server that is 50 ms away, and fits into the receive buffer of one that is busy. A lookup without an
    /// answer for a second makes way for another one, and as many as that may go on so; beyond, they end as timed out. Each
    /// has a socket, and up to three while its server is silent.
    pub fn with_max_in_flight(mut self, lookups: usize) -> Self {
        self.limits.in_flight = lookups;
        self
    }

    fn new(servers: Servers) -> Self {
        let (one_try, total) = (Duration::from_secs(2), Duration::from_secs(5));
        let limits = Limits { one_try, tries: 2, total, in_flight: 256 };
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

    fn build(&self, config: &ResolverConfig, options: ResolverOpts) -> Result<Upstreams, NetError> {
        let workshop = Workshop {
            options: Workshop::options(options, self.limits),
            #[cfg(feature = "dns-over-tls")]
            tls: self.tls_config(config)?,
        };
        Upstreams::new(config, self.limits, workshop)
    }

    #[cfg(feature = "dns-over-tls")]
    fn tls_config(&self, config: &ResolverConfig) -> Result<rustls::ClientConfig, NetError> {
        let encrypted = config.name_servers().iter().any(Server::is_encrypted);
        let trusting = match &self.tls {
            Some(tls) => return Ok(tls.clone()),
            None if encrypted => Trusting::Platform,
            None => Trusting::Nobody,
        };
        trust::client_config(trusting).map_err(|error| NetError::Io(Arc::new(std::io::Error::other(error))))
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
