//! The ways to write a name, and names that are addresses.

use std::time::Duration;

use hickory_proto::op::ResponseCode;
use speeddial::dns::{CachedResolver, Family, HickoryResolver, ResolveErrorKind, Resolver, Source};

use super::common::{answer_of, by_udp, correct_server, kind_of, resolver};
use support::scripted_dns::packet;

// Trailing dots, upper case, underscores, IDN, IP literals and `localhost` behave as on the platform, without needless queries. The
// tests of the hosts file and of search lists are beside their code.

#[tokio::test]
async fn hazard_names_are_normalized_and_invalid_ones_are_refused() {
    let server = by_udp(|query| match query.question.name().to_ascii().to_lowercase().as_str() {
        "my_svc.test." | "_a._b.test." | "xn--bcher-kva.test." => packet(&query.good(1, 60)),
        _ => packet(&query.code(ResponseCode::NXDomain)),
    });
    let cache = CachedResolver::new(resolver(&[&server]));
    for name in ["my_svc.test", "MY_svc.TEST", "my_svc.test.", "_a._b.test", "xn--bcher-kva.test", "XN--BCHER-KVA.test"]
    {
        assert_eq!(answer_of(&cache.lookup(name, Family::V4).await).0, [1], "{name}");
    }
    assert_eq!(server.queries(), 4, "letter case makes no difference, and a trailing dot excludes the search list");
    for name in ["localhost", "deep.localhost", "Other.LOCALHOST"] {
        assert_eq!(cache.lookup(name, Family::V4).await.unwrap().source(), Source::Hosts, "{name}");
    }
    let long = format!("{}.test", "a".repeat(64));
    let longer = ["a"; 140].join(".");
    for name in ["", ".", "..", "a..test", &long, &longer, "a b.test\0"] {
        let outcome = cache.lookup(name, Family::V4).await;
        assert!(outcome.is_err(), "{name:?}: {outcome:?}");
    }
    let client = speeddial::Client::builder().dns_cache(cache).build().unwrap();
    let before = server.queries();
    let error = client.get("http://127.0.0.1:9/").send().await.unwrap_err();
    assert!(error.is_connect(), "{error}");
    assert_eq!(server.queries(), before, "a literal is not looked up");
    let error = client.get("http://Bücher.test:9/").send().await.unwrap_err();
    assert!(
        error.is_connect() && server.queries() == before + 1,
        "the IDN is looked up; its IPv4 address was cached: {error}"
    );
}

#[tokio::test]
async fn an_address_literal_is_not_looked_up() {
    let server = by_udp(|_| vec![]);
    let cache = CachedResolver::new(resolver(&[&server]));
    assert_eq!(answer_of(&cache.lookup("127.0.0.9", Family::V4).await).0, [9]);
    assert_eq!(kind_of(&cache.lookup("127.0.0.9", Family::V6).await), ResolveErrorKind::NoData);
    assert_eq!(cache.lookup("::1", Family::V6).await.unwrap().source(), Source::Literal);
    assert_eq!(server.queries(), 0);
    let odd = HickoryResolver::with_servers([correct_server().address()]).with_tries(usize::MAX);
    let odd = odd.with_try_timeout(Duration::MAX).with_total_timeout(Duration::MAX);
    assert!(odd.with_total_timeout(Duration::from_millis(100)).resolve("a.test", Family::V4).await.is_err());
}
