//! Measurements of requests and connections as Prometheus text on http://127.0.0.1:9000/metrics.
//!
//! `cargo run --example prometheus` makes requests to `practice_server`, or the URL that it is given, for
//! half a second, then prints its own measurements. With a number of seconds behind the URL (600 at most) it makes requests for so
//! long. `docs/grafana.json` is a dashboard of these measurements.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use speeddial::{Client, HedgePolicy, RetryPolicy};
use speeddial_metrics::Metrics;

const EXPORTER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().unwrap_or("http://127.0.0.1:8080".to_owned());
    let seconds: Option<u64> = arguments.next().map(|seconds| seconds.parse()).transpose()?;

    // The dashboard's names have units, and counters end in _total.
    let mut exporter = PrometheusBuilder::new().with_http_listener(EXPORTER).with_recommended_naming(true);
    for (name, boundaries) in Metrics::buckets() {
        exporter = exporter.set_buckets_for_metric(Matcher::Full(name.to_owned()), boundaries)?;
    }
    exporter.install()?;

    let client = Client::builder()
        .observer(Metrics::new())
        .retry(RetryPolicy::new().backoff(Duration::from_millis(1), Duration::from_millis(9)))
        .hedge(HedgePolicy::new().min_samples(20).budget(1.0))
        .build()?;
    let end =
        Instant::now() + seconds.map_or(Duration::from_millis(500), |seconds| Duration::from_secs(seconds.min(600)));
    while Instant::now() < end {
        for path in ["/", "/slow", "/busy", "/moved"] {
            client.get(format!("{server}{path}")).send().await?.bytes().await?;
        }
        // Some of the answers are late, and these requests are sent a second time.
        for _ in 0..20 {
            client.get(format!("{server}/late")).send().await?.bytes().await?;
        }
        // Port 1 refuses connections.
        let refused = client.get("http://127.0.0.1:1/").send().await;
        assert!(refused.is_err_and(|error| error.is_connect()));
        client.close_idle();
        // Gauges of the pool, such as its open connections, are set when they are asked for.
        Metrics::report(&client);
    }
    if seconds.is_none() {
        println!("{}", Client::new().get(format!("http://{EXPORTER}/metrics")).send().await?.text().await?);
    }
    Ok(())
}
