//! The shortest example: one GET, where its time went, and its body.
//!
//! `cargo run --example get -- https://example.com/`

#![allow(clippy::print_stdout, reason = "an example prints")]

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("http://127.0.0.1:8080/".to_owned());
    let client = speeddial::Client::new();
    let response = client.get(url).send().await?.error_for_status()?;
    println!("{:#}", response.timings());
    println!("{}", response.text().await?);
    Ok(())
}
