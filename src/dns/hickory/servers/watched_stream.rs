//! Streams over TCP whose tasks leave nothing unread.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, FutureExt, poll_fn};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection to one server, as its task sees it.
pub(in crate::dns::hickory) struct WatchedStream {
    pub(super) stream: TcpStream,
    pub(super) watch: Watch,
}

/// What a connection waits for, which its stream tells its task.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<State>);

#[derive(Default)]
struct State {
    /// True from a read of some bytes until a read that finds none: TLS may hold more of them than were taken.
    may_have_more: AtomicBool,
    /// True if a write waited in this poll of the task.
    is_writing: AtomicBool,
}

impl Watch {
    /// Polls a connection's task again if it stops although it may have more to read and nothing will wake it: hickory does so
    /// after 100 answers. Over TCP, two reads for each of them use up tokio's budget of the task before.
    pub(super) fn read_on(self, mut task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let read_on = poll_fn(move |cx| {
            self.0.is_writing.store(false, Ordering::Relaxed);
            let polled = task.as_mut().poll(cx);
            let is_writing = self.0.is_writing.load(Ordering::Relaxed);
            if polled.is_pending() && !is_writing && self.0.may_have_more.load(Ordering::Relaxed) {
                cx.waker().wake_by_ref();
            }
            polled
        });
        read_on.boxed()
    }

    fn note_write<T>(&self, polled: Poll<T>) -> Poll<T> {
        self.0.is_writing.store(polled.is_pending(), Ordering::Relaxed);
        polled
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.watch.0.may_have_more.store(buf.filled().len() > before, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.watch.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicUsize;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::task::yield_now;

    use super::*;

    /// Returns a stream, its watch, and a peer that has sent 500 bytes and reads nothing.
    async fn stream() -> (WatchedStream, Watch, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (stream, (mut peer, _)) = (stream.unwrap(), accepted.unwrap());
        peer.write_all(&[1; 500]).await.unwrap();
        let watch = Watch::default();
        (WatchedStream { stream, watch: watch.clone() }, watch, peer)
    }

    #[tokio::test]
    async fn a_task_that_stops_after_each_read_reads_everything() {
        let (mut stream, watch, _peer) = stream().await;
        let read = Arc::new(AtomicUsize::new(0));
        let seen = read.clone();
        let task = poll_fn(move |cx| {
            if Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut [0])).is_ready() {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            Poll::Pending
        });
        tokio::spawn(watch.read_on(task.boxed()));
        while read.load(Ordering::Relaxed) < 500 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_task_that_waits_to_write_is_not_polled_in_vain() {
        let (mut stream, watch, _peer) = stream().await;
        let polls = Arc::new(AtomicUsize::new(0));
        let seen = polls.clone();
        let mut has_read = false;
        let task = poll_fn(move |cx| {
            seen.fetch_add(1, Ordering::Relaxed);
            has_read = has_read || Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut [0])).is_ready();
            while has_read && Pin::new(&mut stream).poll_write(cx, &[0; 64 * 1024]).is_ready() {}
            Poll::Pending
        });
        tokio::spawn(watch.read_on(task.boxed()));
        for _ in 0..1_000 {
            yield_now().await;
        }
        let polls = polls.load(Ordering::Relaxed);
        assert!((1..100).contains(&polls), "{polls} polls");
    }
}
