//! The connection of a response, and its way back into the pool when the response's body ends.
//!
//! | the body | HTTP/1.1 connection | HTTP/2 stream |
//! |---|---|---|
//! | ended, with `Connection: close` | closed | – |
//! | ended before all of the request was written | closed | freed when the request's body is over (1) |
//! | ended, and the server refused the request's body (`Expect`) | closed | – |
//! | ended, and the connection is ready | returned at once | freed at once |
//! | ended, and the connection is not ready | returned if it is ready within 250 ms, else closed | freed; the connection gets no more requests |
//! | was dropped with at most 64 KiB left, which arrive within 50 ms | read to its end, then as above | reset, then as above |
//! | was dropped with more left | closed | reset, then as above |
//! | failed, or timed out | closed | reset, and freed when the request's body is over (1) |
//!
//! (1) After 60 s, or 5 s in which the server takes nothing of the request's body, that body is given up and the
//! connection gets no more requests.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::FutureExt;
use http_body::Body as _;
use hyper::body::Incoming;

use crate::client::body::Dialer;
use crate::client::body::upload::Upload;
use crate::client::policy::framing::KeepAlive;
use crate::clock::{self, Instant};
use crate::connect::Protocol;
use crate::pool::Lease;
use crate::trace::CloseCause;

/// The longest a connection may take to be ready for the next request after its response was read.
const READY_TIMEOUT: Duration = Duration::from_millis(250);
/// The longest a request's body may still be sent over HTTP/2 when its response is over.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest the server may take nothing of such a body.
const UPLOAD_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes that are read of a body that was dropped, so that its connection can be used again.
const MAX_DRAINED: u64 = 64 * 1024;
/// The longest such a body is read.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// Returns the connection to the pool, or closes it, when the response's body ends. Dropped before that, it closes an
/// HTTP/1.1 connection, which counts as unfinished from the start of its request on.
pub(crate) struct ReturnGuard {
    lease: Lease<Dialer>,
    /// The request's body, which may still be being sent.
    upload: Option<Arc<Upload>>,
    /// True if the request had a body.
    has_sent_body: bool,
    keep_alive: KeepAlive,
}

/// A response's body that has ended, as far as its connection depends on it.
#[derive(Debug, Clone, Copy)]
struct EndedBody {
    protocol: Protocol,
    /// True if the server closes the connection after the response.
    is_last: bool,
    /// True if a part of the request still waits to be written over HTTP/1.1.
    request_is_unwritten: bool,
    /// True if the server answered in place of a 100 (Continue).
    upload_is_unwanted: bool,
    /// True if the request has no body, or none that is still being sent.
    upload_is_over: bool,
    /// True if the connection can take the next request.
    is_ready: bool,
}

/// The next step of a connection whose response is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    Close(CloseCause),
    /// Return the connection to the pool.
    Return,
    /// Return the connection when it is ready and the request's body is over.
    ReturnWhenReady,
    /// Free the stream when the request's body is over.
    FreeAfterUpload,
}

impl EndedBody {
    /// Decides by the table above.
    fn next_step(self) -> NextStep {
        if self.is_last && self.protocol == Protocol::Http1 {
            return NextStep::Close(CloseCause::PeerAnnounced);
        }
        if self.request_is_unwritten {
            // The next request would wait behind the rest of this one, which the server may never read.
            return NextStep::Close(CloseCause::Unfinished);
        }
        if self.upload_is_unwanted {
            // The server still expects the body, which was not sent.
            return NextStep::Close(CloseCause::Unfinished);
        }
        match (self.upload_is_over, self.protocol) {
            // The server may want the rest all the same (RFC 9113 §8.1), and the stream counts as long.
            (false, Protocol::Http2) => NextStep::FreeAfterUpload,
            (true, _) if self.is_ready => NextStep::Return,
            _ => NextStep::ReturnWhenReady,
        }
    }
}

impl ReturnGuard {
    #[inline(always)]
    pub(crate) fn new(
        lease: Lease<Dialer>,
        upload: Option<Arc<Upload>>,
        has_sent_body: bool,
        keep_alive: KeepAlive,
    ) -> Self {
        Self { lease, upload, has_sent_body, keep_alive }
    }

    /// Returns the connection if the body has ended and nothing else is to be waited for. Returns false otherwise: the connection is
    /// left to [`finish`](Self::finish).
    // By reference: moving the guard would cost more than the return.
    #[inline]
    pub(super) fn finish_at_once(&mut self, now: Instant) -> bool {
        let may_return = self.ended().next_step() == NextStep::Return;
        if may_return {
            self.lease.give_back_in_place(now, self.keep_alive.idle);
        }
        may_return
    }

    /// Returns the connection after the end of the body.
    pub(super) fn finish(mut self, now: Instant) {
        match self.ended().next_step() {
            NextStep::Close(cause) => self.lease.end(cause),
            NextStep::Return => self.lease.give_back_in_place(now, self.keep_alive.idle),
            NextStep::ReturnWhenReady => self.return_when_ready(),
            NextStep::FreeAfterUpload => {
                let upload = self.upload.expect("a body that is not over is an upload");
                free_after(upload, self.lease);
            }
        }
    }

    fn ended(&self) -> EndedBody {
        let conn = self.lease.conn();
        let upload = self.upload.as_deref();
        EndedBody {
            protocol: conn.protocol(),
            is_last: self.keep_alive.is_last,
            request_is_unwritten: self.has_sent_body
                && conn.written().is_some_and(|(_, nothing_waits, _)| !nothing_waits),
            upload_is_unwanted: upload.is_some_and(Upload::is_unwanted),
            upload_is_over: upload.is_none_or(Upload::is_over),
            is_ready: conn.is_ready(),
        }
    }

    /// Returns the connection if it is ready in time, and closes it otherwise.
    fn return_when_ready(self) {
        let Self { mut lease, upload, keep_alive, .. } = self;
        lease.retire(CloseCause::Unfinished);
        let runtime = lease.conn().runtime();
        let returned = async move {
            let ready = async {
                if let Some(upload) = upload {
                    upload.over().await;
                }
                lease.conn().ready().await
            };
            let in_time = clock::before(clock::now().checked_add(READY_TIMEOUT), pin!(ready)).await;
            if in_time == Some(true) {
                lease.give_back(keep_alive.idle);
            }
        };
        runtime.spawn(returned.boxed());
    }

    /// Ends the request before the end of its response's body. Over HTTP/1.1 that closes the connection. Over HTTP/2 the
    /// stream is reset and the request's body is given up; the stream counts until that is over.
    pub(super) fn fail(self, incoming: Incoming) {
        if self.lease.conn().protocol() == Protocol::Http1 {
            // In this order: hyper closes the socket as soon as it notices that the body is gone. The pool would take
            // that for a close by the peer, did it not know the cause by then.
            drop(self.lease);
            drop(incoming);
            return;
        }
        drop(incoming); // resets the stream
        if let Some(upload) = self.unfinished_upload() {
            upload.give_up();
            free_after(upload, self.lease);
        }
    }

    /// Ends the request after its response's body was dropped.
    pub(crate) fn drain(self, incoming: Incoming) {
        if self.lease.conn().protocol() == Protocol::Http2 {
            if self.unfinished_upload().is_some() {
                return self.fail(incoming);
            }
            drop(incoming); // resets the stream
            return self.finish(clock::now());
        }
        if incoming.size_hint().lower() > MAX_DRAINED {
            return self.fail(incoming);
        }
        let runtime = self.lease.conn().runtime();
        let mut drain = Drain { rest: Some((self, incoming)), bytes: 0 };
        // Mostly the rest is there, and no task is needed.
        if Pin::new(&mut drain).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            let drained = async { _ = clock::before(clock::now().checked_add(DRAIN_TIMEOUT), drain).await };
            runtime.spawn(drained.boxed());
        }
    }

    /// Returns the request's body if it is still being sent over HTTP/2.
    fn unfinished_upload(&self) -> Option<Arc<Upload>> {
        if self.lease.conn().protocol() != Protocol::Http2 {
            return None;
        }
        self.upload.clone().filter(|upload| !upload.is_over())
    }

    /// Returns true if a body of unknown length was cut off when it ended: its stream was reset with NO_ERROR before
    /// its end. A server that wants no more of the request sends the same reset, but after the end of its response (RFC
    /// 9113 §8.1), which h2 remembers.
    pub(super) fn is_cut_off(&self, incoming: &Incoming) -> bool {
        self.lease.conn().protocol() == Protocol::Http2 && !incoming.is_end_stream()
    }

    /// Returns the time since data last came on the connection, if the operating system tells.
    pub(super) fn data_age(&self) -> Option<Duration> {
        self.lease.conn().data_age()
    }

    /// Returns the time when any of the request was last sent, as far as it is known.
    pub(super) fn last_sent(&self) -> Option<Instant> {
        let written = self.lease.conn().written().map(|(at, ..)| at);
        written.max(self.upload.as_ref().and_then(|upload| upload.progress()))
    }

    /// Returns the connection's count of responses and other frames so far.
    pub(super) fn progress(&self) -> u64 {
        self.lease.conn().progress()
    }

    /// Retires the connection if it may be dead: nothing has come on it since it was at `progress`.
    pub(super) fn retire_if_silent(&mut self, progress: u64) {
        self.lease.retire_if_silent(progress);
    }
}

/// Keeps a stream until the request's body is over. Gives the body up after [`UPLOAD_TIMEOUT`], or when the server
/// takes nothing of it for [`UPLOAD_IDLE_TIMEOUT`].
fn free_after(upload: Arc<Upload>, mut lease: Lease<Dialer>) {
    let runtime = lease.conn().runtime();
    let freed = async move {
        if !upload.over_within(UPLOAD_TIMEOUT, UPLOAD_IDLE_TIMEOUT).await {
            upload.give_up();
            // hyper does not poll a body before the server has taken its last piece, so the stream may stay open though
            // the body is given up. Without retiring the connection its stream would count as free, and the next
            // request that got it would be held back by h2.
            lease.retire(CloseCause::Peer);
        }
    };
    runtime.spawn(freed.boxed());
}

/// The reading of a dropped body to its end, which returns the connection. If the body fails or is too long, or if this is
/// dropped before, the connection closes.
struct Drain {
    /// The rest of the body, until the reading is over.
    rest: Option<(ReturnGuard, Incoming)>,
    bytes: u64,
}

impl Future for Drain {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { rest, bytes } = &mut *self;
        let Some((_, incoming)) = rest else { return Poll::Ready(()) };
        let is_at_end = loop {
            match ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
                None => break true,
                Some(Ok(frame)) => *bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
                Some(Err(_)) => break false,
            }
            if *bytes > MAX_DRAINED {
                break false;
            }
        };
        if let Some((guard, _)) = rest.take_if(|_| is_at_end) {
            guard.finish(clock::now());
        }
        Poll::Ready(())
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        if let Some((guard, incoming)) = self.rest.take() {
            guard.fail(incoming);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response that ended on a connection which is ready.
    const READY: EndedBody = EndedBody {
        protocol: Protocol::Http1,
        is_last: false,
        request_is_unwritten: false,
        upload_is_unwanted: false,
        upload_is_over: true,
        is_ready: true,
    };
    const HTTP2: EndedBody = EndedBody { protocol: Protocol::Http2, ..READY };

    #[test]
    fn a_connection_that_is_ready_is_returned() {
        assert_eq!(READY.next_step(), NextStep::Return);
        assert_eq!(HTTP2.next_step(), NextStep::Return);
        assert_eq!(EndedBody { is_ready: false, ..READY }.next_step(), NextStep::ReturnWhenReady);
    }

    #[test]
    fn a_connection_that_the_server_closes_is_closed() {
        let last = EndedBody { is_last: true, ..READY };
        assert_eq!(last.next_step(), NextStep::Close(CloseCause::PeerAnnounced));
        assert_eq!(EndedBody { protocol: Protocol::Http2, ..last }.next_step(), NextStep::Return, "no such header");
    }

    #[test]
    fn a_connection_with_an_unfinished_request_is_closed() {
        let unwritten = EndedBody { request_is_unwritten: true, ..READY };
        assert_eq!(unwritten.next_step(), NextStep::Close(CloseCause::Unfinished));
        let unwanted = EndedBody { upload_is_unwanted: true, ..READY };
        assert_eq!(unwanted.next_step(), NextStep::Close(CloseCause::Unfinished));
    }

    #[test]
    fn a_request_that_is_still_being_sent_is_waited_for() {
        assert_eq!(EndedBody { upload_is_over: false, ..READY }.next_step(), NextStep::ReturnWhenReady);
        assert_eq!(EndedBody { upload_is_over: false, ..HTTP2 }.next_step(), NextStep::FreeAfterUpload);
    }
}
