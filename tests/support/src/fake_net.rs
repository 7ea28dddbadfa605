//! A network in memory for paused time: each address serves, refuses or stays silent, after a delay in milliseconds.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use speeddial::transport::{Connecting, Stream, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// The behaviour of an address.
#[derive(Clone, Copy)]
pub enum Host {
    /// Accepts connections and answers each request with "hello" in two pieces.
    Serves {
        /// The time to connect, in milliseconds.
        connect: u64,
        /// The time from a request to the response's head, in milliseconds.
        think: u64,
        /// The time between the two pieces of the body, in milliseconds.
        body: u64,
    },
    /// Refuses connections after this many milliseconds.
    Refuses(u64),
    /// Never answers.
    Silent,
}

/// The network. An address that is not in it refuses at once. Clones share their connections.
#[derive(Clone, Default)]
pub struct FakeNet {
    hosts: Arc<HashMap<IpAddr, Host>>,
    open: Arc<AtomicUsize>,
}

impl FakeNet {
    /// Returns a network of these addresses.
    pub fn new(hosts: impl IntoIterator<Item = (IpAddr, Host)>) -> Self {
        Self { hosts: Arc::new(hosts.into_iter().collect()), open: Arc::default() }
    }

    /// The number of connections that are open on the servers' side.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    async fn dial(&self, ip: IpAddr) -> io::Result<Box<dyn Stream>> {
        match self.hosts.get(&ip).copied().unwrap_or(Host::Refuses(0)) {
            Host::Serves { connect, think, body } => {
                sleep(connect).await;
                let (near, far) = tokio::io::duplex(64 * 1024);
                self.open.fetch_add(1, Ordering::SeqCst);
                let open = self.open.clone();
                tokio::spawn(async move {
                    let _ = serve(far, think, body).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
                Ok(Box::new(near))
            }
            Host::Refuses(after) => {
                sleep(after).await;
                Err(io::ErrorKind::ConnectionRefused.into())
            }
            Host::Silent => std::future::pending().await,
        }
    }
}

impl Transport for FakeNet {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(self.dial(address.ip()))
    }
}

async fn serve(mut stream: DuplexStream, think: u64, body: u64) -> io::Result<()> {
    let mut head = Vec::new();
    loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
        while let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            head.drain(..end + 4);
            sleep(think).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel").await?;
            sleep(body).await;
            stream.write_all(b"lo").await?;
        }
    }
}

/// Sleeps for `ms` milliseconds. Tokio's sleep of zero would take one tick of the clock, so it is left out.
async fn sleep(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
