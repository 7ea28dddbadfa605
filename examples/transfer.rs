//! Large bodies there and back, a piece at a time: an upload of known length that says how far it is, and a download with a limit.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod support;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use speeddial::{Body, Client};

const PIECE: usize = 256 * 1024;
const PIECES: usize = 16;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = support::serve(|request| async move {
        let body = request.into_body().collect().await.map(|all| all.to_bytes()).unwrap_or_default();
        Response::new(Full::new(body))
    })
    .await?;
    let (client, url) = (Client::new(), format!("http://{address}/"));

    let pieces = futures_util::stream::iter(0..PIECES).map(|number| {
        println!("piece {} of {PIECES} is on its way", number + 1);
        Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; PIECE]))
    });
    let response = client.put(&url).body(Body::sized((PIECE * PIECES) as u64, pieces)).send().await?;
    let timings = response.timings_handle();

    let mut file = tokio::io::sink();
    let written = response.error_for_status()?.copy_to(&mut file).await?;
    println!("{written} bytes came back: {}", timings.timings());

    let response = client.put(&url).body(vec![b'x'; PIECE]).send().await?;
    println!("{}", response.bytes_with_limit(1_000).await.expect_err("it is longer"));
    Ok(())
}
