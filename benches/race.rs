//! Measures the race between the addresses of a name, beside a connect without a race: the claim of BENCHMARKS.md, section Race.
//!
//! The network is in memory, and its addresses connect or refuse at once, so the race itself is all that takes time.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use criterion::{Criterion, criterion_group, criterion_main};
use hyper::Uri;
use speeddial::Client;
use speeddial::dns::{CachedResolver, FixedResolver};
use speeddial::interop::Connector;
use speeddial::transport::{Connecting, Stream, Transport};
use tower_service::Service;

/// A network in memory in which the address that ends in 0 connects at once and every other address refuses at once.
#[derive(Clone, Copy)]
struct InstantNet;

impl Transport for InstantNet {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        let connects = matches!(address.ip(), IpAddr::V6(ip) if ip.segments()[7] == 0);
        Box::pin(async move {
            match connects {
                true => Ok(Box::new(tokio::io::empty()) as Box<dyn Stream>),
                false => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

fn address(last: u16) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into()
}

fn race(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut group = criterion.benchmark_group("race");
    group.bench_function("no race: the transport alone", |bencher| {
        bencher.to_async(&runtime).iter(|| InstantNet.connect((address(0), 80).into()));
    });
    let cases: [(&str, Vec<IpAddr>); 4] = [
        ("an address in the URL", Vec::new()),
        ("one address of a cached name", vec![address(0)]),
        ("the first of eight", (0..8).map(address).collect()),
        ("the last of eight, the others refuse", (0..8).rev().map(address).collect()),
    ];
    for (name, addresses) in cases {
        let url = if addresses.is_empty() { "http://[2001:db8::]/" } else { "http://api.test/" };
        let url: Uri = url.parse().expect("a URL");
        let cache = CachedResolver::new(FixedResolver::new().with("api.test", addresses));
        let builder = Client::builder().no_proxy().dns_cache(cache).transport(InstantNet);
        let connector = Connector::new(builder).expect("the defaults are valid");
        group.bench_function(name, |bencher| {
            bencher.to_async(&runtime).iter(|| connector.clone().call(url.clone()));
        });
    }
    group.finish();
}

criterion_group!(benches, race);
criterion_main!(benches);
