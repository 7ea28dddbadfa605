//! HTTP/2 against a peer that is scripted frame by frame, in paused time: seats, and what a peer may do to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use speeddial::dns::FixedResolver;
use speeddial::trace::{CloseCause, Event, Limit};
use speeddial::{Body, Client, ErrorKind, PoolConfig, RetryPolicy};
use tokio::io::DuplexStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use support::h2_peer::{
    CANCEL, CutWire, DATA, ENHANCE_YOUR_CALM, GOAWAY, H2Peer, HEADERS, INTERNAL_ERROR, NO_ERROR, REFUSED_STREAM,
    RST_STREAM, WINDOW_UPDATE, Wire,
};
use support::recorder::Recorder;
use support::v4;

const URL: &str = "http://api.test/";

fn client(wire: &Wire, pool: PoolConfig, recorder: &Recorder) -> Client {
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().http2_prior_knowledge().resolver(resolver).transport(wire.clone());
    builder.pool(pool).observer(recorder.clone()).build().unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn get(client: &Client) -> speeddial::Result<String> {
    client.get(URL).send().await?.text().await
}

/// Answers each request after 50 ms, as many at once as come, up to the limit that is said.
async fn service(stream: DuplexStream, max_streams: Option<u32>, peak: Arc<AtomicUsize>) {
    let Ok(mut peer) = H2Peer::accept(stream, max_streams).await else { return };
    let mut due: Vec<(Instant, u32)> = Vec::new();
    loop {
        let next = due.first().map_or(Instant::now() + ms(1_000_000), |(at, _)| *at);
        // Only whole frames are in the pipe when the time has come, so no half of one is lost.
        tokio::select! {
            biased;
            request = peer.request() => {
                let Ok(stream) = request else { return };
                due.push((Instant::now() + ms(50), stream));
                peak.fetch_max(due.len(), Ordering::SeqCst);
                if max_streams.is_some_and(|max| due.len() > max as usize) {
                    peer.reset(stream, REFUSED_STREAM).await.unwrap();
                    due.pop();
                }
            }
            () = tokio::time::sleep_until(next) => {
                let (_, stream) = due.remove(0);
                let _ = peer.answer(stream).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn five_hundred_requests_share_five_connections_and_none_is_refused() {
    for (limit, pool, connections) in [
        (Some(100), PoolConfig::new().max_http2_connections_per_host(5), 5),
        (None, PoolConfig::new().max_http2_connections_per_host(5), 5),
        (None, PoolConfig::new().max_streams_per_connection(500), 1),
    ] {
        let peak = Arc::new(AtomicUsize::new(0));
        let busy = peak.clone();
        let wire = Wire::new(move |_, stream| service(stream, limit, busy.clone()));
        let recorder = Recorder::default();
        let client = client(&wire, pool, &recorder);
        let call = async || {
            let start = Instant::now();
            assert_eq!(get(&client).await.unwrap(), "ok");
            start.elapsed()
        };
        let mut took = join_all((0..500).map(|_| call())).await;
        took.sort();
        assert!(took[494] < ms(100), "p99 {:?}", took[494]);
        assert_eq!(wire.connections(), connections);
        assert_eq!(recorder.count(|event| matches!(event, Event::Retried { .. })), 0, "no stream was refused");
        assert!(peak.load(Ordering::SeqCst) <= 500 / connections);
        // Warm, it is the same again.
        let start = Instant::now();
        join_all((0..500).map(|_| call())).await;
        assert_eq!((start.elapsed().as_millis(), wire.connections()), (50, connections));
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_one_request_at_a_time_gets_one_at_a_time() {
    let peak = Arc::new(AtomicUsize::new(0));
    let busy = peak.clone();
    let wire = Wire::new(move |_, stream| service(stream, Some(1), busy.clone()));
    let recorder = Recorder::default();
    let client = client(&wire, PoolConfig::new(), &recorder);
    let start = Instant::now();
    for answer in join_all((0..40).map(|_| get(&client))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    // Four connections by default, ten requests on each.
    assert_eq!((wire.connections(), peak.load(Ordering::SeqCst)), (4, 1));
    assert_eq!(start.elapsed().as_millis(), 10 + 10 + 10 * 50);
    let streams = |event: &Event| matches!(event, Event::Queued { limit: Limit::Streams, .. });
    join_all((0..8).map(|_| get(&client))).await;
    assert_eq!(recorder.count(streams), 4, "it is said what they wait for");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_changes_in_mid_flight_is_followed() {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let wire = Wire::new(move |_, stream| {
        let seen = seen.clone();
        async move {
            let mut peer = H2Peer::accept(stream, Some(10)).await.unwrap();
            let mut open = Vec::new();
            for _ in 0..10 {
                open.push(peer.request().await.unwrap());
            }
            // None at all, then two at a time.
            peer.allow(0).await.unwrap();
            for stream in open.drain(..) {
                peer.answer(stream).await.unwrap();
            }
            assert!(tokio::time::timeout(ms(500), peer.request()).await.is_err(), "nothing is allowed");
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
    let client = client(&wire, pool, &Recorder::default());
    for answer in join_all((0..20).map(|_| get(&client))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    assert_eq!((wire.connections(), most.load(Ordering::SeqCst)), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn hazard_goaway_loses_nothing_and_sends_nothing_twice() {
    let served = Arc::new(AtomicUsize::new(0));
    let counter = served.clone();
    // After ten requests the peer says that it looks at the first eight, answers them, and closes.
    let wire = Wire::new(move |_, stream| {
        let served = counter.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let mut open = Vec::new();
            while let Ok(Ok(stream)) = tokio::time::timeout(ms(100), peer.request()).await {
                open.push(stream);
                if open.len() == 10 {
                    break;
                }
                sleep(ms(1)).await;
            }
            peer.goaway(open.get(7).copied().unwrap_or(1 << 30), NO_ERROR).await.unwrap();
            sleep(ms(20)).await;
            for stream in open.iter().take(8) {
                served.fetch_add(1, Ordering::SeqCst);
                peer.answer(*stream).await.unwrap();
            }
        }
    });
    let recorder = Recorder::default();
    let client = client(&wire, PoolConfig::new(), &recorder);
    let post = async || client.post(URL).body("once").send().await?.text().await;
    for answer in join_all((0..40).map(|_| post())).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    assert_eq!(served.load(Ordering::SeqCst), 40, "each was done once");
    let retired = |event: &Event| matches!(event, Event::Retired { cause: CloseCause::PeerAsked, .. });
    assert!(recorder.count(retired) > 0);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_peer_that_says_goaway_at_once_and_for_ever_is_given_up() {
    let wire = Wire::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let _ = peer.goaway(0, NO_ERROR).await;
        let _ = peer.next().await;
    });
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    let error = client.post(URL).body("x").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exchange, "{error}");
    assert!(wire.connections() <= 6, "{} connections", wire.connections());
}

#[tokio::test(start_paused = true)]
async fn hazard_a_refused_stream_goes_elsewhere_whatever_it_carries() {
    let wire = Wire::new(|number, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        while let Ok(stream) = peer.request().await {
            match number {
                0 => peer.reset(stream, REFUSED_STREAM).await.unwrap(),
                _ => peer.answer(stream).await.unwrap(),
            }
        }
    });
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    let answer = client.post(URL).body("x").send().await.unwrap().text().await.unwrap();
    assert_eq!((answer.as_str(), wire.connections()), ("ok", 2));
}

#[tokio::test(start_paused = true)]
async fn hazard_a_refused_stream_takes_the_same_connection_where_there_may_be_no_other() {
    let wire = Wire::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        // The first request is never answered, the second refused once.
        let _ = peer.request().await;
        let Ok(second) = peer.request().await else { return };
        peer.reset(second, REFUSED_STREAM).await.unwrap();
        while let Ok(stream) = peer.request().await {
            peer.answer(stream).await.unwrap();
        }
    });
    let client = client(&wire, PoolConfig::new().max_http2_connections_per_host(1), &Recorder::default());
    let stream = client.get(URL).timeout(ms(60_000));
    let (_, answer) = tokio::join!(tokio::time::timeout(ms(1_000), stream.send()), async {
        tokio::time::sleep(ms(100)).await;
        client.post(URL).body("x").send().await.unwrap().text().await.unwrap()
    });
    assert_eq!((answer.as_str(), wire.connections()), ("ok", 1));
}

#[tokio::test(start_paused = true)]
async fn hazard_a_stream_reset_for_another_reason_is_an_error_and_harms_nobody_else() {
    for code in [NO_ERROR, INTERNAL_ERROR, CANCEL] {
        for (after_head, length) in [(false, false), (true, true), (true, false)] {
            let wire = Wire::new(move |_, stream| async move {
                let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
                let (first, second) = (peer.request().await.unwrap(), peer.request().await.unwrap());
                match (after_head, length) {
                    (true, true) => peer.head_with_length(first, "100").await.unwrap(),
                    (true, false) => peer.head(first).await.unwrap(),
                    _ => {}
                }
                if after_head {
                    peer.send(DATA, 0, first, b"part").await.unwrap();
                }
                peer.reset(first, code).await.unwrap();
                sleep(ms(10)).await;
                peer.answer(second).await.unwrap();
                while let Ok(stream) = peer.request().await {
                    peer.answer(stream).await.unwrap();
                }
            });
            let client = client(&wire, PoolConfig::new(), &Recorder::default());
            let post = async || client.post(URL).body("x").send().await?.text().await;
            let (one, other) = tokio::join!(post(), post());
            // Whichever was first.
            let (failed, fine) = if one.is_err() { (one, other) } else { (other, one) };
            let error = failed.unwrap_err();
            let kind = if after_head { ErrorKind::Body } else { ErrorKind::Exchange };
            assert_eq!(error.kind(), kind, "code {code}: {error}");
            assert!(error.to_string().contains("peer reset the stream"), "{error}");
            assert_eq!(fine.unwrap(), "ok");
            assert_eq!(get(&client).await.unwrap(), "ok");
            assert_eq!((wire.connections(), client.pool_stats().leased), (1, 0), "code {code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_given_up_frees_its_seat_and_leaves_the_others_alone() {
    let resets = Arc::new(AtomicUsize::new(0));
    let counter = resets.clone();
    let wire = Wire::new(move |_, stream| {
        let resets = counter.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(1)).await else { return };
            while let Ok(frame) = peer.next().await {
                match frame.kind {
                    RST_STREAM => drop(resets.fetch_add(1, Ordering::SeqCst)),
                    GOAWAY => return,
                    // The first one is never answered.
                    _ if frame.ends() && frame.stream > 1 => peer.answer(frame.stream).await.unwrap(),
                    _ => {}
                }
            }
        }
    });
    let client = client(&wire, PoolConfig::new().max_http2_connections_per_host(1), &Recorder::default());
    assert!(tokio::time::timeout(ms(100), get(&client)).await.is_err());
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!((wire.connections(), resets.load(Ordering::SeqCst), client.pool_stats().opened), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_body_nobody_reads_frees_its_seat() {
    let wire = Wire::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(1)).await else { return };
        while let Ok(frame) = peer.next().await {
            match frame.stream {
                _ if !frame.ends() => {}
                1 => peer.head(1).await.unwrap(),
                stream => peer.answer(stream).await.unwrap(),
            }
        }
    });
    let client = client(&wire, PoolConfig::new().max_http2_connections_per_host(1), &Recorder::default());
    drop(client.get(URL).send().await.unwrap());
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!((wire.connections(), client.pool_stats().closed), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_response_before_the_request_was_read_holds_the_next_request_up_and_harms_it_not() {
    let wire = Wire::new(|_, stream| async move {
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
    let client = client(&wire, PoolConfig::new().max_http2_connections_per_host(1), &Recorder::default());
    // More than the peer's window takes.
    let start = Instant::now();
    let answer = client.post(URL).body(vec![0; 1_000_000]).send().await.unwrap().text().await.unwrap();
    assert_eq!((answer.as_str(), client.pool_stats().leased), ("ok", 1), "the rest of the body is still to go");
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!((start.elapsed().as_millis(), wire.connections()), (40, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_found_by_pings() {
    let wire = Wire::new(|number, stream| async move {
        if number == 0 {
            // Reads nothing, answers nothing.
            let _peer = H2Peer::accept(stream, Some(100)).await;
            return std::future::pending().await;
        }
        service(stream, Some(100), Arc::default()).await;
    });
    let recorder = Recorder::default();
    let client = client(&wire, PoolConfig::new(), &recorder);
    let start = Instant::now();
    let error = client.post(URL).body("x").send().await.unwrap_err();
    assert_eq!((start.elapsed().as_secs(), error.kind()), (25, ErrorKind::Exchange), "{error}");
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!(wire.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_peer_that_never_says_its_settings_is_sent_one_request_at_a_time() {
    use tokio::io::AsyncReadExt;
    let wire = Wire::new(|_, mut stream| async move {
        let mut sink = [0; 1024];
        while matches!(stream.read(&mut sink).await, Ok(1..)) {}
    });
    let client = client(&wire, PoolConfig::new().wait_timeout(ms(500)), &Recorder::default());
    let call = async || client.get(URL).timeout(ms(1_000)).send().await.unwrap_err();
    let errors = join_all((0..6).map(|_| call())).await;
    let timeouts = errors.iter().filter(|error| matches!(error.kind(), ErrorKind::Timeout(_))).count();
    let queued = errors.iter().filter(|error| error.kind() == ErrorKind::Pool).count();
    assert_eq!((timeouts, queued, wire.connections()), (1, 5, 1), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_streams_in_flight_and_closes_every_socket() {
    let wire = Wire::new(|_, stream| service(stream, Some(100), Arc::default()));
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
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
        (ErrorKind::Pool, "call api.test:80: the pool is being drained".into())
    );
    sleep(ms(1)).await;
    assert_eq!((wire.open(), client.pool_stats().opened), (0, client.pool_stats().closed));
    client.drain().await;
}

#[tokio::test(start_paused = true)]
async fn bodies_that_nobody_reads_do_not_hold_the_others_up() {
    let wire = Wire::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let mut streams = 0;
        while let Ok(stream) = peer.request().await {
            streams += 1;
            if streams > 40 {
                peer.answer(stream).await.unwrap();
                continue;
            }
            // As much as the stream's window takes, and no end.
            peer.head(stream).await.unwrap();
            for _ in 0..64 {
                peer.send(DATA, 0, stream, &[0; 16_384]).await.unwrap();
            }
        }
    });
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    let mut unread = Vec::new();
    for _ in 0..40 {
        unread.push(client.get(URL).send().await.unwrap());
    }
    for _ in 0..100 {
        let answer = tokio::time::timeout(ms(1_000), get(&client)).await.expect("not held up");
        assert_eq!(answer.unwrap(), "ok");
    }
    assert_eq!(wire.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_the_peer_takes_slowly_is_sending_and_not_waiting() {
    let wire = Wire::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(10)).await else { return };
        loop {
            let Ok(frame) = peer.next().await else { return };
            if frame.ends() {
                sleep(ms(30)).await;
                peer.answer(frame.stream).await.unwrap();
            } else if frame.kind == DATA {
                sleep(ms(10)).await;
                let more = (frame.payload.len() as u32).to_be_bytes();
                // For the stream, and for the connection.
                peer.send(WINDOW_UPDATE, 0, frame.stream, &more).await.unwrap();
                peer.send(WINDOW_UPDATE, 0, 0, &more).await.unwrap();
            }
        }
    });
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    let response = client.post(URL).body(vec![0; 256 * 1024]).send().await.unwrap();
    let timings = response.timings();
    // What fits into the window at the end is handed over at once.
    assert!(timings.send() >= ms(100) && timings.wait() >= ms(30), "{timings}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_one_task_but_for_bodies_on_their_way() {
    let wire = Wire::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let first = peer.request().await.unwrap();
        peer.answer(first).await.unwrap();
        while peer.next().await.is_ok() {}
    });
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    get(&client).await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let alone = tasks();
    let with = async |requests: Vec<speeddial::RequestBuilder>| {
        let waiting = join_all(requests.into_iter().map(speeddial::RequestBuilder::send));
        let (waited, counted) = tokio::join!(tokio::time::timeout(ms(20), waiting), async {
            sleep(ms(10)).await;
            tasks()
        });
        assert!(waited.is_err(), "nobody answers");
        counted
    };
    assert_eq!(with((0..10).map(|_| client.get(URL)).collect()).await, alone);
    // A body may be somebody's work, which is not to hold the other requests up.
    let slow = with((0..10).map(|_| client.post(URL).body(slow_body(1_000))).collect()).await;
    assert!(slow >= alone + 10, "{slow} tasks, {alone} without them");
    assert_eq!(with((0..10).map(|_| client.get(URL)).collect()).await, alone, "those are gone, and others are none");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_leaves_nobody_waiting() {
    let wire = Wire::new(|number, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let mut answered = 0;
        while let Ok(stream) = peer.request().await {
            // The first connection has one answer.
            if number > 0 || answered == 0 {
                peer.answer(stream).await.unwrap();
                answered += 1;
            }
        }
    });
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    get(&client).await.unwrap();
    let bad = Body::wrap_stream(futures_util::stream::poll_fn(|_| -> std::task::Poll<Option<std::io::Result<&str>>> {
        panic!("a body of somebody's")
    }));
    // Both are taken in one turn, and what waits for the answer to the first is not polled yet.
    let both = async { tokio::join!(get(&client), client.post(URL).body(bad).send()) };
    let (got, posted) = tokio::time::timeout(ms(1_000), both).await.expect("nobody waits");
    assert_eq!((got.unwrap().as_str(), wire.connections()), ("ok", 2), "made again");
    assert_eq!(posted.unwrap_err().kind(), ErrorKind::Exchange);
}

/// A body of which the first piece comes at once, and the rest after so many milliseconds.
fn slow_body(rest: u64) -> Body {
    let first = futures_util::stream::once(async { Ok::<_, std::io::Error>("first") });
    let rest = futures_util::stream::once(async move {
        sleep(ms(rest)).await;
        Ok("rest")
    });
    Body::wrap_stream(first.chain(rest))
}

/// The stream of the next request, as soon as its head is there.
async fn head(peer: &mut H2Peer) -> std::io::Result<u32> {
    loop {
        let frame = peer.next().await?;
        if frame.kind == HEADERS {
            return Ok(frame.stream);
        }
    }
}

/// Answers each request as soon as its head is there, and counts the bytes of bodies.
fn answers_heads(received: Arc<AtomicUsize>) -> Wire {
    Wire::new(move |_, stream| {
        let received = received.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            while let Ok(frame) = peer.next().await {
                match frame.kind {
                    HEADERS => drop(peer.answer(frame.stream).await),
                    DATA => drop(received.fetch_add(frame.payload.len(), Ordering::SeqCst)),
                    _ => {}
                }
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn an_answer_before_the_request_is_over_costs_no_connection_nor_the_rest_of_the_request() {
    let received = Arc::new(AtomicUsize::new(0));
    let wire = answers_heads(received.clone());
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    for _ in 0..5 {
        let response = client.post(URL).body(slow_body(1_000)).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
        sleep(ms(300)).await;
    }
    sleep(ms(2_000)).await;
    assert_eq!((wire.connections(), received.load(Ordering::SeqCst)), (1, 5 * "firstrest".len()));
    assert_eq!(client.pool_stats().in_use, 0);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_fails_or_is_given_up_ends_a_request_that_is_still_on_its_way() {
    for gives_up in [false, true] {
        let resets = Arc::new(AtomicUsize::new(0));
        let seen = resets.clone();
        let wire = Wire::new(move |_, stream| {
            let seen = seen.clone();
            async move {
                let Ok(mut peer) = H2Peer::accept(stream, Some(3)).await else { return };
                // Five that are never answered whole, then one that is.
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
        let client = client(&wire, pool, &Recorder::default());
        for _ in 0..5 {
            let request = client.post(URL).body(slow_body(1_000_000));
            let mut response = request.send().await.unwrap();
            match gives_up {
                true => assert_eq!(response.chunk().await.unwrap().unwrap(), "half"),
                // It has more than its reader wants.
                false => assert!(response.bytes_with_limit(1).await.is_err()),
            }
        }
        assert_eq!(get(&client).await.unwrap(), "ok", "gives up: {gives_up}");
        assert_eq!((resets.load(Ordering::SeqCst), wire.connections()), (5, 1), "gives up: {gives_up}");
        assert_eq!(client.pool_stats().in_use, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_too_late_does_not_cost_the_connection() {
    let wire = Wire::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        while let Ok(stream) = peer.request().await {
            let _ = peer.answer(stream).await;
        }
    });
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    for _ in 0..3 {
        let response = client.get(URL).timeout(ms(100)).send().await.unwrap();
        sleep(ms(150)).await;
        assert!(response.text().await.unwrap_err().is_timeout());
    }
    assert_eq!(wire.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_kept_connection_that_ends_without_close_notify_costs_no_get() {
    let wire = Wire::new(|number, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        for served in 0.. {
            let Ok(stream) = peer.request().await else { return };
            if number == 0 && served == 1 {
                return;
            }
            peer.answer(stream).await.unwrap();
        }
    });
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().http2_prior_knowledge().resolver(resolver);
    let client = builder.transport(CutWire(wire.clone())).build().unwrap();
    for connections in [1, 2, 2] {
        assert_eq!(get(&client).await.unwrap(), "ok");
        assert_eq!(wire.connections(), connections);
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_an_answer_with_a_length_outlives_its_connection_and_the_upload() {
    const END_STREAM: u8 = 1;
    let wire = Wire::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let Ok(stream) = head(&mut peer).await else { return };
        let _ = peer.head_with_length(stream, "2").await;
        let _ = peer.send(DATA, END_STREAM, stream, b"no").await;
        let _ = peer.goaway(stream, NO_ERROR).await;
    });
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    for body in [Body::from(vec![0; 1 << 20]), slow_body(1_000_000)] {
        let response = client.post(URL).body(body).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "no");
    }
    assert_eq!(wire.connections(), 2);
}

/// How a peer turns requests away.
#[derive(Debug, Clone, Copy)]
enum Away {
    /// It refuses their streams.
    Refuses,
    /// It says GOAWAY, with this code, to each.
    SaysGoaway(u32),
    /// It says GOAWAY at once, and closes.
    Closes,
}

/// A peer that turns every request away, and how many it has seen.
fn turning_away(how: Away) -> (Wire, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = requests.clone();
    let wire = Wire::new(move |_, stream| {
        let seen = seen.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            if matches!(how, Away::Closes) {
                let _ = peer.goaway(0, NO_ERROR).await;
                return;
            }
            while let Ok(stream) = peer.request().await {
                seen.fetch_add(1, Ordering::SeqCst);
                let _ = match how {
                    Away::SaysGoaway(code) => peer.goaway(0, code).await,
                    _ => peer.reset(stream, REFUSED_STREAM).await,
                };
            }
        }
    });
    (wire, requests)
}

fn retrying(wire: &Wire, policy: Option<RetryPolicy>) -> Client {
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().http2_prior_knowledge().resolver(resolver).transport(wire.clone());
    policy.into_iter().fold(builder, |builder, policy| builder.retry(policy)).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn hazard_a_peer_that_turns_every_request_away_sees_six_of_a_call_in_a_second_at_least() {
    for how in [Away::Refuses, Away::SaysGoaway(NO_ERROR), Away::SaysGoaway(ENHANCE_YOUR_CALM), Away::Closes] {
        for policy in [None, Some(RetryPolicy::new()), Some(RetryPolicy::new().attempts(10))] {
            let (wire, requests) = turning_away(how);
            let client = retrying(&wire, policy);
            let start = Instant::now();
            let error = client.get(URL).send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exchange, "{how:?}: {error}");
            let (connections, requests) = (wire.connections(), requests.load(Ordering::SeqCst));
            assert!(connections <= 6 && requests <= 6, "{how:?}: {requests} requests on {connections} connections");
            assert!((ms(1_000)..ms(30_000)).contains(&start.elapsed()), "{how:?}: {:?}", start.elapsed());
            assert_eq!(client.pool_stats().leased, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_peer_that_turns_four_hundred_calls_away_sees_few_of_them_again() {
    for how in [Away::Refuses, Away::SaysGoaway(NO_ERROR), Away::SaysGoaway(ENHANCE_YOUR_CALM)] {
        let (wire, requests) = turning_away(how);
        let client = retrying(&wire, Some(RetryPolicy::new()));
        let start = Instant::now();
        let answers = join_all((0..400).map(|_| get(&client))).await;
        assert!(answers.iter().all(Result::is_err));
        // An allowance of 100 and 10 a second, and a policy's budget of 85 and one in ten seconds.
        let most = 400 + 100 + 85 + 11 * (start.elapsed().as_secs() as usize + 1);
        let requests = requests.load(Ordering::SeqCst);
        assert!(requests <= most, "{how:?}: {requests} of {most}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_asks_for_calm_and_gets_it_answers() {
    let start = Instant::now();
    let at = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = at.clone();
    let wire = Wire::new(move |number, stream| {
        log.lock().unwrap().push(start.elapsed());
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            while let Ok(stream) = peer.request().await {
                let _ = match number {
                    0 | 1 => peer.goaway(0, ENHANCE_YOUR_CALM).await,
                    _ => peer.answer(stream).await,
                };
            }
        }
    });
    let recorder = Recorder::default();
    let client = client(&wire, PoolConfig::new(), &recorder);
    for answer in join_all((0..10).map(|_| get(&client))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    let at = at.lock().unwrap();
    assert_eq!(at.len(), 3, "one dial at a time");
    let pauses = [at[1] - at[0], at[2] - at[1]];
    assert!((ms(100)..=ms(215)).contains(&pauses[0]) && (ms(200)..=ms(415)).contains(&pauses[1]), "{pauses:?}");
    assert!(recorder.count(|event| matches!(event, Event::Queued { limit: Limit::Calm, .. })) > 0);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_call_that_times_out_beside_a_long_stream_leaves_its_host_reachable() {
    let wire = Wire::new(|number, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let mut asked = 0;
        while let Ok(stream) = peer.request().await {
            asked += 1;
            let _ = match asked {
                // A stream that is quiet, and one that is not answered.
                1 if number == 0 => peer.head(stream).await,
                2 if number == 0 => Ok(()),
                _ => peer.answer(stream).await,
            };
        }
    });
    let pool = PoolConfig::new().max_connections_per_host(1).lifetime(ms(300));
    let client = client(&wire, pool, &Recorder::default());
    let long = client.get(URL).send().await.unwrap();
    assert!(client.get(URL).timeout(ms(100)).send().await.unwrap_err().is_timeout());
    for _ in 0..10 {
        let answer = tokio::time::timeout(ms(50), get(&client)).await.expect("the host can be reached");
        assert_eq!(answer.unwrap(), "ok");
        sleep(ms(100)).await;
    }
    assert_eq!((wire.connections(), client.pool_stats().leased), (1, 1));
    drop(long);
    sleep(ms(1)).await;
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!(wire.connections(), 2, "its time was up");
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_costs_no_connection_on_which_another_one_comes() {
    // Whether or not the other answer is read.
    for reads in [false, true] {
        let wire = Wire::new(|_, stream| async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let Ok(long) = peer.request().await else { return };
            let _ = peer.head(long).await;
            let Ok(_slow) = peer.request().await else { return };
            loop {
                // Only whole frames are in the pipe when the time has come.
                tokio::select! {
                    biased;
                    request = peer.request() => match request {
                        Ok(stream) => drop(peer.answer(stream).await),
                        Err(_) => return,
                    },
                    () = sleep(ms(60)) => drop(peer.send(DATA, 0, long, b"more").await),
                }
            }
        });
        let client = client(&wire, PoolConfig::new(), &Recorder::default());
        let mut long = client.get(URL).send().await.unwrap();
        let slow = async { client.get(URL).timeout(ms(100)).send().await.unwrap_err() };
        let (error, ()) = tokio::join!(slow, async {
            if reads {
                assert_eq!(long.chunk().await.unwrap().unwrap(), "more");
            }
        });
        assert!(error.is_timeout());
        assert_eq!(get(&client).await.unwrap(), "ok");
        assert_eq!(wire.connections(), 1, "read: {reads}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_and_takes_no_more_of_the_request_keeps_no_drain_waiting_for_long() {
    let wire = Wire::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let Ok(stream) = head(&mut peer).await else { return };
        let _ = peer.answer(stream).await;
        // It reads no more, and keeps its end.
        std::future::pending::<()>().await;
        drop(peer);
    });
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    let answer = client.post(URL).body(vec![0; 1_000_000]).send().await.unwrap().text().await.unwrap();
    assert_eq!((answer.as_str(), client.pool_stats().leased), ("ok", 1));
    let start = Instant::now();
    client.drain().await;
    assert!((ms(4_900)..=ms(5_100)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_slow_by_itself_may_go_on_after_its_answer() {
    let received = Arc::new(AtomicUsize::new(0));
    let wire = answers_heads(received.clone());
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    let response = client.post(URL).body(slow_body(20_000)).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ok");
    sleep(ms(21_000)).await;
    assert_eq!((wire.connections(), received.load(Ordering::SeqCst)), (1, "firstrest".len()));
    assert_eq!(client.pool_stats().leased, 0);
}

/// grpc-go's count of pings, with its defaults (`handlePing` in internal/transport/http2_server.go).
#[derive(Default)]
struct Strikes {
    last: Option<Instant>,
    strikes: u32,
    /// True if a piece of a response was sent since the last ping.
    has_answered: bool,
}

impl Strikes {
    /// Counts a ping. More than two strikes end the connection.
    fn ping(&mut self, streams: usize) -> u32 {
        let apart = Duration::from_secs(if streams == 0 { 2 * 60 * 60 } else { 5 * 60 });
        if std::mem::take(&mut self.has_answered) {
            self.strikes = 0;
        } else if self.last.is_some_and(|last| last.elapsed() < apart) {
            self.strikes += 1;
        }
        self.last = Some(Instant::now());
        self.strikes
    }
}

/// Answers the first request with a head and no body, and each other one after some seconds; `log` has the strikes at each ping.
async fn counting(stream: DuplexStream, log: Arc<std::sync::Mutex<Vec<u32>>>) {
    let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
    let (mut strikes, mut due) = (Strikes::default(), Vec::<(Instant, u32)>::new());
    loop {
        let first = due.iter().map(|(at, _)| *at).min();
        tokio::select! {
            biased;
            frame = peer.next_of_all() => {
                let Ok(frame) = frame else { return };
                if frame.is_ping() {
                    log.lock().unwrap().push(strikes.ping(due.len() + 1));
                } else if frame.ends() && frame.stream == 1 {
                    peer.head(1).await.unwrap();
                    strikes.has_answered = true;
                } else if frame.ends() {
                    let seconds = [1, 8, 12, 35, 90, 200][frame.stream as usize / 2 % 6];
                    due.push((Instant::now() + Duration::from_secs(seconds), frame.stream));
                }
            }
            () = tokio::time::sleep_until(first.unwrap_or_else(Instant::now)), if first.is_some() => {
                let at = due.iter().position(|(at, _)| Some(*at) == first).unwrap();
                let (_, stream) = due.swap_remove(at);
                peer.answer(stream).await.unwrap();
                strikes.has_answered = true;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_quarter_of_an_hour_is_no_abuse_as_grpc_go_counts_pings() {
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = log.clone();
    let wire = Wire::new(move |_, stream| counting(stream, seen.clone()));
    let pool = PoolConfig::new().lifetime(Duration::from_secs(3_600));
    let client = client(&wire, pool, &Recorder::default());
    let quiet = client.get(URL).body_idle_timeout(Duration::MAX).send().await.unwrap();
    let quiet = tokio::spawn(quiet.text());
    let (start, mut round) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(900) {
        assert_eq!(get(&client).await.unwrap(), "ok");
        sleep(Duration::from_secs(round * 7 % 45)).await;
        round += 1;
    }
    let log = log.lock().unwrap();
    assert!(!log.is_empty() && log.iter().all(|strikes| *strikes <= 2), "{log:?}");
    assert_eq!((wire.connections(), quiet.is_finished()), (1, false));
    quiet.abort();
}

#[tokio::test(start_paused = true)]
async fn hazard_a_quiet_stream_alone_is_pinged_once() {
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = log.clone();
    let wire = Wire::new(move |_, stream| counting(stream, seen.clone()));
    let pool = PoolConfig::new().lifetime(Duration::from_secs(3_600));
    let client = client(&wire, pool, &Recorder::default());
    let quiet = client.get(URL).body_idle_timeout(Duration::MAX).send().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(900), quiet.text()).await.is_err(), "it is still open");
    assert_eq!(*log.lock().unwrap(), [0]);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_black_holed_connection_with_a_waiting_request_is_replaced_within_thirty_seconds() {
    for idle in [0, 9, 11, 40] {
        let wire = Wire::new(|number, stream| async move {
            if number > 0 {
                return service(stream, Some(100), Arc::default()).await;
            }
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let Ok(first) = peer.request().await else { return };
            peer.answer(first).await.unwrap();
            // From now on what is sent to it is lost.
            std::future::pending().await
        });
        let client = client(&wire, PoolConfig::new(), &Recorder::default());
        assert_eq!(get(&client).await.unwrap(), "ok");
        sleep(Duration::from_secs(idle)).await;
        let start = Instant::now();
        assert_eq!(get(&client).await.unwrap(), "ok", "by another connection");
        assert!(start.elapsed() < Duration::from_secs(30), "{:?} after {idle} s", start.elapsed());
        assert_eq!(wire.connections(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn pings_by_a_timer_are_sent_for_those_who_want_them() {
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = log.clone();
    let wire = Wire::new(move |_, stream| counting(stream, seen.clone()));
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().http2_prior_knowledge().resolver(resolver).transport(wire.clone());
    let client = builder.http2_keep_alive_interval(Duration::from_secs(30)).build().unwrap();
    let quiet = client.get(URL).body_idle_timeout(Duration::MAX).send().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(200), quiet.text()).await.is_err());
    assert_eq!(*log.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_reset_in_the_middle_of_a_body_is_not_its_end_while_the_request_is_on_its_way() {
    const END_STREAM: u8 = 1;
    for is_whole in [false, true] {
        let (read, reset) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (has_read, has_reset) = (read.clone(), reset.clone());
        let wire = Wire::new(move |_, stream| {
            let (has_read, has_reset) = (has_read.clone(), has_reset.clone());
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
                // The reader runs right behind the connection, and before the task that sends the request.
                has_reset.notify_one();
                while peer.next().await.is_ok() {}
            }
        });
        let client = client(&wire, PoolConfig::new(), &Recorder::default());
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
            assert!(error.to_string().ends_with("the peer reset the stream before its end, after 4 bytes"), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_streams_that_their_peer_does_not_let_end_hold_no_request_up() {
    let wire = Wire::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(3)).await else { return };
        // Each request is answered by its head, and of bodies no more is taken than the first window.
        while let Ok(frame) = peer.next().await {
            if frame.kind == HEADERS && peer.answer(frame.stream).await.is_err() {
                return;
            }
        }
    });
    let client = client(&wire, PoolConfig::new().max_connections_per_host(1), &Recorder::default());
    let upload = || async { client.post(URL).body(vec![0; 1_000_000]).send().await.unwrap().text().await.unwrap() };
    assert_eq!(join_all((0..3).map(|_| upload())).await, ["ok"; 3]);
    sleep(ms(1_000)).await;
    let answer = client.get(URL).timeout(ms(20_000)).send().await;
    assert_eq!(answer.expect("it gets another connection").text().await.unwrap(), "ok");
    assert_eq!(wire.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn pings_by_a_timer_of_zero_are_none() {
    let pings = Arc::new(AtomicUsize::new(0));
    let seen = pings.clone();
    let wire = Wire::new(move |_, stream| {
        let seen = seen.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            // A flood ends with the connection.
            while seen.load(Ordering::SeqCst) < 100 {
                let Ok(frame) = peer.next_of_all().await else { return };
                if frame.is_ping() {
                    seen.fetch_add(1, Ordering::SeqCst);
                } else if frame.ends() {
                    let _ = peer.head(frame.stream).await;
                }
            }
        }
    });
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().http2_prior_knowledge().resolver(resolver).transport(wire.clone());
    let client = builder.http2_keep_alive_interval(Duration::ZERO).build().unwrap();
    let quiet = client.get(URL).body_idle_timeout(Duration::MAX).send().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(200), quiet.text()).await.is_err(), "it is still open");
    assert_eq!(pings.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn pings_may_be_put_off_for_ever_and_their_answers_waited_for() {
    for (interval, timeout) in [(Duration::MAX, Duration::from_secs(20)), (Duration::from_secs(1), Duration::MAX)] {
        let wire = Wire::new(|_, stream| async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let Ok(request) = peer.request().await else { return };
            // Pings are acknowledged meanwhile.
            let reading = async { while peer.next().await.is_ok() {} };
            let _ = tokio::time::timeout(Duration::from_secs(5), reading).await;
            let _ = peer.answer(request).await;
            let _ = peer.next().await;
        });
        let resolver = FixedResolver::new().with("api.test", [v4(1)]);
        let builder = Client::builder().no_proxy().http2_prior_knowledge().resolver(resolver).transport(wire.clone());
        let builder = builder.http2_keep_alive_interval(interval).http2_keep_alive_timeout(timeout);
        assert_eq!(get(&builder.build().unwrap()).await.unwrap(), "ok", "{interval:?}, {timeout:?}");
    }
}
