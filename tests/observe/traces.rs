//! Traces by OpenTelemetry: each call and each request is a span, and the server's spans join them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::baggage::BaggageExt;
use opentelemetry::propagation::{TextMapCompositePropagator, TextMapPropagator};
use opentelemetry::trace::{FutureExt, SpanId, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use speeddial::http::{Method, Response};
use speeddial::trace::UrlTemplate;
use speeddial::{Client, ClientBuilder, RetryPolicy};
use speeddial_opentelemetry::{PhaseDetail, Spans};

use support::full;
use support::http_server::HttpServer;

fn propagator() -> TextMapCompositePropagator {
    TextMapCompositePropagator::new(vec![Box::new(TraceContextPropagator::new()), Box::new(BaggagePropagator::new())])
}

/// The spans of a client, and those of the server that it asks.
struct Traced {
    spans: InMemorySpanExporter,
    provider: SdkTracerProvider,
    server: HttpServer,
    /// The number of requests for `/never` that came.
    unanswered: Arc<AtomicUsize>,
}

impl Traced {
    /// Starts a server that traces its requests. `/busy` is busy the first time, `/away` redirects, `/never` does not answer.
    fn start() -> Self {
        let spans = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
        let tracer = Arc::new(provider.tracer("server"));
        let count = Arc::new(AtomicUsize::new(0));
        let unanswered = Arc::new(AtomicUsize::new(0));
        let never = unanswered.clone();
        let server = HttpServer::start(move |request| {
            let (tracer, count, never) = (tracer.clone(), count.clone(), never.clone());
            async move {
                let parent = propagator().extract(&HeaderExtractor(request.headers()));
                let path = request.uri().path().to_owned();
                let user = parent.baggage().get("user").map(|user| user.as_str().to_owned());
                let builder = tracer.span_builder(format!("serve {path}")).with_kind(SpanKind::Server);
                let span = tracer
                    .build_with_context(builder.with_attributes(user.map(|user| KeyValue::new("user", user))), &parent);
                let _context = parent.with_span(span);
                match path.as_str() {
                    "/busy" if count.fetch_add(1, Ordering::SeqCst) == 0 => {
                        Response::builder().status(503).body(full("")).unwrap()
                    }
                    "/away" => Response::builder().status(302).header("location", "/ok").body(full("")).unwrap(),
                    "/never" => {
                        never.fetch_add(1, Ordering::SeqCst);
                        std::future::pending().await
                    }
                    _ => Response::new(full("ok")),
                }
            }
        })
        .unwrap();
        Self { spans, provider, server, unanswered }
    }

    fn observer(&self) -> Spans {
        Spans::with_tracer(self.provider.tracer("client")).propagator(propagator())
    }

    fn client(&self) -> ClientBuilder {
        Client::builder().no_proxy().observer(self.observer())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address())
    }

    /// Returns the spans that have ended, in the order in which they started.
    fn take(&self) -> Vec<SpanData> {
        let mut spans = self.spans.get_finished_spans().unwrap();
        self.spans.reset();
        spans.sort_by_key(|span| span.start_time);
        spans
    }
}

/// Returns the attributes of a span as text.
fn attributes(span: &SpanData) -> HashMap<String, String> {
    span.attributes.iter().map(|attribute| (attribute.key.to_string(), attribute.value.to_string())).collect()
}

fn named<'a>(spans: &'a [SpanData], name: &str, kind: SpanKind) -> Vec<&'a SpanData> {
    spans.iter().filter(|span| span.name == name && span.span_kind == kind).collect()
}

#[tokio::test]
async fn the_server_joins_the_trace_of_the_client() {
    let traced = Traced::start();
    let client = traced.client().build().unwrap();
    let work = traced.provider.tracer("test").start("work");
    let context = Context::current_with_span(work).with_baggage([KeyValue::new("user", "alice")]);
    let call = async {
        let request = client.get(traced.url("/ok?token=secret")).extension(UrlTemplate::new("/{page}"));
        request.send().await.unwrap().text().await.unwrap()
    };
    call.with_context(context.clone()).await;
    context.span().end();
    let spans = traced.take();
    let [work] = named(&spans, "work", SpanKind::Internal)[..] else { panic!("{spans:#?}") };
    let [call] = named(&spans, "GET", SpanKind::Internal)[..] else { panic!("{spans:#?}") };
    let [request] = named(&spans, "GET /{page}", SpanKind::Client)[..] else { panic!("{spans:#?}") };
    let [served] = named(&spans, "serve /ok", SpanKind::Server)[..] else { panic!("{spans:#?}") };
    let parents = [call, request, served].map(|span| span.parent_span_id);
    assert_eq!(parents, [work, call, request].map(|span| span.span_context.span_id()));
    assert!(served.parent_span_is_remote);
    assert!(spans.iter().all(|span| span.span_context.trace_id() == work.span_context.trace_id()));
    assert_eq!(attributes(served)["user"], "alice", "baggage is sent along");
    let about = attributes(request);
    let port = traced.server.address().port().to_string();
    let url = format!("http://127.0.0.1:{port}/ok");
    let expected = [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("network.peer.address", "127.0.0.1"),
        ("network.peer.port", &port),
        ("network.protocol.version", "1.1"),
        ("server.address", "127.0.0.1"),
        ("server.port", &port),
        ("url.full", &url),
        ("url.scheme", "http"),
        ("url.template", "/{page}"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(about, HashMap::from(expected));
    assert!(call.start_time <= request.start_time && request.end_time <= call.end_time);
    let phases: Vec<_> = request.events.iter().map(|event| event.name.to_string()).collect();
    for phase in ["connect", "wait", "receive"] {
        assert!(phases.iter().any(|name| name == phase), "{phases:?}");
    }
    assert!(request.events.iter().all(|event| (request.start_time..=request.end_time).contains(&event.timestamp)));
}

#[tokio::test]
async fn each_retry_and_redirect_is_a_span_that_the_server_joins() {
    let traced = Traced::start();
    let policy = RetryPolicy::new().attempts(2).backoff(Duration::from_millis(1), Duration::from_millis(2));
    let client = traced.client().retry(policy).build().unwrap();
    for path in ["/busy", "/away"] {
        client.get(traced.url(path)).send().await.unwrap().text().await.unwrap();
    }
    let spans = traced.take();
    let requests = named(&spans, "GET", SpanKind::Client);
    let facts: Vec<_> = requests
        .iter()
        .map(|span| {
            let about = attributes(span);
            let get = |name: &str| about.get(name).cloned().unwrap_or("-".to_owned());
            [get("http.response.status_code"), get("http.request.resend_count"), get("error.type")].join(" ")
        })
        .collect();
    assert_eq!(facts, ["503 - 503", "200 1 -", "302 - -", "200 1 -"]);
    assert_eq!(requests[0].status, Status::error(""));
    assert_eq!(requests[1].status, Status::Unset);
    let served: Vec<_> = spans.iter().filter(|span| span.span_kind == SpanKind::Server).collect();
    let parents: Vec<SpanId> = served.iter().map(|span| span.parent_span_id).collect();
    assert_eq!(parents, requests.iter().map(|span| span.span_context.span_id()).collect::<Vec<_>>());
    let calls = named(&spans, "GET", SpanKind::Internal);
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| attributes(call)["http.response.status_code"] == "200"));
}

#[tokio::test]
async fn a_traceparent_of_the_users_own_is_kept() {
    let traced = Traced::start();
    let client = traced.client().build().unwrap();
    let own = "00-11111111111111111111111111111111-2222222222222222-01";
    client.get(traced.url("/ok")).header("traceparent", own).send().await.unwrap().text().await.unwrap();
    let spans = traced.take();
    let [served] = named(&spans, "serve /ok", SpanKind::Server)[..] else { panic!("{spans:#?}") };
    assert_eq!(served.parent_span_id.to_string(), "2222222222222222");
    assert_eq!(served.span_context.trace_id().to_string(), "1".repeat(32));
}

#[tokio::test]
async fn a_failed_and_a_dropped_call_end_their_spans() {
    let traced = Traced::start();
    let client = traced.client().build().unwrap();
    let (_held, refusing) = support::refusing();
    let refused = format!("http://{refusing}/");
    let purge = Method::from_bytes(b"PURGE").unwrap();
    assert!(client.request(purge, refused).send().await.is_err());
    let spans = traced.take();
    let [request] = named(&spans, "HTTP", SpanKind::Client)[..] else { panic!("{spans:#?}") };
    let about = attributes(request);
    assert_eq!([&about["http.request.method"], &about["http.request.method_original"]], ["_OTHER", "PURGE"]);
    assert_eq!(about["error.type"], "connect");
    assert_eq!(request.status, Status::error("connect"));
    tokio::select! {
        answer = client.get(traced.url("/never")).send() => panic!("{answer:?}"),
        () = support::until("the request arrives", || traced.unanswered.load(Ordering::SeqCst) == 1) => {}
    }
    let spans = traced.take();
    for kind in [SpanKind::Internal, SpanKind::Client] {
        let [span] = named(&spans, "GET", kind)[..] else { panic!("{spans:#?}") };
        let about = attributes(span);
        assert_eq!((about.get("error.type"), about["speeddial.cancelled"].as_str()), (None, "true"));
        assert_eq!(span.status, Status::Unset, "it is not an error");
    }
}

#[tokio::test]
async fn phases_are_spans_of_the_request_if_wanted() {
    let traced = Traced::start();
    let with = |detail| Client::builder().no_proxy().observer(traced.observer().phases(detail)).build().unwrap();
    with(PhaseDetail::Spans).get(traced.url("/ok")).send().await.unwrap().text().await.unwrap();
    let spans = traced.take();
    let [request] = named(&spans, "GET", SpanKind::Client)[..] else { panic!("{spans:#?}") };
    let is_phase = |span: &&SpanData| span.parent_span_id == request.span_context.span_id();
    let phases: Vec<_> = spans.iter().filter(is_phase).filter(|span| span.span_kind == SpanKind::Internal).collect();
    let names: Vec<_> = phases.iter().map(|span| span.name.as_ref()).collect();
    assert!(["connect", "wait"].iter().all(|name| names.contains(name)), "{names:?}");
    assert!(phases.windows(2).all(|pair| pair[0].end_time <= pair[1].start_time), "one after the other");
    assert!(phases.iter().all(|span| request.start_time <= span.start_time && span.end_time <= request.end_time));
    assert!(request.events.is_empty());
    with(PhaseDetail::None).get(traced.url("/ok")).send().await.unwrap().text().await.unwrap();
    let spans = traced.take();
    assert_eq!(spans.len(), 3, "{spans:#?}");
    assert!(spans.iter().all(|span| span.events.is_empty()));
}
