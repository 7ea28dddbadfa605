//! A task that tells the pool about changed DNS answers, so that it leaves addresses that a name has lost.

use std::sync::atomic::{AtomicBool, Ordering};

use super::dialer::Dialer;
use crate::client::pool_side::file_watch::WatchTask;
use crate::connect::Message;
use crate::dns::{CachedResolver, Change, Changes, ChangesError};
use crate::pool::{Addresses, Pool, WeakPool};

/// The task that passes changes of the DNS cache on to the pool. It ends with its runtime, and is started again by the
/// next request that waits for a connection.
pub(in crate::client) struct DnsWatch {
    is_enabled: AtomicBool,
    task: WatchTask,
}

impl DnsWatch {
    pub(in crate::client) fn new(is_enabled: bool) -> Self {
        Self { is_enabled: AtomicBool::new(is_enabled), task: WatchTask::default() }
    }

    /// Has the task started from now on.
    pub(in crate::client) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    /// Starts the task unless it runs. Does nothing outside of a runtime.
    pub(in crate::client) fn ensure_running<B: Message>(&self, resolver: &CachedResolver, pool: &Pool<Dialer<B>>) {
        if self.is_enabled.load(Ordering::Relaxed) {
            self.task.ensure_running(|| pass_on(resolver.subscribe(), pool.downgrade()));
        }
    }
}

/// Passes changes on to the pool until the resolver or the pool is gone.
async fn pass_on<B: Message>(mut changes: Changes, pool: WeakPool<Dialer<B>>) {
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
            Ok(Change { name, family, addresses: ips, sockets, ttl, is_sure, serial }) => {
                pool.dns_answered(&name, Addresses { family, ips, sockets, ttl, is_sure, serial: Some(serial) });
            }
            Err(ChangesError::Missed(_)) => missed = true,
            Err(_) => return,
        }
    }
}
