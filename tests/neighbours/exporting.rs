//! The client under OpenTelemetry's exporter of spans, with the SDK's batch processor, against a collector that counts.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Response;
use opentelemetry::trace::{Tracer, TracerProvider};
use opentelemetry_http::{HttpClient, ResponseBodyTooLarge};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_sdk::trace::SdkTracerProvider;
use prost::Message;
use speeddial::{Client, ErrorKind};
use speeddial_opentelemetry::Http;
use support::fake_net::{FakeNet, Host};
use support::full;
use support::http_server::HttpServer;

/// The spans that arrived by name, and how often.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<BTreeMap<String, usize>>>);

impl Spans {
    fn add(&self, message: &[u8]) {
        let export = ExportTraceServiceRequest::decode(message).unwrap();
        let scopes = export.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        for span in scopes.flat_map(|scope| scope.spans) {
            *self.0.lock().unwrap().entry(span.name).or_default() += 1;
        }
    }

    /// The number of names, and the number of spans.
    fn count(&self) -> (usize, usize) {
        let spans = self.0.lock().unwrap();
        (spans.len(), spans.values().sum())
    }

    /// Starts a collector that adds to these spans.
    fn collector(&self, address: SocketAddr) -> HttpServer {
        let spans = self.clone();
        let collector = HttpServer::start_at(address, move |request| {
            let spans = spans.clone();
            async move {
                assert_eq!(request.headers()["content-type"], "application/x-protobuf");
                spans.add(&request.into_body().collect().await.unwrap().to_bytes());
                Response::new(full(""))
            }
        });
        collector.unwrap()
    }
}

/// Any port of the loopback interface.
const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Returns a provider whose batch processor exports by `client`.
fn provider(client: Http, address: SocketAddr) -> SdkTracerProvider {
    let exporter = SpanExporter::builder().with_http().with_http_client(client);
    let exporter = exporter.with_endpoint(format!("http://{address}/v1/traces")).build().unwrap();
    SdkTracerProvider::builder().with_batch_exporter(exporter).build()
}

/// Ends `count` spans, which are named by the round and a number.
fn end_spans(provider: &SdkTracerProvider, round: usize, count: usize) {
    let tracer = provider.tracer("tests");
    for number in 0..count {
        drop(tracer.start(format!("{round}/{number}")));
    }
}

/// Flushes the provider while the test's runtime, which has one thread, goes on.
async fn flush(provider: &SdkTracerProvider) {
    let provider = provider.clone();
    tokio::task::spawn_blocking(move || provider.force_flush()).await.unwrap().unwrap();
}

#[tokio::test]
async fn all_spans_arrive_once_while_the_collector_is_restarted() {
    let spans = Spans::default();
    let mut collector = spans.collector(ANY.into());
    let address = collector.address();
    let client = Client::new();
    let provider = provider(Http::new(client.clone()), address);
    for round in 0..4 {
        // Two flushes in a row, of which the second one finds the connection of the first.
        for half in 0..2 {
            end_spans(&provider, 2 * round + half, 100);
            flush(&provider).await;
            assert_eq!(spans.count(), ((2 * round + half + 1) * 100, (2 * round + half + 1) * 100));
        }
        drop(collector);
        collector = spans.collector(address);
    }
    assert!(client.pool_stats().reused >= 4, "{client:?}");
    end_spans(&provider, 8, 1);
    tokio::task::spawn_blocking(move || provider.shutdown()).await.unwrap().unwrap();
    assert_eq!(spans.count(), (801, 801));
}

#[test]
fn a_program_without_a_runtime_gives_one_to_the_adapter() {
    let spans = Spans::default();
    let collector = spans.collector(ANY.into());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = Http::new(Client::new()).with_runtime(runtime.handle().clone());
    let provider = provider(client, collector.address());
    end_spans(&provider, 0, 10);
    provider.force_flush().unwrap();
    assert_eq!(spans.count(), (10, 10));
}

/// Exporting must not make spans, or each export would cause another one.
#[tokio::test]
async fn requests_of_an_exporter_make_no_spans() {
    let spans = Spans::default();
    let collector = spans.collector(ANY.into());
    let own = Arc::new(Mutex::new(None::<SdkTracerProvider>));
    let known = own.clone();
    let traced = Client::builder().before_attempt(move |_| {
        if let Some(provider) = &*known.lock().unwrap() {
            drop(provider.tracer("client").start("request"));
        }
        Ok::<_, speeddial::Error>(())
    });
    let traced = traced.build().unwrap();
    let provider = provider(Http::new(traced.clone()), collector.address());
    *own.lock().unwrap() = Some(provider.clone());
    for round in 0..3 {
        end_spans(&provider, round, 1);
        flush(&provider).await;
    }
    assert_eq!(spans.count(), (3, 3), "only the program's own");
    // Other requests of the same client do make spans.
    let url = format!("http://{}/", collector.address());
    let empty = traced.post(url).header("content-type", "application/x-protobuf");
    empty.send().await.unwrap();
    flush(&provider).await;
    assert_eq!(spans.count(), (4, 4));
    own.lock().unwrap().take();
}

/// Starts a server that answers with this status and a body of this length.
fn server_with(status: u16, length: usize) -> HttpServer {
    let body = Bytes::from(vec![b'x'; length]);
    let server = HttpServer::start(move |_| {
        let response = Response::builder().status(status).header("retry-after", "7").body(full(body.clone())).unwrap();
        async { response }
    });
    server.unwrap()
}

fn request(address: impl std::fmt::Display) -> http::Request<Bytes> {
    http::Request::post(format!("http://{address}/v1/traces")).body(Bytes::from("spans")).unwrap()
}

#[tokio::test]
async fn an_error_status_is_a_response() {
    let server = server_with(503, 5);
    let response = Http::new(Client::new()).send_bytes(request(server.address())).await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &"7".parse().unwrap()));
    assert_eq!(response.into_body(), "xxxxx");
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_the_error_that_exporters_know() {
    let limit = 4 << 20;
    let unlimited = Client::new();
    let limited = Client::builder().max_body_size(10).build().unwrap();
    for (client, length, is_allowed) in [
        (&unlimited, limit, true),
        (&unlimited, limit + 1, false),
        (&limited, limit, true),
        (&limited, limit + 1, false),
    ] {
        let server = server_with(200, length);
        let answer = Http::new(client.clone()).send_bytes(request(server.address())).await;
        match answer {
            Ok(response) => assert_eq!((response.body().len(), is_allowed), (length, true)),
            Err(error) => assert!(!is_allowed && error.is::<ResponseBodyTooLarge>(), "{length}: {error:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_ten_seconds_at_most_or_what_the_adapter_is_told() {
    let silent = support::v4(1);
    let serves = Host::Serves { connect: 1, think: 600_000, body: 0 };
    for (timeout, expected) in [(None, 10), (Some(3), 3)] {
        let builder =
            Client::builder().no_proxy().transport(FakeNet::new([(silent, serves)])).timeout(Duration::from_secs(60));
        let mut adapter = Http::new(builder.build().unwrap());
        if let Some(timeout) = timeout {
            adapter = adapter.with_timeout(Duration::from_secs(timeout));
        }
        let start = tokio::time::Instant::now();
        let answer = adapter.send_bytes(request(silent)).await;
        let error = answer.unwrap_err();
        let error = error.downcast_ref::<speeddial::Error>().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Timeout(_)), "{error}");
        assert_eq!(start.elapsed().as_secs(), expected);
    }
}

#[test]
fn a_request_without_any_runtime_fails() {
    let adapter = Http::new(Client::new());
    let sent = futures_util::FutureExt::now_or_never(adapter.send_bytes(request("127.0.0.1:1")));
    let error = sent.expect("nothing to wait for").unwrap_err();
    assert!(error.to_string().contains("there is no tokio runtime"), "{error}");
}

#[tokio::test]
async fn a_request_is_cancelled_with_its_future() {
    let client = Client::new();
    let adapter = Http::new(client.clone());
    let server = HttpServer::start(|_| std::future::pending::<Response<support::ServerBody>>()).unwrap();
    let mut sending = adapter.send_bytes(request(server.address()));
    while client.pool_stats().leased == 0 {
        assert!(futures_util::poll!(&mut sending).is_pending());
        tokio::task::yield_now().await;
    }
    drop(sending);
    for _ in 0..10_000 {
        if client.pool_stats().leased == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{client:?}");
}
