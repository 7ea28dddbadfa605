//! Advice on the limits of a client's pool, for each host and for all together.

use std::time::Duration;

use super::host_rules::{self, ENOUGH_REQUESTS};
use super::item::{AdviceItem, Setting, SettingValue};
use super::load::Load;
use super::snapshot::StatsSnapshot;
use super::staffing;
use super::total_rules::{self, TotalLoad};
use crate::host_pattern::HostPattern;
use crate::latency::Latency;
use crate::origin::Origin;
use crate::pool::{HostFacts, HostLimits, PoolConfig, PoolStats};

/// Advice on the limits of a client's pool, from what the pool measured: [`Client::advise`](crate::Client::advise).
///
/// `Display` prints a table, one line for each setting, and `{:#}` the figures behind each line as well.
/// [`pool_config`](Self::pool_config) has the suggested limits as a value, [`to_code`](Self::to_code) as lines of Rust.
///
/// # The suggestions
/// * Connections: the requests that hold a connection at the same time are their rate times the mean time for which one holds it
///   (Little's law). The suggested limit is the lowest with which at most 1 in 100 requests waits, by Erlang's formula C: it
///   assumes that requests come at random. If more wait, they come in bursts, and the time they waited says how many more
///   connections those need. The limit is at least the most requests that were seen at the same time, with a margin, as long as
///   the present limit did not bind. A limit is multiplied by at most 4. The pool cannot see where a request waits in the server:
///   if the hold time rises with the limit and the rate does not, the server has no more to give, and the lower limit is as good.
/// * HTTP/2: the same for streams. Only the limits that requests waited for are raised.
/// * Idle timeout: what the server announced (`Keep-Alive: timeout`) or showed by closing idle connections, if that is shorter. A
///   longer one where most new connections replace one that the idle timeout closed.
/// * Descriptors: connections should take 70 % of them at most.
///
/// The most requests at the same time are those since the client was built, for [`between`](Self::between) as well.
///
/// A limit that no request waited for is not raised. One that is more than twice what is needed is lowered, because the limit is
/// what keeps a slow server from taking every connection. A host with fewer than 100 requests has no advice.
///
/// # The time it is for
/// [`Client::advise`](crate::Client::advise) takes the whole time since the client was built; pauses count as time, and make the
/// rates lower. [`Advice::between`] takes the time between two snapshots, such as the busiest minute of a day.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use speeddial::inspect::Advice;
/// use speeddial::Client;
///
/// let client = Client::new();
/// let before = client.stats_snapshot();
/// // … a busy minute …
/// let advice = Advice::between(&before, &client.stats_snapshot());
/// println!("{advice}\n{}", advice.to_code());
/// let next = Client::builder().pool(advice.pool_config()).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Advice {
    pub(super) span: Duration,
    hosts: Vec<HostAdvice>,
    total: Vec<AdviceItem>,
    /// The requests of hosts that the pool has forgotten.
    pub(super) forgotten: u64,
    pub(super) dns: DnsUse,
    config: PoolConfig,
}

/// The advice for one host.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HostAdvice {
    /// The host.
    pub origin: Origin,
    /// The requests that asked for a connection in this time.
    pub requests: u64,
    /// The requests per second.
    pub rate: f64,
    /// The mean time for which a request held its connection.
    pub hold_time: Duration,
    /// The mean time for which a request waited for its connection.
    pub queue_time: Duration,
    /// The mean number of requests that held a connection at the same time (Little's law).
    pub concurrency: f64,
    /// The handshakes: connections opened.
    pub handshakes: u64,
    /// The advice on each setting. Empty if there were fewer than 100 requests.
    pub items: Vec<AdviceItem>,
}

/// The lookups of names in the span.
#[derive(Debug, Clone, Copy)]
pub(super) struct DnsUse {
    pub(super) lookups: u64,
    pub(super) queries: u64,
    pub(super) time: Latency,
}

impl Advice {
    /// Returns the advice for the time between two snapshots of the same client.
    ///
    pub fn between(earlier: &StatsSnapshot, later: &StatsSnapshot) -> Self {
        Self::of(Some(earlier), later)
    }

    /// Returns the advice for the time since the client was built.
    pub(crate) fn since_built(now: &StatsSnapshot) -> Self {
        Self::of(None, now)
    }

    fn of(earlier: Option<&StatsSnapshot>, later: &StatsSnapshot) -> Self {
        let span = later.at - earlier.map_or(later.built, |earlier| earlier.at);
        let load = |(origin, facts): &(Origin, HostFacts)| {
            let before = earlier.and_then(|earlier| earlier.hosts.iter().find(|(other, _)| other == origin));
            let facts = before.map_or(*facts, |(_, before)| facts.since(before));
            (origin.clone(), Load::new(&facts, span))
        };
        let mut loads: Vec<_> = later.hosts.iter().map(load).collect();
        let stats = earlier.map_or(later.pool, |earlier| later.pool.since(&earlier.pool));
        let forgotten = forgotten(&stats, &loads);
        loads.retain(|(_, load)| load.arrivals() > 0);
        let total = TotalLoad {
            stats,
            config: &later.config,
            descriptors: later.descriptors,
            needed: needed_by_all(&loads),
            is_host_raised: loads.iter().any(|(_, load)| is_enough(load) && load.limited_share() > staffing::MAY_WAIT),
            arrivals: loads.iter().map(|(_, load)| load.arrivals()).sum(),
        };
        Self {
            span,
            total: if total.arrivals < ENOUGH_REQUESTS { Vec::new() } else { total_rules::advise(&total) },
            hosts: loads.iter().map(|(origin, load)| HostAdvice::new(origin, load)).collect(),
            forgotten,
            dns: DnsUse::between(earlier, later),
            config: later.config.clone(),
        }
    }

    /// Returns the time that the advice is for.
    pub fn span(&self) -> Duration {
        self.span
    }

    /// Returns the advice for each host that had requests. Those of hosts that had the fewest, of more than 256 that have no
    /// connection any more, are left out.
    pub fn hosts(&self) -> &[HostAdvice] {
        &self.hosts
    }

    /// Returns all pieces of advice, those for hosts first. Those without a change are among them, with their reason.
    pub fn items(&self) -> impl Iterator<Item = &AdviceItem> {
        self.hosts.iter().flat_map(|host| &host.items).chain(&self.total)
    }

    /// Returns the present configuration with the suggested limits. Those of a host are set for that host and port alone.
    pub fn pool_config(&self) -> PoolConfig {
        let mut config = self.config.clone();
        for item in &self.total {
            config = match (item.setting, item.suggested) {
                (Setting::MaxConnections, SettingValue::Count(limit)) => config.max_connections(limit),
                (Setting::MaxIdle, SettingValue::Count(limit)) => config.max_idle(limit),
                _ => config,
            };
        }
        self.hosts.iter().filter(|host| host.items.iter().any(AdviceItem::is_change)).fold(config, HostAdvice::set)
    }

    /// Returns the lines of Rust that make [`pool_config`](Self::pool_config).
    pub fn to_code(&self) -> String {
        self.pool_config().to_code()
    }

    /// Returns the advice for all hosts together.
    pub(super) fn total(&self) -> &[AdviceItem] {
        &self.total
    }
}

impl HostAdvice {
    fn new(origin: &Origin, load: &Load) -> Self {
        let requests = load.arrivals();
        Self {
            origin: origin.clone(),
            requests,
            rate: load.rate(),
            hold_time: load.hold(),
            queue_time: load.wait(),
            concurrency: load.concurrency(),
            handshakes: load.stats.opened,
            items: if is_enough(load) { host_rules::advise(origin, load) } else { Vec::new() },
        }
    }

    /// Sets the suggested limits of this host.
    fn set(config: PoolConfig, host: &Self) -> PoolConfig {
        // As the pool looks its limits up: without the dot at the end of a fully qualified name.
        let (name, port) = (host.origin.host().to_string(), host.origin.port());
        let name = name.trim_end_matches('.');
        let limits = config.override_for(name, port);
        let limits = host.items.iter().filter(|item| item.is_change()).fold(limits, with_suggested);
        config.with_override(HostPattern::of(name, port), limits)
    }
}

/// Sets the suggested limit of one host.
fn with_suggested(limits: HostLimits, item: &AdviceItem) -> HostLimits {
    match (item.setting, item.suggested) {
        (Setting::MaxConnectionsPerHost, SettingValue::Count(limit)) => limits.max_connections(limit),
        (Setting::MaxHttp2ConnectionsPerHost, SettingValue::Count(limit)) => limits.max_http2_connections(limit),
        (Setting::MaxIdlePerHost, SettingValue::Count(limit)) => limits.max_idle(limit),
        (Setting::IdleTimeout, SettingValue::Time(timeout)) => limits.idle_timeout(timeout),
        _ => limits,
    }
}

/// Returns the requests of hosts that the pool has forgotten, if they are more than 1 in 100: the figures of the pool and of its
/// hosts are not read at the same moment, so a few may only seem to be missing.
fn forgotten(stats: &PoolStats, loads: &[(Origin, Load)]) -> u64 {
    let all = stats.hold_time.count();
    let known: u64 = loads.iter().map(|(_, load)| load.stats.hold_time.count()).sum();
    let missing = all.saturating_sub(known);
    if missing > all / 100 { missing } else { 0 }
}

/// Returns true if there were enough requests for advice.
fn is_enough(load: &Load) -> bool {
    load.arrivals() >= ENOUGH_REQUESTS && load.stats.hold_time.count() > 0
}

/// Returns the connections that all hosts need together. The requests of one small host are too few to tell its need, but those of
/// all small ones together are not.
fn needed_by_all(loads: &[(Origin, Load)]) -> usize {
    let (known, small): (Vec<_>, Vec<_>) = loads.iter().map(|(_, load)| load).partition(|load| is_enough(load));
    let known: usize = known.into_iter().map(connections).sum();
    if small.is_empty() {
        return known;
    }
    let open: usize = small.iter().map(|load| load.stats.idle + load.stats.in_use + load.stats.dialling).sum();
    let demand: f64 = small.iter().map(|load| load.demand() / load.streams.unwrap_or(1).max(1) as f64).sum();
    known + open.max(staffing::fewest_connections(demand))
}

/// Returns the connections that a host with enough requests needs.
fn connections(load: &Load) -> usize {
    let needed = host_rules::needed(load).max(staffing::fewest_connections(load.demand()));
    needed.div_ceil(load.streams.unwrap_or(1).max(1))
}

impl DnsUse {
    fn between(earlier: Option<&StatsSnapshot>, later: &StatsSnapshot) -> Self {
        let dns = &later.dns;
        let lookups =
            |dns: &crate::dns::CacheStats| dns.hits + dns.negative_hits + dns.stale_hits + dns.coalesced + dns.misses;
        let queries = |dns: &crate::dns::CacheStats| dns.misses + dns.refreshes;
        let Some(before) = earlier.map(|earlier| &earlier.dns) else {
            return Self { lookups: lookups(dns), queries: queries(dns), time: dns.upstream_latency };
        };
        Self {
            lookups: lookups(dns).saturating_sub(lookups(before)),
            queries: queries(dns).saturating_sub(queries(before)),
            time: dns.upstream_latency.since(&before.upstream_latency),
        }
    }
}
