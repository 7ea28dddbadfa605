//! One trace of OpenTelemetry, of the client's side and the server's: a call that is retried and redirected, as a tree.
//!
//! `cargo run --example joined_trace`; it has a server of its own, which joins the trace by the
//! `traceparent` of each request.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{FutureExt, SpanId, SpanKind, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, global};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracer, SdkTracerProvider, SpanData};
use speeddial::http::Response;
use speeddial::{Client, RetryPolicy};
use speeddial_opentelemetry::{PhaseDetail, Spans};
use support::full;
use support::http_server::HttpServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spans = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    global::set_tracer_provider(provider.clone());
    global::set_text_map_propagator(TraceContextPropagator::new());
    let server = serve(provider.tracer("server"))?;

    let client = Client::builder()
        .observer(Spans::new().phases(PhaseDetail::Spans))
        .retry(RetryPolicy::new().backoff(Duration::from_millis(2), Duration::from_millis(4)))
        .build()?;
    let work = Context::current_with_span(provider.tracer("service").start("checkout"));
    let call = client.get(format!("http://{}/orders", server.address())).send();
    call.with_context(work.clone()).await?.bytes().await?;
    work.span().end();

    let mut spans = spans.get_finished_spans()?;
    spans.sort_by_key(|span| span.start_time);
    let start = spans.first().ok_or("there are no spans")?.start_time;
    print(&spans, SpanId::INVALID, start, 0);
    Ok(())
}

/// Starts a server whose first answer is 503, and whose second one is a redirect.
fn serve(tracer: SdkTracer) -> std::io::Result<HttpServer> {
    let tracer = Arc::new(tracer);
    let count = Arc::new(AtomicUsize::new(0));
    HttpServer::start(move |request| {
        let (tracer, count) = (tracer.clone(), count.clone());
        async move {
            let parent = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
            let builder = tracer.span_builder(format!("serve {}", request.uri().path())).with_kind(SpanKind::Server);
            let _span = parent.with_span(tracer.build_with_context(builder, &parent));
            tokio::time::sleep(Duration::from_millis(3)).await;
            let builder = match count.fetch_add(1, Ordering::Relaxed) {
                0 => Response::builder().status(503),
                1 => Response::builder().status(302).header("location", "/orders/7"),
                _ => Response::builder(),
            };
            builder.body(full("done")).expect("valid headers")
        }
    })
}

/// Prints the spans whose parent is `parent`, and those in them, with the time of each and a bar.
fn print(spans: &[SpanData], parent: SpanId, start: SystemTime, depth: usize) {
    for span in spans.iter().filter(|span| span.parent_span_id == parent) {
        let ms = |time: SystemTime| time.duration_since(start).unwrap_or_default().as_secs_f64() * 1e3;
        let about = |name: &str| {
            let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
            found.map(|attribute| format!(" {}", attribute.value)).unwrap_or_default()
        };
        let kind = match span.span_kind {
            SpanKind::Client => "client",
            SpanKind::Server => "server",
            _ => "",
        };
        let name = format!(
            "{:1$}{name}{status}",
            "",
            2 * depth,
            name = span.name,
            status = about("http.response.status_code")
        );
        let (from, to) = (ms(span.start_time), ms(span.end_time));
        let bar =
            format!("{:1$}{2}", "", (from * 2.0) as usize, "=".repeat(((to - from) * 2.0).ceil().max(1.0) as usize));
        println!("{name:<24} {kind:<6} {:>7.2} ms  {bar}", to - from);
        print(spans, span.span_context.span_id(), start, depth + 1);
    }
}
