//! speeddial's DNS cache under reqwest.
//!
//! `cargo run --example under_reqwest`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use speeddial::dns::{CachedResolver, HickoryResolver};
use speeddial_reqwest::Dns;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("http://localhost:8080/".to_owned());
    let cache = CachedResolver::new(HickoryResolver::system());
    // Without idle connections, each request looks the name up.
    let builder = reqwest::Client::builder().pool_max_idle_per_host(0);
    let client = builder.dns_resolver(Dns(cache.clone())).build()?;
    for _ in 0..2 {
        println!("{}", client.get(&url).send().await?.text().await?);
    }
    println!("{:?}", cache.stats());
    Ok(())
}
