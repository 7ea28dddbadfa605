//! The steps of balanced hosts: which connection a request gets, what is opened for the balance, what a result changes. A core.
//!
//! A request never waits for a connection to the address that was chosen for it while another address has a free one: it gets that
//! one, and a connection to the chosen address is opened for the requests that follow.

use std::net::SocketAddr;
use std::time::Duration;

use crate::clock::Instant;
use crate::pool::state::balance::Candidates;
use crate::pool::state::balance::address::{AddressReport, Outcome};
use crate::pool::state::hosts::connections::Search;
use crate::pool::state::parts::State;
use crate::pool::state::values::{Addresses, LeaseToken, PoolTypes, Tracking};
use crate::trace::CloseCause;

impl<T: PoolTypes> State<T> {
    /// Finds a connection with a free stream, by the balance of a host that is balanced. Those whose time is over end on the way.
    #[inline]
    pub(in crate::pool::state) fn find(
        &mut self,
        now: Instant,
        host: usize,
        search: &Search<'_, T::Runtime>,
    ) -> Option<usize> {
        if self.hosts[host].balance.is_none() {
            let found = self.find_any(now, host, search);
            if self.slots.has_no_contenders() {
                return found;
            }
            return found.filter(|id| !self.is_about_to_make_room(now, *id));
        }
        self.find_balanced(now, host, search)
    }

    #[inline(never)]
    fn find_balanced(&mut self, now: Instant, host: usize, search: &Search<'_, T::Runtime>) -> Option<usize> {
        self.hosts[host].balance.as_mut()?.count_request(now);
        loop {
            // Drawn each time: an address that DNS does not have any more goes with its last connection.
            let wanted = self.hosts[host].balance.as_mut()?.candidates(now);
            let found = self.choose(now, host, wanted, search)?;
            if !self.end_overdue(now, host, found) {
                return Some(found);
            }
        }
    }

    /// Finds a connection with a free stream, without regard to the balance.
    #[inline]
    pub(in crate::pool::state) fn find_any(
        &mut self,
        now: Instant,
        host: usize,
        search: &Search<'_, T::Runtime>,
    ) -> Option<usize> {
        loop {
            let found = self.conns.find(now, &self.hosts[host], search)?;
            if !self.end_overdue(now, host, found) {
                return Some(found);
            }
        }
    }

    /// Ends a connection whose time is over. Returns false if it is not.
    #[inline]
    fn end_overdue(&mut self, now: Instant, host: usize, id: usize) -> bool {
        let is_idle_for_too_long = || self.is_idle_for_too_long(now, id).then_some(CloseCause::IdleTimeout);
        let Some(cause) = self.overdue(now, id).or_else(is_idle_for_too_long) else { return false };
        self.end(id, cause);
        self.settle(now, id);
        self.fill(now, host);
        true
    }

    /// Returns a connection to the first of the addresses `wanted` that has a free one, or else to the least loaded one that has.
    fn choose(
        &mut self,
        now: Instant,
        host: usize,
        wanted: Candidates,
        search: &Search<'_, T::Runtime>,
    ) -> Option<usize> {
        let mut lacking = None;
        for key in wanted.into_iter().flatten() {
            let found = self.conns.find_at(now, &self.hosts[host], key, search);
            if found.is_some() {
                self.open_for_balance(now, host, lacking, search);
                return found;
            }
            lacking = lacking.or(Some(key));
        }
        let entry = &self.hosts[host];
        let balance = entry.balance.as_ref()?;
        let found = balance.by_load(now).into_iter().find_map(|key| self.conns.find_at(now, entry, key, search));
        if found.is_none() && !self.may_reach_address_in_use(now, host) {
            // One to an address out of use is better than none.
            return self.conns.find(now, entry, search);
        }
        if found.is_some() {
            self.open_for_balance(now, host, lacking, search);
        }
        found
    }

    /// Opens a connection to an address that was chosen and has no free one, for the requests that follow.
    fn open_for_balance(&mut self, now: Instant, host: usize, lacking: Option<usize>, search: &Search<'_, T::Runtime>) {
        let Some(key) = lacking.filter(|_| search.has_no_conditions()) else { return };
        let entry = &self.hosts[host];
        let Some(balance) = &entry.balance else { return };
        let keeps_idle = entry.conns.idle.len() < entry.limits.max_idle && self.conns.idle.len() < self.conns.max_idle;
        let is_worthwhile = balance.may_dial_ahead(now, key, entry.max_conns_per_address(), entry.conns.usable);
        if keeps_idle && is_worthwhile && entry.queue.to_dial_for() == 0 && self.may_dial_ahead(now, host) {
            self.dial_ahead_of_requests(now, host, Some(key));
        }
    }

    /// Takes note of the result of a request, `latency` after it was sent.
    pub(crate) fn report(&mut self, now: Instant, token: &mut LeaseToken, latency: Duration, outcome: Outcome) {
        let conn = &self.conns[token.id.index];
        let host = conn.host;
        let is_probe = token.tracking == Tracking::Probe;
        if let Some(key) = conn.address
            && let Some(balance) = &mut self.hosts[host].balance
            && token.is_tracked()
        {
            token.tracking = Tracking::Request;
            balance.report(now, key, is_probe, latency, outcome);
            self.finish(now, host);
        }
    }

    /// Returns true if a host of this name is balanced.
    pub(crate) fn is_balanced(&self, name: &str) -> bool {
        self.hosts.is_balanced(name)
    }

    /// Reports the addresses of a DNS answer that may be dialled, for the hosts of that name that are balanced.
    pub(crate) fn addresses_answered(&mut self, now: Instant, name: &str, answer: &Addresses, is_new: bool) {
        for host in self.hosts.balanced(name) {
            if let Some(balance) = &mut self.hosts[host].balance {
                balance.answered(answer, is_new);
            }
            self.finish(now, host);
        }
    }

    /// Notes that a dial connected to another address than the one it tried first.
    pub(in crate::pool::state) fn note_missed(
        &mut self,
        now: Instant,
        host: usize,
        id: usize,
        remote: Option<SocketAddr>,
    ) {
        if let (Some(aim), Some(balance)) = (self.conns[id].address, &mut self.hosts[host].balance)
            && Some(balance.socket(aim)) != remote
        {
            balance.dial_failed(now, aim);
        }
    }

    /// Notes that a dial failed, and the address it tried first with it.
    pub(in crate::pool::state) fn note_failed_dial(&mut self, now: Instant, host: usize, id: usize) {
        if let Some(aim) = self.conns[id].address
            && let Some(balance) = &mut self.hosts[host].balance
        {
            balance.dial_failed(now, aim);
            self.finish(now, host);
        }
    }

    /// Returns the figures of the addresses of each balanced host.
    pub(crate) fn address_reports(&self, now: Instant) -> impl Iterator<Item = (&T::Key, Vec<AddressReport>)> {
        let hosts = self.hosts.iter().map(|(_, host)| host);
        hosts.filter_map(move |host| Some((&host.key, host.balance.as_ref()?.reports(now).collect())))
    }
}
