//! Names over a real DNS server: TTLs, chains, underscores, and what does not exist.

use std::net::Ipv4Addr;
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record};
use speeddial::dns::{CachedResolver, Family, HickoryResolver, Resolve, ResolveErrorKind, Source};

use crate::support::dns_server::{DnsServer, add_address};

/// The zone of these tests, by the first label of the name.
pub(crate) fn zone(question: &Query, response: &mut Message) {
    let name = question.name();
    let soa = |minimum| {
        let root = Name::root();
        Record::from_rdata(root.clone(), 3_600, RData::SOA(SOA::new(root.clone(), root, 1, 60, 60, 60, minimum)))
    };
    match name.iter().next().map(|label| String::from_utf8_lossy(label).to_lowercase()).as_deref() {
        Some("host" | "my_svc") => add_address(response, question, name, Ipv4Addr::LOCALHOST.into(), 60),
        Some("zero") => add_address(response, question, name, Ipv4Addr::LOCALHOST.into(), 0),
        Some("chain") => {
            let target = Name::from_ascii("host.test.").unwrap();
            response.add_answer(Record::from_rdata(name.clone(), 5, RData::CNAME(CNAME(target.clone()))));
            add_address(response, question, &target, Ipv4Addr::LOCALHOST.into(), 60);
        }
        Some("fails") => response.metadata.response_code = ResponseCode::ServFail,
        Some("refuses") => response.metadata.response_code = ResponseCode::Refused,
        Some("nodata") => drop(response.add_authority(soa(7))),
        _ => {
            response.metadata.response_code = ResponseCode::NXDomain;
            response.add_authority(soa(9));
        }
    }
}

fn resolver() -> (DnsServer, HickoryResolver) {
    let server = DnsServer::start(zone).unwrap();
    let resolver = HickoryResolver::with_servers([server.address()]);
    (server, resolver)
}

#[tokio::test]
async fn an_answer_has_its_addresses_and_its_ttl() {
    let (server, resolver) = resolver();
    let answer = resolver.resolve("host.test", Family::V4).await.unwrap();
    assert_eq!(&**answer.addresses(), [std::net::IpAddr::from(Ipv4Addr::LOCALHOST)]);
    assert_eq!((answer.ttl(), answer.source()), (Duration::from_secs(60), Source::Miss));
    assert_eq!(server.queries(), 1, "one family is one query");
}

#[tokio::test]
async fn the_smallest_ttl_of_a_chain_counts() {
    let (_server, resolver) = resolver();
    let answer = resolver.resolve("chain.test", Family::V4).await.unwrap();
    assert_eq!((answer.addresses().len(), answer.ttl()), (1, Duration::from_secs(5)));
}

#[tokio::test]
async fn names_with_underscores_resolve() {
    let (_server, resolver) = resolver();
    assert!(resolver.resolve("my_svc.test", Family::V4).await.is_ok());
}

#[tokio::test]
async fn the_resolvers_own_cache_is_off() {
    let (server, resolver) = resolver();
    for _ in 0..3 {
        resolver.resolve("host.test", Family::V4).await.unwrap();
    }
    assert_eq!(server.queries(), 3);
}

#[tokio::test]
async fn each_way_to_have_no_answer_has_its_kind() {
    let (_server, resolver) = resolver();
    let cases = [
        ("nowhere.test", ResolveErrorKind::NxDomain, Some(9)),
        ("nodata.test", ResolveErrorKind::NoData, Some(7)),
        ("fails.test", ResolveErrorKind::ServFail, None),
        ("refuses.test", ResolveErrorKind::Refused, None),
    ];
    for (name, kind, ttl) in cases {
        let error = resolver.resolve(name, Family::V4).await.unwrap_err();
        assert_eq!((error.kind(), error.negative_ttl()), (kind, ttl.map(Duration::from_secs)), "{name}");
    }
}

#[tokio::test]
async fn under_the_cache_a_name_is_asked_for_once_and_ttl_zero_each_time() {
    let (server, resolver) = resolver();
    let cache = CachedResolver::new(resolver);
    for _ in 0..3 {
        cache.lookup("Host.test", Family::V4).await.unwrap();
        cache.lookup("nodata.test", Family::V4).await.unwrap_err();
    }
    assert_eq!(server.queries(), 2);
    for _ in 0..3 {
        cache.lookup("zero.test", Family::V4).await.unwrap();
    }
    assert_eq!(server.queries(), 5);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_not_a_name_that_does_not_exist() {
    let gone = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let error = HickoryResolver::with_servers([gone]).resolve("host.test", Family::V4).await.unwrap_err();
    assert!(!error.kind().is_negative(), "{error}");
}
