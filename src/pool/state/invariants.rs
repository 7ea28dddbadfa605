//! The invariants of the core, as `mod.rs` lists them, checked from inside.

use super::dials::PATIENCE;
use super::values::conn::{self, FreeConns, Listed, Pace, Stage};
use super::*;
use crate::list::List;
use crate::trace::CloseCause;

impl<T: PoolTypes> State<T> {
    /// Panics if an invariant does not hold. `seed` names the random walk.
    pub(super) fn check(&self, now: Instant, seed: u64) {
        self.check_figures(seed);
        self.check_warm_hosts(seed);
        for (index, _) in &self.hosts.slab {
            self.check_host_figures(index, seed);
            self.check_dials(now, index, seed);
            self.check_requests(index, seed);
            self.check_lists(index, seed);
            self.check_delivery(now, index, seed);
            self.check_turn(now, index, seed);
            self.check_timer(now, index, seed);
            self.check_warm(now, index, seed);
            self.check_balance(index, seed);
        }
    }

    /// Checks 1 and 2 for the addresses of a balanced host.
    fn check_balance(&self, index: usize, seed: u64) {
        let Some(balance) = &self.hosts[index].balance else { return };
        let conns = || self.conns.iter().filter(|(_, conn)| conn.host == index);
        for (key, address) in balance.figures() {
            let of_address = || conns().filter(|(_, conn)| conn.address == Some(key));
            let is_usable = |conn: &conn::Conn<T>| conn.end_cause.is_none() && open_of(conn).is_some();
            let usable: Vec<_> = of_address().filter(|(_, conn)| is_usable(conn)).map(|(id, _)| id).collect();
            assert_eq!(balance.conns(key), usable.len(), "seed {seed}: connections of an address");
            let FreeConns { shared, idle } = balance.free(key);
            let mut listed: Vec<_> = self.conns.front_to_back(shared).chain(self.conns.front_to_back(idle)).collect();
            listed.sort_unstable();
            let free = |id: &usize| self.conns.open(*id).listed != Listed::No;
            let free: Vec<_> = usable.into_iter().filter(free).collect();
            assert_eq!(listed, free, "seed {seed}: connections of an address with a free stream");
            let used_at = self.conns.front_to_back(idle).map(|id| self.conns.open(id).used_at);
            assert!(used_at.is_sorted_by(|one, next| one >= next), "seed {seed}: idle connections of an address");
            let leased: usize = of_address().filter_map(|(_, conn)| open_of(conn)).map(|open| open.streams.taken).sum();
            let dials = of_address().filter(|(_, conn)| matches!(conn.stage, Stage::Dialling(_))).count();
            assert_eq!(address, (leased, dials), "seed {seed}: requests and dials of an address");
        }
    }

    /// Checks 1 and 2 for the pool.
    fn check_figures(&self, seed: u64) {
        let counters = self.counters();
        let conns = || self.conns.iter().map(|(_, conn)| conn);
        let opens = || conns().filter_map(open_of);
        assert_eq!(counters.slots, conns().filter(|conn| conn.holds_slot).count(), "seed {seed}: slots");
        let dialling = conns().filter(|conn| matches!(conn.stage, Stage::Dialling(_))).count();
        assert_eq!(counters.dialling, dialling, "seed {seed}: dials");
        let closing = conns().filter(|conn| matches!(conn.stage, Stage::Closing)).count();
        assert_eq!(counters.closing, closing, "seed {seed}: closing");
        assert_eq!(counters.busy, opens().filter(|open| open.streams.taken > 0).count(), "seed {seed}: busy");
        assert_eq!(counters.leased, opens().map(|open| open.streams.taken).sum::<usize>(), "seed {seed}: leased");
        assert_eq!(counters.idle, opens().filter(|open| open.listed == Listed::Idle).count(), "seed {seed}: idle");
        let carries_requests = |conn: &&conn::Conn<T>| open_of(conn).is_some_and(|open| open.streams.taken > 0);
        let retiring = || conns().filter(|conn| conn.holds_slot && conn.end_cause.is_some()).filter(carries_requests);
        assert_eq!(counters.retiring, retiring().count(), "seed {seed}: retiring");
        let yielding = retiring().filter(|conn| conn.end_cause == Some(CloseCause::MadeRoom)).count();
        assert_eq!(counters.yielding, yielding, "seed {seed}: yielding");
        let undialled = self.waiters.iter().filter(|waiter| waiter.dials.in_flight == 0).count();
        assert_eq!(counters.undialled, undialled, "seed {seed}: requests without a dial");
        check_queue(counters.totals.queue, self.waiters.iter().count(), seed);
        let queued: u64 = counters.totals.queued.iter().sum();
        assert_eq!(queued, counters.totals.queue.entered, "seed {seed}: requests in the queue by limit");
        assert!(counters.leased <= counters.totals.most_leased, "seed {seed}: the most requests at a time");
    }

    /// Checks 1, 2 and 7 for a host.
    fn check_host_figures(&self, index: usize, seed: u64) {
        let host = &self.hosts[index];
        let conns = || self.conns.iter().map(|(_, conn)| conn).filter(|conn| conn.host == index);
        let opens = || conns().filter_map(open_of);
        assert!(!host.is_unused(), "seed {seed}: the record of a host that is not used");
        assert_eq!(host.conns.records, conns().count(), "seed {seed}: records");
        assert_eq!(host.conns.slots, conns().filter(|conn| conn.holds_slot).count(), "seed {seed}: slots");
        assert!(host.conns.slots <= host.limits.max_connections, "seed {seed}: over the host's limit");
        let usable = || conns().filter(|conn| conn.end_cause.is_none());
        assert_eq!(host.open_conns(), usable().filter_map(open_of).count(), "seed {seed}: open connections");
        let http1 = usable().filter_map(open_of).filter(|open| !open.is_http2).count();
        assert_eq!(host.conns.http1, http1, "seed {seed}: usable connections that speak HTTP/1");
        let unannounced = opens().filter(|open| open.streams.is_unannounced).count();
        assert_eq!(host.conns.unannounced, unannounced, "seed {seed}: unannounced streams");
        assert_eq!(host.conns.busy, opens().filter(|open| open.streams.taken > 0).count(), "seed {seed}: busy");
        assert_eq!(host.conns.leased, opens().map(|open| open.streams.taken).sum::<usize>(), "seed {seed}: leased");
        let closing = conns().filter(|conn| matches!(conn.stage, Stage::Closing)).count();
        assert_eq!(host.counters().closing, closing, "seed {seed}: closing");
        assert!(host.conns.leased > 0 || host.conns.leased_since == 0, "seed {seed}: times of leases");
        check_queue(host.facts.totals.queue, self.waiters.iter().filter(|waiter| waiter.host == index).count(), seed);
    }

    /// Checks 3, and 9: no request waits without a dial that can be relied on, while one may begin.
    fn check_dials(&self, now: Instant, index: usize, seed: u64) {
        let host = &self.hosts[index];
        let dials = &host.dials;
        let of_host = self.conns.iter().filter(|(_, conn)| conn.host == index);
        let in_flight: Vec<_> = of_host.filter(|(_, conn)| matches!(conn.stage, Stage::Dialling(_))).collect();
        let at = |pace: Pace| in_flight.iter().filter(move |(_, conn)| conn.dialling().pace == pace).count();
        assert_eq!(dials.in_flight, in_flight.len(), "seed {seed}: dials");
        let counted = (dials.young.len(), dials.slow.len(), dials.given_up);
        assert_eq!(counted, (at(Pace::Young), at(Pace::Slow), at(Pace::GivenUp)), "seed {seed}: dials by pace");
        let extra = in_flight.iter().filter(|(_, conn)| conn.dialling().is_extra).count();
        assert_eq!(dials.extra, extra, "seed {seed}: extra dials");
        let young = self.walk(&dials.young);
        assert!(young.len() <= host.limits.max_dials, "seed {seed}: too many dials");
        assert!(young.iter().all(|dial| self.conns[*dial].dialling().slow_at > now), "seed {seed}: a slow dial");
        let waits = host.queue.to_dial_for() > 0;
        let is_carried = host.will_have_streams(now, 0) || !young.is_empty();
        let has_all = host.speaks == Speaks::Http2 && host.http2_room(now) == 0;
        if waits && !is_carried && !has_all && !host.is_paused(now) && !dials.pauses_again(now) {
            assert!(host.needed_dials(now, 0) > 0, "seed {seed}: a request waits without a dial");
        }
    }

    /// Checks 3 from the requests' side.
    fn check_requests(&self, index: usize, seed: u64) {
        let host = &self.hosts[index];
        let lists = [&host.queue.fresh, &host.queue.again, &host.queue.failed];
        let mut listed = 0;
        for (id, waiter) in self.waiters.in_order(&host.queue).map(|id| (id, &self.waiters[id])) {
            let is_own = |conn: &conn::Conn<T>| matches!(&conn.stage, Stage::Dialling(dial) if dial.owner == Some(waiter.id(id)));
            let own: Vec<_> = self.conns.iter().filter(|(_, conn)| is_own(conn)).collect();
            assert_eq!(waiter.dials.in_flight as usize, own.len(), "seed {seed}: the dials of a request");
            let mut young = own.iter().filter(|(_, conn)| conn.dialling().pace == Pace::Young).map(|(id, _)| *id);
            assert_eq!(
                (young.next(), young.next()),
                (waiter.dials.young(), None),
                "seed {seed}: its dial that is not slow"
            );
            assert!(waiter.failure.is_none() || !host.queue.failed.is_empty(), "seed {seed}: a failure in no list");
            listed += usize::from(waiter.failure.is_some() || waiter.dials.young().is_none());
        }
        assert_eq!(lists.into_iter().map(List::len).sum::<usize>(), listed, "seed {seed}: lists of requests");
        assert!(host.dials.in_flight >= host.dials.given_up, "seed {seed}: dials that were given up");
    }

    /// Checks 4.
    fn check_lists(&self, index: usize, seed: u64) {
        let host = &self.hosts[index];
        let idle = self.walk(&host.conns.idle);
        let times: Vec<_> = idle.iter().map(|id| self.conns.open(*id).used_at).collect();
        assert!(times.is_sorted_by(|newer, older| newer >= older), "seed {seed}: idle connections out of order");
        assert!(idle.len() <= host.limits.max_idle, "seed {seed}: too many idle connections");
        let conns = self.conns.iter().map(|(_, conn)| conn).filter(|conn| conn.host == index);
        let (mut idle, mut shared) = (0, 0);
        for conn in conns {
            let Some(open) = open_of(conn) else { continue };
            let expected = match (conn.end_cause, open.streams.taken) {
                (None, 0) => Listed::Idle,
                (None, taken) if taken < open.streams.allowed => Listed::Shared,
                _ => Listed::No,
            };
            assert_eq!(open.listed, expected, "seed {seed}: the list of a connection");
            idle += usize::from(expected == Listed::Idle);
            shared += usize::from(expected == Listed::Shared);
        }
        assert_eq!((host.conns.idle.len(), host.conns.shared.len()), (idle, shared), "seed {seed}: lists");
    }

    /// Checks 5.
    fn check_delivery(&self, now: Instant, index: usize, seed: u64) {
        let conns = self.conns.iter().filter(|(_, conn)| conn.host == index && open_of(conn).is_some());
        for (id, _) in conns.filter(|(_, conn)| conn.has_free_stream()) {
            if let Some(first) = self.first_taker(now, id) {
                let refuses = self.waiters[first].needs.refuses_used;
                assert!(refuses, "seed {seed}: a request waits beside a connection that it takes");
            }
        }
    }

    /// Checks 6.
    fn check_turn(&self, now: Instant, index: usize, seed: u64) {
        let host = &self.hosts[index];
        // As time passes, the window may allow more. The host is looked at again for that.
        let is_kept_out = host.is_contender && host.wanted_dials(now, 0) > 0;
        let has_its_share = host.dials.are_in_trouble() && !self.slots.is_within_share(host.dials.live() + 1);
        assert!(
            !(is_kept_out && self.slots.has_room()) || has_its_share,
            "seed {seed}: a slot is free and a request waits"
        );
    }

    /// Checks that the host's timer is not later than the first of its timeouts.
    fn check_timer(&self, now: Instant, index: usize, seed: u64) {
        let host = &self.hosts[index];
        let idle = host.conns.idle.back().and_then(|oldest| self.idle_until(now, oldest));
        let young = self.walk(&host.dials.young).into_iter().map(|dial| self.conns[dial].dialling().slow_at).min();
        // Where a dial was given up, its end has the host looked at.
        let is_limited = host.is_paused(now) || !host.has_room(now) || host.dials.given_up > 0;
        let fresh_since = host.queue.fresh_since.filter(|_| !is_limited);
        let stands_still_at = fresh_since.map(|since| (since + PATIENCE).max(now + PATIENCE));
        let timeouts =
            [idle, young, stands_still_at, host.queue.next_end(), host.dials.settings_by, host.dials.paused_until];
        for timeout in timeouts.into_iter().flatten() {
            assert!(host.timer.is_some_and(|timer| timer <= timeout), "seed {seed}: a timer is late");
        }
        assert!(host.queue.is_empty() || host.queue.next_end().is_some(), "seed {seed}: a request may wait forever");
        assert!(host.queue.failed.is_empty() || host.timer.is_some(), "seed {seed}: a failure is never told");
    }

    /// Checks 8 for the pool.
    fn check_warm_hosts(&self, seed: u64) {
        let kept = self.hosts.slab.iter().filter(|(_, host)| host.warm.is_some()).count();
        assert_eq!(self.warm_hosts.len(), kept, "seed {seed}: hosts that are kept warm");
        assert!(kept == 0 || !self.is_draining, "seed {seed}: kept warm in a pool being drained");
    }

    /// Checks 8 for a host.
    fn check_warm(&self, now: Instant, index: usize, seed: u64) {
        let host = &self.hosts[index];
        let Some(warm) = &host.warm else { return };
        assert!(host.limits.min_idle > 0, "seed {seed}: a host is kept warm and should not be");
        assert!(!warm.is_forgotten(now), "seed {seed}: a host is kept warm for too long");
        assert!(host.timer.is_some_and(|timer| timer <= warm.look_at), "seed {seed}: a look is late");
        let is_closing = host.conns.slots > host.conns.usable;
        if host.conns.usable < self.min_idle(index) && !is_closing {
            assert!(warm.is_looked_at_in_time(now), "seed {seed}: a connection lacks and none will be opened");
        }
    }

    /// Returns the connections of a list, from front to back.
    fn walk<const L: usize>(&self, list: &List<L>) -> Vec<usize> {
        self.conns.front_to_back(list).collect()
    }
}

/// Checks that each request that entered the queue waits, or was counted once as it left.
fn check_queue(queue: QueueStats, waiting: usize, seed: u64) {
    let left = queue.served + queue.failed + queue.timed_out + queue.cancelled;
    assert_eq!(queue.entered, left + waiting as u64, "seed {seed}: {queue:?}, and {waiting} wait");
}

/// Returns a connection that is open.
fn open_of<T: PoolTypes>(conn: &conn::Conn<T>) -> Option<&conn::OpenConn<T>> {
    match &conn.stage {
        Stage::Open(open) => Some(open),
        _ => None,
    }
}
