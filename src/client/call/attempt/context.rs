//! The context of the attempts within layers: what they need of their call, and what they leave to it.

use std::sync::{Arc, Mutex};

use crate::client::body::{Decompression, Dialer, LayeredBody, Loan};
use crate::client::call::current_request::CurrentRequest;
use crate::client::call::state::{Call, SingleAttempt};
use crate::client::inner::Inner;
use crate::client::policy::deadlines::Deadline;
use crate::client::policy::resend::{Attempts, Resend};
use crate::client::response::call_data::BoxedRequest;
use crate::clock::{self, Instant};
use crate::pool::{DrainHold, EarlierConn};
use crate::sync::lock;
use crate::trace::Trace;

/// The call that an attempt belongs to, as an extension of the request that the layers get.
#[derive(Clone)]
pub(in crate::client::call) struct AttemptContext(pub(in crate::client::call) Arc<AttemptedCall>);

/// The part of a call that its attempts need.
pub(in crate::client::call) struct AttemptedCall {
    pub(in crate::client::call) client: Arc<Inner>,
    pub(in crate::client::call) trace: Trace,
    pub(in crate::client::call) deadline: Option<Deadline>,
    pub(in crate::client::call) decompression: Decompression,
    /// The call's stream, if that is its body.
    pub(in crate::client::call) loan: Option<Loan>,
    /// The connection of the first attempt, if this is a second one that is made while the first one waits.
    pub(in crate::client::call) avoid: Option<EarlierConn>,
    pub(in crate::client::call) left: Mutex<Left>,
}

/// The state that the attempts inside of the layers leave to the call.
#[derive(Default)]
pub(in crate::client::call) struct Left {
    pub(in crate::client::call) attempts: Attempts,
    /// The attempts that have begun and not ended. One that a layer drops does not end.
    pub(in crate::client::call) unfinished: u32,
    pub(in crate::client::call) failed_on: Option<EarlierConn>,
    /// The resend that may follow the last failure.
    pub(in crate::client::call) resend: Option<Resend>,
    /// Makes a drain of the pool wait for the layers; `None` once they have returned. An attempt that is begun later still is
    /// one that a pool that drains refuses.
    pub(in crate::client::call) drain_hold: Option<DrainHold<Dialer>>,
    /// The bodies of the responses, the first one first.
    pub(in crate::client::call) bodies: Vec<LayeredBody>,
    /// The time from which on only the layers run; `None` while an attempt does.
    pub(in crate::client::call) layers_since: Option<Instant>,
    /// True if a server may have acted on an attempt that has ended.
    pub(in crate::client::call) acted: bool,
    /// True if a server may have acted on an attempt before the last one.
    pub(in crate::client::call) acted_before: bool,
}

/// The result of the attempts inside of the layers, beside what the layers returned.
pub(in crate::client::call) struct Ended {
    pub(in crate::client::call) failed_on: Option<EarlierConn>,
    /// The resend that may follow.
    pub(in crate::client::call) resend: Option<Resend>,
    pub(in crate::client::call) bodies: Vec<LayeredBody>,
    /// True if a server may have acted on an attempt.
    pub(in crate::client::call) acted: bool,
}

impl Drop for AttemptedCall {
    fn drop(&mut self) {
        // The call was dropped, or its timeout passed, while the layers ran.
        if let Some(since) = lock(&self.left).layers_since.take() {
            self.trace.note_layers(clock::now() - since);
        }
    }
}

impl AttemptContext {
    /// Makes a call of its own for one attempt.
    pub(in crate::client::call) fn call(&self, request: BoxedRequest) -> Call<'_> {
        let shared = &*self.0;
        let request = CurrentRequest::new(request, shared.decompression);
        let mut call = Call::for_attempt(&shared.client, request, shared.trace.clone(), shared.deadline);
        let mut left = lock(&shared.left);
        let now = clock::now();
        if let Some(since) = left.layers_since.take() {
            shared.trace.note_layers(now - since);
        }
        left.acted_before = left.acted || left.unfinished > 0;
        if left.acted_before {
            shared.trace.note_acted();
        }
        left.unfinished += 1;
        call.attempts = left.attempts;
        call.now = Some(now);
        call.is_new = left.drain_hold.is_none();
        call.avoid = shared.avoid;
        let single = SingleAttempt { failed_on: left.failed_on, resend: None, loan: shared.loan.clone() };
        call.single = Some(Box::new(single));
        call
    }

    /// Keeps what an attempt leaves to the call around the layers. `acted` is true if a server may have acted on it.
    pub(in crate::client::call) fn keep(&self, call: &mut Call<'_>, acted: bool) {
        let mut left = lock(&self.0.left);
        left.unfinished -= 1;
        left.acted |= acted;
        if left.unfinished == 0 {
            left.layers_since = Some(clock::now());
        }
        left.attempts = call.attempts;
        if let Some(single) = call.single.take() {
            left.failed_on = single.failed_on;
            left.resend = single.resend;
        }
    }

    /// Ends the attempts inside of the layers: takes back the body if it was not read, and returns what else they left.
    pub(in crate::client::call) fn end(self, call: &mut Call<'_>) -> Ended {
        if let Some(body) = self.0.loan.clone().and_then(Loan::take_back) {
            call.request.put_back(body);
        }
        let mut left = lock(&self.0.left);
        if let Some(since) = left.layers_since.take() {
            call.trace.note_layers(clock::now() - since);
        }
        call.attempts = left.attempts;
        call.acted_before = left.acted_before;
        call.drain_hold = left.drain_hold.take();
        // The server may have processed an attempt that a layer dropped, or left to another task.
        let resend = left.resend.take().filter(|_| left.unfinished == 0 && call.may_run_again());
        let acted = left.acted || left.unfinished > 0;
        Ended { failed_on: left.failed_on, resend, bodies: std::mem::take(&mut left.bodies), acted }
    }
}
