//! Large bodies: an upload of known length in pieces, a download that is copied as it arrives, and one with a limit.
//!
//! `cargo run --example transfer`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use bytes::Bytes;
use futures_util::StreamExt;
use speeddial::{Body, Client};

const PIECE: usize = 256 * 1024;
const PIECES: usize = 16;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or("http://127.0.0.1:8080".to_owned());
    let client = Client::new();
    let url = format!("{server}/echo");

    let pieces = futures_util::stream::iter(0..PIECES).map(|number| {
        println!("sending piece {} of {PIECES}", number + 1);
        Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; PIECE]))
    });
    let body = Body::sized((PIECE * PIECES) as u64, pieces);
    let response = client.put(&url).body(body).send().await?.error_for_status()?;
    let timings = response.timings_handle();
    let received = response.copy_to(&mut tokio::io::sink()).await?;
    println!("received {received} bytes: {}", timings.timings());

    let response = client.put(&url).body(vec![b'x'; PIECE]).send().await?;
    match response.bytes_with_limit(1_000).await {
        Ok(bytes) => println!("received {} bytes", bytes.len()),
        Err(error) => println!("{error:#}"),
    }
    Ok(())
}
