//! An HTTP/2 peer that a test scripts frame by frame (RFC 9113), on a connection of [`crate::scripted_net`].

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Frame type DATA.
pub const DATA: u8 = 0;
/// Frame type HEADERS.
pub const HEADERS: u8 = 1;
/// Frame type RST_STREAM.
pub const RST_STREAM: u8 = 3;
/// Frame type SETTINGS.
pub const SETTINGS: u8 = 4;
/// Frame type PING.
pub const PING: u8 = 6;
/// Frame type GOAWAY.
pub const GOAWAY: u8 = 7;
/// Frame type WINDOW_UPDATE.
pub const WINDOW_UPDATE: u8 = 8;
/// The flag of the last frame that a side sends on a stream.
pub const END_STREAM: u8 = 1;
/// The flag of the last frame of a header block.
pub const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;
/// Error code NO_ERROR.
pub const NO_ERROR: u32 = 0;
/// Error code INTERNAL_ERROR.
pub const INTERNAL_ERROR: u32 = 2;
/// Error code REFUSED_STREAM.
pub const REFUSED_STREAM: u32 = 7;
/// Error code CANCEL.
pub const CANCEL: u32 = 8;
/// Error code ENHANCE_YOUR_CALM.
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// A frame that the client sent.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The frame type.
    pub kind: u8,
    /// The flags, whose meaning depends on the type.
    pub flags: u8,
    /// The stream, or 0 for the connection.
    pub stream: u32,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns true if the frame is the last one of a request.
    pub fn ends(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// Returns true if the frame is a PING that must be acknowledged.
    pub fn is_ping(&self) -> bool {
        self.kind == PING && self.flags & ACK == 0
    }
}

/// The peer's side of a connection.
pub struct H2Peer {
    stream: DuplexStream,
}

impl H2Peer {
    /// Reads the client's preface, and sends no SETTINGS yet.
    pub async fn accept_silently(mut stream: DuplexStream) -> io::Result<Self> {
        stream.read_exact(&mut [0; 24]).await?;
        Ok(Self { stream })
    }

    /// Reads the client's preface and sends SETTINGS with the number of concurrent streams, if one is given.
    pub async fn accept(mut stream: DuplexStream, max_streams: Option<u32>) -> io::Result<Self> {
        stream.read_exact(&mut [0; 24]).await?;
        let mut peer = Self { stream };
        match max_streams {
            Some(max) => peer.allow(max).await?,
            None => peer.send(SETTINGS, 0, 0, &[]).await?,
        }
        Ok(peer)
    }

    /// Reads the next frame other than SETTINGS and PING, which are acknowledged.
    pub async fn next(&mut self) -> io::Result<Frame> {
        loop {
            let frame = self.next_of_all().await?;
            if !matches!(frame.kind, SETTINGS | PING) {
                return Ok(frame);
            }
        }
    }

    /// Reads the next frame of any type. SETTINGS and PING are acknowledged.
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

    /// Reads up to the end of the next request and returns its stream.
    pub async fn request(&mut self) -> io::Result<u32> {
        loop {
            let frame = self.next().await?;
            if frame.ends() {
                return Ok(frame.stream);
            }
        }
    }

    /// Sends a frame.
    pub async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).await
    }

    /// Sets the number of streams that the client may have open.
    pub async fn allow(&mut self, streams: u32) -> io::Result<()> {
        let mut setting = MAX_CONCURRENT_STREAMS.to_be_bytes().to_vec();
        setting.extend_from_slice(&streams.to_be_bytes());
        self.send(SETTINGS, 0, 0, &setting).await
    }

    /// Sends a whole response: 200 with the body "ok".
    pub async fn answer(&mut self, stream: u32) -> io::Result<()> {
        self.head(stream).await?;
        self.send(DATA, END_STREAM, stream, b"ok").await
    }

    /// Sends the head of a response, 200, without a length.
    pub async fn head(&mut self, stream: u32) -> io::Result<()> {
        // `:status: 200`, indexed (RFC 7541, appendix A).
        self.send(HEADERS, END_HEADERS, stream, &[0x88]).await
    }

    /// Sends the head of a response, 200, with a `content-length`.
    pub async fn head_with_length(&mut self, stream: u32, length: &str) -> io::Result<()> {
        // `content-length` is the name with index 28; the value is a literal.
        let mut block = vec![0x88, 0x0f, 28 - 15, length.len() as u8];
        block.extend_from_slice(length.as_bytes());
        self.send(HEADERS, END_HEADERS, stream, &block).await
    }

    /// Resets a stream.
    pub async fn reset(&mut self, stream: u32, code: u32) -> io::Result<()> {
        self.send(RST_STREAM, 0, stream, &code.to_be_bytes()).await
    }

    /// Sends GOAWAY: streams above `last` are not processed.
    pub async fn goaway(&mut self, last: u32, code: u32) -> io::Result<()> {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend_from_slice(&code.to_be_bytes());
        self.send(GOAWAY, 0, 0, &payload).await
    }
}
