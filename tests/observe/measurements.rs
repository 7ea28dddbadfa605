//! The adapters for `metrics`, OpenTelemetry and `tracing`, by the names of OpenTelemetry's semantic conventions.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::interop::Tracing;
use speeddial::trace::{Observer, RequestInfo, UrlTemplate};
use speeddial::{Client, PoolConfig, RetryPolicy};
use speeddial_metrics::Metrics;
use speeddial_opentelemetry::Metrics as OtelMetrics;

use support::net_by_path::NetByPath;
use support::v4;

/// Makes calls of each kind: cold, warm, redirected, resent, failed and cancelled.
async fn calls(observer: impl Observer) -> Client {
    let names = FixedResolver::new().with("a.test", [v4(1)]).with("b.test", [v4(2)]).with("e.test", [v4(3)]);
    let pool = PoolConfig::new().max_connections_per_host(1);
    let builder = Client::builder().dns_resolver(names).transport(NetByPath::default()).no_proxy().pool(pool);
    let client = builder.observer(observer).build().unwrap();
    for path in ["ok", "ok?token=secret", "away", "stale"] {
        let request = client.post(format!("http://a.test/{path}"));
        let request = match path {
            // With a body, its connection would close, and the next call would have none to be resent on.
            "away" => request,
            // A POST would not be resent.
            "stale" => client.get("http://a.test/stale"),
            _ => request.body("1234"),
        };
        request.send().await.unwrap().bytes().await.unwrap();
    }
    assert!(client.get("http://e.test/").send().await.is_err());
    let given_up = client.get("http://a.test/never").send();
    assert!(tokio::time::timeout(Duration::from_millis(100), given_up).await.is_err());
    client.close_idle();
    tokio::time::sleep(Duration::from_secs(1)).await;
    client
}

#[tokio::test(start_paused = true)]
async fn metrics_have_the_names_units_and_attributes_of_the_conventions() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let client = calls(Metrics::new()).await;
    Metrics::report(&client);
    let mut measured = BTreeMap::new();
    for (key, unit, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let unit = unit.map(|unit| unit.as_str()).unwrap_or_default();
        measured.insert(format!("{} [{unit}] {}", key.key().name(), labels.join(" ")), value);
    }
    let histogram = |start: &str| match measured.iter().find(|(key, _)| key.starts_with(start)) {
        Some((_, DebugValue::Histogram(values))) => {
            values.iter().map(|value| (**value * 1e3).round()).collect::<Vec<_>>()
        }
        other => panic!("{start}: {other:?} of {measured:#?}"),
    };
    let number = |start: &str| match measured.iter().find(|(key, _)| key.starts_with(start)) {
        Some((_, DebugValue::Gauge(value))) => **value,
        Some((_, DebugValue::Counter(value))) => *value as f64,
        other => panic!("{start}: {other:?} of {measured:#?}"),
    };
    let server = "server.address=a.test server.port=80 url.scheme=http";
    let durations = format!(
        "http.client.request.duration [seconds] http.request.method=POST {server} network.protocol.version=1.1 \
         http.response.status_code=200"
    );
    assert_eq!(histogram(&durations), [20.0, 10.0], "cold and warm");
    let redirected = durations.replace("status_code=200", "status_code=307");
    assert_eq!(histogram(&redirected), [0.0]);
    assert_eq!(histogram(&durations.replace("a.test", "b.test")), [70.0], "the other host has its own time");
    let calls = format!("speeddial.call.duration [seconds] http.request.method=POST {server}");
    assert_eq!(histogram(&calls), [20.0, 10.0, 70.0], "cold, warm, and redirected to another host");
    let failed = "http.client.request.duration [seconds] http.request.method=GET server.address=e.test server.port=80 \
                  url.scheme=http error.type=connect";
    assert_eq!(histogram(failed), [10.0]);
    let cancelled =
        format!("http.client.request.duration [seconds] http.request.method=GET {server} speeddial.cancelled=true");
    assert_eq!(histogram(&cancelled), [100.0]);
    assert_eq!(histogram("http.client.request.body.size [bytes] http.request.method=POST")[0], 4_000.0);
    assert_eq!(number(&format!("http.client.active_requests [count] http.request.method=POST {server}")), 0.0);
    for state in ["active", "idle"] {
        let open = format!(
            "http.client.open_connections [count] {server} network.protocol.version=1.1 \
             network.peer.address=192.0.2.1 http.connection.state={state}"
        );
        assert_eq!(number(&open), 0.0, "all connections are closed");
    }
    assert!(histogram(&format!("http.client.connection.duration [seconds] {server}")).len() >= 2);
    assert_eq!(histogram("dns.lookup.duration [seconds] dns.question.name=a.test dns.question.type=A")[0], 0.0);
    assert_eq!(number(&format!("speeddial.request.retries [count] {server} speeddial.retry.cause=closed")), 1.0);
    assert_eq!(number(&format!("speeddial.request.redirects [count] {server} http.response.status_code=307")), 1.0);
    assert_eq!(number("speeddial.connection.failures [count] server.address=e.test"), 1.0);
    assert!(number("speeddial.pool.opened [count]") >= 3.0);
    assert!(number("speeddial.dns.cache.hits [count]") >= 1.0);
    assert!(measured.keys().all(|key| !key.contains("secret")));
}

/// Returns the names and labels of the metrics of calls, each with the sum of its values.
async fn metrics_of(calls: impl AsyncFnOnce(Metrics)) -> BTreeMap<String, f64> {
    measured_by(Metrics::new(), calls).await
}

async fn measured_by(metrics: Metrics, calls: impl AsyncFnOnce(Metrics)) -> BTreeMap<String, f64> {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    calls(metrics).await;
    let mut measured = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let sum = match value {
            DebugValue::Histogram(values) => values.iter().map(|value| **value).sum(),
            DebugValue::Gauge(value) => *value,
            DebugValue::Counter(value) => value as f64,
        };
        measured.insert(format!("{} {}", key.key().name(), labels.join(" ")), sum);
    }
    measured
}

fn builder() -> speeddial::ClientBuilder {
    let names = FixedResolver::new().with("a.test", [v4(1)]);
    Client::builder().dns_resolver(names).transport(NetByPath::default()).no_proxy()
}

/// A client that does the same all day: cold and warm calls to one host, which answers with 200.
async fn everyday(metrics: Metrics) {
    let client = builder().observer(metrics).build().unwrap();
    for _ in 0..3 {
        client.get("http://a.test/ok").send().await.unwrap().bytes().await.unwrap();
        client.close_idle();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_has_as_many_label_sets_as_the_guide_says_and_names_can_be_left_out() {
    let of = |measured: &BTreeMap<String, f64>| {
        // Phases that take no time in a network in memory have no histogram here.
        let (phases, others): (Vec<_>, Vec<_>) = measured.keys().partition(|key| key.contains("speeddial.phase="));
        assert!(phases.len() <= 6, "{phases:?}");
        let durations = |key: &&&String| ["duration", "time_in_queue", "size"].iter().any(|part| key.contains(part));
        let histograms = others.iter().filter(durations).count();
        (histograms, others.len() - histograms)
    };
    let all = metrics_of(everyday).await;
    let guide = include_str!("../../src/guide/in_production.md");
    let (histograms, others) = of(&all);
    assert!(guide.contains(&format!("{histograms} histograms and {others} other")), "{histograms}, {others}: {all:#?}");
    let wanted = |name: &str| name == "http.client.request.duration" || name == "speeddial.connection.closed";
    let some = measured_by(Metrics::new().only(wanted), everyday).await;
    assert_eq!((of(&some), some.len()), ((1, 1), 2), "{some:#?}");
    assert!(some.keys().all(|key| all.contains_key(key)));
    let buckets: Vec<_> = Metrics::buckets().map(|(name, boundaries)| (name, boundaries.len())).collect();
    assert!(buckets.contains(&("http.client.request.duration", 14)), "{buckets:?}");
}

#[tokio::test(start_paused = true)]
async fn metrics_given_to_a_request_measure_the_call_and_count_no_connection_forever() {
    let measured = metrics_of(async |metrics| {
        let metrics = Arc::new(metrics);
        let client = builder().build().unwrap();
        for _ in 0..3 {
            let call = client.get("http://a.test/ok").observer(metrics.clone());
            call.send().await.unwrap().bytes().await.unwrap();
            client.close_idle();
        }
        let given_up = client.get("http://a.test/ok").observer(metrics.clone()).send();
        assert!(tokio::time::timeout(Duration::from_millis(5), given_up).await.is_err(), "its dial goes on");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(client.pool_stats().opened, 4);
    })
    .await;
    let about = "http.request.method=GET server.address=a.test server.port=80 url.scheme=http";
    let of = |name: &str| measured.get(&format!("{name} {about}")).copied();
    assert_eq!(of("http.client.active_requests"), Some(0.0), "{measured:#?}");
    let done =
        format!("http.client.request.duration {about} network.protocol.version=1.1 http.response.status_code=200");
    assert!((measured[&done] - 0.060).abs() < 1e-6, "three calls of 20 ms: {measured:#?}");
    let connections = ["http.client.open_connections", "http.client.connection", "dns.", "speeddial.connection"];
    let is_of_connections = |key: &String| connections.iter().any(|start| key.starts_with(start));
    assert!(!measured.keys().any(is_of_connections), "they are for an observer of the client: {measured:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_backoff_is_a_phase_of_the_measurements_and_no_time_in_the_queue() {
    let measured = metrics_of(async |metrics| {
        let client = builder().retry(RetryPolicy::new().attempts(2)).observer(metrics).build().unwrap();
        assert!(client.get("http://a.test/never").headers_timeout(Duration::from_millis(50)).send().await.is_err());
    })
    .await;
    let of = |start: &str, end: &str| {
        let found = measured.iter().find(|(key, _)| key.starts_with(start) && key.ends_with(end));
        *found.unwrap_or_else(|| panic!("{start} {end}: {measured:#?}")).1
    };
    let backoff = of("speeddial.request.phase.duration", "speeddial.phase=backoff");
    assert!(backoff > 0.0 && backoff <= 0.101, "{measured:#?}");
    assert_eq!(of("http.client.request.time_in_queue", ""), 0.0);
    let requests = of("http.client.request.duration", "error.type=timeout");
    assert!((requests - 2.0 * (0.010 + 0.050)).abs() < 1e-6, "{measured:#?}");
    let total = of("speeddial.call.duration", "error.type=timeout");
    assert!((total - backoff - requests).abs() < 1e-6, "{measured:#?}");
}

#[tokio::test(start_paused = true)]
async fn hosts_beyond_the_limit_are_told_as_one_and_attributes_are_added() {
    let measured = metrics_of(async |metrics| {
        let tenant = |request: &RequestInfo| {
            let tenant = request.extensions.get::<Tenant>().map_or("none", |tenant| tenant.0);
            vec![("tenant", tenant.to_owned())]
        };
        let names = ["a", "b", "c"].map(|name| format!("{name}.test"));
        let resolver = names.iter().fold(FixedResolver::new(), |resolver, name| resolver.with(name, [v4(1)]));
        let builder = Client::builder().dns_resolver(resolver).transport(NetByPath::default()).no_proxy();
        let client = builder.observer(metrics.max_hosts(2).attributes(tenant)).build().unwrap();
        for name in &names {
            let template = UrlTemplate::new("/{word}");
            let request = client.get(format!("http://{name}/ok")).extension(template).extension(Tenant("blue"));
            request.send().await.unwrap().bytes().await.unwrap();
        }
        client.close_idle();
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await;
    let more = "url.template=/{word} tenant=blue network.protocol.version=1.1 http.response.status_code=200";
    for about in ["a.test server.port=80", "b.test server.port=80", "_OTHER"] {
        let start = format!("http.request.method=GET server.address={about} url.scheme=http");
        assert_eq!(measured[&format!("http.client.active_requests {start} url.template=/{{word}}")], 0.0);
        assert!((measured[&format!("http.client.request.duration {start} {more}")] - 0.020).abs() < 1e-6);
        let open = format!("http.client.open_connections server.address={about} ");
        let states: Vec<_> = measured.iter().filter(|(key, _)| key.starts_with(&open)).map(|(_, open)| *open).collect();
        assert_eq!(states, [0.0, 0.0], "active and idle");
    }
    assert!(measured.keys().any(|key| key.starts_with("dns.lookup.duration dns.question.name=_OTHER ")));
    assert!(measured.keys().all(|key| !key.contains("c.test")), "{measured:#?}");
}

/// An extension of requests.
#[derive(Clone)]
struct Tenant(&'static str);

#[tokio::test(start_paused = true)]
async fn an_ipv6_host_has_no_brackets_and_an_unknown_method_is_other() {
    let call = async |client: &Client| {
        let purge = speeddial::http::Method::from_bytes(b"PURGE").unwrap();
        assert!(client.request(purge, "http://[2001:db8::1]/x").send().await.is_err());
    };
    let measured = metrics_of(async |metrics| call(&builder().observer(metrics).build().unwrap()).await).await;
    let failed = "http.client.request.duration http.request.method=_OTHER server.address=2001:db8::1 server.port=80 \
                  url.scheme=http error.type=connect";
    assert!(measured.contains_key(failed), "{measured:#?}");
    assert!(measured.keys().all(|key| !key.contains(['[', ']']) && !key.contains("PURGE")), "{measured:#?}");
    let log = Log::default();
    let guard = log.collect();
    call(&builder().observer(Tracing::new()).build().unwrap()).await;
    drop(guard);
    let text = log.text();
    for part in [
        "otel.name=\"HTTP\"",
        "http.request.method=\"_OTHER\" http.request.method_original=\"PURGE\"",
        "server.address=2001:db8::1 server.port=80",
        "url.full=\"http://[2001:db8::1]/x\"",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn opentelemetry_receives_the_same_measurements() {
    use opentelemetry::metrics::MeterProvider;
    use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
    use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    let meter = provider.meter("test");
    let client = calls(OtelMetrics::new(&meter)).await;
    OtelMetrics::watch(&meter, &client);
    provider.force_flush().unwrap();
    let mut measured = BTreeMap::new();
    for resource in exporter.get_finished_metrics().unwrap() {
        for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()) {
            let value = match metric.data() {
                AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                    let points: Vec<_> = histogram.data_points().collect();
                    assert!(points.iter().all(|point| point.bounds().count() > 5), "{}", metric.name());
                    points.iter().map(|point| point.count()).sum::<u64>() as f64
                }
                AggregatedMetrics::I64(MetricData::Sum(sum)) => {
                    sum.data_points().map(|point| point.value()).sum::<i64>() as f64
                }
                AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                    sum.data_points().map(|point| point.value()).sum::<u64>() as f64
                }
                AggregatedMetrics::U64(MetricData::Gauge(gauge)) => {
                    gauge.data_points().map(|point| point.value()).sum::<u64>() as f64
                }
                other => panic!("{}: {other:?}", metric.name()),
            };
            measured.insert(format!("{} [{}]", metric.name(), metric.unit()), value);
        }
    }
    let of = |name: &str| *measured.get(name).unwrap_or_else(|| panic!("no {name}: {measured:#?}"));
    assert_eq!(of("http.client.request.duration [s]"), 8.0, "six calls, a redirect and a resend");
    assert_eq!(of("http.client.request.time_in_queue [s]"), 8.0);
    assert_eq!(of("speeddial.call.duration [s]"), 6.0);
    assert_eq!(of("http.client.active_requests [{request}]"), 0.0);
    assert_eq!(of("http.client.open_connections [{connection}]"), 0.0);
    assert!(of("http.client.connection.duration [s]") >= 3.0);
    assert_eq!(of("speeddial.request.retries [{retry}]"), 1.0);
    assert!(of("dns.lookup.duration [s]") >= 6.0);
    assert!(of("speeddial.pool.opened []") >= 3.0);
    drop(client);
    provider.force_flush().unwrap();
    provider.shutdown().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_figures_of_several_clients_are_told_apart_by_their_names() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use opentelemetry::metrics::MeterProvider;
    use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
    use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
    const OPENED: &str = "speeddial.pool.opened";
    let client = async |name: Option<&'static str>, hosts: &[&str]| {
        let client = match name {
            Some(name) => builder().name(name),
            None => builder(),
        };
        let client = client.build().unwrap();
        for host in hosts {
            client.get(format!("http://{host}/ok")).send().await.unwrap().bytes().await.unwrap();
        }
        client
    };
    let one = client(Some("one"), &["a.test", "a.test:81"]).await;
    let two = client(Some("two"), &["a.test"]).await;
    assert_eq!((one.name(), client(None, &[]).await.name()), (Some("one"), None));

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || [&one, &two].map(Metrics::report));
    let mut reported: Vec<_> = snapshotter.snapshot().into_vec();
    reported.retain(|(key, ..)| key.key().name() == OPENED);
    let reported: BTreeMap<_, _> = reported
        .into_iter()
        .map(|(key, _, _, value)| match (key.key().labels().next(), value) {
            (Some(label), DebugValue::Counter(opened)) => (format!("{}={}", label.key(), label.value()), opened),
            other => panic!("{other:?}"),
        })
        .collect();
    let named = |name: &str, opened| (format!("speeddial.client.name={name}"), opened);
    assert_eq!(reported.into_iter().collect::<Vec<_>>(), [named("one", 2), named("two", 1)]);

    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    let watched = OtelMetrics::watch(&provider.meter("test"), &one);
    watched.add(&two);
    let unnamed = [client(None, &["a.test"]).await, client(None, &["a.test:81"]).await];
    unnamed.iter().for_each(|client| watched.add(client));
    drop(one);
    let last = client(Some("two"), &[]).await;
    watched.add(&last);
    assert_eq!(format!("{watched:?}"), "WatchedClients { clients: 4 }", "the dropped one has left");
    provider.force_flush().unwrap();
    let mut opened = BTreeMap::new();
    for resource in exporter.get_finished_metrics().unwrap() {
        for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()).filter(|one| one.name() == OPENED) {
            let AggregatedMetrics::U64(MetricData::Sum(sum)) = metric.data() else { panic!() };
            for point in sum.data_points() {
                let about: Vec<_> = point.attributes().map(|about| format!("{}={}", about.key, about.value)).collect();
                opened.insert(about.join(" "), point.value());
            }
        }
    }
    assert_eq!(opened.into_iter().collect::<Vec<_>>(), [(String::new(), 2), named("two", 1)]);
    provider.shutdown().unwrap();
}

/// A writer that keeps the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Collects the spans and events of this thread until the guard is dropped.
    fn collect(&self) -> tracing::subscriber::DefaultGuard {
        self.collect_to(tracing::Level::DEBUG)
    }

    /// Does so for what has at least this level.
    fn collect_to(&self, level: tracing::Level) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_max_level(level)
            .with_span_events(tracing_subscriber::fmt::format::FmtSpan::CLOSE)
            .with_ansi(false)
            .without_time()
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_warning_says_all_where_the_subscriber_takes_no_spans_of_the_client() {
    let log = Log::default();
    let guard = log.collect_to(tracing::Level::WARN);
    let parents = Arc::new(Mutex::new(Vec::new()));
    let seen = parents.clone();
    let observer = Tracing::new().propagator(move |span, headers| {
        seen.lock().unwrap().push(span.metadata().map(|metadata| metadata.name()));
        headers.insert("traceparent", "00-1-1-01".parse().unwrap());
    });
    let work = tracing::warn_span!("work", http.response.status_code = "the program's");
    tracing::Instrument::instrument(calls(observer), work).await;
    drop(guard);
    let parents = parents.lock().unwrap();
    assert!(parents.len() >= 6 && parents.iter().all(|name| *name == Some("work")), "{parents:?}");
    let text = log.text();
    let warnings: Vec<_> = text.lines().filter(|line| line.contains(" WARN ") && line.contains("failed")).collect();
    let [warning] = warnings[..] else { panic!("{text}") };
    let parts = [
        "work{http.response.status_code=\"the program's\"}: speeddial: failed",
        "method=GET origin=e.test:80 phase=connect reason=\"connect\" why=",
        "dialling",
    ];
    for part in parts {
        assert!(warning.contains(part), "no {part} in {warning}");
    }
    let closed = text.lines().find(|line| line.contains("close")).unwrap();
    assert!(!closed.contains("status_code=200"), "the program's span is left alone: {closed}");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_a_span_and_its_phases_are_events_in_it() {
    let log = Log::default();
    let guard = log.collect();
    let outer = tracing::info_span!("work");
    tracing::Instrument::instrument(calls(Tracing::new()), outer).await;
    drop(guard);
    let text = log.text();
    let has = |what: &str| {
        assert!(text.lines().any(|line| what.split(" .. ").all(|part| line.contains(part))), "no {what} in {text}")
    };
    has("work:HTTP{ .. http.request.method=\"POST\" .. server.address=a.test server.port=80 .. : leased connection=");
    has("phase=wait elapsed_us=50000");
    has("phase phase=connect elapsed_us=10000");
    has("attempt address=192.0.2.3:80 elapsed_us=10000 error=\"connection refused\"");
    has("resent cause=closed safe=\"the request is idempotent");
    has("redirected status=307 origin=b.test:80 path=\"/slow\"");
    has("http.response.status_code=200 .. http.request.resend_count=1 .. close");
    has("error.type=\"connect\" .. close");
    has("speeddial.cancelled=true .. close");
    assert!(!text.contains("secret"), "{text}");
}
