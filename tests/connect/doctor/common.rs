//! The servers and the checks that the tests of reports share.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use hickory_proto::op::{Message, Query};
use speeddial::dns::{FixedResolver, HickoryResolver};
use speeddial::doctor::{Problem, Report};
use speeddial::{Client, ClientBuilder};

use support::dns_server::{DnsServer, add_address};

/// The time limit of a step in tests where a server does not answer. Other steps have to succeed in it.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// Starts a DNS server that has 127.0.0.1 for every name.
pub(super) fn healthy_dns() -> DnsServer {
    DnsServer::start(loopback).unwrap()
}

/// Answers each question for an IPv4 address with 127.0.0.1.
pub(super) fn loopback(question: &Query, response: &mut Message) {
    add_address(response, question, question.name(), Ipv4Addr::LOCALHOST.into(), 60);
}

/// Returns the builder of a client without a proxy that asks these DNS servers.
pub(super) fn asking(servers: impl IntoIterator<Item = SocketAddr>) -> ClientBuilder {
    Client::builder().no_proxy().dns_resolver(HickoryResolver::with_servers(servers))
}

/// Returns the builder of a client without a proxy that knows `api.test` as 127.0.0.1.
pub(super) fn knowing() -> ClientBuilder {
    let names = FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]);
    Client::builder().no_proxy().dns_resolver(names)
}

/// Returns settings that trust only `authority`, without the platform's authorities.
#[cfg(feature = "__tls")]
pub(super) fn trusting(authority: &support::certs::Authority) -> speeddial::tls::TlsConfig {
    speeddial::tls::TlsConfig::new().add_roots([authority.root()]).only_added_roots()
}

/// Returns the URL of `api.test` at the port of an address.
pub(super) fn url(scheme: &str, server: SocketAddr) -> String {
    format!("{scheme}://api.test:{}/", server.port())
}

pub(super) async fn examine(builder: ClientBuilder, url: &str) -> Report {
    let start = std::time::Instant::now();
    let report = builder.build().unwrap().doctor(url).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(60), "{report}");
    report
}

/// Returns the problems that a report finds. The machine may be busy, and what is slow for that is left out.
pub(super) fn problems(report: &Report) -> Vec<Problem> {
    let problems = report.findings().iter().map(|finding| finding.problem());
    problems.filter(|problem| !problem.is_slow()).collect()
}

/// Checks that a report finds one problem, and returns its text.
#[track_caller]
pub(super) fn only(report: &Report, problem: Problem) -> String {
    assert_eq!(problems(report), [problem], "{report}");
    let text = report.findings()[0].text();
    assert!(report.to_string().contains(text), "{report}");
    text.to_owned()
}

/// Returns a UDP socket whose port is closed to all others, because it is connected elsewhere.
pub(super) fn closed_udp() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, 9)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}
