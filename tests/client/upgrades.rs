//! Connections that switch to another protocol: after an `Upgrade`, after a CONNECT, and after an extended CONNECT over HTTP/2.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use speeddial::http::StatusCode;
use speeddial::trace::{CloseCause, Event};
use speeddial::{Client, ClientBuilder, ErrorKind, Method, PoolConfig, RequestBuilder, Upgraded};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use support::recorder::Recorder;
use support::scripted_peer::{ScriptedPeer, read_head};
use support::settled;
use support::upgrade_server::{Over, ServerStream, UpgradeServer, agree, echo};

pub(super) const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";

pub(super) fn client() -> ClientBuilder {
    Client::builder().no_proxy()
}

/// Asks for an upgrade over HTTP/1.1.
pub(super) fn upgrading(client: &Client, url: &str) -> RequestBuilder {
    client.get(url).header("connection", "Upgrade").header("upgrade", "echo")
}

pub(super) fn url(address: SocketAddr, path: &str) -> String {
    format!("http://{address}{path}")
}

pub(super) async fn upgraded(request: RequestBuilder) -> Upgraded {
    request.send().await.unwrap().upgrade().await.unwrap()
}

/// Sends bytes in both directions at the same time, more than all buffers hold, and expects them back. Then ends the sending side,
/// and expects the end of the other one.
async fn echoes(stream: Upgraded) {
    let sent: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let write = async {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut echo = Vec::new();
    let (_, read) = tokio::join!(write, reader.read_to_end(&mut echo));
    read.unwrap();
    assert_eq!(echo.len(), sent.len());
    assert!(echo == sent, "the bytes came back changed");
}

/// Returns the number of the pool's connections.
fn connections(client: &Client) -> usize {
    let stats = client.pool_stats();
    stats.idle + stats.in_use + stats.dialling + stats.closing
}

/// Waits until the pool has no connection.
pub(super) async fn emptied(client: &Client) {
    support::until("the pool's connections are closed", || connections(client) == 0).await;
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_in_both_directions() {
    let server = UpgradeServer::echo(Over::Http1).await;
    let client = client().build().unwrap();
    let response = upgrading(&client, &url(server.address(), "/")).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["upgrade"], "echo");
    assert!(response.timings().is_complete(), "the call ends with the head");
    echoes(response.upgrade().await.unwrap()).await;
    emptied(&client).await;
    assert_eq!(client.pool_stats().closed_by(CloseCause::Upgraded), 1);
}

#[tokio::test]
async fn a_connect_opens_a_tunnel_to_the_urls_host_and_port() {
    let (sent, asked) = mpsc::channel();
    let respond = move |request: &hyper::Request<_>| {
        let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
        sent.send((request.uri().to_string(), host)).unwrap();
        agree(request)
    };
    for over in [Over::Http1, Over::Http2] {
        let is_http2 = matches!(over, Over::Http2);
        let server = UpgradeServer::start(over, respond.clone(), echo).await;
        let client = if is_http2 { client().http2_prior_knowledge() } else { client() }.build().unwrap();
        let place = server.address().to_string();
        echoes(upgraded(client.request(Method::CONNECT, url(server.address(), "/a?b"))).await).await;
        let host = (!is_http2).then(|| place.clone());
        assert_eq!(asked.recv().unwrap(), (place, host));
    }
}

#[tokio::test]
async fn an_extended_connect_switches_one_stream_and_others_go_on_beside_it() {
    let (sent, asked) = mpsc::channel();
    let respond = move |request: &hyper::Request<_>| {
        let protocol = request.extensions().get::<hyper::ext::Protocol>().map(|protocol| protocol.as_str().to_owned());
        sent.send((request.uri().to_string(), protocol)).unwrap();
        agree(request)
    };
    let server = UpgradeServer::start(Over::Http2, respond, echo).await;
    let client = client().http2_prior_knowledge().pool(support::one_connection()).build().unwrap();
    let chat = url(server.address(), "/chat?room=1");
    let stream = upgraded(client.request(Method::CONNECT, &chat).protocol("websocket")).await;
    assert_eq!(asked.recv().unwrap(), (chat.clone(), Some("websocket".to_owned())));
    let beside = client.get(url(server.address(), "/")).send().await.unwrap();
    assert!(beside.text().await.unwrap().contains("GET"));
    echoes(stream).await;
    // The connection goes on after the stream.
    assert_eq!(client.get(url(server.address(), "/")).send().await.unwrap().status(), StatusCode::OK);
    assert_eq!((server.accepted(), connections(&client)), (1, 1));
}

#[tokio::test]
async fn an_extended_connect_needs_http2_and_a_server_that_allows_it() {
    let old = UpgradeServer::echo(Over::Http2WithoutExtendedConnect).await;
    let http1 = UpgradeServer::echo(Over::Http1).await;
    for (server, builder, why) in [
        (&old, client().http2_prior_knowledge(), "the server's settings do not allow it"),
        (&http1, client(), "the connection speaks HTTP/1.1"),
    ] {
        let client = builder.pool(support::one_connection()).build().unwrap();
        let chat = url(server.address(), "/chat");
        let error = client.request(Method::CONNECT, &chat).protocol("websocket").send().await.unwrap_err();
        assert!(error.is_upgrade() && error.kind() == ErrorKind::Upgrade);
        assert!(!error.may_have_been_processed(), "nothing was sent");
        assert_eq!(error.to_string(), format!("CONNECT {chat}: an extended CONNECT cannot be sent: {why}"));
        // The connection can be used all the same.
        assert_eq!(client.get(url(server.address(), "/")).send().await.unwrap().status(), StatusCode::OK);
        assert_eq!(server.accepted(), 1);
    }
}

#[tokio::test]
async fn hazard_an_extended_connect_waits_for_settings_as_long_as_for_headers() {
    // Reads, and sends nothing at all.
    let silent =
        ScriptedPeer::start(|_, mut socket| while socket.read(&mut [0; 1_024]).is_ok_and(|bytes| bytes > 0) {});
    let client = client().http2_prior_knowledge().build().unwrap();
    let request = client.request(Method::CONNECT, silent.url()).protocol("websocket");
    let error = request.headers_timeout(Duration::from_millis(50)).send().await.unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("no HTTP/2 settings within 50 ms"), "{error}");
    assert!(!error.may_have_been_processed(), "nothing was sent");
    let request = client.request(Method::CONNECT, silent.url()).protocol("websocket");
    let error = request.timeout(Duration::from_millis(50)).send().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
}

#[tokio::test]
async fn an_upgrade_header_over_http2_is_an_error_that_says_what_to_do() {
    let server = UpgradeServer::echo(Over::Http2).await;
    let client = client().http2_prior_knowledge().build().unwrap();
    let error = upgrading(&client, &url(server.address(), "/")).send().await.unwrap_err();
    assert!(error.is_upgrade(), "{error}");
    assert!(error.to_string().contains("use a client with http1_only, or an extended CONNECT"), "{error}");
    assert!(!error.may_have_been_processed(), "nothing was sent");
}

#[tokio::test]
async fn a_declined_upgrade_is_an_ordinary_response_whose_connection_is_used_again() {
    let server = UpgradeServer::echo(Over::Http1).await;
    let client = client().pool(support::one_connection()).build().unwrap();
    let response = upgrading(&client, &url(server.address(), "/refuse")).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UPGRADE_REQUIRED);
    assert_eq!(response.text().await.unwrap(), "use another protocol");
    // A 200 to an upgrade, on a server that knows of none.
    let plain = support::ok_server();
    let ignored = async || upgrading(&client, &url(plain.address(), "/")).send().await.unwrap();
    assert_eq!(ignored().await.text().await.unwrap(), "ok");
    assert_eq!(ignored().await.text().await.unwrap(), "ok");
    assert_eq!(plain.connections(), 1);
    echoes(upgraded(upgrading(&client, &url(server.address(), "/"))).await).await;
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn an_upgrade_of_an_ordinary_response_is_an_error() {
    let server = support::ok_server();
    let client = client().build().unwrap();
    let error = client.get(url(server.address(), "/")).send().await.unwrap().upgrade().await.unwrap_err();
    assert!(error.is_upgrade() && error.timings().is_some());
    assert!(error.may_have_been_processed(), "there was a response");
    let expected = format!("GET {}: the response (200) switches to no other protocol", url(server.address(), "/"));
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_redirect_before_an_upgrade_is_followed_and_one_of_a_connect_is_not() {
    let server = UpgradeServer::echo(Over::Http1).await;
    let client_http1 = client().build().unwrap();
    let response = upgrading(&client_http1, &url(server.address(), "/to/to/there")).send().await.unwrap();
    assert_eq!((response.url().path(), response.redirects().len()), ("/there", 2));
    echoes(response.upgrade().await.unwrap()).await;
    let server = UpgradeServer::echo(Over::Http2).await;
    let client = client().http2_prior_knowledge().build().unwrap();
    let request = client.request(Method::CONNECT, url(server.address(), "/to/there")).protocol("websocket");
    assert_eq!(request.send().await.unwrap().status(), StatusCode::FOUND);
}

#[tokio::test]
async fn bytes_right_behind_the_head_are_not_lost() {
    // Some of them look like a response.
    let start = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
    for pieces in [1, 2, 80, 97, 10_000] {
        let bytes = [SWITCH, &start].concat();
        let peer = ScriptedPeer::start(move |_, mut socket| {
            read_head(&mut socket);
            bytes.chunks(pieces).for_each(|piece| socket.write_all(piece).unwrap());
        });
        let client = client().build().unwrap();
        let mut stream = upgraded(upgrading(&client, &peer.url())).await;
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.unwrap();
        assert!(read == start, "{pieces}: {}", String::from_utf8_lossy(&read));
    }
}

#[tokio::test]
async fn hazard_a_head_that_ends_early_is_an_error_at_every_byte() {
    for length in 0..SWITCH.len() {
        let peer = ScriptedPeer::start(move |_, mut socket| {
            read_head(&mut socket);
            socket.write_all(&SWITCH[..length]).unwrap();
        });
        let client = client().build().unwrap();
        let error = upgrading(&client, &peer.url()).send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exchange, "{length}: {error}");
        emptied(&client).await;
    }
}

#[tokio::test]
async fn an_upgraded_connection_keeps_its_slot_until_it_is_dropped() {
    let server = UpgradeServer::echo(Over::Http1).await;
    let pool = PoolConfig::default().max_connections_per_host(1);
    let client = client().pool(pool).build().unwrap();
    let mut stream = upgraded(upgrading(&client, &url(server.address(), "/"))).await;
    let mut waiting = tokio::spawn(client.get(url(server.address(), "/")).send());
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err(),
        "the host has one connection"
    );
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    assert_eq!(connections(&client), 1);
    drop(stream);
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn the_end_of_the_sending_side_is_seen_and_the_other_side_still_read() {
    // Answers only after the end.
    async fn answer_at_the_end(mut stream: ServerStream) {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        stream.write_all(format!("{} bytes", all.len()).as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    }
    for over in [Over::Http1, Over::Http2] {
        let builder = if matches!(over, Over::Http2) { client().http2_prior_knowledge() } else { client() };
        let server = UpgradeServer::start(over, agree, answer_at_the_end).await;
        let client = builder.build().unwrap();
        let mut stream = upgraded(client.request(Method::CONNECT, url(server.address(), "/"))).await;
        stream.write_all(b"12345").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "5 bytes");
    }
}

#[tokio::test]
async fn what_was_written_before_a_drop_arrives() {
    for over in [Over::Http1, Over::Http2] {
        let builder = if matches!(over, Over::Http2) { client().http2_prior_knowledge() } else { client() };
        let (sent, arrived) = tokio::sync::mpsc::unbounded_channel();
        let serve = move |mut stream: ServerStream| {
            let sent = sent.clone();
            async move {
                let mut all = Vec::new();
                let _ = stream.read_to_end(&mut all).await;
                sent.send(all).unwrap();
            }
        };
        let server = UpgradeServer::start(over, agree, serve).await;
        let client = builder.build().unwrap();
        let mut stream = upgraded(client.request(Method::CONNECT, url(server.address(), "/"))).await;
        stream.write_all(b"the last words").await.unwrap();
        drop(stream);
        let mut arrived = arrived;
        assert_eq!(arrived.recv().await.unwrap(), b"the last words");
    }
}

#[tokio::test]
async fn an_upgrade_that_is_not_taken_closes_its_connection() {
    let server = UpgradeServer::echo(Over::Http1).await;
    let client = client().build().unwrap();
    let target = url(server.address(), "/");
    drop(upgrading(&client, &target).send().await.unwrap());
    emptied(&client).await;
    assert_eq!(upgrading(&client, &target).send().await.unwrap().text().await.unwrap(), "");
    emptied(&client).await;
    drop(client.request(Method::CONNECT, &target).send().await.unwrap());
    emptied(&client).await;
    assert_eq!(client.pool_stats().closed_by(CloseCause::Upgraded), 3);
}

#[tokio::test]
async fn the_trace_shows_the_upgraded_stream() {
    let server = UpgradeServer::echo(Over::Http1).await;
    let recorder = Recorder::default();
    let client = client().observer(recorder.clone()).build().unwrap();
    let mut stream = upgraded(upgrading(&client, &url(server.address(), "/"))).await;
    stream.write_all(b"123").await.unwrap();
    stream.read_exact(&mut [0; 2]).await.unwrap();
    assert_eq!(recorder.count(|event| matches!(event, Event::BodyEnd { bytes: 0, .. })), 1);
    assert!(format!("{stream:?}").contains("received: 2, sent: 3"), "{stream:?}");
    drop(stream);
    emptied(&client).await;
    let ends = recorder.pick(|event| match event {
        Event::UpgradeEnd { received, sent, .. } => Some(format!("{received} {sent}")),
        Event::Released { kept, .. } => Some(format!("kept {kept}")),
        Event::Closed { cause, .. } => Some(cause.to_string()),
        _ => None,
    });
    assert_eq!(ends, ["2 3", "kept false", "upgraded"]);
}

#[tokio::test]
async fn the_timeout_of_a_call_ends_with_the_head() {
    let server = UpgradeServer::echo(Over::Http1).await;
    let client = client().body_idle_timeout(Duration::from_millis(50)).build().unwrap();
    let request = upgrading(&client, &url(server.address(), "/")).timeout(Duration::from_secs(2));
    let response = request.send().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let mut stream = response.upgrade().await.unwrap();
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
}

#[tokio::test]
async fn a_drain_waits_for_upgraded_streams() {
    for over in [Over::Http1, Over::Http2] {
        let builder = if matches!(over, Over::Http2) { client().http2_prior_knowledge() } else { client() };
        let server = UpgradeServer::echo(over).await;
        let client = builder.build().unwrap();
        let mut stream = upgraded(client.request(Method::CONNECT, url(server.address(), "/"))).await;
        let mut drained = Box::pin(client.drain());
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut drained).await.is_err());
        stream.write_all(b"x").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        drop(stream);
        tokio::time::timeout(Duration::from_secs(20), drained).await.expect("the drain ends with the stream");
    }
}

#[tokio::test]
async fn slots_return_after_1000_upgrades() {
    let server = UpgradeServer::echo(Over::Http1).await;
    let client = client().pool(PoolConfig::default().max_connections_per_host(8)).build().unwrap();
    let target = url(server.address(), "/");
    let one = async |number: usize| {
        let request = upgrading(&client, &target);
        match number % 4 {
            0 => drop(request.send().await.unwrap()),
            1 => drop(upgraded(request).await),
            2 => {
                let mut stream = upgraded(request).await;
                stream.write_all(b"x").await.unwrap();
                assert_eq!(stream.read_u8().await.unwrap(), b'x');
            }
            // Cancelled somewhere on the way.
            _ => {
                let send = async { upgraded(request).await };
                let _ = tokio::time::timeout(Duration::from_micros(number as u64 % 700), send).await;
            }
        }
    };
    for round in 0..50 {
        futures_util::future::join_all((0..20).map(|number| one(round * 20 + number))).await;
    }
    emptied(&client).await;
    assert_eq!(client.get(&target).send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn streams_return_after_1000_extended_connects() {
    let server = UpgradeServer::echo(Over::Http2).await;
    let client = client().http2_prior_knowledge().pool(support::one_connection()).build().unwrap();
    let target = url(server.address(), "/");
    let one = async |number: usize| {
        let request = client.request(Method::CONNECT, &target).protocol("websocket");
        match number % 3 {
            0 => drop(request.send().await.unwrap()),
            1 => drop(upgraded(request).await),
            _ => {
                let mut stream = upgraded(request).await;
                stream.write_all(b"x").await.unwrap();
                assert_eq!(stream.read_u8().await.unwrap(), b'x');
            }
        }
    };
    for round in 0..50 {
        futures_util::future::join_all((0..20).map(|number| one(round * 20 + number))).await;
    }
    assert_eq!((server.accepted(), connections(&client)), (1, 1));
    settled(&client).await;
}

#[tokio::test]
async fn hazard_an_upgrade_is_cancelled_at_every_await() {
    let server = UpgradeServer::echo(Over::Http1).await;
    let http2 = UpgradeServer::echo(Over::Http2).await;
    let one = client().pool(PoolConfig::default().max_connections_per_host(1)).build().unwrap();
    let shared = client().http2_prior_knowledge().build().unwrap();
    for polls in 0.. {
        let requests = [
            upgrading(&one, &url(server.address(), "/")),
            shared.request(Method::CONNECT, url(http2.address(), "/")).protocol("websocket"),
        ];
        let mut finished = 0;
        for request in requests {
            let mut upgrade = Box::pin(upgraded(request));
            let mut left = polls;
            let done = poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(false);
                }
                left -= 1;
                upgrade.as_mut().poll(cx).map(|_| true)
            });
            finished += usize::from(done.await);
        }
        settled(&one).await;
        settled(&shared).await;
        if finished == 2 {
            break;
        }
        assert!(polls < 1_000, "the upgrade never ends");
    }
    assert_eq!(one.get(url(server.address(), "/")).send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(shared.get(url(http2.address(), "/")).send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn hazard_a_switch_that_was_not_asked_for_is_an_error() {
    let peer = ScriptedPeer::start(|_, mut socket| {
        read_head(&mut socket);
        socket.write_all(SWITCH).unwrap();
        let _ = socket.read(&mut [0]);
    });
    let client = client().build().unwrap();
    for request in
        [client.get(peer.url()), client.post(peer.url()).body("x"), client.request(Method::CONNECT, peer.url())]
    {
        let error = request.send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exchange);
        assert!(error.to_string().contains("switches to another protocol (101)"), "{error}");
        emptied(&client).await;
    }
}

#[tokio::test]
async fn an_upgrade_may_have_a_body() {
    let peer = ScriptedPeer::start(|_, mut socket| {
        read_head(&mut socket);
        let mut body = vec![0; 5_000_000];
        socket.read_exact(&mut body).unwrap();
        assert!(body.iter().all(|byte| *byte == b'b'));
        socket.write_all(SWITCH).unwrap();
        let mut behind = [0; 6];
        socket.read_exact(&mut behind).unwrap();
        socket.write_all(&behind).unwrap();
    });
    let client = client().build().unwrap();
    let request = client.post(peer.url()).header("connection", "upgrade").header("upgrade", "tcp");
    let mut stream = upgraded(request.body(vec![b'b'; 5_000_000])).await;
    stream.write_all(b"behind").await.unwrap();
    let mut echo = String::new();
    stream.read_to_string(&mut echo).await.unwrap();
    assert_eq!(echo, "behind");
}

#[tokio::test]
async fn hazard_a_switch_before_the_body_is_read_is_an_error() {
    let (done, end) = mpsc::channel::<()>();
    let end = std::sync::Mutex::new(end);
    let peer = ScriptedPeer::start(move |_, mut socket| {
        read_head(&mut socket);
        socket.write_all(SWITCH).unwrap();
        let _ = end.lock().unwrap().recv();
    });
    let client = client().build().unwrap();
    let request = client.post(peer.url()).header("connection", "upgrade").header("upgrade", "tcp");
    let error = request.body(vec![b'b'; 50_000_000]).send().await.unwrap().upgrade().await.unwrap_err();
    assert!(error.is_upgrade() && error.to_string().contains("before the request was written to its end"), "{error}");
    emptied(&client).await;
    drop(done);
}

#[tokio::test]
async fn hazard_a_length_in_the_answer_to_a_connect_is_ignored() {
    for framing in ["content-length: 1000", "transfer-encoding: chunked"] {
        let peer = ScriptedPeer::start(move |_, mut socket| {
            read_head(&mut socket);
            socket.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\nhello").as_bytes()).unwrap();
        });
        let client = client().build().unwrap();
        let mut stream = upgraded(client.request(Method::CONNECT, peer.url())).await;
        let mut read = String::new();
        stream.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "hello", "{framing}");
    }
}

#[tokio::test]
async fn a_refused_connect_is_an_ordinary_response() {
    for over in [Over::Http1, Over::Http2] {
        let is_http2 = matches!(over, Over::Http2);
        let builder = if is_http2 { client().http2_prior_knowledge() } else { client() };
        let respond = |_: &hyper::Request<_>| hyper::Response::builder().status(403).body(support::full("no")).unwrap();
        let server = UpgradeServer::start(over, respond, echo).await;
        let client = builder.pool(support::one_connection()).build().unwrap();
        for _ in 0..2 {
            let response = client.request(Method::CONNECT, url(server.address(), "/")).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
            assert_eq!(response.text().await.unwrap(), "no");
        }
        assert_eq!(server.accepted(), 1, "HTTP/2: {is_http2}");
    }
}

#[tokio::test]
async fn hazard_a_write_to_a_connection_that_was_reset_fails_without_a_read() {
    let peer = ScriptedPeer::start(|_, mut socket| {
        read_head(&mut socket);
        socket.write_all(SWITCH).unwrap();
        let _ = socket.read(&mut [0]);
        let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
    });
    let client = client().build().unwrap();
    let mut stream = upgraded(upgrading(&client, &peer.url())).await;
    let writes = async { while stream.write_all(&[0; 1_000]).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(20), writes).await.expect("a write fails");
    drop(stream);
    emptied(&client).await;
}

#[tokio::test]
async fn hazard_a_stream_that_the_server_never_reads_ends_its_connection_when_dropped() {
    async fn never_read(stream: ServerStream) {
        std::future::pending::<()>().await;
        drop(stream);
    }
    let server = UpgradeServer::start(Over::Http2, agree, never_read).await;
    let client = client().http2_prior_knowledge().build().unwrap();
    let mut stream = upgraded(client.request(Method::CONNECT, url(server.address(), "/"))).await;
    let fill = async { while stream.write_all(&[0; 64 * 1024]).await.is_ok() {} };
    assert!(tokio::time::timeout(Duration::from_millis(300), fill).await.is_err(), "the window is full");
    drop(stream);
    emptied(&client).await;
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn upgrades_work_over_tls() {
    use speeddial::tls::TlsConfig;

    let authority = support::certs::Authority::new();
    let target = |server: &UpgradeServer| format!("https://{}/", server.address());
    let http1 = UpgradeServer::echo(Over::Tls(authority.server(&["127.0.0.1"], &["http/1.1"]))).await;
    let http2 = UpgradeServer::echo(Over::Tls(authority.server(&["127.0.0.1"], &["h2", "http/1.1"]))).await;
    let tls = || TlsConfig::new().add_roots([authority.root()]).only_added_roots();
    let client = client().tls(tls()).build().unwrap();
    echoes(upgraded(upgrading(&client, &target(&http1))).await).await;
    echoes(upgraded(client.request(Method::CONNECT, target(&http2)).protocol("websocket")).await).await;
    let error = upgrading(&client, &target(&http2)).send().await.unwrap_err();
    assert!(error.is_upgrade(), "ALPN chose HTTP/2: {error}");
    let http1_only = Client::builder().no_proxy().tls(tls()).http1_only().build().unwrap();
    echoes(upgraded(upgrading(&http1_only, &target(&http2))).await).await;
}

#[tokio::test]
async fn upgrades_pass_through_layers() {
    let server = UpgradeServer::echo(Over::Http1).await;
    let layer = tower::util::MapResponseLayer::new(|response| response);
    let client = client().layer(layer.clone()).attempt_layer(layer.clone()).build().unwrap();
    echoes(upgraded(upgrading(&client, &url(server.address(), "/"))).await).await;
    emptied(&client).await;
    let server = UpgradeServer::echo(Over::Http2).await;
    let client = self::client().attempt_layer(layer).http2_prior_knowledge().build().unwrap();
    echoes(upgraded(client.request(Method::CONNECT, url(server.address(), "/")).protocol("websocket")).await).await;
    settled(&client).await;
}

#[test]
fn an_upgraded_stream_moves_between_threads() {
    fn is_movable<T: Send + Unpin + std::fmt::Debug>() {}
    is_movable::<Upgraded>();
}

#[tokio::test(start_paused = true)]
async fn hazard_no_request_goes_into_a_tunnel() {
    for status in ["200 OK", "201 Created", "204 No Content", "205 Reset Content", "299 Fine"] {
        let answer = format!("HTTP/1.1 {status}\r\n\r\n");
        let heads = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = heads.clone();
        let net = support::scripted_net::ScriptedNet::new(move |number, mut stream| {
            let (log, answer) = (log.clone(), answer.clone());
            async move {
                while let Some(head) = support::read_request_head(&mut stream).await {
                    let answer = if head.starts_with("CONNECT") {
                        &answer
                    } else {
                        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
                    };
                    log.lock().unwrap().push((number, head.split(' ').next().unwrap().to_owned()));
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            }
        });
        let resolver = speeddial::dns::FixedResolver::new().with("a.test", [support::v4(1)]);
        let client = Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone()).build().unwrap();
        let response = client.request(Method::CONNECT, "http://a.test/").send().await.unwrap();
        response.bytes().await.unwrap();
        let second = client.get("http://a.test/").header("authorization", "Bearer secret").send().await.unwrap();
        assert_eq!(second.status(), 200, "{status}");
        let heads: Vec<_> = heads.lock().unwrap().iter().map(|(_, method)| method.clone()).collect();
        assert_eq!(
            (heads.join(" ").as_str(), net.connections()),
            ("CONNECT GET", 2),
            "{status}: on a connection of its own"
        );
    }
}
