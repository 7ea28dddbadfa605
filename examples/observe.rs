//! An observer written by hand: says of each call what was slow about it.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use speeddial::Client;
use speeddial::trace::{EndedCall, Event, Observer, Phase, Record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Slowest;

impl Observer for Slowest {
    fn observe(&self, record: &Record) {
        if let Event::Leased { connection, requests, .. } = record.event {
            println!("{:?} is request {requests} on connection {connection}", record.subject);
        }
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let slowest = Phase::ALL.into_iter().max_by_key(|phase| call.timings.spent(*phase));
        let (phase, asked) = (slowest.unwrap_or(Phase::Queue), call.request);
        println!("{} {}{}: mostly {phase}: {}", asked.method, asked.origin, asked.target, call.timings);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = format!("http://{}/", serve().await?);
    let client = Client::builder().observer(Slowest).build()?;
    for _ in 0..2 {
        client.get(&url).send().await?.bytes().await?;
    }
    Ok(())
}

/// A server for one connection, which takes 20 ms for each answer.
async fn serve() -> std::io::Result<std::net::SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await?;
        while socket.read(&mut [0; 1024]).await? > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await?;
        }
        Ok::<_, std::io::Error>(())
    });
    Ok(address)
}
