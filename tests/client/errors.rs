//! Errors: each failure has its kind and a message that names the target and the cause.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll};
use std::time::Duration;

use speeddial::dns::{FixedResolver, HickoryResolver};
use speeddial::trace::DialOutcome;
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Client, Error, ErrorKind, PoolConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::dns::lookups::zone;
use support::dns_server::DnsServer;
use support::refusing;
use support::scripted_peer::{ScriptedPeer, answer_all, read_head};

async fn fails(client: &Client, url: &str) -> Error {
    let mut response = match client.get(url).send().await {
        Ok(response) => response,
        Err(error) => return error,
    };
    loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the call succeeded"),
            Err(error) => {
                assert!(response.chunk().await.is_err(), "a failed body must not look like its end");
                return error;
            }
        }
    }
}

/// Compares the kind and the chain of an error.
fn check(error: &Error, kind: ErrorKind, chain: &str) {
    assert_eq!((error.kind(), format!("{error:#}")), (kind, chain.to_owned()));
}

#[tokio::test]
async fn an_unparsable_url_is_a_request_error() {
    let error = fails(&Client::new(), "http//nowhere").await;
    check(&error, ErrorKind::Request, "`http//nowhere` is not a URL: relative URL without a base");
}

#[tokio::test]
async fn an_unknown_scheme_is_a_request_error() {
    let error = fails(&Client::new(), "gopher://host/1").await;
    check(&error, ErrorKind::Request, "GET gopher://host/1: cannot send to `gopher://host/1`: unknown scheme `gopher`");
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_a_resolve_error() {
    let dns = DnsServer::start(zone).unwrap();
    let client = Client::builder().dns_resolver(HickoryResolver::with_servers([dns.address()])).build().unwrap();
    let error = fails(&client, "http://nowhere.test/").await;
    check(&error, ErrorKind::Resolve, "GET http://nowhere.test/: resolve nowhere.test: the name does not exist");
    assert!(error.is_dns() && error.is_connect() && !error.is_timeout());
}

#[tokio::test]
async fn a_host_that_is_no_valid_name_is_the_callers_mistake() {
    let dns = DnsServer::start(zone).unwrap();
    let client = Client::builder().dns_resolver(HickoryResolver::with_servers([dns.address()])).build().unwrap();
    let error = fails(&client, "http://a{b}.test/").await;
    check(&error, ErrorKind::Request, "cannot send to `http://a{b}.test/`: `a{b}.test` is not a valid host name");
    let long = format!("{}.test", "a".repeat(64));
    let error = fails(&client, &format!("http://{long}/")).await;
    assert_eq!(error.to_string(), format!("GET http://{long}/: `{long}` is not a valid host name"));
    assert!(error.is_builder() && !error.is_dns() && !error.is_connect());
    assert_eq!(dns.queries(), 0);
}

#[tokio::test]
async fn a_failed_dns_server_is_not_reported_as_a_name_that_does_not_exist() {
    let dns = DnsServer::start(zone).unwrap();
    let client = Client::builder().dns_resolver(HickoryResolver::with_servers([dns.address()])).build().unwrap();
    let error = fails(&client, "http://fails.test/").await;
    assert_eq!(error.kind(), ErrorKind::Resolve);
    assert!(error.to_string().ends_with("the DNS server failed (SERVFAIL)"), "{error}");
}

#[tokio::test]
async fn a_refused_port_is_a_connect_error() {
    let (_kept, closed) = refusing();
    let error = fails(&Client::new(), &format!("http://{closed}/")).await;
    let chain = format!("GET http://{closed}/: connect to 127.0.0.1 failed: Connection refused (os error 111)");
    check(&error, ErrorKind::Connect, &chain);
    assert_eq!(error.url().unwrap().to_string(), format!("http://{closed}/"));
    assert!(error.is_connect() && !error.is_dns());
}

#[tokio::test]
async fn several_addresses_that_refuse_are_all_listed() {
    let (_kept, closed) = refusing();
    let addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map(|ip| ip.parse().unwrap());
    let client = Client::builder().dns_resolver(FixedResolver::new().with("api.test", addresses)).build().unwrap();
    let error = fails(&client, &format!("http://api.test:{}/", closed.port())).await;
    let port = closed.port();
    let message = format!("GET http://api.test:{port}/: connect: 3 addresses failed, last 127.0.0.3");
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Connect, message));
    let attempts = error.dialled();
    assert!(attempts.iter().map(|attempt| attempt.address.ip()).eq(addresses), "{attempts:?}");
    for attempt in attempts {
        let refused = |error: &Arc<std::io::Error>| error.kind() == std::io::ErrorKind::ConnectionRefused;
        assert!(matches!(&attempt.outcome, DialOutcome::Failed(error) if refused(error)), "{attempt:?}");
    }
}

#[tokio::test]
async fn a_close_before_any_response_is_an_exchange_error() {
    let peer = ScriptedPeer::start(|_, mut socket| {
        read_head(&mut socket);
    });
    let client = Client::new();
    let error = fails(&client, &peer.url()).await;
    let what = "the connection closed without a response, and it is not known whether the request arrived";
    check(&error, ErrorKind::Exchange, &format!("GET {}: {what}", peer.url()));
    assert_eq!(peer.connections(), 1, "a failure on a new connection is final");
    assert_eq!(client.pool_stats().in_use, 0);
}

#[tokio::test]
async fn garbage_instead_of_a_response_is_an_exchange_error() {
    let peer = ScriptedPeer::start(|_, mut socket| {
        read_head(&mut socket);
        let _ = socket.write_all(b"220 mail.test ESMTP\r\n\r\n");
    });
    let error = fails(&Client::new(), &peer.url()).await;
    let what = "the response is not HTTP/1.1: invalid HTTP version parsed";
    check(&error, ErrorKind::Exchange, &format!("GET {}: {what}", peer.url()));
}

#[tokio::test]
async fn a_close_in_the_middle_of_the_head_is_an_exchange_error() {
    let peer = ScriptedPeer::start(|_, mut socket| {
        read_head(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-le");
    });
    let error = fails(&Client::new(), &peer.url()).await;
    let what = "the connection closed in the middle of the response";
    check(&error, ErrorKind::Exchange, &format!("GET {}: {what}", peer.url()));
}

#[tokio::test]
async fn a_close_in_the_middle_of_the_body_is_a_body_error() {
    let peer = ScriptedPeer::start(|_, mut socket| {
        read_head(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
    });
    let client = Client::new();
    let error = fails(&client, &peer.url()).await;
    assert_eq!(error.kind(), ErrorKind::Body);
    assert!(error.to_string().ends_with(": the body broke off after 4 of 10 bytes"), "{error}");
    assert_eq!(client.pool_stats().idle, 0, "the connection is not reused");
}

#[tokio::test]
async fn after_each_failure_the_same_client_works() {
    let peer = ScriptedPeer::start(|number, mut socket| match number {
        0 => {
            read_head(&mut socket);
        }
        1 => {
            read_head(&mut socket);
            let _ = socket.write_all(b"garbage\r\n\r\n");
        }
        _ => answer_all(&mut socket),
    });
    let client = Client::new();
    for _ in 0..2 {
        fails(&client, &peer.url()).await;
    }
    assert_eq!(client.get(peer.url()).send().await.unwrap().text().await.unwrap(), "ok");
}

#[tokio::test]
async fn after_a_silent_close_a_get_is_resent_and_a_post_is_not() {
    // The first connection answers once, reads the next request and closes. The others answer every request.
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = requests.clone();
    let peer = ScriptedPeer::start(move |number, mut socket| {
        while read_head(&mut socket) {
            let first = seen.fetch_add(1, Ordering::SeqCst) == 0;
            if number == 0 && !first {
                return;
            }
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    // Beside a slow dial, no other one begins.
    let pool = PoolConfig::new().max_connections_per_host(1);
    let client = Client::builder().pool(pool).build().unwrap();
    for _ in 0..2 {
        assert_eq!(client.get(peer.url()).send().await.unwrap().text().await.unwrap(), "ok");
    }
    assert_eq!((requests.load(Ordering::SeqCst), peer.connections()), (3, 2));

    let peer = ScriptedPeer::start(|_, mut socket| {
        if read_head(&mut socket) {
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            read_head(&mut socket);
        }
    });
    client.get(peer.url()).send().await.unwrap().text().await.unwrap();
    let error = client.post(peer.url()).body("once").send().await.unwrap_err();
    assert_eq!((error.kind(), peer.connections()), (ErrorKind::Exchange, 1));
}

#[tokio::test]
async fn a_get_gets_a_new_connection_when_all_idle_ones_are_stale() {
    // Each of the first connections answers one request, reads another one and closes.
    const STALE: usize = 6;
    let together = Arc::new(Barrier::new(STALE));
    let peers = Arc::new(AtomicUsize::new(0));
    let requests = peers.clone();
    let peer = ScriptedPeer::start(move |number, mut socket| {
        if number >= STALE {
            return answer_all(&mut socket);
        }
        if read_head(&mut socket) {
            requests.fetch_add(1, Ordering::SeqCst);
            together.wait();
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            read_head(&mut socket);
        }
    });
    // Beside slow dials, no other one begins.
    let pool = PoolConfig::new().max_connections_per_host(STALE);
    let client = Client::builder().pool(pool).build().unwrap();
    let calls: Vec<_> = (0..STALE).map(|_| tokio::spawn(client.get(peer.url()).send())).collect();
    for call in calls {
        call.await.unwrap().unwrap().bytes().await.unwrap();
    }
    assert_eq!((client.pool_stats().idle, peers.load(Ordering::SeqCst)), (STALE, STALE));
    assert_eq!(client.get(peer.url()).send().await.unwrap().text().await.unwrap(), "ok");
    assert_eq!(peer.connections(), STALE + 1);
}

/// A network whose servers reset each connection as soon as it is open.
struct Resets {
    /// The time for which a thread is blocked before it sees that.
    blocks: Duration,
}

impl Transport for Resets {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        let stream = ResetStream { blocks: self.blocks };
        Box::pin(std::future::ready(Ok(Box::new(stream) as Box<dyn Stream>)))
    }
}

struct ResetStream {
    blocks: Duration,
}

impl AsyncRead for ResetStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        std::thread::sleep(self.blocks);
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
}

impl AsyncWrite for ResetStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns a client of such a network for each protocol.
fn clients_of_resets(blocks: Duration) -> [Client; 2] {
    let builder = || {
        let resolver = FixedResolver::new().with("api.test", ["192.0.2.1".parse().unwrap()]);
        Client::builder().no_proxy().dns_resolver(resolver).transport(Resets { blocks })
    };
    [builder().build().unwrap(), builder().http2_prior_knowledge().build().unwrap()]
}

#[tokio::test]
async fn a_request_that_was_not_sent_by_its_deadline_has_timed_out_and_may_be_repeated() {
    const LIMIT: Duration = Duration::from_millis(10);
    for client in clients_of_resets(2 * LIMIT) {
        let error = client.post("http://api.test/").body("x").timeout(LIMIT).send().await.unwrap_err();
        assert!(error.is_timeout() && !error.may_have_been_processed(), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_fails_before_it_takes_its_request_keeps_the_cause() {
    for client in clients_of_resets(Duration::ZERO) {
        let error = client.post("http://api.test/").body("x").send().await.unwrap_err();
        let message = "POST http://api.test/: the connection closed before the request was sent (after 2 attempts): connection reset";
        check(&error, ErrorKind::Exchange, message);
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        let last = causes.last().expect("the error has a cause").to_string();
        assert!(last.contains("connection reset"), "{last}");
        assert_eq!(client.pool_stats().opened, 2, "it was tried once more");
    }
}

#[tokio::test]
async fn a_limit_of_zero_connections_is_refused() {
    let pool = speeddial::PoolConfig::new().max_connections_per_host(0);
    let error = Client::builder().pool(pool).build().unwrap_err();
    let message = "build a client: max_connections_per_host must not be 0, or no request could ever be sent";
    check(&error, ErrorKind::Request, message);
}

#[test]
fn a_limit_of_zero_response_headers_is_refused() {
    let error = Client::builder().http1_max_headers(0).build().unwrap_err();
    assert!(error.is_builder() && error.to_string().contains("http1_max_headers must not be 0"), "{error}");
}

#[test]
fn a_builder_reports_its_first_error() {
    let error = Client::builder().base_url("no url").user_agent("a\nb").build().unwrap_err();
    check(&error, ErrorKind::Request, "`no url` is not a URL: relative URL without a base");
    let error = Client::builder().user_agent("a\nb").base_url("no url").build().unwrap_err();
    check(&error, ErrorKind::Request, "the user agent is not valid: failed to parse header value");
    for base in ["ftp://host/", "mailto:a@b", "http://host:0/", "http://us%3Aer:secret@host/"] {
        let error = Client::builder().base_url(base).build().unwrap_err();
        assert!(error.is_builder() && !error.to_string().contains("secret"), "{base}: {error}");
    }
}

#[tokio::test]
async fn an_error_without_its_url_tells_nothing_of_it() {
    let client = speeddial::Client::new();
    for url in [
        "http://",
        "http://secret host/",
        "http://[secret",
        "ftp://secret.test/x",
        "http://secret.test:0/",
        "secret path",
    ] {
        let error = client.get(url).send().await.unwrap_err();
        let bare = error.without_url();
        let all = format!("{bare} {bare:?} {bare:#}");
        assert!(!all.contains("secret"), "{all}");
    }
}
