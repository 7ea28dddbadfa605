//! A request's body on its way: how far it got, what went wrong with it, and whether the peer wants it.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;

use super::Body;
use crate::clock::{Instant, Timer, before, now};
use crate::connect;
use crate::error::Cause;

/// A request's body on its way; nothing where there is none. It is small, because hyper keeps room for 32 requests a connection.
pub(crate) struct Outgoing(Option<Box<Carried>>);

struct Carried {
    body: Body,
    /// The rest of a stream's long piece.
    rest: Bytes,
    upload: Option<Arc<Upload>>,
}

/// Where it is followed how far a body has got, it is handed over in pieces: the next one when the peer takes it.
const PIECE: usize = 16 * 1024;

/// The longest piece of a stream that is handed over at once: a longer one would hide the progress of a slow peer.
const STREAMED_PIECE: usize = 64 * 1024;

/// The beginning of a frame; what is left of it goes to `rest`.
fn shortened(frame: Frame<Bytes>, rest: &mut Bytes) -> Frame<Bytes> {
    match frame.into_data() {
        Ok(mut data) if data.len() > STREAMED_PIECE => {
            *rest = data.split_off(STREAMED_PIECE);
            Frame::data(data)
        }
        Ok(data) => Frame::data(data),
        Err(frame) => frame,
    }
}

/// For how long a peer is waited for that was asked whether it wants the body (RFC 9110 §10.1.1), as curl and Go have it.
const CONSENT_TIMEOUT: Duration = Duration::from_secs(1);

/// How far a body has got.
#[derive(Default)]
pub(crate) struct Upload {
    /// When its last byte was handed over.
    sent: OnceLock<Instant>,
    /// When any of it was handed over last.
    progress: Mutex<Option<Instant>>,
    bytes: AtomicU64,
    failed: Mutex<Option<Cause>>,
    begun: AtomicBool,
    over: AtomicBool,
    /// True while the body has nothing to hand over yet: it is not the peer that holds it up.
    starved: AtomicBool,
    /// Rings when it is over.
    bell: Notify,
    given_up: AtomicBool,
    /// Whoever reads the body, where it waits.
    reader: Mutex<Option<Waker>>,
    consent: Option<Mutex<Consent>>,
}

/// Whether the peer wants a body that it was asked about.
#[derive(Default)]
struct Consent {
    said: Option<bool>,
    /// The body, until the peer wants it.
    kept: Option<Body>,
    patience: Timer,
    until: Option<Instant>,
}

impl Upload {
    /// That of a body which waits for the peer's consent.
    pub(crate) fn with_consent() -> Self {
        Self { consent: Some(Mutex::default()), ..Self::default() }
    }

    pub(crate) fn sent_at(&self) -> Option<Instant> {
        self.sent.get().copied()
    }

    /// When any of it was handed over last; while the peer is asked whether it wants the body, the time until which it is waited for.
    pub(crate) fn progress(&self) -> Option<Instant> {
        let asked = self.consent.as_ref().and_then(|consent| {
            let consent = unpoisoned(consent);
            consent.until.filter(|_| consent.said.is_none())
        });
        (*unpoisoned(&self.progress)).max(asked)
    }

    /// How many bytes were handed over.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether any of it was asked for, so that it may be gone.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Why it could not be read, where it was that which failed.
    pub(crate) fn take_failure(&self) -> Option<Cause> {
        unpoisoned(&self.failed).take()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Whether the peer is asked whether it wants the body.
    pub(crate) fn asks(&self) -> bool {
        self.consent.is_some()
    }

    /// Whether the peer answered without wanting the body, so that the connection is of no use any more.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.consent.as_ref().is_some_and(|consent| unpoisoned(consent).said == Some(false))
    }

    /// Keeps the body until the peer wants it, where the peer is asked; otherwise returns it.
    fn keep(&self, body: Body) -> Body {
        let Some(consent) = &self.consent else { return body };
        unpoisoned(consent).kept = Some(body);
        Body::default()
    }

    /// The body that the peer was asked about and did not want. None of it was read, and none will be.
    pub(crate) fn take_unwanted(&self) -> Option<Body> {
        let mut consent = unpoisoned(self.consent.as_ref()?);
        if consent.said == Some(false) { consent.kept.take() } else { None }
    }

    /// Waits until nobody sends it any more.
    pub(crate) async fn over(&self) {
        let mut rung = pin!(self.bell.notified());
        // Before it is looked at: from then on it rings for this one, too.
        rung.as_mut().enable();
        if !self.is_over() {
            rung.await;
        }
    }

    /// Waits until the body is no longer sent, for `limit` at most, and while the peer takes something of it every `idle`. Returns
    /// true if it is over.
    pub(crate) async fn over_within(&self, limit: Duration, idle: Duration) -> bool {
        let end = now() + limit;
        loop {
            let (taken, look) = (self.bytes(), end.min(now() + idle));
            if before(Some(look), pin!(self.over())).await.is_some() {
                return true;
            }
            let is_stuck = self.bytes() == taken && !self.starved.load(Ordering::Relaxed);
            if is_stuck || look == end {
                return false;
            }
        }
    }

    /// The peer wants the body, or does not; the first word counts.
    pub(crate) fn consent(&self, wanted: bool) {
        let Some(consent) = &self.consent else { return };
        unpoisoned(consent).said.get_or_insert(wanted);
        self.wake();
    }

    /// Nobody wants the body any more: it fails, and its stream ends.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let waker = unpoisoned(&self.reader).take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ready when the body may be sent: the peer has said so, or nothing at all for long enough; or when it never will be. The first
    /// time with the body that was kept until then.
    fn poll_consent(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Body>, Cause>> {
        *unpoisoned(&self.reader) = Some(cx.waker().clone());
        if self.given_up.load(Ordering::Acquire) {
            return Poll::Ready(Err("nobody wants the body any more".into()));
        }
        let Some(consent) = &self.consent else { return Poll::Ready(Ok(None)) };
        let mut consent = unpoisoned(consent);
        match consent.said {
            Some(true) => {}
            Some(false) => return Poll::Pending,
            None => {
                let until = *consent.until.get_or_insert_with(|| now() + CONSENT_TIMEOUT);
                ready!(consent.patience.poll_until(cx, until));
                consent.said = Some(true);
            }
        }
        Poll::Ready(Ok(consent.kept.take()))
    }
}

impl Outgoing {
    pub(crate) fn new(body: Body, upload: Option<Arc<Upload>>) -> Self {
        if body.is_empty() {
            return Self(None);
        }
        let body = match &upload {
            Some(upload) => upload.keep(body),
            None => body,
        };
        Self(Some(Box::new(Carried { body, rest: Bytes::new(), upload })))
    }

    /// The body as it is now, where nobody sends it.
    pub(crate) fn into_body(mut self) -> Body {
        self.0.as_mut().map(|carried| std::mem::take(&mut carried.body)).unwrap_or_default()
    }
}

impl Carried {
    /// Looks at the body, which its upload keeps until the peer wants it.
    fn look<T>(&self, look: impl FnOnce(&Body) -> T) -> T {
        let consent = self.upload.as_ref().and_then(|upload| upload.consent.as_ref()).map(unpoisoned);
        look(consent.as_ref().and_then(|consent| consent.kept.as_ref()).unwrap_or(&self.body))
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let Some(carried) = &mut self.0 else { return Poll::Ready(None) };
        let Some(upload) = &carried.upload else { return Pin::new(&mut carried.body).poll_frame(cx) };
        match ready!(upload.poll_consent(cx)) {
            Ok(Some(kept)) => carried.body = kept,
            Ok(None) => {}
            Err(error) => return Poll::Ready(Some(Err(error))),
        }
        upload.begun.store(true, Ordering::Relaxed);
        let piece = match carried.rest.len() {
            0 => carried.body.split(PIECE),
            left => Some(carried.rest.split_to(left.min(STREAMED_PIECE))),
        };
        let frame = match piece {
            Some(piece) => Some(Ok(Frame::data(piece))),
            None => {
                let polled = Pin::new(&mut carried.body).poll_frame(cx);
                upload.starved.store(polled.is_pending(), Ordering::Relaxed);
                let rest = &mut carried.rest;
                ready!(polled).map(|frame| frame.map(|frame| shortened(frame, rest)))
            }
        };
        let frame = frame.map(|frame| {
            // The request fails for it, and hyper tells that its own way: what it was is told here.
            frame.map_err(|error| {
                *unpoisoned(&upload.failed) = Some(error);
                Cause::from("the request's body could not be read")
            })
        });
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            upload.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        let at = now();
        *unpoisoned(&upload.progress) = Some(at);
        let is_read = carried.rest.is_empty() && carried.body.is_end_stream();
        let is_whole = frame.as_ref().is_none_or(|frame| frame.is_ok() && is_read);
        if is_whole {
            upload.sent.get_or_init(|| at);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let is_over = |carried: &Carried| carried.rest.is_empty() && carried.look(|body| body.is_end_stream());
        let is_empty = self.0.as_deref().is_none_or(is_over);
        connect::has_body(!is_empty);
        is_empty
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |carried| {
            let hint = carried.look(|body| body.size_hint());
            hint.exact().map_or(hint, |left| SizeHint::with_exact(left + carried.rest.len() as u64))
        })
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let Some(upload) = &self.upload {
            // Over HTTP/1.1 hyper does not look whether anything comes behind the last byte of a length.
            let is_read = self.rest.is_empty() && http_body::Body::size_hint(&self.body).exact() == Some(0);
            if is_read && upload.is_begun() {
                upload.sent.get_or_init(now);
            }
            upload.over.store(true, Ordering::Release);
            upload.bell.notify_waiters();
        }
    }
}

// What is behind these locks is never left half changed.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
