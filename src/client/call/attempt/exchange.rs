//! One exchange on one connection: sends the message and waits for the head of its response.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use hyper::body::Incoming;

use super::{dispatch, message};
use crate::client::body::{Body, Dialer, OutgoingBody, Upload};
use crate::client::call::attempt::end;
use crate::client::call::state::Call;
use crate::client::policy::deadlines::{Deadlines, MinSpeed};
use crate::clock::{self, Instant};
use crate::connect::{Conn, ExchangeTimes, Protocol, SendError, Sent};
use crate::error::Result;
use crate::pool::Lease;
use crate::trace::Trace;

/// The response, whose head has come, or the failure in its place.
pub(in crate::client::call) type Outcome = std::result::Result<http::Response<Incoming>, Box<SendError<OutgoingBody>>>;

/// The result of an exchange.
pub(in crate::client::call) struct Exchanged {
    pub(in crate::client::call) outcome: Outcome,
    /// The request's body, if its progress is recorded.
    pub(in crate::client::call) upload: Option<Arc<Upload>>,
    pub(in crate::client::call) times: ExchangeTimes,
}

/// Sends the request on a connection that the call has had since `since`, and waits for the head of the response.
///
/// # Errors
/// A time limit passed, or the request cannot be sent on the connection.
pub(in crate::client::call) async fn exchange(
    call: &mut Call<'_>,
    lease: &mut Lease<Dialer>,
    since: Instant,
) -> Result<Exchanged> {
    if dispatch::must_peek(&call.request, lease.conn()) {
        dispatch::peek(call, since).await?;
    }
    let progress = lease.conn().progress();
    let body_length = call.request.body.as_ref().map_or(Some(0), Body::content_length).unwrap_or(0);
    let upload = message::upload(&call.request, lease.conn());
    // In a block, and not taken apart across an await: the future would hold these twice.
    let (sending, failed, times) = {
        let mut times = ExchangeTimes::default();
        let send = |conn: &Conn<_>, message| conn.send(message, since, &mut times);
        match dispatch::dispatch(call, lease, upload.as_ref(), send)? {
            Ok(sending) => (Some(sending), None, times),
            Err(failed) => (None, Some(failed), times),
        }
    };
    let deadline = call.deadline.map(|deadline| deadline.at);
    let limits = (call.setting(|options| options.timeouts.headers), call.upload_speed());
    let sending = pin!(sending);
    // It ends before `sending` is dropped: it tells the pool why the connection closes.
    let mut exchange =
        Exchange { since, lease, is_over: false, upload, times, body_length, trace: &call.trace, progress, deadline };
    let ended = match (failed, sending.as_pin_mut()) {
        (None, Some(sending)) => exchange.wait(sending, &call.client.deadlines, limits).await,
        (failed, _) => Ok(Err(failed.expect("what is not sent has failed"))),
    };
    let (upload, times) = exchange.finish(&ended);
    if let Some(body) = upload.as_deref().and_then(Upload::take_unwanted) {
        call.request.put_back(body);
    }
    match ended {
        Ok(mut outcome) => {
            if let Err(failed) = &mut outcome {
                call.request.put_unsent_back(failed, upload.as_deref());
            }
            Ok(Exchanged { outcome, upload, times })
        }
        Err(Stalled { what, limit, due }) => Err(call.stalled(&what, limit, due)),
    }
}

/// A request on its connection. However the exchange ends, the trace records how far it got.
struct Exchange<'a> {
    /// The time from which on the call has the connection.
    since: Instant,
    lease: &'a mut Lease<Dialer>,
    is_over: bool,
    upload: Option<Arc<Upload>>,
    times: ExchangeTimes,
    /// The length of the request's body; 0 if it is not known.
    body_length: u64,
    trace: &'a Trace,
    /// The connection's count of frames at the start of the exchange.
    progress: u64,
    deadline: Option<Instant>,
}

/// A time limit that passed while the request was sent or its response waited for.
struct Stalled {
    /// The part that is missing, for the error.
    what: String,
    limit: Duration,
    due: Option<Instant>,
}

/// The end of an exchange: its outcome, or a time limit that passed before.
type Ended = std::result::Result<Outcome, Stalled>;

impl Exchange<'_> {
    /// Waits for the result of the request, within the limits for its response's headers and for the sending of its body.
    async fn wait(
        &mut self,
        mut sending: Pin<&mut impl Future<Output = Sent<OutgoingBody>>>,
        deadlines: &Deadlines,
        (headers, least): (Option<Duration>, MinSpeed),
    ) -> Ended {
        let since = self.since;
        let has_body = self.upload.is_some() || self.body_length > 0;
        let least = if has_body { Some(least) } else { headers.map(MinSpeed::idle) };
        let Self { lease, upload, times, .. } = self;
        let lease = &**lease;
        let conn = lease.conn();
        // Dropped before `sending`.
        let mut unanswered = Unanswered(Some(lease));
        let mut until = earliest(since, [headers, least.map(|least| least.over)]);
        let mut reached = (since, 0);
        loop {
            let receiving = poll_fn(|cx| {
                let sent = ready!(sending.as_mut().poll(cx));
                Poll::Ready(match sent {
                    Ok(response) => {
                        conn.note_response(times, cx);
                        Ok(response)
                    }
                    Err(failed) => Err(conn.failed(failed, times)),
                })
            });
            if let Some(outcome) = deadlines.before(until, receiving).await {
                unanswered.0 = None;
                return Ok(outcome);
            }
            let now = clock::now();
            let (what, limit, from) = match (Progress::of(conn, upload.as_deref(), since), least) {
                (Progress::Partly(at, bytes), Some(least)) => {
                    reached = least.measured_from(reached, now, (at, bytes));
                    (least.missing("request was sent"), Some(least.over), reached.0)
                }
                (Progress::Whole(at) | Progress::Partly(at, _), _) => ("no response headers".to_owned(), headers, at),
            };
            let end = earliest(from, [limit]);
            if let Some(limit) = limit.filter(|_| end.is_some_and(|end| end <= now)) {
                return Err(Stalled { what, limit, due: end });
            }
            // If the last byte were sent right now, the limit for the headers would run from now on.
            until = end.into_iter().chain(earliest(now, [headers])).min();
        }
    }

    /// Ends the exchange.
    fn finish(mut self, ended: &Ended) -> (Option<Arc<Upload>>, ExchangeTimes) {
        self.is_over = true;
        self.record(ended.as_ref().ok());
        if ended.is_err() {
            self.lease.retire_if_silent(self.progress);
            self.lease.note_dropped(self.progress);
        }
        (self.upload.take(), self.times)
    }

    /// Records how far the exchange got.
    fn record(&mut self, outcome: Option<&Outcome>) {
        let response = outcome.and_then(|outcome| outcome.as_ref().ok());
        let conn = self.lease.conn();
        let times = &mut self.times;
        conn.complete_times(times);
        let mut sent_bytes = self.body_length;
        if let Some(upload) = &self.upload {
            // A response came, or the exchange failed, before a 100 (Continue).
            upload.set_wanted(response.is_some_and(dispatch::is_still_wanted));
            times.sent = match conn.protocol() {
                Protocol::Http1 => times.sent.filter(|_| upload.sent_at().is_some()),
                Protocol::Http2 => upload.sent_at(),
            };
            self.trace.note_body_starved(upload.starved());
            sent_bytes = upload.bytes();
        }
        // A response may come before the whole request was sent.
        let sent = times.sent.map(|sent| times.answered.map_or(sent, |answered| sent.min(answered)));
        self.trace.record_exchange(times.begun, sent, sent_bytes, times.answered);
        // The cause of a failure is found out later.
        if self.lease.is_balanced() && !matches!(outcome, Some(Err(_))) {
            let is_late = self.is_over || self.deadline.is_some_and(|deadline| deadline <= clock::now());
            end::report(self.lease, self.since, &self.times, response, is_late);
        }
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.record(None);
            if self.deadline.is_some_and(|deadline| deadline <= clock::now()) {
                self.lease.retire_if_silent(self.progress);
            }
            self.lease.note_dropped(self.progress);
        }
    }
}

/// A lease whose request is not answered. Dropped, it tells the pool why the connection closes.
struct Unanswered<'a>(Option<&'a Lease<Dialer>>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(lease) = self.0 {
            lease.foresee_end();
        }
    }
}

/// The part of a request that has been sent.
enum Progress {
    /// All of it, the last byte at this time.
    Whole(Instant),
    /// Not all of it: so many bytes, the last one at this time.
    Partly(Instant, u64),
}

impl Progress {
    /// Looks at a request that has had its connection since `since`.
    fn of(conn: &Conn<OutgoingBody>, upload: Option<&Upload>, since: Instant) -> Self {
        let (written, nothing_waits, bytes) = match conn.protocol() {
            Protocol::Http1 => conn.written().unwrap_or((since, false, 0)),
            Protocol::Http2 => (since, true, upload.map_or(0, Upload::bytes)),
        };
        let handed_over = upload.and_then(Upload::progress).unwrap_or(since);
        let last = written.max(handed_over);
        if nothing_waits && upload.is_none_or(|upload| upload.sent_at().is_some()) {
            Self::Whole(last)
        } else {
            Self::Partly(last, bytes)
        }
    }
}

/// Returns the end of the shortest of these limits, which run from `from`.
fn earliest<const N: usize>(from: Instant, limits: [Option<Duration>; N]) -> Option<Instant> {
    limits.into_iter().flatten().filter_map(|limit| from.checked_add(limit)).min()
}
