//! Retries by the user's policy, resends, and the timeouts of a call, in paused time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use speeddial::dns::{Answer, Family, FixedResolver, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};
use speeddial::http::{Method, StatusCode};
use speeddial::trace::{Budgeted, Event, HopEnd, Phase, RepeatCause};
use speeddial::transport::{Connecting, Transport};
use speeddial::{Body, Client, ClientBuilder, ErrorKind, PoolConfig, RetryPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use support::net_by_path::NetByPath;
use support::recorder::Recorder;
use support::scripted_net::{ScriptedNet, UncleanNet};
use support::{read_request_head, v4};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The requests of a server: the time of each in milliseconds, and its request line or what else was noted of it.
type Seen = Arc<Mutex<Vec<(u64, String)>>>;

/// Returns a server that gives the n-th request the n-th answer, and later ones the last answer. An empty answer is a close.
fn server(answers: &[&str]) -> (ScriptedNet, Seen) {
    noting_server(answers, |head| head.lines().next().unwrap().to_owned())
}

/// Returns such a server, which keeps what `note` returns for the head of each request.
fn noting_server(answers: &[&str], note: fn(&str) -> String) -> (ScriptedNet, Seen) {
    let answers = Arc::new(answers.iter().map(|&answer| answer.to_owned()).collect::<Vec<_>>());
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Seen::default();
    let log = seen.clone();
    let start = Instant::now();
    let net = ScriptedNet::new(move |_, mut stream| {
        let answers = answers.clone();
        let count = count.clone();
        let log = log.clone();
        async move {
            loop {
                let Some(head) = read_request_head(&mut stream).await else { return };
                let length =
                    head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
                if stream.read_exact(&mut vec![0; length]).await.is_err() {
                    return;
                }
                log.lock().unwrap().push((start.elapsed().as_millis() as u64, note(&head)));
                let number = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
                if answers[number].is_empty() || stream.write_all(answers[number].as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    });
    (net, seen)
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const BUSY: &str = "HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy";
const IN_2_S: &str = "HTTP/1.1 429 Slow down\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n";
const IN_AN_HOUR: &str = "HTTP/1.1 429 Slow down\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n";

fn builder(transport: impl Transport) -> ClientBuilder {
    let resolver = FixedResolver::new().with("a.test", [v4(1)]).with("dead.test", [v4(3)]).with("silent.test", [v4(4)]);
    Client::builder().dns_resolver(resolver).transport(transport).no_proxy()
}

const URL: &str = "http://a.test/x";

#[tokio::test(start_paused = true)]
async fn a_503_is_retried_with_growing_backoffs() {
    for _ in 0..50 {
        let (net, seen) = server(&[BUSY, BUSY, OK]);
        let recorder = Recorder::default();
        let client = builder(net.clone()).retry(RetryPolicy::new()).observer(recorder.clone()).build().unwrap();
        let response = client.get(URL).send().await.unwrap();
        let timings = response.timings();
        assert_eq!(response.text().await.unwrap(), "ok");
        let at: Vec<_> = seen.lock().unwrap().iter().map(|(at, _)| *at).collect();
        assert!(at[1] - at[0] <= 101 && at[2] - at[1] <= 201, "{at:?}");
        assert_eq!(net.connections(), 1, "the bodies of discarded responses are read");
        let causes: Vec<_> = recorder.pick(|event| match event {
            Event::Repeated { cause, .. } => Some(*cause),
            _ => None,
        });
        assert_eq!(causes, [RepeatCause::Status(StatusCode::SERVICE_UNAVAILABLE); 2]);
        assert_eq!(timings.hops().len(), 2);
        assert_eq!(
            (timings.backoff(), timings.queue(), timings.send()),
            (ms(at[2] - at[0]), Duration::ZERO, Duration::ZERO),
            "backoffs are a phase of their own"
        );
        let backoffs = timings.hops().iter().map(|hop| hop.spent(Phase::Backoff)).collect::<Vec<_>>();
        assert_eq!(backoffs, [Duration::ZERO, ms(at[1] - at[0])], "a backoff belongs to the attempt after it");
        assert_eq!(Phase::ALL.iter().map(|phase| timings.spent(*phase)).sum::<Duration>(), timings.total());
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_response_is_returned_and_without_a_policy_the_first() {
    let (net, seen) = server(&[BUSY]);
    let client = builder(net).retry(RetryPolicy::new().attempts(4)).build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    assert_eq!((response.status().as_u16(), seen.lock().unwrap().len()), (503, 4));
    assert_eq!(response.text().await.unwrap(), "busy");
    let (net, seen) = server(&[BUSY]);
    assert_eq!(builder(net).build().unwrap().get(URL).send().await.unwrap().status().as_u16(), 503);
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_idempotent_is_retried_only_with_an_idempotency_key() {
    let attempts = async |method: Method, key: bool, body: Body| {
        let (net, seen) = server(&[BUSY, OK]);
        let client = builder(net).retry(RetryPolicy::new()).build().unwrap();
        let request = client.request(method, URL).body(body);
        let request = if key { request.header("idempotency-key", "\"8e03978e\"") } else { request };
        request.send().await.unwrap();
        seen.lock().unwrap().len()
    };
    for (method, plain) in
        [(Method::GET, 2), (Method::PUT, 2), (Method::DELETE, 2), (Method::POST, 1), (Method::PATCH, 1)]
    {
        assert_eq!(attempts(method.clone(), false, "x".into()).await, plain, "{method}");
        assert_eq!(attempts(method.clone(), true, "x".into()).await, 2, "{method} with a key");
        let stream = Body::sized(1, futures_util::stream::iter([Ok::<_, std::io::Error>("x")]));
        assert_eq!(attempts(method.clone(), true, stream).await, 1, "{method} with a stream");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_kept_connection_that_ends_without_close_notify_costs_no_get() {
    for (method, requests) in [(Method::GET, 3), (Method::POST, 2)] {
        let (net, seen) = server(&[OK, "", OK]);
        let client = builder(UncleanNet(net)).build().unwrap();
        client.get(URL).send().await.unwrap().text().await.unwrap();
        let sent = client.request(method.clone(), URL).send().await;
        assert_eq!((sent.is_ok(), seen.lock().unwrap().len()), (method == Method::GET, requests), "{method}: {sent:?}");
        if let Err(error) = sent {
            assert!(
                error.to_string().contains("the connection closed without a response, and it is not known"),
                "{error}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_write_on_a_condition_is_not_sent_again_when_its_connection_closes() {
    for (condition, requests) in [("if-none-match", 2), ("if-match", 2), ("accept", 3)] {
        let (net, seen) = server(&[OK, "", OK]);
        let client = builder(net).build().unwrap();
        client.get(URL).send().await.unwrap().text().await.unwrap();
        let sent = client.put(URL).header(condition, "*").body("x").send().await;
        assert_eq!((sent.is_ok(), seen.lock().unwrap().len()), (requests == 3, requests), "{condition}: {sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_makes_a_post_safe_to_resend() {
    for (key, requests) in [(false, 2), (true, 3)] {
        let (net, seen) = server(&[OK, "", OK]);
        let client = builder(net).build().unwrap();
        client.get(URL).send().await.unwrap().text().await.unwrap();
        let request = client.post(URL).body("x");
        let request = if key { request.header("idempotency-key", "\"8e03978e\"") } else { request };
        assert_eq!(request.send().await.is_ok(), key);
        assert_eq!(seen.lock().unwrap().len(), requests);
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_the_headers_of_the_request() {
    const MOVED: &str = "HTTP/1.1 307 Moved\r\nlocation: /y\r\ncontent-length: 0\r\n\r\n";
    const LATE: &str = "HTTP/1.1 408 Idle\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let (net, seen) = noting_server(&[OK, "", BUSY, MOVED, LATE, OK], |head| {
        let mut own: Vec<_> = head.lines().filter(|line| line.starts_with("x-") || line.starts_with("auth")).collect();
        own.sort_unstable();
        own.join(", ")
    });
    let policy = RetryPolicy::new().statuses([StatusCode::SERVICE_UNAVAILABLE, StatusCode::REQUEST_TIMEOUT]);
    let client = builder(net).retry(policy).build().unwrap();
    client.get(URL).send().await.unwrap().text().await.unwrap();
    let request = client.get(URL).header("x-own", "1").header("x-own", "2").bearer_auth("secret");
    assert_eq!(request.send().await.unwrap().text().await.unwrap(), "ok");
    let seen: Vec<_> = seen.lock().unwrap().iter().skip(1).map(|(_, own)| own.clone()).collect();
    assert_eq!(seen, ["authorization: Bearer secret, x-own: 1, x-own: 2"; 5]);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_within_the_deadline() {
    let (net, seen) = server(&[IN_2_S, OK]);
    let client = builder(net).retry(RetryPolicy::new()).build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    let at: Vec<_> = seen.lock().unwrap().iter().map(|(at, _)| *at).collect();
    assert!((2_000..=2_001).contains(&(at[1] - at[0])), "{at:?}");
    assert_eq!(
        response.timings().to_string(),
        "2.01 s = backoff 2.00 s + connect 10.0 ms, retried (status 429), reused 192.0.2.1:80"
    );
    for (answer, timeout) in [(IN_AN_HOUR, ms(100_000)), (IN_2_S, ms(1_500))] {
        let (net, seen) = server(&[answer, OK]);
        let client = builder(net).retry(RetryPolicy::new()).build().unwrap();
        let start = Instant::now();
        let response = client.get(URL).timeout(timeout).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 429, "there is no time for another attempt");
        assert!(start.elapsed() < ms(100) && seen.lock().unwrap().len() == 1);
    }
}

#[tokio::test(start_paused = true)]
async fn connect_failures_are_retried_and_permanent_failures_are_not() {
    let recorder = Recorder::default();
    let client = builder(NetByPath::default()).retry(RetryPolicy::new()).observer(recorder.clone()).build().unwrap();
    let attempts = |recorder: &Recorder| recorder.count(|event| matches!(event, Event::AttemptStart { .. }));
    let error = client.post("http://dead.test/").body("x").send().await.unwrap_err();
    assert!(error.is_connect() && attempts(&recorder) == 3, "nothing was sent: {error}");
    let error = client.get("http://unknown.test/").send().await.unwrap_err();
    assert!(error.is_dns());
    let repeats = recorder.count(|event| matches!(event, Event::Repeated { cause: RepeatCause::Failed, .. }));
    assert_eq!(repeats, 2, "that there is no such name is remembered");
    for path in ["stale", "die"] {
        let before = recorder.count(|event| matches!(event, Event::Repeated { .. }));
        let _ = client.get(format!("http://a.test/{path}")).send().await.map(|response| response.bytes());
        assert_eq!(recorder.count(|event| matches!(event, Event::Repeated { .. })), before, "{path}");
    }
    // A headers timeout is retried, but not for a POST, which the server may have processed.
    let headers_timeout = ms(100);
    let before = recorder.count(|event| matches!(event, Event::Leased { .. }));
    assert!(client.get("http://a.test/never").headers_timeout(headers_timeout).send().await.unwrap_err().is_timeout());
    assert_eq!(recorder.count(|event| matches!(event, Event::Leased { .. })), before + 3);
    assert!(client.post("http://a.test/never").headers_timeout(headers_timeout).send().await.unwrap_err().is_timeout());
    assert_eq!(recorder.count(|event| matches!(event, Event::Leased { .. })), before + 4);
}

#[tokio::test(start_paused = true)]
async fn the_retry_budget_limits_the_requests_of_an_outage() {
    let (net, seen) = server(&[BUSY]);
    let client = builder(net).retry(RetryPolicy::new().attempts(5)).build().unwrap();
    join_all((0..1_000).map(|_| async { client.get(URL).send().await.unwrap().bytes().await.unwrap() })).await;
    let requests = seen.lock().unwrap().len();
    assert!((1_100..1_250).contains(&requests), "1,000 calls with a saved budget of 100: {requests}");
}

#[cfg(feature = "json")]
#[tokio::test(start_paused = true)]
async fn a_budget_has_nothing_to_do_with_a_body_that_is_no_json() {
    let (net, _) = server(&[BUSY]);
    let client = builder(net).retry(RetryPolicy::new().budget(0.0, 0.0)).build().unwrap();
    let broken = client.get(URL).send().await.unwrap().json::<u32>().await.unwrap_err().to_string();
    assert!(!broken.contains("budget"), "{broken}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_over_the_budget_is_told() {
    let (net, _) = server(&[BUSY]);
    let recorder = Recorder::default();
    let policy = RetryPolicy::new().budget(0.0, 0.0);
    let client = builder(net).retry(policy.clone()).observer(recorder.clone()).build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.timings().over_budget(), [Budgeted::Retry]);
    let told = "not retried, since the origin's retry budget is used up";
    let failed = response.error_for_status().unwrap_err().to_string();
    assert!(failed.contains(told), "{failed}");
    let refusing = builder(NetByPath::default()).retry(policy).observer(recorder.clone()).build().unwrap();
    let dead = refusing.get("http://dead.test/").send().await.unwrap_err().to_string();
    assert!(dead.contains(told), "{dead}");
    // A request that the policy would not retry is refused nothing.
    let posted = client.post(URL).send().await.unwrap();
    assert!(posted.timings().over_budget().is_empty());
    let events = recorder.count(|event| matches!(event, Event::OverBudget { repeat: Budgeted::Retry, .. }));
    assert_eq!(events, 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_says_why_it_was_not_retried() {
    const IN_120_S: &str = "HTTP/1.1 503 S\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n";
    let (net, _) = server(&[IN_120_S, BUSY, IN_2_S, BUSY, BUSY, BUSY]);
    let client = builder(net).retry(RetryPolicy::new()).build().unwrap();
    let told = async |request: speeddial::RequestBuilder| {
        let text = request.send().await.unwrap().error_for_status().unwrap_err().to_string();
        text.split_once("; ").map(|(_, why)| why.to_owned()).unwrap_or(text)
    };
    assert_eq!(told(client.get(URL)).await, "not retried, since Retry-After 120 s is above 60 s");
    let acted = "not retried, since the server may have acted on it, and it is not idempotent";
    assert_eq!(told(client.post(URL)).await, acted);
    let stream = futures_util::stream::iter([Ok::<_, std::io::Error>("x")]);
    let (other, _) = server(&[BUSY]);
    let gone = builder(other).retry(RetryPolicy::new()).build().unwrap().put(URL).body(Body::wrap_stream(stream));
    let gone = told(gone).await;
    assert_eq!(gone, "not retried, since its body was a stream, which cannot be sent again");
    let late = told(client.get(URL).timeout(ms(1_500))).await;
    assert_eq!(late, "not retried, since the call has no time left for a wait of 2 s");
    assert!(told(client.get(URL)).await.ends_with("(after 3 attempts)"), "that is the reason");
    let (closing, _) = server(&[OK, ""]);
    let client = builder(closing).build().unwrap();
    client.get(URL).send().await.unwrap().bytes().await.unwrap();
    let stream = futures_util::stream::iter([Ok::<_, std::io::Error>("x")]);
    let closed = client.put(URL).body(Body::wrap_stream(stream)).send().await.unwrap_err().to_string();
    assert!(closed.ends_with("; not resent, since its body was a stream, which cannot be sent again"), "{closed}");
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_during_its_backoff_leaks_nothing() {
    let (net, _) = server(&[IN_2_S]);
    let recorder = Recorder::default();
    let client = builder(net).retry(RetryPolicy::new()).observer(recorder.clone()).build().unwrap();
    assert!(tokio::time::timeout(ms(500), client.get(URL).send()).await.is_err());
    let ends = recorder.pick(|event| match event {
        Event::CallFailed { phase, why, .. } => Some((*phase, *why)),
        _ => None,
    });
    assert_eq!(ends, [(Phase::Backoff, "cancelled")]);
    tokio::time::timeout(ms(200), client.drain()).await.unwrap();
    assert_eq!((client.pool_stats().idle, client.pool_stats().in_use), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_during_a_backoff_is_a_timeout_in_that_phase() {
    let (net, seen) = server(&[IN_2_S, OK]);
    let client = builder(net).retry(RetryPolicy::new()).build().unwrap();
    let mut call = std::pin::pin!(client.get(URL).timeout(ms(2_500)).send());
    assert!(tokio::time::timeout(ms(500), call.as_mut()).await.is_err());
    // The call is polled only after its deadline.
    tokio::time::advance(ms(2_500)).await;
    let error = call.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Backoff), "{error}");
    assert!(error.is_timeout() && !error.is_connect() && !error.is_dns(), "{error}");
    let timings = error.timings().unwrap();
    assert_eq!((timings.phase(), timings.longest_phase()), (Phase::Backoff, Phase::Backoff));
    assert_eq!((timings.backoff(), timings.total(), seen.lock().unwrap().len()), (ms(2_990), ms(3_000), 1));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_error_shows_the_time_per_phase_and_the_time_left() {
    let client = builder(NetByPath::default()).timeout(ms(2_000)).build().unwrap();
    let parts = |error: speeddial::Error| (error.kind(), error.to_string(), error.remaining());
    let get = |url: &str| client.get(url);
    assert_eq!(
        parts(get("http://a.test/never").headers_timeout(ms(500)).send().await.unwrap_err()),
        (
            ErrorKind::Timeout(Phase::Wait),
            "GET http://a.test/never: no response headers within 500 ms, in phase wait: 500 ms of 510 ms were \
             spent waiting for an answer that had not come (510 ms = dns 0 (fixed) + connect 10.0 ms + \
             wait 500 ms, new 192.0.2.1:80; 1.49 s of 2 s left)"
                .to_owned(),
            Some(ms(1_490))
        )
    );
    assert_eq!(
        parts(get("http://silent.test/").send().await.unwrap_err()),
        (
            ErrorKind::Timeout(Phase::Connect),
            "GET http://silent.test/: timed out after 2 s, in phase connect: all 2.00 s were spent dialling 192.0.2.4:80, which did not connect \
             (2.00 s = dns 0 (fixed) + connect 2.00 s)"
                .to_owned(),
            Some(Duration::ZERO)
        )
    );
    let error = get("http://silent.test/").connect_timeout(ms(300)).send().await.unwrap_err();
    assert_eq!((error.kind(), error.remaining()), (ErrorKind::Timeout(Phase::Connect), Some(ms(1_700))));
    assert_eq!(error.timings().unwrap().total(), ms(300));
    let plain = builder(NetByPath::default()).build().unwrap();
    let error = plain.get("http://silent.test/").connect_timeout(ms(300)).send().await.unwrap_err();
    assert_eq!(error.remaining(), None);
}

#[tokio::test(start_paused = true)]
async fn a_request_can_have_a_shorter_queue_timeout_than_the_pool() {
    let pool = PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(10_000));
    let client = builder(NetByPath::default()).pool(pool).build().unwrap();
    let first = client.get("http://a.test/never").headers_timeout(ms(1_000));
    let second = client.get("http://a.test/ok").queue_timeout(ms(200)).connect_timeout(ms(5));
    let third = client.get("http://a.test/ok").connect_timeout(ms(100));
    let (first, second, third) = tokio::join!(first.send(), second.send(), third.send());
    assert_eq!(first.unwrap_err().kind(), ErrorKind::Timeout(Phase::Wait));
    let error = second.unwrap_err();
    assert_eq!((error.kind(), error.timings().unwrap().total()), (ErrorKind::Timeout(Phase::Queue), ms(200)));
    let third = third.unwrap();
    assert_eq!(third.timings().total(), ms(1_020), "the wait in the queue does not count against the connect timeout");
    assert_eq!(third.text().await.unwrap(), "hello");
    // The dial goes on after its request has timed out, and serves the next request.
    let impatient = builder(NetByPath::default()).build().unwrap();
    let error = impatient.get("http://a.test/ok").connect_timeout(ms(4)).send().await.unwrap_err();
    assert_eq!(error.timings().unwrap().total(), ms(4));
    assert_eq!(impatient.get("http://a.test/ok").send().await.unwrap().timings().total(), ms(6));
    assert_eq!(impatient.pool_stats().opened, 1);
}

/// A transport that never connects.
#[derive(Clone)]
struct NetThatNeverConnects;

impl Transport for NetThatNeverConnects {
    fn connect(&self, _: std::net::SocketAddr) -> Connecting<'_> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn hide_queries_removes_the_query_from_errors_and_events() {
    let shown = async |hidden: bool| {
        let recorder = Recorder::default();
        let mut builder = builder(NetThatNeverConnects).timeout(ms(10)).observer(recorder.clone());
        if hidden {
            builder = builder.hide_queries();
        }
        let error = builder.build().unwrap().get("http://a.test/x?token=secret").send().await.unwrap_err();
        let target: Vec<_> = recorder.pick(|event| match event {
            Event::CallStart(target) => Some(target.target.to_string()),
            _ => None,
        });
        (error.url().unwrap().to_string(), target[0].clone(), format!("{error} {error:?}"))
    };
    let (uri, target, _) = shown(false).await;
    assert_eq!((uri.as_str(), target.as_str()), ("http://a.test/x?token=secret", "/x?token=secret"));
    let (uri, target, text) = shown(true).await;
    assert_eq!((uri.as_str(), target.as_str()), ("http://a.test/x", "/x"));
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_backoff_does_not_count_as_queue_time_and_drain_waits_for_it() {
    let (net, seen) = server(&[IN_2_S, OK]);
    let pool = PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(500));
    let client = builder(net).pool(pool).retry(RetryPolicy::new()).build().unwrap();
    let answered = std::cell::Cell::new(false);
    let draining = async {
        tokio::time::sleep(ms(500)).await;
        client.drain().await;
        assert!(answered.get(), "drain must wait for the call in its backoff");
    };
    let call = async {
        let response = client.get(URL).send().await.unwrap();
        assert_eq!((response.timings().backoff(), response.timings().queue()), (ms(2_000), Duration::ZERO));
        let text = response.text().await.unwrap();
        answered.set(true);
        text
    };
    // When the backoff ends, another call has the only connection.
    let other = async {
        tokio::time::sleep(ms(200)).await;
        client.get(URL).send().await.unwrap().text().await.unwrap()
    };
    let (other, called, ()) = tokio::join!(other, call, draining);
    assert_eq!((other.as_str(), called.as_str(), seen.lock().unwrap().len()), ("ok", "ok", 3));
}

#[tokio::test(start_paused = true)]
async fn hazard_a_408_on_a_connection_that_stays_open_is_a_response() {
    const SLOW: &str = "HTTP/1.1 408 Too Slow\r\ncontent-length: 0\r\n\r\n";
    let (net, seen) = server(&[OK, SLOW, OK]);
    let client = builder(net).build().unwrap();
    client.get(URL).send().await.unwrap().text().await.unwrap();
    let response = client.post(URL).body("pay").send().await.unwrap();
    assert_eq!(response.status(), 408);
    assert_eq!(seen.lock().unwrap().len(), 2, "the request is not resent");
}

#[tokio::test(start_paused = true)]
async fn hazard_a_services_own_408_is_a_response_though_the_connection_closes() {
    const CLOSES: &str = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    for (method, after, sent) in [("POST", 0, 2), ("POST", 500, 2), ("GET", 500, 2), ("GET", 50, 3)] {
        let seen = Arc::new(AtomicUsize::new(0));
        let log = seen.clone();
        let net = ScriptedNet::new(move |_, mut stream| {
            let log = log.clone();
            async move {
                while support::read_request_head(&mut stream).await.is_some() {
                    let number = log.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(ms(if number == 1 { after } else { 0 })).await;
                    let answer = if number == 1 { CLOSES } else { OK };
                    if stream.write_all(answer.as_bytes()).await.is_err() || number == 1 {
                        return;
                    }
                }
            }
        });
        let client = builder(net).build().unwrap();
        client.get(URL).send().await.unwrap().text().await.unwrap();
        let status = client.request(method.parse().unwrap(), URL).send().await.unwrap().status();
        assert_eq!(
            (status.as_u16(), seen.load(Ordering::SeqCst)),
            (if sent == 2 { 408 } else { 200 }, sent),
            "{method} {after}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirect_that_drops_the_body_drops_expect_as_well() {
    const SEE_OTHER: &str = "HTTP/1.1 303 See\r\nlocation: /y\r\ncontent-length: 0\r\n\r\n";
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let net = ScriptedNet::new(move |_, mut stream| {
        let log = log.clone();
        async move {
            let mut bytes = Vec::new();
            while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
                let head = String::from_utf8_lossy(&std::mem::take(&mut bytes)).to_lowercase();
                let answer = if head.starts_with("post") { SEE_OTHER } else { OK };
                log.lock().unwrap().push(head);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
    let client = builder(net).build().unwrap();
    client.post(URL).expect_continue().body("x").send().await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen[0].contains("expect: 100-continue") && !seen.last().unwrap().contains("expect"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn hazard_a_server_that_accepts_and_closes_is_dialled_twice_or_as_often_as_the_policy_allows() {
    for (attempts, most) in [(1, 2), (3, 3), (5, 5)] {
        for method in [Method::GET, Method::POST] {
            let net = ScriptedNet::new(|_, stream| async move { drop(stream) });
            let client = builder(net.clone()).retry(RetryPolicy::new().attempts(attempts)).build().unwrap();
            let error = client.request(method.clone(), URL).send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exchange, "{error}");
            assert_eq!(net.connections(), most, "{method}, {attempts} attempts");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_host_that_is_down_takes_no_retries_from_another_one() {
    let down = v4(9);
    let good = |stream| answer_every_20th_with_503(stream);
    let net = ScriptedNet::new(move |_, stream| good(stream));
    let names = FixedResolver::new().with("good.test", [v4(1)]).with("down.test", [down]);
    let transport = Refusing { net: net.clone(), refused: down };
    let builder = Client::builder().no_proxy().dns_resolver(names).transport(transport);
    let client = builder.retry(RetryPolicy::new()).build().unwrap();
    for _ in 0..1_000 {
        let (good, down) = tokio::join!(client.get("http://good.test/").send(), client.get("http://down.test/").send());
        assert_eq!(good.unwrap().status(), 200);
        assert!(down.is_err());
    }
}

async fn answer_every_20th_with_503(mut stream: tokio::io::DuplexStream) {
    let mut number = 0;
    while read_request_head(&mut stream).await.is_some() {
        number += 1;
        let status = if number % 20 == 0 { "503 Busy" } else { "200 OK" };
        let _ = stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await;
    }
}

/// A network of which one address refuses.
struct Refusing {
    net: ScriptedNet,
    refused: std::net::IpAddr,
}

impl Transport for Refusing {
    fn connect(&self, address: std::net::SocketAddr) -> Connecting<'_> {
        if address.ip() == self.refused {
            return Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) });
        }
        self.net.connect(address)
    }
}

#[tokio::test(start_paused = true)]
async fn the_retry_budget_holds_at_low_rates() {
    let (net, seen) = server(&[BUSY]);
    let client = builder(net).retry(RetryPolicy::new()).build().unwrap();
    for _ in 0..24 {
        assert_eq!(client.get(URL).send().await.unwrap().status().as_u16(), 503);
        tokio::time::sleep(ms(250)).await;
    }
    let requests = seen.lock().unwrap().len();
    assert!((24..=35).contains(&requests), "24 calls, a fifth of that, and a saved budget of five: {requests}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_expect_continue_held_back_is_resent_after_a_silent_close() {
    let got = Arc::new(Mutex::new(Vec::new()));
    let log = got.clone();
    let net = ScriptedNet::new(move |number, mut stream| {
        let log = log.clone();
        async move {
            loop {
                let Some(head) = read_request_head(&mut stream).await else { return };
                if head.starts_with("PUT") {
                    if number == 0 || stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
                        return;
                    }
                    let mut body = [0; 7];
                    if stream.read_exact(&mut body).await.is_err() {
                        return;
                    }
                    log.lock().unwrap().push(body);
                }
                let _ = stream.write_all(OK.as_bytes()).await;
            }
        }
    });
    let client = builder(net).build().unwrap();
    client.get(URL).send().await.unwrap().text().await.unwrap();
    let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>("payload")]);
    let sent = client.put(URL).expect_continue().body(Body::sized(7, pieces)).send().await;
    assert_eq!(sent.unwrap().status(), 200);
    assert_eq!(*got.lock().unwrap(), [*b"payload"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_expectation_is_repeated_without_it() {
    let seen = Seen::default();
    let log = seen.clone();
    let net = ScriptedNet::new(move |_, mut stream| {
        let log = log.clone();
        async move {
            while let Some(head) = read_request_head(&mut stream).await {
                let expects = head.contains("expect: 100-continue");
                let mut body = vec![0; if expects { 0 } else { 7 }];
                if stream.read_exact(&mut body).await.is_err() {
                    return;
                }
                log.lock().unwrap().push((u64::from(expects), String::from_utf8(body).unwrap()));
                let refused = "HTTP/1.1 417 Expectation Failed\r\ncontent-length: 0\r\n\r\n";
                let _ = stream.write_all(if expects { refused } else { OK }.as_bytes()).await;
            }
        }
    });
    let client = builder(net).build().unwrap();
    let stream = || Body::sized(7, futures_util::stream::iter([Ok::<_, std::io::Error>("payload")]));
    for body in [Body::from("payload"), stream()] {
        let response = client.post(URL).expect_continue().body(body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let ends: Vec<_> = response.timings().hops().iter().map(|hop| hop.end).collect();
        assert_eq!(ends, [HopEnd::Repeated(RepeatCause::ExpectationFailed)]);
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [(1, String::new()), (0, "payload".to_owned())]);
    }
    // A 417 to a request without an expectation is the answer.
    let (net, seen) = server(&["HTTP/1.1 417 Expectation Failed\r\ncontent-length: 0\r\n\r\n"]);
    let client = builder(net).build().unwrap();
    for expects in [false, true] {
        let request = client.post(URL).body("x");
        let request = if expects { request.expect_continue() } else { request };
        let answered = request.send().await.unwrap();
        assert_eq!(answered.status(), 417);
        assert_eq!(seen.lock().unwrap().drain(..).count(), 1 + usize::from(expects));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_says_whether_a_server_may_have_acted_on_any_attempt() {
    let plain = builder(NetByPath::default()).build().unwrap();
    let may = async |client: &Client, url: &str| {
        let error = client.post(url).body("x").header("idempotency-key", "1").send().await.unwrap_err();
        (error.may_have_been_processed(), error.to_string())
    };
    assert!(!may(&plain, "http://dead.test/").await.0, "no connection");
    assert!(!may(&plain, "http://unknown.test/").await.0, "no address");
    assert!(!may(&plain, "ftp://a.test/").await.0, "it cannot be sent");
    let cut = plain.get("http://a.test/die").send().await.unwrap().bytes().await.unwrap_err();
    assert!(cut.may_have_been_processed(), "the connection broke");
    let limited = plain.get("http://a.test/never").headers_timeout(ms(100)).send().await.unwrap_err();
    assert!(limited.may_have_been_processed(), "no answer in time");
    // The first attempt arrived, and the last one found no connection.
    let net = ScriptedNet::new(|_, mut stream| async move { drop(read_request_head(&mut stream).await) });
    let once = Once { net, used: AtomicUsize::new(0) };
    let client = builder(once).retry(RetryPolicy::new()).build().unwrap();
    let (may_have, text) = may(&client, URL).await;
    assert!(may_have, "{text}");
}

/// A network that can be connected to once.
struct Once {
    net: ScriptedNet,
    used: AtomicUsize,
}

impl Transport for Once {
    fn connect(&self, address: std::net::SocketAddr) -> Connecting<'_> {
        if self.used.fetch_add(1, Ordering::SeqCst) > 0 {
            return Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) });
        }
        self.net.connect(address)
    }
}

/// DNS that fails until a time.
struct Outage {
    until: Instant,
}

impl Resolver for Outage {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        let is_down = Instant::now() < self.until;
        Box::pin(async move {
            match family {
                _ if is_down => Err(ResolveError::new(ResolveErrorKind::ServFail, name, family)),
                Family::V4 => Ok(Answer::new([v4(1)], ms(60_000), Source::Miss)),
                Family::V6 => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)),
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_until_dns_is_asked_again_and_takes_nothing_for_a_remembered_failure() {
    let client = |policy: RetryPolicy| {
        let dns = Outage { until: Instant::now() + ms(500) };
        let builder = Client::builder().dns_resolver(dns).transport(server(&[OK]).0).no_proxy();
        builder.retry(policy).build().unwrap()
    };
    let start = Instant::now();
    let patient = client(RetryPolicy::new().attempts(2));
    assert!(patient.get(URL).send().await.is_ok(), "the only retry is not wasted");
    assert!(start.elapsed() >= ms(1_000), "{:?}", start.elapsed());
    let without_budget = client(RetryPolicy::new().budget(0.0, 0.0));
    assert!(without_budget.get(URL).send().await.is_err(), "a fresh failure needs a token");
    tokio::time::sleep(ms(200)).await;
    assert!(without_budget.get(URL).send().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_known_not_to_exist_is_not_looked_up_for_a_retry() {
    struct Nowhere(Arc<AtomicUsize>);
    impl Resolver for Nowhere {
        fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move { Err(ResolveError::new(ResolveErrorKind::NxDomain, name, family)) })
        }
    }
    let queries = Arc::new(AtomicUsize::new(0));
    let dns = Nowhere(queries.clone());
    let client = Client::builder().no_proxy().dns_resolver(dns).retry(RetryPolicy::new()).build().unwrap();
    let start = Instant::now();
    let error = client.get(URL).send().await.unwrap_err();
    assert!(error.is_dns() && start.elapsed() < ms(10), "{error} after {:?}", start.elapsed());
    assert!(queries.load(Ordering::SeqCst) <= 2, "one for each family");
}

#[tokio::test(start_paused = true)]
async fn bytes_with_trailers_are_sent_again() {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let log = bodies.clone();
    let net = ScriptedNet::new(move |number, mut stream| {
        let log = log.clone();
        async move {
            let Some(_) = read_request_head(&mut stream).await else { return };
            let mut body = Vec::new();
            while !body.ends_with(b"\r\n\r\n") {
                body.push(stream.read_u8().await.unwrap());
            }
            log.lock().unwrap().push(String::from_utf8(body).unwrap());
            let answer =
                if number == 0 { "HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" } else { OK };
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let client = builder(net).retry(RetryPolicy::new()).build().unwrap();
    let trailers = speeddial::http::HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
    let body = Body::from("five!").with_trailers(trailers);
    assert_eq!(client.put(URL).body(body).send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(*bodies.lock().unwrap(), ["5\r\nfive!\r\n0\r\nx-sum: 7\r\n\r\n"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_beyond_all_numbers_is_too_long() {
    let busy = "HTTP/1.1 503 Busy\r\nretry-after: 18446744073709551616\r\ncontent-length: 0\r\n\r\n";
    let (net, seen) = server(&[busy, OK]);
    let client = builder(net).retry(RetryPolicy::new()).build().unwrap();
    assert_eq!(client.get(URL).send().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_of_a_layer_before_the_last_one_counts() {
    let net = ScriptedNet::new(|_, mut stream| async move { drop(read_request_head(&mut stream).await) });
    let twice = tower::layer::layer_fn(|inner: speeddial::layers::AttemptService| {
        tower::service_fn(move |request: speeddial::http::Request<Body>| {
            let inner = inner.clone();
            async move {
                let mut copy = speeddial::http::Request::new(Body::from("x"));
                *copy.method_mut() = request.method().clone();
                *copy.uri_mut() = request.uri().clone();
                *copy.extensions_mut() = request.extensions().clone();
                let _ = tower::ServiceExt::oneshot(inner.clone(), request).await;
                tower::ServiceExt::oneshot(inner, copy).await
            }
        })
    });
    let once = Once { net, used: AtomicUsize::new(0) };
    let client = builder(once).attempt_layer(twice).build().unwrap();
    let error = client.post(URL).body("x").send().await.unwrap_err();
    assert!(error.is_connect() && error.may_have_been_processed(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_does_not_repeat_what_a_layer_sent_before_the_attempt_that_failed() {
    const GONE: &str = "HTTP/1.1 202 Accepted\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let polls = tower::layer::layer_fn(|inner: speeddial::layers::AttemptService| {
        tower::service_fn(move |request: speeddial::http::Request<Body>| {
            let inner = inner.clone();
            async move {
                let mut poll = speeddial::http::Request::new(Body::default());
                *poll.uri_mut() = request.uri().clone();
                *poll.extensions_mut() = request.extensions().clone();
                tower::ServiceExt::oneshot(inner.clone(), request).await?;
                tower::ServiceExt::oneshot(inner, poll).await
            }
        })
    });
    let closed = Once { net: ScriptedNet::new(|_, _| async {}), used: AtomicUsize::new(1) };
    let nowhere = builder(closed).build().unwrap();
    let tells = tower::layer::layer_fn(move |inner: speeddial::layers::AttemptService| {
        let nowhere = nowhere.clone();
        tower::service_fn(move |request: speeddial::http::Request<Body>| {
            let (inner, nowhere) = (inner.clone(), nowhere.clone());
            async move {
                let answer = tower::ServiceExt::oneshot(inner, request).await?;
                nowhere.get(URL).send().await?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer)
            }
        })
    });
    for (method, retries) in [(Method::POST, 0), (Method::PUT, 2)] {
        let (net, seen) = server(&[OK]);
        let client = builder(net).retry(RetryPolicy::new()).attempt_layer(tells.clone()).build().unwrap();
        let error = client.request(method.clone(), URL).send().await.unwrap_err();
        assert!(error.is_connect() && error.may_have_been_processed(), "{error}");
        assert_eq!(seen.lock().unwrap().len(), 1 + retries, "{method}: an error of the layer's own call");
        let once = Once { net: server(&[GONE]).0, used: AtomicUsize::new(0) };
        let client = builder(once).retry(RetryPolicy::new()).attempt_layer(polls).build().unwrap();
        let error = client.request(method.clone(), URL).send().await.unwrap_err();
        assert!(error.is_connect() && error.may_have_been_processed(), "{error}");
        assert_eq!(error.timings().unwrap().hops().len(), retries, "{method}");
    }
}
