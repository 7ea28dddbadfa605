//! The addresses of a host: in which order they are dialled, and which are allowed, in paused time over a network in memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::dns::{
    Answer, CachedResolver, Family, FixedResolver, ResolveErrorKind, Resolver, ResolverFuture, Source,
};
use speeddial::settings::{Addresses, HostConfig};
use speeddial::trace::Phase;
use speeddial::transport::{Connecting, Transport};
use speeddial::{Client, ClientBuilder, ErrorKind, PoolConfig, RetryPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use support::fake_dns::FakeDns;
use support::fake_net::{FakeNet, Host};
use support::scripted_net::ScriptedNet;
use support::v4;

const SERVES: Host = Host::Serves { connect: 10, think: 0, body: 0 };

fn v6() -> IpAddr {
    "2001:db8::1".parse().unwrap()
}

/// Returns a resolver with an address in each family for every name.
fn dual() -> FakeDns {
    FakeDns { v6: (0, Ok(vec![v6()])), ..FakeDns::v4(0, v4(1), 60) }
}

#[tokio::test(start_paused = true)]
async fn only_the_chosen_family_is_resolved_and_dialled() {
    for (addresses, expected) in [(Addresses::Both, v6()), (Addresses::V4Only, v4(1)), (Addresses::V6Only, v6())] {
        let dns = dual();
        let client = Client::builder().addresses(addresses).dns_resolver(dns.clone());
        let client = client.transport(FakeNet::new([(v4(1), SERVES), (v6(), SERVES)])).build().unwrap();
        let response = client.get("http://api.test/").send().await.unwrap();
        assert_eq!(response.remote_addr().unwrap().ip(), expected, "{addresses:?}");
        let families = if addresses == Addresses::Both { 2 } else { 1 };
        assert_eq!(dns.queries.load(Ordering::SeqCst), families, "{addresses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_in_use_is_refreshed_only_in_the_clients_families() {
    for (addresses, families) in [(Addresses::Both, 2), (Addresses::V4Only, 1), (Addresses::V6Only, 1)] {
        // With a TTL of zero the cache keeps no answer, and a name of open connections is asked about again after 2 s.
        let dns = FakeDns { ttl: Duration::ZERO, ..dual() };
        let client = Client::builder().addresses(addresses).dns_resolver(dns.clone());
        let client = client.transport(FakeNet::new([(v4(1), SERVES), (v6(), SERVES)])).build().unwrap();
        let get = async || client.get("http://api.test/").send().await.unwrap().bytes().await.unwrap();
        get().await;
        assert_eq!(dns.queries(), families, "{addresses:?}: queries of the dial");
        tokio::time::sleep(Duration::from_secs(3)).await;
        get().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(client.pool_stats().opened, 1, "{addresses:?}: one connection");
        assert_eq!(dns.queries(), 2 * families, "{addresses:?}: queries of the open connection");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_can_be_spread_over_all_addresses() {
    let ips = [v4(1), v4(2), v4(3), v6()];
    let resolver = FixedResolver::new().with("api.test", ips).with("other.test", ips);
    let client =
        Client::builder().addresses(Addresses::Spread).dns_resolver(resolver).pool(PoolConfig::new().max_idle(0));
    let client = client.transport(FakeNet::new(ips.map(|ip| (ip, SERVES)))).build().unwrap();
    let mut counts = [0; 4];
    for _ in 0..12 {
        // Requests to another host in between must not disturb the order.
        client.get("http://other.test/").send().await.unwrap().bytes().await.unwrap();
        let response = client.get("http://api.test/").send().await.unwrap();
        let remote = response.remote_addr().unwrap().ip();
        counts[ips.iter().position(|ip| *ip == remote).unwrap()] += 1;
        response.bytes().await.unwrap();
    }
    assert_eq!(counts, [3; 4], "the addresses take turns");
}

#[tokio::test(start_paused = true)]
async fn hazard_private_addresses_are_refused_when_they_are_denied() {
    let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
    let net = FakeNet::new([(mapped, SERVES), ([10, 0, 0, 1].into(), SERVES), ([9, 9, 9, 9].into(), SERVES)]);
    let names = FixedResolver::new()
        .with("private.test", [[10, 0, 0, 1].into()])
        .with("mapped.test", [mapped])
        .with("mixed.test", [[10, 0, 0, 1].into(), [9, 9, 9, 9].into()]);
    let client = Client::builder().dns_resolver(names).transport(net.clone()).deny_private_addresses().build().unwrap();
    for url in ["http://private.test/", "http://mapped.test/", "http://10.0.0.1/", "http://[::ffff:10.0.0.1]/"] {
        let error = client.get(url).send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect, "{url}: {error}");
        assert!(error.to_string().contains("the client may not connect to"), "{url}: {error}");
    }
    assert_eq!(net.open(), 0, "nothing was dialled");
    let mixed = client.get("http://mixed.test/").send().await.unwrap();
    assert_eq!(mixed.remote_addr().unwrap().ip().to_string(), "9.9.9.9");
}

#[tokio::test(start_paused = true)]
async fn hazard_rules_for_addresses_all_apply_whatever_their_order() {
    let [private, refused, allowed] = [[10, 0, 0, 1], [9, 9, 9, 9], [8, 8, 8, 8]].map(IpAddr::from);
    let net = FakeNet::new([private, refused, allowed].map(|ip| (ip, SERVES)));
    let not_nine = |ip: IpAddr| ip.to_string() != "9.9.9.9";
    type Order = fn(ClientBuilder, fn(IpAddr) -> bool) -> ClientBuilder;
    let orders: [Order; 3] = [
        |builder, rule| builder.deny_private_addresses().allow_addresses(rule),
        |builder, rule| builder.allow_addresses(rule).deny_private_addresses(),
        |builder, rule| builder.allow_addresses(rule).deny_private_addresses().allow_addresses(|_| true),
    ];
    for (number, order) in orders.iter().enumerate() {
        let builder = Client::builder().transport(net.clone()).retry(RetryPolicy::new());
        let client = order(builder, not_nine).build().unwrap();
        for denied in [private, refused] {
            let error = client.get(format!("http://{denied}/")).send().await.unwrap_err();
            assert!(error.to_string().contains("the client may not connect to"), "{number}: {error}");
            assert!(error.timings().unwrap().hops().is_empty(), "a denied address is not tried again: {error}");
        }
        client.get(format!("http://{allowed}/")).send().await.unwrap();
    }
}

#[cfg(unix)]
#[test]
fn settings_that_a_unix_socket_would_ignore_are_refused() {
    let builder = || Client::builder().unix_socket("/run/api.sock");
    let cases = [
        ("a transport", builder().transport(FakeNet::default())),
        ("a rule for addresses", builder().deny_private_addresses()),
        ("a choice of addresses", builder().addresses(Addresses::V4Only)),
        ("a rule for addresses", Client::builder().allow_addresses(|_| true).unix_socket("/run/api.sock")),
    ];
    for (ignored, builder) in cases {
        let error = builder.build().unwrap_err();
        assert!(error.is_builder() && error.to_string().contains(ignored), "{ignored}: {error}");
    }
    assert!(builder().no_proxy().build().is_ok());
    // A stranger's redirect would lead to the socket of a host.
    let sidecar = || HostConfig::new().unix_socket("/run/api.sock");
    let strangers = Client::builder().deny_private_addresses();
    let error = strangers.for_host("sidecar.internal", sidecar()).build().unwrap_err();
    assert!(error.to_string().contains("a rule for addresses has no effect beside a Unix domain socket"), "{error}");
    assert!(Client::builder().for_host("sidecar.internal", sidecar()).build().is_ok());
}

#[tokio::test(start_paused = true)]
async fn hazard_a_redirect_to_a_private_address_is_refused_when_they_are_denied() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        let mut head = Vec::new();
        stream.read_buf(&mut head).await.unwrap();
        let moved = b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/secret\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(moved).await.unwrap();
    });
    let names = FixedResolver::new().with("api.test", [[9, 9, 9, 9].into()]);
    let client = Client::builder().dns_resolver(names).transport(net.clone()).deny_private_addresses().build().unwrap();
    let error = client.get("http://api.test/").send().await.unwrap_err();
    assert!(error.to_string().contains("may not connect to 169.254.169.254"), "{error}");
    assert_eq!(net.connections(), 1, "only the first request was sent");
}

#[tokio::test(start_paused = true)]
async fn a_rule_for_addresses_sees_a_mapped_ipv4_address_as_ipv4() {
    let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
    let names = FixedResolver::new().with("mapped.test", [mapped]);
    let client = Client::builder().dns_resolver(names).transport(FakeNet::new([(mapped, SERVES)]));
    let client = client.allow_addresses(|ip| ip != IpAddr::from([10, 0, 0, 1])).build().unwrap();
    for url in ["http://mapped.test/", "http://[::ffff:10.0.0.1]/"] {
        let error = client.get(url).send().await.unwrap_err();
        assert!(error.to_string().contains("the client may not connect to"), "{url}: {error}");
    }
}

/// A network that reports the source address of its packets.
struct NetWithSource(FakeNet, IpAddr);

impl Transport for NetWithSource {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        self.0.connect(address)
    }

    fn source_of(&self, address: SocketAddr) -> Option<std::io::Result<IpAddr>> {
        Some(Ok(if address.is_ipv6() { self.1 } else { v4(100) }))
    }
}

#[tokio::test(start_paused = true)]
async fn the_source_address_decides_which_family_is_dialled_first() {
    // A private IPv6 source address matches no global address (RFC 6724 rule 5).
    for (source, expected) in [("fd00::9", v4(1)), ("2001:db8::9", v6())] {
        let net = NetWithSource(FakeNet::new([(v4(1), SERVES), (v6(), SERVES)]), source.parse().unwrap());
        let client = Client::builder().dns_resolver(dual()).transport(net).build().unwrap();
        let response = client.get("http://api.test/").send().await.unwrap();
        assert_eq!(response.remote_addr().unwrap().ip(), expected, "from {source}");
    }
}

/// A resolver that answers with a public address first and then with a private one.
#[derive(Clone, Default)]
struct RebindingResolver(Arc<Mutex<u32>>);

impl Resolver for RebindingResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            if family == Family::V6 {
                return Err(speeddial::dns::ResolveError::new(ResolveErrorKind::NoData, name, family));
            }
            let mut queries = self.0.lock().unwrap();
            *queries += 1;
            let address: IpAddr = if *queries == 1 { [9, 9, 9, 9].into() } else { [169, 254, 169, 254].into() };
            Ok(Answer::new([address], std::time::Duration::ZERO, Source::Miss))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_name_that_moves_to_a_private_address_is_refused() {
    let net = FakeNet::new([([9, 9, 9, 9].into(), SERVES), ([169, 254, 169, 254].into(), SERVES)]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let public = IpAddr::from([9, 9, 9, 9]);
    let client =
        Client::builder().dns_resolver(RebindingResolver::default()).transport(net).pool(PoolConfig::new().max_idle(0));
    let client = client.allow_addresses(move |ip| {
        noted.lock().unwrap().push(ip);
        ip == public
    });
    let client = client.build().unwrap();
    client.get("http://api.test/").send().await.unwrap().bytes().await.unwrap();
    let error = client.get("http://api.test/").send().await.unwrap_err();
    assert!(error.to_string().contains("may not connect to 169.254.169.254"), "{error}");
    assert!(seen.lock().unwrap().contains(&public), "the rule gets the address");
}

#[tokio::test(start_paused = true)]
async fn the_second_connection_to_a_host_whose_first_address_is_dead_goes_to_the_good_one_at_once() {
    let dns = FakeDns { v4: (0, Ok(vec![v4(1), v4(2)])), ..FakeDns::v4(0, v4(1), 60) };
    let client = Client::builder().dns_resolver(dns).pool(PoolConfig::new().max_idle(0));
    let client = client.transport(FakeNet::new([(v4(1), Host::Silent), (v4(2), SERVES)])).build().unwrap();
    for connect in [260, 10, 10] {
        let response = client.get("http://api.test/").send().await.unwrap();
        let handle = response.timings_handle();
        response.bytes().await.unwrap();
        assert_eq!(handle.timings().connect().as_millis(), connect);
    }
}

/// Returns a client that opens a connection for each request, within 200 ms, and dials these addresses in this order.
fn client_with_short_timeout(hosts: &[(IpAddr, Host)]) -> Client {
    let resolver = FixedResolver::new().with("api.test", hosts.iter().map(|(ip, _)| *ip));
    let builder = Client::builder().dns_resolver(resolver).transport(FakeNet::new(hosts.to_vec()));
    builder.connect_timeout(Duration::from_millis(200)).pool(PoolConfig::new().max_idle(0)).build().unwrap()
}

async fn connect_time(client: &Client) -> speeddial::Result<u128> {
    let response = client.get("http://api.test/").send().await?;
    let handle = response.timings_handle();
    response.bytes().await?;
    Ok(handle.timings().connect().as_millis())
}

#[tokio::test(start_paused = true)]
async fn a_short_connect_timeout_is_shared_by_the_addresses() {
    for (dead, first) in [(1, 110), (3, 160)] {
        let mut hosts: Vec<_> = (1..=dead).map(|last| (v4(last), Host::Silent)).collect();
        hosts.push((v4(9), SERVES));
        let client = client_with_short_timeout(&hosts);
        for connect in [first, 10, 10] {
            assert_eq!(connect_time(&client).await.unwrap(), connect, "{dead} addresses are dead");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_used_up_the_connect_timeout_is_dialled_last() {
    let client =
        client_with_short_timeout(&[(v4(1), Host::Silent), (v4(2), Host::Serves { connect: 150, think: 0, body: 0 })]);
    let error = connect_time(&client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connect), "{error}");
    for _ in 0..3 {
        assert_eq!(connect_time(&client).await.unwrap(), 150);
    }
}

/// A network that counts the dials to it.
#[derive(Clone)]
struct Counted(FakeNet, Arc<Mutex<Vec<SocketAddr>>>);

impl Transport for Counted {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        self.1.lock().unwrap().push(address);
        self.0.connect(address)
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_call_dials_64_of_4000_addresses_and_at_most_twice_as_often() {
    for (dead, limit) in
        [(Host::Refuses(0), None), (Host::Refuses(30), None), (Host::Silent, Some(7)), (Host::Silent, None)]
    {
        let net = Counted(
            FakeNet::new((1..=4_000).map(|number| (Ipv4Addr::from_bits(0x0a00_0000 + number).into(), dead))),
            Arc::default(),
        );
        let ips = (1..=4_000).map(|number| Ipv4Addr::from_bits(0x0a00_0000 + number).into());
        let builder = Client::builder().dns_resolver(FixedResolver::new().with("api.test", ips)).transport(net.clone());
        let builder = match limit {
            Some(secs) => builder.connect_timeout(Duration::from_secs(secs)),
            None => builder,
        };
        let client = builder.build().unwrap();
        let error = client.get("http://api.test/").send().await.unwrap_err();
        assert!(error.is_connect() || error.is_timeout(), "{error}");
        let dials = net.1.lock().unwrap().len();
        assert!((32..=128).contains(&dials), "{dials} dials within {limit:?}: {error}");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(net.1.lock().unwrap().len(), dials, "none begins after the call");
        let error = client.get("http://api.test/").send().await.unwrap_err();
        let mut first = net.1.lock().unwrap()[..64].to_vec();
        first.retain(|address| net.1.lock().unwrap()[dials..].contains(address));
        assert!(first.len() < 64, "another call dials others first: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_of_the_user_are_dialled_as_they_are() {
    let all: [SocketAddr; 5] =
        ["0.0.0.0:81", "224.0.0.1:82", "[::]:83", "[fe80::77%3]:84", "[ff02::1%4]:0"].map(|text| text.parse().unwrap());
    struct Given(Vec<SocketAddr>);
    impl speeddial::dns::Resolve for Given {
        fn resolve(&self, _: speeddial::dns::Name) -> speeddial::dns::Resolving {
            let all = self.0.clone();
            Box::pin(async move { Ok(Box::new(all.into_iter()) as speeddial::dns::Addrs) })
        }
    }
    for address in all {
        let resolved: fn(SocketAddr) -> ClientBuilder = |address| Client::builder().resolve("api.test", address);
        let doors = [resolved, |address| Client::builder().dns_resolver(Given(vec![address]))];
        for door in doors {
            let net = Counted(FakeNet::new([(address.ip(), SERVES)]), Arc::default());
            let client = door(address).transport(net.clone()).build().unwrap();
            client.get("http://api.test/").send().await.unwrap_or_else(|error| panic!("{address}: {error}"));
            let mut expected = address;
            expected.set_port(if address.port() == 0 { 80 } else { address.port() });
            assert_eq!(net.1.lock().unwrap()[..], [expected]);
        }
        // Without ports: fixed addresses and pins.
        let net = Counted(FakeNet::new([(address.ip(), SERVES)]), Arc::default());
        let client = Client::builder().dns_resolver(FixedResolver::new().with("API.test.", [address.ip()]));
        client.transport(net.clone()).build().unwrap().get("http://api.test/").send().await.unwrap();
        let cache = CachedResolver::new(FixedResolver::new());
        cache.pin("Api.Test.", [address.ip()]);
        let client = Client::builder().dns_cache(cache).transport(net.clone()).build().unwrap();
        client.get("http://api.test/").send().await.unwrap();
        assert_eq!(net.1.lock().unwrap()[..], [SocketAddr::new(address.ip(), 80); 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_beside_a_family_that_dns_is_silent_about_fails_soon() {
    for (first, delay, expected) in [
        (0, 40, Ok(50)),
        (0, 200, Ok(210)),
        (0, 299, Ok(309)),
        (0, 5_000, Err(300)),
        // The pool begins no further dial to the address that refused.
        (10, 5_000, Err(310)),
        (90, 5_000, Err(390)),
    ] {
        let net = FakeNet::new([(v6(), SERVES)]);
        let dns = FakeDns { v6: (delay, Ok(vec![v6()])), ..FakeDns::v4(first, v4(1), 60) };
        let client = Client::builder().dns_resolver(dns).transport(net).build().unwrap();
        let start = tokio::time::Instant::now();
        let outcome = client.get("http://api.test/").send().await;
        let took = start.elapsed().as_millis();
        assert_eq!(outcome.as_ref().map(|_| took).map_err(|_| took), expected, "{first} and {delay} ms: {outcome:?}");
    }
}

/// A network without IPv6, whose IPv4 addresses serve.
struct WithoutV6(FakeNet);

impl Transport for WithoutV6 {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        match address {
            SocketAddr::V4(_) => self.0.connect(address),
            SocketAddr::V6(_) => Box::pin(async { Err(std::io::ErrorKind::NetworkUnreachable.into()) }),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_ipv6_waits_for_a_slow_answer_about_ipv4() {
    let net = WithoutV6(FakeNet::new([(v4(1), SERVES)]));
    let dns = FakeDns { v4: (1_500, Ok(vec![v4(1)])), ..dual() };
    let client = Client::builder().dns_resolver(dns).transport(net).build().unwrap();
    let response = client.get("http://api.test/").send().await.unwrap();
    assert_eq!(response.remote_addr().unwrap().ip(), v4(1));
}

#[tokio::test(start_paused = true)]
async fn hazard_the_last_of_64_addresses_is_reached_and_of_more_by_the_next_calls() {
    for (count, dead) in [(64, Host::Refuses(0)), (600, Host::Refuses(0)), (64, Host::Silent)] {
        let mut hosts: Vec<(IpAddr, Host)> =
            (1..count).map(|number: u32| (Ipv4Addr::from_bits(0x0a00_0000 + number).into(), dead)).collect();
        hosts.push((v4(1), SERVES));
        let resolver = FixedResolver::new().with("api.test", hosts.iter().map(|(ip, _)| *ip));
        let client = Client::builder().dns_resolver(resolver).transport(FakeNet::new(hosts)).build().unwrap();
        // What has failed lately is dialled last.
        for _ in 0..count / 64 {
            let _ = client.get("http://api.test/").send().await;
        }
        let response =
            client.get("http://api.test/").send().await.unwrap_or_else(|error| panic!("of {count}: {error}"));
        assert_eq!(response.remote_addr().unwrap().ip(), v4(1), "of {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_proxy_is_not_asked_for_names_that_stand_for_denied_addresses() {
    for scheme in ["http", "socks5h"] {
        let net = ScriptedNet::new(|_, _| async {});
        let proxy = speeddial::Proxy::all(format!("{scheme}://9.9.9.9:3128")).unwrap();
        let client = Client::builder().dns_resolver(FixedResolver::new()).transport(net.clone()).proxy(proxy);
        let client = client.resolve("pinned.test", "10.0.0.1:0".parse().unwrap()).deny_private_addresses();
        let client = client.build().unwrap();
        for url in [
            "http://localhost/",
            "https://a.LOCALHOST./",
            "http://pinned.test/",
            "http://127.0.0.1/",
            "http://2130706433/",
        ] {
            if cfg!(not(feature = "__tls")) && url.starts_with("https") {
                continue;
            }
            let error = client.get(url).send().await.unwrap_err();
            assert!(error.to_string().contains("the client may not connect to"), "{scheme} {url}: {error}");
        }
        assert_eq!(net.connections(), 0, "{scheme}");
        let _ = client.get("http://api.test/").send().await;
        assert!(net.connections() > 0, "{scheme}: other names go to the proxy");
    }
}

/// A resolver that gives addresses of both families, whichever it is asked for.
struct Careless;

impl speeddial::dns::Resolver for Careless {
    fn resolve<'a>(&'a self, _: &'a str, _: speeddial::dns::Family) -> speeddial::dns::ResolverFuture<'a> {
        let ttl = Duration::from_secs(60);
        Box::pin(async move { Ok(speeddial::dns::Answer::new([v6(), v4(1)], ttl, speeddial::dns::Source::Miss)) })
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_of_another_family_than_the_chosen_one_are_not_dialled() {
    for (addresses, expected) in [(Addresses::V4Only, v4(1)), (Addresses::V6Only, v6())] {
        let client = Client::builder().addresses(addresses).dns_resolver(Careless);
        let client = client.transport(FakeNet::new([(v4(1), SERVES), (v6(), SERVES)])).build().unwrap();
        let response = client.get("http://api.test/").send().await.unwrap();
        assert_eq!(response.remote_addr().unwrap().ip(), expected, "{addresses:?}");
    }
}

#[tokio::test]
async fn a_local_address_of_another_machine_is_named() {
    let server = support::ok_server();
    let local = IpAddr::from([192, 0, 2, 9]);
    let client = Client::builder().no_proxy().local_address(local).build().unwrap();
    let error = client.get(format!("http://{}/", server.address())).send().await.unwrap_err().to_string();
    assert!(error.contains("no local address could be used: one that is set with local_address"), "{error}");
}
