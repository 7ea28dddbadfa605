//! Concurrent streams: how many requests share a connection, and when a stream is free again.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::future::join_all;
use speeddial::dns::FixedResolver;
use speeddial::trace::{Event, Limit, Phase};
use speeddial::{Body, Client, ErrorKind, PoolConfig};
use tokio::io::DuplexStream;
use tokio::task::coop::{consume_budget, has_budget_remaining};
use tokio::time::{Instant, sleep};

use super::common::{URL, client, get, head, ms, service, slow_body};
use support::certs::Authority;
use support::h2_peer::{DATA, END_HEADERS, GOAWAY, H2Peer, HEADERS, RST_STREAM, WINDOW_UPDATE};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::v4;

#[tokio::test(start_paused = true)]
async fn hundreds_of_requests_share_five_connections_and_none_is_refused() {
    for (limit, pool, requests, connections) in [
        // The last stream that the peer allows is not used.
        (Some(100), PoolConfig::new().max_http2_connections_per_host(5), 5 * 99, 5),
        (None, PoolConfig::new().max_streams_per_connection(100).max_http2_connections_per_host(5), 500, 5),
        (None, PoolConfig::new(), 500, 1),
    ] {
        let peak = Arc::new(AtomicUsize::new(0));
        let busy = peak.clone();
        let net = ScriptedNet::new(move |_, stream| service(stream, limit, busy.clone()));
        let recorder = Recorder::default();
        let client = client(&net, pool, &recorder);
        let call = async || {
            let start = Instant::now();
            assert_eq!(get(&client).await.unwrap(), "ok");
            start.elapsed()
        };
        let mut took = join_all((0..requests).map(|_| call())).await;
        took.sort();
        assert!(took[490] < ms(100), "p99 {:?}", took[490]);
        assert_eq!(net.connections(), connections);
        assert_eq!(recorder.count(|event| matches!(event, Event::Repeated { .. })), 0, "no stream was refused");
        assert!(peak.load(Ordering::SeqCst) <= requests / connections);
        // The same with warm connections.
        let start = Instant::now();
        join_all((0..requests).map(|_| call())).await;
        assert_eq!((start.elapsed().as_millis(), net.connections()), (50, connections));
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_of_many_calls_polls_each_only_when_it_can_go_on() {
    let net = ScriptedNet::new(move |_, stream| service(stream, None, Arc::default()));
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let polls = AtomicUsize::new(0);
    let call = || {
        let (mut call, polls) = (Box::pin(get(&client)), &polls);
        poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::SeqCst);
            call.as_mut().poll(cx)
        })
    };
    get(&client).await.unwrap();
    // More than the budget of a task (128 in tokio), and all are answered at once.
    for answer in join_all((0..1_000).map(|_| call())).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    // To send the request, and to take its response.
    let polls = polls.load(Ordering::SeqCst);
    assert!(polls <= 3 * 1_000, "{polls}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_used_its_budget_up_yields_before_it_begins_another_call() {
    let net = ScriptedNet::new(move |_, stream| service(stream, None, Arc::default()));
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let mut call = pin!(get(&client));
    poll_fn(|cx| {
        while has_budget_remaining() {
            let _ = pin!(consume_budget()).poll(cx);
        }
        assert!(call.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    sleep(ms(10)).await;
    assert_eq!(net.connections(), 0, "it has not begun");
    assert_eq!(call.await.unwrap(), "ok");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_allows_one_stream_gets_one_request_at_a_time() {
    let peak = Arc::new(AtomicUsize::new(0));
    let busy = peak.clone();
    let net = ScriptedNet::new(move |_, stream| service(stream, Some(1), busy.clone()));
    let recorder = Recorder::default();
    let client = client(&net, PoolConfig::new(), &recorder);
    let start = Instant::now();
    for answer in join_all((0..40).map(|_| get(&client))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    // Four connections by default, with ten requests on each.
    assert_eq!((net.connections(), peak.load(Ordering::SeqCst)), (4, 1));
    assert_eq!(start.elapsed().as_millis(), 10 + 10 + 10 * 50);
    let streams = |event: &Event| matches!(event, Event::Queued { limit: Limit::Streams, .. });
    join_all((0..8).map(|_| get(&client))).await;
    assert_eq!(recorder.count(streams), 4, "the event names the limit");
}

#[tokio::test(start_paused = true)]
async fn a_stream_limit_that_changes_is_followed() {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let net = ScriptedNet::new(move |_, stream| {
        let seen = seen.clone();
        async move {
            let mut peer = H2Peer::accept(stream, Some(10)).await.unwrap();
            let mut open = Vec::new();
            for _ in 0..10 {
                open.push(peer.request().await.unwrap());
            }
            // First no streams at all, then two at a time.
            peer.allow(0).await.unwrap();
            for stream in open.drain(..) {
                peer.answer(stream).await.unwrap();
            }
            assert!(tokio::time::timeout(ms(500), peer.request()).await.is_err(), "no streams are allowed");
            peer.allow(2).await.unwrap();
            for _ in 0..5 {
                open = vec![peer.request().await.unwrap(), peer.request().await.unwrap()];
                assert!(tokio::time::timeout(ms(5), peer.request()).await.is_err(), "two at a time");
                seen.fetch_add(2, Ordering::SeqCst);
                for stream in open.drain(..) {
                    peer.answer(stream).await.unwrap();
                }
            }
            let _ = peer.request().await;
        }
    });
    let pool = PoolConfig::new().max_http2_connections_per_host(1);
    let client = client(&net, pool, &Recorder::default());
    for answer in join_all((0..20).map(|_| get(&client))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    assert_eq!((net.connections(), most.load(Ordering::SeqCst)), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn hazard_a_peer_that_never_allows_a_stream_costs_each_call_its_limit_and_few_connections() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(0)).await else { return };
        assert!(peer.request().await.is_err(), "no stream is allowed");
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let start = Instant::now();
    let call = || client.get(URL).queue_timeout(ms(700)).timeout(ms(1_000)).send();
    for answer in join_all((0..50).map(|_| call())).await {
        assert!(answer.unwrap_err().is_timeout());
    }
    assert!(start.elapsed() <= ms(1_000), "{:?}", start.elapsed());
    assert!(net.connections() <= 5, "{} connections", net.connections());
    let stats = client.pool_stats();
    assert_eq!((stats.waiting, stats.leased), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_frees_its_stream_and_disturbs_no_other() {
    let resets = Arc::new(AtomicUsize::new(0));
    let counter = resets.clone();
    let net = ScriptedNet::new(move |_, stream| {
        let resets = counter.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(1)).await else { return };
            while let Ok(frame) = peer.next().await {
                match frame.kind {
                    RST_STREAM => drop(resets.fetch_add(1, Ordering::SeqCst)),
                    GOAWAY => return,
                    // The first request is never answered.
                    _ if frame.ends() && frame.stream > 1 => peer.answer(frame.stream).await.unwrap(),
                    _ => {}
                }
            }
        }
    });
    let client = client(&net, PoolConfig::new().max_http2_connections_per_host(1), &Recorder::default());
    assert!(tokio::time::timeout(ms(100), get(&client)).await.is_err());
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!((net.connections(), resets.load(Ordering::SeqCst), client.pool_stats().opened), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_body_frees_its_stream() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(1)).await else { return };
        while let Ok(frame) = peer.next().await {
            match frame.stream {
                _ if !frame.ends() => {}
                1 => peer.head(1).await.unwrap(),
                stream => peer.answer(stream).await.unwrap(),
            }
        }
    });
    let client = client(&net, PoolConfig::new().max_http2_connections_per_host(1), &Recorder::default());
    drop(client.get(URL).send().await.unwrap());
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!((net.connections(), client.pool_stats().closed), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn hazard_a_peer_that_sends_no_settings_gets_one_request_at_a_time() {
    use tokio::io::AsyncReadExt;
    let net = ScriptedNet::new(|_, mut stream| async move {
        let mut sink = [0; 1024];
        while matches!(stream.read(&mut sink).await, Ok(1..)) {}
    });
    let client = client(&net, PoolConfig::new().wait_timeout(ms(500)), &Recorder::default());
    let call = async || client.get(URL).timeout(ms(1_000)).connect_timeout(ms(500)).send().await.unwrap_err();
    let errors = join_all((0..6).map(|_| call())).await;
    let timeouts = errors.iter().filter(|error| error.kind() == ErrorKind::Timeout(Phase::Wait)).count();
    assert_eq!((timeouts, net.connections()), (4, 4), "{errors:?}");
    let without: Vec<_> = errors.iter().filter(|error| error.kind() == ErrorKind::Timeout(Phase::Connect)).collect();
    assert_eq!(without.len(), 2, "{errors:?}");
    for error in without {
        let text = "the server has not sent the SETTINGS of its HTTP/2 connection, and no other connection was opened within 500 ms";
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_streams_in_flight_and_closes_every_socket() {
    let net = ScriptedNet::new(|_, stream| service(stream, Some(100), Arc::default()));
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let calls: Vec<_> = (0..500)
        .map(|_| {
            tokio::spawn({
                let client = client.clone();
                async move { get(&client).await }
            })
        })
        .collect();
    sleep(ms(30)).await;
    client.drain().await;
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "ok");
    }
    let error = get(&client).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Pool, "GET http://api.test/: the pool is being drained".into())
    );
    sleep(ms(1)).await;
    assert_eq!((net.open(), client.pool_stats().opened), (0, client.pool_stats().closed));
    client.drain().await;
}

#[tokio::test(start_paused = true)]
async fn unread_bodies_do_not_block_other_streams() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let mut streams = 0;
        while let Ok(stream) = peer.request().await {
            streams += 1;
            if streams > 40 {
                peer.answer(stream).await.unwrap();
                continue;
            }
            // As much as fits into the stream's window, without an end.
            peer.head(stream).await.unwrap();
            for _ in 0..64 {
                peer.send(DATA, 0, stream, &[0; 16_384]).await.unwrap();
            }
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let mut unread = Vec::new();
    for _ in 0..40 {
        unread.push(client.get(URL).send().await.unwrap());
    }
    for _ in 0..100 {
        let answer = tokio::time::timeout(ms(1_000), get(&client)).await.expect("the stream is blocked");
        assert_eq!(answer.unwrap(), "ok");
    }
    assert_eq!(net.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slowly_read_upload_counts_as_send_time() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(10)).await else { return };
        loop {
            let Ok(frame) = peer.next().await else { return };
            if frame.ends() {
                sleep(ms(30)).await;
                peer.answer(frame.stream).await.unwrap();
            } else if frame.kind == DATA {
                sleep(ms(10)).await;
                let more = (frame.payload.len() as u32).to_be_bytes();
                // The windows of the stream and of the connection.
                peer.send(WINDOW_UPDATE, 0, frame.stream, &more).await.unwrap();
                peer.send(WINDOW_UPDATE, 0, 0, &more).await.unwrap();
            }
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let response = client.post(URL).body(vec![0; 256 * 1024]).send().await.unwrap();
    let timings = response.timings();
    // The last part fits into the window and is sent at once.
    assert!(timings.send() >= ms(100) && timings.wait() >= ms(30), "{timings}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_one_task_plus_one_per_streamed_upload_under_way() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        // Each connection stays in use although most requests get no answer: the first of eleven does.
        for number in 0.. {
            let Ok(stream) = head(&mut peer).await else { return };
            if number % 11 == 0 {
                peer.answer(stream).await.unwrap();
            }
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    get(&client).await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let alone = tasks();
    let with = async |requests: Vec<speeddial::RequestBuilder>| {
        let waiting = join_all(requests.into_iter().map(speeddial::RequestBuilder::send));
        let (waited, counted) = tokio::join!(tokio::time::timeout(ms(20), waiting), async {
            sleep(ms(10)).await;
            tasks()
        });
        assert!(waited.is_err(), "the peer must not answer");
        get(&client).await.unwrap();
        counted
    };
    assert_eq!(with((0..10).map(|_| client.get(URL)).collect()).await, alone);
    // More bytes than the peer's window takes.
    let bytes = || vec![0; 16 * 1_024];
    assert_eq!(with((0..10).map(|_| client.post(URL).body(bytes())).collect()).await, alone);
    // A stream runs the caller's code, so it has a task of its own and cannot block other requests.
    let slow = with((0..10).map(|_| client.post(URL).body(slow_body(1_000))).collect()).await;
    assert!(slow >= alone + 10, "{slow} tasks, {alone} without them");
    assert_eq!(
        with((0..10).map(|_| client.get(URL)).collect()).await,
        alone,
        "the tasks of uploads have ended, and GETs need none"
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_fails_its_own_request_alone_and_is_named() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        while let Ok(stream) = peer.request().await {
            peer.answer(stream).await.unwrap();
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    get(&client).await.unwrap();
    let bad = Body::wrap_stream(futures_util::stream::poll_fn(|_| -> std::task::Poll<Option<std::io::Result<&str>>> {
        panic!("a bug in a body")
    }));
    // The connection takes both requests in one poll.
    let both = async { tokio::join!(get(&client), client.post(URL).body(bad).send()) };
    let (got, posted) = tokio::time::timeout(ms(1_000), both).await.expect("a request still waits");
    assert_eq!((got.unwrap().as_str(), net.connections()), ("ok", 1));
    let text = format!("{:#}", posted.unwrap_err());
    assert_eq!(text, format!("POST {URL}: the body of the request failed: its code panicked: a bug in a body"));
}

#[tokio::test]
async fn hazard_responses_that_wait_to_be_read_do_not_keep_each_other_from_arriving() {
    let body = bytes::Bytes::from(vec![0; 3 << 20]);
    let server = support::http_server::HttpServer::start_as(true, move |_| {
        let body = body.clone();
        async move { hyper::Response::new(support::full(body)) }
    })
    .unwrap();
    let client = speeddial::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/", server.address());
    // While the first connection is opened, which takes its time on a busy machine, another one may be begun.
    client.get(&url).send().await.unwrap().bytes().await.unwrap();
    let responses = join_all((0..100).map(|_| client.get(&url).send())).await;
    let read = async {
        let mut bytes = 0;
        for response in responses {
            bytes += response.unwrap().bytes().await.unwrap().len();
        }
        bytes
    };
    let bytes = tokio::time::timeout(10 * support::LONG, read).await;
    assert_eq!((bytes.expect("a response is kept from arriving"), server.connections()), (300 << 20, 1));
}

#[tokio::test(start_paused = true)]
async fn hazard_streams_that_the_peer_never_lets_end_do_not_block_requests() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(3)).await else { return };
        // Each request is answered at its head, and the windows of bodies are never updated.
        while let Ok(frame) = peer.next().await {
            if frame.kind == HEADERS && peer.answer(frame.stream).await.is_err() {
                return;
            }
        }
    });
    let client = client(&net, PoolConfig::new().max_connections_per_host(1), &Recorder::default());
    let upload = || async { client.post(URL).body(vec![0; 1_000_000]).send().await.unwrap().text().await.unwrap() };
    assert_eq!(join_all((0..3).map(|_| upload())).await, ["ok"; 3]);
    sleep(ms(1_000)).await;
    let answer = client.get(URL).timeout(ms(20_000)).send().await;
    assert_eq!(answer.expect("the GET gets another connection").text().await.unwrap(), "ok");
    assert_eq!(net.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_too_many_interim_responses_fails_alone() {
    // `:status` as a literal that is not indexed (RFC 7541 §6.2.2): 102.
    const PROCESSING: &[u8] = b"\x00\x07:status\x03102";
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(10)).await else { return };
        let Ok(flooded) = head(&mut peer).await else { return };
        let Ok(other) = head(&mut peer).await else { return };
        for _ in 0..3_000 {
            peer.send(HEADERS, END_HEADERS, flooded, PROCESSING).await.unwrap();
        }
        for _ in 0..21 {
            peer.send(HEADERS, END_HEADERS, other, PROCESSING).await.unwrap();
        }
        peer.answer(other).await.unwrap();
        while let Ok(stream) = head(&mut peer).await {
            peer.answer(stream).await.unwrap();
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let post = || async { client.post(URL).body("x").send().await?.text().await };
    let (flooded, other) = tokio::join!(post(), post());
    let mut ended = [flooded, other];
    ended.sort_by_key(Result::is_ok);
    let [flooded, other] = ended;
    let error = flooded.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exchange, "{error}");
    assert_eq!(other.unwrap(), "ok", "21 are not too many");
    assert_eq!((get(&client).await.unwrap().as_str(), net.connections()), ("ok", 1));
}

/// Accepts TLS on a stream, and returns the plain side.
async fn accept_tls(config: Arc<rustls::ServerConfig>, stream: DuplexStream) -> DuplexStream {
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        let Ok(mut stream) = tokio_rustls::TlsAcceptor::from(config).accept(stream).await else { return };
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
    });
    near
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_allows_a_stream_costs_three_connections_over_tls_too() {
    for (calls, settings_after) in [(1, 0), (50, 0), (20, 30)] {
        for over_tls in [false, true] {
            let authority = Authority::new();
            let config = authority.server(&["api.test"], &["h2", "http/1.1"]);
            let net = ScriptedNet::new(move |_, stream| {
                let config = config.clone();
                async move {
                    let stream = if over_tls { accept_tls(config, stream).await } else { stream };
                    sleep(ms(settings_after)).await;
                    let Ok(mut peer) = H2Peer::accept(stream, Some(0)).await else { return };
                    while peer.request().await.is_ok() {}
                }
            });
            let resolver = FixedResolver::new().with("api.test", [v4(1)]);
            let tls = speeddial::tls::TlsConfig::new().add_roots([authority.root()]).only_added_roots();
            let builder = Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone());
            let builder = if over_tls { builder.tls(tls) } else { builder.http2_prior_knowledge() };
            let client = builder.build().unwrap();
            let url = if over_tls { "https://api.test/" } else { URL };
            let call = || client.get(url).timeout(ms(3_000)).send();
            for answer in join_all((0..calls).map(|_| call())).await {
                assert!(answer.unwrap_err().is_timeout());
            }
            let most = calls.min(3);
            assert_eq!(net.connections(), most, "{calls} calls, settings after {settings_after} ms, TLS: {over_tls}");
        }
    }
}
