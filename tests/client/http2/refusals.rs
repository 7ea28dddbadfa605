//! Requests that a peer refuses: GOAWAY, REFUSED_STREAM, and streams reset with other codes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use speeddial::dns::FixedResolver;
use speeddial::trace::{CloseCause, EndedRequest, Event, Limit, Observer, Phase, Wants};
use speeddial::{Client, ErrorKind, PoolConfig, RetryPolicy};
use tokio::time::{Instant, sleep};

use super::common::{URL, client, get, ms};
use support::h2_peer::{CANCEL, DATA, ENHANCE_YOUR_CALM, H2Peer, INTERNAL_ERROR, NO_ERROR, REFUSED_STREAM};
use support::recorder::Recorder;
use support::scripted_net::{ScriptedNet, UncleanNet};
use support::v4;

#[tokio::test(start_paused = true)]
async fn hazard_goaway_loses_no_request_and_none_is_processed_twice() {
    let served = Arc::new(AtomicUsize::new(0));
    let counter = served.clone();
    // After ten requests the peer sends GOAWAY for the last two, answers the first eight, and closes.
    let net = ScriptedNet::new(move |_, stream| {
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
    let client = client(&net, PoolConfig::new(), &recorder);
    let post = async || client.post(URL).body("once").send().await?.text().await;
    for answer in join_all((0..40).map(|_| post())).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    assert_eq!(served.load(Ordering::SeqCst), 40, "each request was processed once");
    let retired = |event: &Event| matches!(event, Event::Retired { cause: CloseCause::PeerAnnounced, .. });
    assert!(recorder.count(retired) > 0);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_peer_that_always_sends_goaway_is_given_up() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let _ = peer.goaway(0, NO_ERROR).await;
        let _ = peer.next().await;
    });
    let recorder = Recorder::default();
    let client = client(&net, PoolConfig::new(), &recorder);
    let error = client.post(URL).body("x").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exchange, "{error}");
    assert!(net.connections() <= 6, "{} connections", net.connections());
    // The first resend goes out at once.
    let waits = recorder.pick(|event| match event {
        Event::BackoffStart { wait, .. } => Some(*wait),
        _ => None,
    });
    assert_eq!(waits.len() + 1, recorder.count(|event| matches!(event, Event::Repeated { .. })));
    let timings = error.timings().unwrap();
    let waited = waits.iter().sum::<std::time::Duration>();
    assert!(timings.backoff() >= waited && timings.backoff() <= waited + ms(waits.len() as u64), "{timings:?}");
    assert_eq!((timings.longest_phase(), timings.queue()), (Phase::Backoff, ms(0)), "{timings}");
}

/// Holds the first request of each connection, and answers the others. The first two connections that get a GET close on it.
async fn closes_two_of_three(stream: tokio::io::DuplexStream, gets: Arc<AtomicUsize>) {
    let Ok(mut peer) = H2Peer::accept(stream, Some(2)).await else { return };
    let mut requests = 0;
    while let Ok(stream) = peer.request().await {
        requests += 1;
        if requests == 1 {
            continue;
        }
        // Each connection gets two POSTs before the GET. All three are full before the first answer.
        if requests == 2 {
            sleep(ms(50)).await;
        } else if gets.fetch_add(1, Ordering::SeqCst) < 2 {
            return;
        }
        peer.answer(stream).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_pause_before_a_last_attempt_is_part_of_the_backoff() {
    let gets = Arc::new(AtomicUsize::new(0));
    let counter = gets.clone();
    let net = ScriptedNet::new(move |_, stream| closes_two_of_three(stream, counter.clone()));
    let recorder = Recorder::default();
    let client = client(&net, PoolConfig::new(), &recorder);
    let post = || client.post(URL).body("x").timeout(ms(60_000)).send();
    let mut posts: futures_util::stream::FuturesUnordered<_> = (0..6).map(|_| post()).collect();
    for _ in 0..3 {
        posts.next().await.unwrap().unwrap().text().await.unwrap();
    }
    assert_eq!(net.connections(), 3, "each one has a request that is held, and room for another one");
    let sums = Sums::default();
    let response = client.get(URL).observer(sums.clone()).send().await.unwrap();
    let timings = response.timings();
    assert_eq!((gets.load(Ordering::SeqCst), timings.hops().len(), net.connections()), (3, 2, 3), "{timings:?}");
    let waits = recorder.pick(|event| match event {
        Event::BackoffStart { wait, .. } => Some(*wait),
        _ => None,
    });
    assert_eq!((waits.len(), waits[1]), (2, ms(10)), "{waits:?}");
    let waited = waits[0] + waits[1];
    assert!(timings.backoff() >= waited && timings.backoff() <= waited + ms(1), "{timings} for {waits:?}");
    assert_eq!((timings.queue(), timings.phase()), (ms(0), Phase::Receive), "{timings:?}");
    assert_eq!(Phase::ALL.map(|phase| timings.spent(phase)).iter().sum::<std::time::Duration>(), timings.total());
    response.bytes().await.unwrap();
    let sums = sums.0.lock().unwrap();
    assert_eq!([sums[0].backoff, sums[1].backoff], [ms(0); 2]);
    assert!(sums[2].backoff >= waits[0] && sums[2].backoff < waits[0] + ms(1), "before the last request");
    assert!(sums[2].elapsed >= ms(10), "the pause is within the last request");
    assert!(sums.iter().all(|sums| sums.phases == sums.elapsed));
}

/// The times of a request.
struct Times {
    backoff: Duration,
    elapsed: Duration,
    /// The sum of the phases, without the backoff.
    phases: Duration,
}

/// The times of the requests of a call.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<Vec<Times>>>);

impl Observer for Sums {
    fn wants_of_call(&self) -> Wants {
        Wants::REQUESTS
    }

    fn request_ended(&self, request: &EndedRequest<'_>) {
        let [backoff, elapsed] = [request.spent(Phase::Backoff), request.elapsed()];
        let phases = Phase::ALL.map(|phase| request.spent(phase)).iter().sum::<Duration>() - backoff;
        self.0.lock().unwrap().push(Times { backoff, elapsed, phases });
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_refused_stream_is_resent_on_another_connection_whatever_its_method() {
    let net = ScriptedNet::new(|number, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        while let Ok(stream) = peer.request().await {
            match number {
                0 => peer.reset(stream, REFUSED_STREAM).await.unwrap(),
                _ => peer.answer(stream).await.unwrap(),
            }
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let answer = client.post(URL).body("x").send().await.unwrap().text().await.unwrap();
    assert_eq!((answer.as_str(), net.connections()), ("ok", 2));
}

#[tokio::test(start_paused = true)]
async fn hazard_a_refused_stream_is_resent_on_the_same_connection_if_it_is_the_only_one_allowed() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        // The first request is never answered, the second one is refused once.
        let _ = peer.request().await;
        let Ok(second) = peer.request().await else { return };
        peer.reset(second, REFUSED_STREAM).await.unwrap();
        while let Ok(stream) = peer.request().await {
            peer.answer(stream).await.unwrap();
        }
    });
    let client = client(&net, PoolConfig::new().max_http2_connections_per_host(1), &Recorder::default());
    let stream = client.get(URL).timeout(ms(60_000));
    let (_, answer) = tokio::join!(tokio::time::timeout(ms(1_000), stream.send()), async {
        tokio::time::sleep(ms(100)).await;
        client.post(URL).body("x").send().await.unwrap().text().await.unwrap()
    });
    assert_eq!((answer.as_str(), net.connections()), ("ok", 1));
}

#[tokio::test(start_paused = true)]
async fn hazard_a_stream_reset_with_another_code_is_an_error_of_that_stream_only() {
    for code in [NO_ERROR, INTERNAL_ERROR, CANCEL] {
        for (after_head, length) in [(false, false), (true, true), (true, false)] {
            let net = ScriptedNet::new(move |_, stream| async move {
                let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
                let first = peer.request().await.unwrap();
                let second = peer.request().await.unwrap();
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
            let client = client(&net, PoolConfig::new(), &Recorder::default());
            let post = async || client.post(URL).body("x").send().await?.text().await;
            let (one, other) = tokio::join!(post(), post());
            // Either of the two may have the first stream.
            let (failed, fine) = if one.is_err() { (one, other) } else { (other, one) };
            let error = failed.unwrap_err();
            let kind = if after_head { ErrorKind::Body } else { ErrorKind::Exchange };
            assert_eq!(error.kind(), kind, "code {code}: {error}");
            let bytes = if length { "4 of 100 bytes" } else { "4 bytes" };
            let clause = match (after_head, code) {
                (false, _) => "the server reset the stream (RST_STREAM)".to_owned(),
                // hyper takes it for the end of the body.
                (true, NO_ERROR) => format!("the server closed the stream before the body's end, after {bytes}"),
                (true, _) => format!("the body broke off after {bytes}"),
            };
            assert_eq!(error.to_string(), format!("POST {URL}: {clause}"));
            let has_reason = std::error::Error::source(&error).is_some();
            assert_eq!(has_reason, !after_head || code != NO_ERROR, "h2 has the code: {error}");
            assert_eq!(fine.unwrap(), "ok");
            assert_eq!(get(&client).await.unwrap(), "ok");
            assert_eq!((net.connections(), client.pool_stats().leased), (1, 0), "code {code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_kept_connection_that_ends_without_close_notify_costs_no_get() {
    let net = ScriptedNet::new(|number, stream| async move {
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
    let builder = Client::builder().no_proxy().http2_prior_knowledge().dns_resolver(resolver);
    let client = builder.transport(UncleanNet(net.clone())).build().unwrap();
    for connections in [1, 2, 2] {
        assert_eq!(get(&client).await.unwrap(), "ok");
        assert_eq!(net.connections(), connections);
    }
}

/// The way a peer refuses requests.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    /// Resets each stream with REFUSED_STREAM.
    ResetStream,
    /// Answers each request with GOAWAY and this code.
    Goaway(u32),
    /// Sends GOAWAY at the start of the connection and closes it.
    GoawayAndClose,
}

/// Returns a network whose peers refuse every request, and the number of requests that they received.
fn refusing_net(how: Refusal) -> (ScriptedNet, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = requests.clone();
    let net = ScriptedNet::new(move |_, stream| {
        let seen = seen.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            if matches!(how, Refusal::GoawayAndClose) {
                let _ = peer.goaway(0, NO_ERROR).await;
                return;
            }
            while let Ok(stream) = peer.request().await {
                seen.fetch_add(1, Ordering::SeqCst);
                let _ = match how {
                    Refusal::Goaway(code) => peer.goaway(0, code).await,
                    _ => peer.reset(stream, REFUSED_STREAM).await,
                };
            }
        }
    });
    (net, requests)
}

fn client_with_policy(net: &ScriptedNet, policy: Option<RetryPolicy>) -> Client {
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().http2_prior_knowledge().dns_resolver(resolver).transport(net.clone());
    policy.into_iter().fold(builder, |builder, policy| builder.retry(policy)).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn hazard_a_peer_that_refuses_every_request_gets_at_most_six_per_call_over_at_least_a_second() {
    for how in
        [Refusal::ResetStream, Refusal::Goaway(NO_ERROR), Refusal::Goaway(ENHANCE_YOUR_CALM), Refusal::GoawayAndClose]
    {
        for policy in [None, Some(RetryPolicy::new()), Some(RetryPolicy::new().attempts(10))] {
            let (net, requests) = refusing_net(how);
            let client = client_with_policy(&net, policy);
            let start = Instant::now();
            let error = client.get(URL).send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exchange, "{how:?}: {error}");
            let connections = net.connections();
            let requests = requests.load(Ordering::SeqCst);
            assert!(connections <= 6 && requests <= 6, "{how:?}: {requests} requests on {connections} connections");
            assert!((ms(1_000)..ms(30_000)).contains(&start.elapsed()), "{how:?}: {:?}", start.elapsed());
            assert_eq!(client.pool_stats().leased, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_peer_that_refuses_four_hundred_calls_gets_few_of_them_again() {
    for how in [Refusal::ResetStream, Refusal::Goaway(NO_ERROR), Refusal::Goaway(ENHANCE_YOUR_CALM)] {
        let (net, requests) = refusing_net(how);
        let client = client_with_policy(&net, Some(RetryPolicy::new()));
        let start = Instant::now();
        let answers = join_all((0..400).map(|_| get(&client))).await;
        assert!(answers.iter().all(Result::is_err));
        // Resends have a budget of 100 plus 10 per second; the policy's retries one of 85 plus 1 in 10 s.
        let most = 400 + 100 + 85 + 11 * (start.elapsed().as_secs() as usize + 1);
        let requests = requests.load(Ordering::SeqCst);
        assert!(requests <= most, "{how:?}: {requests} of {most}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_pause_after_enhance_your_calm_and_then_succeed() {
    let start = Instant::now();
    let at = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = at.clone();
    let net = ScriptedNet::new(move |number, stream| {
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
    let client = client(&net, PoolConfig::new(), &recorder);
    for answer in join_all((0..10).map(|_| get(&client))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    let at = at.lock().unwrap();
    assert_eq!(at.len(), 3, "one dial at a time");
    let pauses = [at[1] - at[0], at[2] - at[1]];
    assert!((ms(100)..=ms(215)).contains(&pauses[0]) && (ms(200)..=ms(415)).contains(&pauses[1]), "{pauses:?}");
    assert!(recorder.count(|event| matches!(event, Event::Queued { limit: Limit::EnhanceYourCalm, .. })) > 0);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_call_under_which_the_server_complains_and_closes_says_so() {
    // The GOAWAY does not say that the request was not processed.
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let stream = peer.request().await.unwrap();
        peer.goaway(stream, ENHANCE_YOUR_CALM).await.unwrap();
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let error = client.post(URL).body("once").send().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (
            ErrorKind::Exchange,
            "POST http://api.test/: the server closed the connection (GOAWAY, ENHANCE_YOUR_CALM), and it is not known whether \
             the request arrived"
                .to_owned()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_in_http1_is_named_as_that() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    for cut in [0, 3, 5] {
        let net = ScriptedNet::new(move |_, mut stream| async move {
            let _ = stream.read(&mut [0; 1_024]).await;
            let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            for part in [&answer[..cut], &answer[cut..]] {
                let _ = stream.write_all(part).await;
                sleep(ms(5)).await;
            }
        });
        let client = client(&net, PoolConfig::new(), &Recorder::default());
        let text = client.post(URL).body("x").send().await.unwrap_err().to_string();
        let clause = "the server answers HTTP/2 in HTTP/1; http2_prior_knowledge, where it is set, is not for it";
        // The first attempt may have been turned away before it was sent.
        assert_eq!(text.trim_end_matches(" (after 2 attempts)"), format!("POST {URL}: {clause}"));
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_peer_that_allows_no_stream_costs_a_call_three_connections() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept_silently(stream).await else { return };
        while let Ok(stream) = peer.request().await {
            peer.allow(0).await.unwrap();
            peer.reset(stream, REFUSED_STREAM).await.unwrap();
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let error = client.get(URL).queue_timeout(ms(5_000)).send().await.unwrap_err();
    assert_eq!((error.kind(), net.connections()), (ErrorKind::Timeout(Phase::Queue), 3), "{error}");
}
