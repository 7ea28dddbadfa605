//! DNS over TLS and over HTTPS: certificates, shared connections, and servers that close or stay silent.

use std::error::Error as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use speeddial::dns::{Family, HickoryResolver, ResolveErrorKind, Resolver, Server};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::dns::lookups::zone;
use support::certs::Authority;
use support::dns_server::{DnsServer, respond};
use support::{dns_tcp, full, refusing};

/// Starts a TLS server that runs `speak` on each connection. Returns its address and the number of its connections.
async fn serve<F>(config: Arc<ServerConfig>, speak: fn(TlsStream<TcpStream>) -> F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(config);
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                stream.set_nodelay(true)?;
                speak(acceptor.accept(stream).await?).await
            });
        }
    });
    (address, connections)
}

/// Answers DNS over TLS: each message has its length in front (RFC 7858 §3.3).
async fn dot(mut stream: TlsStream<TcpStream>) -> std::io::Result<()> {
    loop {
        let query = read_query(&mut stream).await?;
        reply(&mut stream, &query).await?;
    }
}

async fn read_query(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut query = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut query).await?;
    Ok(query)
}

async fn reply(stream: &mut TlsStream<TcpStream>, query: &[u8]) -> std::io::Result<()> {
    let response = respond(&zone, query).unwrap_or_default();
    support::send(stream, &[&(response.len() as u16).to_be_bytes()[..], &response].concat()).await
}

/// Returns true if the question is about a name with the label `zero`.
fn is_about_zero(query: &[u8]) -> bool {
    query.windows(5).any(|label| label == b"\x04zero")
}

/// Answers DNS over HTTPS: each message is the body of a POST (RFC 8484 §4.1).
async fn doh(stream: TlsStream<TcpStream>) -> std::io::Result<()> {
    let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
        assert_eq!(request.uri().path(), "/dns-query");
        let query = request.into_body().collect().await?.to_bytes();
        let response = respond(&zone, &query).unwrap_or_default();
        let response = Response::builder().header("content-type", "application/dns-message").body(full(response));
        Ok::<_, hyper::Error>(response.expect("a valid response"))
    });
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    serving.serve_connection(TokioIo::new(stream), service).await.map_err(std::io::Error::other)
}

async fn three_lookups(resolver: &HickoryResolver) {
    for name in ["host.test", "chain.test", "my_svc.test"] {
        assert!(resolver.resolve(name, Family::V4).await.is_ok(), "{name}");
    }
    let error = resolver.resolve("nowhere.test", Family::V4).await.unwrap_err();
    assert_eq!((error.kind(), error.negative_ttl()), (ResolveErrorKind::NxDomain, Some(Duration::from_secs(9))));
}

#[tokio::test]
async fn lookups_over_tls_share_one_connection() {
    let authority = Authority::new();
    let (address, connections) = serve(authority.server(&["dns.test"], &[]), dot).await;
    let resolver = HickoryResolver::with_servers([Server::tls(address, "dns.test")]);
    three_lookups(&resolver.with_tls_config(authority.client())).await;
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn each_runtime_that_runs_has_one_connection_and_one_that_ended_has_none() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let authority = Authority::new();
    let of_server = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (address, connections) = of_server.block_on(serve(authority.server(&["dns.test"], &[]), dot));
    let resolver = HickoryResolver::with_servers([Server::tls(address, "dns.test")]);
    let resolver = resolver.with_tls_config(authority.client());
    let ask = |runtime: &tokio::runtime::Runtime| {
        assert!(runtime.block_on(resolver.resolve("host.test", Family::V4)).is_ok());
    };
    let runtimes: Vec<_> = std::iter::repeat_with(runtime).take(20).collect();
    for _ in 0..3 {
        runtimes.iter().for_each(ask);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 20);
    drop(runtimes);
    for number in 1..=5 {
        ask(&runtime());
        assert_eq!(connections.load(Ordering::SeqCst), 20 + number);
    }
}

#[tokio::test]
async fn lookups_over_https_share_one_connection() {
    let authority = Authority::new();
    let (address, connections) = serve(authority.server(&["dns.test"], &["h2"]), doh).await;
    let resolver = HickoryResolver::with_servers([Server::https(address, "dns.test")]);
    three_lookups(&resolver.with_tls_config(authority.client())).await;
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_with_a_certificate_for_another_name_or_by_another_authority_is_refused() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let cases = [
        ("another name", authority.server(&["other.test"], &["h2"]), "certificate not valid for name \"dns.test\""),
        ("another authority", stranger.server(&["dns.test"], &["h2"]), "UnknownIssuer"),
    ];
    for (case, config, reason) in cases {
        let (by_tls, _) = serve(config.clone(), dot).await;
        let (by_https, _) = serve(config, doh).await;
        for server in [Server::tls(by_tls, "dns.test"), Server::https(by_https, "dns.test")] {
            let resolver = HickoryResolver::with_servers([server]).with_tls_config(authority.client());
            let error = resolver.resolve("host.test", Family::V4).await.unwrap_err();
            assert_eq!(error.kind(), ResolveErrorKind::Unreachable, "{case}: {error}");
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            assert!(cause.contains(reason), "{case}: {cause}");
        }
    }
}

#[tokio::test]
async fn a_closed_port_is_reported_as_connection_refused() {
    let (_closed, address) = refusing();
    for server in [Server::tls(address, "dns.test"), Server::https(address, "dns.test")] {
        let resolver = HickoryResolver::with_servers([server]).with_tls_config(Authority::new().client());
        let error = resolver.resolve("host.test", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::Unreachable);
        let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
        assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionRefused), "{cause:?}");
    }
}

#[tokio::test]
async fn without_a_tls_configuration_the_platforms_roots_are_used() {
    let (address, _) = serve(Authority::new().server(&["dns.test"], &[]), dot).await;
    let resolver = HickoryResolver::with_servers([Server::tls(address, "dns.test")]);
    let error = resolver.resolve("host.test", Family::V4).await.unwrap_err();
    assert!(!error.kind().is_negative(), "the platform does not trust this authority: {error}");
}

#[tokio::test]
async fn a_server_that_is_silent_in_its_handshake_is_skipped() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let authority = Authority::new();
    let (good, _) = serve(authority.server(&["dns.test"], &[]), dot).await;
    let servers = [silent.local_addr().unwrap(), good].map(|address| Server::tls(address, "dns.test"));
    let resolver = HickoryResolver::with_servers(servers).with_tls_config(authority.client());
    let resolver = resolver.with_try_timeout(Duration::from_secs(3)).with_total_timeout(AMPLE);
    assert!(resolver.resolve("host.test", Family::V4).await.is_ok());
}

/// A timeout that is long enough for a burst on a busy machine.
const AMPLE: Duration = Duration::from_secs(300);

/// Looks up this many names at once. Each must be answered at the first try.
async fn burst(resolver: &HickoryResolver, lookups: usize) {
    // The names differ, because equal questions would be sent as one.
    let names: Vec<_> = (0..lookups).map(|number| format!("host.n{number}.test")).collect();
    let lookups = names.iter().map(|name| resolver.resolve(name, Family::V4));
    let outcomes = futures_util::future::join_all(lookups).await;
    let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} of {} failed: {:?}", failed.len(), names.len(), failed.first());
}

#[tokio::test]
async fn a_burst_of_cold_lookups_opens_one_connection() {
    let authority = Authority::new();
    for lookups in [500, 2_000] {
        let (by_tls, tls) = serve(authority.server(&["dns.test"], &[]), dot).await;
        let (by_https, https) = serve(authority.server(&["dns.test"], &["h2"]), doh).await;
        let servers = [(Server::tls(by_tls, "dns.test"), tls), (Server::https(by_https, "dns.test"), https)];
        for (server, connections) in servers {
            let resolver = HickoryResolver::with_servers([server]).with_tls_config(authority.client());
            let resolver = resolver.with_tries(1).with_try_timeout(AMPLE).with_total_timeout(AMPLE);
            // On a busy machine all of them may be slow.
            burst(&resolver.with_max_in_flight(lookups), lookups).await;
            assert_eq!(connections.load(Ordering::SeqCst), 1);
        }
    }
}

/// Answers each question, and closes the connection after a question about `zero`.
async fn dot_until_zero(mut stream: TlsStream<TcpStream>) -> std::io::Result<()> {
    loop {
        let query = read_query(&mut stream).await?;
        reply(&mut stream, &query).await?;
        if is_about_zero(&query) {
            return stream.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_after_the_server_has_closed_the_connection_opens_one_more() {
    let authority = Authority::new();
    let (address, connections) = serve(authority.server(&["dns.test"], &[]), dot_until_zero).await;
    let resolver = HickoryResolver::with_servers([Server::tls(address, "dns.test")]);
    let resolver =
        resolver.with_tls_config(authority.client()).with_tries(1).with_try_timeout(AMPLE).with_total_timeout(AMPLE);
    // On a busy machine all lookups of a burst may be slow.
    let resolver = resolver.with_max_in_flight(500);
    for round in 1..=5 {
        assert!(resolver.resolve("zero.test", Family::V4).await.is_ok());
        assert_eq!(connections.load(Ordering::SeqCst), round);
        burst(&resolver, 500).await;
        assert_eq!(connections.load(Ordering::SeqCst), round + 1);
    }
}

/// The questions that [`frozen`] leaves unanswered until the last of them has come: no more than are asked at once by default.
const FROZEN: usize = 250;

/// Answers nothing before [`FROZEN`] questions have come, and then all at once.
async fn frozen(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut replies = Vec::new();
    for _ in 0..FROZEN {
        let query = read_query(&mut stream).await?;
        let response = respond(&zone, &query).unwrap_or_default();
        replies.extend_from_slice(&(response.len() as u16).to_be_bytes());
        replies.extend_from_slice(&response);
    }
    support::send(&mut stream, &replies).await?;
    stream.read_u8().await.map(drop)
}

#[tokio::test]
async fn the_answers_of_a_server_that_was_frozen_are_all_taken() {
    let authority = Authority::new();
    let (address, connections) = serve(authority.server(&["dns.test"], &[]), frozen).await;
    let resolver = HickoryResolver::with_servers([Server::tls(address, "dns.test")]);
    let resolver =
        resolver.with_tls_config(authority.client()).with_tries(1).with_try_timeout(AMPLE).with_total_timeout(AMPLE);
    burst(&resolver, FROZEN).await;
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

// Over TCP, tokio's budget ends each poll before hickory stops reading.
#[tokio::test]
async fn the_answers_of_a_server_that_was_frozen_are_all_taken_over_tcp() {
    let truncated = || DnsServer::start_over_udp(|_, response| response.metadata.truncation = true).unwrap();
    let (server, listener) = dns_tcp::udp_and_tcp(truncated, DnsServer::address);
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move { frozen(listener.accept().await?.0).await });
    let resolver = HickoryResolver::with_servers([server.address()])
        .with_tries(1)
        .with_try_timeout(AMPLE)
        .with_total_timeout(AMPLE);
    burst(&resolver, FROZEN).await;
}

/// Answers each question except those about `zero`.
async fn dot_without_zero(mut stream: TlsStream<TcpStream>) -> std::io::Result<()> {
    loop {
        let query = read_query(&mut stream).await?;
        if !is_about_zero(&query) {
            reply(&mut stream, &query).await?;
        }
    }
}

#[tokio::test]
async fn an_unanswered_name_does_not_close_the_connection_of_the_others() {
    let authority = Authority::new();
    let (address, connections) = serve(authority.server(&["dns.test"], &[]), dot_without_zero).await;
    let resolver = HickoryResolver::with_servers([Server::tls(address, "dns.test")]);
    let resolver =
        resolver.with_tls_config(authority.client()).with_try_timeout(Duration::from_secs(3)).with_total_timeout(AMPLE);
    let resolver = Arc::new(resolver);
    let shared = resolver.clone();
    let silent = tokio::spawn(async move { shared.resolve("zero.test", Family::V4).await });
    while !silent.is_finished() {
        assert!(resolver.resolve("host.test", Family::V4).await.is_ok());
    }
    assert_eq!(silent.await.unwrap().unwrap_err().kind(), ResolveErrorKind::Timeout);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// Answers the first question on a connection and no other.
async fn mute_after_one(mut stream: TlsStream<TcpStream>) -> std::io::Result<()> {
    let query = read_query(&mut stream).await?;
    reply(&mut stream, &query).await?;
    std::future::pending().await
}

#[tokio::test]
async fn a_connection_that_goes_silent_is_replaced() {
    let authority = Authority::new();
    let (address, connections) = serve(authority.server(&["dns.test"], &[]), mute_after_one).await;
    let resolver =
        HickoryResolver::with_servers([Server::tls(address, "dns.test")]).with_tls_config(authority.client());
    let resolver = resolver.with_try_timeout(Duration::from_secs(3)).with_total_timeout(AMPLE);
    assert!(resolver.resolve("host.test", Family::V4).await.is_ok());
    assert!(resolver.resolve("host.test", Family::V4).await.is_ok(), "on another connection");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    assert!(resolver.resolve("host.test", Family::V4).await.is_ok(), "the silent connection is not used again");
    assert_eq!(connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn unanswered_names_do_not_delay_the_others() {
    let authority = Authority::new();
    let (address, _) = serve(authority.server(&["dns.test"], &[]), dot_without_zero).await;
    let resolver = HickoryResolver::with_servers([Server::tls(address, "dns.test")]);
    let resolver = resolver.with_tls_config(authority.client()).with_tries(1);
    let resolver = resolver.with_try_timeout(Duration::from_secs(60)).with_total_timeout(AMPLE);
    let names: Vec<_> = (0..128).map(|number| format!("zero.n{number}.test")).collect();
    let silent = futures_util::future::join_all(names.iter().map(|name| resolver.resolve(name, Family::V4)));
    let mut silent = std::pin::pin!(silent);
    // The questions without an answer come first.
    assert!(futures_util::poll!(&mut silent).is_pending());
    tokio::select! {
        biased;
        good = resolver.resolve("host.test", Family::V4) => assert!(good.is_ok(), "{good:?}"),
        _ = silent => panic!("the others have waited for the end of those"),
    }
}

/// Closes the connection on a question about `zero`, once two others are answered.
///
/// The client asks the second of them after it has the first answer.
async fn dot_cut_by_zero(mut stream: TlsStream<TcpStream>) -> std::io::Result<()> {
    let mut answers = 0;
    let mut is_asked = false;
    while !is_asked || answers < 2 {
        let query = read_query(&mut stream).await?;
        if is_about_zero(&query) {
            is_asked = true;
        } else {
            reply(&mut stream, &query).await?;
            answers += 1;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_question_on_which_the_server_closes_opens_a_bounded_number_of_connections() {
    let authority = Authority::new();
    let (address, connections) = serve(authority.server(&["dns.test"], &[]), dot_cut_by_zero).await;
    let resolver = HickoryResolver::with_servers([Server::tls(address, "dns.test")]);
    let resolver = resolver.with_tls_config(authority.client()).with_tries(1);
    let resolver = Arc::new(resolver.with_try_timeout(AMPLE).with_total_timeout(AMPLE));
    let shared = resolver.clone();
    let cut = tokio::spawn(async move { shared.resolve("zero.test", Family::V4).await });
    while !cut.is_finished() {
        assert!(resolver.resolve("host.test", Family::V4).await.is_ok());
    }
    assert_eq!(cut.await.unwrap().unwrap_err().kind(), ResolveErrorKind::Unreachable);
    let connections = connections.load(Ordering::SeqCst);
    // hickory asks twice, and each time opens up to 64 connections.
    assert!((64..=130).contains(&connections), "{connections}");
}

#[tokio::test]
async fn a_server_may_be_named_by_an_address_except_that_https_takes_no_ipv6_one() {
    let authority = Authority::new();
    for name in ["127.0.0.1", "::1"] {
        let (by_tls, _) = serve(authority.server(&[name], &[]), dot).await;
        let (by_https, _) = serve(authority.server(&[name], &["h2"]), doh).await;
        let with = |server| HickoryResolver::with_servers([server]).with_tls_config(authority.client());
        three_lookups(&with(Server::tls(by_tls, name))).await;
        let resolver = with(Server::https(by_https, name));
        if name == "127.0.0.1" {
            three_lookups(&resolver).await;
            continue;
        }
        let error = resolver.resolve("host.test", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::Config);
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("not by ::1"), "{source}");
    }
}
