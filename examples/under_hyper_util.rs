//! Parts of speeddial under hyper-util's legacy client: the whole connector, or the DNS cache alone.
//!
//! `cargo run --features hyper-util --example under_hyper_util`; its HTTP server is built in.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::{Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use speeddial::dns::{CachedResolver, FixedResolver};
use speeddial::interop::Connector;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server =
        support::http_server::HttpServer::start(|_| async { Response::new(Full::new(Bytes::from("hello")).boxed()) })?;
    let url: Uri = format!("http://api.test:{}/", server.address().port()).parse()?;
    let cache = CachedResolver::new(FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]));

    // Names, the race between addresses, TLS, proxies and their events, under somebody else's pool.
    let connector = Connector::new(speeddial::Client::builder().dns_cache(cache.clone()))?;
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let body = client.get(url.clone()).await?.into_body().collect().await?.to_bytes();
    println!("through the connector: {}", String::from_utf8_lossy(&body));

    // The names alone.
    let connector = HttpConnector::new_with_resolver(cache.clone());
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let body = client.get(url).await?.into_body().collect().await?.to_bytes();
    println!("through the cache alone: {}", String::from_utf8_lossy(&body));
    println!("{:?}", cache.stats());
    Ok(())
}
