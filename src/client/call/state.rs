//! The state of a call that its skins share.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use http::{Method, Uri};
use url::Url;

use super::single::SingleAttempt;
use crate::client::body::Body;
#[cfg(feature = "__compression")]
use crate::client::body::Decompression;
use crate::client::deadlines::{BodyLimits, Deadline, Timeouts};
use crate::client::dialer::Dialer;
use crate::client::inner::Inner;
use crate::client::redirect_policy::NextRequest;
use crate::client::request::Request;
use crate::client::retry_policy::RetryPolicy;
use crate::client::safe_to_resend::{Attempts, is_idempotent};
use crate::client::token::Authorization;
use crate::clock::{self, Instant};
use crate::error::{self, Error, Result};
use crate::pool::{DrainHold, HedgedConn};
use crate::trace::{Event, RepeatCause, Trace};

/// A call under way.
pub(super) struct Call<'a> {
    pub(super) client: &'a Inner,
    pub(super) request: CurrentRequest,
    pub(super) trace: CallTrace,
    pub(super) timeouts: Timeouts,
    pub(super) deadline: Option<Deadline>,
    /// The retries that the user's policy chose so far, before redirects included.
    pub(super) retries: u32,
    /// The attempts at the current request, retries included.
    pub(super) attempts: Attempts,
    /// The current time, if it is known, until the call asks the pool for its first connection.
    pub(super) new_at: Option<Instant>,
    /// The call's use of the client's token sources, if it needs a token.
    pub(super) authorization: Option<Box<Authorization>>,
    /// Set if the call is one attempt of another call.
    pub(super) single: Option<Box<SingleAttempt>>,
    /// Makes a drain of the pool wait for the call while it has no connection and will want another one.
    pub(super) drain_hold: Option<DrainHold<Dialer>>,
    /// The connection of the first attempt, if this is a second one.
    pub(super) hedged: Option<HedgedConn>,
}

impl Call<'_> {
    /// Makes a drain of the pool wait for the call.
    pub(super) fn hold_drain(&mut self) {
        self.drain_hold.get_or_insert_with(|| self.client.pool.hold_drain());
    }

    /// Returns true if attempts get a token, or are within layers.
    pub(super) fn has_middleware(&self) -> bool {
        #[cfg(feature = "tower")]
        let has_layers = self.client.attempt_layers.is_some();
        #[cfg(not(feature = "tower"))]
        let has_layers = false;
        has_layers || self.authorization.is_some()
    }

    /// Returns true if sending the request twice has the effect of sending it once.
    pub(super) fn is_idempotent(&self) -> bool {
        is_idempotent(&self.request.method) || self.request.headers.contains_key("idempotency-key")
    }

    /// Returns the policy for retries, the request's own or the client's.
    pub(super) fn retry_policy(&self) -> Option<&RetryPolicy> {
        self.request.options.retries().or(self.client.defaults.retries.as_ref())
    }

    /// Returns the facts about the call that its errors show.
    pub(super) fn context(&self) -> error::Context {
        self.context_of(self.request.method.clone(), self.request.url.clone())
    }

    /// Like [`Self::context`], for a call whose request is gone.
    pub(super) fn context_of(&self, method: Method, url: Url) -> error::Context {
        let until = self.deadline.map(|deadline| (deadline.at, deadline.limit));
        error::Context { method, url, until, discreet: self.client.defaults.hides_queries }
    }

    /// Returns the time limits for reading the response's body.
    pub(super) fn body_limits(&self) -> BodyLimits {
        let mut deadline = self.deadline;
        let mut idle = self.timeouts.body_idle;
        if self.request.options.is_quiet_stream {
            deadline = None;
            idle = self.request.options.timeouts.body_idle;
        }
        BodyLimits { deadline, idle: idle.unwrap_or(Duration::MAX) }
    }

    /// Fails if the call's deadline has passed.
    pub(super) fn check_deadline(&self, now: Instant) -> Result<()> {
        if self.deadline.is_some_and(|deadline| deadline.at <= now) {
            return Err(self.time_out());
        }
        Ok(())
    }

    /// Waits before the next attempt, and returns the time that it took. The wait is a phase of its own.
    ///
    /// # Errors
    /// The call's deadline passed meanwhile.
    pub(super) async fn back_off(&mut self, since: Instant, wait: Duration) -> Result<Duration> {
        self.trace.emit_at(since, Event::BackoffStart { wait });
        clock::sleep_until(since.checked_add(wait)).await;
        let now = clock::now();
        self.check_deadline(now)?;
        self.trace.emit_at(now, Event::BackoffEnd);
        Ok(now.saturating_duration_since(since))
    }

    /// Tells observers that the request is sent again, and waits before that.
    ///
    /// # Errors
    /// The call's deadline passed meanwhile.
    pub(super) async fn repeat(&mut self, cause: RepeatCause, wait: Duration) -> Result<()> {
        let now = clock::now();
        self.trace.emit_at(now, Event::Repeated { cause });
        if !wait.is_zero() {
            self.back_off(now, wait).await?;
        }
        Ok(())
    }

    /// Ends the trace at the call's deadline, and returns the error.
    pub(super) fn time_out(&self) -> Error {
        let limit = self.deadline.map_or(Duration::ZERO, |deadline| deadline.limit);
        Error::timeout(self.trace.fail("timeout"), limit)
    }
}

/// The request of a call, as redirects have changed it so far.
pub(super) struct CurrentRequest {
    /// `None` once the call has its response.
    request: Option<Box<Request>>,
    /// The parsed target for the next attempt. Later ones parse it again, because keeping a copy costs more.
    target: Option<Uri>,
    /// True if the body was a stream, and has been read.
    body_is_gone: bool,
    /// The settings for decompressing the response.
    #[cfg(feature = "__compression")]
    pub(super) decompression: Decompression,
}

impl CurrentRequest {
    pub(super) fn new(
        request: Box<Request>,
        target: Uri,
        #[cfg(feature = "__compression")] decompression: Decompression,
    ) -> Self {
        Self {
            request: Some(request),
            target: Some(target),
            body_is_gone: false,
            #[cfg(feature = "__compression")]
            decompression,
        }
    }

    /// Clones the request for a second attempt; `None` if its body is a stream.
    pub(super) fn try_clone(&self) -> Option<Self> {
        Some(Self {
            request: Some(Box::new(Request::try_clone(self)?)),
            target: None,
            body_is_gone: false,
            #[cfg(feature = "__compression")]
            decompression: self.decompression,
        })
    }

    /// Returns the path and query as they go into the request line.
    pub(super) fn take_target(&mut self) -> Result<Uri> {
        match self.target.take() {
            Some(target) => Ok(target),
            None => self.target(),
        }
    }

    /// Returns true if the request has a body, or had one that is gone.
    pub(super) fn has_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| !body.is_empty()) || self.body_is_gone
    }

    /// Returns true if the body is a stream that can be read once.
    pub(super) fn has_single_use_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| !body.is_replayable())
    }

    /// Returns true if the request asks the server to switch to another protocol.
    pub(super) fn asks_to_switch(&self) -> bool {
        self.options.asks_upgrade || self.method == Method::CONNECT
    }

    /// Returns true if the body can be sent once more: it is no stream that was read.
    pub(super) fn body_is_replayable(&self) -> bool {
        !self.body_is_gone
    }

    /// Returns the body for one attempt. Bytes are shared with the next attempt, a stream is gone.
    pub(super) fn body_to_send(&mut self) -> Body {
        let Some(body) = &self.body else { return Body::default() };
        if let Some(copy) = body.try_clone() {
            return copy;
        }
        self.body_is_gone = true;
        self.body.take().unwrap_or_default()
    }

    /// Puts a stream back that was not read after all.
    pub(super) fn put_back(&mut self, body: Body) {
        self.body = Some(body);
        self.body_is_gone = false;
    }

    /// Becomes the request that a redirect leads to.
    pub(super) fn redirect(&mut self, next: NextRequest, target: Uri, keeps_body: bool) {
        if !keeps_body {
            self.body = None;
            self.body_is_gone = false;
        }
        self.url = next.url;
        if let Some(key) = &mut self.key {
            key.origin = next.origin;
        }
        self.method = next.method;
        self.target = Some(target);
    }

    /// Ends the request, and returns its method and URL for the response.
    pub(super) fn finish(&mut self) -> (Method, Url) {
        let request = self.request.take().expect("a call without a response has its request");
        (request.method, request.url)
    }
}

impl Deref for CurrentRequest {
    type Target = Request;

    fn deref(&self) -> &Request {
        self.request.as_deref().expect("a call without a response has its request")
    }
}

impl DerefMut for CurrentRequest {
    fn deref_mut(&mut self) -> &mut Request {
        self.request.as_deref_mut().expect("a call without a response has its request")
    }
}

/// The trace of a call. Dropped before the call has a response, it ends as cancelled.
pub(super) struct CallTrace {
    trace: Trace,
    is_over: bool,
}

impl CallTrace {
    pub(super) fn new(trace: Trace) -> Self {
        Self { trace, is_over: false }
    }

    /// Leaves the end of the trace to the response's body.
    pub(super) fn hand_over(&mut self) {
        self.is_over = true;
    }
}

impl Deref for CallTrace {
    type Target = Trace;

    fn deref(&self) -> &Trace {
        &self.trace
    }
}

impl Drop for CallTrace {
    fn drop(&mut self) {
        if !self.is_over {
            self.trace.fail("cancelled");
        }
    }
}
