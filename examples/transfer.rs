//! Large bodies with a progress bar: a file that is uploaded and received again, a stream of known length, and a download
//! with a limit.
//!
//! `cargo run --example transfer`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use bytes::Bytes;
use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use speeddial::{Body, Client};

const PIECE: usize = 256 * 1024;
const PIECES: usize = 64;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1).unwrap_or("http://127.0.0.1:8080".to_owned());
    let client = Client::new();
    let url = format!("{server}/echo");

    let path = std::env::temp_dir().join(format!("speeddial-transfer-{}", std::process::id()));
    tokio::fs::write(&path, vec![b'x'; PIECE * PIECES]).await?;
    let transferred = transfer_file(&client, &url, &path).await;
    tokio::fs::remove_file(&path).await?;
    transferred?;

    let pieces = futures_util::stream::iter(0..4).map(|number| {
        println!("sending piece {} of 4", number + 1);
        Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; PIECE]))
    });
    let response = client.put(&url).body(Body::sized(4 * PIECE as u64, pieces)).send().await?.error_for_status()?;
    match response.bytes_with_limit(1_000).await {
        Ok(bytes) => println!("received {} bytes", bytes.len()),
        Err(error) => println!("{error:#}"),
    }
    Ok(())
}

/// Sends a file, receives it back, and shows how far both are.
async fn transfer_file(client: &Client, url: &str, path: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let body = Body::file(path).await?.on_progress(bar("upload")?);
    let response = client.put(url).body(body).send().await?.error_for_status()?.on_progress(bar("download")?);
    let timings = response.timings_handle();
    let received = response.copy_to(&mut tokio::io::sink()).await?;
    println!("received {received} bytes: {}", timings.timings());
    Ok(())
}

/// Returns a callback that moves a bar.
fn bar(name: &'static str) -> Result<impl FnMut(u64, Option<u64>) + Send + 'static, Box<dyn Error>> {
    let bar = ProgressBar::no_length().with_message(name);
    bar.set_style(ProgressStyle::with_template("{msg:8} {bar:40} {bytes}/{total_bytes}  {bytes_per_sec}")?);
    Ok(move |bytes, total| {
        if let Some(total) = total {
            bar.set_length(total);
        }
        bar.set_position(bytes);
        if Some(bytes) == total {
            bar.finish();
        }
    })
}
