//! How long a dial waits for records, in paused time: never longer than the resolution delay after the first addresses.

use std::time::Duration;

use speeddial::dns::{HttpsRecord, ResolveErrorKind};
use speeddial::trace::Event;

use super::common::{Names, Peer, World, ip};

const V6: &str = "2001:db8::1";
const SERVED: [(&str, Peer); 3] =
    [("192.0.2.1:443", Peer::Serves(10)), ("[2001:db8::1]:443", Peer::Serves(10)), ("192.0.2.2:443", Peer::Serves(10))];

/// Names with addresses after `delay` milliseconds, in both families.
fn names(delay: u64) -> Names {
    Names::new().host("api.test", delay, &[ip(1), V6.parse().unwrap()]).host("svc.test", 0, &[ip(2)])
}

async fn first_dial(world: &World) -> String {
    let _ = world.get("https://api.test/").await;
    world.net.dials()[0].clone()
}

#[tokio::test(start_paused = true)]
async fn records_are_waited_for_as_long_as_for_the_other_family() {
    let record = [HttpsRecord::service(1, "svc.test")];
    let failure = ResolveErrorKind::ServFail;
    let cases = [
        ("at once", names(20).records("api.test", 0, &record), "0 192.0.2.2:443"),
        ("with the addresses", names(20).records("api.test", 20, &record), "20 192.0.2.2:443"),
        ("within the delay", names(20).records("api.test", 69, &record), "69 192.0.2.2:443"),
        ("late", names(20).records("api.test", 71, &record), "70 [2001:db8::1]:443"),
        ("absent", names(20), "20 [2001:db8::1]:443"),
        ("absent, within the delay", names(20).records("api.test", 40, &[]), "40 [2001:db8::1]:443"),
        ("SERVFAIL", names(20).failing("api.test", 40, failure), "40 [2001:db8::1]:443"),
        ("timeout", names(20).failing("api.test", 9_000, failure), "70 [2001:db8::1]:443"),
    ];
    for (what, names, expected) in cases {
        assert_eq!(first_dial(&World::new(names, &SERVED)).await, expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_nothing_is_asked_and_nothing_waits() {
    let names = names(20).records("api.test", 60, &[HttpsRecord::service(1, "svc.test")]);
    let world = World::with(names, &SERVED, |builder| builder.https_records(false));
    assert_eq!(first_dial(&world).await, "20 [2001:db8::1]:443");
    assert!(world.names.https_queries().is_empty() && world.lookups().is_empty());
    let plain = World::new(self::names(20), &SERVED);
    let _ = plain.get("http://api.test:443/").await;
    assert!(plain.names.https_queries().is_empty(), "nothing is asked about `http`");
}

#[tokio::test(start_paused = true)]
async fn the_delays_of_records_and_of_the_other_family_run_at_the_same_time() {
    // IPv4 after 10 ms, IPv6 never, records late: one delay of 50 ms in all.
    let names = Names::new().host("api.test", 10, &[ip(1)]).records("api.test", 500, &[]);
    let world = World::new(names, &SERVED);
    assert_eq!(first_dial(&world).await, "60 192.0.2.1:443");
    assert!(world.recorder.is_in_order());
    let ends = world.recorder.pick(|event| match event {
        Event::DnsEnd(lookup) => Some(lookup.elapsed.as_millis()),
        _ => None,
    });
    assert_eq!(ends.len(), 2);
    assert_eq!(world.lookups(), ["api.test None 60"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_used_by_the_next_dial() {
    let names = names(0).records("api.test", 100, &[HttpsRecord::service(1, "svc.test")]);
    let world = World::with(names, &SERVED, |builder| builder.pool(speeddial::PoolConfig::new().max_idle(0)));
    assert_eq!(world.get("https://api.test/").await.unwrap(), "[2001:db8::1]:443");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.get("https://api.test/").await.unwrap(), "192.0.2.2:443");
    assert_eq!(world.names.https_queries(), ["api.test"], "one query");
    assert_eq!(world.lookups(), ["api.test None 50", "api.test Some(1) 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_has_no_addresses_waits_for_its_records() {
    let alias = Names::new().host("api.test", 0, &[]).host("svc.test", 0, &[ip(2)]);
    let world = World::new(alias.records("api.test", 400, &[HttpsRecord::alias("svc.test")]), &SERVED);
    assert_eq!(world.get("https://api.test/").await.unwrap(), "192.0.2.2:443");
    assert_eq!(world.net.dials(), ["400 192.0.2.2:443"]);
    // A name that does not exist has no records either.
    let world = World::new(Names::new().records("api.test", 400, &[]), &SERVED);
    let start = tokio::time::Instant::now();
    assert!(world.get("https://api.test/").await.unwrap_err().is_dns());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn many_cold_requests_ask_once() {
    let names = names(10).records("api.test", 30, &[HttpsRecord::service(1, "svc.test")]);
    let world = World::with(names, &SERVED, |builder| builder.http1_only());
    let all = futures_util::future::join_all((0..20).map(|_| world.get("https://api.test/"))).await;
    assert!(all.iter().all(|remote| remote.as_deref().is_ok_and(|remote| remote == "192.0.2.2:443")));
    assert_eq!(world.names.https_queries(), ["api.test"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_at_any_time_leaves_the_client_usable() {
    for ms in 0..60 {
        let names = names(10).records("api.test", 30, &[HttpsRecord::service(1, "svc.test")]);
        let world = World::new(names, &SERVED);
        let _ = tokio::time::timeout(Duration::from_millis(ms), world.get("https://api.test/")).await;
        assert_eq!(world.get("https://api.test/").await.unwrap(), "192.0.2.2:443", "{ms} ms");
        assert_eq!(world.names.https_queries(), ["api.test"], "{ms} ms");
    }
}
