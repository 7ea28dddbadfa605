//! Parts of speeddial under hyper-util's legacy client: the whole connector, or the DNS cache alone.
//!
//! `cargo run --features hyper-util --example under_hyper_util`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use speeddial::dns::{CachedResolver, HickoryResolver};
use speeddial::interop::Connector;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url: Uri = std::env::args().nth(1).unwrap_or("http://localhost:8080/".to_owned()).parse()?;
    let cache = CachedResolver::new(HickoryResolver::system());

    // The DNS cache, the race between addresses, TLS, proxies and their events, under hyper-util's pool.
    let connector = Connector::new(speeddial::Client::builder().dns_cache(cache.clone()))?;
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let body = client.get(url.clone()).await?.into_body().collect().await?.to_bytes();
    println!("through the connector: {}", String::from_utf8_lossy(&body));

    // The DNS cache alone, under hyper-util's connector, which knows no TLS.
    let connector = HttpConnector::new_with_resolver(cache.clone());
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let body = client.get(url).await?.into_body().collect().await?.to_bytes();
    println!("through the cache alone: {}", String::from_utf8_lossy(&body));
    println!("{:?}", cache.stats());
    Ok(())
}
