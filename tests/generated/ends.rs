//! Ends are told as they were: bodies and calls that are ended at each point in each way, and what the recorder, HAR documents, spans,
//! metrics, requests and events say of them, beside what the peer sent and what the program did.
//!
//! Time is paused.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use opentelemetry::trace::{SpanKind, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde_json::{Value, json};
use speeddial::dns::CachedResolver;
use speeddial::trace::{EndedRequest, Event, Observer, RequestEnd, StartedRequest, Wants};
use speeddial::{Client, ClientBuilder, HedgePolicy, PoolConfig, Response, RetryPolicy};
use speeddial_inspect::{Har, Recorder};
use speeddial_metrics::Metrics;
use speeddial_opentelemetry::Spans;
use support::fake_dns::FakeDns;
use support::h2_peer::{DATA, END_STREAM, H2Peer};
use support::recorder::Recorder as Events;
use support::scripted_net::ScriptedNet;
use support::v4;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::{sleep, timeout};

use crate::factors::{self, factor};

const URL: &str = "http://api.test/x";
/// The whole body, and as much of it as comes if the peer does not send it whole.
const BODY: &[u8] = b"twenty bytes of text";
const PART: usize = 12;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Everything that is told of a client.
struct Told {
    events: Events,
    recorder: Recorder,
    har: Har,
    requests: Requests,
    spans: InMemorySpanExporter,
    /// Spans go to the exporter as long as it lives.
    provider: SdkTracerProvider,
    metrics: Snapshotter,
    /// The gauges at the restart, which a snapshot sets to 0.
    open_before: Cell<f64>,
    /// What is measured on this thread goes to the metrics as long as it lives.
    _metrics_of_thread: metrics::LocalRecorderGuard<'static>,
}

/// The metrics since the restart.
#[derive(Default)]
struct Measured {
    /// The sum of the gauges of requests, and of connections, that are not over.
    open: f64,
    requests: usize,
    request_errors: usize,
    calls: usize,
    /// The labels of calls that say how they ended.
    call_ends: Vec<String>,
}

/// The requests that began, and the ends of those that are over.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<(usize, Vec<RequestEnded>)>>);

/// The end of a request, and its failure.
type RequestEnded = (RequestEnd, Option<&'static str>);

impl Observer for Requests {
    fn wants(&self) -> Wants {
        Wants::REQUESTS
    }

    fn request_started(&self, _: &StartedRequest<'_>) {
        self.0.lock().unwrap().0 += 1;
    }

    fn request_ended(&self, request: &EndedRequest<'_>) {
        self.0.lock().unwrap().1.push((request.end, request.failure));
    }
}

/// The end of a call by which the program and the peer know it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Read,
    Unread,
    Failed(&'static str),
}

impl Told {
    fn new() -> Self {
        let (events, recorder, requests) = Default::default();
        let spans = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
        // For the rest of the process: the guard wants to know that it lives.
        let measuring: &'static DebuggingRecorder = Box::leak(Box::default());
        let metrics = measuring.snapshotter();
        let _metrics_of_thread = metrics::set_default_local_recorder(measuring);
        Self {
            events,
            recorder,
            har: Har::last(9),
            requests,
            spans,
            provider,
            metrics,
            open_before: Cell::default(),
            _metrics_of_thread,
        }
    }

    fn observe(&self, builder: ClientBuilder) -> ClientBuilder {
        let spans = Spans::with_tracer(self.provider.tracer("client"));
        let builder = builder.observer(self.events.clone()).observer(self.recorder.clone()).observer(self.har.clone());
        builder.observer(self.requests.clone()).observer(spans).observer(Metrics::new())
    }

    /// Forgets what was told so far, except events and the HAR document.
    fn restart(&self) {
        self.recorder.clear();
        *self.requests.0.lock().unwrap() = Default::default();
        self.spans.reset();
        let open = self.measured().open;
        self.open_before.set(open);
    }

    /// Returns what was measured since the restart, once.
    fn measured(&self) -> Measured {
        let mut measured = Measured { open: self.open_before.get(), ..Measured::default() };
        for (key, _, _, value) in self.metrics.snapshot().into_vec() {
            let ends = key
                .key()
                .labels()
                .filter(|label| matches!(label.key(), "error.type" | "speeddial.cancelled" | "speeddial.unread"));
            let ends: Vec<_> = ends.map(|label| format!("{}={}", label.key(), label.value())).collect();
            match (key.key().name(), value) {
                ("http.client.active_requests" | "http.client.open_connections", DebugValue::Gauge(open)) => {
                    measured.open += *open;
                }
                ("http.client.request.duration", DebugValue::Histogram(values)) => {
                    measured.requests += values.len();
                    let is_error = ends.iter().any(|end| end.starts_with("error.type"));
                    measured.request_errors += if is_error { values.len() } else { 0 };
                }
                ("speeddial.call.duration", DebugValue::Histogram(values)) => {
                    measured.calls += values.len();
                    measured.call_ends.extend(values.iter().flat_map(|_| ends.clone()));
                }
                _ => {}
            }
        }
        measured
    }

    /// Checks what is told of the only call since the restart.
    fn check(&self, end: End, bytes: u64) -> Result<(), String> {
        self.is_balanced()?;
        let failure = if let End::Failed(why) = end { Some(why) } else { None };
        let snapshot = self.recorder.snapshot();
        let call = &snapshot.origins[0].calls[0];
        let timings = &call.timings;
        equal("recorder", &(timings.is_unread(), timings.failure()), &(end == End::Unread, failure))?;
        equal("recorder: is a failure", &call.is_failure, &failure.is_some())?;
        equal("recorder: bytes", &timings.received_bytes(), &bytes)?;
        let document: Value = serde_json::from_str(&self.har.to_json()).unwrap();
        let is_earlier = |entry: &Value| {
            let end = entry["_end"].as_str().unwrap_or_default();
            end.starts_with("redirected") || end.starts_with("repeated")
        };
        let of_call = |entry: &&Value| entry["request"]["url"].as_str().unwrap().starts_with(URL) && !is_earlier(entry);
        let entries: Vec<_> = document["log"]["entries"].as_array().unwrap().iter().filter(of_call).collect();
        let requests = self.requests.0.lock().unwrap();
        let is_last = |(end, _): &&RequestEnded| !matches!(end, RequestEnd::Redirected(_) | RequestEnd::Repeated(_));
        let last: Vec<_> = requests.1.iter().filter(is_last).collect();
        // A call that made no request has an entry of its own.
        let has_request = !requests.1.is_empty();
        equal("HAR: entries", &entries.len(), &if has_request { last.len() } else { 1 })?;
        if let Some(last) = entries.last() {
            equal("HAR: bytes", &last["response"]["content"]["size"], &json!(bytes))?;
        }
        for entry in entries {
            equal("HAR: failure", &entry["_failure"], &json!(failure))?;
            let name = match end {
                End::Read => "answered",
                End::Unread => "unread",
                End::Failed(_) => "failed",
            };
            equal("HAR: end", &entry["_end"], &json!(has_request.then_some(name)))?;
        }
        for (of_request, why) in last {
            let expected = match end {
                End::Read => RequestEnd::Answered,
                End::Unread => RequestEnd::Unread,
                End::Failed(_) => RequestEnd::Failed,
            };
            equal("request", &(*of_request, *why), &(expected, failure))?;
        }
        let spans = self.spans.get_finished_spans().unwrap();
        equal("spans of calls", &of_kind(&spans, &SpanKind::Internal).count(), &1)?;
        equal("spans of requests", &of_kind(&spans, &SpanKind::Client).count(), &requests.1.len())?;
        for span in &spans {
            let about = |name: &str| {
                let attribute = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
                attribute.map(|attribute| attribute.value.to_string())
            };
            if about("error.type").is_some_and(|error| error == "503")
                || about("http.response.status_code").is_some_and(|status| status == "302")
            {
                continue; // an earlier request
            }
            let is_cancelled = failure == Some("cancelled");
            let is_true = |is_it: bool| is_it.then(|| "true".to_owned());
            equal("span: unread", &about("speeddial.unread"), &is_true(end == End::Unread))?;
            equal("span: cancelled", &about("speeddial.cancelled"), &is_true(is_cancelled))?;
            let error = failure.filter(|_| !is_cancelled).map(str::to_owned);
            equal("span: error.type", &about("error.type"), &error)?;
        }
        let measured = self.measured();
        equal("metrics: requests and connections that are open", &measured.open, &0.0)?;
        equal("metrics: requests", &measured.requests, &requests.1.len())?;
        let errors = of_kind(&spans, &SpanKind::Client).filter(|span| has_attribute(span, "error.type")).count();
        equal("metrics: errors of requests", &measured.request_errors, &errors)?;
        let label = match end {
            End::Read => None,
            End::Unread => Some("speeddial.unread=true".to_owned()),
            End::Failed("cancelled") => Some("speeddial.cancelled=true".to_owned()),
            End::Failed(why) => Some(format!("error.type={why}")),
        };
        equal("metrics: calls", &(measured.calls, measured.call_ends), &(1, label.into_iter().collect()))?;
        let ends = self.events.pick(|event| match event {
            Event::BodyEnd { bytes, .. } => Some((End::Read, *bytes)),
            Event::BodyDropped { bytes, .. } => Some((End::Unread, *bytes)),
            Event::CallFailed { why, bytes, .. } => Some((End::Failed(why), *bytes)),
            _ => None,
        });
        equal("event", &ends.last(), &Some(&(end, bytes)))
    }

    /// Checks that everything that has begun has one end.
    fn is_balanced(&self) -> Result<(), String> {
        let requests = self.requests.0.lock().unwrap();
        equal("requests", &requests.0, &requests.1.len())?;
        let counts = |is_it: fn(&Event) -> bool| self.events.count(is_it);
        type Is = fn(&Event) -> bool;
        let pairs: [(&str, Is, Is); 7] = [
            (
                "calls",
                |event| matches!(event, Event::CallStart(_)),
                |event| matches!(event, Event::BodyEnd { .. } | Event::BodyDropped { .. } | Event::CallFailed { .. }),
            ),
            ("hedges", |event| matches!(event, Event::Hedged { .. }), |event| matches!(event, Event::HedgeEnd { .. })),
            (
                "dials",
                |event| matches!(event, Event::DialStart { .. }),
                |event| {
                    matches!(
                        event,
                        Event::Opened { .. } | Event::DialFailed | Event::DialCancelled | Event::DialPostponed
                    )
                },
            ),
            (
                "lookups",
                |event| matches!(event, Event::DnsStart { .. }),
                |event| matches!(event, Event::DnsEnd(_) | Event::DnsCancelled { .. }),
            ),
            (
                "attempts",
                |event| matches!(event, Event::AttemptStart { .. }),
                |event| matches!(event, Event::AttemptEnd { .. } | Event::AttemptCancelled { .. }),
            ),
            ("leases", |event| matches!(event, Event::Leased { .. }), |event| matches!(event, Event::Released { .. })),
            (
                "connections",
                |event| matches!(event, Event::Opened { .. }),
                |event| matches!(event, Event::Closed { .. }),
            ),
        ];
        for (what, begins, ends) in pairs {
            equal(what, &counts(begins), &counts(ends))?;
        }
        Ok(())
    }
}

fn of_kind<'a>(spans: &'a [SpanData], kind: &'a SpanKind) -> impl Iterator<Item = &'a SpanData> {
    spans.iter().filter(move |span| span.span_kind == *kind)
}

fn has_attribute(span: &SpanData, name: &str) -> bool {
    span.attributes.iter().any(|attribute| attribute.key.as_str() == name)
}

fn equal<T: PartialEq + fmt::Debug>(what: &str, told: &T, true_: &T) -> Result<(), String> {
    if told == true_ { Ok(()) } else { Err(format!("{what}: told {told:?}, in truth {true_:?}")) }
}

/// Waits until all that the client has begun is over, its connections included.
async fn over(client: Client) {
    factors::settles(&client).await.unwrap();
    client.close_idle();
    drop(client);
    sleep(ms(10_000)).await;
}

factor! {
    /// The way in which a body comes: with its length, in chunks, or as a stream of HTTP/2 with its length.
    Over { Http1, Chunked, Http2 }
}

factor! {
    /// The peer sends the whole body; the end of the stream later; or a part, and then nothing, or the end of the connection.
    Sent { Whole, EndLater, Stops, Breaks }
}

factor! {
    /// The program reads all, or drops the response: after what has come, unread, or by `error_for_status`.
    Reads { All, Some, Nothing, Unwraps }
}

/// A body and its end.
#[derive(Debug, Clone, Copy)]
struct Row {
    over: Over,
    sent: Sent,
    reads: Reads,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.over, self.sent, self.reads)
    }
}

impl Row {
    fn is_whole(self) -> bool {
        matches!(self.sent, Sent::Whole | Sent::EndLater)
    }

    /// Returns the end of the call, and the bytes that the program has read by then.
    fn end(self) -> (End, u64) {
        let sent = if self.is_whole() { BODY.len() } else { PART } as u64;
        match (self.reads, self.sent) {
            (Reads::Nothing | Reads::Unwraps, _) => (End::Unread, 0),
            (Reads::All, Sent::Stops) => (End::Failed("timeout"), sent),
            (Reads::All, Sent::Breaks) => (End::Failed("body"), sent),
            (Reads::All, _) => (End::Read, sent),
            // Behind the last chunk comes its end, which the program has not read.
            (Reads::Some, _) if self.over == Over::Chunked => (End::Unread, sent),
            (Reads::Some, _) => (if self.is_whole() { End::Read } else { End::Unread }, sent),
        }
    }
}

/// Serves connections whose bodies are those of a row.
async fn serve_body(row: Row, mut stream: DuplexStream) -> std::io::Result<()> {
    let body = if row.is_whole() { BODY } else { &BODY[..PART] };
    if row.over == Over::Http2 {
        let mut peer = H2Peer::accept(stream, Some(100)).await?;
        while let Ok(stream) = peer.request().await {
            peer.head_with_length(stream, &BODY.len().to_string()).await?;
            sleep(ms(5)).await;
            peer.send(DATA, if row.sent == Sent::Whole { END_STREAM } else { 0 }, stream, body).await?;
            sleep(ms(5)).await;
            match row.sent {
                Sent::EndLater => peer.send(DATA, END_STREAM, stream, b"").await?,
                Sent::Breaks => return Ok(()),
                _ => {}
            }
        }
        return Ok(());
    }
    while support::read_request_head(&mut stream).await.is_some() {
        let (length, text) = (BODY.len(), str::from_utf8(body).unwrap());
        let (head, piece, end) = match row.over {
            Over::Chunked => {
                ("transfer-encoding: chunked".to_owned(), format!("{:x}\r\n{text}\r\n", body.len()), "0\r\n\r\n")
            }
            _ => (format!("content-length: {length}"), text.to_owned(), ""),
        };
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes()).await?;
        sleep(ms(5)).await;
        stream.write_all(piece.as_bytes()).await?;
        if row.sent != Sent::Whole {
            sleep(ms(5)).await;
        }
        match row.sent {
            Sent::Whole | Sent::EndLater => stream.write_all(end.as_bytes()).await?,
            Sent::Stops => sleep(ms(1_000_000)).await,
            Sent::Breaks => return Ok(()),
        }
    }
    Ok(())
}

async fn read(row: Row, mut response: Response) {
    match row.reads {
        Reads::All => drop(response.bytes().await),
        Reads::Some => drop(response.chunk().await),
        Reads::Nothing => drop(response),
        Reads::Unwraps => drop(response.error_for_status()),
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_end_as_they_are_told() {
    let mut failed = Vec::new();
    for &over_ in Over::ALL {
        for (&sent, &reads) in Sent::ALL.iter().flat_map(|sent| Reads::ALL.iter().map(move |reads| (sent, reads))) {
            let row = Row { over: over_, sent, reads };
            if !factors::is_chosen(&row) {
                continue;
            }
            let told = Told::new();
            let net = ScriptedNet::new(move |_, stream| async move { drop(serve_body(row, stream).await) });
            let builder = Client::builder().no_proxy().dns_resolver(FakeDns::v4(10, v4(1), 60)).transport(net);
            let builder = if row.over == Over::Http2 { builder.http2_prior_knowledge() } else { builder };
            let client = told.observe(builder).build().unwrap();
            let response = client.get(URL).timeout(ms(500)).send().await.unwrap();
            read(row, response).await;
            over(client).await;
            let (end, bytes) = row.end();
            if let Err(what) = told.check(end, bytes) {
                failed.push(format!("{row}: {what}"));
            }
        }
    }
    assert!(failed.is_empty(), "{} rows\n{}", failed.len(), failed.join("\n"));
}

factor! {
    /// The way in which the program ends a call that is not answered: it drops the call, or the call's deadline passes.
    GivesUp { Drops, Deadline }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Returns a client whose first request is answered after 20 ms and later ones never, its names, and the number of requests that came.
fn silent_after_the_first(
    told: &Told,
    builder: ClientBuilder,
    first: &'static str,
) -> (Client, CachedResolver, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let net = ScriptedNet::new(move |_, mut stream| {
        let count = count.clone();
        async move {
            while support::read_request_head(&mut stream).await.is_some() {
                let wait = if count.fetch_add(1, Ordering::SeqCst) == 0 { 20 } else { 1_000_000 };
                tokio::select! {
                    () = sleep(ms(wait)) => {}
                    _ = tokio::io::AsyncReadExt::read_u8(&mut stream) => return,
                }
                let _ = stream.write_all(first.as_bytes()).await;
            }
        }
    });
    let names = CachedResolver::new(FakeDns::v4(10, v4(1), 60));
    let pool = PoolConfig::new().max_connections_per_host(9);
    let client = told.observe(builder.no_proxy().dns_cache(names.clone()).transport(net).pool(pool)).build().unwrap();
    (client, names, asked)
}

#[tokio::test(start_paused = true)]
async fn calls_end_as_they_are_told_at_each_point() {
    let mut failed = Vec::new();
    let mut hedged = 0;
    for (&gives_up, after) in GivesUp::ALL.iter().flat_map(|way| (1..80).map(move |after| (way, after))) {
        for is_hedged in [false, true] {
            let row = format!("{gives_up:?} {after} hedged: {is_hedged}");
            if !factors::is_chosen(&row) {
                continue;
            }
            let told = Told::new();
            let builder = Client::builder();
            let policy = HedgePolicy::new().min_samples(1).budget(1.0);
            let builder = if is_hedged { builder.hedge(policy) } else { builder };
            let (client, names, asked) = silent_after_the_first(&told, builder, OK);
            client.get("http://api.test/first").send().await.unwrap().bytes().await.unwrap();
            sleep(ms(100)).await;
            told.restart();
            // A connection is opened anew, to end the call at each point of that.
            client.close_idle();
            names.flush();
            let why = match gives_up {
                GivesUp::Drops => {
                    assert!(timeout(ms(after), client.get(URL).send()).await.is_err());
                    "cancelled"
                }
                GivesUp::Deadline => {
                    client.get(URL).timeout(ms(after)).send().await.unwrap_err();
                    "timeout"
                }
            };
            over(client).await;
            let snapshot = told.recorder.snapshot();
            let hedges = snapshot.origins[0].calls[0].timings.hedges();
            hedged += hedges.len();
            let requests = told.requests.0.lock().unwrap().0;
            // The first one is that of the call before.
            let came = asked.load(Ordering::SeqCst) - 1;
            let is_possible = requests == 1 + hedges.len() && came <= requests;
            let outcomes: Vec<_> = hedges.iter().map(|hedge| hedge.outcome.as_str()).collect();
            let checked = told.check(End::Failed(why), 0).and_then(|()| {
                equal("hedges", &outcomes, &vec![why; hedges.len()])?;
                equal("requests of the peer", &is_possible, &true)
            });
            if let Err(what) = checked {
                failed.push(format!("{row}: {what}"));
            }
        }
    }
    assert!(hedged > 20, "{hedged} calls were hedged");
    assert!(failed.is_empty(), "{} rows\n{}", failed.len(), failed[..failed.len().min(20)].join("\n"));
}

factor! {
    /// What is around the requests of a call: the second one follows a redirect, or a backoff; a layer takes 30 ms before each.
    Around { Redirect, Retry, Layer }
}

impl Around {
    /// Returns the answer to the first request.
    fn first(self) -> &'static str {
        match self {
            Self::Redirect => "HTTP/1.1 302 Found\r\nlocation: /x2\r\ncontent-length: 0\r\n\r\n",
            Self::Retry | Self::Layer => "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
        }
    }

    fn add(self, builder: ClientBuilder) -> ClientBuilder {
        let layer = tower::layer::layer_fn(|inner: speeddial::layers::AttemptService| {
            tower::service_fn(move |request: speeddial::http::Request<speeddial::Body>| {
                let inner = inner.clone();
                async move {
                    sleep(ms(30)).await;
                    tower::ServiceExt::oneshot(inner, request).await
                }
            })
        });
        let retry = RetryPolicy::new().backoff(ms(40), ms(40)).no_budget();
        match self {
            Self::Redirect => builder,
            Self::Retry => builder.retry(retry),
            Self::Layer => builder.retry(retry).attempt_layer(layer),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_several_requests_end_as_they_are_told_at_each_point() {
    let mut failed = Vec::new();
    let mut several = 0;
    for (&around, &gives_up) in Around::ALL.iter().flat_map(|around| GivesUp::ALL.iter().map(move |way| (around, way)))
    {
        for after in 1..150 {
            let row = format!("{around:?} {gives_up:?} {after}");
            if !factors::is_chosen(&row) {
                continue;
            }
            let told = Told::new();
            let (client, _, asked) = silent_after_the_first(&told, around.add(Client::builder()), around.first());
            let why = match gives_up {
                GivesUp::Drops => {
                    assert!(timeout(ms(after), client.get(URL).send()).await.is_err());
                    "cancelled"
                }
                GivesUp::Deadline => {
                    if client.get(URL).timeout(ms(after)).send().await.is_ok() {
                        over(client).await;
                        continue; // no time is left for the retry, and the program has the answer
                    }
                    "timeout"
                }
            };
            over(client).await;
            let (began, came) = (told.requests.0.lock().unwrap().0, asked.load(Ordering::SeqCst));
            several += usize::from(began > 1);
            let checked = told.check(End::Failed(why), 0);
            let checked = checked.and_then(|()| equal("requests of the peer", &(came <= began), &true));
            if let Err(what) = checked {
                failed.push(format!("{row}: {what}"));
            }
        }
    }
    assert!(several > 100, "{several} calls had several requests");
    assert!(failed.is_empty(), "{} rows\n{}", failed.len(), failed[..failed.len().min(20)].join("\n"));
}

factor! {
    /// A call that lasts: a request that is sent slowly, a stream of events, and the stream of another protocol.
    Lasts { Upload, Events, Upgrade }
}

/// An event as it comes.
const EVENT: &str = "data: x\n\n";

/// Serves connections whose requests are of this kind. None of them comes to its end.
async fn serve_lasting(lasts: Lasts, mut stream: DuplexStream) -> std::io::Result<()> {
    support::read_request_head(&mut stream).await;
    let head = match lasts {
        Lasts::Upload => "",
        Lasts::Events => "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
        Lasts::Upgrade => "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
    };
    sleep(ms(10)).await;
    stream.write_all(head.as_bytes()).await?;
    if matches!(lasts, Lasts::Events) {
        for _ in 0..4 {
            sleep(ms(10)).await;
            stream.write_all(EVENT.as_bytes()).await?;
        }
    }
    // Until the client closes.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(drop)
}

/// Makes a call that lasts, and drops it after so many milliseconds. Returns its end, and the bytes of the response that came.
async fn last_for(client: &Client, lasts: Lasts, after: u64) -> (End, u64) {
    const CANCELLED: (End, u64) = (End::Failed("cancelled"), 0);
    match lasts {
        Lasts::Upload => {
            let pieces = futures_util::stream::unfold((), |()| async {
                sleep(ms(10)).await;
                Some((Ok::<_, std::io::Error>("piece"), ()))
            });
            let body = speeddial::Body::wrap_stream(pieces);
            assert!(timeout(ms(after), client.post(URL).body(body).send()).await.is_err());
            CANCELLED
        }
        Lasts::Events => {
            let mut source = client.get(URL).event_source().unwrap();
            let mut events = 0;
            let reading = async {
                while futures_util::StreamExt::next(&mut source).await.is_some() {
                    events += 1;
                }
            };
            assert!(timeout(ms(after), reading).await.is_err());
            let is_open = source.ready_state() == speeddial::sse::ReadyState::Open;
            if is_open { (End::Unread, events * EVENT.len() as u64) } else { CANCELLED }
        }
        Lasts::Upgrade => {
            let mut has_upgraded = false;
            let upgrading = async {
                let request = client.get(URL).header("connection", "upgrade").header("upgrade", "echo");
                let _stream = request.send().await.unwrap().upgrade().await.unwrap();
                has_upgraded = true;
                std::future::pending::<()>().await;
            };
            assert!(timeout(ms(after), upgrading).await.is_err());
            if has_upgraded { (End::Read, 0) } else { CANCELLED }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_last_end_as_they_are_told_at_each_point() {
    let mut failed = Vec::new();
    for (&lasts, after) in Lasts::ALL.iter().flat_map(|lasts| (1..100).map(move |after| (lasts, after))) {
        let row = format!("{lasts:?} {after}");
        if !factors::is_chosen(&row) {
            continue;
        }
        let told = Told::new();
        let net = ScriptedNet::new(move |_, stream| async move { drop(serve_lasting(lasts, stream).await) });
        let builder = Client::builder().no_proxy().dns_resolver(FakeDns::v4(10, v4(1), 60)).transport(net);
        let client = told.observe(builder).build().unwrap();
        let (end, bytes) = last_for(&client, lasts, after).await;
        over(client).await;
        let upgrades = usize::from(matches!(lasts, Lasts::Upgrade) && end == End::Read);
        let ended = told.events.count(|event| matches!(event, Event::UpgradeEnd { .. }));
        if let Err(what) = told.check(end, bytes).and_then(|()| equal("upgrades", &ended, &upgrades)) {
            failed.push(format!("{row}: {what}"));
        }
    }
    assert!(failed.is_empty(), "{} rows\n{}", failed.len(), failed[..failed.len().min(20)].join("\n"));
}
