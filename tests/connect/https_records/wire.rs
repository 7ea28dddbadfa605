//! Answers as they are on the wire, from a DNS server with a script: broken, forged, cut off, silent.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::NULL;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use speeddial::Client;
use speeddial::dns::{HickoryResolver, Resolver};
use speeddial::tls::TlsConfig;

use support::certs::Authority;
use support::scripted_dns::{Packets, ReceivedQuery, ScriptedDns, bytes, name, packet, send, soa};
use support::tls_server::TlsServer;

/// The data of a record: priority 1, the target `b.rows.test`, and these parameters.
fn rdata(params: &[u8]) -> Vec<u8> {
    let mut data = vec![0, 1];
    for label in ["b", "rows", "test"] {
        data.push(label.len() as u8);
        data.extend(label.as_bytes());
    }
    data.push(0);
    data.extend(params);
    data
}

fn record(owner: &Name, params: &[u8]) -> Record {
    let rdata = NULL::with(rdata(params));
    Record::from_rdata(owner.clone(), 60, RData::Unknown { code: RecordType::HTTPS, rdata })
}

/// Returns an answer with a record of these parameters.
fn with_params(query: &ReceivedQuery, params: &[u8]) -> Packets {
    packet(&with_record(query, query.question.name(), params))
}

fn with_record(query: &ReceivedQuery, owner: &Name, params: &[u8]) -> Message {
    let mut response = query.response();
    response.add_answer(record(owner, params));
    response
}

/// Returns the row that a question is about: `absent` of `_443._https.absent.rows.test`.
fn row(query: &ReceivedQuery) -> String {
    let name = query.question.name().to_string();
    let host = name.split_once("_https.").map_or(name.as_str(), |(_, host)| host);
    host.split('.').next().unwrap_or_default().to_owned()
}

/// The rows, each with true if its record counts.
const ROWS: [(&str, bool); 16] = [
    ("good", true),
    ("absent", false),
    ("no-such-name", false),
    ("servfail", false),
    ("refused", false),
    ("silent", false),
    ("short-port", false),
    ("empty-alpn", false),
    ("broken-alpn", false),
    ("value-of-no-default-alpn", false),
    ("no-hints", false),
    ("keys-out-of-order", false),
    ("cut-off", false),
    ("mandatory-is-missing", false),
    ("of-another-name", false),
    ("by-tcp", true),
];

fn https_answer(query: &ReceivedQuery) -> Packets {
    match row(query).as_str() {
        "good" => with_params(query, &[0, 1, 0, 3, 2, b'h', b'2']),
        "absent" => {
            let mut response = query.response();
            response.add_authority(soa(60, 9));
            packet(&response)
        }
        "no-such-name" => packet(&query.code(ResponseCode::NXDomain)),
        "servfail" => packet(&query.code(ResponseCode::ServFail)),
        "refused" => packet(&query.code(ResponseCode::Refused)),
        "silent" => Vec::new(),
        "short-port" => with_params(query, &[0, 3, 0, 1, 1]),
        "empty-alpn" => with_params(query, &[0, 1, 0, 0]),
        "broken-alpn" => with_params(query, &[0, 1, 0, 2, 9, b'h']),
        "value-of-no-default-alpn" => with_params(query, &[0, 2, 0, 1, 1]),
        "no-hints" => with_params(query, &[0, 4, 0, 0]),
        "keys-out-of-order" => with_params(query, &[0, 3, 0, 2, 0, 80, 0, 1, 0, 3, 2, b'h', b'2']),
        "cut-off" => with_params(query, &[0, 1, 0, 9, 2, b'h']),
        "mandatory-is-missing" => with_params(query, &[0, 0, 0, 2, 0, 3]),
        "of-another-name" => packet(&with_record(query, &name("x.rows.test."), &[])),
        "by-tcp" => {
            let mut response = query.response();
            response.metadata.truncation = true;
            packet(&response)
        }
        _ => packet(&query.response()),
    }
}

fn dns() -> ScriptedDns {
    let udp = |query: &ReceivedQuery| match query.question.query_type() {
        RecordType::HTTPS => https_answer(query),
        _ if row(query) == "b" => packet(&query.good(2, 60)),
        _ => packet(&query.good(1, 60)),
    };
    ScriptedDns::start(udp, |query, stream| match row(query).as_str() {
        "by-tcp" => send(stream, &bytes(&with_record(query, query.question.name(), &[]))),
        _ => Err(std::io::ErrorKind::ConnectionAborted.into()),
    })
}

#[tokio::test]
async fn broken_answers_count_as_none_and_hold_up_nothing() {
    let authority = Authority::new();
    let config = authority.server(&["*.rows.test"], &["h2", "http/1.1"]);
    let own = TlsServer::start(config.clone()).await;
    let other = TlsServer::at(Ipv4Addr::new(127, 0, 0, 2).into(), own.address().port(), config).await;
    let dns = dns();
    let tls = TlsConfig::new().add_root_der(authority.certificate().to_vec()).only_added_roots();
    let resolver = HickoryResolver::with_servers([dns.address()]).with_family(speeddial::dns::Family::V4);
    let builder = Client::builder().no_proxy().dns_resolver(resolver).tls(tls).https_records(true);
    let client = builder.addresses(speeddial::settings::Addresses::V4Only).build().unwrap();
    for (row, counts) in ROWS {
        let start = Instant::now();
        let url = format!("https://{row}.rows.test:{}/", own.address().port());
        let response = client.get(&url).send().await.unwrap_or_else(|error| panic!("{row}: {error:?}"));
        let expected = if counts { other.address() } else { own.address() };
        assert_eq!(response.remote_addr(), Some(expected), "{row}");
        // A try of the server alone takes longer than that.
        assert!(start.elapsed() < Duration::from_secs(2), "{row}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_server_that_is_silent_about_records_is_still_asked_for_addresses_first() {
    let silent = dns();
    let second = dns();
    let resolver = HickoryResolver::with_servers([silent.address(), second.address()]);
    let resolver = resolver.with_try_timeout(Duration::from_millis(20)).with_tries(1);
    let failed = resolver.resolve_https("silent.rows.test").await.unwrap_err();
    assert!(!failed.is_negative());
    let before = silent.queries();
    resolver.resolve("good.rows.test", speeddial::dns::Family::V4).await.unwrap();
    assert_eq!(silent.queries(), before + 1);
}
