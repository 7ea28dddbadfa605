//! One call: a connection, the request on it, the head of its response; again where that is safe.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

#[cfg(feature = "__compression")]
use http::header::{ACCEPT_ENCODING, RANGE};
use http::header::{CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHORIZATION, TRAILER};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use url::{Position, Url};

#[cfg(feature = "__compression")]
use super::body::Decompression;
use super::body::{Body, Outgoing, Payload, Source, Upload};
use super::deadlines::Deadlines;
use super::keep_alive::KeepAlive;
use super::redirect_policy::{Onward, RedirectError, onward, strip};
use super::request::{self, Request, Timeouts};
use super::response::{Answered, Response};
use super::retry_policy::{self, Outcome};
use super::safe_to_resend::{Attempt, AttemptEnd, Attempts, Resend, is_idempotent};
use super::{Dialer, Shared};
use crate::clock::{self, Instant};
use crate::connect::{Conn, ConnectError, Protocol, SendError, Times};
use crate::error::{self, Error, ErrorKind, Result, io_cause};
use crate::origin::Scheme;
use crate::pool::{Checkout, Delivery, InLine, Lease, LeaseError, Stay, Ticket, Wish};
use crate::trace::{Asked, CloseCause, Event, Phase, RetryCause, Trace, Wants};

/// Makes the call `request` describes.
pub(super) async fn run(client: &Shared, request: Box<Request>) -> Result<Response> {
    let mut call = Call::begin(client, request)?;
    let until = call.deadline.map(|deadline| deadline.at);
    let result = client.deadlines.before(until, pin!(call.exchange())).await;
    match result.unwrap_or_else(|| Err(call.timed_out())) {
        Ok(mut response) => {
            if response.status().as_u16() >= 400 {
                response.look_ahead().await;
            }
            Ok(response)
        }
        Err(error) => {
            call.open.trace.fail(error.kind().as_str());
            Err(error.about(&call.context(), call.open.trace.timings()))
        }
    }
}

/// Adds the client's headers that the request has none of.
fn add_defaults(headers: &mut HeaderMap, defaults: &HeaderMap) -> Result<()> {
    for name in defaults.keys() {
        if !headers.contains_key(name) {
            for value in defaults.get_all(name) {
                request::add(headers, name.clone(), value.clone())?;
            }
        }
    }
    Ok(())
}

/// Says which codings are taken off, unless the request says itself what it accepts, or asks for a part of what there is.
#[cfg(feature = "__compression")]
fn accept_codings(request: &mut Request, decompression: Decompression) -> Decompression {
    let headers = &mut request.headers;
    match decompression.accepted() {
        Some(accepted) if !headers.contains_key(ACCEPT_ENCODING) && !headers.contains_key(RANGE) => {
            headers.insert(ACCEPT_ENCODING, accepted);
            decompression
        }
        _ => Decompression::none(),
    }
}

/// For how long a body is waited for: in all, and for its next piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) deadline: Option<Deadline>,
    pub(super) idle: Duration,
}

/// When a call has to be over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    pub(super) limit: Duration,
}

struct Call<'a> {
    client: &'a Shared,
    request: Option<Box<Request>>,
    /// What the request asks for; it is made anew for another attempt, because to keep it costs more than to parse it.
    target: Option<Uri>,
    /// How often it was made again by choice.
    repeated: u32,
    /// The attempts of the request as it is now, those made again by choice among them.
    attempts: Attempts,
    /// Whether it has not asked for a connection yet.
    has_just_begun: bool,
    /// Whether the request's body was a stream, which has been read.
    body_is_gone: bool,
    open: Open,
    /// Held while it has no connection, and will have another one.
    staying: Option<Stay<Dialer>>,
    timeouts: Timeouts,
    deadline: Option<Deadline>,
    /// What was asked before, where responses led on.
    chain: Vec<Url>,
    #[cfg(feature = "__compression")]
    decompression: Decompression,
}

/// The trace of a call that is not over; dropped before it has a response, the call was given up.
struct Open {
    trace: Trace,
    over: bool,
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.over {
            self.trace.fail("cancelled");
        }
    }
}

impl<'a> Call<'a> {
    // What is done before anything is waited for is not in the future: that is copied, and so is what it holds.
    fn begin(client: &'a Shared, mut request: Box<Request>) -> Result<Self> {
        request.add_url_authorization()?;
        add_defaults(&mut request.headers, &client.calls.headers)?;
        request.check()?;
        let target = target(&request)?;
        let trace = Trace::start(&client.hooks, request.options.observer.clone(), || Asked {
            method: request.method.clone(),
            origin: request.origin.clone(),
            target: client.calls.shown(target.clone()),
        });
        #[cfg(feature = "__compression")]
        let decompression = accept_codings(&mut request, client.calls.decompression);
        let timeouts = request.options.timeouts.or(&client.calls.timeouts);
        let begun = trace.start_time();
        let deadline = timeouts.total.and_then(|limit| begun.checked_add(limit).map(|at| Deadline { at, limit }));
        if let Some(retry) = &client.calls.retry {
            retry.deposit(begun);
        }
        Ok(Self {
            client,
            target: Some(target),
            request: Some(request),
            repeated: 0,
            attempts: Attempts::default(),
            has_just_begun: true,
            body_is_gone: false,
            open: Open { trace, over: false },
            staying: None,
            timeouts,
            deadline,
            chain: Vec::new(),
            #[cfg(feature = "__compression")]
            decompression,
        })
    }

    /// The request, which goes over to the response in the end.
    fn request(&self) -> &Request {
        self.request.as_deref().expect("a call without a response has its request")
    }

    fn request_mut(&mut self) -> &mut Request {
        self.request.as_deref_mut().expect("a call without a response has its request")
    }

    async fn exchange(&mut self) -> Result<Response> {
        loop {
            let answered = self.worthwhile_answer().await?;
            if answered.status() == StatusCode::SWITCHING_PROTOCOLS {
                return Err(Error::switched(&self.request().origin));
            }
            match self.onward(&answered) {
                Ok(None) => return self.responded(answered),
                Ok(Some((onward, target))) => self.redirect(answered, onward, target),
                Err(error) => {
                    answered.drain();
                    return Err(error);
                }
            }
        }
    }

    /// A response that the client's policy does not find worth another attempt.
    async fn worthwhile_answer(&mut self) -> Result<Answered> {
        // What fails gives its connection back before it is known whether it is made again.
        if self.client.calls.retry.is_some() {
            self.stay();
        }
        loop {
            let answer = self.answer().await;
            let Some((until, cause)) = self.again(&answer) else { return answer };
            self.repeated += 1;
            self.open.trace.emit(Event::Retried { cause });
            answer.into_iter().for_each(Answered::drain);
            clock::sleep_until(Some(until)).await;
        }
    }

    /// Its connection goes, and it wants another one.
    fn stay(&mut self) {
        self.staying.get_or_insert_with(|| self.client.pool.stay());
    }

    /// When the request is to be made again, where it is.
    fn again(&self, answer: &Result<Answered>) -> Option<(Instant, RetryCause)> {
        let retry = self.client.calls.retry.as_ref()?;
        // Without a runtime there is no timer to wait by.
        Handle::try_current().ok()?;
        if answer.is_err() && self.attempts.are_used_up() {
            return None;
        }
        let (outcome, cause) = match answer {
            Ok(answered) => {
                let status = answered.status();
                (Outcome::Status(status, answered.headers()), RetryCause::Status(status))
            }
            Err(error) => (outcome(error), RetryCause::Failed),
        };
        let attempts = 1 + self.repeated + self.attempts.charged_resends();
        let call =
            retry_policy::Attempted { attempts, idempotent: self.is_idempotent(), replayable: !self.body_is_gone };
        let wait = retry.policy.wait(outcome, call, fastrand::f64(), clock::wall())?;
        let now = clock::now();
        let until = now.checked_add(wait)?;
        let in_time = self.deadline.is_none_or(|deadline| until < deadline.at);
        (in_time && retry.withdraw(now)).then_some((until, cause))
    }

    /// Whether sending the request twice does what sending it once does.
    fn is_idempotent(&self) -> bool {
        is_idempotent(&self.request().method) || self.request().headers.contains_key("idempotency-key")
    }

    /// The call, for errors.
    fn context(&self) -> error::Context {
        self.context_of(self.request().url.clone())
    }

    fn context_of(&self, url: Url) -> error::Context {
        let until = self.deadline.map(|deadline| (deadline.at, deadline.limit));
        error::Context { url, until, discreet: self.client.calls.discreet }
    }

    /// A response to the request as it is now.
    async fn answer(&mut self) -> Result<Answered> {
        let mut failed_on = None;
        loop {
            let (lease, since) = self.lease(failed_on).await?;
            if self.client.calls.retry.is_none() {
                self.staying = None;
            }
            failed_on = Some(lease.conn().number());
            let mut leased = Some(lease);
            let attempted = self.attempt(&mut leased, since).await?;
            if attempted.is_err() {
                self.stay();
            }
            // Observers see the connection given back before the request is made again.
            drop(leased);
            let resend = match attempted {
                Ok(answered) => return Ok(answered),
                Err(resend) => resend,
            };
            self.attempts.resent(resend);
            self.open.trace.emit(Event::Retried { cause: resend.cause });
            if !resend.wait.is_zero() {
                clock::sleep_until(clock::now().checked_add(resend.wait)).await;
            }
        }
    }

    /// Where a response leads, and what is asked for there.
    fn onward(&mut self, answered: &Answered) -> Result<Option<(Onward, Uri)>> {
        if !answered.status().is_redirection() {
            return Ok(None);
        }
        self.chain.push(self.request().url.clone());
        let policy = &self.client.calls.redirects;
        let onward = onward(policy, &self.chain, &self.request().method, answered.status(), answered.headers());
        if !matches!(onward, Ok(Some(_))) {
            self.chain.pop();
        }
        let (origin, status) = (&self.request().origin, answered.status());
        let onward = onward.map_err(|error| Error::redirect(origin, status, error))?;
        let Some(onward) = onward else { return Ok(None) };
        let target = target_of(&onward.url).map_err(|error| Error::redirect(origin, status, error))?;
        if self.body_is_gone && self.keeps_body(&onward, status) {
            return Err(Error::redirect(origin, status, RedirectError::BodyIsGone));
        }
        Ok(Some((onward, target)))
    }

    fn keeps_body(&self, onward: &Onward, status: StatusCode) -> bool {
        onward.method == self.request().method && status != StatusCode::SEE_OTHER
    }

    /// Goes on with the next request; the connection of the last one is free as soon as may be.
    fn redirect(&mut self, answered: Answered, onward: Onward, target: Uri) {
        let status = answered.status();
        let keeps_body = self.keeps_body(&onward, status);
        self.body_is_gone &= keeps_body;
        let request = self.request_mut();
        strip(&mut request.headers, keeps_body, onward.origin == request.origin);
        if !keeps_body {
            request.body = Body::default();
        }
        (request.url, request.origin, request.method) = (onward.url, onward.origin, onward.method);
        let (method, origin) = (request.method.clone(), request.origin.clone());
        self.target = Some(target.clone());
        let to = Arc::new(Asked { method, origin, target: self.client.calls.shown(target) });
        self.open.trace.emit(Event::Redirected { status, to });
        self.attempts = Attempts::default();
        self.stay();
        answered.drain();
    }

    /// A connection; for another attempt not an idle one, because the last one may have failed for being idle.
    /// Also since when there is one.
    async fn lease(&mut self, failed_on: Option<u64>) -> Result<(Lease<Dialer>, Instant)> {
        // A stream is sent once.
        let repeatable = self.is_idempotent() && !self.request().body.is_streamed();
        // A call that has just begun knows what time it is.
        let mut now = Some(self.open.trace.start_time()).filter(|_| self.has_just_begun);
        self.has_just_begun = false;
        let (mut queued, mut at_once) = (None, now);
        let mut lease = loop {
            let begun = now.is_none();
            let asked_at = now.take().unwrap_or_else(clock::now);
            self.check_deadline(asked_at)?;
            let own = failed_on.is_some() && self.attempts.want_a_dial();
            let wish = Wish { failed_on, begun, once: !repeatable, own, ..Wish::default() };
            let mut lease = self.checkout(wish, asked_at, &mut queued).await;
            for _ in 0..MAX_LOST_DIALS {
                if !matches!(lease, Err(LeaseError::Lost)) || Handle::try_current().is_err() {
                    break;
                }
                lease = self.checkout(Wish { begun: true, ..wish }, clock::now(), &mut queued).await;
            }
            let mut lease = lease.map_err(|error| match error {
                LeaseError::Impatient(limit) => {
                    Error::silence(&self.request().origin, self.open.trace.phase(), "no connection", limit)
                }
                LeaseError::Lost if Handle::try_current().is_err() => Error::no_runtime(&self.request().origin),
                error => Error::no_lease(&self.request().origin, error),
            })?;
            let moment = if repeatable && failed_on.is_none() { IDLE_MOMENT } else { Duration::ZERO };
            at_once = at_once.filter(|_| queued.is_none());
            if lease.is_fresh() || lease.idle() < moment {
                break lease;
            }
            at_once = None;
            if self.attempts.next_is_the_last() && Handle::try_current().is_ok() {
                // The server would close the connection right behind its last answer.
                clock::sleep_until(clock::now().checked_add(REST)).await;
            }
            if lease.conn().is_alive().await {
                break lease;
            }
            lease.retire(CloseCause::Peer);
        };
        // A call that got a connection at once has not taken any time yet.
        let at = at_once.unwrap_or_else(clock::now);
        self.check_deadline(at)?;
        lease.told(self.open.trace.own());
        let conn = lease.conn();
        let (connection, remote, tls) = (conn.number(), conn.remote(), conn.tls().cloned());
        let (requests, idle, freed) = (lease.requests(), lease.idle(), lease.is_freed());
        conn.used(at);
        let waited = queued.map_or(Duration::ZERO, |since| at.saturating_duration_since(since));
        self.open.trace.emit_at(at, Event::Leased { connection, remote, requests, idle, tls, waited, freed });
        Ok((lease, at))
    }

    async fn checkout(
        &self,
        wish: Wish,
        now: Instant,
        queued: &mut Option<Instant>,
    ) -> Result<Lease<Dialer>, LeaseError<ConnectError>> {
        let trace = &self.open.trace;
        let (ticket, InLine { limit, position }) = match self.client.pool.checkout(&self.request().origin, wish, now) {
            Checkout::Ready(lease) => return Ok(lease),
            Checkout::Refused(error) => return Err(error),
            Checkout::Wait(ticket, line) => (Some(ticket), line),
        };
        self.client.follower.follow(&self.client.resolver, &self.client.pool);
        let since = *queued.get_or_insert(now);
        trace.emit_at(now, Event::Queued { limit, position });
        let limits = (self.timeouts.queue, self.timeouts.connect);
        let Delivery { lease, dial } = Waiting { ticket, trace, since, limits }.patiently(self.client, now).await;
        if let Some(dial) = dial {
            trace.adopt(&dial);
        }
        lease
    }

    /// One attempt: a response, which keeps the connection, or else how the request is resent.
    async fn attempt(
        &mut self,
        leased: &mut Option<Lease<Dialer>>,
        since: Instant,
    ) -> Result<Result<Answered, Resend>> {
        let lease = leased.as_mut().expect("an attempt has its connection");
        let upload = self.upload(lease.conn());
        let body = self.request().body.content_length().unwrap_or(0);
        let message = self.message(lease.conn(), upload.clone())?;
        let (times, trace) = (Times::default(), &self.open.trace);
        let progress = lease.conn().progress();
        let deadline = self.deadline;
        let until = deadline.map(|deadline| deadline.at);
        let mut exchange =
            Exchange { since, lease, over: false, times, upload: upload.clone(), body, trace, progress, until };
        let sent = exchange.send(message, &self.client.deadlines, &self.timeouts).await;
        let times = exchange.over();
        self.keep_unwanted(upload.as_deref());
        let lease = leased.as_mut().expect("an attempt has its connection");
        let sent = match sent {
            Ok(sent) => sent,
            Err(Stalled { what, limit }) => {
                lease.give_up_on(progress);
                return Err(Error::silence(&self.request().origin, self.open.trace.phase(), what, limit));
            }
        };
        let sent = match sent {
            Ok(response) if !is_for_nobody(&response) => {
                return Ok(Ok(self.answered(response, leased, upload, times)));
            }
            sent => sent.map_err(|failed| self.take_back(failed, upload.as_deref())),
        };
        let failure = upload.as_deref().and_then(Upload::take_failure);
        let end = match &sent {
            Ok(_) => AttemptEnd::IdleTimeout,
            // The body could not be read. The server has closed nothing.
            Err(_) if failure.is_some() => AttemptEnd::Failed,
            Err(failed) => end_of(failed, times, lease.conn()),
        };
        let attempt = Attempt {
            end,
            // An HTTP/2 connection may have answered others, though it was dialled for this request as well.
            on_reused_connection: !lease.is_fresh() || is_proven(lease),
            on_proven_connection: is_proven(lease),
            is_idempotent: self.is_idempotent(),
            body_is_replayable: !self.body_is_gone,
        };
        let failed = match (sent, self.resend(attempt)) {
            (Ok(response), None) => return Ok(Ok(self.answered(response, leased, upload, times))),
            (Ok(_), Some(resend)) => return Ok(Err(resend)),
            (Err(failed), resend) => {
                if is_cut(attempt, &failed, lease.conn().protocol()) {
                    lease.cut();
                } else if !lease.conn().is_ready() {
                    lease.retire(CloseCause::Peer);
                }
                match resend {
                    Some(resend) => return Ok(Err(resend)),
                    None => failed,
                }
            }
        };
        let origin = &self.request().origin;
        if let Some(cause) = failure {
            return Err(Error::upload(origin, cause));
        }
        Err(match (lease.conn().refusal(), failed.error) {
            (Some(refusal), error) => Error::client_refused(origin, refusal, error),
            (None, Some(error)) => Error::exchange(origin, error, times.answered.is_some()),
            (None, None) => Error::no_answer(origin),
        })
    }

    /// Counts an attempt without an answer, and returns how the request is resent, or `None` if it is not: it must not be, there
    /// is no time left for it, or its origin turns too many requests away.
    fn resend(&mut self, attempt: Attempt) -> Option<Resend> {
        let resend = self.attempts.record(attempt, fastrand::f64())?;
        if !resend.wait.is_zero() {
            // Without a runtime there is no timer to wait by.
            Handle::try_current().ok()?;
        }
        let at = clock::now().checked_add(resend.wait)?;
        if self.deadline.is_some_and(|deadline| deadline.at <= at) {
            return None;
        }
        if resend.is_charged && !self.client.pool.may_resend(&self.request().origin) {
            return None;
        }
        Some(resend)
    }

    fn answered(
        &self,
        response: http::Response<Incoming>,
        leased: &mut Option<Lease<Dialer>>,
        upload: Option<Arc<Upload>>,
        times: Times,
    ) -> Answered {
        let lease = leased.take().expect("an attempt has its connection");
        let (head, incoming) = response.into_parts();
        // Over HTTP/2 the first byte and the last one of a head come at once.
        let whole = times.answered.filter(|_| lease.conn().protocol() == Protocol::Http2).unwrap_or_else(clock::now);
        self.open.trace.emit_at(whole, Event::Headers { status: head.status, version: head.version });
        let keep_alive = match lease.conn().protocol() {
            Protocol::Http1 => KeepAlive::of(&head.headers),
            Protocol::Http2 => KeepAlive::default(),
        };
        let has_sent_body = upload.is_some() || !self.request().body.is_empty();
        let source = Source { lease, upload, has_sent_body, keep_alive };
        let until = Patience { deadline: self.deadline, idle: self.timeouts.body_idle.unwrap_or(Duration::MAX) };
        let (trace, origin) = (self.open.trace.clone(), self.request().origin.clone());
        Answered::new(head, Payload::new(incoming, source, trace, until, origin))
    }

    /// A body that the server was asked about and did not want is there for another attempt, though it is a stream.
    fn keep_unwanted(&mut self, upload: Option<&Upload>) {
        if let Some(body) = upload.and_then(Upload::take_unwanted) {
            self.request_mut().body = body;
            self.body_is_gone = false;
        }
    }

    /// A body that was not begun is there for another attempt, though it is a stream.
    fn take_back(&mut self, mut failed: Box<SendError<Outgoing>>, upload: Option<&Upload>) -> Box<SendError<Outgoing>> {
        if self.body_is_gone
            && upload.is_some_and(|upload| !upload.is_begun())
            && let Some(message) = &mut failed.unsent
        {
            let body = std::mem::replace(message.body_mut(), Outgoing::new(Body::default(), None));
            self.request_mut().body = body.into_body();
            self.body_is_gone = false;
        }
        failed
    }

    /// What follows the body's way: where the connection's bytes are not this request's alone, where nobody knows how many they
    /// are, or where they wait.
    fn upload(&self, conn: &Conn<Outgoing>) -> Option<Arc<Upload>> {
        let Request { body, headers, .. } = self.request();
        if body.is_empty() {
            return None;
        }
        let expected = headers.get(EXPECT).map(HeaderValue::as_bytes);
        let asks = expected.is_some_and(|expected| expected.eq_ignore_ascii_case(b"100-continue"));
        match asks && self.may_ask(conn) {
            true => Some(Arc::new(Upload::with_consent())),
            false => (body.is_streamed() || conn.protocol() == Protocol::Http2).then(Arc::default),
        }
    }

    /// Returns true if the server can be asked whether it wants the body. HTTP/1.0 has no interim responses (RFC 9110 §10.1.1), and
    /// over HTTP/2 hyper does not wait for one.
    fn may_ask(&self, conn: &Conn<Outgoing>) -> bool {
        conn.protocol() == Protocol::Http1 && self.request().options.version != Some(Version::HTTP_10)
    }

    /// The body for one attempt: bytes are shared, a stream is gone then.
    fn body(&mut self) -> Body {
        self.request().body.try_clone().unwrap_or_else(|| {
            self.body_is_gone = true;
            std::mem::take(&mut self.request_mut().body)
        })
    }

    /// The request as it goes out; it is made anew for each attempt, and its body's bytes are shared.
    fn message(&mut self, conn: &Conn<Outgoing>, upload: Option<Arc<Upload>>) -> Result<http::Request<Outgoing>> {
        let target = self.target.take().map_or_else(|| target(self.request()), Ok)?;
        let spoken = conn.protocol().version();
        let insisted = self.request().options.version.unwrap_or(spoken);
        if (insisted == Version::HTTP_2) != (spoken == Version::HTTP_2) {
            return Err(Error::other_version(&self.request().origin, spoken, insisted));
        }
        let announced = self.request().body.trailers().map(announced);
        let mut message = http::Request::new(Outgoing::new(self.body(), upload));
        *message.version_mut() = insisted;
        *message.method_mut() = self.request().method.clone();
        *message.headers_mut() = self.headers(conn);
        if let Some(announced) = announced {
            message.headers_mut().entry(TRAILER).or_insert(announced);
        }
        let has_body = !self.request().body.is_empty() || self.body_is_gone;
        if !has_body || !self.may_ask(conn) {
            // There is nothing to be asked about (RFC 9110 §10.1.1), or no answer would be heard.
            message.headers_mut().remove(EXPECT);
        }
        if !has_body && has_content(&self.request().method) {
            message.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from_static("0"));
        }
        match (conn.protocol(), conn.forwards()) {
            (Protocol::Http1, None) => *message.uri_mut() = target,
            (Protocol::Http1, Some(forwarding)) => {
                let host = || conn.host(|| self.request().origin.host_header());
                *message.uri_mut() = self.absolute(target, conn.authority(host));
                if let Some(authorization) = &forwarding.authorization {
                    let header = message.headers_mut().entry(PROXY_AUTHORIZATION);
                    header.or_insert_with(|| authorization.clone());
                }
            }
            (Protocol::Http2, _) => {
                // What HTTP/1.1 has in a header is a part of the target here (RFC 9113 §8.3.1).
                *message.uri_mut() = match message.headers_mut().remove(HOST) {
                    Some(own) => self.absolute(target, own.as_bytes().try_into().ok()),
                    None => self.absolute(target, conn.authority(|| self.request().origin.host_header())),
                };
            }
        }
        Ok(message)
    }

    /// The request's headers as they go out: to HTTP/1.1 they name the origin, where they do not name it themselves.
    fn headers(&mut self, conn: &Conn<Outgoing>) -> HeaderMap {
        let Request { headers, origin, .. } = self.request_mut();
        if conn.protocol() == Protocol::Http1 {
            let host = || conn.host(|| origin.host_header());
            if headers.is_empty() {
                let mut alone = HeaderMap::new();
                alone.insert(HOST, host());
                return alone;
            }
            // There is room for it, where a copy would have to grow; it goes when they go to another origin.
            headers.entry(HOST).or_insert_with(host);
        }
        headers.clone()
    }

    fn absolute(&self, target: Uri, authority: Option<Authority>) -> Uri {
        let Some(authority) = authority else { return target };
        let mut parts = target.into_parts();
        parts.scheme = Some(match self.request().origin.scheme() {
            Scheme::Http => http::uri::Scheme::HTTP,
            Scheme::Https => http::uri::Scheme::HTTPS,
        });
        parts.authority = Some(authority);
        Uri::from_parts(parts).expect("a scheme, an authority and a path make a URI")
    }

    fn responded(&mut self, answered: Answered) -> Result<Response> {
        #[cfg(feature = "__compression")]
        let answered = match self.request().method == Method::HEAD {
            true => answered,
            false => answered.decompressed(self.decompression)?,
        };
        let Request { url, .. } = *self.request.take().expect("a call without a response has its request");
        self.open.over = true;
        Ok(answered.end(self.context_of(url), std::mem::take(&mut self.chain)))
    }

    /// Fails when the call's deadline has passed: nothing is leased or sent then.
    fn check_deadline(&self, now: Instant) -> Result<()> {
        if self.deadline.is_some_and(|deadline| deadline.at <= now) {
            return Err(self.timed_out());
        }
        Ok(())
    }

    fn timed_out(&self) -> Error {
        let limit = self.deadline.map_or(Duration::ZERO, |deadline| deadline.limit);
        Error::timeout(&self.request().origin, self.open.trace.fail("timeout"), limit)
    }
}

/// Whether servers look for a length with this method (RFC 9110 §8.6).
fn has_content(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

/// The trailers that are to come, in a header (RFC 9110 §6.6.2).
fn announced(trailers: &HeaderMap) -> HeaderValue {
    let names: Vec<_> = trailers.keys().map(http::HeaderName::as_str).collect();
    HeaderValue::try_from(names.join(", ")).expect("names of headers are visible ASCII")
}

/// The path and query, as they go into the request line (RFC 9112 §3.2.1).
fn target(request: &Request) -> Result<Uri> {
    target_of(&request.url).map_err(|error| Error::invalid_request("the URL's path cannot be sent", error))
}

pub(super) fn target_of(url: &Url) -> Result<Uri, http::uri::InvalidUri> {
    Uri::try_from(&url[Position::BeforePath..Position::AfterQuery])
}

/// What an error means for another attempt.
fn outcome(error: &Error) -> Outcome<'_> {
    match error.kind() {
        _ if error.is_lasting() => Outcome::Final,
        ErrorKind::Resolve | ErrorKind::Connect | ErrorKind::Tls => Outcome::NotSent,
        ErrorKind::Timeout(Phase::Dns | Phase::Connect | Phase::Proxy | Phase::Tls) => Outcome::NotSent,
        ErrorKind::Timeout(Phase::Send | Phase::Wait | Phase::Receive) | ErrorKind::Exchange => Outcome::Unknown,
        // A queue that is too long does not get shorter by more of the same.
        _ => Outcome::Final,
    }
}

/// Classifies the end of an attempt for which no response arrived.
fn end_of(failed: &SendError<Outgoing>, times: Times, conn: &Conn<Outgoing>) -> AttemptEnd {
    let is_silent = times.answered.is_none() && !times.heard;
    let closed_silently = is_silent && failed.error.as_ref().is_none_or(is_closed);
    // hyper does not tell of a GOAWAY that came before it took the request, nor of one that the end of the connection overtook.
    let is_turned_away = conn.refuses_all() || (failed.unsent.is_some() && conn.is_going_away());
    let unsent = failed.unsent.is_some() || (closed_silently && conn.wrote_nothing());
    if failed.is_refused() || is_turned_away {
        AttemptEnd::Refused
    } else if conn.is_abandoned() {
        AttemptEnd::RuntimeEnded { unsent }
    } else if unsent {
        AttemptEnd::NotSent
    } else if closed_silently {
        AttemptEnd::ClosedSilently
    } else {
        AttemptEnd::Failed
    }
}

/// Returns true if the server closed an HTTP/1 connection, which it had kept, under the request.
fn is_cut(attempt: Attempt, failed: &SendError<Outgoing>, protocol: Protocol) -> bool {
    let is_closed = matches!(attempt.end, AttemptEnd::NotSent | AttemptEnd::ClosedSilently);
    // Where the path is dead, the server has closed nothing.
    let cause = failed.error.as_ref().and_then(io_cause);
    let has_timed_out = cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::TimedOut);
    is_closed && !has_timed_out && attempt.on_reused_connection && protocol == Protocol::Http1
}

/// Returns true if the server had answered requests on the connection before.
fn is_proven(lease: &Lease<Dialer>) -> bool {
    match lease.conn().protocol() {
        // It is given back only after a whole response.
        Protocol::Http1 => lease.requests() > 0,
        Protocol::Http2 => lease.conn().has_answered(),
    }
}

fn is_closed(error: &hyper::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut, UnexpectedEof};
    // rustls says UnexpectedEof where the peer closed without close_notify.
    let gone = [BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut, UnexpectedEof];
    error.is_incomplete_message()
        || error.is_timeout()
        || error.is_canceled()
        || error.is_user()
        || io_cause(error).is_some_and(|error| gone.contains(&error.kind()))
}

/// Whether a response is what a server says into a connection that it closes for being idle (RFC 9110 §15.5.9): it answers
/// no request, and nothing was done about one that crossed it. A 408 on a connection that stays open is what a service has to say
/// of its own work.
fn is_for_nobody(response: &http::Response<Incoming>) -> bool {
    response.version() < http::Version::HTTP_2
        && response.status() == http::StatusCode::REQUEST_TIMEOUT
        && (response.version() < http::Version::HTTP_11 || KeepAlive::of(response.headers()).is_last)
}

/// The most times that a call asks again for a connection whose dial was lost. A dial is lost with the runtime on which it was
/// begun.
const MAX_LOST_DIALS: u32 = 4;

/// The rest that a used connection gets before the last attempt of a call under which two connections were closed.
const REST: Duration = Duration::from_millis(10);

/// A connection that nobody used for less than this is not looked at before it is used again, where the request can be
/// repeated: looking costs 2 µs.
const IDLE_MOMENT: Duration = Duration::from_micros(250);

/// The head of the response to a request that was sent, or the reason why there is none.
type Sent = Result<http::Response<Incoming>, Box<SendError<Outgoing>>>;

/// A time limit that passed while a request was sent or its response waited for.
struct Stalled {
    what: &'static str,
    limit: Duration,
}

/// The part of a request that has been sent.
enum Progress {
    /// The last byte was sent at this time.
    Whole(Instant),
    /// Some of it is still to be sent, and this was when a byte last was.
    Partly(Instant),
}

impl Progress {
    /// Looks at a request that has had its connection since `since`.
    fn of(conn: &Conn<Outgoing>, upload: Option<&Upload>, since: Instant) -> Self {
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

/// The first of the limits that run from `from`, where there is one.
fn earliest<const N: usize>(from: Instant, limits: [Option<Duration>; N]) -> Option<Instant> {
    limits.into_iter().flatten().filter_map(|limit| from.checked_add(limit)).min()
}

/// A request on its connection. However it ends, the trace is told how far it got.
struct Exchange<'a> {
    /// Since when it has its connection.
    since: Instant,
    lease: &'a mut Lease<Dialer>,
    over: bool,
    times: Times,
    upload: Option<Arc<Upload>>,
    /// The length of the request's body.
    body: u64,
    trace: &'a Trace,
    /// That of its connection when it began.
    progress: u64,
    /// When its call's time is up.
    until: Option<Instant>,
}

impl Exchange<'_> {
    /// Sends the request and waits for the head of its response, within the limits for the two.
    fn send(
        &mut self,
        mut message: http::Request<Outgoing>,
        deadlines: &Deadlines,
        timeouts: &Timeouts,
    ) -> impl Future<Output = Result<Sent, Stalled>> {
        let asked = self.upload.clone().filter(|upload| upload.asks());
        if self.trace.is_wanted(Wants::INTERIM) || asked.is_some() {
            let trace = self.trace.clone();
            hyper::ext::on_informational(&mut message, move |response| {
                let status = response.status();
                if let Some(upload) = asked.as_ref().filter(|_| status == StatusCode::CONTINUE) {
                    upload.consent(true);
                }
                trace.mention(Wants::INTERIM, || Event::Informational { status });
            });
        }
        match self.lease.conn().protocol() {
            Protocol::Http1 => self.lease.retire(CloseCause::Unfinished),
            Protocol::Http2 => self.lease.share(),
        }
        let (since, has_body) = (self.since, self.upload.is_some() || self.body > 0);
        let Self { lease, times, upload, .. } = self;
        let (conn, upload) = (lease.conn(), upload.as_deref());
        // Begun before it is waited for, because what a future holds is copied.
        let sending = conn.send(message, since, times);
        let Timeouts { headers, body_idle, .. } = *timeouts;
        let idle = body_idle.filter(|_| has_body);
        async move {
            let mut sending = pin!(sending);
            let mut until = earliest(since, [headers, idle]);
            loop {
                if let Some(sent) = deadlines.before(until, sending.as_mut()).await {
                    return Ok(sent);
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
                // Were the last byte sent right now, the limit for the headers would run from now on.
                until = end.into_iter().chain(earliest(now, [headers])).min();
            }
        }
    }

    fn over(mut self) -> Times {
        self.over = true;
        self.tell()
    }

    fn tell(&self) -> Times {
        let conn = self.lease.conn();
        let mut times = conn.times(self.times);
        if let Some(upload) = &self.upload {
            // Nobody asked for it and got an answer instead.
            upload.consent(false);
            times.sent = match conn.protocol() {
                Protocol::Http1 => times.sent.filter(|_| upload.sent_at().is_some()),
                Protocol::Http2 => upload.sent_at(),
            };
        }
        let body = self.upload.as_ref().map_or(self.body, |upload| upload.bytes());
        // A response may come before the whole request was sent.
        let sent = times.sent.map(|sent| times.answered.map_or(sent, |answered| sent.min(answered)));
        self.trace.exchanged(times.begun, sent, body, times.answered);
        times
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.tell();
            if self.until.is_some_and(|until| until <= clock::now()) {
                self.lease.give_up_on(self.progress);
            }
        }
    }
}

impl Lease<Dialer> {
    /// Time ran out. If nothing has come on the connection since `progress`, for no request, the connection may be dead: the next
    /// request gets another one where there is room for one.
    pub(super) fn give_up_on(&mut self, progress: u64) {
        if self.conn().progress() == progress && !self.conn().is_acknowledged() {
            self.retire(CloseCause::Unfinished);
        }
    }
}

/// A call in the pool's queue; dropped there, its trace keeps what was done for it so far.
struct Waiting<'a> {
    ticket: Option<Ticket<Dialer>>,
    trace: &'a Trace,
    since: Instant,
    /// For how long it waits while nothing is opened for it, and for what is.
    limits: (Option<Duration>, Option<Duration>),
}

impl Waiting<'_> {
    /// Whether it has waited for too long, and for what; otherwise when to look again.
    fn verdict(&self, now: Instant) -> Result<Option<Instant>, Duration> {
        let (queue, connect) = self.limits;
        let dialled = self.ticket.as_ref().and_then(Ticket::dial).and_then(|dial| dial.begun());
        let (limit, since, look) = match dialled {
            // The dial may be put off, and the request be in the queue again.
            Some(begun) => (connect, begun.max(self.since), queue.map(|_| LOOK_AGAIN)),
            // A dial that is begun from now on may take at least so long.
            None => (queue, self.since, connect),
        };
        let until = limit.and_then(|limit| since.checked_add(limit));
        match (until, limit) {
            (Some(until), Some(limit)) if until <= now => Err(limit),
            _ => Ok(until.into_iter().chain(look.and_then(|look| now.checked_add(look))).min()),
        }
    }

    /// Waits for as long as its limits allow.
    async fn patiently(&mut self, client: &Shared, mut now: Instant) -> Delivery<Dialer> {
        loop {
            let until = match self.verdict(now) {
                Ok(until) => until,
                Err(limit) => {
                    let dial = self.ticket.take().and_then(|ticket| ticket.dial());
                    return Delivery { lease: Err(LeaseError::Impatient(limit)), dial };
                }
            };
            if let Some(delivery) = client.deadlines.before(until, &mut *self).await {
                return delivery;
            }
            now = clock::now();
        }
    }
}

/// How often a request with a limit for the queue looks whether it is back there.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Future for Waiting<'_> {
    type Output = Delivery<Dialer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Delivery<Dialer>> {
        let ticket = self.ticket.as_mut().expect("polled until it is ready");
        let delivery = ready!(Pin::new(ticket).poll(cx));
        self.ticket = None;
        Poll::Ready(delivery)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(dial) = self.ticket.take().and_then(|ticket| ticket.dial()) {
            self.trace.adopt(&dial);
        }
    }
}
