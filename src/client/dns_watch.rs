//! A task that tells the pool about changed DNS answers, so that it leaves addresses that a name has lost.

use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt;
use tokio::task::AbortHandle;

use super::dialer::Dialer;
use crate::dns::{CachedResolver, Change, Changes, ChangesError};
use crate::pool::{Addresses, Pool, WeakPool};
use crate::sync::lock;

/// The task that passes changes of the DNS cache on to the pool. It ends with its runtime, and is started again by the
/// next request that waits for a connection.
pub(super) struct DnsWatch {
    is_enabled: bool,
    task: Mutex<Option<AbortHandle>>,
}

impl DnsWatch {
    pub(super) fn new(is_enabled: bool) -> Self {
        Self { is_enabled, task: Mutex::default() }
    }

    /// Starts the task unless it runs. Does nothing outside of a runtime.
    pub(super) fn ensure_running(&self, resolver: &CachedResolver, pool: &Pool<Dialer>) {
        if !self.is_enabled {
            return;
        }
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(AbortHandle::is_finished) && tokio::runtime::Handle::try_current().is_ok() {
            *task = Some(tokio::spawn(pass_on(resolver.subscribe(), pool.downgrade()).boxed()).abort_handle());
        }
    }
}

impl Drop for DnsWatch {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

/// Passes changes on to the pool until the resolver or the pool is gone.
async fn pass_on(mut changes: Changes, pool: WeakPool<Dialer>) {
    // Answers may have changed before the subscription began.
    let mut missed = true;
    loop {
        if missed {
            let Some(pool) = pool.upgrade() else { return };
            pool.recheck_dns();
            missed = false;
        }
        let change = changes.next().await;
        let Some(pool) = pool.upgrade() else { return };
        match change {
            Ok(Change { name, family, addresses: ips, ttl, serial }) => {
                pool.dns_answered(&name, &Addresses { family, ips, ttl, serial: Some(serial) });
            }
            Err(ChangesError::Missed(_)) => missed = true,
            Err(_) => return,
        }
    }
}
