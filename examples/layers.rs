//! tower layers around the client and around each attempt: time limits, a header of our own, a line for each attempt. The client is
//! a tower service, too.
//!
//! `cargo run --example layers`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Duration;

use speeddial::http::{HeaderValue, Request};
use speeddial::{Body, Client};
use tower::timeout::TimeoutLayer;
use tower::{Service, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or("http://127.0.0.1:8080".to_owned());
    let tenant = tower::layer::layer_fn(|inner: speeddial::layers::ClientService| {
        inner.map_request(|mut request: Request<Body>| {
            request.headers_mut().insert("x-tenant", HeaderValue::from_static("alice"));
            request
        })
    });
    // Around each attempt, redirects and retries among them. The client's layers are around the whole call.
    let logged = tower::layer::layer_fn(|inner: speeddial::layers::AttemptService| {
        inner.map_request(|request: Request<Body>| {
            println!("attempt: {} {}", request.method(), request.uri());
            request
        })
    });
    let client = Client::builder().layer(tenant).layer(TimeoutLayer::new(Duration::from_secs(5)));
    let mut client = client.attempt_layer(logged).attempt_layer(TimeoutLayer::new(Duration::from_secs(2))).build()?;
    println!("{}", client.get(format!("{server}/hello")).send().await?.text().await?);

    let request = Request::get(format!("{server}/hello")).body(Body::default())?;
    println!("as a service: {}", client.call(request).await?.status());
    Ok(())
}
