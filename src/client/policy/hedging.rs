//! The origins that requests are hedged for, with the times of their answers.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::hedge::{HedgePolicy, MeasuredOrigins};
use crate::origin::Origin;
use crate::sync::lock;

/// The origins that the calls of a client share.
#[derive(Default)]
pub(in crate::client) struct Hedging(Mutex<MeasuredOrigins>);

impl Hedging {
    /// Counts a request. Returns the wait after which it is hedged; `None` if it is not.
    pub(in crate::client) fn begin(&self, policy: &HedgePolicy, origin: &Origin) -> Option<Duration> {
        self.lock().begin(policy, origin)
    }

    /// Takes a hedge out of an origin's budget. Returns false if there is none left.
    pub(in crate::client) fn withdraw(&self, origin: &Origin) -> bool {
        self.lock().withdraw(origin)
    }

    /// Takes the time that an answer took.
    pub(in crate::client) fn record(&self, policy: &HedgePolicy, origin: &Origin, took: Duration) {
        self.lock().record(policy, origin, took);
    }

    // A panic cannot leave an origin half changed, so a poisoned lock is as good as another.
    fn lock(&self) -> MutexGuard<'_, MeasuredOrigins> {
        lock(&self.0)
    }
}
