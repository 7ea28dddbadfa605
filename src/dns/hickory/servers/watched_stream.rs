//! Streams over TCP whose tasks leave nothing unread.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, FutureExt, poll_fn};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::world::ReadWrite;

/// The stream of a connection to one server. Over HTTPS no task acts on its watch.
pub(in crate::dns::hickory) struct WatchedDnsStream {
    pub(super) stream: Box<dyn ReadWrite>,
    pub(super) watch: Watch,
}

/// The state of a connection's reads and writes. Its stream sets it, and the task that reads the stream acts on it.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<WatchState>);

#[derive(Default)]
struct WatchState {
    /// True from a read of some bytes until a read that finds none: TLS may hold more of them than were taken.
    may_have_more: AtomicBool,
    /// True if the last write in this poll of the task waits.
    write_waits: AtomicBool,
}

impl Watch {
    /// Polls a connection's task again for as long as it stops with something left to read.
    ///
    /// hickory-net 0.26.3 takes at most 100 answers in a poll, and does not wake itself for the others, which TLS may hold
    /// decrypted. (Over TCP it never comes to 100: an answer takes two reads, and tokio allows 128 in a poll.) While a write
    /// waits, hickory reads nothing, and the write wakes the task.
    pub(super) fn read_on(self, mut task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let read_on = poll_fn(move |cx| {
            self.0.write_waits.store(false, Ordering::Relaxed);
            let polled = task.as_mut().poll(cx);
            let write_waits = self.0.write_waits.load(Ordering::Relaxed);
            if polled.is_pending() && !write_waits && self.0.may_have_more.load(Ordering::Relaxed) {
                cx.waker().wake_by_ref();
            }
            polled
        });
        read_on.boxed()
    }

    fn note_write<T>(&self, polled: Poll<T>) -> Poll<T> {
        self.0.write_waits.store(polled.is_pending(), Ordering::Relaxed);
        polled
    }
}

impl AsyncRead for WatchedDnsStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.watch.0.may_have_more.store(buf.filled().len() > before, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for WatchedDnsStream {
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
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::yield_now;

    use super::*;

    /// Returns a stream, its watch, and a peer that has sent 500 bytes and reads nothing.
    async fn stream() -> (WatchedDnsStream, Watch, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (stream, (mut peer, _)) = (stream.unwrap(), accepted.unwrap());
        peer.write_all(&[1; 500]).await.unwrap();
        let watch = Watch::default();
        (WatchedDnsStream { stream: Box::new(stream), watch: watch.clone() }, watch, peer)
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
        let all = async {
            while read.load(Ordering::Relaxed) < 500 {
                yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
    }

    #[tokio::test]
    async fn a_task_that_waits_to_write_is_not_polled_in_vain() {
        let (mut stream, watch, _peer) = stream().await;
        let waits = Arc::new(AtomicUsize::new(0));
        let seen = waits.clone();
        let mut has_read = false;
        let task = poll_fn(move |cx| {
            has_read = has_read || Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut [0])).is_ready();
            if has_read {
                while Pin::new(&mut stream).poll_write(cx, &[0; 64 * 1024]).is_ready() {}
                seen.fetch_add(1, Ordering::Relaxed);
            }
            Poll::Pending
        });
        tokio::spawn(watch.read_on(task.boxed()));
        let waited = async {
            while waits.load(Ordering::Relaxed) == 0 {
                yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap();
        for _ in 0..1_000 {
            yield_now().await;
        }
        let waits = waits.load(Ordering::Relaxed);
        assert!(waits < 100, "it waited {waits} times");
    }
}
