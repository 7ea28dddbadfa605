//! Hedging: requests whose answer is late are sent once more, and the first answer counts.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::http::StatusCode;
use speeddial::settings::HostConfig;
use speeddial::token::{Token, TokenSource};
use speeddial::trace::{Event, HedgeOutcome, HopEnd, Phase, RepeatCause, Timings};
use speeddial::transport::{Connecting, Transport};
use speeddial::{Body, Client, ClientBuilder, ErrorKind, HedgePolicy, PoolConfig, RetryPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};

use support::h2_peer::{CANCEL, H2Peer, RST_STREAM};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::{full, read_request_head, v4};

const URL: &str = "http://a.test/x";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What the server does with a request, after so many milliseconds.
#[derive(Debug, Clone, Copy)]
enum Act {
    Answer(u64),
    Busy(u64),
    Redirect(u64),
    /// Rejects the request's token.
    Deny(u64),
    /// Closes the connection in the middle of the head of its answer.
    Cut(u64),
    Never,
}

impl Act {
    fn after(self) -> Duration {
        match self {
            Self::Answer(after) | Self::Busy(after) | Self::Redirect(after) | Self::Deny(after) | Self::Cut(after) => {
                ms(after)
            }
            Self::Never => ms(1_000_000),
        }
    }

    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Answer(_) | Self::Never => b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            Self::Busy(_) => b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
            Self::Redirect(_) => b"HTTP/1.1 302 Found\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n",
            Self::Deny(_) => b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n",
            Self::Cut(_) => b"HTTP/1.1 2",
        }
    }
}

/// What a server saw: lines `milliseconds connection event`.
#[derive(Clone)]
struct Log(Arc<Mutex<(Instant, Vec<String>)>>);

impl Log {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((Instant::now(), Vec::new()))))
    }

    fn note(&self, connection: usize, event: &str) {
        let mut log = self.0.lock().unwrap();
        let line = format!("{} {connection} {event}", log.0.elapsed().as_millis());
        log.1.push(line);
    }

    /// Forgets what was seen; time begins anew.
    fn restart(&self) {
        *self.0.lock().unwrap() = (Instant::now(), Vec::new());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().1.clone()
    }
}

/// Returns a server that does the n-th act for the n-th request, and the last one for later requests.
fn server(acts: &[Act]) -> (ScriptedNet, Log) {
    let acts: Arc<[Act]> = acts.into();
    let count = Arc::new(AtomicUsize::new(0));
    let log = Log::new();
    let seen = log.clone();
    let net = ScriptedNet::new(move |number, stream| {
        let acts = acts.clone();
        let count = count.clone();
        let log = seen.clone();
        async move {
            let next = || acts[count.fetch_add(1, Ordering::SeqCst).min(acts.len() - 1)];
            serve(stream, number, next, &log).await;
        }
    });
    (net, log)
}

async fn serve(mut stream: DuplexStream, number: usize, next: impl Fn() -> Act, log: &Log) {
    loop {
        let Some(head) = read_request_head(&mut stream).await else { return log.note(number, "closed") };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        if stream.read_exact(&mut vec![0; length]).await.is_err() {
            return log.note(number, "closed");
        }
        log.note(number, "asked");
        let act = next();
        tokio::select! {
            () = sleep(act.after()) => {}
            _ = stream.read_u8() => return log.note(number, "closed"),
        }
        if stream.write_all(act.bytes()).await.is_err() || matches!(act, Act::Cut(_)) {
            return;
        }
    }
}

/// A policy that hedges after one answer, each request if need be.
fn eager() -> HedgePolicy {
    HedgePolicy::new().min_samples(1).budget(1.0)
}

fn builder(transport: impl Transport) -> ClientBuilder {
    let resolver = FixedResolver::new().with("a.test", [v4(1)]);
    Client::builder().dns_resolver(resolver).transport(transport).no_proxy().hedge(eager())
}

/// Makes the request from which the client learns how long answers take.
async fn warm(client: &Client, log: &Log) {
    assert_eq!(client.get(URL).send().await.unwrap().text().await.unwrap(), "ok");
    sleep(ms(1_000)).await;
    log.restart();
}

fn adds_up(timings: &Timings) {
    assert_eq!(Phase::ALL.map(|phase| timings.spent(phase)).iter().sum::<Duration>(), timings.total(), "{timings:?}");
    for hop in timings.hops() {
        assert_eq!(Phase::ALL.map(|phase| hop.spent(phase)).iter().sum::<Duration>(), hop.elapsed, "{hop:?}");
    }
}

fn outcomes(timings: &Timings) -> Vec<HedgeOutcome> {
    timings.hedges().iter().map(|hedge| hedge.outcome).collect()
}

/// Waits until what was closed is counted, and returns the connections in use and idle.
async fn in_use(client: &Client) -> (usize, usize) {
    sleep(ms(100)).await;
    (client.pool_stats().in_use, client.pool_stats().idle)
}

#[tokio::test(start_paused = true)]
async fn a_late_request_is_sent_once_more_and_the_first_connection_closes_if_the_second_answers() {
    let (net, log) = server(&[Act::Answer(20), Act::Never, Act::Answer(20)]);
    let recorder = Recorder::default();
    let client = builder(net).observer(recorder.clone()).build().unwrap();
    warm(&client, &log).await;
    let response = client.get(URL).send().await.unwrap();
    let handle = response.timings_handle();
    assert_eq!((response.text().await.unwrap(), handle.timings().total()), ("ok".to_owned(), ms(50)));
    let timings = handle.timings();
    assert_eq!(
        timings.to_string(),
        "50.0 ms = dns 0 (hit) + connect 10.0 ms + wait 40.0 ms, hedged (won), new 192.0.2.1:80"
    );
    let [hop] = timings.hops() else { panic!("{timings:?}") };
    assert_eq!((hop.end, hop.elapsed, hop.spent(Phase::Wait), hop.reused), (HopEnd::Hedged, ms(20), ms(20), true));
    assert_eq!((timings.hedges()[0].started, outcomes(&timings)), (ms(20), vec![HedgeOutcome::Won]));
    adds_up(&timings);
    #[cfg(feature = "serde")]
    {
        let value = serde_json::to_value(&timings).unwrap();
        assert_eq!(value["hedges"], serde_json::json!([{ "started_ns": 20_000_000, "outcome": "won" }]));
        assert_eq!((&value["hops"][0]["hedged"], &value["hops"][0]["repeated"]), (&true.into(), &().into()));
    }
    assert_eq!(in_use(&client).await, (0, 1));
    assert_eq!(log.lines(), ["0 0 asked", "30 1 asked", "50 0 closed"]);
    let after = recorder.pick(|event| match event {
        Event::Hedged { after, .. } => Some(*after),
        _ => None,
    });
    assert_eq!(after, [ms(20)]);
    let ends = recorder.count(|event| matches!(event, Event::BodyEnd { .. } | Event::CallFailed { .. }));
    let headers = recorder.count(|event| matches!(event, Event::Headers { .. }));
    let sent = recorder.count(|event| matches!(event, Event::RequestSent { .. }));
    assert_eq!((ends, headers, sent), (2, 2, 2), "nothing more is told of the attempt that lost");
}

#[tokio::test(start_paused = true)]
async fn the_second_attempt_is_cancelled_if_the_first_one_is_answered() {
    let (net, log) = server(&[Act::Answer(20), Act::Answer(40), Act::Never]);
    let client = builder(net).build().unwrap();
    warm(&client, &log).await;
    let response = client.get(URL).send().await.unwrap();
    let timings = response.timings();
    assert_eq!(timings.to_string(), "40.0 ms = wait 40.0 ms, hedged (lost), reused 192.0.2.1:80");
    assert_eq!((response.text().await.unwrap(), timings.hops().len()), ("ok".to_owned(), 0));
    assert!(format!("{timings:#}").contains("status 200, hedge lost"), "{timings:#}");
    adds_up(&timings);
    assert_eq!(in_use(&client).await, (0, 1));
    assert_eq!(log.lines(), ["0 0 asked", "30 1 asked", "40 1 closed"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_opened_for_a_second_attempt_in_vain_is_kept() {
    let (net, log) = server(&[Act::Answer(20), Act::Answer(25), Act::Answer(5)]);
    let client = builder(net.clone()).build().unwrap();
    warm(&client, &log).await;
    let timings = client.get(URL).send().await.unwrap().timings();
    assert_eq!((timings.total(), outcomes(&timings)), (ms(25), vec![HedgeOutcome::Lost]));
    assert_eq!((in_use(&client).await, net.connections()), ((0, 2), 2));
    assert_eq!(log.lines(), ["0 0 asked"]);
    // The next hedge takes it.
    let (net, log) = server(&[Act::Answer(20), Act::Answer(25), Act::Never, Act::Answer(10)]);
    let client = builder(net).build().unwrap();
    warm(&client, &log).await;
    client.get(URL).send().await.unwrap().text().await.unwrap();
    sleep(ms(1_000)).await;
    let timings = client.get(URL).send().await.unwrap().timings();
    assert_eq!((timings.total(), timings.reused(), timings.connect()), (ms(30), true, Duration::ZERO), "{timings}");
    adds_up(&timings);
}

#[tokio::test(start_paused = true)]
async fn if_one_attempt_fails_the_other_goes_on() {
    // The first one fails at 40 ms, the second one is answered at 80 ms.
    let (net, log) = server(&[Act::Answer(20), Act::Cut(40), Act::Answer(50)]);
    let client = builder(net).build().unwrap();
    warm(&client, &log).await;
    let response = client.get(URL).send().await.unwrap();
    let timings = response.timings();
    assert_eq!((timings.total(), outcomes(&timings)), (ms(80), vec![HedgeOutcome::Won]));
    assert_eq!((timings.hops().len(), response.text().await.unwrap()), (1, "ok".to_owned()));
    adds_up(&timings);
    assert_eq!(in_use(&client).await, (0, 1));
    // The second one fails at 40 ms, the first one is answered at 90 ms.
    let (net, log) = server(&[Act::Answer(20), Act::Answer(90), Act::Cut(10)]);
    let client = builder(net).build().unwrap();
    warm(&client, &log).await;
    let timings = client.get(URL).send().await.unwrap().timings();
    assert_eq!((timings.total(), outcomes(&timings)), (ms(90), vec![HedgeOutcome::Failed]));
    assert!(timings.hops().is_empty());
    adds_up(&timings);
    assert_eq!(log.lines(), ["0 0 asked", "30 1 asked"], "the second attempt is not resent");
    assert_eq!(in_use(&client).await, (0, 1));
}

#[tokio::test(start_paused = true)]
async fn if_both_attempts_fail_the_call_fails_when_the_last_one_does() {
    for (first, second, end) in [(40, 50, 80), (90, 10, 90)] {
        let (net, log) = server(&[Act::Answer(20), Act::Cut(first), Act::Cut(second)]);
        let recorder = Recorder::default();
        let client = builder(net).observer(recorder.clone()).build().unwrap();
        warm(&client, &log).await;
        let error = client.get(URL).send().await.unwrap_err();
        let timings = error.timings().unwrap();
        assert_eq!((error.kind(), timings.total()), (ErrorKind::Exchange, ms(end)), "{error}");
        assert_eq!((outcomes(timings), timings.failure()), (vec![HedgeOutcome::Failed], Some("exchange")));
        adds_up(timings);
        assert_eq!(in_use(&client).await, (0, 0));
        assert_eq!(recorder.count(|event| matches!(event, Event::CallFailed { .. })), 1);
    }
    // A retry policy retries the whole.
    let (net, log) = server(&[Act::Answer(20), Act::Cut(40), Act::Cut(50), Act::Answer(5)]);
    let client = builder(net).retry(RetryPolicy::new()).build().unwrap();
    warm(&client, &log).await;
    let timings = client.get(URL).send().await.unwrap().timings();
    assert_eq!((timings.hops().len(), outcomes(&timings)), (2, vec![HedgeOutcome::Failed]), "{timings}");
    adds_up(&timings);
}

/// A network that refuses all connections but the first.
#[derive(Clone)]
struct OneConnection(ScriptedNet, Arc<AtomicUsize>);

impl Transport for OneConnection {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        if self.1.fetch_add(1, Ordering::SeqCst) == 0 {
            return self.0.connect(address);
        }
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_without_a_connection_leaves_the_first_one_alone() {
    let acts = [Act::Answer(20), Act::Answer(60)];
    let (net, log) = server(&acts);
    let client = builder(OneConnection(net, Arc::default())).build().unwrap();
    warm(&client, &log).await;
    let timings = client.get(URL).send().await.unwrap().timings();
    assert_eq!((timings.total(), outcomes(&timings)), (ms(60), vec![HedgeOutcome::Failed]));
    adds_up(&timings);
}

#[tokio::test(start_paused = true)]
async fn where_the_pool_has_no_room_no_second_attempt_is_made() {
    let (net, log) = server(&[Act::Answer(20), Act::Answer(60), Act::Answer(60), Act::Never, Act::Answer(60)]);
    let recorder = Recorder::default();
    let policy = eager().budget(0.5);
    let pool = PoolConfig::new().max_connections_per_host(2);
    let client = builder(net.clone()).hedge(policy).pool(pool).observer(recorder.clone()).build().unwrap();
    warm(&client, &log).await;
    let one = || async { client.get(URL).send().await.unwrap().timings() };
    let (first, second) = tokio::join!(one(), one());
    for timings in [first, second] {
        assert_eq!((outcomes(&timings), timings.total() >= ms(60)), (vec![], true), "{timings}");
    }
    let hedges = || recorder.count(|event| matches!(event, Event::Hedged { .. }));
    assert_eq!((net.connections(), client.pool_stats().waiting, hedges()), (2, 0, 0));
    // The budget of the three requests is left.
    let timings = client.get(URL).send().await.unwrap().timings();
    assert_eq!((outcomes(&timings), hedges()), (vec![HedgeOutcome::Won], 1), "{timings}");
}

/// Two servers: the first one has the address that ends in 1.
#[derive(Clone)]
struct TwoServers(ScriptedNet, ScriptedNet);

impl Transport for TwoServers {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        if address.ip() == v4(1) { self.0.connect(address) } else { self.1.connect(address) }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_for_a_second_attempt_leads_to_another_address_if_there_is_one() {
    let (stalls, log) = server(&[Act::Answer(20), Act::Never]);
    let (answers, _) = server(&[Act::Answer(20)]);
    let resolver = FixedResolver::new().with("a.test", [v4(1), v4(2)]);
    let client = builder(TwoServers(stalls, answers)).dns_resolver(resolver).build().unwrap();
    warm(&client, &log).await;
    let response = client.get(URL).send().await.unwrap();
    let timings = response.timings();
    assert_eq!((timings.total(), outcomes(&timings)), (ms(50), vec![HedgeOutcome::Won]), "{timings}");
    assert_eq!(response.remote_addr().map(|address| address.ip()), Some(v4(2)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_refuses_the_second_attempt_does_not_count() {
    let (net, log) = server(&[Act::Answer(20), Act::Answer(90), Act::Busy(10)]);
    let recorder = Recorder::default();
    let client = builder(net).observer(recorder.clone()).build().unwrap();
    warm(&client, &log).await;
    let response = client.get(URL).send().await.unwrap();
    let timings = response.timings();
    assert_eq!((response.status(), timings.total()), (StatusCode::OK, ms(90)));
    assert_eq!(outcomes(&timings), [HedgeOutcome::Failed]);
    adds_up(&timings);
    drop(response);
    assert_eq!(in_use(&client).await, (0, 2), "the connection of the second attempt is kept");
    let ends = recorder.count(|event| matches!(event, Event::BodyEnd { .. } | Event::BodyDropped { .. }));
    assert_eq!(ends, 2, "one for each call");
}

#[tokio::test(start_paused = true)]
async fn a_redirect_that_answers_a_second_attempt_is_followed() {
    let (net, log) = server(&[Act::Answer(20), Act::Never, Act::Redirect(20), Act::Answer(5)]);
    let client = builder(net).build().unwrap();
    warm(&client, &log).await;
    let response = client.get(URL).send().await.unwrap();
    let timings = response.timings();
    assert_eq!((response.url().path(), timings.total()), ("/there", ms(55)));
    let ends: Vec<_> = timings.hops().iter().map(|hop| hop.end).collect();
    assert_eq!(ends, [HopEnd::Hedged, HopEnd::Redirected(StatusCode::FOUND)]);
    assert_eq!(response.text().await.unwrap(), "ok");
    adds_up(&timings);
    assert_eq!(in_use(&client).await, (0, 1));
}

#[tokio::test(start_paused = true)]
async fn only_idempotent_requests_with_bodies_of_bytes_are_sent_twice() {
    let stream = || Body::sized(1, futures_util::stream::iter([Ok::<_, io::Error>("x")]));
    let twice = ["get", "put", "key", "delete", "get if-none-match"];
    let once =
        ["post", "stream", "opted out", "upgrade", "put if-match", "put if-none-match", "delete if-unmodified-since"];
    for (name, hedges) in twice.map(|name| (name, 1)).into_iter().chain(once.map(|name| (name, 0))) {
        let (net, log) = server(&[Act::Answer(20), Act::Answer(60)]);
        let recorder = Recorder::default();
        let client = builder(net).observer(recorder.clone()).build().unwrap();
        warm(&client, &log).await;
        let request = match name {
            "get" => client.get(URL),
            "put" => client.put(URL).body("x"),
            "key" => client.post(URL).body("x").header("idempotency-key", "\"8e03978e\""),
            "delete" => client.delete(URL),
            "get if-none-match" => client.get(URL).header("if-none-match", "\"1\""),
            "post" => client.post(URL).body("x"),
            "opted out" => client.get(URL).hedge(HedgePolicy::none()),
            "upgrade" => client.get(URL).header("connection", "upgrade").header("upgrade", "x"),
            "put if-match" => client.put(URL).body("x").header("if-match", "\"1\""),
            "put if-none-match" => client.put(URL).body("x").header("if-none-match", "*"),
            "delete if-unmodified-since" => {
                client.delete(URL).header("if-unmodified-since", "Mon, 23 Nov 2026 14:00:00 GMT")
            }
            _ => client.put(URL).body(stream()),
        };
        let timings = request.send().await.unwrap().timings();
        assert_eq!((timings.hedges().len(), timings.total()), (hedges, ms(60)), "{name}");
        assert_eq!(recorder.count(|event| matches!(event, Event::Hedged { .. })), hedges, "{name}");
    }
}

#[cfg(feature = "sse")]
#[tokio::test(start_paused = true)]
async fn an_event_source_is_not_hedged() {
    let (net, log) = server(&[Act::Answer(20), Act::Answer(60)]);
    let recorder = Recorder::default();
    let client = builder(net).observer(recorder.clone()).build().unwrap();
    warm(&client, &log).await;
    let mut events = client.get(URL).event_source().unwrap();
    let error = futures_util::StreamExt::next(&mut events).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode, "the answer is no event stream");
    assert_eq!(recorder.count(|event| matches!(event, Event::Hedged { .. })), 0);
}

#[tokio::test(start_paused = true)]
async fn a_policy_without_a_floor_waits_for_the_connection() {
    let (net, log) = server(&[Act::Answer(0), Act::Answer(40), Act::Answer(20)]);
    let client = builder(net).hedge(eager().floor(Duration::ZERO)).build().unwrap();
    warm(&client, &log).await;
    client.close_idle();
    let timings = client.get(URL).send().await.unwrap().timings();
    assert!(timings.total() <= ms(50) && timings.hedges()[0].started >= ms(10), "{timings:?}");
    adds_up(&timings);
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_replaces_a_rejected_token_of_its_own() {
    let refreshes = Arc::new(AtomicUsize::new(0));
    let counted = refreshes.clone();
    let source = TokenSource::new(move || {
        let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            sleep(ms(5)).await;
            Ok::<_, io::Error>(Token::new(format!("t{number}")))
        }
    });
    let (net, log) = server(&[Act::Answer(20), Act::Never, Act::Deny(20), Act::Answer(20)]);
    let client = builder(net).token_source(source).build().unwrap();
    warm(&client, &log).await;
    let response = client.get(URL).send().await.unwrap();
    let timings = response.timings();
    let ends: Vec<_> = timings.hops().iter().map(|hop| hop.end).collect();
    assert_eq!(ends, [HopEnd::Hedged, HopEnd::Repeated(RepeatCause::Unauthorized)]);
    // Hedged at 20 ms, connected at 30 ms, rejected at 50 ms, with a new token at 55 ms.
    assert_eq!((timings.total(), outcomes(&timings)), (ms(75), vec![HedgeOutcome::Won]), "{timings:?}");
    assert_eq!((response.text().await.unwrap(), refreshes.load(Ordering::SeqCst)), ("ok".to_owned(), 2));
    adds_up(&timings);
    assert_eq!(in_use(&client).await, (0, 1));
    tokio::time::timeout(ms(100), client.drain()).await.unwrap();
}

#[cfg(feature = "cookies")]
#[tokio::test(start_paused = true)]
async fn both_attempts_have_the_cookies_and_that_which_answers_sets_them() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let log = heads.clone();
    let net = ScriptedNet::new(move |number, mut stream| {
        let heads = log.clone();
        async move {
            while let Some(head) = read_request_head(&mut stream).await {
                let cookie = head.lines().find_map(|line| line.strip_prefix("cookie: ")).unwrap_or("none");
                let count = {
                    let mut heads = heads.lock().unwrap();
                    heads.push(cookie.to_owned());
                    heads.len()
                };
                // The second request is answered late.
                sleep(if count == 2 { ms(1_000) } else { ms(20) }).await;
                let response = format!("HTTP/1.1 200 OK\r\nset-cookie: n={number}\r\ncontent-length: 2\r\n\r\nok");
                if stream.write_all(response.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    });
    let client = builder(net).cookie_store(true).build().unwrap();
    for outcome in [vec![], vec![HedgeOutcome::Won], vec![]] {
        let response = client.get(URL).send().await.unwrap();
        assert_eq!(outcomes(&response.timings()), outcome);
        response.text().await.unwrap();
        sleep(ms(100)).await;
    }
    assert_eq!(*heads.lock().unwrap(), ["none", "n=0", "n=0", "n=1"]);
}

mod layers {
    use speeddial::layers::AttemptService;
    use tower::layer::layer_fn;
    use tower::{ServiceExt, service_fn};

    use super::*;

    /// Returns a client whose attempts each wait so many milliseconds in a layer; later ones as long as the last one.
    fn delayed(net: ScriptedNet, waits: &[u64]) -> (Client, Arc<AtomicUsize>) {
        let waits: Arc<[u64]> = waits.into();
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = attempts.clone();
        let layer = layer_fn(move |inner: AttemptService| {
            let waits = waits.clone();
            let counted = counted.clone();
            service_fn(move |request| {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let wait = ms(waits[number.min(waits.len() - 1)]);
                let inner = inner.clone();
                async move {
                    sleep(wait).await;
                    inner.oneshot(request).await
                }
            })
        });
        (builder(net).attempt_layer(layer).build().unwrap(), attempts)
    }

    #[tokio::test(start_paused = true)]
    async fn each_of_two_attempts_has_its_layers() {
        let (net, log) = server(&[Act::Answer(20), Act::Never, Act::Answer(20)]);
        let (client, attempts) = delayed(net, &[0, 0, 5]);
        warm(&client, &log).await;
        let response = client.get(URL).send().await.unwrap();
        let timings = response.timings();
        // Hedged at 20 ms, out of the layer at 25 ms, connected at 35 ms.
        assert_eq!((timings.total(), outcomes(&timings)), (ms(55), vec![HedgeOutcome::Won]), "{timings:?}");
        adds_up(&timings);
        assert_eq!((response.text().await.unwrap(), attempts.load(Ordering::SeqCst)), ("ok".to_owned(), 3));
        assert_eq!(in_use(&client).await, (0, 1));
        // The first attempt wins while the second one is in its layer.
        let (net, log) = server(&[Act::Answer(20), Act::Answer(30)]);
        let (client, _) = delayed(net.clone(), &[0, 0, 50]);
        warm(&client, &log).await;
        let timings = client.get(URL).send().await.unwrap().timings();
        assert_eq!((timings.total(), outcomes(&timings)), (ms(30), vec![HedgeOutcome::Lost]));
        assert_eq!((in_use(&client).await, net.connections()), ((0, 1), 1));
        tokio::time::timeout(ms(100), client.drain()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_a_second_attempt_in_a_layer() {
        // Hedged at 20 ms. The first attempt fails at 40 ms, the second one is in its layer until 70 ms.
        let (net, log) = server(&[Act::Answer(20), Act::Cut(40), Act::Answer(20)]);
        let (client, _) = delayed(net, &[0, 0, 50]);
        warm(&client, &log).await;
        let start = Instant::now();
        let call = async {
            let _ = client.get(URL).send().await;
            start.elapsed()
        };
        let drain = async {
            sleep(ms(30)).await;
            client.drain().await;
            start.elapsed()
        };
        let (called, drained) = tokio::join!(call, drain);
        assert!(called >= ms(70) && drained >= called, "{called:?} {drained:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_hedged_only_once_enough_is_known_and_within_the_budget() {
    let mut acts = vec![Act::Answer(20); 20];
    acts.push(Act::Answer(100));
    let (net, _) = server(&acts);
    let client = builder(net).hedge(HedgePolicy::new()).build().unwrap();
    let mut hedges = Vec::new();
    let mut refused = Vec::new();
    for _ in 0..24 {
        let response = client.get(URL).send().await.unwrap();
        hedges.push(response.timings().hedges().len());
        refused.push(response.timings().over_budget().len());
        response.text().await.unwrap();
    }
    assert_eq!(hedges[..20], [0; 20], "the first twenty are fast, and measured");
    assert_eq!(hedges[20..], [1, 0, 0, 0], "a twentieth of twenty-one requests is one");
    assert_eq!(refused[20..], [0, 1, 1, 1], "the others would have been over the budget");
    let (net, log) = server(&[Act::Answer(20), Act::Answer(100)]);
    let client = builder(net).hedge(eager().floor(ms(70))).build().unwrap();
    warm(&client, &log).await;
    assert_eq!(client.get(URL).send().await.unwrap().timings().hedges()[0].started, ms(70), "the floor");
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_a_host_or_of_a_request_replaces_the_clients() {
    let fixed = |ms_| HedgePolicy::after(ms(ms_)).budget(1.0);
    let of_host = HostConfig::new().hedge(fixed(30));
    for (of_host, of_request, hedged) in [
        (None, None, None),
        (Some(of_host.clone()), None, Some(ms(40))),
        (Some(of_host.clone()), Some(fixed(40)), Some(ms(50))),
        (Some(of_host), Some(HedgePolicy::none()), None),
        (None, Some(fixed(0)), Some(ms(10))),
        (None, Some(HedgePolicy::after(ms(5))), Some(ms(15))),
    ] {
        let (net, _) = server(&[Act::Answer(60)]);
        let mut builder = builder(net);
        if let Some(config) = of_host {
            builder = builder.for_host("a.test", config);
        }
        let request = builder.build().unwrap().get(URL);
        let request = match of_request {
            Some(policy) => request.hedge(policy),
            None => request,
        };
        let timings = request.send().await.unwrap().timings();
        assert_eq!(timings.hedges().first().map(|hedge| hedge.started), hedged, "the connection takes 10 ms");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_policies_of_their_own_do_not_change_the_wait_of_others() {
    let (net, log) = server(&[Act::Answer(20), Act::Answer(300), Act::Answer(300), Act::Answer(300), Act::Answer(500)]);
    let client = builder(net).build().unwrap();
    warm(&client, &log).await;
    for own in [HedgePolicy::none(), HedgePolicy::none(), HedgePolicy::none()] {
        client.get(URL).hedge(own).send().await.unwrap();
    }
    assert_eq!(client.get(URL).send().await.unwrap().timings().hedges()[0].started, ms(20));
}

#[tokio::test(start_paused = true)]
async fn a_hedge_over_the_budget_changes_no_phase_of_the_attempt_that_waits() {
    let (net, log) = server(&[Act::Answer(20), Act::Answer(40)]);
    let client = builder(net).hedge(eager().budget(0.01)).build().unwrap();
    warm(&client, &log).await;
    let response = client.get(URL).send().await.unwrap();
    let timings = response.timings();
    assert_eq!(timings.over_budget().len(), 1);
    assert_eq!([Phase::Send, Phase::Wait].map(|phase| timings.spent(phase)), [ms(0), ms(40)], "{timings}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_begins_with_the_connection() {
    let (net, log) = server(&[Act::Answer(20), Act::Answer(100)]);
    let client = builder(net).build().unwrap();
    warm(&client, &log).await;
    client.close_idle();
    let timings = client.get(URL).send().await.unwrap().timings();
    assert_eq!((timings.connect(), timings.hedges()[0].started), (ms(10), ms(30)));
    adds_up(&timings);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_covers_both_attempts() {
    // At 25 ms the second attempt is being connected, and at 30 ms it gets its connection.
    for (limit, outcome) in [(100, HedgeOutcome::Timeout), (25, HedgeOutcome::Timeout), (30, HedgeOutcome::Timeout)] {
        let (net, log) = server(&[Act::Answer(20), Act::Never]);
        let recorder = Recorder::default();
        let client = builder(net).observer(recorder.clone()).build().unwrap();
        warm(&client, &log).await;
        let error = client.get(URL).timeout(ms(limit)).send().await.unwrap_err();
        let timings = error.timings().unwrap();
        assert_eq!((error.kind(), timings.total()), (ErrorKind::Timeout(Phase::Wait), ms(limit)), "{error}");
        assert_eq!(outcomes(timings), [outcome], "{error}");
        adds_up(timings);
        assert_eq!(in_use(&client).await.0, 0);
        assert_eq!(recorder.count(|event| matches!(event, Event::CallFailed { .. })), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_time_releases_both_attempts() {
    for after in 0..70 {
        for acts in [[Act::Answer(20), Act::Never, Act::Answer(30)], [Act::Answer(20), Act::Cut(40), Act::Never]] {
            let (net, log) = server(&acts);
            let client = builder(net.clone()).build().unwrap();
            warm(&client, &log).await;
            drop(tokio::time::timeout(ms(after), client.get(URL).send()).await);
            let (in_use, idle) = in_use(&client).await;
            assert_eq!((in_use, net.open()), (0, idle), "{after} ms");
            tokio::time::timeout(ms(100), client.drain()).await.unwrap();
            assert_eq!(net.open(), 0, "{after} ms");
        }
    }
}

/// Makes a hedged call after a warm one, and drains the client meanwhile. Returns the call's body, and when the drain ended.
async fn drained(acts: &[Act], drained_at: u64) -> (String, Duration) {
    let (net, log) = server(acts);
    let client = builder(net).build().unwrap();
    warm(&client, &log).await;
    let start = Instant::now();
    let call = async { client.get(URL).send().await.unwrap().text().await.unwrap() };
    let drain = async {
        sleep(ms(drained_at)).await;
        client.drain().await;
        start.elapsed()
    };
    tokio::join!(call, drain)
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_the_attempt_that_is_left() {
    let acts = [Act::Answer(20), Act::Cut(40), Act::Answer(50)];
    assert_eq!(drained(&acts, 35).await, ("ok".to_owned(), ms(80)));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_a_second_attempt_that_is_being_connected() {
    // The second attempt is being connected from 20 ms to 30 ms.
    let acts = [Act::Answer(20), Act::Cut(25), Act::Answer(20)];
    assert_eq!(drained(&acts, 22).await, ("ok".to_owned(), ms(50)));
}

/// Returns an HTTP/2 server whose connections answer their first request after 20 ms and later ones after 100 ms.
fn http2_server() -> (ScriptedNet, Log) {
    let log = Log::new();
    let seen = log.clone();
    let net = ScriptedNet::new(move |number, stream| {
        let log = seen.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let mut due: Vec<(Instant, u32)> = Vec::new();
            let mut wait = ms(20);
            loop {
                let next = due.first().map_or(Instant::now() + ms(1_000_000), |(at, _)| *at);
                tokio::select! {
                    biased;
                    frame = peer.next() => match frame {
                        Ok(frame) if frame.ends() => {
                            log.note(number, "asked");
                            due.push((Instant::now() + wait, frame.stream));
                            wait = ms(100);
                        }
                        Ok(frame) if frame.kind == RST_STREAM => {
                            assert_eq!(frame.payload, CANCEL.to_be_bytes());
                            due.retain(|(_, stream)| *stream != frame.stream);
                            log.note(number, "reset");
                        }
                        Ok(_) => {}
                        Err(_) => return log.note(number, "closed"),
                    },
                    () = tokio::time::sleep_until(next) => {
                        let (_, stream) = due.remove(0);
                        let _ = peer.answer(stream).await;
                    }
                }
            }
        }
    });
    (net, log)
}

#[tokio::test(start_paused = true)]
async fn over_http2_the_second_attempt_is_on_another_connection() {
    let (net, log) = http2_server();
    let client = builder(net.clone()).http2_prior_knowledge().build().unwrap();
    warm(&client, &log).await;
    let response = client.get(URL).send().await.unwrap();
    let timings = response.timings();
    assert_eq!((timings.total(), outcomes(&timings)), (ms(50), vec![HedgeOutcome::Won]), "{timings}");
    assert_eq!(response.text().await.unwrap(), "ok");
    adds_up(&timings);
    assert_eq!((in_use(&client).await, net.open()), ((0, 2), 2), "the stream is reset, the connection stays");
    assert_eq!(log.lines(), ["0 0 asked", "30 1 asked", "50 0 reset"]);
    // Both connections answer after 100 ms now, so the first attempt wins.
    log.restart();
    let timings = client.get(URL).send().await.unwrap().timings();
    assert_eq!((timings.total(), outcomes(&timings)), (ms(100), vec![HedgeOutcome::Lost]), "{timings}");
    adds_up(&timings);
    sleep(ms(100)).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    let connection = |line: &str| line.split(' ').nth(1).map(str::to_owned);
    assert_ne!(connection(&lines[0]), connection(&lines[1]));
    assert_eq!((connection(&lines[1]), lines[2].ends_with("reset")), (connection(&lines[2]), true));
    // With one connection at most there is no second attempt.
    let (net, log) = http2_server();
    let pool = PoolConfig::new().max_http2_connections_per_host(1);
    let client = builder(net.clone()).http2_prior_knowledge().pool(pool).build().unwrap();
    warm(&client, &log).await;
    let timings = client.get(URL).send().await.unwrap().timings();
    assert_eq!((timings.total(), outcomes(&timings)), (ms(100), vec![]));
    assert_eq!((net.connections(), log.lines()), (1, vec!["0 0 asked".to_owned()]));
}

#[tokio::test]
async fn a_stalled_answer_of_a_real_server_is_not_waited_for() {
    let count = Arc::new(AtomicUsize::new(0));
    let requests = count.clone();
    let server = support::http_server::HttpServer::start(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move {
            if number == 30 {
                sleep(Duration::from_secs(60)).await;
            }
            hyper::Response::new(full("ok"))
        }
    })
    .unwrap();
    let client = Client::builder().no_proxy().hedge(HedgePolicy::new().floor(Duration::from_secs(2))).build().unwrap();
    let url = format!("http://{}/", server.address());
    let mut won = 0;
    for _ in 0..40 {
        let response = client.get(&url).timeout(Duration::from_secs(50)).send().await.unwrap();
        won += outcomes(&response.timings()).iter().filter(|outcome| **outcome == HedgeOutcome::Won).count();
        assert_eq!(response.text().await.unwrap(), "ok");
    }
    assert!(won >= 1 && (41..=42).contains(&requests.load(Ordering::SeqCst)), "{won}");
}
