//! A response's body on its way from the connection, and the connection's way back into the pool.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::runtime::Handle;

#[cfg(feature = "__compression")]
use super::decode::{Decoder, Step};
use super::outgoing::Upload;
use crate::client::Dialer;
use crate::client::call::Patience;
use crate::client::keep_alive::KeepAlive;
use crate::clock::{self, Instant, Timer};
use crate::connect::Protocol;
use crate::error::{Error, Result, io_cause};
use crate::origin::Origin;
use crate::pool::Lease;
use crate::trace::{CloseCause, Event, Phase, Trace, Wants};

/// How long a connection whose response was read may take to be ready for the next request.
const READY_TIMEOUT: Duration = Duration::from_millis(250);
/// The longest that the rest of a request may take over HTTP/2 when its response is over.
const REST_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that the peer may take nothing of it.
const REST_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Of a body nobody reads, so much is read for the sake of the connection, and for so long.
const MAX_DRAINED: u64 = 64 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// For how long the first piece of an error's body is waited for, and how much of it is kept for the error.
const LOOK_AHEAD: Duration = Duration::from_millis(20);

/// A response's body as its reader wants it: decompressed.
pub(crate) struct Reader {
    payload: Payload,
    /// What was read already.
    ahead: Option<Box<Result<Frame<Bytes>>>>,
    #[cfg(feature = "__compression")]
    decoder: Option<Box<Decoder>>,
}

impl Reader {
    pub(crate) fn new(payload: Payload) -> Self {
        Self {
            payload,
            ahead: None,
            #[cfg(feature = "__compression")]
            decoder: None,
        }
    }

    #[cfg(feature = "__compression")]
    pub(crate) fn decode_by(&mut self, decoder: Option<Decoder>) {
        self.decoder = decoder.map(Box::new);
    }

    /// Somebody is going to read it.
    pub(crate) fn begin(&mut self) {
        self.payload.begun = true;
        self.payload.finish_at_end(None);
    }

    /// Nobody reads it.
    pub(crate) fn drain(&mut self) {
        if let Some((incoming, source)) = self.payload.open.take() {
            source.drain(incoming);
        }
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.payload.origin
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.payload.trace
    }

    /// Whether there is no body: a response to HEAD has none, whatever its headers say.
    #[cfg(feature = "__compression")]
    pub(crate) fn is_empty(&self) -> bool {
        self.payload.open.as_ref().is_none_or(|(incoming, _)| incoming.is_end_stream())
    }

    /// How the body begins, where that was looked at.
    pub(crate) fn start(&self) -> Bytes {
        let ahead = self.ahead.as_deref().and_then(|ahead| ahead.as_ref().ok()?.data_ref());
        ahead.cloned().unwrap_or_default()
    }

    /// How much is left of the body, where that is known.
    pub(crate) fn rest(&self) -> SizeHint {
        #[cfg(feature = "__compression")]
        if self.decoder.is_some() {
            return SizeHint::default();
        }
        // Of what has failed, nobody knows.
        if self.payload.failed {
            return SizeHint::default();
        }
        let ahead = self.start().len() as u64;
        self.payload.rest().exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(rest + ahead))
    }

    /// The length of the whole body, where it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        #[cfg(feature = "__compression")]
        if self.decoder.is_some() {
            return None;
        }
        let rest = self.payload.rest().exact().filter(|_| !self.payload.failed);
        rest.map(|rest| rest + self.payload.bytes)
    }

    pub(crate) fn is_over(&self) -> bool {
        #[cfg(feature = "__compression")]
        if self.decoder.is_some() {
            return false;
        }
        self.ahead.is_none() && self.payload.open.is_none() && !self.payload.failed
    }

    pub(crate) async fn look_ahead(&mut self) {
        // Outside of a runtime there are no timers.
        if self.payload.open.is_none() || Handle::try_current().is_err() {
            return;
        }
        let until = clock::now().checked_add(LOOK_AHEAD);
        let first = clock::before(until, poll_fn(|cx| self.poll_frame(cx))).await;
        self.ahead = first.flatten().map(Box::new);
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if let Some(ahead) = self.ahead.take() {
            return Poll::Ready(Some(*ahead));
        }
        #[cfg(feature = "__compression")]
        if self.decoder.is_some() {
            return self.poll_decoded(cx);
        }
        self.payload.poll_frame(cx)
    }

    #[cfg(feature = "__compression")]
    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let Self { payload, decoder: Some(decoder), .. } = self else { return self.payload.poll_frame(cx) };
        loop {
            match decoder.next() {
                Ok(Step::Made(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Step::Hungry) => {}
                Ok(Step::Busy) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => {
                    payload.fail("decode");
                    payload.failed = true;
                    let error = Error::compression(&payload.origin, error);
                    self.decoder = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            if decoder.is_over() {
                return Poll::Ready(decoder.take_trailers().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            match ready!(payload.poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => decoder.push(data),
                    Err(other) => decoder.keep(other.into_trailers().ok()),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => decoder.end(),
            }
        }
    }
}

/// Where a response comes from.
pub(crate) struct Source {
    pub(crate) lease: Lease<Dialer>,
    /// The request's body, which may still be on its way.
    pub(crate) upload: Option<Arc<Upload>>,
    /// True if the request had a body.
    pub(crate) has_sent_body: bool,
    pub(crate) keep_alive: KeepAlive,
}

/// A response's body, and the connection it comes from.
pub(crate) struct Payload {
    /// Whether it is anybody's to read.
    begun: bool,
    /// Nothing after the end.
    open: Option<(Incoming, Source)>,
    trace: Trace,
    patience: Patience,
    origin: Origin,
    bytes: u64,
    /// How long the body is to be, where it comes with a length.
    announced: Option<u64>,
    /// Since when its next piece is waited for, and how far its connection had got then.
    silent_since: Option<(Instant, u64)>,
    timer: Timer,
    failed: bool,
}

impl Payload {
    pub(crate) fn new(incoming: Incoming, source: Source, trace: Trace, patience: Patience, origin: Origin) -> Self {
        // A response to HEAD has a length and no body.
        let announced = incoming.size_hint().exact().filter(|_| !incoming.is_end_stream());
        let open = Some((incoming, source));
        let (silent_since, timer, failed) = Default::default();
        Self { begun: false, open, trace, patience, origin, bytes: 0, announced, silent_since, timer, failed }
    }

    fn rest(&self) -> SizeHint {
        self.open.as_ref().map_or(SizeHint::with_exact(0), |(incoming, _)| incoming.size_hint())
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.failed {
            return Poll::Ready(Some(Err(Error::body_failed_before(&self.origin, self.bytes))));
        }
        let Some((incoming, _)) = &mut self.open else { return Poll::Ready(None) };
        let Patience { deadline, idle } = self.patience;
        // What has come in the meantime is too late as well.
        let now = deadline.map(|_| clock::now());
        let is_late = deadline.zip(now).is_some_and(|(deadline, now)| deadline.at <= now);
        if !is_late && let Poll::Ready(frame) = Pin::new(&mut *incoming).poll_frame(cx) {
            self.silent_since = None;
            return Poll::Ready(match frame {
                Some(Ok(frame)) => Some(Ok(self.read(frame, now))),
                // The end of a connection takes the end of a stream with it, in h2, while the request is on its way.
                Some(Err(error)) if self.announced == Some(self.bytes) && io_cause(&error).is_some() => {
                    self.finish(clock::now());
                    None
                }
                Some(Err(error)) => {
                    self.fail("body");
                    Some(Err(Error::body(&self.origin, error, self.bytes)))
                }
                None => self.end().err().map(Err),
            });
        }
        let mut came = false;
        if is_late {
            came = Pin::new(incoming).poll_frame(cx).is_ready();
        } else {
            let progress = self.open.as_ref().map_or(0, |(_, source)| source.lease.conn().progress());
            loop {
                let (since, _) = *self.silent_since.get_or_insert_with(|| (clock::now(), progress));
                let until = since.checked_add(idle).into_iter().chain(deadline.map(|deadline| deadline.at)).min();
                let Some(until) = until else { return Poll::Pending };
                ready!(self.timer.poll_until(cx, until));
                // While the request is still being sent, that is progress as well.
                let sent = self.open.as_ref().and_then(|(_, source)| source.last_sent());
                match sent.filter(|sent| *sent > since && deadline.is_none_or(|deadline| until < deadline.at)) {
                    Some(sent) => self.silent_since = Some((sent, progress)),
                    None => break,
                }
            }
        }
        // Who waited in vain knows that nothing came; who came too late knows nothing.
        if let (Some((_, source)), Some((_, progress)), false) = (&mut self.open, self.silent_since, came) {
            source.lease.give_up_on(progress);
        }
        self.fail("timeout");
        Poll::Ready(Some(Err(match deadline.filter(|deadline| deadline.at <= clock::now()) {
            Some(deadline) => Error::timeout(&self.origin, Phase::Receive, deadline.limit),
            None => Error::silence(&self.origin, Phase::Receive, "nothing more of the body", idle),
        })))
    }

    fn read(&mut self, frame: Frame<Bytes>, now: Option<Instant>) -> Frame<Bytes> {
        if let Some(data) = frame.data_ref() {
            let bytes = data.len() as u64;
            self.bytes += bytes;
            self.trace.mention_at(now, Wants::CHUNKS, || Event::BodyChunk { bytes });
            self.finish_at_end(now);
        }
        frame
    }

    /// The body is over; over HTTP/2 that can also mean that the peer gave it up without a word.
    fn end(&mut self) -> Result<()> {
        let short = self.announced.filter(|announced| self.bytes < *announced);
        let is_cut = match self.announced {
            Some(_) => short.is_some(),
            None => self.open.as_ref().is_some_and(|(incoming, source)| source.is_cut(incoming)),
        };
        if !is_cut {
            self.finish(clock::now());
            return Ok(());
        }
        self.fail("body");
        Err(Error::cut_body(&self.origin, self.bytes, short))
    }

    /// Ends the call as soon as nothing more can come, also if nobody asks for the end.
    fn finish_at_end(&mut self, now: Option<Instant>) {
        let cut = self.announced.is_some_and(|announced| self.bytes < announced);
        if !cut && self.open.as_ref().is_some_and(|(incoming, _)| incoming.is_end_stream()) {
            self.finish(now.unwrap_or_else(clock::now));
        }
    }

    fn finish(&mut self, now: Instant) {
        if let Some((_, source)) = self.open.take() {
            self.trace.emit_at(now, Event::BodyEnd { bytes: self.bytes });
            source.give_back(now);
        }
    }

    fn fail(&mut self, why: &'static str) {
        if let Some((incoming, source)) = self.open.take() {
            self.failed = true;
            self.trace.fail(why);
            drop(incoming);
            source.give_up();
        }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some((incoming, source)) = self.open.take().filter(|_| self.begun) {
            self.trace.fail("cancelled");
            source.drain(incoming);
        }
    }
}

impl Source {
    /// Returns true if a body that is over was cut off: its stream was reset, with NO_ERROR, before its end. A peer that wants no
    /// more of the request does the same behind the end of its response (RFC 9113 §8.1); h2 remembers that end.
    fn is_cut(&self, incoming: &Incoming) -> bool {
        self.lease.conn().protocol() == Protocol::Http2 && !incoming.is_end_stream()
    }

    /// When any of the request was last sent, where that is known.
    fn last_sent(&self) -> Option<Instant> {
        let written = self.lease.conn().written().map(|(at, _)| at);
        written.max(self.upload.as_ref().and_then(|upload| upload.progress()))
    }

    /// Gives the connection back once it is ready for the next request, which it mostly is at once.
    fn give_back(self, now: Instant) {
        let Self { mut lease, upload, has_sent_body, keep_alive } = self;
        if keep_alive.is_last && lease.conn().protocol() == Protocol::Http1 {
            return lease.end(CloseCause::PeerAsked);
        }
        if has_sent_body && lease.conn().written().is_some_and(|(_, nothing_waits)| !nothing_waits) {
            // The answer came before the server had taken the request, and the next one would wait behind what is left of it.
            return lease.end(CloseCause::Unfinished);
        }
        if upload.as_ref().is_some_and(|upload| upload.is_unwanted()) {
            // The server still waits for the body it did not want.
            return lease.end(CloseCause::Unfinished);
        }
        if let Some(upload) = upload.clone().filter(|upload| !upload.is_over())
            && lease.conn().protocol() == Protocol::Http2
        {
            // The peer may want the rest all the same (RFC 9113 §8.1), and the stream is taken for as long.
            return Self::when_over(upload, lease);
        }
        let uploaded = upload.as_ref().is_none_or(|upload| upload.is_over());
        if uploaded && lease.conn().is_ready() {
            return lease.give_back_at(now, keep_alive.idle);
        }
        // A request that is still on its way when the response is over, and stays so, holds the connection up.
        lease.retire(CloseCause::Unfinished);
        lease.conn().runtime().spawn(async move {
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
        });
    }

    /// The exchange has failed. A request's body that is still on its way ends with its stream; until it has, the stream is taken.
    fn give_up(self) {
        let Self { lease, upload, .. } = self;
        if let Some(upload) = upload.filter(|upload| !upload.is_over())
            && lease.conn().protocol() == Protocol::Http2
        {
            upload.give_up();
            Self::when_over(upload, lease);
        }
    }

    /// Keeps a stream's place until the request's body is over. Where that takes longer than [`REST_TIMEOUT`], or the peer takes
    /// nothing of it for [`REST_IDLE_TIMEOUT`], its connection serves no others.
    fn when_over(upload: Arc<Upload>, mut lease: Lease<Dialer>) {
        lease.conn().runtime().spawn(async move {
            if !upload.over_within(REST_TIMEOUT, REST_IDLE_TIMEOUT).await {
                upload.give_up();
                // hyper does not poll a body again before the peer has taken its last piece, so the stream may stay open. It must
                // not stay on a connection that is kept for want of room: its seat would be given to a request that h2 holds back.
                lease.retire(CloseCause::Peer);
            }
        });
    }

    /// Reads the rest of a body nobody wants, if it is short and there; otherwise the connection closes. An HTTP/2 stream is
    /// given up by itself.
    fn drain(self, incoming: Incoming) {
        if self.lease.conn().protocol() == Protocol::Http2 {
            drop(incoming);
            if self.upload.as_ref().is_some_and(|upload| !upload.is_over()) {
                return self.give_up();
            }
            return self.give_back(clock::now());
        }
        if incoming.size_hint().lower() > MAX_DRAINED {
            return;
        }
        let mut rest = Rest { incoming, bytes: 0 };
        let now = Pin::new(&mut rest).poll(&mut Context::from_waker(Waker::noop()));
        match now {
            Poll::Ready(true) => self.give_back(clock::now()),
            Poll::Ready(false) => {}
            Poll::Pending => {
                self.lease.conn().runtime().spawn(async move {
                    if clock::before(clock::now().checked_add(DRAIN_TIMEOUT), rest).await == Some(true) {
                        self.give_back(clock::now());
                    }
                });
            }
        }
    }
}

/// The rest of a body; a future of whether it came to its end.
struct Rest {
    incoming: Incoming,
    bytes: u64,
}

impl Future for Rest {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        while self.bytes <= MAX_DRAINED {
            match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                None => return Poll::Ready(true),
                Some(Ok(frame)) => self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
                Some(Err(_)) => return Poll::Ready(false),
            }
        }
        Poll::Ready(false)
    }
}
