//! DNS servers and answers that are wrong.

use std::net::{TcpListener, UdpSocket};

use hickory_proto::op::{Message, Query, ResponseCode};
use speeddial::doctor::Problem;

use super::common::{SOON, asking, closed_udp, examine, healthy_dns, loopback, only, url};
use support::dns_server::DnsServer;
use support::dns_tcp;
use support::scripted_dns::{ReceivedQuery, ScriptedDns, bytes, no_tcp, packet, send};
use support::{ok_server, refusing};

/// The sockets of a DNS server that answers nothing.
fn silent() -> (UdpSocket, TcpListener) {
    dns_tcp::udp_and_tcp(|| UdpSocket::bind("127.0.0.1:0").unwrap(), |socket| socket.local_addr().unwrap())
}

/// Answers each question for an IPv4 address with 127.0.0.1, and others with no data.
fn good(query: &ReceivedQuery) -> Message {
    let mut response = query.response();
    loopback(&query.question, &mut response);
    response
}

#[tokio::test]
async fn a_silent_server_is_named() {
    let silent = silent();
    let address = silent.0.local_addr().unwrap();
    let text =
        only(&examine(asking([address]).connect_timeout(SOON), "http://api.test/").await, Problem::DnsServerSilent);
    assert!(text.contains(&format!("The DNS server {address} does not answer")), "{text}");
    // Beside a server that answers, requests succeed.
    let (dns, server) = (healthy_dns(), ok_server());
    let both = asking([address, dns.address()]);
    let report = examine(both, &url("http", server.address())).await;
    only(&report, Problem::DnsServerSilent);
    assert!(report.requests().iter().all(|request| request.response().is_ok()), "{report}");
}

#[tokio::test]
async fn a_server_with_a_closed_port_is_named() {
    let (_closed, address) = closed_udp();
    let text = only(&examine(asking([address]), "http://api.test/").await, Problem::DnsServerUnreachable);
    assert!(text.contains(&format!("The DNS server {address} cannot be reached")), "{text}");
}

#[tokio::test]
async fn servers_that_fail_and_refuse_are_named() {
    let fails = |_: &Query, response: &mut Message| response.metadata.response_code = ResponseCode::ServFail;
    let refuses = |_: &Query, response: &mut Message| response.metadata.response_code = ResponseCode::Refused;
    let fails = DnsServer::start(fails).unwrap();
    let text = only(&examine(asking([fails.address()]), "http://api.test/").await, Problem::DnsServerFails);
    assert!(text.contains("answers SERVFAIL about api.test. (AAAA) and api.test. (A)"), "{text}");
    let refuses = DnsServer::start(refuses).unwrap();
    let text = only(&examine(asking([refuses.address()]), "http://api.test/").await, Problem::DnsServerRefuses);
    assert!(text.contains("it answers REFUSED"), "{text}");
}

#[tokio::test]
async fn a_server_without_tcp_is_named() {
    let server = ok_server();
    let dns = ScriptedDns::start(|query| packet(&good(query)), no_tcp);
    let report = examine(asking([dns.address()]), &url("http", server.address())).await;
    let text = only(&report, Problem::DnsTcpFails);
    assert!(text.contains("answers by UDP and not by TCP"), "{text}");
}

#[tokio::test]
async fn a_server_without_udp_is_named() {
    let server = ok_server();
    let dns = ScriptedDns::start(|_| Vec::new(), |query, stream| send(stream, &bytes(&good(query))));
    let builder = asking([dns.address()]).connect_timeout(SOON);
    let report = examine(builder, &url("http", server.address())).await;
    let text = only(&report, Problem::DnsUdpFails);
    assert!(text.contains("answers by TCP and not by UDP"), "{text}");
}

#[tokio::test]
async fn a_server_that_ignores_questions_for_one_family_is_named() {
    let server = ok_server();
    let udp = |query: &ReceivedQuery| if query.is_v6() { Vec::new() } else { packet(&good(query)) };
    let dns = ScriptedDns::start(udp, |query, stream| send(stream, &bytes(&good(query))));
    let report = examine(asking([dns.address()]).connect_timeout(SOON), &url("http", server.address())).await;
    let text = only(&report, Problem::DnsFamilyUnanswered);
    assert!(text.contains("does not answer questions for AAAA records by UDP"), "{text}");
}

#[tokio::test]
async fn servers_that_know_different_zones_are_named() {
    let unknown = |_: &Query, response: &mut Message| response.metadata.response_code = ResponseCode::NXDomain;
    let (knows, denies, server) = (healthy_dns(), DnsServer::start(unknown).unwrap(), ok_server());
    let report = examine(asking([denies.address(), knows.address()]), &url("http", server.address())).await;
    let text = only(&report, Problem::DnsServersDisagree);
    assert!(
        text.contains(&format!("{} has A records of api.test., and {}", knows.address(), denies.address())),
        "{text}"
    );
}

#[tokio::test]
async fn a_name_that_does_not_exist_or_has_no_addresses_is_named() {
    let unknown = |_: &Query, response: &mut Message| response.metadata.response_code = ResponseCode::NXDomain;
    let unknown = DnsServer::start(unknown).unwrap();
    let report = examine(asking([unknown.address()]), "http://api.test/").await;
    assert_eq!(only(&report, Problem::NameDoesNotExist), "The name api.test does not exist.");
    let empty = DnsServer::start(|_, _| {}).unwrap();
    let report = examine(asking([empty.address()]), "http://api.test/").await;
    assert_eq!(only(&report, Problem::NameHasNoAddresses), "The name api.test exists, but has no addresses.");
    assert!(report.requests().is_empty() && report.addresses().is_empty(), "{report}");
}

#[tokio::test]
async fn a_resolver_that_fails_without_a_server_is_named() {
    let report = examine(asking([]), "http://api.test/").await;
    only(&report, Problem::LookupFails);
    // A port of TCP alone that is closed is none of DNS.
    let (_socket, closed) = refusing();
    let pinned = asking([]).resolve("api.test", closed);
    only(&examine(pinned, &url("http", closed)).await, Problem::AddressRefuses);
}
