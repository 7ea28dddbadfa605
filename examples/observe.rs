//! An observer: prints, for each call, the phase that took most of its time.
//!
//! `cargo run --example observe`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use speeddial::Client;
use speeddial::trace::{EndedCall, Event, Observer, Record};

struct Slowest;

impl Observer for Slowest {
    fn observe(&self, record: &Record) {
        if let Event::Leased { connection, requests, .. } = record.event {
            println!("{:?} is request {requests} on connection {connection}", record.subject);
        }
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let phase = call.timings.longest_phase();
        let request = call.request;
        println!("{} {}{}: mostly {phase}: {}", request.method, request.origin, request.target, call.timings);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or("http://127.0.0.1:8080".to_owned());
    let client = Client::builder().observer(Slowest).build()?;
    for _ in 0..2 {
        client.get(format!("{server}/slow")).send().await?.bytes().await?;
    }
    Ok(())
}
