//! speeddial's DNS cache under reqwest.
//!
//! `cargo run --features reqwest-0-13 --example under_reqwest`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use speeddial::dns::{CachedResolver, HickoryResolver};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("http://localhost:8080/".to_owned());
    let cache = CachedResolver::new(HickoryResolver::system());
    // Without idle connections, each request looks the name up.
    let builder = reqwest::Client::builder().pool_max_idle_per_host(0);
    let client = builder.dns_resolver(Arc::new(cache.clone())).build()?;
    for _ in 0..2 {
        println!("{}", client.get(&url).send().await?.text().await?);
    }
    println!("{:?}", cache.stats());
    Ok(())
}
