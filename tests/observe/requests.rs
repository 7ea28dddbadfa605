//! The requests of a call for observers: each has a start, headers that the observer may add, and one end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::http::HeaderMap;
use speeddial::trace::{EndedCall, EndedRequest, Observer, Phase, RequestEnd, StartedRequest, UrlTemplate, Wants};
use speeddial::{Client, ClientBuilder, HedgePolicy, PoolConfig, RetryPolicy};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use support::scripted_net::ScriptedNet;
use support::{read_request_head, v4};

pub(super) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
pub(super) const BUSY: &str = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
const AWAY: &str = "HTTP/1.1 302 Found\r\nlocation: http://b.test/there\r\ncontent-length: 0\r\n\r\n";

/// Lines about the requests of calls, in the order in which the observer was told.
#[derive(Clone, Default)]
struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Lines {
    fn add(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

impl Observer for Lines {
    fn wants(&self) -> Wants {
        Wants::REQUESTS.union(Wants::ENDS)
    }

    fn request_started(&self, request: &StartedRequest<'_>) {
        let StartedRequest { number, request: info, .. } = request;
        let redirected = if request.is_redirected { " redirected" } else { "" };
        self.add(format!("start {number} {} {}{}{redirected}", info.method, info.origin, info.target.path()));
    }

    fn propagate(&self, request: &StartedRequest<'_>, headers: &HeaderMap) -> HeaderMap {
        assert!(headers.contains_key("accept"), "{headers:?}");
        let mut added = HeaderMap::new();
        added.insert("x-number", request.number.into());
        added.insert("accept", "none".parse().unwrap());
        added.insert("content-length", "7".parse().unwrap());
        added
    }

    fn request_ended(&self, request: &EndedRequest<'_>) {
        let end = match request.end {
            RequestEnd::Repeated(cause) => format!("repeated ({})", cause.as_str()),
            end => format!("{end:?}").to_lowercase(),
        };
        let failure = request.failure.map(|failure| format!(" {failure}")).unwrap_or_default();
        let status = request.timings.status().map_or("-".to_owned(), |status| status.as_u16().to_string());
        let elapsed = request.elapsed().as_millis();
        let [send, wait] = [Phase::Send, Phase::Wait].map(|phase| request.spent(phase));
        assert!(send.is_zero(), "a request is sent at once here: {send:?}");
        assert!(request.end != RequestEnd::Superseded || !wait.is_zero(), "it waited for its answer");
        let in_phases: Duration = Phase::ALL.iter().map(|phase| request.spent(*phase)).sum();
        assert_eq!(in_phases - request.spent(Phase::Backoff), request.elapsed());
        self.add(format!("end {} {end}{failure} {status} {elapsed}", request.request.number));
    }

    fn ended(&self, call: &EndedCall<'_>) {
        self.add(format!("over {}", call.timings.total().as_millis()));
    }
}

/// Returns a network that answers the n-th request with the n-th answer, after so many milliseconds, and the heads that it got. An
/// answer without bytes closes the connection.
pub(super) fn net(answers: &[(u64, &'static str)]) -> (ScriptedNet, Arc<Mutex<Vec<String>>>) {
    let answers: Arc<[_]> = answers.into();
    let count = Arc::new(AtomicUsize::new(0));
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    let net = ScriptedNet::new(move |_, mut stream| {
        let (answers, count, seen) = (answers.clone(), count.clone(), seen.clone());
        async move {
            while let Some(head) = read_request_head(&mut stream).await {
                seen.lock().unwrap().push(head);
                let (after, answer) = answers[count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)];
                sleep(Duration::from_millis(after)).await;
                if answer.is_empty() || stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    });
    (net, heads)
}

fn builder(net: ScriptedNet, lines: &Lines) -> ClientBuilder {
    let names = FixedResolver::new().with("a.test", [v4(1)]).with("b.test", [v4(2)]);
    Client::builder().dns_resolver(names).transport(net).no_proxy().observer(lines.clone())
}

async fn get(client: &Client) -> speeddial::Result<String> {
    client.get("http://a.test/here").send().await?.text().await
}

#[tokio::test(start_paused = true)]
async fn a_redirect_is_a_request_of_its_own_host() {
    let (net, heads) = net(&[(5, AWAY), (7, OK)]);
    let lines = Lines::default();
    get(&builder(net, &lines).build().unwrap()).await.unwrap();
    let expected = [
        "start 0 GET a.test:80/here",
        "end 0 redirected(302) 302 15",
        "start 1 GET b.test:80/there redirected",
        "end 1 answered 200 17",
        "over 32",
    ];
    assert_eq!(lines.take(), expected);
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 2);
    for (number, head) in heads.iter().enumerate() {
        assert!(head.contains(&format!("x-number: {number}\r\n")), "{head}");
        assert!(head.contains("accept: */*\r\n") && !head.contains("none"), "the request's own header is kept: {head}");
        assert!(!head.contains("content-length"), "a header that frames the message is left out: {head}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_and_resends_are_requests_and_backoffs_are_none() {
    let (net, _) = net(&[(0, OK), (0, ""), (5, BUSY), (5, OK)]);
    let lines = Lines::default();
    let client = builder(net, &lines).retry(RetryPolicy::new().attempts(3)).build().unwrap();
    get(&client).await.unwrap();
    lines.take();
    get(&client).await.unwrap();
    let told = lines.take();
    let expected = [
        "start 0 GET a.test:80/here",
        "end 0 repeated (closed) - 0",
        "start 1 GET a.test:80/here",
        "end 1 repeated (status) 503 15",
        "start 2 GET a.test:80/here",
        "end 2 answered 200 5",
    ];
    assert_eq!(told[..6], expected);
    let over: u64 = told[6].strip_prefix("over ").unwrap().parse().unwrap();
    assert!(over > 20, "the backoff is a part of the call: {over}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_named_also_if_it_is_retried() {
    let (net, _) = net(&[(3, "")]);
    let lines = Lines::default();
    let client = builder(net, &lines).retry(RetryPolicy::new().attempts(2)).build().unwrap();
    assert!(get(&client).await.is_err());
    let told = lines.take();
    assert_eq!(told[1], "end 0 repeated (failed) exchange - 13", "{told:?}");
    assert_eq!(told[3], "end 1 failed exchange - 13", "{told:?}");
    assert_eq!(told.len(), 5, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_ends_its_request() {
    let (net, _) = net(&[(1_000_000, OK)]);
    let lines = Lines::default();
    let client = builder(net, &lines).build().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(100), get(&client)).await.is_err());
    assert_eq!(lines.take(), ["start 0 GET a.test:80/here", "end 0 failed cancelled - 100", "over 100"]);
    // While it waits for a connection.
    assert!(tokio::time::timeout(Duration::from_millis(5), get(&client)).await.is_err());
    assert_eq!(lines.take(), ["start 0 GET a.test:80/here", "end 0 failed cancelled - 5", "over 5"]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_response_ends_its_request() {
    let (net, _) = net(&[(5, "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nok")]);
    let lines = Lines::default();
    let client = builder(net, &lines).build().unwrap();
    let response = client.get("http://a.test/here").send().await.unwrap();
    assert_eq!(lines.take(), ["start 0 GET a.test:80/here"]);
    sleep(Duration::from_millis(10)).await;
    drop(response);
    assert_eq!(lines.take(), ["end 0 unread 200 25", "over 25"]);
}

#[tokio::test(start_paused = true)]
async fn both_attempts_of_a_hedged_request_end() {
    let hedge = HedgePolicy::new().min_samples(1).budget(1.0);
    // The second attempt is answered first, then the first one, and then the call is dropped while both wait.
    let (net, heads) = net(&[(10, OK), (1_000_000, OK), (10, OK), (50, OK), (1_000_000, OK)]);
    let lines = Lines::default();
    let pool = PoolConfig::new().max_connections_per_host(9);
    let client = builder(net, &lines).hedge(hedge).pool(pool).build().unwrap();
    let ends = |told: &[String]| -> Vec<String> {
        let ends = told.iter().filter_map(|line| line.strip_prefix("end "));
        ends.map(|end| end.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    get(&client).await.unwrap();
    lines.take();
    get(&client).await.unwrap();
    assert_eq!(ends(&lines.take()), ["0 superseded -", "1 answered 200"]);
    get(&client).await.unwrap();
    let told = lines.take();
    assert_eq!(ends(&told), ["1 superseded -", "0 answered 200"], "{told:?}");
    assert!(tokio::time::timeout(Duration::from_secs(9), get(&client)).await.is_err());
    let mut told = ends(&lines.take());
    told.sort();
    assert_eq!(told, ["0 failed cancelled -", "1 failed cancelled -"]);
    assert!(heads.lock().unwrap().iter().filter(|head| head.contains("x-number: 1\r\n")).count() >= 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_sends_nothing_has_no_request() {
    let (net, _) = net(&[(0, OK)]);
    let lines = Lines::default();
    let client = builder(net, &lines).https_only(true).build().unwrap();
    assert!(get(&client).await.unwrap_err().is_builder());
    assert_eq!(lines.take(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_of_one_request_is_told_as_well() {
    let (net, heads) = net(&[(0, OK)]);
    let lines = Lines::default();
    let client = builder(net, &Lines::default()).build().unwrap();
    let own = lines.clone();
    let template = UrlTemplate::new("/{place}");
    client.get("http://a.test/here").extension(template).observer(own).send().await.unwrap().text().await.unwrap();
    assert_eq!(lines.take(), ["start 0 GET a.test:80/here", "end 0 answered 200 10", "over 10"]);
    assert_eq!(heads.lock().unwrap()[0].matches("x-number").count(), 1, "both observers add it");
}

#[cfg(feature = "tracing")]
#[tokio::test(start_paused = true)]
async fn spans_of_tracing_can_be_put_into_headers() {
    let (net, heads) = net(&[(0, OK)]);
    let observer = speeddial::interop::Tracing::new().propagator(|span, headers| {
        let name = span.metadata().map_or("disabled", |metadata| metadata.name());
        headers.insert("traceparent", name.parse().unwrap());
        headers.insert("tracestate", "a=1".parse().unwrap());
    });
    let names = FixedResolver::new().with("a.test", [v4(1)]);
    let client = Client::builder().dns_resolver(names).transport(net).no_proxy().observer(observer).build().unwrap();
    let subscriber = tracing_subscriber::registry();
    let guard = tracing::subscriber::set_default(subscriber);
    get(&client).await.unwrap();
    client.get("http://a.test/").header("traceparent", "own").send().await.unwrap().text().await.unwrap();
    drop(guard);
    let heads = heads.lock().unwrap();
    assert!(heads[0].contains("traceparent: HTTP request\r\ntracestate: a=1\r\n"), "{}", heads[0]);
    assert!(heads[1].contains("traceparent: own\r\n") && !heads[1].contains("tracestate"), "{}", heads[1]);
}

#[cfg(feature = "tracing")]
#[tokio::test(start_paused = true)]
async fn failures_and_repeats_are_events_above_debug() {
    /// Keeps the events above debug.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Kept {
        fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            struct Message(String);
            impl tracing::field::Visit for Message {
                fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                    if field.name() == "message" {
                        self.0 = format!("{value:?}");
                    }
                }
            }
            let level = *event.metadata().level();
            if level < tracing::Level::DEBUG {
                let mut message = Message(String::new());
                event.record(&mut message);
                self.0.lock().unwrap().push(format!("{level} {}", message.0));
            }
        }
    }

    let (net, _) = net(&[(3, "")]);
    let names = FixedResolver::new().with("a.test", [v4(1)]);
    let builder = Client::builder().dns_resolver(names).transport(net).no_proxy();
    let client = builder.observer(speeddial::interop::Tracing::new()).retry(RetryPolicy::new().attempts(2));
    let kept = Kept::default();
    let subscriber = tracing_subscriber::layer::SubscriberExt::with(tracing_subscriber::registry(), kept.clone());
    let guard = tracing::subscriber::set_default(subscriber);
    let client = client.build().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(1), get(&client)).await.is_err());
    assert_eq!(*kept.0.lock().unwrap(), [""; 0], "the caller gave the call up");
    get(&client).await.unwrap_err();
    drop(guard);
    assert_eq!(*kept.0.lock().unwrap(), ["INFO retried", "WARN failed"]);
}

#[tokio::test(start_paused = true)]
async fn functions_before_attempts_see_the_headers_of_observers() {
    let (net, heads) = net(&[(0, OK)]);
    let lines = Lines::default();
    let client = builder(net, &lines).before_attempt(|head: &mut speeddial::layers::AttemptHead<'_>| {
        let signed = format!("signed {}", head.headers()["x-number"].to_str()?);
        head.headers_mut().insert("x-signature", signed.parse()?);
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    });
    get(&client.build().unwrap()).await.unwrap();
    assert!(heads.lock().unwrap()[0].contains("x-signature: signed 0\r\n"));
}

/// Sends each attempt up to three times, until one is answered with success.
#[derive(Clone)]
pub(super) struct Thrice;

impl tower::retry::Policy<Message, speeddial::http::Response<speeddial::Body>, Cause> for Thrice {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut Message, result: &mut Answer) -> Option<Self::Future> {
        let is_done = result.as_ref().is_ok_and(|response| response.status().is_success());
        if is_done { None } else { Some(std::future::ready(())) }
    }

    fn clone_request(&mut self, message: &Message) -> Option<Message> {
        let mut copy = speeddial::http::Request::new(speeddial::Body::default());
        *copy.uri_mut() = message.uri().clone();
        *copy.headers_mut() = message.headers().clone();
        *copy.extensions_mut() = message.extensions().clone();
        Some(copy)
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync>;
type Message = speeddial::http::Request<speeddial::Body>;
type Answer = Result<speeddial::http::Response<speeddial::Body>, Cause>;

#[tokio::test(start_paused = true)]
async fn each_attempt_of_a_layer_is_a_request_that_ends() {
    let (net, heads) = net(&[(5, ""), (5, BUSY), (5, OK)]);
    let lines = Lines::default();
    let client = builder(net, &lines).attempt_layer(tower::retry::RetryLayer::new(Thrice)).build().unwrap();
    get(&client).await.unwrap();
    let told = lines.take();
    let starts: Vec<_> = told.iter().filter_map(|line| line.strip_prefix("start ")?.split(' ').next()).collect();
    assert_eq!(starts, ["0", "1", "2"], "{told:?}");
    let ends: Vec<_> = told.iter().filter_map(|line| line.strip_prefix("end ")?.rsplit_once(' ')).collect();
    let ends: Vec<_> = ends.into_iter().map(|(end, _)| end).collect();
    assert_eq!(ends, ["0 failed exchange -", "1 superseded 503", "2 answered 200"], "{told:?}");
    for (number, head) in heads.lock().unwrap().iter().enumerate() {
        assert!(head.contains(&format!("x-number: {number}\r\n")), "{head}");
    }
}
