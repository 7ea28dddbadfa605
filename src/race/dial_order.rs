//! The order in which a race would dial a host's addresses if none of them answered.

use std::net::{IpAddr, SocketAddr};

use super::address_order::AddressOrder;
use super::schedule::{Config, NextAction, Schedule};
use crate::clock::Instant;
use crate::trace::Family;

/// Returns the addresses in the order in which they are dialled. Each family's answer is known already.
pub(crate) fn dial_order(order: &AddressOrder<'_>, answers: &[(Family, Vec<IpAddr>)], now: Instant) -> Vec<SocketAddr> {
    let last_good = order.last_good_family(now);
    let mut schedule = Schedule::new(Config::default(), order.families, last_good.unwrap_or(Family::V6));
    for (family, addresses) in answers {
        let sorted = order.sort(now, *family, addresses);
        if sorted.yields_to_v4 && last_good.is_none() {
            schedule.prefer(Family::V4);
        }
        schedule.add_addresses(now, *family, order.with_standings(now, &sorted.addresses));
    }
    let mut dialled = Vec::new();
    // Each attempt fails at once, so the schedule has no reason to wait.
    while let NextAction::Dial(address) = schedule.poll(now) {
        dialled.push(address);
        schedule.record_end(address);
    }
    dialled
}

#[cfg(test)]
mod tests {
    use super::super::{Scores, SourceAddress};
    use super::*;
    use crate::clock;

    #[tokio::test]
    async fn families_alternate_and_addresses_without_a_route_come_last() {
        let scores = Scores::default();
        let source_of = |ip: IpAddr| match ip {
            IpAddr::V4(_) => SourceAddress::Known("192.0.2.9".parse().unwrap()),
            IpAddr::V6(_) => SourceAddress::Unreachable,
        };
        let order = AddressOrder {
            families: &Family::BOTH,
            port: 80,
            host: None,
            scores: &scores,
            reach: &source_of,
            turn: None,
            avoid: None,
            first: None,
        };
        let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let answers =
            [(Family::V6, ips(&["2001:db8::1", "2001:db8::2"])), (Family::V4, ips(&["192.0.2.1", "192.0.2.2"]))];
        let dialled: Vec<_> = dial_order(&order, &answers, clock::now()).iter().map(ToString::to_string).collect();
        assert_eq!(dialled, ["192.0.2.1:80", "[2001:db8::1]:80", "192.0.2.2:80", "[2001:db8::2]:80"]);
    }
}
