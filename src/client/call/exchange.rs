//! One exchange on one connection: sends the message and waits for the head of its response.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use hyper::body::Incoming;

use super::current_request::CurrentRequest;
use super::message;
use super::state::Call;
use crate::client::body::{Body, OutgoingBody, Upload};
use crate::client::deadlines::{Deadlines, Timeouts};
use crate::client::dialer::Dialer;
use crate::clock::{self, Instant};
use crate::connect::{Conn, ExchangeTimes, Protocol, SendError};
use crate::error::{Error, Result};
use crate::pool::Lease;
use crate::trace::{CloseCause, Event, Trace, Wants};

/// The end of an exchange.
pub(super) struct Exchanged {
    pub(super) result: SendResult,
    /// The request's body, if its progress is recorded.
    pub(super) upload: Option<Arc<Upload>>,
    pub(super) times: ExchangeTimes,
}

/// The head of a response, or the reason why there is none.
type SendResult = Result<http::Response<Incoming>, Box<SendError<OutgoingBody>>>;

/// Sends the request on a connection that the call has had since `since`, and waits for the head of the response.
///
/// # Errors
/// A time limit passed, or the request cannot be sent on the connection. Other failures are in the result.
pub(super) async fn exchange(call: &mut Call<'_>, lease: &mut Lease<Dialer>, since: Instant) -> Result<Exchanged> {
    let upload = message::upload(&call.request, lease.conn());
    let body_length = call.request.body.as_ref().map_or(Some(0), Body::content_length).unwrap_or(0);
    let message = message::message(call, lease.conn(), upload.clone())?;
    let progress = lease.conn().progress();
    let mut exchange = Exchange {
        since,
        lease,
        is_over: false,
        times: ExchangeTimes::default(),
        upload: upload.clone(),
        body_length,
        trace: &call.trace,
        progress,
        deadline: call.deadline.map(|deadline| deadline.at),
    };
    let sent = exchange.send(message, &call.client.deadlines, &call.timeouts).await;
    let times = exchange.finish();
    if let Some(body) = upload.as_deref().and_then(Upload::take_unwanted) {
        call.request.put_back(body);
    }
    match sent {
        Ok(mut result) => {
            if let Err(failed) = &mut result {
                put_unsent_back(&mut call.request, failed, upload.as_deref());
            }
            Ok(Exchanged { result, upload, times })
        }
        Err(Stalled { what, limit }) => {
            lease.retire_if_silent(progress);
            Err(Error::stalled(call.trace.phase(), what, limit))
        }
    }
}

/// Puts a stream back into the request if hyper returned the message and none of the stream was read.
fn put_unsent_back(request: &mut CurrentRequest, failed: &mut SendError<OutgoingBody>, upload: Option<&Upload>) {
    let is_unread = upload.is_some_and(|upload| !upload.is_begun());
    if let Some(message) = &mut failed.unsent
        && is_unread
        && !request.body_is_replayable()
    {
        let body = std::mem::replace(message.body_mut(), OutgoingBody::empty());
        request.put_back(body.into_body());
    }
}

/// A request on its connection. However the exchange ends, the trace records how far it got.
struct Exchange<'a> {
    /// The time from which on the call has the connection.
    since: Instant,
    lease: &'a mut Lease<Dialer>,
    is_over: bool,
    times: ExchangeTimes,
    upload: Option<Arc<Upload>>,
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
    what: &'static str,
    limit: Duration,
}

impl Exchange<'_> {
    /// Sends the request and waits for the head of its response, within the limits for both.
    // Not an async function: its work up to the first wait is no part of the future, which is copied when it moves.
    fn send(
        &mut self,
        mut message: http::Request<OutgoingBody>,
        deadlines: &Deadlines,
        timeouts: &Timeouts,
    ) -> impl Future<Output = Result<SendResult, Stalled>> {
        self.listen_for_interim_responses(&mut message);
        match self.lease.conn().protocol() {
            Protocol::Http1 => self.lease.retire(CloseCause::Unfinished),
            Protocol::Http2 => self.lease.mark_shared(),
        }
        let since = self.since;
        let has_body = self.upload.is_some() || self.body_length > 0;
        let Self { lease, times, upload, .. } = self;
        let lease: &Lease<Dialer> = lease;
        let conn = lease.conn();
        let upload = upload.as_deref();
        let sending = conn.send(message, since, times);
        let headers = timeouts.headers;
        let idle = timeouts.body_idle.filter(|_| has_body);
        async move {
            let mut sending = pin!(sending);
            // Dropped before `sending`.
            let mut unanswered = Unanswered(Some(lease));
            let mut until = earliest(since, [headers, idle]);
            loop {
                if let Some(result) = deadlines.before(until, sending.as_mut()).await {
                    unanswered.0 = None;
                    return Ok(result);
                }
                let now = clock::now();
                let (what, limit, from) = match Progress::of(conn, upload, since) {
                    Progress::Whole(at) => ("no response headers", headers, at),
                    Progress::Partly(at) => ("nothing more of the request was sent", idle.or(headers), at),
                };
                let end = earliest(from, [limit]);
                if let Some(limit) = limit.filter(|_| end.is_some_and(|end| end <= now)) {
                    return Err(Stalled { what, limit });
                }
                // If the last byte were sent right now, the limit for the headers would run from now on.
                until = end.into_iter().chain(earliest(now, [headers])).min();
            }
        }
    }

    /// Passes interim responses on to observers, and a 100 (Continue) to the body.
    fn listen_for_interim_responses(&self, message: &mut http::Request<OutgoingBody>) {
        let expecting = self.upload.clone().filter(|upload| upload.expects_continue());
        if !self.trace.is_wanted(Wants::INTERIM) && expecting.is_none() {
            return;
        }
        let trace = self.trace.clone();
        hyper::ext::on_informational(message, move |response| {
            let status = response.status();
            if let Some(upload) = &expecting
                && status == StatusCode::CONTINUE
            {
                upload.set_wanted(true);
            }
            trace.notify(Wants::INTERIM, || Event::Informational { status });
        });
    }

    /// Ends the exchange, and returns its times.
    fn finish(mut self) -> ExchangeTimes {
        self.is_over = true;
        self.record()
    }

    /// Records in the trace how far the exchange got.
    fn record(&self) -> ExchangeTimes {
        let conn = self.lease.conn();
        let mut times = conn.times(self.times);
        if let Some(upload) = &self.upload {
            // A response came, or the exchange failed, before a 100 (Continue).
            upload.set_wanted(false);
            times.sent = match conn.protocol() {
                Protocol::Http1 => times.sent.filter(|_| upload.sent_at().is_some()),
                Protocol::Http2 => upload.sent_at(),
            };
            self.trace.note_body_starved(upload.starved());
        }
        let sent_bytes = self.upload.as_ref().map_or(self.body_length, |upload| upload.bytes());
        // A response may come before the whole request was sent.
        let sent = times.sent.map(|sent| times.answered.map_or(sent, |answered| sent.min(answered)));
        self.trace.record_exchange(times.begun, sent, sent_bytes, times.answered);
        times
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.record();
            if self.deadline.is_some_and(|deadline| deadline <= clock::now()) {
                self.lease.retire_if_silent(self.progress);
            }
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
    /// Not all of it; a byte was last sent at this time.
    Partly(Instant),
}

impl Progress {
    /// Looks at a request that has had its connection since `since`.
    fn of(conn: &Conn<OutgoingBody>, upload: Option<&Upload>, since: Instant) -> Self {
        let (written, nothing_waits) = match conn.protocol() {
            Protocol::Http1 => conn.written().unwrap_or((since, false)),
            Protocol::Http2 => (since, true),
        };
        let handed_over = upload.and_then(Upload::progress).unwrap_or(since);
        let last = written.max(handed_over);
        if nothing_waits && upload.is_none_or(|upload| upload.sent_at().is_some()) {
            Self::Whole(last)
        } else {
            Self::Partly(last)
        }
    }
}

/// Returns the end of the shortest of these limits, which run from `from`.
fn earliest<const N: usize>(from: Instant, limits: [Option<Duration>; N]) -> Option<Instant> {
    limits.into_iter().flatten().filter_map(|limit| from.checked_add(limit)).min()
}
