//! Serves measurements as Prometheus text on a loopback port while it makes requests.
//!
//! Without arguments it makes requests for a moment, asks for its own measurements, prints them, and ends. With `--seconds N` it
//! goes on for so long, and they can be looked at in the meantime.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::{Duration, Instant};

use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use speeddial::Client;
use speeddial::interop::Metrics;
use support::http_server::{HttpServer, ServerBody};

/// Serves measurements as Prometheus text on a loopback port while it makes requests.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// For how long to make requests, at most 10 minutes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=600))]
    seconds: Option<u64>,
}

fn text(text: impl Into<bytes::Bytes>) -> Response<ServerBody> {
    Response::new(Full::new(text.into()).map_err(|error| match error {}).boxed())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    let recorder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("duration".to_owned()), &seconds)?;
    let recorder = recorder.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)?;

    let client = Client::builder().no_proxy().observer(Metrics::new()).build()?;
    let server = HttpServer::start(|request| async move {
        tokio::time::sleep(Duration::from_millis(if request.uri().path() == "/slow" { 30 } else { 3 })).await;
        text("hi")
    })?;
    let (numbers, told) = (client.clone(), handle.clone());
    let exporter = HttpServer::start(move |_| {
        Metrics::report(&numbers);
        let page = told.render();
        async { text(page) }
    })?;
    let page = format!("http://{}/metrics", exporter.address());
    println!("measurements are on {page}\n");

    let options = Options::parse();
    let end = Instant::now() + options.seconds.map_or(Duration::from_millis(500), Duration::from_secs);
    while Instant::now() < end {
        for path in ["", "slow"] {
            client.get(format!("http://{}/{path}", server.address())).send().await?.bytes().await?;
        }
    }
    println!("{} connections carried all requests\n", server.connections());
    if options.seconds.is_none() {
        println!("{}", Client::new().get(page).send().await?.text().await?);
    }
    Ok(())
}
