//! The most common failures, as the programs show them that print an error: `{}`, anyhow's `{:#}`, and `{:?}`.

#[cfg(feature = "__tls")]
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
#[cfg(feature = "__tls")]
use speeddial::dns::FixedResolver;
use speeddial::dns::HickoryResolver;
use speeddial::trace::Phase;
use speeddial::{Body, Client, ClientBuilder, Error, ErrorKind, PoolConfig};

use crate::dns::lookups::zone;
use support::dns_server::DnsServer;
use support::fake_dns::FakeDns;
use support::http_server::HttpServer;
use support::net_by_path::NetByPath;
use support::scripted_net::ScriptedNet;
#[cfg(feature = "__tls")]
use support::scripted_peer::{ScriptedPeer, read_head};
use support::{full, refusing, v4};

/// Compares the texts of an error, in which HOST stands for `address`.
#[track_caller]
fn shows(error: Error, address: SocketAddr, clause: &str, reason: &str, debug: &str) {
    let without_address = |text: String| text.replace(&address.to_string(), "HOST");
    assert_eq!(without_address(error.to_string()), clause, "display");
    let shown = without_address(format!("{error:?}"));
    assert_eq!(shown, format!("speeddial::Error {{ {debug} }}"), "debug");
    let chain = if reason.is_empty() { clause.to_owned() } else { format!("{clause}: {reason}") };
    assert_eq!(without_address(format!("{error:#}")), chain, "the chain in one line");
    let reported = anyhow::Error::from(error);
    assert_eq!(without_address(format!("{reported:#}")), chain, "anyhow prints the same");
    let report = without_address(format!("{reported:?}"));
    // Behind it comes a backtrace, if the environment asks for one.
    let lines: Vec<_> = report.lines().take_while(|line| *line != "Stack backtrace:").collect();
    let caused = if reason.is_empty() { String::new() } else { format!("\n\nCaused by:\n    {reason}") };
    assert_eq!(lines.join("\n").trim_end(), format!("{clause}{caused}"), "anyhow's report");
}

fn plain() -> ClientBuilder {
    Client::builder().no_proxy()
}

/// Returns a client for paused time, whose host serves, and whose DNS takes `dns_delay` milliseconds.
fn in_memory(dns_delay: u64) -> ClientBuilder {
    plain().dns_resolver(FakeDns::v4(dns_delay, v4(1), 60)).transport(NetByPath::default())
}

#[tokio::test]
async fn a_refused_connection() {
    let (_kept, closed) = refusing();
    shows(
        plain().build().unwrap().get(format!("http://{closed}/items?page=2")).send().await.unwrap_err(),
        closed,
        "GET http://HOST/items?page=2: connect to 127.0.0.1 failed",
        "Connection refused (os error 111)",
        "kind: Connect, method: GET, url: http://HOST/items?page=2, message: \"connect to 127.0.0.1 failed\", \
         source: Os { code: 111, kind: ConnectionRefused, message: \"Connection refused\" }",
    );
}

#[tokio::test]
async fn an_unknown_name() {
    let dns = DnsServer::start(zone).unwrap();
    let client = plain().dns_resolver(HickoryResolver::with_servers([dns.address()])).build().unwrap();
    shows(
        client.get("http://nowhere.test/items").send().await.unwrap_err(),
        dns.address(),
        "GET http://nowhere.test/items: resolve nowhere.test: the name does not exist",
        "",
        "kind: Resolve, method: GET, url: http://nowhere.test/items, \
         message: \"resolve nowhere.test: the name does not exist\"",
    );
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn an_expired_certificate() {
    use support::certs::Authority;
    let authority = Authority::new();
    let mut params = rcgen::CertificateParams::new(vec!["api.test".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(2000, 1, 1), rcgen::date_time_ymd(2001, 1, 1));
    let (certificate, key) = authority.sign(params);
    let config = rustls::ServerConfig::builder_with_provider(support::certs::provider());
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate], key).unwrap();
    let server = support::tls_server::TlsServer::start(config.into()).await;
    let names = FixedResolver::new().with("api.test", [server.address().ip()]);
    let client = plain().dns_resolver(names).tls(authority.client()).build().unwrap();
    let error = client.get(format!("https://api.test:{}/", server.address().port())).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls);
    let shown = format!("{error:#}");
    let (clause, reason) = shown.split_at(error.to_string().len());
    let port = server.address().port();
    let expected =
        format!("GET https://api.test:{port}/: TLS handshake with 127.0.0.1 failed: the certificate is refused");
    assert_eq!(clause, expected);
    let reason = reason.strip_prefix(": invalid peer certificate: certificate expired: verification time ").unwrap();
    assert!(reason.contains("(UNIX), but certificate is not valid after 978307200 ("), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_in_each_phase() {
    let ms = Duration::from_millis;
    let get = async |builder: ClientBuilder, path: &str| {
        let response = builder.build().unwrap().get(format!("http://api.test{path}")).send().await;
        match response {
            Ok(response) => response.bytes().await.unwrap_err(),
            Err(error) => error,
        }
    };
    let timed_out = |limit| in_memory(5).timeout(ms(limit));
    let mut errors = vec![
        get(timed_out(3), "/").await,
        get(timed_out(10), "/").await,
        get(timed_out(500), "/never").await,
        get(timed_out(20), "/").await,
        get(in_memory(2_000).timeout(ms(2_100)), "/never").await,
        get(in_memory(5).headers_timeout(ms(500)).timeout(ms(2_000)), "/never").await,
    ];
    let one = PoolConfig::new().max_connections_per_host(1);
    let client = in_memory(5).pool(one).timeout(ms(300)).build().unwrap();
    let first = client.get("http://api.test/never").send();
    let second = client.get("http://api.test/").timeout(ms(200)).send();
    errors.push(tokio::join!(first, second).1.unwrap_err());
    let unread = ScriptedNet::new(|_, stream| async move {
        let _kept = stream;
        std::future::pending().await
    });
    let client = in_memory(5).transport(unread).timeout(ms(100)).build().unwrap();
    let pieces = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 65_536]));
    let sent = client.post("http://api.test/").body(Body::wrap_stream(pieces)).send();
    errors.push(sent.await.unwrap_err());
    let shown: Vec<_> = errors.iter().map(|error| format!("{error:#}")).collect();
    assert_eq!(
        shown,
        [
            "GET http://api.test/: timed out after 3 ms, in phase dns: all 3.00 ms were spent in DNS, which had not \
             answered (3.00 ms = dns 3.00 ms)",
            "GET http://api.test/: timed out after 10 ms, in phase connect: 5.00 ms of 10.0 ms were spent dialling \
             192.0.2.1:80, which did not connect (10.0 ms = dns 5.00 ms (miss) + connect 5.00 ms)",
            "GET http://api.test/never: timed out after 500 ms, in phase wait: 485 ms of 500 ms were spent waiting for \
             an answer that had not come \
             (500 ms = dns 5.00 ms (miss) + connect 10.0 ms + wait 485 ms, new 192.0.2.1:80)",
            "GET http://api.test/: timed out after 20 ms, most of the time in phase connect, at last in phase receive: \
             the connection to 192.0.2.1:80 took 10.0 ms of 20.0 ms \
             (20.0 ms = dns 5.00 ms (miss) + connect 10.0 ms + receive 5.00 ms, new 192.0.2.1:80)",
            "GET http://api.test/never: timed out after 2.1 s, most of the time in phase dns, at last in phase wait: 2.00 s \
             of 2.10 s were spent in DNS: the answer for api.test was not in the cache \
             (2.10 s = dns 2.00 s (miss) + connect 10.0 ms + wait 90.0 ms, new 192.0.2.1:80)",
            "GET http://api.test/never: no response headers within 500 ms, in phase wait: 500 ms of 515 ms were spent \
             waiting for an answer that had not come \
             (515 ms = dns 5.00 ms (miss) + connect 10.0 ms + wait 500 ms, new 192.0.2.1:80; 1.485 s of 2 s left)",
            "GET http://api.test/: timed out after 200 ms, in phase queue: all 200 ms were spent in the queue: api.test:80 had \
             1 of 1 connections in use; raise max_connections_per_host or lower concurrency (200 ms = queue 200 ms)",
            "POST http://api.test/: timed out after 100 ms, in phase send: sending the request took 85.0 ms of 100 ms \
             (100 ms = dns 5.00 ms (miss) + connect 10.0 ms + send 85.0 ms, new 192.0.2.1:80)",
        ]
    );
    let phases =
        [Phase::Dns, Phase::Connect, Phase::Wait, Phase::Receive, Phase::Wait, Phase::Wait, Phase::Queue, Phase::Send];
    assert!(errors.iter().map(Error::kind).eq(phases.map(ErrorKind::Timeout)));
    assert!(errors.iter().all(Error::is_timeout));
}

#[cfg(feature = "__tls")]
#[tokio::test(start_paused = true)]
async fn a_timeout_in_the_tls_handshake_and_in_a_proxy() {
    let silent = || {
        let net = ScriptedNet::new(|_, stream| async move {
            let _kept = stream;
            std::future::pending().await
        });
        in_memory(5).transport(net)
    };
    let get = async |builder: ClientBuilder| {
        let error = builder.build().unwrap().get("https://api.test/").send().await.unwrap_err();
        (error.kind(), format!("{error:#}"))
    };
    let limit = Duration::from_millis(100);
    let text = "GET https://api.test/: timed out after 100 ms, in phase tls: 85.0 ms of 100 ms were spent in the TLS \
                handshake, which was not over \
                (100 ms = dns 5.00 ms (miss) + connect 10.0 ms + tls 85.0 ms)";
    assert_eq!(get(silent().timeout(limit)).await, (ErrorKind::Timeout(Phase::Tls), text.to_owned()));
    let text = "GET https://api.test/: no TLS handshake with 192.0.2.1 within 80 ms, in phase tls: 80.0 ms of 95.0 ms were spent in TLS: the \
                handshake with 192.0.2.1:443 failed \
                (95.0 ms = dns 5.00 ms (miss) + connect 10.0 ms + tls 80.0 ms)";
    let brief = Duration::from_millis(80);
    assert_eq!(get(silent().tls_timeout(brief)).await, (ErrorKind::Timeout(Phase::Tls), text.to_owned()));
    let proxy = speeddial::Proxy::all("http://proxy.test:3128").unwrap();
    let text = "GET https://api.test/: timed out after 100 ms, in phase proxy: 85.0 ms of 100 ms were spent waiting for the \
                proxy, which had not connected to the origin \
                (100 ms = dns 5.00 ms (miss) + connect 10.0 ms + proxy 85.0 ms)";
    let behind = silent().proxy(proxy).timeout(limit);
    assert_eq!(get(behind).await, (ErrorKind::Timeout(Phase::Proxy), text.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_lookup_without_an_answer_in_time() {
    let lookup = speeddial::dns::CachedResolver::builder().query_timeout(Duration::from_secs(2));
    let client = plain().dns_cache(lookup.build(FakeDns::v4(60_000, v4(1), 60))).build().unwrap();
    let error = client.get("http://api.test/").send().await.unwrap_err();
    assert_eq!((error.kind(), error.is_dns()), (ErrorKind::Timeout(Phase::Dns), true));
    let text = "no answer from DNS in time, in phase dns: all 2.00 s were spent in DNS: the lookup of api.test failed \
                (2.00 s = dns 2.00 s (miss))";
    assert!(format!("{error:#}").ends_with(text), "{error:#}");
}

#[tokio::test]
async fn a_413_into_an_upload() {
    let server =
        HttpServer::start(|_| async { hyper::Response::builder().status(413).body(full("at most 1 MB")).unwrap() })
            .unwrap();
    let pieces = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 65_536])).take(256);
    let client = plain().build().unwrap();
    let response = client.post(format!("http://{}/", server.address())).body(Body::wrap_stream(pieces)).send().await;
    shows(
        response.unwrap().error_for_status().unwrap_err(),
        server.address(),
        "POST http://HOST/: status 413 Payload Too Large, and the body begins with `at most 1 MB`",
        "",
        "kind: Status(413), method: POST, url: http://HOST/, \
         message: \"status 413 Payload Too Large, and the body begins with `at most 1 MB`\"",
    );
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_proxy_that_wants_credentials() {
    let proxy = ScriptedPeer::start(|_, mut socket| {
        read_head(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n");
    });
    let address = proxy.url().trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    let client = Client::builder().proxy(speeddial::Proxy::all(proxy.url()).unwrap()).build().unwrap();
    let error = client.get("https://api.test/").send().await.unwrap_err();
    shows(
        error,
        address,
        "GET https://api.test/: the proxy HOST: it wants authentication, and answered 407 Proxy Authentication Required",
        "",
        "kind: Connect, method: GET, url: https://api.test/, \
         message: \"the proxy HOST: it wants authentication, and answered 407 Proxy Authentication Required\", \
         source: Custom { kind: PermissionDenied, error: \"it wants authentication, and answered 407 Proxy Authentication Required\" }",
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_queue() {
    let pool = PoolConfig::new().max_connections_per_host(1).max_waiting(1);
    let client = in_memory(0).pool(pool).build().unwrap();
    let get = || client.get("http://api.test/never").send();
    let (mut first, mut second) = (Box::pin(get()), Box::pin(get()));
    assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
    shows(
        get().await.unwrap_err(),
        SocketAddr::from(([0; 4], 0)),
        "GET http://api.test/never: the queue is full: the host has all the connections it may have",
        "",
        "kind: Pool, method: GET, url: http://api.test/never, \
         message: \"the queue is full: the host has all the connections it may have\"",
    );
}

#[cfg(feature = "gzip")]
#[tokio::test]
async fn a_decompression_bomb() {
    // 64 zeros.
    const ZEROS: &[u8] = &[31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 51, 48, 160, 12, 0, 0, 203, 228, 177, 52, 64, 0, 0, 0];
    let server = HttpServer::start(|_| async {
        hyper::Response::builder().header("content-encoding", "gzip").body(full(ZEROS)).unwrap()
    })
    .unwrap();
    let limit = speeddial::settings::Decompression::default().max_bytes(63);
    let client = plain().decompress(limit).build().unwrap();
    let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
    shows(
        response.text().await.unwrap_err(),
        server.address(),
        "GET http://HOST/: the body cannot be decompressed: it becomes longer than 63 bytes",
        "",
        "kind: Decode, method: GET, url: http://HOST/, \
         message: \"the body cannot be decompressed: it becomes longer than 63 bytes\", source: TooLong(63)",
    );
}

#[cfg(feature = "json")]
#[tokio::test]
async fn a_json_body_of_another_type() {
    let server = HttpServer::start(|_| async { hyper::Response::new(full(r#"{"items":[{"id":"x"}]}"#)) }).unwrap();
    type Items = std::collections::BTreeMap<String, Vec<std::collections::BTreeMap<String, u64>>>;
    let response = plain().build().unwrap().get(format!("http://{}/", server.address())).send().await.unwrap();
    shows(
        response.json::<Items>().await.unwrap_err(),
        server.address(),
        "GET http://HOST/: the body is not the expected JSON at `items[0].id`, and begins with `{\"items\":[{\"id\":\"x\"}]}`",
        "invalid type: string \"x\", expected u64 at line 1 column 19",
        "kind: Decode, method: GET, url: http://HOST/, \
         message: \"the body is not the expected JSON at `items[0].id`, and begins with `{\\\"items\\\":[{\\\"id\\\":\\\"x\\\"}]}`\", \
         source: Error(\"invalid type: string \\\"x\\\", expected u64\", line: 1, column: 19)",
    );
}

#[tokio::test]
async fn a_redirect_loop() {
    let server = HttpServer::start(|_| async {
        hyper::Response::builder().status(302).header("location", "/").body(full("")).unwrap()
    })
    .unwrap();
    shows(
        plain().build().unwrap().get(format!("http://{}/", server.address())).send().await.unwrap_err(),
        server.address(),
        "GET http://HOST/: the redirect (302) is not followed: a redirect loop, after 10 redirects",
        "",
        "kind: Redirect, method: GET, url: http://HOST/, \
         message: \"the redirect (302) is not followed: a redirect loop, after 10 redirects\", source: Loop(10)",
    );
}

#[cfg(feature = "json")]
#[tokio::test]
async fn bodies_can_be_left_out_of_messages() {
    let server = HttpServer::start(|request| async move {
        let status = if request.uri().path() == "/status" { 404 } else { 200 };
        hyper::Response::builder().status(status).body(full(r#"{"pin":"secret"}"#)).unwrap()
    });
    let server = server.unwrap();
    type Pins = std::collections::BTreeMap<String, u64>;
    for (client, is_shown) in [(plain(), true), (plain().hide_bodies(), false)] {
        let client = client.build().unwrap();
        let get = async |path: &str| client.get(format!("http://{}{path}", server.address())).send().await.unwrap();
        let json = get("/").await.json::<Pins>().await.unwrap_err();
        assert!(is_shown || json.to_string().ends_with("not the expected JSON (line 1, column 15)"), "{json}");
        let status = get("/status").await.error_for_status_with_body().await.unwrap_err();
        assert!(!status.body_start().is_empty());
        for error in [json, status] {
            let texts = format!("{error:#} {error:?}");
            assert_eq!(texts.contains("secret"), is_shown, "{texts}");
            let without_url = format!("{:#}", error.without_url());
            assert_eq!(without_url.contains("secret"), is_shown, "{without_url}");
        }
    }
}
