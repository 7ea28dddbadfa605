//! speeddial's DNS cache under reqwest.
//!
//! `cargo run --features reqwest --example under_reqwest`; its HTTP server is built in.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use speeddial::dns::{CachedResolver, FixedResolver};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server =
        support::http_server::HttpServer::start(|_| async { Response::new(Full::new(Bytes::from("hello")).boxed()) })?;
    let url = format!("http://api.test:{}/", server.address().port());
    let cache = CachedResolver::new(FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]));

    let builder = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
    let client = builder.dns_resolver(Arc::new(cache.clone())).build()?;
    for _ in 0..2 {
        println!("{}", client.get(&url).send().await?.text().await?);
    }
    println!("{:?}", cache.stats());
    Ok(())
}
