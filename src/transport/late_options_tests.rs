//! When the options of a socket are set, and when the user timeout is lifted.

#![cfg(target_os = "linux")]

use std::io;
use std::pin::Pin;

use socket2::Socket;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::*;
use crate::transport::tcp::{KEEPALIVE, TcpTransport, USER_TIMEOUT};
use crate::transport::tcp_stream::ProbedTcpStream;

/// Returns a stream, its peer, and a function that reads the options of its socket.
async fn connected(transport: &TcpTransport) -> (ProbedTcpStream, TcpStream, impl Fn() -> SocketOptions + use<>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = transport.dial(listener.local_addr().unwrap()).await.unwrap();
    let stream = ProbedTcpStream::new(stream, transport.late_options());
    let socket = Socket::from(std::os::fd::OwnedFd::from(SockRef::from(stream.read.as_ref()).try_clone().unwrap()));
    let set = move || SocketOptions {
        nodelay: socket.tcp_nodelay().unwrap(),
        keepalive: socket.keepalive().unwrap().then(|| {
            let times = (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
            assert_eq!(times.0, times.1);
            times.0
        }),
        user_timeout: socket.tcp_user_timeout().unwrap(),
        probes: socket.tcp_keepalive_retries().unwrap(),
    };
    (stream, listener.accept().await.unwrap().0, set)
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct SocketOptions {
    nodelay: bool,
    keepalive: Option<Duration>,
    user_timeout: Option<Duration>,
    probes: u32,
}

/// The user timeout of tests in real time: the kernel counts it too, and a busy machine is not late by a part of it.
const SILENCE: Duration = Duration::from_secs(3);

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

async fn waits(stream: &mut ProbedTcpStream, ms: u64) {
    let waited = tokio::time::timeout(Duration::from_millis(ms), stream.read_u8()).await;
    assert!(waited.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_options_about_silence_are_set_after_half_of_their_time() {
    let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
    let unset = set();
    waits(&mut stream, 7_499).await;
    assert_eq!((set(), unset.keepalive, unset.user_timeout), (unset, None, None), "not set before half of the time");
    // Another task waits from now on.
    let mut stream = tokio::spawn(async move {
        waits(&mut stream, 2).await;
        stream
    })
    .await
    .unwrap();
    assert_eq!((set().keepalive, set().user_timeout), (Some(KEEPALIVE), Some(USER_TIMEOUT)));
    assert_eq!(set().probes, unset.probes, "the user timeout decides");
    waits(&mut stream, 60_000).await;
    assert!(stream.options.is_at_rest());

    // No task waits for a while; then one polls a single time.
    let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
    waits(&mut stream, 1).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(set().keepalive, None);
    waits(&mut stream, 0).await;
    assert_eq!((set().keepalive, set().user_timeout), (Some(KEEPALIVE), Some(USER_TIMEOUT)));

    // Each without the other.
    let second = Some(Duration::from_secs(1));
    let (mut stream, _peer, set) = connected(&TcpTransport::new().keepalive(second).user_timeout(None)).await;
    waits(&mut stream, 499).await;
    assert_eq!(set().keepalive, None);
    waits(&mut stream, 2).await;
    assert_eq!((set().keepalive, set().user_timeout, set().probes), (second, None, 3));
    let (mut stream, _peer, set) = connected(&TcpTransport::new().keepalive(None).user_timeout(second)).await;
    waits(&mut stream, 501).await;
    assert_eq!((set().keepalive, set().user_timeout), (None, second));
    let neither = TcpTransport::new().keepalive(None).user_timeout(None);
    let (mut stream, _peer, set) = connected(&neither).await;
    waits(&mut stream, 60_000).await;
    assert_eq!((set().keepalive, set().user_timeout), (None, None));
}

#[tokio::test(start_paused = true)]
async fn the_options_about_silence_are_set_for_a_pending_write() {
    let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
    let stuck = tokio::time::timeout(Duration::from_millis(7_501), stream.write_all(&[0; 32 << 20])).await;
    assert!(stuck.is_err());
    assert_eq!((set().keepalive, set().user_timeout), (Some(KEEPALIVE), Some(USER_TIMEOUT)));
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_budget_sets_its_timer_later() {
    let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
    let waiting = tokio::spawn(async move {
        let mut exhausted = false;
        std::future::poll_fn(|cx| {
            if !std::mem::replace(&mut exhausted, true) {
                while tokio::task::coop::has_budget_remaining() {
                    let _ = std::pin::pin!(tokio::task::coop::consume_budget()).poll(cx);
                }
            }
            Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut [0]))
        })
        .await
    });
    tokio::time::sleep(Duration::from_millis(7_501)).await;
    assert_eq!(set().keepalive, Some(KEEPALIVE));
    waiting.abort();
}

#[tokio::test]
async fn nodelay_is_set_before_any_but_a_first_short_write() {
    let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
    stream.write_all(&[0; 536]).await.unwrap();
    assert!(!set().nodelay, "no earlier bytes could delay it");
    stream.write_all(b"more").await.unwrap();
    assert!(set().nodelay);
    for pieces in [&[537][..], &[200, 337]] {
        let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
        let pieces: Vec<_> = pieces.iter().map(|length| io::IoSlice::new(&[0; 600][..*length])).collect();
        let written = stream.write_vectored(&pieces).await.unwrap();
        assert_eq!((written, set().nodelay), (537, true), "its end might be delayed");
    }
    let (mut stream, _peer, set) = connected(&TcpTransport::new().nodelay(false)).await;
    for _ in 0..2 {
        stream.write_all(&[0; 600]).await.unwrap();
    }
    assert!(!set().nodelay);
}

#[tokio::test(start_paused = true)]
async fn the_options_are_set_at_once_if_one_task_reads_and_another_writes() {
    for reads_first in [true, false] {
        let (stream, _peer, set) = connected(&TcpTransport::new()).await;
        let (mut read, mut write) = tokio::io::split(stream);
        let (go, going) = tokio::sync::oneshot::channel();
        let reading = tokio::spawn(async move {
            let _ = going.await;
            read.read_u8().await
        });
        let mut go = Some(go);
        let mut start = || go.take().map(|go| go.send(()));
        if reads_first {
            start();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut writing = std::pin::pin!(write.write_all(&[0; 32 << 20]));
        assert!(tokio::time::timeout(Duration::from_millis(1), writing.as_mut()).await.is_err());
        start();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let is_set = (set().keepalive, set().user_timeout) == (Some(KEEPALIVE), Some(USER_TIMEOUT));
        assert!(is_set, "either may go away now; reads first: {reads_first}");
        reading.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_pending_write_has_a_timer_after_a_read_was_over() {
    let (mut stream, mut peer, set) = connected(&TcpTransport::new()).await;
    waits(&mut stream, 1).await;
    peer.write_u8(1).await.unwrap();
    stream.read_u8().await.unwrap();
    let stuck = tokio::time::timeout(Duration::from_millis(7_501), stream.write_all(&[0; 32 << 20])).await;
    assert!(stuck.is_err());
    assert_eq!(set().keepalive, Some(KEEPALIVE));
}

#[tokio::test]
async fn a_user_timeout_of_zero_is_the_systems_own() {
    let (mut stream, _peer, set) =
        connected(&TcpTransport::new().keepalive(None).user_timeout(Some(Duration::ZERO))).await;
    waits(&mut stream, 1).await;
    assert_eq!(set().user_timeout, None);
    assert!(stream.options.is_at_rest());
}

#[test]
fn outside_of_a_runtime_the_options_are_set_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut stream, _peer, set) = runtime.block_on(connected(&TcpTransport::new()));
    let mut bytes = [0];
    let polled = Pin::new(&mut stream)
        .poll_read(&mut Context::from_waker(std::task::Waker::noop()), &mut ReadBuf::new(&mut bytes));
    assert!(polled.is_pending());
    assert_eq!(set().keepalive, Some(KEEPALIVE));
}

#[test]
fn a_peer_with_a_closed_window_is_told_from_one_that_is_gone() {
    let of = |probes, backoff, unacked, last_sent, last_acked| {
        let sending = crate::transport::tcp_info::SendState { probes, backoff, unacked, last_sent, last_acked };
        (sending.is_window_closed(), sending.is_under_way())
    };
    assert_eq!(of(0, 0, 0, 9_000, 9_000), (false, false), "nothing to send");
    assert_eq!(of(0, 0, 20, 1, 40), (false, true), "bytes are under way");
    assert_eq!(of(0, 5, 0, 30_000, 2_000), (true, true), "each probe was acknowledged");
    assert_eq!(of(2, 5, 0, 30_000, 9_000), (true, true), "the last ones may be lost");
    assert_eq!(of(3, 5, 0, 30_000, 40_000), (false, true), "three are too many");
    assert_eq!(of(0, 4, 20, 900, 899), (true, true), "the retransmission was acknowledged");
    assert_eq!(of(0, 4, 20, 900, 9_000), (false, true), "the retransmission was not acknowledged");
}

#[tokio::test]
async fn the_user_timeout_is_lifted_while_the_window_is_closed() {
    let transport = TcpTransport::new().user_timeout(Some(SILENCE));
    let (mut stream, mut peer, set) = connected(&transport).await;
    let sending = tokio::spawn(async move { stream.write_all(&[0; 8 << 20]).await.map(|()| stream) });
    // Keepalive is set together with the user timeout.
    eventually("lifted", || (set().keepalive, set().user_timeout) == (Some(KEEPALIVE), None)).await;
    // Its window is closed for longer than a peer may be silent.
    tokio::time::sleep(SILENCE).await;
    assert_eq!(set().user_timeout, None, "it is not silent");
    peer.read_exact(&mut vec![0; 8 << 20]).await.unwrap();
    let mut stream = sending.await.unwrap().unwrap();
    // Once everything was taken, the limit holds again.
    while !stream.options.is_at_rest() {
        waits(&mut stream, 50).await;
    }
    assert_eq!(set().user_timeout, Some(SILENCE));
}

#[tokio::test]
async fn a_long_upload_leaves_little_unsent_in_the_kernel() {
    let (mut stream, _peer, _) = connected(&TcpTransport::new()).await;
    let limit = |stream: &ProbedTcpStream| SockRef::from(stream.read.as_ref()).tcp_notsent_lowat().unwrap();
    let unlimited = limit(&stream);
    stream.write_all(&[0; 64 * 1024]).await.unwrap();
    assert_eq!(limit(&stream), unlimited, "most requests are short");
    stream.write_all(&[0; 1]).await.unwrap();
    assert_eq!(limit(&stream), MAX_UNSENT);
}

#[tokio::test]
async fn a_write_restarts_a_timer_at_rest() {
    let transport = TcpTransport::new().keepalive(None).user_timeout(Some(SILENCE));
    let (mut stream, _peer, set) = connected(&transport).await;
    while !stream.options.is_at_rest() {
        waits(&mut stream, 50).await;
    }
    let request = vec![0; 512 * 1024];
    let exchange = tokio::spawn(async move {
        let mut is_written = false;
        let mut answer = [0];
        std::future::poll_fn(|cx| {
            // As hyper does: it reads before it writes, and not again until it is woken.
            let read = Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut answer));
            if !std::mem::replace(&mut is_written, true) {
                let written = tokio::io::AsyncWrite::poll_write(Pin::new(&mut stream), cx, &request);
                assert!(matches!(written, Poll::Ready(Ok(1..))), "{written:?}");
            }
            read
        })
        .await
    });
    eventually("lifted", || set().user_timeout.is_none()).await;
    // The peer's window is closed for longer than a peer may be silent.
    tokio::time::sleep(SILENCE).await;
    assert_eq!((set().user_timeout, exchange.is_finished()), (None, false), "it is not silent");
    exchange.abort();
}

#[tokio::test]
async fn a_number_of_probes_takes_the_place_of_the_default_user_timeout() {
    let seconds = Duration::from_secs;
    let options = async |transport: TcpTransport| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = transport.dial(listener.local_addr().unwrap()).await.unwrap();
        transport.late_options().silence.expect("probes are sent").set(&SockRef::from(&stream));
        let socket = SockRef::from(&stream);
        let times = (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
        (times, socket.tcp_keepalive_retries().unwrap(), socket.tcp_user_timeout().unwrap())
    };
    let (times, _, timeout) = options(TcpTransport::new().keepalive_interval(Some(seconds(4)))).await;
    assert_eq!((times, timeout), ((KEEPALIVE, seconds(4)), Some(USER_TIMEOUT)));
    let probes = TcpTransport::new().keepalive(Some(seconds(60))).keepalive_retries(Some(7));
    assert_eq!(options(probes.clone()).await, ((seconds(60), seconds(60)), 7, None));
    let (_, _, timeout) = options(probes.user_timeout(Some(seconds(9)))).await;
    assert_eq!(timeout, Some(seconds(9)), "Linux goes by it alone");
}
