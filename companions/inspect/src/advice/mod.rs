//! Advice on the limits of a client's pool, from the pool's own statistics, and its table.
//!
//! A file calls files further down in this list: `mod.rs` (the advice, for each host and for all together), `rules.rs` (one function for
//! each setting), `item.rs`, `load.rs` (the formulas).

mod item;
mod load;
mod rules;
#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod simulation_tests;

use std::fmt;
use std::time::Duration;

use speeddial::dns::CacheStats;
use speeddial::origin::Origin;
use speeddial::pool::{self, HostLimits};
use speeddial::{Client, PoolConfig};

pub use self::item::{AdviceItem, Figure, Setting, SettingValue};
use self::item::{number_text, time_text};
use self::load::{Load, MAY_WAIT, Totals, fewest_connections};
use self::rules::{ENOUGH_REQUESTS, TotalLoad};

/// The statistics of a client at a moment. Two of them make the advice for the time between: [`Advice::between`].
#[derive(Debug, Clone)]
pub struct StatsSnapshot {
    load: pool::Load,
    dns: CacheStats,
}

impl StatsSnapshot {
    /// Takes the statistics of the client's pool and of its DNS cache.
    pub fn of(client: &Client) -> Self {
        Self { load: client.load(), dns: client.dns_stats() }
    }
}

/// Advice on the limits of a client's pool, from what the pool measured: [`Advice::of`].
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
/// [`Advice::of`] takes the whole time since the client was built; pauses count as time, and make the
/// rates lower. [`Advice::between`] takes the time between two snapshots, such as the busiest minute of a day.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use speeddial::Client;
/// use speeddial_inspect::{Advice, StatsSnapshot};
///
/// let client = Client::new();
/// let before = StatsSnapshot::of(&client);
/// // … a busy minute …
/// let advice = Advice::between(&before, &StatsSnapshot::of(&client));
/// println!("{advice}\n{}", advice.to_code());
/// let next = Client::builder().pool(advice.pool_config()).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Advice {
    span: Duration,
    hosts: Vec<HostAdvice>,
    total: Vec<AdviceItem>,
    /// The requests of hosts that the pool has forgotten.
    forgotten: u64,
    dns: DnsUse,
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
#[derive(Debug, Clone, Copy, Default)]
struct DnsUse {
    lookups: u64,
    queries: u64,
    /// The queries whose time is known, and the sum of these times.
    times: u64,
    time: Duration,
}

impl Advice {
    /// Returns the advice for the time since the client was built. For a shorter time, such as a busy minute, see
    /// [`between`](Self::between).
    pub fn of(client: &Client) -> Self {
        let StatsSnapshot { load, dns } = StatsSnapshot::of(client);
        Self::new(&load, DnsUse::of(&dns))
    }

    /// Returns the advice for the time between two snapshots of the same client.
    pub fn between(earlier: &StatsSnapshot, later: &StatsSnapshot) -> Self {
        Self::new(&later.load.since(&earlier.load), DnsUse::of(&later.dns).since(&DnsUse::of(&earlier.dns)))
    }

    fn new(load: &pool::Load, dns: DnsUse) -> Self {
        let pool::Load { span, pool, hosts, max_connections, max_idle, descriptors, .. } = load;
        let hosts = hosts.iter().map(|(origin, host)| (origin.clone(), Load::new(host, *span))).collect();
        let total = |(needed, is_host_raised, arrivals)| TotalLoad {
            stats: (*pool).into(),
            max_connections: *max_connections,
            max_idle: *max_idle,
            descriptors: *descriptors,
            needed,
            is_host_raised,
            arrivals,
        };
        Self::from_loads(*span, hosts, total, load.config.clone(), dns)
    }

    /// Makes the advice of the loads of hosts. `total` has the load of all of them together, beside the connections that they need, if one
    /// is to have more, and the requests that asked for a connection.
    fn from_loads(
        span: Duration,
        mut loads: Vec<(Origin, Load)>,
        total: impl FnOnce((usize, bool, u64)) -> TotalLoad,
        config: PoolConfig,
        dns: DnsUse,
    ) -> Self {
        let all_hosts = loads.clone();
        loads.retain(|(_, load)| load.arrivals() > 0);
        let is_host_raised = loads.iter().any(|(_, load)| is_enough(load) && load.limited_share() > MAY_WAIT);
        let arrivals = loads.iter().map(|(_, load)| load.arrivals()).sum();
        let total = total((needed_by_all(&loads), is_host_raised, arrivals));
        Self {
            span,
            forgotten: forgotten(&total.stats, &all_hosts),
            total: if arrivals < ENOUGH_REQUESTS { Vec::new() } else { rules::of_all(&total) },
            hosts: loads.iter().map(|(origin, load)| HostAdvice::new(origin, load)).collect(),
            dns,
            config,
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
    fn total(&self) -> &[AdviceItem] {
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
            handshakes: load.stats.pool.opened,
            items: if is_enough(load) { rules::of_host(origin, load) } else { Vec::new() },
        }
    }

    /// Sets the suggested limits of this host.
    fn set(config: PoolConfig, host: &Self) -> PoolConfig {
        let changes = host.items.iter().filter(|item| item.is_change());
        config.update_host(&host.origin, |limits| changes.fold(limits, with_suggested))
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
fn forgotten(stats: &Totals, loads: &[(Origin, Load)]) -> u64 {
    let all = stats.pool.hold_time.count();
    let known: u64 = loads.iter().map(|(_, load)| load.stats.pool.hold_time.count()).sum();
    let missing = all.saturating_sub(known);
    if missing > all / 100 { missing } else { 0 }
}

/// Returns true if there were enough requests for advice.
fn is_enough(load: &Load) -> bool {
    load.arrivals() >= ENOUGH_REQUESTS && load.stats.pool.hold_time.count() > 0
}

/// Returns the connections that all hosts need together. The requests of one small host are too few to tell its need, but those of
/// all small ones together are not.
fn needed_by_all(loads: &[(Origin, Load)]) -> usize {
    let (known, small): (Vec<_>, Vec<_>) = loads.iter().map(|(_, load)| load).partition(|load| is_enough(load));
    let known: usize = known.into_iter().map(connections).sum();
    if small.is_empty() {
        return known;
    }
    let open: usize =
        small.iter().map(|load| load.stats.pool.idle + load.stats.pool.in_use + load.stats.pool.dialling).sum();
    let demand: f64 = small.iter().map(|load| load.demand() / load.streams.unwrap_or(1).max(1) as f64).sum();
    known + open.max(fewest_connections(demand))
}

/// Returns the connections that a host with enough requests needs.
fn connections(load: &Load) -> usize {
    let needed = rules::needed(load).max(fewest_connections(load.demand()));
    needed.div_ceil(load.streams.unwrap_or(1).max(1))
}

impl DnsUse {
    fn of(dns: &CacheStats) -> Self {
        let lookups = dns.hits + dns.negative_hits + dns.stale_hits + dns.coalesced + dns.misses;
        let (times, time) = (dns.upstream_latency.count(), dns.upstream_latency.sum());
        Self { lookups, queries: dns.misses + dns.refreshes, times, time }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            lookups: self.lookups.saturating_sub(earlier.lookups),
            queries: self.queries.saturating_sub(earlier.queries),
            times: self.times.saturating_sub(earlier.times),
            time: self.time.saturating_sub(earlier.time),
        }
    }

    /// Returns the mean time of a query.
    fn mean(&self) -> Option<Duration> {
        let times = u32::try_from(self.times).unwrap_or(u32::MAX);
        self.time.checked_div(times)
    }
}

/// The characters in front of the last column.
const INDENT: usize = 52;
/// The most characters in a line of the last column.
const WIDTH: usize = 68;

/// Prints the advice as a table; with `{:#}` the figures behind each line too.
impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = time_text(self.span);
        if self.hosts().is_empty() {
            return write!(f, "no advice: there was no request in {span}");
        }
        write!(f, "advice from {span}")?;
        for host in self.hosts() {
            write_host(f, host)?;
        }
        if !self.total().is_empty() {
            write!(f, "\nall hosts")?;
            write_items(f, self.total())?;
        }
        self.write_rest(f)
    }
}

fn write_host(f: &mut fmt::Formatter<'_>, host: &HostAdvice) -> fmt::Result {
    let (origin, requests) = (&host.origin, host.requests);
    if host.items.is_empty() {
        return write!(f, "\n{origin}: not enough data, {requests} requests of at least {ENOUGH_REQUESTS}");
    }
    let (rate, mean) = (number_text(host.rate), number_text(host.concurrency));
    let (hold, wait) = (time_text(host.hold_time), time_text(host.queue_time));
    let handshakes = host.handshakes;
    write!(f, "\n{origin}: {requests} requests, {rate}/s; each waited {wait} and held a connection for {hold}: ")?;
    write!(f, "{mean} at a time on average; {handshakes} handshakes")?;
    write_items(f, &host.items)
}

fn write_items(f: &mut fmt::Formatter<'_>, items: &[AdviceItem]) -> fmt::Result {
    write!(f, "\n  {:<30} {:>8} {:>8}  why", "setting", "now", "better")?;
    for item in items {
        let suggested = if item.is_change() { item.suggested.to_string() } else { "same".to_owned() };
        write!(f, "\n  {:<30} {:>8} {suggested:>8}  ", item.setting, item.present)?;
        write_wrapped(f, &item.reason)?;
        if f.alternate() {
            let figures: Vec<_> = item.figures.iter().map(ToString::to_string).collect();
            write!(f, "\n{:INDENT$}", "")?;
            write_wrapped(f, &format!("({})", figures.join(", ")))?;
        }
    }
    Ok(())
}

/// Writes a text in the last column, in as many lines as it needs.
fn write_wrapped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut width = 0;
    for word in text.split(' ') {
        let length = word.chars().count() + 1;
        if width > 0 && width + length > WIDTH {
            write!(f, "\n{:INDENT$}", "")?;
            width = 0;
        }
        let space = if width == 0 { "" } else { " " };
        write!(f, "{space}{word}")?;
        width += length;
    }
    Ok(())
}

impl Advice {
    /// Writes what is beside the settings: the lookups of names, and the requests without advice.
    fn write_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dns = &self.dns;
        if dns.lookups > 0 {
            let (lookups, queries) = (dns.lookups, dns.queries);
            write!(f, "\nDNS: {queries} queries for {lookups} lookups")?;
            if let Some(mean) = dns.mean() {
                write!(f, ", {} each", time_text(mean))?;
            }
        }
        if self.forgotten > 0 {
            write!(f, "\n{} requests to hosts that the pool has forgotten are left out", self.forgotten)?;
        }
        Ok(())
    }
}
