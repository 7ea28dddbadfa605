//! Which endpoints are dialled, in which order, and what the server sees, in paused time.

use std::net::IpAddr;
use std::time::Duration;

use speeddial::dns::{HttpsRecord, ResolveErrorKind};
use speeddial::{ErrorKind, PoolConfig};

use super::common::{Names, Peer, World, ip};

const SERVED: [(&str, Peer); 5] = [
    ("192.0.2.1:443", Peer::Serves(10)),
    ("192.0.2.1:8443", Peer::Serves(10)),
    ("192.0.2.2:443", Peer::Serves(10)),
    ("192.0.2.2:8443", Peer::Serves(10)),
    ("192.0.2.3:443", Peer::Serves(10)),
];

fn names() -> Names {
    let names = Names::new().host("api.test", 0, &[ip(1)]);
    names.host("svc.test", 0, &[ip(2)]).host("other.test", 0, &[ip(3)]).host("dead.test", 0, &[ip(9)])
}

fn service(priority: u16, target: &str) -> HttpsRecord {
    HttpsRecord::service(priority, target)
}

fn hints(target: &str, addresses: &[IpAddr]) -> HttpsRecord {
    service(1, target).with_hints(addresses.iter().copied())
}

/// The address that answers `https://api.test/`, and the endpoints that were chosen.
async fn reached(names: Names) -> (String, Vec<String>) {
    let world = World::new(names, &SERVED);
    let remote = world.get("https://api.test/").await.unwrap();
    (remote, world.endpoints())
}

#[tokio::test(start_paused = true)]
async fn the_endpoints_of_records_are_reached() {
    let h3 = || service(1, "svc.test").with_alpn(["h3"]).without_default_alpn();
    let cases: [(&str, Names, &str, &[&str]); 12] = [
        ("no records", names(), "192.0.2.1:443", &[]),
        ("the origin itself", names().records("api.test", 0, &[service(1, ".")]), "192.0.2.1:443", &["1 api.test:443"]),
        (
            "a port",
            names().records("api.test", 0, &[service(1, ".").with_port(8443)]),
            "192.0.2.1:8443",
            &["1 api.test:8443"],
        ),
        ("a target", names().records("api.test", 0, &[service(1, "svc.test")]), "192.0.2.2:443", &["1 svc.test:443"]),
        (
            "a target and a port",
            names().records("api.test", 0, &[service(1, "SVC.test").with_port(8443)]),
            "192.0.2.2:8443",
            &["1 svc.test:8443"],
        ),
        (
            "the first of two fails",
            names().records("api.test", 0, &[service(2, "svc.test"), service(1, "dead.test")]),
            "192.0.2.2:443",
            &["1 dead.test:443", "2 svc.test:443"],
        ),
        (
            "all fail",
            names().records("api.test", 0, &[service(1, "dead.test"), service(2, "nowhere.test")]),
            "192.0.2.1:443",
            &["1 dead.test:443", "2 nowhere.test:443"],
        ),
        (
            "an alias without records",
            names().records("api.test", 0, &[HttpsRecord::alias("svc.test")]),
            "192.0.2.2:443",
            &["0 svc.test:443"],
        ),
        (
            "an alias of an alias",
            names()
                .records("api.test", 0, &[HttpsRecord::alias("one.test")])
                .records("one.test", 0, &[HttpsRecord::alias("two.test")])
                .records("two.test", 0, &[service(1, "svc.test").with_port(8443)]),
            "192.0.2.2:8443",
            &["1 svc.test:8443"],
        ),
        (
            "an alias loop",
            names().records("api.test", 0, &[HttpsRecord::alias("one.test")]).records(
                "one.test",
                0,
                &[HttpsRecord::alias("api.test")],
            ),
            "192.0.2.1:443",
            &[],
        ),
        ("only HTTP/3", names().records("api.test", 0, &[h3()]), "192.0.2.1:443", &[]),
        (
            "a failure behind an alias",
            names().records("api.test", 0, &[HttpsRecord::alias("svc.test")]).failing(
                "svc.test",
                5,
                ResolveErrorKind::ServFail,
            ),
            "192.0.2.2:443",
            &["0 svc.test:443"],
        ),
    ];
    for (what, names, remote, endpoints) in cases {
        let reached = reached(names).await;
        assert_eq!(
            (reached.0.as_str(), &reached.1[..]),
            (remote, &endpoints.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
            "{what}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn requests_and_certificates_stay_those_of_the_origin() {
    let names = names().records("api.test", 0, &[service(1, "svc.test").with_port(8443)]);
    let world = World::with(names, &SERVED, |builder| builder.http1_only());
    let text = world.client.get("https://api.test/a").send().await.unwrap().text().await.unwrap();
    assert_eq!(text, "HTTP/1.1 GET /a api.test");
    // The certificate is for api.test, so this would fail if another name were checked.
    assert_eq!(world.endpoints(), ["1 svc.test:8443"]);
}

#[tokio::test(start_paused = true)]
async fn another_port_of_the_origin_is_part_of_the_name() {
    let names = names().records("_8443._https.api.test", 0, &[service(1, "svc.test")]);
    let names = names.records("api.test", 0, &[service(1, "other.test")]);
    let world = World::new(names, &SERVED);
    assert_eq!(world.get("https://api.test:8443/").await.unwrap(), "192.0.2.2:8443");
    assert_eq!(world.names.https_queries(), ["_8443._https.api.test"]);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_silent_leaves_time_for_the_others() {
    let names = names().records("api.test", 0, &[service(1, "dead.test"), service(2, "svc.test")]);
    let peers: Vec<_> = SERVED.into_iter().chain([("192.0.2.9:443", Peer::Silent)]).collect();
    let world = World::with(names, &peers, |builder| builder.connect_timeout(Duration::from_secs(9)));
    let start = tokio::time::Instant::now();
    assert_eq!(world.get("https://api.test/").await.unwrap(), "192.0.2.2:443");
    assert_eq!(start.elapsed(), Duration::from_millis(3_010), "a third of the connect timeout");
}

#[tokio::test(start_paused = true)]
async fn the_failures_of_all_endpoints_are_told() {
    let names = Names::new().host("api.test", 0, &[ip(8)]).host("dead.test", 0, &[ip(9)]);
    let world = World::new(names.records("api.test", 0, &[service(1, "dead.test").with_port(8443)]), &[]);
    let error = world.get("https://api.test/").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    let dialled: Vec<_> = world.net.dials().iter().map(|dial| dial.split(' ').nth(1).unwrap().to_owned()).collect();
    assert_eq!(dialled, ["192.0.2.9:8443", "192.0.2.8:443"]);
    assert!(error.to_string().contains("2 addresses failed"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn hints_are_dialled_only_until_addresses_are_known() {
    let slow = |delay, addresses: &[IpAddr]| names().host("svc.test", delay, addresses);
    let cases: [(&str, Names, &[&str]); 5] = [
        (
            "the addresses are known",
            slow(0, &[ip(2)]).records("api.test", 0, &[hints("svc.test", &[ip(3)])]),
            &["0 192.0.2.2:443"],
        ),
        (
            "the addresses come later",
            slow(500, &[ip(2)]).records("api.test", 0, &[hints("svc.test", &[ip(2)])]),
            &["0 192.0.2.2:443"],
        ),
        (
            "the addresses come later and differ",
            slow(5, &[ip(2)]).records("api.test", 0, &[hints("svc.test", &[ip(3)])]),
            &["0 192.0.2.3:443", "5 192.0.2.2:443"],
        ),
        (
            "the hint is dead",
            slow(20, &[ip(2)]).records("api.test", 0, &[hints("svc.test", &[ip(9)])]),
            &["0 192.0.2.9:443", "20 192.0.2.2:443"],
        ),
        (
            "the origin's own addresses come later",
            Names::new().host("api.test", 30, &[ip(1)]).records("api.test", 0, &[hints(".", &[ip(1)])]),
            &["0 192.0.2.1:443"],
        ),
    ];
    for (what, names, expected) in cases {
        let world = World::new(names, &SERVED);
        if what == "the addresses are known" {
            world.cache.prefetch(["svc.test."]).await;
        }
        world.get("https://api.test/").await.unwrap();
        assert_eq!(world.net.dials(), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn rules_for_addresses_apply_to_hints_and_endpoints() {
    let private: IpAddr = "10.0.0.1".parse().unwrap();
    let names = Names::new().host("api.test", 50, &[ip(1)]).host("inner.test", 20, &[private]);
    let names = names.records("api.test", 0, &[hints("inner.test", &[private])]);
    let peers = [("192.0.2.1:443", Peer::Serves(0)), ("10.0.0.1:443", Peer::Serves(0))];
    let world = World::with(names, &peers, |builder| builder.allow_addresses(move |ip| ip != private));
    assert_eq!(world.get("https://api.test/").await.unwrap(), "192.0.2.1:443");
    assert_eq!(world.net.dials().len(), 1, "{:?}", world.net.dials());
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_a_ttl_of_zero_is_asked_for_again() {
    let mut names = names().records("api.test", 0, &[service(1, "svc.test")]);
    names.ttl = Duration::ZERO;
    let world = World::with(names, &SERVED, |builder| builder.pool(PoolConfig::new().max_idle(0)));
    for _ in 0..2 {
        assert_eq!(world.get("https://api.test/").await.unwrap(), "192.0.2.2:443");
    }
    assert_eq!(world.names.https_queries().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn names_with_addresses_of_the_user_are_not_asked_about() {
    let record = [service(1, "svc.test")];
    let resolved = World::with(names().records("api.test", 0, &record), &SERVED, |builder| {
        builder.resolve("api.test", "192.0.2.3:0".parse().unwrap())
    });
    assert_eq!(resolved.get("https://api.test/").await.unwrap(), "192.0.2.3:443");
    assert!(resolved.names.https_queries().is_empty());
    let pinned = World::new(names().records("api.test", 0, &record), &SERVED);
    pinned.cache.pin("api.test", [ip(3)]);
    assert_eq!(pinned.get("https://api.test/").await.unwrap(), "192.0.2.3:443");
    assert!(pinned.names.https_queries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_forgotten_is_asked_for_again() {
    let names = names().records("api.test", 0, &[service(1, "svc.test")]);
    let world = World::with(names, &SERVED, |builder| builder.pool(PoolConfig::new().max_idle(0)));
    let get = async |queries: usize| {
        world.get("https://api.test/").await.unwrap();
        assert_eq!(world.names.https_queries().len(), queries);
    };
    get(1).await;
    get(1).await;
    world.cache.invalidate("api.test");
    get(2).await;
    world.cache.flush();
    get(3).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_follows_the_dns_of_its_endpoint() {
    let names = names().records("api.test", 0, &[service(1, "svc.test")]);
    let world = World::new(names, &SERVED);
    for _ in 0..400 {
        assert_eq!(world.get("https://api.test/").await.unwrap(), "192.0.2.2:443");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(world.client.pool_stats().opened, 1, "the address is one of the endpoint, not of the origin");
}

#[tokio::test(start_paused = true)]
async fn balanced_requests_reuse_the_connections_to_an_endpoint() {
    let cases: [(&str, Vec<HttpsRecord>, usize); 5] = [
        ("the origin itself", vec![service(1, ".")], 1),
        ("a port", vec![service(1, ".").with_port(8443)], 1),
        ("an alias", vec![HttpsRecord::alias("svc.test")], 1),
        ("two of one priority", vec![service(1, "svc.test"), service(1, "other.test")], 1),
        ("two addresses", vec![service(1, "both.test")], 2),
    ];
    for (what, records, dials) in cases {
        let names = names().host("both.test", 0, &[ip(2), ip(3)]).records("api.test", 0, &records);
        let world = World::with(names, &SERVED, |builder| {
            builder.http1_only().addresses(speeddial::settings::Addresses::Spread)
        });
        let mut reached = std::collections::BTreeSet::new();
        for _ in 0..10 {
            reached.insert(world.get("https://api.test/").await.unwrap());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!((world.net.dials().len(), reached.len()), (dials, dials), "{what}: {:?}", world.net.dials());
    }
}
