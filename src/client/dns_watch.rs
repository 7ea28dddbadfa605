//! The pool follows DNS: a task that tells it of the cache's changes.

use std::sync::{Mutex, PoisonError};

use tokio::task::AbortHandle;

use super::Dialer;
use crate::dns::{CachedResolver, Change, Changes, ChangesError};
use crate::pool::{Addresses, Pool, WeakPool};

/// Whoever tells the pool; gone with its runtime, and anew with the next request that has to wait.
pub(super) struct Follower {
    enabled: bool,
    task: Mutex<Option<AbortHandle>>,
}

impl Follower {
    pub(super) fn new(enabled: bool) -> Self {
        Self { enabled, task: Mutex::default() }
    }

    /// Sees to it that the pool is told.
    pub(super) fn follow(&self, resolver: &CachedResolver, pool: &Pool<Dialer>) {
        if !self.enabled {
            return;
        }
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(AbortHandle::is_finished) && tokio::runtime::Handle::try_current().is_ok() {
            *task = Some(tokio::spawn(tell(resolver.subscribe(), pool.downgrade())).abort_handle());
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

async fn tell(mut changes: Changes, pool: WeakPool<Dialer>) {
    // What changed while nobody listened is not known.
    let mut missed = true;
    loop {
        if std::mem::take(&mut missed) {
            let Some(pool) = pool.upgrade() else { return };
            pool.catch_up();
        }
        let changed = changes.next().await;
        let Some(pool) = pool.upgrade() else { return };
        match changed {
            Ok(Change { name, family, addresses: ips, ttl, serial }) => {
                pool.answered(&name, &Addresses { family, ips, ttl, serial: Some(serial) });
            }
            Err(ChangesError::Missed(_)) => missed = true,
            Err(_) => return,
        }
    }
}
