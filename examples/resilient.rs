//! Requests to a server that is busy now and then: retries with a budget, a deadline for each call, limits for the pool, and a
//! graceful end.
//!
//! `cargo run --example resilient`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Duration;

use speeddial::{Client, PoolConfig, RetryPolicy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or("http://127.0.0.1:8080".to_owned());
    let client = Client::builder()
        .timeout(Duration::from_secs(5))
        .headers_timeout(Duration::from_secs(1))
        .retry(RetryPolicy::new().backoff(Duration::from_millis(20), Duration::from_millis(200)))
        .pool(PoolConfig::new().max_connections_per_host(4).wait_timeout(Duration::from_secs(1)))
        .build()?;
    for _ in 0..3 {
        let response = client.get(format!("{server}/busy")).send().await?;
        println!("{:#}", response.timings());
        println!("{}\n", response.error_for_status()?.text().await?);
    }
    let stats = client.pool_stats();
    println!("{} connections opened, {} requests on a reused one", stats.opened, stats.reused);

    client.drain().await;
    match client.get(format!("{server}/busy")).send().await {
        Ok(response) => println!("{}", response.status()),
        Err(error) => println!("after drain: {error:#}"),
    }
    Ok(())
}
