//! A server that is busy now and then: retries with a budget, a deadline for all of them, limits for the pool, a graceful end.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::{Response, StatusCode};
use speeddial::{Client, PoolConfig, RetryPolicy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = Arc::new(AtomicUsize::new(0));
    let address = support::serve(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut response = Response::new(Full::from("done"));
            if number.is_multiple_of(2) {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            }
            response
        }
    })
    .await?;
    let client = Client::builder()
        .timeout(Duration::from_secs(5))
        .headers_timeout(Duration::from_secs(1))
        .retry(RetryPolicy::new().backoff(Duration::from_millis(20), Duration::from_millis(200)))
        .pool(PoolConfig::new().max_connections_per_host(4).wait_timeout(Duration::from_secs(1)))
        .build()?;
    for _ in 0..3 {
        let response = client.get(format!("http://{address}/")).send().await?;
        println!("{:#}", response.timings());
        println!("{}\n", response.error_for_status()?.text().await?);
    }
    let stats = client.pool_stats();
    println!("{} connections opened, used again {} times", stats.opened, stats.reused);
    client.drain().await;
    println!("drained: {}", client.get(format!("http://{address}/")).send().await.expect_err("no more calls"));
    Ok(())
}
