//! Causes in DNS.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use speeddial::Client;
use speeddial::dns::{CachedResolver, HickoryResolver, ResolveErrorKind};
use speeddial::trace::Cause;
use tokio::time::sleep;

use super::common::{Act, assert_why, causes, get, ms, server, timings_of};
use crate::dns::lookups::zone;
use support::dns_server::DnsServer;
use support::fake_dns::FakeDns;
use support::fake_net::{FakeNet, Host};
use support::{ok_server, v4};

fn client(dns: FakeDns) -> Client {
    Client::builder().no_proxy().dns_resolver(dns).transport(server(|_| Act::ok(20))).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn dns_queried() {
    let client = client(FakeDns::v4(170, v4(1), 60));
    assert_why(
        &get(&client).await,
        &[Cause::DnsQueried, Cause::ServerSlow],
        "170 ms of 200 ms were spent in DNS: the answer for api.test was not in the cache.",
    );
    assert_why(&get(&client).await, &[Cause::ServerSlow], "The server took all 20.0 ms to answer.");
}

#[tokio::test(start_paused = true)]
async fn dns_failed() {
    let mut dns = FakeDns::v4(200, v4(1), 60);
    dns.v4.1 = Err(ResolveErrorKind::NxDomain);
    dns.v6.1 = Err(ResolveErrorKind::NxDomain);
    assert_why(
        &get(&client(dns)).await,
        &[Cause::DnsFailed],
        "All 200 ms were spent in DNS: the lookup of api.test failed.",
    );
}

#[tokio::test(start_paused = true)]
async fn dns_family_late() {
    let mut dns = FakeDns::v4(10, v4(1), 60);
    dns.v6.0 = 1_000;
    assert_why(
        &get(&client(dns)).await,
        &[Cause::DnsFamilyLate, Cause::ServerSlow, Cause::ConnectSlow],
        "60.0 ms of 90.0 ms were spent in DNS: the answer for IPv6 (AAAA) addresses of api.test was late; fix the \
         server, or look up one family only. The server took 20.0 ms of 90.0 ms to answer.",
    );
}

#[tokio::test(start_paused = true)]
async fn dns_family_late_behind_a_refusal() {
    let v6 = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
    let net = || FakeNet::new([(v4(1), Host::Refuses(0)), (v6, Host::Serves { connect: 10, think: 0, body: 0 })]);
    let call = |dns| async move {
        get(&Client::builder().no_proxy().dns_resolver(dns).transport(net()).build().unwrap()).await
    };
    let mut dns = FakeDns::v4(0, v4(1), 60);
    dns.v6 = (5_000, Ok(vec![v6]));
    assert_why(
        &call(dns.clone()).await,
        &[Cause::DnsFamilyLate],
        "All 300 ms were spent in DNS: the answer for IPv6 (AAAA) addresses of api.test was late; fix the server, or look up one \
         family only.",
    );
    dns.v6.0 = 200;
    let timings = call(dns).await;
    assert_eq!(causes(&timings)[0], Cause::DnsQueried, "{}", timings.why());
}

#[tokio::test(start_paused = true)]
async fn dns_stale() {
    let mut dns = FakeDns::v4(10, v4(1), 1);
    dns.v6 = (10, Err(ResolveErrorKind::NoData));
    let slow = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let resolver = SlowLater { dns, slow: slow.clone() };
    let client = Client::builder().no_proxy().dns_resolver(resolver).transport(server(|_| Act::ok(20).closing()));
    let client = client.build().unwrap();
    get(&client).await;
    slow.store(true, std::sync::atomic::Ordering::SeqCst);
    sleep(ms(30_000)).await;
    assert_why(
        &get(&client).await,
        &[Cause::DnsStale, Cause::ServerClosesEach],
        "1.85 s of 1.88 s were spent in DNS: no new answer for api.test came, and an expired one was used. The \
         connection to api.test:80 was new because the server had closed the last one after one request; turn \
         keep-alive on at the server.",
    );
}

/// Answers like another resolver, and never once it is slow.
struct SlowLater {
    dns: FakeDns,
    slow: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl speeddial::dns::Resolver for SlowLater {
    fn resolve<'a>(&'a self, name: &'a str, family: speeddial::dns::Family) -> speeddial::dns::ResolverFuture<'a> {
        match self.slow.load(std::sync::atomic::Ordering::SeqCst) {
            true => Box::pin(std::future::pending()),
            false => self.dns.resolve(name, family),
        }
    }
}

#[tokio::test]
async fn dns_server_silent() {
    let silent = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap();
    let second = DnsServer::start(zone).unwrap();
    let servers = [silent.local_addr().unwrap(), second.address()];
    let resolver = HickoryResolver::with_servers(servers).with_try_timeout(ms(20_000)).with_total_timeout(ms(60_000));
    let server = ok_server();
    let client = Client::builder().no_proxy().dns_cache(CachedResolver::new(resolver)).build().unwrap();
    let timings = timings_of(client.get(format!("http://host.test:{}/", server.address().port()))).await;
    // Where the machine is busy, other causes follow.
    assert_eq!(causes(&timings)[0], Cause::DnsServerSilent, "{}", timings.waterfall());
    let why = timings.why().to_string();
    assert!(why.contains(" were spent in DNS: 127.0.0.2 did not answer and 127.0.0.1 did; "), "{why}");
}
