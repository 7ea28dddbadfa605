//! speeddial as the service under octocrab, a client of GitHub.
//!
//! `cargo run -p speeddial-neighbour-tests --example under_octocrab https://api.github.com/`. Without a URL it asks a small server
//! of its own.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::convert::Infallible;

use hyper::Response;
use octocrab::{AuthState, OctocrabBuilder};
use support::full;
use support::http_server::HttpServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = HttpServer::start(|request| async move {
        Response::new(full(format!(r#"{{"zen":"{} {}"}}"#, request.method(), request.uri())))
    })?;
    let url = std::env::args().nth(1).unwrap_or(format!("http://{}/", server.address()));

    // Paths are resolved against the base. GitHub refuses requests without a user agent.
    let service = speeddial::Client::builder().base_url(url).user_agent("under-octocrab").build()?;
    let github = OctocrabBuilder::new_empty().with_service(service.clone()).with_auth(AuthState::None).build();
    let github = github.unwrap_or_else(|never: Infallible| match never {});
    for path in ["/", "/meta"] {
        let answer: serde_json::Value = github.get(path, None::<&()>).await?;
        println!("{path}: {answer:.80}");
    }
    println!("{} connections", service.pool_stats().opened);
    Ok(())
}
