//! Addresses that cannot be connected to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use hickory_proto::op::{Message, Query};
use socket2::{Domain, Socket, Type};
use speeddial::Client;
use speeddial::dns::FixedResolver;
use speeddial::doctor::{FailureKind, Problem};

use super::common::{SOON, asking, examine, knowing, only, problems, url};
use support::dns_server::{DnsServer, add_address};
use support::{ok_server, refusing};

/// A socket that takes no more connections, so that a dial gets no answer, and the connections that fill it.
fn silent(ip: [u8; 4], port: u16) -> (Socket, Vec<TcpStream>, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((ip, port)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut streams = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        streams.push(stream);
        assert!(streams.len() < 100, "the backlog is never full");
    }
    (socket, streams, address)
}

/// Returns the builder of a client that knows `api.test` by these addresses.
fn with(ips: impl IntoIterator<Item = IpAddr>) -> speeddial::ClientBuilder {
    Client::builder().no_proxy().dns_resolver(FixedResolver::new().with("api.test", ips))
}

#[tokio::test]
async fn a_closed_port_is_named() {
    let (_socket, address) = refusing();
    let report = examine(knowing(), &url("http", address)).await;
    assert_eq!(only(&report, Problem::AddressRefuses), format!("{address} refuses connections: the port is closed."));
    assert!(report.requests().is_empty(), "{report}");
}

#[tokio::test]
async fn one_address_of_two_that_refuses_is_named_and_requests_succeed() {
    let server = ok_server();
    let port = server.address().port();
    let report =
        examine(with([[127, 0, 0, 2].into(), Ipv4Addr::LOCALHOST.into()]), &url("http", server.address())).await;
    assert_eq!(
        only(&report, Problem::AddressRefuses),
        format!("127.0.0.2:{port} refuses connections: the port is closed.")
    );
    assert_eq!(report.addresses().iter().filter(|address| address.is_usable()).count(), 1, "{report}");
    assert!(report.requests().iter().all(|request| request.response().is_ok()), "{report}");
}

#[tokio::test]
async fn one_family_that_refuses_is_named() {
    let server = ok_server();
    let port = server.address().port();
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("SKIPPED: this machine has no ::1");
        return;
    }
    let ips = ["::1".parse().unwrap(), Ipv4Addr::LOCALHOST.into()];
    let report = examine(with(ips), &url("http", server.address())).await;
    assert!(only(&report, Problem::AddressRefuses).starts_with(&format!("[::1]:{port} refuses")), "{report}");
}

/// The resolver has ::1 and 127.0.0.1 for this name, whatever the server listens on.
#[tokio::test]
async fn a_server_of_localhost_in_one_family_alone_is_healthy() {
    let server = ok_server();
    let url = format!("http://localhost:{}/", server.address().port());
    let report = examine(Client::builder().no_proxy(), &url).await;
    assert_eq!(problems(&report), [], "{report}");
    assert!(report.route().reason().contains("set to use none"), "{report}");
    let (_socket, closed) = refusing();
    let report = examine(Client::builder().no_proxy(), &format!("http://localhost:{}/", closed.port())).await;
    assert!(problems(&report).iter().all(|problem| *problem == Problem::AddressRefuses), "{report}");
    assert!(!report.findings().is_empty(), "{report}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_address_that_does_not_answer_is_named() {
    let server = ok_server();
    let (_socket, _streams, silent) = silent([127, 0, 0, 3], server.address().port());
    let builder = with([silent.ip(), Ipv4Addr::LOCALHOST.into()]).connect_timeout(SOON);
    let report = examine(builder, &url("http", server.address())).await;
    let text = only(&report, Problem::AddressSilent);
    assert!(text.starts_with(&format!("{silent} does not answer: no answer within 5 s")), "{text}");
    let failed = report.addresses().iter().find_map(|address| address.failure()).unwrap();
    assert_eq!(failed.kind(), FailureKind::TimedOut);
}

#[tokio::test]
async fn an_address_that_the_client_excludes_is_named_if_there_is_no_other() {
    let server = ok_server();
    let report = examine(knowing().deny_private_addresses(), &url("http", server.address())).await;
    assert_eq!(
        only(&report, Problem::AddressNotAllowed),
        format!("A rule of the client excludes {}.", server.address())
    );
    assert_eq!(server.accepted(), 0);
    let other = IpAddr::from([127, 0, 0, 2]);
    let builder = with([other, Ipv4Addr::LOCALHOST.into()]).allow_addresses(move |ip| ip != other);
    assert_eq!(problems(&examine(builder, &url("http", server.address())).await), []);
}

#[tokio::test]
async fn a_name_with_addresses_that_no_host_can_have_is_named() {
    let unspecified = |question: &Query, response: &mut Message| {
        add_address(response, question, question.name(), Ipv4Addr::UNSPECIFIED.into(), 60);
    };
    let dns = DnsServer::start(unspecified).unwrap();
    let text = only(&examine(asking([dns.address()]), "http://api.test/").await, Problem::NameHasNoAddresses);
    assert!(text.contains("no host can have the address 0.0.0.0"), "{text}");
}

#[tokio::test]
async fn a_local_address_that_this_machine_does_not_have_is_named() {
    let server = support::ok_server();
    let local = std::net::IpAddr::from([192, 0, 2, 9]);
    let report = examine(knowing().local_address(local), &url("http", server.address())).await;
    only(&report, Problem::AddressWithoutRoute);
    assert!(report.findings()[0].advice().contains("`local_address`"), "{report}");
}

#[tokio::test]
async fn an_address_that_the_client_was_given_is_not_one_of_dns() {
    let (_socket, address) = support::refusing();
    let report = examine(knowing().resolve("api.test", address), &url("http", address)).await;
    only(&report, Problem::AddressRefuses);
    let advice = report.findings()[0].advice();
    assert!(advice.contains("`resolve`") && !advice.contains("DNS"), "{advice}");
}
