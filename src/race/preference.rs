//! The order of a family's addresses by the source addresses of their packets (RFC 6724 §6). A core.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv6Addr};

/// The source address of packets to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceAddress {
    Unknown,
    /// There is no route to the address.
    Unreachable,
    Known(IpAddr),
}

/// Sorts addresses of one family, the preferred ones first. Equally good ones keep their order.
///
/// If the source of any address is unknown, its position cannot be determined, and only the unreachable addresses are moved, to
/// the end.
pub(crate) fn sort(addresses: &mut [(IpAddr, SourceAddress)]) {
    if addresses.iter().any(|(_, source)| *source == SourceAddress::Unknown) {
        addresses.sort_by_key(|(_, source)| *source == SourceAddress::Unreachable);
    } else {
        addresses.sort_by(|one, other| compare(*one, *other));
    }
}

/// Returns true if all IPv4 addresses are preferred to this IPv6 one, by rule 1, 2 or 5: it is unreachable, or its source has
/// another scope or label.
pub(crate) fn yields_to_v4((ip, source): (IpAddr, SourceAddress)) -> bool {
    match source {
        SourceAddress::Unknown => false,
        SourceAddress::Unreachable => true,
        SourceAddress::Known(source) => scope(ip) != scope(source) || policy(ip).label != policy(source).label,
    }
}

fn compare((one, from_one): (IpAddr, SourceAddress), (other, from_other): (IpAddr, SourceAddress)) -> Ordering {
    use SourceAddress::{Known, Unknown, Unreachable};
    match (from_one, from_other) {
        // `sort` does not compare if any source is unknown.
        (Unknown, _) | (_, Unknown) | (Unreachable, Unreachable) => Ordering::Equal,
        // Rule 1: avoid unusable destinations.
        (Unreachable, Known(_)) => Ordering::Greater,
        (Known(_), Unreachable) => Ordering::Less,
        (Known(source_one), Known(source_other)) => {
            // Rules 2, 5, 6, 8 and 9. The others need facts that only the operating system has.
            let matching = |ip, source| scope(ip) == scope(source);
            let labelled = |ip, source| policy(ip).label == policy(source).label;
            matching(other, source_other)
                .cmp(&matching(one, source_one))
                .then_with(|| labelled(other, source_other).cmp(&labelled(one, source_one)))
                .then_with(|| policy(other).precedence.cmp(&policy(one).precedence))
                .then_with(|| scope(one).cmp(&scope(other)))
                .then_with(|| common_prefix(other, source_other).cmp(&common_prefix(one, source_one)))
        }
    }
}

/// The scope of an address, the smaller first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AddressScope {
    LinkLocal,
    SiteLocal,
    Global,
}

/// Returns the scope of an address (RFC 6724 §3.1 and §3.2).
fn scope(ip: IpAddr) -> AddressScope {
    match ip {
        IpAddr::V4(ip) if ip.is_loopback() || ip.is_link_local() => AddressScope::LinkLocal,
        IpAddr::V4(_) => AddressScope::Global,
        IpAddr::V6(ip) if ip.is_loopback() || ip.is_unicast_link_local() => AddressScope::LinkLocal,
        IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfec0 => AddressScope::SiteLocal,
        IpAddr::V6(_) => AddressScope::Global,
    }
}

/// A row of the policy table.
#[derive(Debug, Clone, Copy)]
struct PreferencePolicy {
    precedence: u8,
    label: u8,
}

/// Looks an address up in the default policy table of RFC 6724 §2.1.
fn policy(ip: IpAddr) -> PreferencePolicy {
    let row = |precedence, label| PreferencePolicy { precedence, label };
    let IpAddr::V6(ip) = ip else { return row(35, 4) };
    match ip.segments() {
        _ if ip == Ipv6Addr::LOCALHOST => row(50, 0),
        [0, 0, 0, 0, 0, 0xffff, ..] => row(35, 4),
        [0x2002, ..] => row(30, 2),
        [0x2001, 0, ..] => row(5, 5),
        [first, ..] if first & 0xfe00 == 0xfc00 => row(3, 13),
        [0, 0, 0, 0, 0, 0, ..] => row(1, 3),
        [first, ..] if first & 0xffc0 == 0xfec0 => row(1, 11),
        [0x3ffe, ..] => row(1, 12),
        _ => row(40, 1),
    }
}

/// Returns the length of the common prefix for rule 9. Zero for IPv4, where the rule would undo the rotation of DNS answers.
fn common_prefix(ip: IpAddr, source: IpAddr) -> u32 {
    match (ip, source) {
        (IpAddr::V6(ip), IpAddr::V6(source)) => (ip.to_bits() ^ source.to_bits()).leading_zeros().min(64),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorts destinations, each with its source: `-` for unreachable, `?` for unknown.
    fn sorted(list: &[(&str, &str)]) -> Vec<String> {
        let mut addresses: Vec<_> = list
            .iter()
            .map(|(ip, source)| {
                let source = match *source {
                    "-" => SourceAddress::Unreachable,
                    "?" => SourceAddress::Unknown,
                    source => SourceAddress::Known(source.parse().unwrap()),
                };
                (ip.parse().unwrap(), source)
            })
            .collect();
        sort(&mut addresses);
        addresses.iter().map(|(ip, _)| ip.to_string()).collect()
    }

    #[test]
    fn the_examples_of_rfc_6724_are_sorted_as_there() {
        // §10.2: prefer matching scope, matching label, higher precedence, smaller scope, longest prefix.
        assert_eq!(
            sorted(&[("2001:db8:1::1", "fe80::2"), ("2001:db8:2::1", "2001:db8:2::2")]),
            ["2001:db8:2::1", "2001:db8:1::1"]
        );
        assert_eq!(
            sorted(&[("2002:c633:6401::1", "2002:c633:6401::2"), ("2001:db8:1::1", "2001:db8:1::2")]),
            ["2001:db8:1::1", "2002:c633:6401::1"]
        );
        assert_eq!(
            sorted(&[("2001:db8:1::1", "2002:c633:6401::2"), ("2002:c633:6401::1", "2002:c633:6401::2")]),
            ["2002:c633:6401::1", "2001:db8:1::1"]
        );
        assert_eq!(sorted(&[("2001:db8:1::1", "2001:db8:1::2"), ("fe80::1", "fe80::2")]), ["fe80::1", "2001:db8:1::1"]);
        assert_eq!(
            sorted(&[("2001:db8:3ffe::1", "2001:db8:1::2"), ("2001:db8:1::1", "2001:db8:1::2")]),
            ["2001:db8:1::1", "2001:db8:3ffe::1"]
        );
    }

    #[test]
    fn each_prefix_has_the_precedence_and_the_label_of_the_policy_table() {
        let rows = [
            ("::1", 50, 0),
            ("::2", 1, 3),
            ("::192.0.2.1", 1, 3),
            ("::ffff:192.0.2.1", 35, 4),
            ("192.0.2.1", 35, 4),
            ("2002:c633:6401::1", 30, 2),
            ("2001:0:4136:e378::1", 5, 5),
            ("2001:db8::1", 40, 1),
            ("fc00::1", 3, 13),
            ("fdff::1", 3, 13),
            ("fe00::1", 40, 1),
            ("fec0::1", 1, 11),
            ("feff::1", 1, 11),
            ("ff0e::1", 40, 1),
            ("3ffe::1", 1, 12),
            ("3fff::1", 40, 1),
        ];
        for (ip, precedence, label) in rows {
            let row = policy(ip.parse().unwrap());
            assert_eq!((row.precedence, row.label), (precedence, label), "{ip}");
        }
    }

    #[test]
    fn each_address_has_the_scope_of_its_prefix() {
        use AddressScope::{Global, LinkLocal, SiteLocal};
        let rows = [
            ("127.0.0.1", LinkLocal),
            ("169.254.1.1", LinkLocal),
            ("10.0.0.1", Global),
            ("192.0.2.1", Global),
            ("::1", LinkLocal),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("fec0::1", SiteLocal),
            ("feff::1", SiteLocal),
            ("fc00::1", Global),
            ("2001:db8::1", Global),
        ];
        for (ip, expected) in rows {
            assert_eq!(scope(ip.parse().unwrap()), expected, "{ip}");
        }
    }

    #[test]
    fn an_ipv6_address_yields_to_ipv4_if_its_source_has_another_scope_or_label() {
        let yields =
            |ip: &str, source: &str| yields_to_v4((ip.parse().unwrap(), SourceAddress::Known(source.parse().unwrap())));
        assert!(!yields("2001:db8::1", "2001:db8::2"));
        assert!(yields("2001:db8::1", "fe80::2"), "another scope, and the same label");
        assert!(yields("2001:db8::1", "fd00::2"), "another label, and the same scope");
        assert!(yields_to_v4((Ipv6Addr::LOCALHOST.into(), SourceAddress::Unreachable)));
        assert!(!yields_to_v4((Ipv6Addr::LOCALHOST.into(), SourceAddress::Unknown)));
    }

    #[test]
    fn unreachable_addresses_are_last_and_equal_ones_keep_their_order() {
        assert_eq!(sorted(&[("192.0.2.1", "-"), ("192.0.2.2", "10.0.0.1")]), ["192.0.2.2", "192.0.2.1"]);
        let same = [("192.0.2.9", "10.0.0.1"), ("10.0.0.2", "10.0.0.1"), ("192.0.2.1", "10.0.0.1")];
        assert_eq!(sorted(&same), ["192.0.2.9", "10.0.0.2", "192.0.2.1"], "no rule 9 for IPv4");
        assert_eq!(sorted(&[("2001:db8::9", "?"), ("2001:db8::1", "?")]), ["2001:db8::9", "2001:db8::1"]);
    }

    #[test]
    fn with_an_unknown_source_only_unreachable_addresses_are_moved() {
        let mixed =
            [("fe80::9", "-"), ("2002:c633:6401::1", "2002::2"), ("2001:db8::9", "?"), ("2001:db8::1", "2001:db8::2")];
        assert_eq!(sorted(&mixed), ["2002:c633:6401::1", "2001:db8::9", "2001:db8::1", "fe80::9"]);
        // With many addresses, sorting panics if the order contradicts itself.
        let many: Vec<_> = mixed.iter().cycle().take(400).copied().collect();
        assert_eq!(sorted(&many)[300..], ["fe80::9"; 100]);
    }
}
