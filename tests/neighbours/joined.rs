//! Spans of `tracing` that the server's spans join, by tracing-opentelemetry.

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanKind, TracerProvider};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use speeddial::Client;
use speeddial::interop::Tracing;
use support::full;
use support::http_server::HttpServer;
use tracing::{Instrument, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

#[tokio::test]
async fn the_server_joins_a_trace_of_spans_of_tracing() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    // The server notes what it was sent, and is no part of the subscriber's spans.
    let server = HttpServer::start(async |request| {
        let known = HeaderExtractor(request.headers());
        hyper::Response::new(full(known.get("traceparent").unwrap_or_default().to_owned()))
    })
    .unwrap();
    let observer = Tracing::new().propagator(|span, headers| {
        TraceContextPropagator::new().inject_context(&span.context(), &mut HeaderInjector(headers));
    });
    let client = Client::builder().no_proxy().observer(observer).build().unwrap();
    let call = async {
        let response = client.get(format!("http://{}/items", server.address())).send().await.unwrap();
        response.text().await.unwrap()
    };
    let traceparent = call.instrument(info_span!("work")).await;

    let spans = exporter.get_finished_spans().unwrap();
    let find = |name: &str, kind: SpanKind| -> &SpanData {
        spans.iter().find(|span| span.name == name && span.span_kind == kind).unwrap_or_else(|| panic!("{spans:#?}"))
    };
    let [work, call, request] = [("work", SpanKind::Internal), ("GET", SpanKind::Internal), ("GET", SpanKind::Client)]
        .map(|(name, kind)| find(name, kind));
    assert_eq!(call.parent_span_id, work.span_context.span_id());
    assert_eq!(request.parent_span_id, call.span_context.span_id());
    let [trace, span] = [request.span_context.trace_id().to_string(), request.span_context.span_id().to_string()];
    assert_eq!(traceparent, format!("00-{trace}-{span}-01"), "the server's parent is the request's span");
    let about = |name: &str| request.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    assert_eq!(about("http.response.status_code").unwrap().value.to_string(), "200");
    assert_eq!(about("server.address").unwrap().value.to_string(), "127.0.0.1");
    assert!(about("otel.kind").is_none(), "{:?}", request.attributes);
}
