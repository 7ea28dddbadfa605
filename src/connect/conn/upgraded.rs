//! The byte stream of another protocol, once a connection or an HTTP/2 stream has switched to it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connect::io::h2_cause;
use crate::connect::io::stream_io::{PlainStream, RecordedStream};

/// The most bytes that one write hands to HTTP/2, which copies them.
const MAX_WRITE: usize = 64 * 1024;

/// The byte stream of another protocol than HTTP.
pub(crate) enum UpgradedStream {
    Http1 {
        /// The bytes that came right behind the head of the response.
        start: Bytes,
        stream: PlainStream,
    },
    Http2(TokioIo<hyper::upgrade::Upgraded>),
}

impl UpgradedStream {
    /// Waits until hyper hands the stream over: over HTTP/1.1 when the whole request was written, over HTTP/2 at once.
    pub(crate) async fn take(upgrade: OnUpgrade) -> hyper::Result<Self> {
        // Not hyper's own stream: what lies between it and the socket is for HTTP.
        Ok(match upgrade.await?.downcast::<TokioIo<RecordedStream>>() {
            Ok(parts) => Self::Http1 { start: parts.read_buf, stream: parts.io.into_inner().into_plain() },
            Err(stream) => Self::Http2(TokioIo::new(stream)),
        })
    }

    /// Returns true if the stream is one of an HTTP/2 connection.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }
}

impl AsyncRead for UpgradedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1 { start, .. } if !start.is_empty() => {
                let length = start.len().min(buf.remaining());
                buf.put_slice(&start[..length]);
                start.advance(length);
                if start.is_empty() {
                    *start = Bytes::new(); // frees hyper's buffer
                }
                Poll::Ready(Ok(()))
            }
            Self::Http1 { stream, .. } => Pin::new(&mut stream.stream).poll_read(cx, buf),
            Self::Http2(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for UpgradedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Http1 { stream, .. } => Pin::new(&mut stream.stream).poll_write(cx, buf),
            Self::Http2(stream) => {
                let written = Pin::new(stream).poll_write(cx, &buf[..buf.len().min(MAX_WRITE)]);
                written.map_err(|error| match is_end(&error) {
                    true => io::Error::new(io::ErrorKind::BrokenPipe, error),
                    false => error,
                })
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Http1 { stream, .. } => Pin::new(&mut stream.stream).poll_write_vectored(cx, bufs),
            Self::Http2(_) => {
                let first = bufs.iter().find(|buf| !buf.is_empty());
                self.poll_write(cx, first.map_or(&[][..], |first| first))
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Http1 { stream, .. } => stream.stream.is_write_vectored(),
            Self::Http2(_) => false,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1 { stream, .. } => Pin::new(&mut stream.stream).poll_flush(cx),
            Self::Http2(stream) => Pin::new(stream).poll_flush(cx).map(ended_or),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1 { stream, .. } => Pin::new(&mut stream.stream).poll_shutdown(cx),
            Self::Http2(stream) => Pin::new(stream).poll_shutdown(cx).map(ended_or),
        }
    }
}

/// Returns true for the error of an HTTP/2 stream that the server has ended: reset with NO_ERROR, because it needs no more of the
/// request (RFC 9113 §8.1), or with CANCEL. hyper's reads take both for the end as well.
fn is_end(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<hyper::Error>());
    let cause = error.and_then(h2_cause).filter(|cause| !cause.is_go_away());
    matches!(cause.and_then(h2::Error::reason), Some(h2::Reason::NO_ERROR | h2::Reason::CANCEL))
}

/// Passes the result of a flush or shutdown on. If the server has ended the stream, nothing is left to do, as with a socket.
fn ended_or(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if is_end(&error) { Ok(()) } else { Err(error) })
}
