//! Layers of tower's around the client: a limit, and a header of one's own. And the client as a service itself.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod support;

use http_body_util::Full;
use hyper::Response;
use speeddial::http::{HeaderValue, Request};
use speeddial::{Body, Client};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Service, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = support::serve(|request| async move {
        let said = request.headers().get("x-tenant").and_then(|tenant| tenant.to_str().ok()).unwrap_or("nobody");
        Response::new(Full::from(format!("hello, {said}")))
    })
    .await?;
    let tenant = tower::layer::layer_fn(|inner: speeddial::ClientService| {
        inner.map_request(|mut request: Request<Body>| {
            request.headers_mut().insert("x-tenant", HeaderValue::from_static("alice"));
            request
        })
    });
    let mut client = Client::builder().layer(tenant).layer(ConcurrencyLimitLayer::new(10)).build()?;
    println!("{}", client.get(format!("http://{address}/")).send().await?.text().await?);

    let request = Request::get(format!("http://{address}/")).body(Body::default())?;
    println!("as a service: {}", client.call(request).await?.status());
    Ok(())
}
