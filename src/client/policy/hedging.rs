//! The hedging policy of a client, and what is known of its origins.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::hedge::{HedgePolicy, MeasuredOrigins};
use crate::origin::Origin;
use crate::sync::lock;

/// The hedging policy of a client, with the origins that its calls share.
pub(in crate::client) struct Hedging {
    policy: HedgePolicy,
    origins: Mutex<MeasuredOrigins>,
}

impl Hedging {
    pub(in crate::client) fn new(policy: HedgePolicy) -> Self {
        Self { policy, origins: Mutex::default() }
    }

    /// Counts a request. Returns the wait after which it is hedged; `None` if it is not.
    pub(in crate::client) fn begin(&self, origin: &Origin) -> Option<Duration> {
        self.lock().begin(&self.policy, origin)
    }

    /// Takes a hedge out of an origin's budget. Returns false if there is none left.
    pub(in crate::client) fn withdraw(&self, origin: &Origin) -> bool {
        self.lock().withdraw(origin)
    }

    /// Takes the time that an answer took.
    pub(in crate::client) fn record(&self, origin: &Origin, took: Duration) {
        self.lock().record(&self.policy, origin, took);
    }

    // A panic cannot leave an origin half changed, so a poisoned lock is as good as another.
    fn lock(&self) -> MutexGuard<'_, MeasuredOrigins> {
        lock(&self.origins)
    }
}
