//! Which of a host's addresses are used, and which may be.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::trace::Family;

/// Which of a host's addresses are used, and in which order. An address in the URL itself is used in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Addresses {
    /// Those of both families: a race that the first to connect wins (RFC 8305).
    #[default]
    Both,
    /// IPv4 alone; IPv6 is not even asked for.
    V4Only,
    /// IPv6 alone; IPv4 is not even asked for.
    V6Only,
    /// Those of both families, each new connection beginning with another one: for names that list many servers which are
    /// to have equal shares.
    Spread,
}

impl Addresses {
    pub(super) fn families(self) -> &'static [Family] {
        match self {
            Self::Both | Self::Spread => &Family::BOTH,
            Self::V4Only => &[Family::V4],
            Self::V6Only => &[Family::V6],
        }
    }
}

/// The rules for addresses that may be connected to. An address has to pass all of them; without a rule all addresses do.
#[derive(Clone, Default)]
pub(crate) struct AddressPolicy(Vec<Arc<dyn Fn(IpAddr) -> bool + Send + Sync>>);

impl AddressPolicy {
    /// Adds a rule.
    pub(crate) fn add(&mut self, allows: impl Fn(IpAddr) -> bool + Send + Sync + 'static) {
        self.0.push(Arc::new(allows));
    }

    /// Adds the rule that an address is one of the public internet.
    pub(crate) fn add_public(&mut self) {
        self.add(is_public);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn allows(&self, ip: IpAddr) -> bool {
        // An IPv4 address is one however it is written.
        let ip = ip.to_canonical();
        self.0.iter().all(|allows| allows(ip))
    }
}

impl fmt::Debug for AddressPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AddressPolicy({} rules)", self.0.len())
    }
}

/// Whether an address is one that the public internet may route to (RFC 6890). One that stands for an IPv4 address,
/// mapped, translated or tunnelled, is what that is.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => embedded(ip).map_or_else(|| is_public_v6(ip), is_public_v4),
    }
}

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

/// Global unicast is 2000::/3, without documentation (RFC 3849, RFC 9637) and without what is not routed (2001::/23 but for
/// Teredo, which [`embedded`] has taken out).
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    let special = matches!(segments, [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2001, 0..=0x1ff, ..]);
    segments[0] & 0xe000 == 0x2000 && !special
}

/// The IPv4 address that an IPv6 address stands for: mapped and compatible (RFC 4291), NAT64 (RFC 6052), 6to4 (RFC 3056),
/// Teredo (RFC 4380). Where a network's own NAT64 (RFC 8215) has it cannot be told; those are not public.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_not_public_however_they_are_written() {
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
