//! Responses that come before the peer has read the whole request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use speeddial::trace::Event;
use speeddial::{Body, ErrorKind, PoolConfig};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::common::{URL, answers_heads, client, get, head, ms, slow_body};
use support::h2_peer::{DATA, END_HEADERS, END_STREAM, H2Peer, HEADERS, NO_ERROR, RST_STREAM};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;

#[tokio::test(start_paused = true)]
async fn an_early_response_keeps_its_stream_until_the_upload_has_ended() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(1)).await else { return };
        let first = loop {
            let frame = peer.next().await.unwrap();
            if frame.kind == HEADERS {
                break frame;
            }
        };
        peer.answer(first.stream).await.unwrap();
        sleep(ms(30)).await;
        peer.reset(first.stream, NO_ERROR).await.unwrap();
        while let Ok(frame) = peer.next().await {
            if frame.ends() && frame.stream > first.stream {
                peer.answer(frame.stream).await.unwrap();
            }
        }
    });
    let client = client(&net, PoolConfig::new().max_http2_connections_per_host(1), &Recorder::default());
    // A body larger than the peer's window.
    let start = Instant::now();
    let answer = client.post(URL).body(vec![0; 1_000_000]).send().await.unwrap().text().await.unwrap();
    assert_eq!((answer.as_str(), client.pool_stats().leased), ("ok", 1), "the rest of the upload is still being sent");
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!((start.elapsed().as_millis(), net.connections()), (40, 1));
}

#[tokio::test(start_paused = true)]
async fn an_early_response_costs_neither_the_connection_nor_the_rest_of_the_request() {
    let received = Arc::new(AtomicUsize::new(0));
    let net = answers_heads(received.clone());
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    for _ in 0..5 {
        let response = client.post(URL).body(slow_body(1_000)).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
        sleep(ms(300)).await;
    }
    sleep(ms(2_000)).await;
    assert_eq!((net.connections(), received.load(Ordering::SeqCst)), (1, 5 * "firstrest".len()));
    assert_eq!(client.pool_stats().in_use, 0);
}

#[tokio::test(start_paused = true)]
async fn interim_responses_are_skipped_and_not_told() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        while let Ok(stream) = peer.request().await {
            // `:status: 103`, without an entry in the table (RFC 7541 §6.2.2).
            let early_hints = [0x08, 3, b'1', b'0', b'3'];
            peer.send(HEADERS, END_HEADERS, stream, &early_hints).await.unwrap();
            peer.answer(stream).await.unwrap();
        }
    });
    let seen = Recorder::default();
    let client = client(&net, PoolConfig::new(), &seen);
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!(seen.count(|event| matches!(event, Event::Informational { .. })), 0, "hyper passes none on");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_fails_or_is_dropped_ends_its_upload() {
    for gives_up in [false, true] {
        let resets = Arc::new(AtomicUsize::new(0));
        let seen = resets.clone();
        let net = ScriptedNet::new(move |_, stream| {
            let seen = seen.clone();
            async move {
                let Ok(mut peer) = H2Peer::accept(stream, Some(3)).await else { return };
                // Five requests that get half a response, then complete responses.
                for _ in 0..5 {
                    let Ok(stream) = head(&mut peer).await else { return };
                    let _ = peer.head(stream).await;
                    let _ = peer.send(DATA, 0, stream, b"half").await;
                    while let Ok(frame) = peer.next().await {
                        if frame.kind == RST_STREAM {
                            seen.fetch_add(1, Ordering::SeqCst);
                            break;
                        }
                    }
                }
                while let Ok(stream) = peer.request().await {
                    let _ = peer.answer(stream).await;
                }
            }
        });
        let pool = PoolConfig::new().max_http2_connections_per_host(1);
        let client = client(&net, pool, &Recorder::default());
        for _ in 0..5 {
            let request = client.post(URL).body(slow_body(1_000_000));
            let mut response = request.send().await.unwrap();
            match gives_up {
                true => assert_eq!(response.chunk().await.unwrap().unwrap(), "half"),
                // The body exceeds the limit.
                false => assert!(response.bytes_with_limit(1).await.is_err()),
            }
        }
        assert_eq!(get(&client).await.unwrap(), "ok", "gives up: {gives_up}");
        assert_eq!((resets.load(Ordering::SeqCst), net.connections()), (5, 1), "gives up: {gives_up}");
        assert_eq!(client.pool_stats().in_use, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_an_early_response_with_a_length_survives_the_end_of_its_connection() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let Ok(stream) = head(&mut peer).await else { return };
        let _ = peer.head_with_length(stream, "2").await;
        let _ = peer.send(DATA, END_STREAM, stream, b"no").await;
        let _ = peer.goaway(stream, NO_ERROR).await;
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    for body in [Body::from(vec![0; 1 << 20]), slow_body(1_000_000)] {
        let response = client.post(URL).body(body).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "no");
    }
    assert_eq!(net.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn drain_waits_five_seconds_for_an_upload_that_the_peer_no_longer_reads() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let Ok(stream) = head(&mut peer).await else { return };
        let _ = peer.answer(stream).await;
        // The peer reads no more and keeps the connection open.
        std::future::pending::<()>().await;
        drop(peer);
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let answer = client.post(URL).body(vec![0; 1_000_000]).send().await.unwrap().text().await.unwrap();
    assert_eq!((answer.as_str(), client.pool_stats().leased), ("ok", 1));
    let start = Instant::now();
    client.drain().await;
    assert!((ms(4_900)..=ms(5_100)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_goes_on_after_its_response() {
    let received = Arc::new(AtomicUsize::new(0));
    let net = answers_heads(received.clone());
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let response = client.post(URL).body(slow_body(20_000)).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ok");
    sleep(ms(21_000)).await;
    assert_eq!((net.connections(), received.load(Ordering::SeqCst)), (1, "firstrest".len()));
    assert_eq!(client.pool_stats().leased, 0);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_reset_in_the_middle_of_a_body_is_an_error_during_the_upload() {
    for is_whole in [false, true] {
        let read = Arc::new(Notify::new());
        let reset = Arc::new(Notify::new());
        let has_read = read.clone();
        let has_reset = reset.clone();
        let net = ScriptedNet::new(move |_, stream| {
            let has_read = has_read.clone();
            let has_reset = has_reset.clone();
            async move {
                let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
                let stream = head(&mut peer).await.unwrap();
                peer.head(stream).await.unwrap();
                peer.send(DATA, 0, stream, b"part").await.unwrap();
                has_read.notified().await;
                if is_whole {
                    peer.send(DATA, END_STREAM, stream, b"").await.unwrap();
                }
                peer.reset(stream, NO_ERROR).await.unwrap();
                // The reader is polled after the connection and before the task that sends the request.
                has_reset.notify_one();
                while peer.next().await.is_ok() {}
            }
        });
        let client = client(&net, PoolConfig::new(), &Recorder::default());
        let reader = tokio::spawn(async move {
            let mut response = client.post(URL).body(slow_body(1_000_000)).send().await.unwrap();
            assert_eq!(response.chunk().await.unwrap().unwrap(), "part");
            read.notify_one();
            reset.notified().await;
            response.chunk().await
        });
        let ended = reader.await.unwrap();
        if is_whole {
            assert_eq!(ended.unwrap(), None);
        } else {
            let error = ended.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Body);
            assert!(
                error.to_string().ends_with("the server closed the stream before the body's end, after 4 bytes"),
                "{error}"
            );
        }
    }
}
