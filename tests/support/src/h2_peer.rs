//! An HTTP/2 peer that is scripted frame by frame, and the network in memory it lives in (RFC 9113).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use speeddial::transport::{Connecting, Stream, Transport};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const NO_ERROR: u32 = 0;
pub const INTERNAL_ERROR: u32 = 2;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// A network in which every address leads to the same script.
#[derive(Clone)]
pub struct Wire {
    script: Arc<dyn Fn(usize, DuplexStream) -> BoxFuture<'static, ()> + Send + Sync>,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Wire {
    /// Runs `script` for each connection, with the connection's number from 0.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        script: impl Fn(usize, DuplexStream) -> F + Send + Sync + 'static,
    ) -> Self {
        let script = Arc::new(move |number, stream| -> BoxFuture<'static, ()> { Box::pin(script(number, stream)) });
        Self { script, connections: Arc::default(), open: Arc::default() }
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// How many scripts run.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Transport for Wire {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            // A round trip of 10 ms.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let (near, far) = tokio::io::duplex(256 * 1024);
            let number = self.connections.fetch_add(1, Ordering::SeqCst);
            self.open.fetch_add(1, Ordering::SeqCst);
            let (script, open) = ((self.script)(number, far), self.open.clone());
            tokio::spawn(async move {
                script.await;
                open.fetch_sub(1, Ordering::SeqCst);
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

/// The same network with streams that end as a TLS connection does whose peer closed it without close_notify: by an error.
#[derive(Clone)]
pub struct CutWire(pub Wire);

impl Transport for CutWire {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move { Ok(Box::new(Cut(self.0.connect(address).await?)) as Box<dyn Stream>) })
    }
}

struct Cut(Box<dyn Stream>);

impl AsyncRead for Cut {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(cx, buf))?;
        if buf.filled().len() == before && buf.remaining() > 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Cut {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// One frame.
#[derive(Debug, Clone)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// Whether it is the last one of a request.
    pub fn ends(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// Returns true if it asks for a sign of life.
    pub fn is_ping(&self) -> bool {
        self.kind == PING && self.flags & ACK == 0
    }
}

/// The peer's end of a connection.
pub struct H2Peer {
    stream: DuplexStream,
}

impl H2Peer {
    /// Reads the client's preface, and says how many streams it may open; nothing where that is not said.
    pub async fn accept(mut stream: DuplexStream, max_streams: Option<u32>) -> io::Result<Self> {
        stream.read_exact(&mut [0; 24]).await?;
        let mut peer = Self { stream };
        match max_streams {
            Some(max) => peer.allow(max).await?,
            None => peer.send(SETTINGS, 0, 0, &[]).await?,
        }
        Ok(peer)
    }

    /// The next frame that is about a stream; settings and pings are acknowledged on the way.
    pub async fn next(&mut self) -> io::Result<Frame> {
        loop {
            let frame = self.next_of_all().await?;
            if !matches!(frame.kind, SETTINGS | PING) {
                return Ok(frame);
            }
        }
    }

    /// The next frame; settings and pings are acknowledged.
    pub async fn next_of_all(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & !(1 << 31);
        let frame = Frame { kind: head[3], flags: head[4], stream, payload };
        match (frame.kind, frame.flags & ACK) {
            (SETTINGS, 0) => self.send(SETTINGS, ACK, 0, &[]).await?,
            (PING, 0) => self.send(PING, ACK, 0, &frame.payload).await?,
            _ => {}
        }
        Ok(frame)
    }

    /// The stream of the next request, when it is whole.
    pub async fn request(&mut self) -> io::Result<u32> {
        loop {
            let frame = self.next().await?;
            if frame.ends() {
                return Ok(frame.stream);
            }
        }
    }

    pub async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).await
    }

    /// Lets the client open so many streams.
    pub async fn allow(&mut self, streams: u32) -> io::Result<()> {
        let mut setting = MAX_CONCURRENT_STREAMS.to_be_bytes().to_vec();
        setting.extend_from_slice(&streams.to_be_bytes());
        self.send(SETTINGS, 0, 0, &setting).await
    }

    /// Says 200, and "ok".
    pub async fn answer(&mut self, stream: u32) -> io::Result<()> {
        self.head(stream).await?;
        self.send(DATA, END_STREAM, stream, b"ok").await
    }

    /// Says 200.
    pub async fn head(&mut self, stream: u32) -> io::Result<()> {
        // `:status: 200`, indexed (RFC 7541, appendix A).
        self.send(HEADERS, END_HEADERS, stream, &[0x88]).await
    }

    /// The same with a length.
    pub async fn head_with_length(&mut self, stream: u32, length: &str) -> io::Result<()> {
        // `content-length` is the name with index 28; the value is a literal.
        let mut block = vec![0x88, 0x0f, 28 - 15, length.len() as u8];
        block.extend_from_slice(length.as_bytes());
        self.send(HEADERS, END_HEADERS, stream, &block).await
    }

    pub async fn reset(&mut self, stream: u32, code: u32) -> io::Result<()> {
        self.send(RST_STREAM, 0, stream, &code.to_be_bytes()).await
    }

    pub async fn goaway(&mut self, last: u32, code: u32) -> io::Result<()> {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend_from_slice(&code.to_be_bytes());
        self.send(GOAWAY, 0, 0, &payload).await
    }
}
