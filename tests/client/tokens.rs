//! Bearer tokens: one refresh for all callers, ahead of the token's end and after a 401.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use speeddial::dns::FixedResolver;
use speeddial::token::{Token, TokenSource};
use speeddial::trace::{Cause, EndedRequest, Event, HopEnd, Observer, Phase, RepeatCause, Wants};
use speeddial::{Body, Client, ClientBuilder, ErrorKind, PoolConfig, RetryPolicy};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout};

use support::http_server::HttpServer;
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::{full, read_request_head, v4};

/// A server that accepts tokens from `t{n}` on, for an `n` that can be raised, and counts requests.
struct Api {
    server: HttpServer,
    /// The number of the first token that is accepted.
    accepted: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Api {
    fn start() -> Self {
        let accepted = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let first = accepted.clone();
        let server = HttpServer::start(move |mut request: hyper::Request<Incoming>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let first = first.load(Ordering::SeqCst);
            async move {
                // A server closes behind a response to a body that it did not read, and the next POST can meet that close.
                let _ = request.body_mut().collect().await;
                let authorization = request.headers().get("authorization").map(|value| value.to_str().unwrap());
                let number = authorization.and_then(|value| value.strip_prefix("Bearer t")?.parse::<usize>().ok());
                let is_allowed = number.is_some_and(|number| number >= first);
                let text = authorization.unwrap_or("none").to_owned();
                let mut response = hyper::Response::new(full(text));
                let to = request.uri().query().and_then(|query| query.strip_prefix("to="));
                if let Some(to) = to.filter(|_| is_allowed || request.uri().path() != "/guarded") {
                    *response.status_mut() = hyper::StatusCode::TEMPORARY_REDIRECT;
                    response.headers_mut().insert("location", to.parse().unwrap());
                } else if !is_allowed && request.uri().path() != "/open" {
                    *response.status_mut() = hyper::StatusCode::UNAUTHORIZED;
                }
                response
            }
        })
        .unwrap();
        Self { server, accepted, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address())
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Returns a source of the tokens `t1`, `t2`, …, each of which takes `delay` and lives for `life`, and their count.
fn numbered(delay: Duration, life: Duration) -> (TokenSource, Arc<AtomicUsize>) {
    let refreshes = Arc::new(AtomicUsize::new(0));
    let counted = refreshes.clone();
    let source = TokenSource::new(move || {
        let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            sleep(delay).await;
            Ok::<_, Infallible>(Token::new(format!("t{number}")).expires_in(life))
        }
    });
    (source, refreshes)
}

const HOUR: Duration = Duration::from_secs(3600);

fn client(source: &TokenSource) -> Client {
    let pool = PoolConfig::new().max_connections_per_host(100);
    Client::builder().no_proxy().pool(pool).token_source(source.clone()).build().unwrap()
}

/// Makes 1,000 calls at once, each in its task, and returns their statuses. Counts those that have asked for a token or a connection.
async fn thousand_calls(client: &Client, url: &str, asked: &Arc<AtomicUsize>) -> Vec<u16> {
    let calls = (0..1_000).map(|_| {
        let call = client.get(url).send();
        let asked = asked.clone();
        tokio::spawn(async move {
            let mut call = std::pin::pin!(call);
            let first = futures_util::poll!(&mut call);
            asked.fetch_add(1, Ordering::SeqCst);
            let response = match first {
                std::task::Poll::Ready(response) => response,
                std::task::Poll::Pending => call.await,
            };
            response.unwrap().status().as_u16()
        })
    });
    join_all(calls.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_thousand_callers_with_an_expired_token_share_one_refresh() {
    let api = Api::start();
    let [refreshes, asked] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (counted, calls) = (refreshes.clone(), asked.clone());
    let source = TokenSource::new(move || {
        let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
        let calls = calls.clone();
        async move {
            if number == 2 {
                support::until("all calls have asked", || calls.load(Ordering::SeqCst) == 1_000).await;
            }
            Ok::<_, Infallible>(Token::new(format!("t{number}")).expires_in(Duration::ZERO))
        }
    });
    let client = client(&source);
    let status = client.get(api.url("/")).send().await.unwrap().status();
    assert_eq!((status.as_u16(), refreshes.load(Ordering::SeqCst), api.requests()), (200, 1, 1));
    // The token had no life: it has expired.
    assert_eq!(thousand_calls(&client, &api.url("/"), &asked).await, [200; 1_000]);
    assert_eq!((refreshes.load(Ordering::SeqCst), api.requests()), (2, 1_001));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_callers_with_a_rejected_token_share_one_refresh() {
    let api = Api::start();
    let (source, refreshes) = numbered(Duration::from_millis(50), HOUR);
    let client = client(&source);
    assert_eq!(thousand_calls(&client, &api.url("/"), &Arc::default()).await, [200; 1_000]);
    assert_eq!((refreshes.load(Ordering::SeqCst), api.requests()), (1, 1_000));
    api.accepted.store(2, Ordering::SeqCst);
    assert_eq!(thousand_calls(&client, &api.url("/"), &Arc::default()).await, [200; 1_000]);
    assert_eq!(refreshes.load(Ordering::SeqCst), 2, "one more");
    assert!(api.requests() <= 3_000, "each request is sent at most twice: {}", api.requests());
}

#[tokio::test]
async fn a_second_401_is_returned_and_a_server_that_rejects_all_tokens_causes_few_refreshes() {
    let api = Api::start();
    api.accepted.store(usize::MAX, Ordering::SeqCst);
    let (source, refreshes) = numbered(Duration::ZERO, HOUR);
    let recorder = Recorder::default();
    let client = Client::builder()
        .no_proxy()
        .token_source(source)
        .observer(recorder.clone())
        .pool(support::one_connection())
        .build()
        .unwrap();
    let response = client.post(api.url("/")).send().await.unwrap();
    assert_eq!((response.status().as_u16(), api.requests()), (401, 2));
    let hops = response.timings().hops().iter().map(|hop| hop.end).collect::<Vec<_>>();
    assert_eq!(hops, [HopEnd::Repeated(RepeatCause::Unauthorized)]);
    assert_eq!(response.text().await.unwrap(), "Bearer t2");
    for _ in 0..10 {
        assert_eq!(client.get(api.url("/")).send().await.unwrap().status().as_u16(), 401);
    }
    assert_eq!((refreshes.load(Ordering::SeqCst), api.requests()), (2, 12), "the new token is a moment old");
    assert_eq!(client.pool_stats().opened, 1, "the bodies of discarded responses are read");
    assert!(recorder.is_in_order());
}

#[tokio::test]
async fn a_stream_that_was_read_is_not_sent_again_after_a_401() {
    let api = Api::start();
    api.accepted.store(2, Ordering::SeqCst);
    let (source, refreshes) = numbered(Duration::ZERO, HOUR);
    let client = client(&source);
    let pieces = || futures_util::stream::iter(["one, ", "two"].map(Ok::<_, std::io::Error>));
    let response = client.post(api.url("/")).body(Body::wrap_stream(pieces())).send().await.unwrap();
    assert_eq!((response.status().as_u16(), api.requests(), refreshes.load(Ordering::SeqCst)), (401, 1, 1));
    // The rejected token is replaced for the next request.
    let response = client.post(api.url("/")).body(Body::wrap_stream(pieces())).send().await.unwrap();
    assert_eq!((response.status().as_u16(), api.requests(), refreshes.load(Ordering::SeqCst)), (200, 2, 2));
}

#[tokio::test]
async fn a_token_stays_with_its_origin() {
    let api = Api::start();
    let other = Api::start();
    let (source, _) = numbered(Duration::ZERO, HOUR);
    let there_and_back = format!("/?to={}", other.url(&format!("/?to={}", api.url("/open"))));
    let text = async |client: &Client, url: String| client.get(url).send().await.unwrap().text().await.unwrap();
    let away = client(&source);
    assert_eq!(text(&away, api.url("/?to=/open")).await, "Bearer t1");
    assert_eq!(text(&away, api.url(&format!("/?to={}", other.url("/open")))).await, "none");
    assert_eq!(text(&away, api.url(&there_and_back)).await, "none", "the other origin chose the request");

    let named = client(&source.clone().for_origin(api.url("/v1")).unwrap());
    assert_eq!(text(&named, api.url("/open")).await, "Bearer t1");
    assert_eq!(text(&named, other.url("/open")).await, "none");
    assert_eq!(text(&named, other.url(&format!("/?to={}", api.url("/open")))).await, "none");

    let based = Client::builder().no_proxy().base_url(api.url("/")).token_source(source.clone()).build().unwrap();
    assert_eq!(text(&based, "open".to_owned()).await, "Bearer t1");
    assert_eq!(text(&based, other.url("/open")).await, "none", "a client with a base has one origin for it");

    let own = away.get(api.url("/open")).header("authorization", "Basic eA==").send().await.unwrap();
    assert_eq!(own.text().await.unwrap(), "Basic eA==");
    assert!(source.for_origin("ftp://a.test").is_err());
}

#[tokio::test]
async fn a_token_that_no_header_can_hold_is_an_error_without_its_secret() {
    let api = Api::start();
    let source = TokenSource::new(|| async { Ok::<_, Infallible>(Token::new("s3cr3t\r\nx: y")) });
    let error = client(&source).get(api.url("/")).send().await.unwrap_err();
    assert_eq!((error.kind(), api.requests()), (ErrorKind::Layer, 0));
    assert!(!format!("{error:#} {error:?}").contains("s3cr3t"), "{error:#}");
}

// ----- in paused time -----

/// A network that answers every request with 200 and its authorization.
fn net() -> ScriptedNet {
    ScriptedNet::new(|_, mut stream| async move {
        while let Some(head) = read_request_head(&mut stream).await {
            let token = head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("none");
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{token}", token.len());
            if stream.write_all(response.as_bytes()).await.is_err() {
                return;
            }
        }
    })
}

fn paused(source: TokenSource) -> ClientBuilder {
    let resolver = FixedResolver::new().with("a.test", [v4(1)]);
    Client::builder().dns_resolver(resolver).transport(net()).no_proxy().token_source(source)
}

const URL: &str = "http://a.test/";

/// Makes a call, and returns the token that the server got, and the time that the call took.
async fn call(client: &Client) -> (String, Duration) {
    let start = Instant::now();
    let text = client.get(URL).send().await.unwrap().text().await.unwrap();
    (text, start.elapsed())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_token_in_use_is_refreshed_ahead_and_no_caller_waits() {
    let (source, refreshes) = numbered(ms(500), Duration::from_secs(100));
    let client = paused(source).build().unwrap();
    assert_eq!(call(&client).await, ("Bearer t1".to_owned(), ms(510)));
    for _ in 0..1_000 {
        sleep(ms(700)).await;
        assert_eq!(call(&client).await.1, Duration::ZERO);
    }
    // 700 s in lives of 100 s, of which 90.5 s are used.
    assert_eq!(refreshes.load(Ordering::SeqCst), 8);
    // A token that is not used is not refreshed.
    sleep(Duration::from_secs(1_000)).await;
    let idle = refreshes.load(Ordering::SeqCst);
    assert!(idle <= 9, "one for the last use: {idle}");
    assert_eq!(call(&client).await.1, ms(510), "the connection was idle for too long, too");
    assert_eq!(refreshes.load(Ordering::SeqCst), idle + 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_used_once_in_its_life_is_refreshed_by_the_timer() {
    let (source, refreshes) = numbered(ms(500), Duration::from_secs(100));
    let client = paused(source).build().unwrap();
    call(&client).await;
    sleep(Duration::from_secs(95)).await;
    assert_eq!(refreshes.load(Ordering::SeqCst), 2, "without a call in the last tenth of its life");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_belongs_to_the_source_and_not_to_its_first_caller() {
    let (source, refreshes) = numbered(ms(500), HOUR);
    let client = paused(source).build().unwrap();
    let start = Instant::now();
    let first = client.get(URL).timeout(ms(100)).send().await.unwrap_err();
    assert_eq!(first.kind(), ErrorKind::Timeout(Phase::Backoff));
    assert!(timeout(ms(100), client.get(URL).send()).await.is_err(), "dropped");
    assert_eq!(call(&client).await.0, "Bearer t1");
    assert_eq!((start.elapsed(), refreshes.load(Ordering::SeqCst)), (ms(510), 1));
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_token_is_a_phase_of_the_call() {
    let (source, _) = numbered(ms(500), HOUR);
    let recorder = Recorder::default();
    let client = paused(source).observer(recorder.clone()).build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    let timings = response.timings();
    assert_eq!((timings.backoff(), timings.connect(), timings.total()), (ms(500), ms(10), ms(510)));
    assert_eq!(recorder.count(|event| matches!(event, Event::BackoffStart { .. })), 1);
    assert_eq!(recorder.count(|event| matches!(event, Event::Repeated { .. })), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_and_not_kept_for_long() {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let log = attempts.clone();
    let start = Instant::now();
    let source = TokenSource::new(move || {
        let mut log = log.lock().unwrap();
        log.push(start.elapsed().as_millis() as u64);
        let is_down = log.len() <= 2;
        async move {
            sleep(ms(100)).await;
            if is_down { Err(std::io::Error::other("the login is down")) } else { Ok(Token::new("t3")) }
        }
    });
    let client = paused(source).build().unwrap();
    for error in join_all((0..100).map(|_| client.get(URL).send())).await {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Layer);
        let text = format!("{error:#}");
        assert!(text.ends_with(": the token source has no token: the login is down"), "{text}");
        let source = std::error::Error::source(&error).unwrap();
        assert!(source.is::<std::io::Error>(), "it can be found by its type");
    }
    let mut results = Vec::new();
    for _ in 0..50 {
        sleep(ms(100)).await;
        results.push(client.get(URL).send().await.is_ok());
    }
    // The pauses are 1 s and 2 s long. The call that begins a refresh waits for it.
    assert_eq!(*attempts.lock().unwrap(), [0, 1_100, 3_200]);
    assert!(results[40..].iter().all(|is_ok| *is_ok), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_never_ends_is_bounded_by_the_callers_deadlines_and_by_its_own() {
    let source = TokenSource::new(std::future::pending::<Result<Token, Infallible>>);
    let client = paused(source).build().unwrap();
    let start = Instant::now();
    let patient = client.get(URL).send();
    let hurried = async {
        let error = client.get(URL).timeout(ms(200)).send().await.unwrap_err();
        (error.kind(), start.elapsed())
    };
    let (patient, hurried) = futures_util::future::join(patient, hurried).await;
    assert_eq!(hurried, (ErrorKind::Timeout(Phase::Backoff), ms(200)));
    assert_eq!((patient.unwrap_err().kind(), start.elapsed()), (ErrorKind::Layer, Duration::from_secs(30)));
    assert_eq!(client.pool_stats().opened, 0);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_source_is_not_retried() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let source = TokenSource::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err(std::io::Error::from(std::io::ErrorKind::TimedOut)) }
    });
    let client = paused(source).retry(RetryPolicy::new().backoff(ms(5_000), ms(5_000))).build().unwrap();
    let own = RetryPolicy::new().backoff(ms(5_000), ms(5_000)).classify_fn(|req_rep| req_rep.retryable());
    for (request, calls) in [(client.get(URL), 1), (client.get(URL).retry(own), 2)] {
        let error = request.send().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Layer && error.is_timeout(), "{error}");
        assert_eq!(count.load(Ordering::SeqCst), calls);
        sleep(ms(1_000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_panics_fails_its_callers_and_the_next_one_works() {
    let count = Arc::new(AtomicUsize::new(0));
    let source = TokenSource::new(move || {
        // The first time in the function, the second time in its future.
        let number = count.fetch_add(1, Ordering::SeqCst);
        assert_ne!(number, 0, "a panic in the function");
        async move {
            assert_ne!(number, 1, "a panic in the future");
            Ok::<_, Infallible>(Token::new("t1"))
        }
    });
    let client = paused(source).build().unwrap();
    for pause in [1, 2] {
        let error = client.get(URL).send().await.unwrap_err();
        assert!(format!("{error:#}").ends_with("the token source panicked"), "{error:#}");
        sleep(Duration::from_secs(pause)).await;
    }
    assert_eq!(call(&client).await.0, "Bearer t1");
}

#[tokio::test(start_paused = true)]
async fn a_retry_has_the_token_and_a_401_after_it_is_repeated() {
    let statuses = Arc::new(Mutex::new(vec![200, 401, 503]));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let net = ScriptedNet::new(move |_, mut stream| {
        let statuses = statuses.clone();
        let log = log.clone();
        async move {
            while let Some(head) = read_request_head(&mut stream).await {
                let token = head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("none");
                log.lock().unwrap().push(token.to_owned());
                let status = statuses.lock().unwrap().pop().unwrap();
                let response = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(response.as_bytes()).await;
            }
        }
    });
    let (source, _) = numbered(ms(500), HOUR);
    let client = paused(source).transport(net).retry(RetryPolicy::new()).build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    let ends: Vec<_> = response.timings().hops().iter().map(|hop| hop.end).collect();
    let status = RepeatCause::Status(speeddial::StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ends, [HopEnd::Repeated(status), HopEnd::Repeated(RepeatCause::Unauthorized)]);
    assert_eq!(*seen.lock().unwrap(), ["Bearer t1", "Bearer t1", "Bearer t2"]);
    client.drain().await;
}

/// Returns a network that answers each request after 20 ms: with 200 for the second token, and with 401 for any other one.
fn net_of_second_token() -> ScriptedNet {
    ScriptedNet::new(|_, mut stream| async move {
        while let Some(head) = read_request_head(&mut stream).await {
            sleep(ms(20)).await;
            let status = if head.contains("Bearer t2") { "200 OK" } else { "401 No" };
            let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(response.as_bytes()).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_token_after_a_401_is_a_backoff_between_two_requests() {
    let (source, _) = numbered(ms(500), HOUR);
    let recorder = Recorder::default();
    let ended = Ended::default();
    let builder = paused(source).transport(net_of_second_token()).observer(recorder.clone()).observer(ended.clone());
    let client = builder.build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let timings = response.timings();
    let [rejected] = timings.hops() else { panic!("one") };
    assert_eq!((rejected.elapsed, rejected.end), (ms(530), HopEnd::Repeated(RepeatCause::Unauthorized)));
    assert_eq!((timings.backoff(), timings.receive(), timings.total()), (ms(1_000), ms(0), ms(1_050)));
    assert_eq!(timings.why().reasons().first().map(|reason| reason.cause), Some(Cause::TokenWait), "{}", timings.why());
    response.bytes().await.unwrap();
    assert_eq!(*ended.0.lock().unwrap(), [(ms(30), ms(500)), (ms(20), ms(500))], "elapsed, and backoff before");
    assert_eq!(recorder.count(|event| matches!(event, Event::BackoffStart { .. })), 2);
    assert_eq!(recorder.count(|event| matches!(event, Event::BackoffEnd)), 2);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_wait_after_a_401_is_one_of_a_backoff() {
    let (source, _) = numbered(ms(500), HOUR);
    let client = paused(source).transport(net_of_second_token()).build().unwrap();
    let error = client.post(URL).timeout(ms(800)).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Backoff));
    assert!(error.may_have_been_processed(), "the server answered");
}

#[tokio::test(start_paused = true)]
async fn a_401_for_which_there_is_no_newer_token_is_received_after_the_wait() {
    let asked = AtomicUsize::new(0);
    let source = TokenSource::new(move || {
        let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            sleep(ms(100)).await;
            if is_first { Ok(Token::new("t1")) } else { Err(std::io::Error::other("the login is down")) }
        }
    });
    let ended = Ended::default();
    let client = paused(source).transport(net_of_second_token()).observer(ended.clone()).build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status(), 401);
    let timings = response.timings();
    assert_eq!((timings.phase(), timings.hops().len(), timings.backoff()), (Phase::Receive, 0, ms(200)));
    response.bytes().await.unwrap();
    assert_eq!(*ended.0.lock().unwrap(), [(ms(130), ms(100))]);
}

/// The duration of each request, and the backoff before it.
#[derive(Clone, Default)]
struct Ended(Arc<Mutex<Vec<(Duration, Duration)>>>);

impl Observer for Ended {
    fn wants(&self) -> Wants {
        Wants::REQUESTS
    }

    fn request_ended(&self, ended: &EndedRequest<'_>) {
        let in_phases: Duration = Phase::ALL.iter().map(|phase| ended.spent(*phase)).sum();
        assert_eq!(in_phases - ended.spent(Phase::Backoff), ended.elapsed());
        self.0.lock().unwrap().push((ended.elapsed(), ended.spent(Phase::Backoff)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_a_call_that_waits_for_its_token_and_refuses_later_ones() {
    let (source, _) = numbered(ms(500), HOUR);
    let client = paused(source).build().unwrap();
    let start = Instant::now();
    let later = async {
        sleep(ms(200)).await;
        let error = client.get(URL).send().await.unwrap_err();
        (error.kind(), start.elapsed())
    };
    let drain = async {
        sleep(ms(100)).await;
        client.drain().await;
        start.elapsed()
    };
    let (call, later, drained) = futures_util::join!(call(&client), later, drain);
    assert_eq!(call, ("Bearer t1".to_owned(), ms(510)));
    assert_eq!(later, (ErrorKind::Pool, ms(200)), "before it waits for anything");
    assert_eq!(drained, ms(510));
}

#[tokio::test]
async fn each_origin_of_a_call_may_reject_its_token_once() {
    let first = Api::start();
    let second = Api::start();
    let source = |api: &Api| {
        let (source, refreshes) = numbered(Duration::ZERO, HOUR);
        (source.for_origin(api.url("/")).unwrap(), refreshes)
    };
    let (one, of_first) = source(&first);
    let (other, of_second) = source(&second);
    let client = Client::builder().no_proxy().token_source(one).token_source(other).build().unwrap();
    for api in [&first, &second] {
        assert_eq!(client.get(api.url("/")).send().await.unwrap().status().as_u16(), 200);
        api.accepted.store(2, Ordering::SeqCst);
    }
    let url = first.url(&format!("/guarded?to={}", second.url("/")));
    let response = client.get(url).send().await.unwrap();
    let ends: Vec<_> = response.timings().hops().iter().map(|hop| hop.end).collect();
    let rejected = HopEnd::Repeated(RepeatCause::Unauthorized);
    assert_eq!(ends, [rejected, HopEnd::Redirected(speeddial::StatusCode::TEMPORARY_REDIRECT), rejected]);
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, "Bearer t2"));
    assert_eq!((of_first.load(Ordering::SeqCst), of_second.load(Ordering::SeqCst)), (2, 2));
}

#[test]
fn a_refresh_on_a_runtime_that_is_not_driven_is_begun_anew_on_another_one() {
    let (source, refreshes) = numbered(ms(20), HOUR);
    let client = paused(source).build().unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    first.block_on(async {
        assert!(futures_util::poll!(Box::pin(client.get(URL).send())).is_pending());
        while refreshes.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    });
    // Its block_on has ended, and it is kept.
    let second = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (token, took) = second.block_on(call(&client));
    assert_eq!((token.as_str(), refreshes.load(Ordering::SeqCst)), ("Bearer t2", 2));
    assert!(took < Duration::from_secs(35), "{took:?}");
    drop(first);
}

#[test]
fn a_refresh_that_is_lost_with_its_runtime_is_begun_anew() {
    let (source, refreshes) = numbered(ms(20), HOUR);
    let api = Api::start();
    let client = client(&source);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let url = api.url("/");
    first.block_on(async {
        assert!(futures_util::poll!(Box::pin(client.get(&url).send())).is_pending());
        while refreshes.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    });
    let second = runtime();
    let waiting = second.spawn({
        let call = client.get(&url).send();
        async move { call.await.unwrap().text().await.unwrap() }
    });
    second.block_on(tokio::task::yield_now());
    drop(first);
    assert_eq!(second.block_on(waiting).unwrap(), "Bearer t2");
    assert_eq!(refreshes.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_repeat_does_not_run_into_a_connection_whose_body_was_not_read() {
    const REJECTED: &[u8] = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
    const MOVED: &[u8] = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /moved\r\ncontent-length: 0\r\n\r\n";
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    // Answers early, and closes a moment later, as servers do that have not read the body.
    let net = ScriptedNet::new(|_, mut stream| async move {
        while let Some(head) = read_request_head(&mut stream).await {
            let answer = match &head {
                head if head.contains("Bearer t1") => REJECTED,
                head if head.starts_with("POST /moving") => MOVED,
                _ => OK,
            };
            let _ = stream.write_all(answer).await;
            if answer != OK {
                sleep(Duration::from_millis(1)).await;
                return;
            }
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 100]).await;
        }
    });
    let resolver = FixedResolver::new().with("a.test", [v4(1)]);
    let (tokens, _) = numbered(Duration::ZERO, Duration::from_secs(3_600));
    let builder = Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone());
    let client = builder.token_source(tokens.for_origin("http://a.test").unwrap()).build().unwrap();
    for path in ["guarded", "moving"] {
        let response = client.post(format!("http://a.test/{path}")).body("pay").send().await.unwrap();
        assert_eq!((response.status().as_u16(), net.connections()), (200, if path == "guarded" { 2 } else { 3 }));
        response.bytes().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_one_401_takes_the_token_from_no_other_call_and_is_not_lost() {
    // One path answers 401 whatever the token is, and the login fails after the first token.
    let net = ScriptedNet::new(|_, mut stream| async move {
        while let Some(head) = read_request_head(&mut stream).await {
            let is_good = head.starts_with("GET /open") && head.contains("Bearer t1");
            let status = if is_good { "200 OK" } else { "401 Unauthorized" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nno");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    for login in [Duration::ZERO, Duration::from_secs(20)] {
        let count = Arc::new(AtomicUsize::new(0));
        let source = TokenSource::new(move || {
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if is_first {
                    return Ok(Token::new("t1").expires_in(Duration::from_secs(3_600)));
                }
                sleep(login).await;
                Err(std::io::Error::other("the login is down"))
            }
        });
        let resolver = FixedResolver::new().with("a.test", [v4(1)]);
        let builder = Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone());
        let client = builder.token_source(source.for_origin("http://a.test").unwrap()).build().unwrap();
        let status =
            async |path: &str| client.get(format!("http://a.test/{path}")).send().await.unwrap().status().as_u16();
        assert_eq!(status("open").await, 200);
        let guarded = async {
            for _ in 0..3 {
                assert_eq!(status("guarded").await, 401, "the answer, not the error of the login");
            }
        };
        let others = async {
            for _ in 0..100 {
                let start = Instant::now();
                assert_eq!(status("open").await, 200);
                assert!(start.elapsed() < Duration::from_secs(1), "it does not wait for the login");
                sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::join!(guarded, others);
    }
}
