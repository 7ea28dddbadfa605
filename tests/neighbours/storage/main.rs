//! The client under object_store and opendal, against an S3-like server on loopback.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod kinds;
mod object_store;
mod opendal;
mod options;
mod s3;
mod uploads;

use std::net::TcpListener;
use std::time::Duration;

use ::object_store::aws::{AmazonS3, AmazonS3Builder};
use ::object_store::{BackoffConfig, RetryConfig};
use speeddial::{Client, ClientBuilder, RetryPolicy};
use speeddial_object_store::Http;

use self::s3::S3;

/// The `User-Agent` by which the server knows speeddial's requests.
const AGENT: &str = "speeddial-storage-test";

/// Returns a client that would retry each 503 twice, if it were asked.
fn client() -> ClientBuilder {
    let eager = RetryPolicy::new().backoff(Duration::ZERO, Duration::ZERO).no_budget();
    Client::builder().no_proxy().user_agent(AGENT).retry(eager)
}

/// Returns object_store's S3 store at `server`, which retries once.
fn store(server: &S3, client: Client) -> AmazonS3 {
    builder(server).with_http_connector(Http::new(client)).build().unwrap()
}

fn builder(server: &S3) -> AmazonS3Builder {
    let millisecond = Duration::from_millis(1);
    let backoff = BackoffConfig { init_backoff: millisecond, max_backoff: millisecond, base: 2.0 };
    AmazonS3Builder::new()
        .with_endpoint(server.url())
        .with_bucket_name("bucket")
        .with_region("us-east-1")
        .with_access_key_id("key")
        .with_secret_access_key("secret")
        .with_allow_http(true)
        .with_virtual_hosted_style_request(false)
        .with_retry(RetryConfig { backoff, max_retries: 1, retry_timeout: Duration::from_secs(60) })
}

/// Returns an address at which nothing listens.
fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/", listener.local_addr().unwrap())
}

/// Returns bytes that differ by their position.
fn pattern(from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}
