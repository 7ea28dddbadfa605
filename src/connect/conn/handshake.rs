//! The HTTP handshake: a connected stream becomes a connection that is ready to be served, and its
//! task, which serves it.
//!
//! For HTTP/1.1 nothing is sent. For HTTP/2 the client sends its preface and settings (RFC 9113 §3.4); the server's
//! settings are not waited for.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::http_config::{Http1Config, Http2Config, HttpConfig};
use crate::connect::conn::{Conn, ConnInfo, ConnInner, ConnectedStream, Sender};
use crate::connect::http2::frames::INTERVAL_PING_TIMEOUT;
use crate::connect::http2::runtime::{H2Connection, H2Executor};
use crate::connect::http2::timer::{ANSWER_TIMEOUT, H2Timer};
use crate::connect::http2::watch::WatchedStream;
use crate::connect::io::io_record::IoRecord;
use crate::connect::io::stream_io::RecordedStream;
use crate::connect::io::{Capacity, Message, Protocol};
use crate::world;

/// The stream limit that hyper assumes before the server has announced its own: a number that no server announces. The
/// pool sends one request until then.
const UNANNOUNCED_STREAMS: usize = usize::MAX / 2;

/// The number of cancelled streams that are remembered. Frames that the server still sends for a forgotten one are a
/// connection error.
const REMEMBERED_RESETS: usize = 1_024;

/// Longer than a process runs. hyper adds ping times to the current time without a check for overflow.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Begins to speak `protocol` on `connected`.
pub(in crate::connect) async fn handshake<B: Message>(
    connected: ConnectedStream,
    protocol: Protocol,
    config: HttpConfig,
) -> hyper::Result<OpenedConn<B>> {
    match protocol {
        Protocol::Http1 => http1(connected, config.http1).await,
        // Boxed because the future is large and HTTP/1.1 has no need of it.
        Protocol::Http2 => Box::pin(http2(connected, config.http2)).await,
    }
}

async fn http1<B: Message>(connected: ConnectedStream, config: Http1Config) -> hyper::Result<OpenedConn<B>> {
    let (stream, info) = ConnInfo::take_from(connected);
    let (stream, io) = RecordedStream::new(stream, Protocol::Http1);
    let mut builder = http1::Builder::new();
    config.apply(&mut builder);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let mut connection = connection.with_upgrades();
    let record = io.clone();
    let serving = async move {
        // hyper gives the error to the request that it ended. Without such a request, it is the connection's own result.
        // By reference: the error is noted before the connection is dropped, which fails requests that it has not taken.
        if let Err(error) = (&mut connection).await {
            record.note_end(error);
        }
        drop(connection);
        // After a switch of protocols the socket is open until the user of the new protocol drops it.
        record.closed().await;
    };
    let serving = Serving::Http1(serving.boxed());
    Ok(OpenedConn::new(Sender::Http1(Mutex::new(Some(sender))), serving, io, info))
}

async fn http2<B: Message>(connected: ConnectedStream, config: Http2Config) -> hyper::Result<OpenedConn<B>> {
    let (stream, mut info) = ConnInfo::take_from(connected);
    let (stream, frames) = WatchedStream::new(stream, info.tls.is_none());
    let (stream, io) = RecordedStream::new(Box::new(stream), Protocol::Http2);
    let executor = H2Executor::default();
    let timer = match config.pings.interval {
        Some(_) => H2Timer::for_fixed_pings(frames.clone()),
        None => H2Timer::for_pings_in_doubt(frames.clone()),
    };
    let builder = http2_builder(&executor, &timer, config);
    let (sender, requests) = builder.handshake(TokioIo::new(stream)).await?;
    let sender = Arc::new(Mutex::new(Some(sender)));
    let connection =
        H2Connection::new(requests, executor, sender.clone(), frames.clone(), io.clone(), UNANNOUNCED_STREAMS);
    info.frames = Some(frames);
    let sender = Sender::Http2(sender);
    Ok(OpenedConn::new(sender, Serving::Http2(Box::new(connection)), io, info))
}

fn http2_builder(executor: &H2Executor, timer: &H2Timer, config: Http2Config) -> http2::Builder<H2Executor> {
    let mut builder = http2::Builder::new(executor.clone());
    config.apply(&mut builder);
    let pings = config.pings;
    if world::is_simulated() {
        // By default, streams are forgotten after a second of real time.
        builder.reset_stream_duration(FOREVER);
    }
    builder
        .timer(timer.clone())
        .initial_max_send_streams(UNANNOUNCED_STREAMS)
        .max_concurrent_reset_streams(REMEMBERED_RESETS)
        .max_local_error_reset_streams(None);
    match pings.interval {
        Some(interval) => builder
            .keep_alive_interval(interval.min(FOREVER))
            .keep_alive_timeout(pings.timeout.unwrap_or(INTERVAL_PING_TIMEOUT).min(FOREVER))
            .keep_alive_while_idle(pings.while_idle),
        // The connection's timer decides when to ping and when to give up.
        None => {
            builder.keep_alive_interval(Duration::ZERO).keep_alive_timeout(ANSWER_TIMEOUT).keep_alive_while_idle(false)
        }
    };
    builder
}

/// A connection after its HTTP handshake that no task serves yet.
pub(crate) struct OpenedConn<B: Message> {
    sender: Sender<B>,
    serving: Serving<B>,
    io: Arc<IoRecord>,
    info: ConnInfo,
}

/// The future that drives a connection's socket.
pub(in crate::connect) enum Serving<B: Message> {
    Http1(BoxFuture<'static, ()>),
    /// Boxed because it is large and HTTP/1.1 has no need of it.
    Http2(Box<H2Connection<B>>),
}

impl<B: Message> OpenedConn<B> {
    pub(in crate::connect) fn new(sender: Sender<B>, serving: Serving<B>, io: Arc<IoRecord>, info: ConnInfo) -> Self {
        Self { sender, serving, io, info }
    }

    /// Returns the peer's address; `None` for a Unix domain socket.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.info.remote
    }

    /// Returns the host name that the connection was opened for, and the port that the resolver has named for it or 0; `None` if it was not
    /// looked up.
    pub(crate) fn name(&self) -> Option<(Arc<str>, u16)> {
        self.info.name()
    }

    /// Splits the connection into the handle that requests share and the future that serves the socket.
    ///
    /// `task` is the task that will run the future; call this on its runtime. The future drops `slot` after the socket
    /// is closed. It calls `on_capacity` when the number of requests that the connection takes has changed.
    pub(crate) fn start<P, F: Fn(Capacity)>(
        self,
        number: u64,
        slot: P,
        task: AbortHandle,
        on_capacity: F,
    ) -> (Conn<B>, ServedConn<B, P, F>) {
        let Self { sender, serving, io, info } = self;
        let conn = Arc::new(ConnInner::new(sender, io, info, number, task, Handle::current()));
        let served = ServedConn { serving, on_capacity, conn: Arc::downgrade(&conn), is_over: false, slot };
        (Conn::new(conn), served)
    }
}

/// The future that serves a connection until its socket is closed.
///
/// Written by hand rather than as an async block, because it stays in memory as long as the connection.
pub(crate) struct ServedConn<B: Message, P, F: Fn(Capacity)> {
    // Fields drop in this order: the socket before the slot it counts for.
    serving: Serving<B>,
    on_capacity: F,
    conn: Weak<ConnInner<B>>,
    /// True if the connection has ended by itself.
    is_over: bool,
    #[expect(dead_code, reason = "it is held and dropped")]
    slot: P,
}

impl<B: Message, P: Unpin, F: Fn(Capacity) + Unpin> Future for ServedConn<B, P, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { serving, on_capacity, is_over, .. } = &mut *self;
        let served = match serving {
            Serving::Http1(serving) => serving.poll_unpin(cx),
            Serving::Http2(serving) => serving.poll(cx, on_capacity),
        };
        *is_over = served.is_ready();
        served
    }
}

impl<B: Message, P, F: Fn(Capacity)> Drop for ServedConn<B, P, F> {
    fn drop(&mut self) {
        let Some(conn) = self.conn.upgrade() else { return };
        // The pool aborts only connections without requests, so an early end is that of the runtime. While the thread
        // panics the callback is left alone: a second panic would abort the process.
        if !self.is_over && !std::thread::panicking() {
            // The requests must know before they fail, and the pool before the socket is closed.
            conn.abandoned.store(true, Ordering::Relaxed);
            (self.on_capacity)(Capacity::Abandoned);
        }
        conn.sender.close_http1();
    }
}
