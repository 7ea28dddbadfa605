//! The settings of TCP: the address and the interface that connections come from, and what the kernel is told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use speeddial::Client;
use speeddial::transport::TcpTransport;
use tokio::net::TcpListener;

use super::assert_refused;

/// Makes a GET with the client, and returns the address that the connection came from.
async fn source(client: speeddial::ClientBuilder) -> speeddial::Result<IpAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let accept = async { listener.accept().await.unwrap().1.ip() };
    let client = client.no_proxy().build().unwrap();
    tokio::select! {
        ip = accept => Ok(ip),
        // Without an answer it ends only if there is no connection.
        failed = client.get(url).send() => Err(failed.unwrap_err()),
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn connections_come_from_the_local_address() {
    let local = IpAddr::from([127, 0, 0, 2]);
    assert_eq!(source(Client::builder()).await.unwrap(), Ipv4Addr::LOCALHOST);
    assert_eq!(source(Client::builder().local_address(local)).await.unwrap(), local);
    let other_family = Client::builder().local_address(IpAddr::from(Ipv6Addr::LOCALHOST));
    assert_eq!(source(other_family).await.unwrap(), Ipv4Addr::LOCALHOST);
    let unset = Client::builder().local_address(local).local_address(None);
    assert_eq!(source(unset).await.unwrap(), Ipv4Addr::LOCALHOST);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn connections_go_through_the_interface() {
    let error = source(Client::builder().interface("no-such-one")).await.unwrap_err();
    assert!(error.is_connect(), "{error}");
    match source(Client::builder().interface("lo")).await {
        Ok(ip) => assert_eq!(ip, Ipv4Addr::LOCALHOST),
        // Choosing an interface may need a privilege that the test does not have.
        Err(error) => assert!(format!("{error:#}").contains("not permitted"), "{error:#}"),
    }
}

#[test]
fn settings_of_tcp_that_would_have_no_effect_are_refused() {
    let second = Duration::from_secs(1);
    let quiet = || Client::builder().tcp_keepalive(None);
    assert!(quiet().tcp_nodelay(false).build().is_ok());
    assert!(
        Client::builder().tcp_keepalive(second).tcp_keepalive_interval(second).tcp_keepalive_retries(9).build().is_ok()
    );
    assert_refused(
        quiet().tcp_keepalive_interval(second),
        "an interval of keepalive probes has no effect where none are sent",
    );
    assert_refused(quiet().tcp_keepalive_retries(1), "a number of keepalive probes has no effect where none are sent");
    for retries in [0, 128] {
        assert_refused(Client::builder().tcp_keepalive_retries(retries), "must be 1 to 127");
    }
    #[cfg(target_os = "linux")]
    assert_refused(
        Client::builder().tcp_keepalive_retries(5).tcp_user_timeout(second),
        "a number of keepalive probes has no effect beside a user timeout",
    );
    assert_refused(Client::builder().transport(TcpTransport::new()).tcp_nodelay(true), "beside a transport");
    // The transport itself, however it is shared, is checked as the client's settings are.
    let shared = std::sync::Arc::new(TcpTransport::new().keepalive_retries(Some(0)));
    assert_refused(Client::builder().transport(shared), "must be 1 to 127");
    let quiet = TcpTransport::new().keepalive(None).keepalive_interval(Some(second));
    assert_refused(Client::builder().transport(quiet), "an interval of keepalive probes has no effect");
    #[cfg(unix)]
    assert_refused(Client::builder().tcp_nodelay(true).unix_socket("/tmp/x"), "a setting of TCP has no effect");
}
