//! The state of a call that its skins share.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::call_trace::CallTrace;
use super::current_request::{CurrentRequest, accept_codings};
use crate::client::body::{Dialer, Loan};
use crate::client::inner::Inner;
use crate::client::policy::deadlines::{BodyLimits, Deadline, MinSpeed, SILENCE_TIMEOUT};
use crate::client::policy::resend::{Attempts, Resend, is_repeatable};
use crate::client::policy::retry::RetryPolicy;
use crate::client::request::call_options::CallOptions;
use crate::client::settings::OriginDefaults;
use crate::client::token::Authorization;
use crate::clock::{self, Instant};
use crate::error::{self, Error, Result};
use crate::pool::{DrainHold, EarlierConn};
use crate::sync::lock;
use crate::trace::{Event, ObservedRequest, RequestInfo, Trace};

/// A part of a call that few calls need. It is boxed: the future of each call would be larger for it otherwise, and each program
/// would compile it anew.
pub(super) type SeldomPart<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + Sync + 'a>>;

/// A call under way.
pub(super) struct Call<'a> {
    pub(super) client: &'a Inner,
    pub(super) request: CurrentRequest,
    /// The defaults of calls to the request's origin; `None` if they are those of most origins.
    pub(super) own_defaults: Option<Arc<OriginDefaults>>,
    pub(super) trace: CallTrace,
    pub(super) deadline: Option<Deadline>,
    /// The retries that the user's policy chose so far, before redirects included.
    pub(super) retries: u32,
    /// The attempts at the current request, retries included.
    pub(super) attempts: Attempts,
    /// The current time, if it is known. It saves reading the clock until the call first waits.
    pub(super) now: Option<Instant>,
    /// True until the call asks the pool for its first connection, or makes a drain wait for it. Until then, a pool that
    /// drains refuses it.
    pub(super) is_new: bool,
    /// The call's use of the client's token sources, if it needs a token.
    pub(super) authorization: Option<Box<Authorization>>,
    /// The request that is under way, if observers were told of it.
    pub(super) observed: Option<ObservedRequest>,
    /// True if a server may have acted on an attempt within the layers before the last one of their last run.
    pub(super) acted_before: bool,
    /// Set if the call is one attempt of another call.
    pub(super) single: Option<Box<SingleAttempt>>,
    /// Makes a drain of the pool wait for the call while it has no connection and will want another one.
    pub(super) drain_hold: Option<DrainHold<Dialer>>,
    /// The connection of the first attempt, if this is a second one that is made while the first one waits.
    pub(super) avoid: Option<EarlierConn>,
}

impl<'a> Call<'a> {
    /// Creates a call that makes attempts for another call: its end is not that of the other one.
    pub(super) fn for_attempt(
        client: &'a Inner,
        request: CurrentRequest,
        trace: Trace,
        deadline: Option<Deadline>,
    ) -> Self {
        let own_defaults = client.call_defaults.of(&request.key().origin);
        Self {
            client,
            request,
            own_defaults,
            trace: CallTrace::of_attempt(trace),
            deadline,
            retries: 0,
            attempts: Attempts::default(),
            now: None,
            is_new: false,
            authorization: None,
            observed: None,
            acted_before: false,
            single: None,
            drain_hold: None,
            avoid: None,
        }
    }

    /// Begins a part of the call that may wait before there is a connection: makes a drain of the pool wait for the call.
    ///
    /// # Errors
    /// The call is new, and the pool drains already.
    pub(super) fn enter(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_new) {
            let hold = self.client.pool.hold_drain_for_new().map_err(Error::no_lease)?;
            self.drain_hold.get_or_insert(hold);
        } else {
            self.hold_drain();
        }
        Ok(())
    }

    /// Makes a drain of the pool wait for the call.
    pub(super) fn hold_drain(&mut self) {
        self.drain_hold.get_or_insert_with(|| self.client.pool.hold_drain());
    }

    /// Returns true if attempts get a token, or are within layers.
    pub(super) fn has_middleware(&self) -> bool {
        self.client.attempt_layers.is_some() || self.authorization.is_some()
    }

    /// Returns true if sending the request twice has the effect of sending it once.
    pub(super) fn is_idempotent(&self) -> bool {
        is_repeatable(&self.request.method, &self.request.headers)
    }

    /// Returns true if sending the request again repeats no attempt before the last one that must not be made twice. Layers are run anew
    /// as a whole, with all the attempts that they make.
    pub(super) fn may_run_again(&self) -> bool {
        !self.acted_before || self.is_idempotent()
    }

    /// Describes the current request to observers.
    pub(super) fn info(&self) -> RequestInfo {
        let request = &self.request;
        RequestInfo {
            method: request.method.clone(),
            origin: request.key().origin.clone(),
            target: self.client.defaults.shown(request.target().unwrap_or_default()),
            extensions: request.extensions.clone(),
        }
    }

    /// Returns a setting of the request itself, or else of its host or of the client.
    #[inline]
    pub(super) fn setting<'s, T>(&'s self, of: impl Fn(&'s CallOptions) -> Option<T>) -> Option<T> {
        self.request.options.setting(self.defaults(), of)
    }

    /// Returns the settings that the request leaves to its host or to the client.
    #[inline]
    pub(super) fn defaults(&self) -> &CallOptions {
        self.own_defaults.as_ref().map_or(&self.client.defaults.options, |defaults| &defaults.options)
    }

    /// Offers the codings that the settings name.
    pub(super) fn offer_codings(&mut self) {
        let wanted = self.request.options.decompression(self.defaults());
        self.request.decompression = accept_codings(&mut self.request, wanted);
    }

    /// Adds a call to the budget of retries, as the policy of the request, of its host or of the client says.
    pub(super) fn deposit_retry(&self, now: Instant) {
        if let Some(policy) = self.retry_policy() {
            lock(&self.client.retry_budgets).deposit(&self.request.key().origin, policy, now);
        }
    }

    /// Returns the policy for retries, the request's own or the client's.
    pub(super) fn retry_policy(&self) -> Option<&RetryPolicy> {
        self.setting(|options| options.retries.as_ref())
    }

    /// Returns the facts about the call that its errors show.
    pub(super) fn context(&self) -> error::Context {
        let (method, url) = (self.request.method.clone(), self.request.url.to_url());
        error::Context { method, url, until: self.until(), left_out: self.client.defaults.left_out }
    }

    /// Returns the call's deadline, and the timeout from which it was computed.
    pub(super) fn until(&self) -> Option<(Instant, Duration)> {
        self.deadline.map(|deadline| (deadline.at, deadline.limit))
    }

    /// Returns the lowest speed at which the request's body may be sent.
    pub(super) fn upload_speed(&self) -> MinSpeed {
        self.setting(|options| options.timeouts.body).unwrap_or(MinSpeed::idle(SILENCE_TIMEOUT))
    }

    /// Returns the time limits for reading the response's body.
    pub(super) fn body_limits(&self, is_event_stream: bool) -> BodyLimits {
        let of = |options: &CallOptions| options.timeouts.body;
        let unlimited = MinSpeed::idle(Duration::MAX);
        if self.request.options.is_quiet_stream() {
            return BodyLimits { deadline: None, least: self.request.options.own(of).unwrap_or(unlimited) };
        }
        let usual = if is_event_stream { unlimited } else { MinSpeed::idle(SILENCE_TIMEOUT) };
        BodyLimits { deadline: self.deadline, least: self.setting(of).unwrap_or(usual) }
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
        let due = since.checked_add(wait);
        clock::sleep_until(due).await;
        let now = clock::now();
        self.trace.note_timer(due.unwrap_or(now), now);
        self.check_deadline(now)?;
        self.trace.emit_at(now, Event::BackoffEnd);
        Ok(now - since)
    }

    /// Ends the trace at the call's deadline, and returns the error.
    pub(super) fn time_out(&self) -> Error {
        let now = clock::now();
        let Deadline { at, limit } = self.deadline.unwrap_or(Deadline { at: now, limit: Duration::ZERO });
        self.trace.note_timer(at, now);
        Error::timeout(self.trace.fail("timeout"), limit)
    }

    /// Returns the error of a call whose limit for a part of it passed at `due`.
    pub(super) fn stalled(&self, what: &str, limit: Duration, due: Option<Instant>) -> Error {
        let now = clock::now();
        self.trace.note_timer(due.unwrap_or(now), now);
        Error::stalled(self.trace.phase(), what, limit)
    }
}

/// The state that a single attempt gets from the call around the layers, and leaves to it.
pub(in crate::client::call) struct SingleAttempt {
    /// The connection on which the last attempt failed.
    pub(in crate::client::call) failed_on: Option<EarlierConn>,
    /// The resend that may follow.
    pub(in crate::client::call) resend: Option<Resend>,
    /// The call's stream, if that is its body.
    pub(in crate::client::call) loan: Option<Loan>,
}

impl SingleAttempt {
    /// Returns true if the call around the layers has its body still, whatever the layers made of it.
    pub(in crate::client::call) fn body_is_replayable(&self) -> bool {
        self.loan.as_ref().is_none_or(Loan::is_unread)
    }
}
