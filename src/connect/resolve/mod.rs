//! The addresses of an origin, and the endpoints that DNS names for it.
//!
//! | file | what it does |
//! |---|---|
//! | `lookup.rs` | the addresses of a name: by the resolver, or set by the user |
//! | `mod.rs` | which of them are used, and in which order; keeps the name of a busy connection in the DNS cache |

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::dns::{CachedResolver, Family};

pub(super) mod lookup;

/// The addresses of a host that a client connects to. An IP address in the URL is always used.
///
/// A name may have any number of addresses that fits into a DNS answer. One call dials at most 64 of them. The first 32 of each family are
/// sorted by RFC 6724, the others follow in the order of the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Addresses {
    /// Both families race, and the first address to connect wins (RFC 8305).
    #[default]
    Both,
    /// IPv4 alone. IPv6 addresses are not looked up.
    V4Only,
    /// IPv6 alone. IPv4 addresses are not looked up.
    V6Only,
    /// Both families, and requests are balanced over all addresses, for names that list many servers.
    ///
    /// Each request goes to the address with the lower load of two drawn at random: its latency, where that differs by more than a
    /// factor of two, times the requests in flight and one. This holds over HTTP/1.1 and HTTP/2. A new address gets its share
    /// within a second of the DNS answer, and one that left gets no more requests. Failing addresses are
    /// [ejected](crate::pool::Ejection). [`Client::address_stats`](crate::Client::address_stats) shows the result. The guide
    /// [balancing gRPC](crate::guide::balancing_grpc) has more.
    ///
    /// Requests through a proxy or a Unix domain socket are not balanced, nor those for which a function of the user
    /// ([`Proxy::custom`](crate::Proxy::custom)) chooses the proxy; only their connections are spread over the addresses.
    Spread,
}

impl Addresses {
    /// Returns the families to look up.
    pub(in crate::connect) fn families(self) -> &'static [Family] {
        match self {
            Self::Both | Self::Spread => &Family::BOTH,
            Self::V4Only => &[Family::V4],
            Self::V6Only => &[Family::V6],
        }
    }
}

/// The rules for addresses that the client may connect to. An address is allowed if all rules allow it.
#[derive(Clone, Default)]
pub(crate) struct AddressPolicy(Vec<Arc<dyn Fn(IpAddr) -> bool + Send + Sync>>);

impl AddressPolicy {
    /// Adds a rule.
    pub(crate) fn add(&mut self, allows: impl Fn(IpAddr) -> bool + Send + Sync + 'static) {
        self.0.push(Arc::new(allows));
    }

    /// Adds the rule that only addresses of the public internet are allowed.
    pub(crate) fn add_public(&mut self) {
        self.add(is_public);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the addresses that all rules allow.
    pub(in crate::connect) fn filter(&self, addresses: &Arc<[IpAddr]>) -> Arc<[IpAddr]> {
        match addresses.iter().all(|ip| self.allows(*ip)) {
            true => addresses.clone(),
            false => addresses.iter().copied().filter(|ip| self.allows(*ip)).collect(),
        }
    }

    /// Returns true if all rules allow the address.
    pub(in crate::connect) fn allows(&self, ip: IpAddr) -> bool {
        // An IPv4-mapped IPv6 address counts as the IPv4 address.
        let ip = ip.to_canonical();
        self.0.iter().all(|allows| allows(ip))
    }
}

impl fmt::Debug for AddressPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AddressPolicy({} rules)", self.0.len())
    }
}

/// Returns true if the public internet may route to an address (RFC 6890). An IPv6 address that embeds an IPv4 address
/// is judged by that.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => embedded(ip).map_or_else(|| is_public_v6(ip), is_public_v4),
    }
}

/// Returns true for an address outside of the special-purpose blocks of RFC 6890.
fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [first, second, third, _] = ip.octets();
    let special = match (first, second, third) {
        (0 | 10 | 127 | 240.., ..) | (169, 254, _) | (192, 168, _) => true,
        // Shared by carriers (RFC 6598), benchmarks (RFC 2544), protocol assignments and documentation (RFC 5737).
        (100, 64..=127, _) | (172, 16..=31, _) | (198, 18 | 19, _) | (192, 0, 0 | 2) => true,
        (198, 51, 100) | (203, 0, 113) => true,
        _ => ip.is_multicast(),
    };
    !special
}

/// Returns true for global unicast addresses, 2000::/3, but not for documentation (RFC 3849, RFC 9637) and protocol
/// assignments (2001::/23). Teredo addresses are embedded IPv4 addresses, see [`embedded`].
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    let special = matches!(segments, [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2001, 0..=0x1ff, ..]);
    segments[0] & 0xe000 == 0x2000 && !special
}

/// Returns the IPv4 address that an IPv6 address embeds: mapped and compatible (RFC 4291), NAT64 (RFC 6052), 6to4 (RFC
/// 3056), Teredo (RFC 4380). A network's own NAT64 prefix (RFC 8215) may embed it anywhere; those addresses are not
/// public.
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(join(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        [0x2001, 0, _, _, _, _, high, low] => Some(join(!high, !low)),
        _ => None,
    }
}

/// The host name that a connection was opened for.
///
/// A connection that is kept busy never looks its name up again. The cache refreshes only names that are in use, so
/// each request reports the use of the name here.
pub(crate) struct NameUse {
    resolver: CachedResolver,
    name: Arc<str>,
    /// The port that the resolver has named; 0 for the usual one of the target.
    own_port: u16,
    /// The address families that the client looks up.
    families: &'static [Family],
    next_report: Instant,
    /// The time between two reports: longer each time that the cache holds no addresses of the name.
    interval: Duration,
}

/// The shortest time between two reports to the cache. It is shorter than any TTL but 0.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// The longest time between two reports while the cache holds no addresses of the name. It may be without them for a moment alone,
/// because they expired before their refresh was over.
const REPORT_INTERVAL_UNKNOWN: Duration = Duration::from_secs(30);

impl NameUse {
    /// Creates the record of a name that was looked up at `now`. `own_port` is the port that the resolver has named for it, or 0.
    pub(crate) fn new(
        resolver: &CachedResolver,
        (name, own_port): (&Arc<str>, u16),
        families: &'static [Family],
        now: Instant,
    ) -> Self {
        Self {
            resolver: resolver.clone(),
            name: name.clone(),
            own_port,
            families,
            next_report: now + REPORT_INTERVAL,
            interval: REPORT_INTERVAL,
        }
    }

    pub(in crate::connect) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(in crate::connect) fn own_port(&self) -> u16 {
        self.own_port
    }

    /// Reports to the DNS cache that the name is in use, unless it did so a moment ago.
    pub(crate) fn touch(&mut self, now: Instant) {
        if now < self.next_report {
            return;
        }
        let is_known = self.resolver.touch_families(&self.name, self.families);
        self.interval = if is_known { REPORT_INTERVAL } else { (self.interval * 2).min(REPORT_INTERVAL_UNKNOWN) };
        self.next_report = now + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_not_public_in_any_notation() {
        let private = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
            "64:ff9b:1:a00:0:100:808:808",
            "2002:a00:1::1",
            "2002:7f00:1::",
            "2001:0:1:2:3:4:f5ff:fffe",
            "3fff::1",
            "2001:2::1",
            "4000::1",
        ];
        for ip in private {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ];
        for ip in public {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
    }
}

#[cfg(test)]
mod name_use_tests {
    use super::*;
    use crate::clock;
    use crate::dns::FixedResolver;

    #[tokio::test(start_paused = true)]
    async fn a_name_that_the_cache_lacks_for_a_moment_is_reported_again_soon() {
        let names = || FixedResolver::new().with("a.test", [[192, 0, 2, 1].into()]).with_ttl(Duration::from_secs(60));
        let intervals = async |resolver: CachedResolver| {
            let mut name_use = NameUse::new(&resolver, (&Arc::from("a.test"), 0), &[Family::V4], clock::now());
            let mut intervals = Vec::new();
            for _ in 0..10 {
                tokio::time::sleep(name_use.interval).await;
                name_use.touch(clock::now());
                intervals.push(name_use.interval.as_millis());
            }
            intervals
        };
        let kept = intervals(CachedResolver::new(names())).await;
        assert_eq!(kept[..3], [500, 250, 250], "the first report starts a query");
        let not_kept = intervals(CachedResolver::builder().max_names(0).build(names())).await;
        assert_eq!(not_kept[..4], [500, 1_000, 2_000, 4_000]);
        assert_eq!(not_kept[9], REPORT_INTERVAL_UNKNOWN.as_millis());
    }
}
