//! The steps from requests that wait to dials, and from dials that fail or are slow to what becomes of the requests. A core.
//!
//! The numbers are decided in `hosts/host.rs` (`needed_dials`) and `mod.rs`. No dial is tied to a request's success: what it opens goes to
//! the first request in the queue. A failure concerns the request that the dial was begun for, and, after four in a row, those that
//! came before these began and have no older dial. They fail with it unless another dial that was in flight, or a sign of life of the host
//! within 100 ms, lets them hope.

use std::time::Duration;

use crate::clock::Instant;
use crate::list::count_step;
use crate::pool::state::dials::{FEW_SLOW, GRACE, MOST_SLOW, PATIENCE};
use crate::pool::state::hosts::host::Host;
use crate::pool::state::hosts::queue::Failure;
use crate::pool::state::parts::State;
use crate::pool::state::values::conn::{Dialling, Pace, Stage};
use crate::pool::state::values::{Effect, Expired, Permit, PoolTypes, Speaks, WaitFailure};
use crate::pool::state::warm::PROVEN_AFTER;
use crate::trace::Limit;

// How dials begin.
impl<T: PoolTypes> State<T> {
    /// Begins a dial for the host's next request without one.
    pub(in crate::pool::state) fn dial_for_next(&mut self, now: Instant, host: usize) {
        let next = self.hosts[host].queue.next_to_dial_for().expect("a host that wants to dial has such a request");
        self.dial_for(now, host, next);
        self.slots.update_contender(now, &mut self.hosts, host);
    }

    /// Begins a dial for a request.
    pub(in crate::pool::state) fn dial_for(&mut self, now: Instant, host: usize, waiter: usize) {
        let request = &self.waiters[waiter];
        let (id, nth, connect) = (request.id(waiter), request.dials.begun + 1, request.limits.connect);
        let aim = self.aim_for(now, host, Some(waiter));
        let entry = &self.hosts[host];
        // Before the protocol is known, a dial beside others may be one too many: if it is HTTP/2, one connection may be enough.
        let is_extra = nth > 1 || (entry.speaks == Speaks::Unknown && entry.dials.live() > 0);
        let slow_at = now + entry.dials.slow_after(connect, nth);
        let dialling = Dialling { owner: Some(id), is_extra, ..Dialling::new(now, slow_at) };
        let dial = self.begin_dial(now, host, dialling, aim);
        let (dial_id, entry) = (self.conns.id(dial), &mut self.hosts[host]);
        self.waiters.dial_begins(&mut entry.queue, now, waiter, (dial, dial_id));
        entry.dials.begun(now, connect);
        let connect_end = self.waiters[waiter].connect_end(None);
        self.expect_end(host, waiter, connect_end);
    }

    /// Begins a dial that no request waits for. A balanced host's tries the address `aim` first.
    pub(in crate::pool::state) fn dial_ahead_of_requests(
        &mut self,
        now: Instant,
        host: usize,
        aim: Option<usize>,
    ) -> usize {
        let aim = aim.or_else(|| self.aim_for(now, host, None));
        let slow_at = now + self.hosts[host].dials.slow_after(Duration::MAX, 1);
        let dial = self.begin_dial(now, host, Dialling::new(now, slow_at), aim);
        self.slots.update_contender(now, &mut self.hosts, host);
        dial
    }

    fn begin_dial(&mut self, now: Instant, host: usize, dialling: Dialling, aim: Option<usize>) -> usize {
        if self.hosts[host].dials.slow.len() >= MOST_SLOW
            && let Some(slow) = self.slow_to_give_up(host, FEW_SLOW)
        {
            self.give_up(now, slow);
        }
        let serial = self.next_serial();
        let slow_at = dialling.slow_at;
        let entry = &mut self.hosts[host];
        let dial = self.conns.begin_dial(dialling, serial, host, entry);
        if let Some(aim) = aim {
            self.conns.aim(entry, dial, aim);
        }
        let first = entry.balance.as_ref().zip(aim).map(|(balance, aim)| balance.socket(aim));
        let key = entry.key.clone();
        self.slots.taken += 1;
        self.set_timer(host, Some(slow_at));
        self.effects.push_back(Effect::Dial(Permit(self.conns.id(dial)), key, first));
        dial
    }

    /// Returns the address of a balanced host that a dial, for this request if it is for one, should try first.
    fn aim_for(&self, now: Instant, host: usize, waiter: Option<usize>) -> Option<usize> {
        let entry = &self.hosts[host];
        let balance = entry.balance.as_ref()?;
        let avoid = waiter.and_then(|waiter| self.waiters[waiter].needs.not_at);
        balance.aim(now, avoid, entry.max_conns_per_address())
    }
}

// How dials end.
impl<T: PoolTypes> State<T> {
    /// Parts a dial that ends from its request. Returns the request if it still waits, and true if an older dial for it is in flight.
    pub(in crate::pool::state) fn part(&mut self, now: Instant, dial: usize) -> Option<(usize, bool)> {
        let (host, id) = (self.conns[dial].host, self.conns.id(dial));
        let owner = self.conns.dialling_mut(dial).owner.take()?;
        self.waiters.get(owner)?;
        let has_older = self.waiters.dial_ends(&mut self.hosts[host].queue, now, owner.index, (dial, id));
        if self.waiters[owner.index].dials.in_flight == 0 {
            let wait_end = now.checked_add(self.wait_timeout(owner.index));
            self.expect_end(host, owner.index, wait_end);
        }
        Some((owner.index, has_older))
    }

    /// Aborts a dial. It is no failure.
    pub(in crate::pool::state) fn give_up(&mut self, now: Instant, dial: usize) {
        self.part(now, dial);
        let host = self.conns[dial].host;
        let was_young = self.conns[dial].dialling().pace == Pace::Young;
        self.conns.set_pace(&mut self.hosts[host], dial, Pace::GivenUp);
        self.effects.push_back(Effect::AbortDial(self.conns.id(dial)));
        // No request waited for a slow one. Nothing may be delivered then: a slow dial is given up while another one begins.
        if was_young {
            self.settle_free(now, host);
        }
    }

    /// Gives up dials once no request waits: extra ones, and while the pool drains all.
    pub(in crate::pool::state) fn give_up_unneeded(&mut self, now: Instant, host: usize) {
        let entry = &self.hosts[host];
        let is_draining = self.is_draining;
        if !entry.queue.is_empty() || (entry.dials.extra == 0 && !is_draining) {
            return;
        }
        let in_flight = self.conns.back_to_front(&entry.dials.young).chain(self.conns.back_to_front(&entry.dials.slow));
        let unneeded: Vec<_> = in_flight.filter(|dial| is_draining || self.conns[*dial].dialling().is_extra).collect();
        for dial in unneeded {
            self.give_up(now, dial);
        }
    }

    /// Returns a slow dial that may be given up for a young one: an extra one, or else the oldest but for `kept`.
    fn slow_to_give_up(&self, host: usize, kept: usize) -> Option<usize> {
        let slow = &self.hosts[host].dials.slow;
        let mut extra = self.conns.back_to_front(slow).filter(|dial| self.conns[*dial].dialling().is_extra);
        extra.next().or_else(|| {
            let beyond = slow.len().checked_sub(kept + 1)?;
            self.conns.back_to_front(slow).nth(beyond)
        })
    }

    /// Returns a host in trouble that has more dials than its share of the total, and one of them: a slow one, if there is one.
    pub(in crate::pool::state) fn dial_beyond_share(&mut self) -> Option<(usize, usize)> {
        let id = self.slots.first_beyond_share(&mut self.hosts)?;
        let dials = &self.hosts[id].dials;
        let dial = self.slow_to_give_up(id, 1).or(dials.slow.front()).or(dials.young.back())?;
        Some((id, dial))
    }

    /// Gives up a slow dial where a limit leaves no room for a young one. The oldest one stays, unless it is the only one: then it gives
    /// way some time later.
    pub(in crate::pool::state) fn give_way(&mut self, now: Instant, host: usize) {
        let entry = &self.hosts[host];
        let has_room = entry.conns.slots < entry.limits.max_connections && self.slots.has_room();
        if has_room || entry.dials.given_up > 0 || entry.needed_dials(now, 0) == 0 {
            return;
        }
        if entry.dials.slow.len() > 1 {
            if let Some(slow) = self.slow_to_give_up(host, 1) {
                self.give_up(now, slow);
            }
        } else if let Some(only) = entry.dials.slow.front()
            && entry.dials.young.is_empty()
        {
            let gives_way_at = self.conns[only].dialling().since + entry.dials.gives_way_at();
            if now < gives_way_at {
                return self.set_timer(host, Some(gives_way_at));
            }
            self.hosts[host].dials.gave_way();
            self.give_up(now, only);
        }
    }

    /// Marks the dials that have become slow. Other ones may begin for their requests, unless they wait for DNS or have addresses left.
    pub(in crate::pool::state) fn mark_slow_dials(&mut self, now: Instant, host: usize) {
        let young: Vec<_> = self.conns.back_to_front(&self.hosts[host].dials.young).collect();
        let mut next = None;
        for dial in young.into_iter().rev() {
            let slow_at = self.conns[dial].dialling().slow_at;
            if now < slow_at {
                next = next.into_iter().chain([slow_at]).min();
                continue;
            }
            self.hosts[host].dials.has_hung = true;
            if (self.is_on_its_way)(self.conns.id(dial)) {
                // Another dial would wait for the same answer, or try the same addresses.
                let look_at = now + GRACE;
                self.conns.dialling_mut(dial).slow_at = look_at;
                next = next.into_iter().chain([look_at]).min();
            } else {
                self.stop_relying_on(dial);
            }
        }
        self.set_timer(host, next);
        self.settle_free(now, host);
    }

    /// Takes a dial for slow. Another one may begin for its request.
    pub(in crate::pool::state) fn stop_relying_on(&mut self, dial: usize) {
        let host = self.conns[dial].host;
        self.conns.set_pace(&mut self.hosts[host], dial, Pace::Slow);
        let owner = self.conns[dial].dialling().owner;
        if let Some(owner) = owner.filter(|owner| self.waiters.get(*owner).is_some()) {
            self.waiters.dial_is_slow(&mut self.hosts[host].queue, owner.index, dial);
        }
    }
}

// How requests fail.
impl<T: PoolTypes> State<T> {
    /// Notes a dial that failed, for its request and, after several in a row, for those that came before these began.
    pub(in crate::pool::state) fn note_failed(
        &mut self,
        now: Instant,
        dial: usize,
        owner: Option<(usize, bool)>,
        error: &T::Error,
    ) {
        let host = self.conns[dial].host;
        let &Dialling { since: begun, pace, .. } = self.conns[dial].dialling();
        self.hosts[host].dials.failed(begun, pace == Pace::Slow);
        match owner {
            Some((owner, false)) => {
                let late = begun - self.waiters[owner].since;
                self.mark_failed(now, owner, error, late);
            }
            Some((_, true)) => self.hosts[host].dials.failed_beside_older(now),
            None => {}
        }
        let Some(hopeless_until) = self.hosts[host].dials.hopeless_until() else { return };
        let is_hopeless = |waiter: &usize| {
            let waiter = &self.waiters[*waiter];
            // One whose own dial began before those may have more luck.
            let has_older = waiter.dials.oldest.is_some_and(|(_, begun)| begun <= hopeless_until);
            waiter.failure.is_none() && !has_older && waiter.since <= hopeless_until
        };
        let Host { queue, dials, .. } = &self.hosts[host];
        let came_in_time = |waiter: &usize| {
            let waiter = &self.waiters[*waiter];
            waiter.needs.is_resend || waiter.since <= hopeless_until
        };
        let undialled = self.waiters.in_list(&queue.fresh).take_while(came_in_time);
        let again = self.waiters.in_list(&queue.again);
        let owner = |dial: usize| self.conns[dial].dialling().owner.filter(|owner| self.waiters.get(*owner).is_some());
        let dialled = self.conns.front_to_back(&dials.young).filter_map(owner).map(|owner| owner.index);
        let mut hopeless: Vec<_> = undialled.chain(again).chain(dialled).filter(is_hopeless).collect();
        hopeless.sort_unstable_by_key(|waiter| self.waiters[*waiter].turn());
        for waiter in hopeless {
            let late = begun - self.waiters[waiter].since;
            self.mark_failed(now, waiter, error, late);
        }
    }

    /// Marks a request as about to fail, with a dial that began `late` after it came.
    pub(in crate::pool::state) fn mark_failed(
        &mut self,
        now: Instant,
        waiter: usize,
        error: &T::Error,
        late: Duration,
    ) {
        let host = self.waiters[waiter].host;
        // All in all, it waits 100 ms longer than a request whose dial begins at once.
        let hopes_until = now + GRACE.saturating_sub(late);
        let failure = || Box::new(Failure { error: error.clone(), at: now, hopes_until });
        self.waiters.change(&mut self.hosts[host].queue, waiter, |waiter| {
            waiter.failure.get_or_insert_with(failure);
        });
    }

    /// Fails the requests whose dials have failed and that have nothing to hope for.
    pub(in crate::pool::state) fn fail_hopeless(&mut self, now: Instant, host: usize) {
        while let Some(first) = self.hosts[host].queue.failed.front() {
            let hopes_until = self.hopes_until(now, host, first);
            if let Some(until) = hopes_until.filter(|until| now < *until) {
                return self.set_timer(host, Some(until));
            }
            let failure = self.waiters[first].failure.as_ref().expect("the requests of this list have one");
            self.fail(first, WaitFailure::Dial(failure.error.clone()));
        }
    }

    /// Returns the time until which a request whose dial has failed waits for other dials that were in flight, or for a connection of a
    /// host that shows signs of life.
    fn hopes_until(&self, now: Instant, host: usize, waiter: usize) -> Option<Instant> {
        let (entry, waiter) = (&self.hosts[host], &self.waiters[waiter]);
        let failure = waiter.failure.as_ref()?;
        let is_over = waiter.connect_end(None).is_some_and(|end| end <= now);
        if is_over {
            return None;
        }
        let oldest = entry.dials.young.front().map(|dial| self.conns[dial].dialling().since);
        let for_dials = oldest.filter(|since| *since <= failure.at).map(|_| failure.hopes_until);
        let is_open = entry.open_conns() > 0 && entry.dials.have_progressed(now);
        let for_conns = entry.dials.progress_at.filter(|_| is_open).map(|at| at + GRACE);
        for_dials.into_iter().chain(for_conns).max()
    }

    fn fail(&mut self, waiter: usize, why: WaitFailure<T::Error>) {
        let host = self.waiters[waiter].host;
        let waiter = self.waiters.remove(&mut self.hosts[host].queue, waiter);
        let is_failure = matches!(why, WaitFailure::Dial(_));
        self.conns.count(&mut self.hosts[host], |totals| {
            totals.queue.failed += u64::from(is_failure);
            totals.queue.timed_out += u64::from(!is_failure);
        });
        self.effects.push_back(Effect::Fail { waiter: waiter.handle, why });
    }

    /// Fails the requests that have waited for too long.
    pub(in crate::pool::state) fn fail_expired(&mut self, now: Instant, host: usize) {
        if self.hosts[host].queue.next_end().is_none_or(|end| now < end) {
            return;
        }
        // Other hosts may have taken the slots that were free, so a connection that refused a request is its last chance.
        if let Some(shared) = self.hosts[host].conns.shared.front() {
            self.settle(now, shared);
        }
        while let Some(waiter) = self.hosts[host].queue.first_to_end(now) {
            count_step();
            match self.expiry(now, waiter) {
                Ok(at) => self.waiters.set_end(&mut self.hosts[host].queue, waiter, at),
                Err(why) => self.fail(waiter, why),
            }
        }
        self.set_timer(host, self.hosts[host].queue.next_end());
    }

    /// Returns when a request will have waited for too long, if ever, or what it fails with because it has.
    fn expiry(&self, now: Instant, waiter: usize) -> Result<Option<Instant>, WaitFailure<T::Error>> {
        let request = &self.waiters[waiter];
        let entry = &self.hosts[request.host];
        let limit = self.limit_of(now, waiter);
        let is_dialled = request.dials.in_flight > 0;
        let is_limited = !is_dialled && !matches!(limit, Limit::Opening | Limit::Settings);
        let expired = |timeout| Expired { timeout, limit, due: request.ends_at.unwrap_or(now) };
        // Until a limit lets it be dialled for, the connect timeout has nothing to count.
        let connect_end =
            request.connect_end(entry.dials.progress_at).filter(|_| !is_limited || request.dials.begun > 0);
        if connect_end.is_some_and(|end| end <= now) {
            let dial = self.dial_of(request.id(waiter));
            return Err(match &request.failure {
                Some(failure) => WaitFailure::Dial(failure.error.clone()),
                None => WaitFailure::Connect { expired: expired(request.limits.connect), dial },
            });
        }
        let timeout = self.wait_timeout(waiter);
        let wait_end = request.dials.waits_from.checked_add(timeout).filter(|_| !is_dialled);
        match wait_end {
            Some(end) if end <= now && is_limited => Err(WaitFailure::Timeout(expired(timeout))),
            // A limit does not keep it waiting at the moment, and may do so later.
            Some(end) if end <= now => Ok(connect_end.into_iter().chain([now + PATIENCE]).min()),
            Some(end) => Ok(connect_end.into_iter().chain([end]).min()),
            // If its dials end, a limit may keep it waiting.
            None => Ok(connect_end),
        }
    }

    /// Returns the longest time that a limit may keep a request waiting.
    fn wait_timeout(&self, waiter: usize) -> Duration {
        let waiter = &self.waiters[waiter];
        let of_host = self.hosts[waiter.host].limits.wait_timeout;
        waiter.limits.queue.map_or(of_host, |own| own.min(of_host))
    }

    /// Notes that a request of a host may have waited for too long at a time.
    pub(in crate::pool::state) fn expect_end(&mut self, host: usize, waiter: usize, at: Option<Instant>) {
        let Some(at) = at else { return };
        self.waiters.set_end_earlier(&mut self.hosts[host].queue, waiter, at);
        self.set_timer(host, Some(at));
    }

    /// Has the host looked at in time for a request that begins to wait.
    pub(in crate::pool::state) fn watch_wait(&mut self, now: Instant, host: usize, waiter: usize) {
        let is_limited = !matches!(self.limit_of(now, waiter), Limit::Opening | Limit::Settings);
        if self.waiters[waiter].dials.begun == 0 && is_limited {
            self.waiters[waiter].dials.is_limited = true;
        }
        let longest = self.waiters[waiter].limits.connect.min(self.wait_timeout(waiter));
        self.expect_end(host, waiter, now.checked_add(longest));
    }
}

// The hosts.
impl<T: PoolTypes> State<T> {
    /// Notes a request to a host that is kept warm, or that is to be because it has connections.
    #[inline(never)]
    pub(in crate::pool::state) fn note_request(&mut self, now: Instant, host: usize) {
        let entry = &self.hosts[host];
        if entry.warm.is_some() {
            self.warm_hosts.requested(now, &mut self.hosts.slab, host);
        } else if entry.open_conns() > 0 {
            self.note_use(now, host);
            self.watch(now, host);
        }
    }

    /// Notes a request or a new connection of a host, which is kept warm from now on.
    pub(in crate::pool::state) fn note_use(&mut self, now: Instant, host: usize) {
        if self.is_draining || self.min_idle(host) == 0 {
            return;
        }
        self.warm_hosts.requested(now, &mut self.hosts.slab, host);
        if self.warm_hosts.is_over_full() {
            self.forget_oldest_warm(now);
        }
    }

    /// Keeps the host warm no longer whose last request is the oldest. Returns false if there is none.
    pub(in crate::pool::state) fn forget_oldest_warm(&mut self, now: Instant) -> bool {
        let Some(oldest) = self.warm_hosts.oldest() else { return false };
        self.warm_hosts.remove(&mut self.hosts.slab, oldest);
        self.prune(now, oldest);
        true
    }

    /// Notes a dial that failed. A host that is kept warm is not dialled ahead for a while.
    pub(in crate::pool::state) fn note_failure(&mut self, now: Instant, host: usize) {
        if let Some(warm) = &mut self.hosts[host].warm {
            warm.backoff.failed(now, self.warm_hosts.jitter.f64());
        }
    }

    /// Counts a connection that ends soon after it was opened, without a request, as a failed dial.
    pub(in crate::pool::state) fn note_early_end(&mut self, now: Instant, id: usize) {
        let conn = &self.conns[id];
        if let Stage::Open(open) = &conn.stage
            && conn.end_cause.is_none()
            && open.requests == 0
            && now - open.used_at < PROVEN_AFTER
        {
            self.note_failure(now, conn.host);
        }
    }
}

// The looks.
impl<T: PoolTypes> State<T> {
    /// Has a host that is kept warm looked at in time: at once if it lacks connections, and in a while if too many are busy.
    #[inline]
    pub(in crate::pool::state) fn watch(&mut self, now: Instant, host: usize) {
        if self.hosts[host].warm.is_some() {
            self.watch_warm(now, host);
        }
    }

    /// Does what [`watch`](Self::watch) does for a host of which connections are kept open.
    pub(in crate::pool::state) fn watch_warm(&mut self, now: Instant, host: usize) {
        let wanted = self.min_idle(host);
        let entry = &mut self.hosts[host];
        let lacks = entry.conns.usable < wanted;
        let is_busy = entry.is_too_busy(wanted);
        let Some(warm) = &mut entry.warm else { return };
        if let Some(too_long) = warm.set_busy(now, is_busy) {
            warm.look_by(too_long);
        } else if lacks {
            warm.look_by(now);
        }
        let look_at = warm.look_at;
        self.set_timer(host, Some(look_at));
    }

    /// Has a host that is kept warm looked at soon, after its idle timeout has changed.
    pub(in crate::pool::state) fn look_soon(&mut self, now: Instant, host: usize) {
        self.look_by(host, Some(now));
    }

    /// Has a host that is kept warm looked at by a time.
    pub(in crate::pool::state) fn look_by(&mut self, host: usize, at: Option<Instant>) {
        if let Some(warm) = &mut self.hosts[host].warm
            && let Some(at) = at
        {
            warm.look_by(at);
            let look_at = warm.look_at;
            self.set_timer(host, Some(look_at));
        }
    }
}
