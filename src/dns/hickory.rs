//! hickory-resolver behind the [`Resolve`] seam: its own cache off, one query a family.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record};
use hickory_resolver::{ResolverBuilder, TokioResolver};

use super::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};

const TRY_TIMEOUT: Duration = Duration::from_secs(2);
const TRIES: usize = 2;
const TOTAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks DNS servers, by UDP and by TCP where an answer is truncated: 2 s a try, 2 tries, 5 s over all.
///
/// It has no cache of its own; [`CachedResolver`](super::CachedResolver) is to sit on top. Names with underscores
/// resolve, and the TTL of an answer is the smallest of its whole CNAME chain.
pub struct HickoryResolver {
    servers: Option<Vec<SocketAddr>>,
    // Built at the first lookup, so that making a client cannot fail because a file is missing.
    built: Mutex<Option<Arc<TokioResolver>>>,
}

impl std::fmt::Debug for HickoryResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HickoryResolver").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl HickoryResolver {
    /// Uses the system's configuration: the servers and the search list of resolv.conf, and the hosts file.
    ///
    /// The files are read at the first lookup; when they cannot be, lookups fail with [`ResolveErrorKind::Config`].
    pub fn system() -> Self {
        Self { servers: None, built: Mutex::default() }
    }

    /// Asks these servers, and no hosts file; only `localhost` is known without asking (RFC 6761 §6.3). Without any
    /// server, every lookup fails with [`ResolveErrorKind::Config`].
    pub fn with_servers(servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self { servers: Some(servers.into_iter().collect()), built: Mutex::default() }
    }

    async fn ask(&self, name: &str, family: Family) -> Result<Answer, ResolveError> {
        let fail = |kind| ResolveError::new(kind, name, family);
        let resolver = self.resolver().map_err(|error| fail(ResolveErrorKind::Config).with_cause(error))?;
        // Not as a string: hickory would refuse the underscores that container platforms put into names.
        let parsed = Name::from_str_relaxed(name)
            .map_err(|error| fail(ResolveErrorKind::InvalidName).with_cause(NetError::from(error)))?;
        let lookup = async {
            match family {
                Family::V4 => resolver.ipv4_lookup(parsed).await,
                Family::V6 => resolver.ipv6_lookup(parsed).await,
            }
        };
        match tokio::time::timeout(TOTAL_TIMEOUT, lookup).await {
            Ok(Ok(lookup)) => {
                answer(lookup.answers(), lookup.query().name(), family).ok_or_else(|| fail(ResolveErrorKind::NoData))
            }
            Ok(Err(error)) => Err(explain(error, name, family)),
            Err(_) => Err(fail(ResolveErrorKind::Timeout)),
        }
    }

    fn resolver(&self) -> Result<Arc<TokioResolver>, NetError> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(resolver) = &*built {
            return Ok(resolver.clone());
        }
        let mut builder = self.builder()?;
        let options = builder.options_mut();
        options.cache_size = 0;
        options.timeout = TRY_TIMEOUT;
        options.attempts = TRIES - 1;
        let resolver = Arc::new(builder.build()?);
        *built = Some(resolver.clone());
        Ok(resolver)
    }

    fn builder(&self) -> Result<ResolverBuilder<TokioRuntimeProvider>, NetError> {
        let Some(servers) = &self.servers else { return TokioResolver::builder_tokio() };
        if servers.is_empty() {
            return Err(NetError::Message("no DNS servers given"));
        }
        let servers = servers.iter().map(name_server).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().use_hosts_file = ResolveHosts::Never;
        Ok(builder)
    }
}

impl Resolve for HickoryResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        Box::pin(self.ask(name, family))
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
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
        let error = HickoryResolver::with_servers([]).resolve("api.test", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::Config);
    }

    #[tokio::test]
    async fn a_name_too_long_for_dns_is_refused_without_a_query() {
        let resolver = HickoryResolver::with_servers([([127, 0, 0, 1], 9).into()]);
        let error = resolver.resolve(&"a".repeat(64), Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::InvalidName);
    }
}
