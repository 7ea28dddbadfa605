//! Serves the page of a flight recorder on loopback, beside a load on servers of its own: fast, slow, busy and failing answers.
//!
//! `cargo run --example inspect` prints the page's address. The page is at `/`, the same as JSON at `/json`; each time that one is
//! asked for, it shows the calls so far. `-- --once page.html` writes the page to a file after the load, and ends.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program prints")]

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use futures_util::{StreamExt, stream};
use hickory_proto::rr::Name;
use hyper::header::{CONTENT_TYPE, LOCATION};
use hyper::{Request, Response, StatusCode};
use speeddial::dns::HickoryResolver;
use speeddial::{Client, PoolConfig, RetryPolicy};
use speeddial_inspect::Recorder;
use support::dns_server::{DnsServer, add_address};
use support::http_server::HttpServer;
use support::{ServerBody, full, refusing};

/// Serves a page that shows the last, the slowest and the failed calls of a client
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Port of the page on 127.0.0.1; 0 for any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8090)]
    port: u16,
    /// Number of calls that the load makes
    #[arg(short = 'n', value_name = "TOTAL", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    total: u32,
    /// Number of calls at the same time
    #[arg(short = 'c', value_name = "CONCURRENCY", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    concurrency: u32,
    /// Time after which the program ends, whatever is left of the load
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Write the page to a file, or to standard output, after the load, and end
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    once: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let limit = Duration::from_secs(options.seconds);
    let dns = dns_server()?;
    let server = HttpServer::start(answer)?;
    let (_kept, closed) = refusing();
    let recorder = Recorder::new();
    let client = client(&recorder, dns.address())?;
    let load = load(options, &client, server.address().port(), closed.port());
    if let Some(file) = &options.once {
        let _ = tokio::time::timeout(limit, load).await;
        return write(file, &recorder.snapshot().with_client(&client).to_html());
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    let (shown, pages) = (client.clone(), recorder.clone());
    let page = HttpServer::start_at(address, move |request| {
        let response = page(&shown, &pages, &request);
        async { response }
    })?;
    println!("http://{0}/ shows the calls so far, and http://{0}/json has them as JSON.", page.address());
    let _ = tokio::time::timeout(limit, async {
        load.await;
        println!("The load is over. The page stays until Ctrl-C, or {} s from the start.", options.seconds);
        let _ = tokio::signal::ctrl_c().await;
    })
    .await;
    Ok(())
}

/// Starts a DNS server on which every name below `test` is 127.0.0.1.
fn dns_server() -> std::io::Result<DnsServer> {
    DnsServer::start(|question, response| {
        let name: Name = question.name().clone();
        add_address(response, question, &name, Ipv4Addr::LOCALHOST.into(), 30);
    })
}

fn client(recorder: &Recorder, dns: SocketAddr) -> speeddial::Result<Client> {
    Client::builder()
        .no_proxy()
        .dns_resolver(HickoryResolver::with_servers([dns]))
        .pool(PoolConfig::new().max_connections_per_host(6))
        .retry(RetryPolicy::new().backoff(Duration::from_millis(10), Duration::from_millis(40)))
        .headers_timeout(Duration::from_millis(400))
        .observer(recorder.clone())
        .build()
}

/// Makes calls to a server, and now and then to one that refuses connections.
async fn load(options: &Options, client: &Client, port: u16, closed: u16) {
    let url = |number: u32| match number % 50 {
        7 => format!("http://api.test:{port}/v1/reports/2024?token=not-shown"),
        11 | 31 => format!("http://api.test:{port}/v1/search?q={number}"),
        17 => format!("http://files.test:{port}/large"),
        23 => format!("http://api.test:{port}/busy"),
        29 => format!("http://api.test:{port}/moved"),
        37 => format!("http://down.test:{closed}/v1/items"),
        43 => format!("http://api.test:{port}/silent"),
        place if place % 5 == 0 => format!("http://files.test:{port}/small"),
        _ => format!("http://api.test:{port}/v1/items/{number}"),
    };
    let calls = stream::iter(0..options.total).map(async |number| {
        if let Ok(response) = client.get(url(number)).send().await {
            let _ = response.bytes().await;
        }
    });
    calls.buffer_unordered(options.concurrency as usize).for_each(async |()| {}).await;
}

async fn answer(request: Request<hyper::body::Incoming>) -> Response<ServerBody> {
    let pause = |ms| tokio::time::sleep(Duration::from_millis(ms));
    match request.uri().path() {
        "/v1/reports/2024" => {
            pause(140).await;
            let metrics = "db;dur=112;desc=\"orders by day\", render;dur=21";
            with(Response::builder().header("server-timing", metrics), "report")
        }
        "/v1/search" => {
            pause(60).await;
            with(Response::builder(), "found")
        }
        "/large" => {
            pause(15).await;
            with(Response::builder(), vec![b'.'; 2_000_000])
        }
        "/busy" => with(Response::builder().status(StatusCode::SERVICE_UNAVAILABLE), "busy"),
        "/moved" => with(Response::builder().status(StatusCode::FOUND).header(LOCATION, "/v1/items/1"), ""),
        "/silent" => std::future::pending().await,
        _ => with(Response::builder(), "an item"),
    }
}

fn page(client: &Client, recorder: &Recorder, request: &Request<hyper::body::Incoming>) -> Response<ServerBody> {
    let html = Response::builder().header(CONTENT_TYPE, "text/html; charset=utf-8");
    let json = Response::builder().header(CONTENT_TYPE, "application/json");
    match request.uri().path() {
        "/" => with(html, recorder.snapshot().with_client(client).to_html()),
        "/json" => with(json, recorder.snapshot().with_client(client).to_json()),
        _ => with(Response::builder().status(StatusCode::NOT_FOUND), "The page is at /"),
    }
}

fn with(head: hyper::http::response::Builder, body: impl Into<hyper::body::Bytes>) -> Response<ServerBody> {
    head.body(full(body)).expect("a valid head")
}

fn write(file: &Path, page: &str) -> Result<(), Box<dyn std::error::Error>> {
    if file == Path::new("-") {
        return Ok(std::io::stdout().write_all(page.as_bytes())?);
    }
    Ok(std::fs::write(file, page)?)
}
