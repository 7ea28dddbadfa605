//! A network in memory for paused time, whose HTTP/1.1 servers do what the path of a request says.
//!
//! | path | answer |
//! |---|---|
//! | `/slow` | "hello" after 50 ms |
//! | `/early` | 103 Early Hints, then "hello" |
//! | `/to/N` | a redirect to `/to/N-1`; from `/to/0` to `/ok` |
//! | `/away` | a redirect (307) to `http://b.test/slow` |
//! | `/later` | a redirect to `/ok` after 50 ms |
//! | `/stale` | the connection closes, unless this is its first request |
//! | `/die` | the connection closes in the middle of the body |
//! | `/never` | none |
//! | any other | "hello" |
//!
//! Connecting takes 10 ms, and a body comes in two pieces 10 ms apart.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use speeddial::transport::{Connecting, Stream, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// The network. IPv4 addresses that end in 3 refuse, those that end in 4 are silent, and one that ends in 5 fails the first time as
/// if the process had no descriptors left (EMFILE). All others serve; IPv6 addresses are unreachable.
#[derive(Clone, Default)]
pub struct NetByPath {
    open: Arc<AtomicUsize>,
    exhausted: Arc<AtomicUsize>,
}

impl NetByPath {
    /// The number of connections that are open on the servers' side.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    async fn dial(&self, ip: IpAddr) -> io::Result<Box<dyn Stream>> {
        pause(10).await;
        let IpAddr::V4(ip) = ip else { return Err(io::ErrorKind::NetworkUnreachable.into()) };
        match ip.octets()[3] {
            3 => return Err(io::ErrorKind::ConnectionRefused.into()),
            4 => std::future::pending().await,
            5 if self.exhausted.fetch_add(1, Ordering::SeqCst) == 0 => return Err(io::Error::from_raw_os_error(24)),
            _ => {}
        }
        let (near, far) = tokio::io::duplex(64 * 1024);
        self.open.fetch_add(1, Ordering::SeqCst);
        let open = self.open.clone();
        tokio::spawn(async move {
            let _ = serve(far).await;
            open.fetch_sub(1, Ordering::SeqCst);
        });
        Ok(Box::new(near))
    }
}

impl Transport for NetByPath {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(self.dial(address.ip()))
    }
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

async fn serve(mut stream: DuplexStream) -> io::Result<()> {
    let mut bytes = Vec::new();
    for served in 0.. {
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break String::from_utf8_lossy(&bytes.drain(..end + 4).collect::<Vec<_>>()).to_lowercase();
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        while bytes.len() < length {
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        }
        bytes.drain(..length);
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        match path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), "")) {
            ("slow", _) => pause(50).await,
            ("early", _) => stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n").await?,
            ("to", "0") => {
                stream.write_all(b"HTTP/1.1 302 Found\r\nlocation: /ok\r\ncontent-length: 5\r\n\r\nmoved").await?;
                continue;
            }
            ("to", left) => {
                let left: u32 = left.parse().unwrap_or(1);
                let moved = format!("HTTP/1.1 302 Found\r\nlocation: /to/{}\r\ncontent-length: 0\r\n\r\n", left - 1);
                stream.write_all(moved.as_bytes()).await?;
                continue;
            }
            ("away", _) => {
                let moved = b"HTTP/1.1 307 Moved\r\nlocation: http://b.test/slow\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(moved).await?;
                continue;
            }
            ("later", _) => {
                pause(50).await;
                stream.write_all(b"HTTP/1.1 302 Found\r\nlocation: /ok\r\ncontent-length: 0\r\n\r\n").await?;
                continue;
            }
            ("stale", _) if served > 0 => return Ok(()),
            ("die", _) => return stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe").await,
            ("never", _) => while stream.read_buf(&mut bytes).await? > 0 {},
            _ => {}
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel").await?;
        pause(10).await;
        stream.write_all(b"lo").await?;
    }
    Ok(())
}
