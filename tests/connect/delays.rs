//! The time until a request is connected when a family of addresses, or the first addresses of one, do not answer.

use std::net::IpAddr;
use std::time::Duration;

use speeddial::Client;
use speeddial::dns::ResolveErrorKind;

use support::fake_dns::FakeDns;
use support::fake_net::{FakeNet, Host};
use support::v4;

/// An address that connects after 10 ms.
const SERVES: Host = Host::Serves { connect: 10, think: 0, body: 0 };
/// Longer than any limit.
const NEVER: u64 = 86_400_000;

fn v6(last: u16) -> IpAddr {
    [0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into()
}

/// Makes a request to a name with these answers, and returns the milliseconds until its connection was there.
async fn connected(dns: FakeDns, hosts: &[(IpAddr, Host)]) -> u128 {
    let net = FakeNet::new(hosts.to_vec());
    let client = Client::builder().no_proxy().dns_resolver(dns).transport(net).build().unwrap();
    let response = client.get("http://api.test/").send().await.unwrap();
    response.timings().total().as_millis()
}

#[tokio::test(start_paused = true)]
async fn hazard_a_family_that_is_slow_or_dead_in_dns_costs_less_than_350_ms() {
    let hosts = [(v4(1), SERVES), (v6(1), SERVES)];
    let good = |address: IpAddr| (0, Ok(vec![address]));
    let bad = |address: IpAddr| {
        let failed = [ResolveErrorKind::ServFail, ResolveErrorKind::Timeout, ResolveErrorKind::Refused];
        let slow = [200, 1_000, 3_000, NEVER].map(|delay| (delay, Ok(vec![address])));
        let failed = failed.into_iter().flat_map(|kind| [0, 1_000, 5_000].map(|delay| (delay, Err(kind))));
        slow.into_iter().chain(failed).collect::<Vec<_>>()
    };
    for (v4, v6) in [
        bad(v4(1)).into_iter().map(|bad| (bad, good(v6(1)))).collect::<Vec<_>>(),
        bad(v6(1)).into_iter().map(|bad| (good(v4(1)), bad)).collect(),
    ]
    .concat()
    {
        let case = format!("IPv4 {v4:?}, IPv6 {v6:?}");
        let dns = FakeDns { v4, v6, ttl: Duration::from_secs(60), queries: Default::default() };
        let took = connected(dns, &hosts).await;
        assert!(took < 350, "{case}: {took} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_each_dead_address_of_a_family_costs_250_ms() {
    let none = || (0, Err(ResolveErrorKind::NoData));
    for (dead, limit) in [(1, 450), (2, 750), (9, 2_700)] {
        for is_v6 in [false, true] {
            let address = |number: u8| if is_v6 { v6(number.into()) } else { v4(number) };
            let addresses: Vec<_> = (1..=dead + 1).map(address).collect();
            let mut hosts: Vec<_> = addresses.iter().map(|address| (*address, Host::Silent)).collect();
            hosts[usize::from(dead)].1 = SERVES;
            let (v4, v6) = if is_v6 { (none(), (0, Ok(addresses))) } else { ((0, Ok(addresses)), none()) };
            let dns = FakeDns { v4, v6, ttl: Duration::from_secs(60), queries: Default::default() };
            let took = connected(dns, &hosts).await;
            assert!(took < limit, "{dead} dead, IPv6: {is_v6}: {took} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_dead_family_of_addresses_costs_250_ms() {
    for dead_v6 in [false, true] {
        let addresses: [Vec<IpAddr>; 2] = [(1..=4).map(v4).collect(), (1..=4).map(v6).collect()];
        let state = |ip: IpAddr| if ip.is_ipv6() == dead_v6 { Host::Silent } else { SERVES };
        let hosts: Vec<_> = addresses.iter().flatten().map(|ip| (*ip, state(*ip))).collect();
        let [v4, v6] = addresses.map(|addresses| (0, Ok(addresses)));
        let dns = FakeDns { v4, v6, ttl: Duration::from_secs(60), queries: Default::default() };
        let took = connected(dns, &hosts).await;
        assert!(took < 450, "IPv6 is dead: {dead_v6}: {took} ms");
    }
}

/// Returns each order of the items.
fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for first in 0..items.len() {
        let mut rest = items.to_vec();
        let item = rest.remove(first);
        all.extend(permutations(&rest).into_iter().map(|rest| [vec![item.clone()], rest].concat()));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn hazard_a_good_address_is_reached_among_bad_ones_in_every_order() {
    let slow = Host::Serves { connect: 3_000, think: 0, body: 0 };
    let kinds = [Host::Silent, Host::Refuses(0), Host::Refuses(100), slow, SERVES];
    let orders = permutations(&kinds);
    assert_eq!(orders.len(), 120);
    for order in orders {
        let hosts: Vec<_> = (1..).map(v4).zip(order).collect();
        let dns = FakeDns { v4: (0, Ok(hosts.iter().map(|host| host.0).collect())), ..FakeDns::v4(0, v4(1), 60) };
        let took = connected(dns, &hosts).await;
        // At most three addresses hold the good one up by the attempt delay; one that refuses late, by no more than that.
        assert!(took < 4 * 250 + 20, "{took} ms");
    }
}
