//! Draws each request as a waterfall: where its time went, and why.
//!
//! Without a URL it starts a DNS server and an HTTP server on loopback and makes three requests: one cold, one on the
//! reused connection, one after the idle timeout and the TTL have passed. With URLs it makes three requests to each.
//!
//! `--repeat N` makes many requests and draws the slowest one, `--compare URL URL` draws two on one scale, `--har FILE` writes the
//! requests into a file for the network panel of a browser.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program prints")]

mod compare;
mod embedded;
mod exchange;
mod files;
mod json;
mod options;
mod repeat;
mod words;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use embedded::Embedded;
use exchange::{Told, exchange};
use options::Options;
use speeddial::dns::{HickoryResolver, Source};
use speeddial::trace::Timings;
use speeddial::{Client, PoolConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Options::read()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the requests and writes the files. Returns true if each request had a response.
async fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let embedded = if options.urls.is_empty() { Some(Embedded::start()?) } else { None };
    if let Some(embedded) = embedded.as_ref().filter(|_| !options.json) {
        println!("{embedded}\n");
    }
    let urls = match &embedded {
        Some(embedded) if options.compare => embedded.two_urls().into(),
        Some(embedded) => vec![embedded.url()],
        None => options.urls.clone(),
    };
    let dns = embedded.as_ref().map(Embedded::dns).or(options.dns);
    let told = match options.repeat {
        _ if options.compare => compare::run(options, dns, &urls).await?,
        Some(count) => repeat::run(options, &client(options, dns)?, &urls, count).await,
        None => draw_each(options, &client(options, dns)?, &urls).await,
    };
    if let Some(embedded) = embedded.filter(|_| !options.json) {
        println!("{}", embedded.totals());
    }
    files::write(options, &told)?;
    Ok(told.iter().all(|told| told.outcome.is_ok()))
}

fn client(options: &Options, dns: Option<SocketAddr>) -> speeddial::Result<Client> {
    let mut pool = PoolConfig::new().idle_timeout(Duration::from_millis(options.idle_timeout));
    if let Some(limit) = options.max_per_host {
        pool = pool.max_connections_per_host(limit as usize);
    }
    let builder = Client::builder().pool(pool);
    match dns {
        Some(server) => builder.dns_resolver(HickoryResolver::with_servers([server])),
        None => builder,
    }
    .build()
}

/// Makes the requests to each URL and prints each of them.
async fn draw_each(options: &Options, client: &Client, urls: &[String]) -> Vec<Told> {
    let mut all = Vec::new();
    for url in urls {
        let mut ttl = Duration::ZERO;
        let count = options.count.unwrap_or(3);
        for number in 1..=count {
            let pause = pause(options, number, count, ttl);
            tokio::time::sleep(pause).await;
            let told = exchange(options, client, url, number).await;
            ttl = ttl.max(told.timings.as_ref().map(longest_ttl).unwrap_or_default());
            if options.json {
                println!("{}", json::object(&told));
            } else {
                let after = if pause.is_zero() { String::new() } else { format!(" after {pause:.1?}") };
                println!("#{number}{after}: {}", told.result());
                words::draw(&told, Duration::ZERO);
            }
            all.push(told);
        }
    }
    all
}

/// The pause before a request: as asked for, or long enough that the last of three requests is cold again.
fn pause(options: &Options, number: u32, count: u32, ttl: Duration) -> Duration {
    let patience = Duration::from_secs(10);
    match options.interval {
        _ if number == 1 => Duration::ZERO,
        Some(interval) => Duration::from_millis(interval),
        None if number < count.max(3) => Duration::ZERO,
        None => ttl.min(patience).max(Duration::from_millis(options.idle_timeout)) + Duration::from_millis(100),
    }
}

fn longest_ttl(timings: &Timings) -> Duration {
    let looked_up = timings.lookups().iter().filter(|lookup| lookup.source != Source::Literal);
    looked_up.map(|lookup| lookup.ttl).max().unwrap_or_default()
}
