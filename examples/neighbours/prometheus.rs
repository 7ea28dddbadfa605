//! Measurements of requests and connections as Prometheus text on http://127.0.0.1:9000/metrics.
//!
//! `cargo run --features metrics --example prometheus` makes requests to `practice_server`, or the URL that it is given, for half
//! a second, then prints its own measurements. With a number of seconds behind the URL (600 at most) it makes requests for so long.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use speeddial::Client;
use speeddial::interop::Metrics;

const EXPORTER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().unwrap_or("http://127.0.0.1:8080".to_owned());
    let seconds: Option<u64> = arguments.next().map(|seconds| seconds.parse()).transpose()?;

    let buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    PrometheusBuilder::new()
        .with_http_listener(EXPORTER)
        .set_buckets_for_metric(Matcher::Suffix("duration".to_owned()), &buckets)?
        .install()?;

    let client = Client::builder().observer(Metrics::new()).build()?;
    let end =
        Instant::now() + seconds.map_or(Duration::from_millis(500), |seconds| Duration::from_secs(seconds.min(600)));
    while Instant::now() < end {
        for path in ["/", "/slow"] {
            client.get(format!("{server}{path}")).send().await?.bytes().await?;
        }
        // Gauges of the pool, such as its open connections, are set when they are asked for.
        Metrics::report(&client);
    }
    if seconds.is_none() {
        println!("{}", Client::new().get(format!("http://{EXPORTER}/metrics")).send().await?.text().await?);
    }
    Ok(())
}
