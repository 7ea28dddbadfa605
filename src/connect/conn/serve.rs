//! The task of a connection: it drives the socket until it is closed.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::{Conn, ConnInfo, ConnInner, Sender};
use crate::connect::http2::runtime::H2Connection;
use crate::connect::io::io_record::IoRecord;
use crate::connect::io::message::Message;
use crate::connect::io::protocol::Capacity;

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
