//! The replacement of limits and of connections while the pool is in use. A core.

use std::collections::BTreeSet;

use crate::clock::Instant;
use crate::pool::config::PoolConfig;
use crate::pool::state::parts::State;
use crate::pool::state::values::conn::{Pace, Stage};
use crate::pool::state::values::types::PoolTypes;
use crate::trace::CloseCause;

impl<T: PoolTypes> State<T> {
    /// Ends the connections of hosts whose settings have changed. Those without requests close now, the others after their requests,
    /// even if there is no room for another one until then. A dial in flight serves one request that waits by now, and no other.
    pub(crate) fn renew(&mut self, now: Instant, is_old: impl Fn(&T::Key) -> bool) {
        let hosts: BTreeSet<_> = self.hosts.iter().filter(|(_, host)| is_old(&host.key)).map(|(id, _)| id).collect();
        for &host in &hosts {
            // Which protocol the host speaks may have been a setting.
            let speaks = (self.profile)(&self.hosts[host].key).speaks;
            self.hosts[host].speaks = speaks;
            self.hosts[host].facts.forget_server();
        }
        self.memory.forget_servers(&is_old);
        let concerned: Vec<_> =
            self.conns.iter().filter(|(_, conn)| hosts.contains(&conn.host)).map(|(id, _)| id).collect();
        for id in concerned {
            if matches!(self.conns[id].stage, Stage::Dialling(_)) {
                self.conns.dialling_mut(id).outdated_after.get_or_insert(self.serial);
                if self.conns[id].dialling().pace == Pace::Young {
                    self.stop_relying_on(id);
                }
            } else if self.conns[id].end_cause.is_none() {
                self.end(id, CloseCause::Reconfigured);
                self.settle(now, id);
            }
        }
        for host in hosts {
            if self.hosts.slab.contains(host) {
                self.look_soon(now, host);
                self.finish(now, host);
            }
        }
    }

    /// Replaces the limits. Idle connections that are too many by the new ones close now; a busy one closes when it becomes idle. The
    /// lifetime of open connections, and the requests at a time that they take, stay as they are.
    pub(crate) fn set_config(&mut self, now: Instant, config: &PoolConfig) {
        self.slots.limit = config.max_connections;
        self.conns.max_idle = config.max_idle;
        self.waiters.max = config.max_waiting;
        let hosts: Vec<_> = self.hosts.iter().map(|(id, _)| id).collect();
        for &host in &hosts {
            let limits = (self.profile)(&self.hosts[host].key).limits;
            let entry = &mut self.hosts[host];
            entry.limits = limits;
            if let Some(balance) = &mut entry.balance {
                balance.set_rules(limits.ejection);
            }
            entry.conns.streams_per_conn = entry.conns.streams_per_conn.min(limits.max_streams);
        }
        while self.conns.idle.len() > self.conns.max_idle || (self.is_over_total() && !self.conns.idle.is_empty()) {
            self.close_oldest(now, CloseCause::IdleLimit);
        }
        for &host in &hosts {
            self.apply_limits(now, host);
        }
        for host in hosts {
            // Where too many hosts are kept warm, the record of another one may be gone by now.
            if self.hosts.slab.contains(host) {
                self.keep_warm_as_configured(now, host);
                self.finish(now, host);
            }
        }
    }

    /// Begins or ends to keep a host warm, as its limits say.
    fn keep_warm_as_configured(&mut self, now: Instant, host: usize) {
        let is_wanted = self.min_idle(host) > 0;
        if !is_wanted && self.hosts[host].warm.is_some() {
            self.warm_hosts.remove(&mut self.hosts.slab, host);
        } else if is_wanted && self.hosts[host].open_conns() > 0 {
            self.note_use(now, host);
            self.look_soon(now, host);
        }
    }

    /// Closes a host's idle connections that are too many, and sets its timers by its limits.
    fn apply_limits(&mut self, now: Instant, host: usize) {
        while let Some(oldest) = self.hosts[host].conns.idle.back()
            && self.hosts[host].has_idle_to_close()
        {
            self.end(oldest, CloseCause::IdleLimit);
            self.settle(now, oldest);
        }
        self.set_idle_timer(now, host);
        // The longest wait may have changed.
        let waiting: Vec<_> = self.waiters.in_order(&self.hosts[host].queue).collect();
        for waiter in waiting {
            self.expect_end(host, waiter, Some(now));
        }
    }
}
