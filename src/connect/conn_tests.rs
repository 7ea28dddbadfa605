//! Requests on connections over scripted streams that end in different ways.

use futures_util::FutureExt;
use http::Request;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::conn::handshake::handshake;
use super::conn::http_config::HttpConfig;
use crate::clock;
use crate::connect::conn::ConnectedStream;
use crate::connect::io::{Capacity, ExchangeTimes, Protocol, SendError};
use crate::sync::lock;
use crate::trace::TlsFacts;

#[test]
fn a_request_sent_while_its_connection_ends_gets_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let task = runtime.spawn(std::future::pending::<()>()).abort_handle();
    for round in 0..10_000 {
        let (stream, peer) = tokio::io::duplex(64);
        let connected = ConnectedStream::of(stream);
        let opened = handshake(connected, Protocol::Http1, HttpConfig::default()).now_or_never().unwrap().unwrap();
        let (conn, mut served) = opened.start(round, (), task.clone(), drop);
        drop(peer);
        let (ready, mut times) = (AtomicUsize::new(0), ExchangeTimes::default());
        // Both sides act at the same moment, or one of them a little later.
        let meet = |late: usize| {
            ready.fetch_add(1, Ordering::SeqCst);
            while ready.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            (0..late).for_each(|_| std::hint::spin_loop());
        };
        let sent = std::thread::scope(|scope| {
            scope.spawn(|| {
                meet(0);
                while served.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending() {
                    std::thread::yield_now();
                }
                drop(served);
            });
            meet(round as usize % 500);
            conn.send(Request::new(Empty::<Bytes>::new()), clock::now(), &mut times)
        });
        // Otherwise the connection had ended before.
        if let Ok(sending) = sent {
            assert!(matches!(sending.now_or_never(), Some(Err(_))), "round {round}");
        }
    }
}

/// A socket that takes `room` bytes and then fails. After the failure `says` can be read, and then the end.
struct FailingSocket {
    room: usize,
    failed: bool,
    error: io::ErrorKind,
    says: Vec<u8>,
    reader: Option<Waker>,
}

impl AsyncRead for FailingSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.failed {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let length = self.says.len().min(buf.remaining());
        let said: Vec<u8> = self.says.drain(..length).collect();
        buf.put_slice(&said);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FailingSocket {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.room == 0 {
            self.failed = true;
            self.reader.take().into_iter().for_each(Waker::wake);
            return Poll::Ready(Err(self.error.into()));
        }
        let taken = buf.len().min(self.room);
        self.room -= taken;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Uploads to `stream`, which does not take it all. Returns the body of the response.
async fn response_body(stream: FailingSocket, protocol: Protocol) -> Option<Bytes> {
    let connected = ConnectedStream::of(stream);
    let opened = handshake(connected, protocol, HttpConfig::default()).await.unwrap();
    let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
    let (conn, served) = opened.start(0, (), task, drop);
    let serving = tokio::spawn(served);
    let request = Request::put("http://api.test/").body(Full::new(Bytes::from(vec![0; 1 << 20]))).unwrap();
    let mut times = ExchangeTimes::default();
    let response = match conn.send(request, clock::now(), &mut times) {
        Ok(sending) => sending.await.ok(),
        Err(_) => None,
    };
    let body = match response {
        Some(response) => BodyExt::collect(response.into_body()).await.ok(),
        None => None,
    };
    serving.abort();
    body.map(|body| body.to_bytes())
}

#[tokio::test]
async fn a_connection_whose_task_is_dropped_is_abandoned_and_one_that_the_peer_closes_is_not() {
    for (protocol, closes) in
        [Protocol::Http1, Protocol::Http2].into_iter().flat_map(|protocol| [(protocol, true), (protocol, false)])
    {
        let (stream, mut peer) = tokio::io::duplex(4_096);
        let connected = ConnectedStream::of(stream);
        let opened = handshake(connected, protocol, HttpConfig::default()).await.unwrap();
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        let said = Arc::new(Mutex::new(Vec::new()));
        let says = said.clone();
        let (conn, served) = opened.start(0, (), task, move |capacity| lock(&says).push(capacity));
        let serving = tokio::spawn(served);
        let mut times = ExchangeTimes::default();
        let request = Request::get("http://api.test/").body(Empty::<Bytes>::new()).unwrap();
        let sending = conn.send(request, clock::now(), &mut times).ok().expect("an open connection");
        // The request has left.
        tokio::io::AsyncReadExt::read_u8(&mut peer).await.unwrap();
        if closes {
            drop(peer);
        } else {
            serving.abort();
        }
        assert!(sending.await.is_err());
        let abandoned = lock(&said).contains(&Capacity::Abandoned);
        assert_eq!((conn.is_abandoned(), abandoned), (!closes, !closes), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_response_sent_before_a_write_failed_is_read() {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    let head = |rest: &str| format!("HTTP/1.1 413 No\r\n{rest}").into_bytes();
    // SETTINGS; HEADERS with `:status: 200` (RFC 7541, appendix A); DATA, the last.
    let frames = [
        &[0, 0, 0, 4, 0, 0, 0, 0, 0][..],
        &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88],
        &[0, 0, 2, 0, 1, 0, 0, 0, 1, b'n', b'o'],
    ];
    for (case, protocol, error, says, expected) in [
        ("length", Protocol::Http1, ConnectionReset, head("content-length: 2\r\n\r\nno"), Some("no")),
        ("closed", Protocol::Http1, BrokenPipe, head("\r\nto the end"), Some("to the end")),
        // The end of the body is not known, so it may be cut.
        ("cut", Protocol::Http1, ConnectionReset, head("\r\nto the"), None),
        ("silent", Protocol::Http1, ConnectionReset, Vec::new(), None),
        ("HTTP/2", Protocol::Http2, ConnectionReset, frames.concat(), Some("no")),
    ] {
        let stream = FailingSocket { room: 1_000, failed: false, error, says, reader: None };
        let said = response_body(stream, protocol).await;
        assert_eq!(said.as_deref(), expected.map(str::as_bytes), "{case}");
    }
}

#[tokio::test]
async fn a_failed_write_over_tls_has_sent_nothing_only_if_it_fits_into_a_record() {
    let facts = TlsFacts {
        version: "TLSv1_3",
        cipher_suite: "unknown",
        alpn: None,
        resumed: false,
        verified: true,
        peer_certificates: Vec::new(),
    };
    let tls = Some(Arc::new(facts));
    for (tls, length, wrote_nothing) in [(None, 40_000, true), (tls.clone(), 40_000, false), (tls, 4_000, true)] {
        let error = io::ErrorKind::ConnectionReset;
        let stream = FailingSocket { room: 0, failed: false, error, says: Vec::new(), reader: None };
        let is_tls = tls.is_some();
        let connected = ConnectedStream { tls, ..ConnectedStream::of(stream) };
        let opened = handshake(connected, Protocol::Http1, HttpConfig::default()).await.unwrap();
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        let (conn, served) = opened.start(0, (), task, drop);
        let serving = tokio::spawn(served);
        let request = Request::post("/").body(Full::new(Bytes::from(vec![0; length]))).unwrap();
        let mut times = ExchangeTimes::default();
        let sending = conn.send(request, clock::now(), &mut times).ok().expect("an open connection");
        assert!(sending.await.is_err());
        assert_eq!(conn.wrote_nothing(), wrote_nothing, "TLS: {is_tls}, {length} bytes");
        serving.abort();
    }
}

/// A socket on which each read fails.
struct ResetSocket;

impl AsyncRead for ResetSocket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
}

impl AsyncWrite for ResetSocket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Sends requests on a connection over `stream`: one before the connection is served to its end if `early` is true, and two after
/// that. Returns the errors.
async fn unsent_requests<S>(stream: S, protocol: Protocol, early: bool) -> Vec<Box<SendError<Empty<Bytes>>>>
where
    S: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static,
{
    let opened = handshake(ConnectedStream::of(stream), protocol, HttpConfig::default()).await.unwrap();
    let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
    let (conn, served) = opened.start(0, (), task, drop);
    let request = || Request::get("http://api.test/").body(Empty::<Bytes>::new()).unwrap();
    let mut times = ExchangeTimes::default();
    let early = early.then(|| conn.send(request(), clock::now(), &mut times).ok().expect("an open connection"));
    served.await;
    let mut failed = Vec::new();
    if let Some(early) = early {
        failed.extend(early.await.err().map(|failure| conn.failed(failure, &mut times)));
    }
    for _ in 0..2 {
        failed.extend(match conn.send(request(), clock::now(), &mut times) {
            Ok(sending) => sending.await.err().map(|failure| conn.failed(failure, &mut times)),
            Err(unsent) => Some(unsent),
        });
    }
    failed
}

#[tokio::test]
async fn a_request_that_its_connection_did_not_take_fails_with_the_error_that_ended_the_connection() {
    for (protocol, early) in [(Protocol::Http1, false), (Protocol::Http2, false), (Protocol::Http2, true)] {
        for failed in unsent_requests(ResetSocket, protocol, early).await {
            let cause = format!("{:?}", failed.cause());
            assert!(failed.unsent.is_some() && cause.contains("ConnectionReset"), "{protocol:?}, {early}: {cause}");
        }
    }
    // An HTTP/1.1 connection takes no second request, so hyper gives the error to the only one.
    let failed = unsent_requests(ResetSocket, Protocol::Http1, true).await.swap_remove(0);
    let cause = format!("{:?}", failed.cause());
    assert!(failed.unsent.is_some() && cause.contains("ConnectionReset"), "{cause}");
}

#[tokio::test]
async fn a_request_on_a_connection_that_the_peer_had_closed_fails_because_of_that() {
    let (stream, peer) = tokio::io::duplex(4_096);
    drop(peer);
    for failed in unsent_requests(stream, Protocol::Http1, false).await {
        assert!(failed.unsent.is_some() && failed.cause().is_some_and(hyper::Error::is_incomplete_message));
    }
}
