//! The trace of a call, which ends with it.

use std::ops::Deref;

use crate::trace::Trace;

/// The trace of a call. Dropped before the call has a response, it ends as cancelled.
pub(super) struct CallTrace {
    trace: Trace,
    /// True if the end of the trace is left to the response's body, or to another attempt.
    is_handed_over: bool,
}

impl CallTrace {
    pub(super) fn new(trace: Trace) -> Self {
        Self { trace, is_handed_over: false }
    }

    /// Makes the trace of an attempt whose end is not the end of the call.
    pub(super) fn of_attempt(trace: Trace) -> Self {
        Self { trace, is_handed_over: true }
    }

    /// Leaves the end of the trace to the response's body.
    pub(super) fn hand_over(&mut self) {
        self.is_handed_over = true;
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
        if !self.is_handed_over {
            self.trace.fail("cancelled");
        }
    }
}
