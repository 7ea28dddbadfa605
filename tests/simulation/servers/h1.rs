//! HTTP/1.0 and HTTP/1.1, byte by byte.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::{Duplex, Head, Script, Side};
use crate::plan::Protocol;

/// A connection, and what was read of it.
pub(super) struct Reader {
    pub(super) stream: Box<dyn Duplex>,
    pub(super) bytes: BytesMut,
}

pub(super) async fn serve(side: Side, stream: Box<dyn Duplex>) -> io::Result<()> {
    let mut reader = Reader { stream, bytes: BytesMut::new() };
    let is_old = side.outside.protocol(side.owner) == Protocol::Http10;
    loop {
        let head = tokio::select! {
            biased;
            head = timeout(side.keep_alive(), reader.head()) => head,
            () = side.restarted() => return Ok(()),
        };
        let Ok(Some(head)) = head.unwrap_or(Ok(None)) else { return Ok(()) };
        let number = side.begin(&head);
        if head.values("expect").next().is_some() {
            reader.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let content = reader.content(&head).await;
        let script = side.decide(number, &head, content);
        if script.loses || content.is_some_and(|(_, is_whole)| !is_whole) {
            side.end();
            return Ok(());
        }
        let is_over = is_old || script.is_last || head.values("connection").any(|value| value == "close");
        let ended = reader.respond(&script, head.method == "HEAD", is_old, is_over).await;
        side.end();
        ended?;
        if is_over || script.dies {
            return reader.stream.shutdown().await;
        }
    }
}

impl Reader {
    async fn fill(&mut self) -> io::Result<bool> {
        Ok(self.stream.read_buf(&mut self.bytes).await? > 0)
    }

    async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|window| window == b"\r\n") {
                let line = self.bytes.split_to(end);
                self.bytes.advance(2);
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    async fn head(&mut self) -> io::Result<Option<Head>> {
        let Some(line) = self.line().await? else { return Ok(None) };
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = Vec::new();
        loop {
            let Some(line) = self.line().await? else { return Ok(None) };
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut head = Head { method, target, authority: String::new(), headers };
        let authority = head.values("host").next().unwrap_or_default().to_owned();
        head.authority = authority;
        Ok(Some(head))
    }

    /// Reads the content of a request: its bytes, and whether it came to its end. `None` if there is none.
    async fn content(&mut self, head: &Head) -> Option<(u64, bool)> {
        if let Some(length) = head.values("content-length").next() {
            let length = length.parse().unwrap();
            return Some(self.skip(length).await);
        }
        head.values("transfer-encoding").next()?;
        let mut total = 0;
        loop {
            let Ok(Some(line)) = self.line().await else { return Some((total, false)) };
            let Ok(size) = u64::from_str_radix(line.split(';').next().unwrap_or_default(), 16) else {
                return Some((total, false));
            };
            let (skipped, is_whole) = self.skip(size).await;
            total += skipped;
            // Behind a chunk, and behind the last one (there are no trailers), is an empty line.
            if !is_whole || !matches!(self.line().await, Ok(Some(_))) {
                return Some((total, false));
            }
            if size == 0 {
                return Some((total, true));
            }
        }
    }

    async fn skip(&mut self, length: u64) -> (u64, bool) {
        let mut left = length;
        while left > 0 {
            if self.bytes.is_empty() && !matches!(self.fill().await, Ok(true)) {
                return (length - left, false);
            }
            let taken = (self.bytes.len() as u64).min(left);
            self.bytes.advance(taken as usize);
            left -= taken;
        }
        (length, true)
    }

    async fn respond(&mut self, script: &Script, is_head: bool, is_old: bool, is_over: bool) -> io::Result<()> {
        for _ in 0..script.interims {
            self.stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").await?;
            sleep(Duration::from_millis(1)).await;
        }
        sleep(script.after).await;
        let version = if is_old { "1.0" } else { "1.1" };
        let mut head = format!("HTTP/{version} {} Status\r\ncontent-length: {}\r\n", script.status, script.body.len());
        for (name, value) in &script.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        head.push_str(if is_over && !is_old { "connection: close\r\n\r\n" } else { "\r\n" });
        self.stream.write_all(head.as_bytes()).await?;
        let body = if script.dies { &script.body[..script.body.len() / 2] } else { &script.body[..] };
        if !is_head {
            self.stream.write_all(body).await?;
        }
        self.stream.flush().await
    }
}
