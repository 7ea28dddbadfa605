//! Server-sent events from a server that closes the connection after every few of them: the event source opens the next one,
//! and no event is lost or comes twice.
//!
//! `cargo run --example events --features sse`; it has a server of its own. `-- EVENTS EVERY` sets the number of events that it
//! reads (2,000), and after how many the server closes a connection (7).

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use speeddial::Client;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted: u64 = std::env::args().nth(1).map_or(Ok(2_000), |events| events.parse())?;
    let every: u64 = std::env::args().nth(2).map_or(Ok(7), |events| events.parse())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let connections = Arc::new(AtomicU64::new(0));
    tokio::spawn(serve(listener, every.max(1), connections.clone()));

    let client = Client::builder().no_proxy().build()?;
    // The server asks for no wait at all, which the default does not allow.
    let mut events = client.get(url).event_source()?.retry_limits(Duration::ZERO, Duration::from_secs(1));
    let start = Instant::now();
    for expected in 1..=wanted {
        let event = events.try_next().await?.ok_or("the server wants no more connections")?;
        if event.data != format!("event {expected}") {
            return Err(format!("event {expected} was expected, and {:?} came", event.data).into());
        }
    }
    let connections = connections.load(Ordering::Relaxed);
    println!(
        "{wanted} events over {connections} connections in {:.0?}: none was lost, none came twice",
        start.elapsed()
    );
    Ok(())
}

async fn serve(listener: TcpListener, every: u64, connections: Arc<AtomicU64>) {
    while let Ok((socket, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(answer(socket, every));
    }
}

/// Sends the events behind the last one that the client has, and the beginning of one more. Then it closes the connection.
async fn answer(mut socket: TcpStream, every: u64) -> std::io::Result<()> {
    let mut last = 0;
    let mut head = BufReader::new(&mut socket).lines();
    while let Some(line) = head.next_line().await?.filter(|line| !line.is_empty()) {
        if let Some(id) = line.strip_prefix("last-event-id: ") {
            last = id.parse().unwrap_or(0);
        }
    }
    let mut body = "retry: 0\n\n".to_owned();
    for id in last + 1..=last + every {
        body += &format!("id: {id}\ndata: event {id}\n\n");
    }
    body += &format!("id: {0}\ndata: event {0}\n", last + every + 1);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    socket.write_all(format!("{head}{body}").as_bytes()).await
}
