//! Requests and responses that are quiet for long: which time limits end them, and how they are lifted.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use speeddial::dns::FixedResolver;
use speeddial::settings::HostConfig;
use speeddial::trace::Phase;
use speeddial::{Body, Client, ClientBuilder, ErrorKind, PoolConfig, Response};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};

use support::h2_peer::{DATA, END_STREAM, H2Peer, HEADERS};
use support::scripted_net::ScriptedNet;
use support::{read_request_head, v4};

const URL: &str = "http://a.test/";
const NO_LIMIT: Duration = Duration::MAX;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn builder(net: &ScriptedNet, http2: bool) -> ClientBuilder {
    let builder = Client::builder().no_proxy().transport(net.clone());
    let builder = builder.dns_resolver(FixedResolver::new().with("a.test", [v4(1)]));
    if http2 { builder.http2_prior_knowledge() } else { builder }
}

/// Returns a network whose peers send a response's head after `head` seconds, and its one byte and its end after
/// `body` more. The peers do not wait for the end of the request, and answer one request on each connection.
fn quiet_net(http2: bool, head: u64, body: u64) -> ScriptedNet {
    ScriptedNet::new(move |_, mut stream| async move {
        if http2 {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let request = loop {
                let Ok(frame) = peer.next().await else { return };
                if frame.kind == HEADERS {
                    break frame.stream;
                }
            };
            answering_pings(&mut peer, head).await;
            let _ = peer.head(request).await;
            answering_pings(&mut peer, body).await;
            let _ = peer.send(DATA, END_STREAM, request, b"x").await;
            while peer.next().await.is_ok() {}
        } else {
            read_request_head(&mut stream).await;
            sleep(seconds(head)).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            sleep(seconds(body)).await;
            let _ = stream.write_all(b"1\r\nx\r\n0\r\n\r\n").await;
            read_request_head(&mut stream).await;
        }
    })
}

/// Reads frames for some seconds, and so answers pings.
async fn answering_pings(peer: &mut H2Peer, for_seconds: u64) {
    // At that time only whole frames are in the pipe, so cancelling the read loses no part of a frame.
    let _ = tokio::time::timeout(seconds(for_seconds), async { while peer.next().await.is_ok() {} }).await;
}

/// Reads the whole response.
async fn text(sent: speeddial::Result<Response>) -> Result<String, ErrorKind> {
    let read = async { sent?.text().await };
    read.await.map_err(|error| error.kind())
}

#[tokio::test(start_paused = true)]
async fn a_request_can_lift_each_time_limit_of_its_client() {
    for http2 in [false, true] {
        let net = quiet_net(http2, 10, 10);
        let five = seconds(5);
        let call = || builder(&net, http2).timeout(five).build().unwrap().get(URL);
        assert_eq!(text(call().send().await).await, Err(ErrorKind::Timeout(Phase::Wait)));
        assert_eq!(text(call().timeout(NO_LIMIT).send().await).await, Ok("x".to_owned()));
        let call = || builder(&net, http2).headers_timeout(five).build().unwrap().get(URL);
        assert_eq!(text(call().send().await).await, Err(ErrorKind::Timeout(Phase::Wait)));
        assert_eq!(text(call().headers_timeout(NO_LIMIT).send().await).await, Ok("x".to_owned()));
        let call = || builder(&net, http2).body_idle_timeout(five).build().unwrap().get(URL);
        assert_eq!(text(call().send().await).await, Err(ErrorKind::Timeout(Phase::Receive)));
        assert_eq!(text(call().body_idle_timeout(NO_LIMIT).send().await).await, Ok("x".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_and_a_quiet_stream_outlive_the_pools_limits_of_time() {
    for http2 in [false, true] {
        for (head, body) in [(3_600, 0), (0, 3_600)] {
            let net = quiet_net(http2, head, body);
            let pool = PoolConfig::new().idle_timeout(seconds(50)).lifetime(seconds(900));
            let call = || builder(&net, http2).pool(pool.clone()).build().unwrap().get(URL);
            let limited = if head > 0 { Phase::Wait } else { Phase::Receive };
            let start = Instant::now();
            assert_eq!(text(call().send().await).await, Err(ErrorKind::Timeout(limited)));
            assert_eq!(start.elapsed().as_secs(), 300, "by default");
            let quiet = call().headers_timeout(NO_LIMIT).body_idle_timeout(NO_LIMIT);
            assert_eq!(text(quiet.send().await).await, Ok("x".to_owned()), "HTTP/2: {http2}");
            assert!(start.elapsed() > seconds(3_900));
        }
    }
}

/// Returns a network whose peers send a response of 100 pieces of 10 bytes, one each second.
fn slow_net(http2: bool) -> ScriptedNet {
    ScriptedNet::new(move |_, mut stream| async move {
        if http2 {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let request = loop {
                let Ok(frame) = peer.next().await else { return };
                if frame.kind == HEADERS {
                    break frame.stream;
                }
            };
            let _ = peer.head(request).await;
            for number in 1..=100 {
                answering_pings(&mut peer, 1).await;
                let flags = if number == 100 { END_STREAM } else { 0 };
                let _ = peer.send(DATA, flags, request, &[b'x'; 10]).await;
            }
            while peer.next().await.is_ok() {}
        } else {
            read_request_head(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await;
            for _ in 0..100 {
                sleep(seconds(1)).await;
                let _ = stream.write_all(&[b'x'; 10]).await;
            }
            read_request_head(&mut stream).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_lowest_speed_ends_a_response_that_is_slower() {
    for http2 in [false, true] {
        let net = slow_net(http2);
        let calls = |bytes: u64| {
            let ten = seconds(10);
            let host = HostConfig::new().min_speed(bytes, ten);
            let of_client = builder(&net, http2).min_speed(bytes, ten).build().unwrap().get(URL);
            let of_host = builder(&net, http2).min_speed(1_000, ten).for_host("a.test", host).build().unwrap().get(URL);
            let of_request = builder(&net, http2).min_speed(1_000, ten).build().unwrap().get(URL).min_speed(bytes, ten);
            [of_client, of_host, of_request]
        };
        for call in calls(90) {
            assert_eq!(text(call.send().await).await.unwrap().len(), 1_000, "HTTP/2: {http2}");
        }
        for call in calls(110) {
            let mut response = call.send().await.unwrap();
            let start = Instant::now();
            let error = loop {
                match response.chunk().await {
                    Ok(piece) => assert!(piece.is_some(), "it is too slow"),
                    Err(error) => break error,
                }
            };
            assert_eq!((error.kind(), start.elapsed().as_secs()), (ErrorKind::Timeout(Phase::Receive), 10));
            let expected = "too little of the body: fewer than 110 bytes within 10 s";
            assert!(error.to_string().contains(expected), "{error}");
        }
        // The time that the reader takes is not the server's.
        let [call, ..] = calls(90);
        let mut response = call.send().await.unwrap();
        let mut received = 0;
        while let Some(piece) = response.chunk().await.unwrap() {
            received += piece.len();
            sleep(seconds(100)).await;
        }
        assert_eq!(received, 1_000);
    }
}

/// Returns a body whose first piece comes at once, and whose second one never does.
fn quiet_body() -> Body {
    let first = stream::iter([Ok::<_, Infallible>("first")]);
    Body::wrap_stream(first.chain(stream::pending()))
}

#[tokio::test(start_paused = true)]
async fn a_stream_in_both_directions_may_be_quiet_if_the_limits_of_silence_are_lifted() {
    for (head, limited) in [(3_600, Phase::Send), (0, Phase::Receive)] {
        let net = quiet_net(true, head, 3_600);
        let client = builder(&net, true).build().unwrap();
        let start = Instant::now();
        let ended = text(client.post(URL).body(quiet_body()).send().await).await;
        assert_eq!((ended, start.elapsed().as_secs()), (Err(ErrorKind::Timeout(limited)), 300));
        let builder = builder(&net, true).headers_timeout(NO_LIMIT).body_idle_timeout(NO_LIMIT);
        let client = builder.build().unwrap();
        assert_eq!(text(client.post(URL).body(quiet_body()).send().await).await, Ok("x".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_upload_is_given_up_a_minute_after_its_response() {
    let net = quiet_net(true, 0, 0);
    let client = builder(&net, true).build().unwrap();
    let response = client.post(URL).body(quiet_body()).send().await;
    let start = Instant::now();
    assert_eq!(text(response).await, Ok("x".to_owned()));
    assert_eq!(client.pool_stats().leased, 1, "the body is still being sent");
    while client.pool_stats().leased > 0 {
        sleep(seconds(1)).await;
    }
    assert!((60..=62).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}
