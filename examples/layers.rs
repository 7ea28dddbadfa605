//! tower layers around the client: a time limit, and a header of our own. The client is a tower service, too.
//!
//! `cargo run --features tower --example layers`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Duration;

use speeddial::http::{HeaderValue, Request};
use speeddial::{Body, Client};
use tower::timeout::TimeoutLayer;
use tower::{Service, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or("http://127.0.0.1:8080".to_owned());
    let tenant = tower::layer::layer_fn(|inner: speeddial::ClientService| {
        inner.map_request(|mut request: Request<Body>| {
            request.headers_mut().insert("x-tenant", HeaderValue::from_static("alice"));
            request
        })
    });
    let mut client = Client::builder().layer(tenant).layer(TimeoutLayer::new(Duration::from_secs(5))).build()?;
    println!("{}", client.get(format!("{server}/hello")).send().await?.text().await?);

    let request = Request::get(format!("{server}/hello")).body(Body::default())?;
    println!("as a service: {}", client.call(request).await?.status());
    Ok(())
}
