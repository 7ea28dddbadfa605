//! Open connections: their seats, and the end of them. A core.

use std::hash::Hash;
use std::time::Duration;

use super::{Conn, Effect, Ended, Grant, Held, Home, Listed, Open, Opened, PER_HOST, Speaks, Stage, State, Wish};
use crate::clock::Instant;
use crate::list::List;
use crate::trace::CloseCause;

/// Among so many connections one of the request's own runtime is looked for. Mostly there is one runtime.
const LOOKED_AT: usize = 16;

impl<K: Clone + Eq + Hash, C: Clone, W, E> State<K, C, W, E> {
    /// A connection with a free seat: one of the request's own runtime rather than others, a busy one rather than an
    /// idle one, the most recently used rather than others. A request that failed before gets no idle one, nor the one
    /// on which it failed; one that needs a `rest` none that was idle for less.
    pub(super) fn with_a_seat(
        &mut self,
        now: Instant,
        host: usize,
        wish: Wish,
        rest: Option<Duration>,
    ) -> Option<usize> {
        loop {
            let found = self.any_seat(now, host, wish, rest)?;
            let Some(cause) = self.overdue(now, found) else { return Some(found) };
            self.end(found, cause);
            self.settle(now, found);
            self.fill(now, host);
        }
    }

    fn any_seat(&self, now: Instant, host: usize, wish: Wish, rest: Option<Duration>) -> Option<usize> {
        let is_own = |id: &usize| self.open(*id).home == wish.home;
        let shared = self.shared_seat(host, wish);
        if shared.as_ref().is_some_and(is_own) {
            return shared;
        }
        let idle = self.idle_seat(now, host, wish, rest);
        let found = idle.filter(is_own);
        if wish.own { found } else { found.or(shared).or(idle) }
    }

    fn shared_seat(&self, host: usize, wish: Wish) -> Option<usize> {
        self.nearest(&self.hosts[host].shared, wish.home, |id| Some(self.conns[id].serial) != wish.failed_on)
    }

    fn idle_seat(&self, now: Instant, host: usize, wish: Wish, rest: Option<Duration>) -> Option<usize> {
        let entry = &self.hosts[host];
        // A request that comes again suspects those that are idle, but there is no other one while the server wants calm.
        if wish.failed_on.is_some() && entry.calm.is_none() {
            return None;
        }
        self.nearest(&entry.idle, wish.home, |id| {
            let open = self.open(id);
            let has_rested = open.many || rest.is_none_or(|rest| now.saturating_duration_since(open.since) >= rest);
            // One whose peer allows no request at the moment stays idle.
            open.seats > 0 && has_rested && Some(self.conns[id].serial) != wish.failed_on
        })
    }

    /// The first connection of a list that fits, or one not far behind it that `home` serves.
    fn nearest(&self, list: &List<PER_HOST>, home: Home, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let behind = |id: &usize| list.after(&self.conns, *id);
        let mut fitting = std::iter::successors(list.front(), behind).filter(|id| fits(*id)).peekable();
        let first = *fitting.peek()?;
        let own = fitting.take(LOOKED_AT).find(|id| self.open(*id).home == home);
        Some(own.unwrap_or(first))
    }

    /// How long a kept connection that speaks HTTP/1 has to have been idle for a request that must be sent once. Over HTTP/2 requests
    /// share connections, and servers say which ones they leave out.
    pub(super) fn rest(&self, now: Instant, host: usize, once: bool) -> Option<Duration> {
        let entry = &self.hosts[host];
        let is_http2 = entry.speaks == Speaks::Many && entry.singles == 0;
        if !once || is_http2 {
            return None;
        }
        self.conduct.rest(now, &entry.key)
    }

    /// Takes a seat.
    pub(super) fn seat(&mut self, now: Instant, id: usize) -> Grant<C> {
        let host = self.conns[id].host;
        let most = self.limits(host).max_requests;
        let held = Held { id: self.id(id), since: now };
        let open = self.open_mut(id);
        let idle = if open.taken == 0 { now.saturating_duration_since(open.since) } else { Duration::ZERO };
        let (conn, requests, first) = (open.conn.clone(), open.requests, open.taken == 0);
        open.taken += 1;
        open.requests += 1;
        let (full, last) = (open.taken >= open.seats, open.requests >= most);
        self.books.leased += 1;
        self.books.busy += usize::from(first);
        self.count(host, |tally| tally.reused += u64::from(requests > 0));
        let entry = &mut self.hosts[host];
        entry.leased += 1;
        entry.busy += usize::from(first);
        if first || full {
            self.unlist(id);
        }
        if last {
            self.end_when_possible(id, CloseCause::Requests);
        }
        if first && !full && self.conns[id].ended.is_none() {
            self.list(id);
        }
        Grant { held, conn, requests, idle, freed: false }
    }

    /// It is known how many seats a connection has, or does not matter any more.
    pub(super) fn is_said(&mut self, id: usize) {
        let host = self.conns[id].host;
        if let Stage::Open(open) = &mut self.conns[id].stage
            && std::mem::take(&mut open.unsaid)
        {
            self.hosts[host].unsaid -= 1;
        }
    }

    /// Gives a seat back.
    pub(super) fn unseat(&mut self, now: Instant, id: usize, ended: Ended) {
        let host = self.conns[id].host;
        let open = self.open_mut(id);
        open.taken -= 1;
        open.fresh = None;
        open.unused = ended == Ended::Unused && open.taken == 0;
        if ended != Ended::Unused {
            open.since = now;
        }
        let free = usize::from(open.taken == 0);
        if free > 0 {
            self.stop_retiring(id);
        }
        self.books.leased -= 1;
        self.books.busy -= free;
        self.hosts[host].leased -= 1;
        self.hosts[host].busy -= free;
    }

    /// A connection that takes no more requests has none any more, or no socket.
    pub(super) fn stop_retiring(&mut self, id: usize) {
        let conn = &self.conns[id];
        if let Some(cause) = conn.ended.filter(|_| conn.open) {
            self.books.retiring -= 1;
            self.books.yielding -= usize::from(cause == CloseCause::MadeRoom);
        }
    }

    /// Takes a new connection into the books. Whether its name's answers are not known.
    pub(super) fn admit(&mut self, now: Instant, id: usize, opened: Opened<C>) -> bool {
        let Opened { fresh, conn, speaks, location, home } = opened;
        let host = self.conns[id].host;
        let limits = *self.limits(host);
        let (said, ahead) = match self.conns[id].stage {
            Stage::Dialling { said, ahead, .. } => (said, ahead),
            _ => (None, false),
        };
        let entry = &mut self.hosts[host];
        entry.speaks = speaks;
        let unsaid = speaks == Speaks::Many && said.is_none() && self.conns[id].ended.is_none();
        let seats = said.filter(|_| speaks == Speaks::Many).unwrap_or(1);
        entry.unsaid += usize::from(unsaid);
        entry.singles += usize::from(speaks != Speaks::Many && self.conns[id].ended.is_none());
        if ahead || !entry.queue.is_empty() {
            entry.pace.grow(now, limits.max_dials);
        }
        let location = location.filter(|_| self.conns[id].open);
        let unknown = location.as_ref().is_some_and(|location| self.names.opened(now, location));
        let (expires, listed) = (now.checked_add(jittered(limits.lifetime, self.conns[id].serial)), Listed::No);
        let fresh = Some(fresh);
        self.conns[id].stage = Stage::Open(Open {
            conn,
            fresh,
            many: speaks == Speaks::Many,
            seats,
            unsaid,
            unused: false,
            taken: 0,
            requests: 0,
            since: now,
            expires,
            due: None,
            listed,
            location,
            home,
        });
        unknown
    }

    /// Why a connection should take no more requests now, if it should not.
    pub(super) fn overdue(&self, now: Instant, id: usize) -> Option<CloseCause> {
        let Conn { host, ended, .. } = self.conns[id];
        let open = self.open(id);
        let is_expired = open.expires.is_some_and(|expires| expires <= now);
        if ended.is_some() {
            None
        } else if (is_expired || open.due.is_some()) && !self.is_needed(id) {
            open.due.or(Some(CloseCause::Lifetime))
        } else if self.must_yield(now, host, open.taken > 0) || (!open.many && self.wants_room(host)) {
            Some(CloseCause::MadeRoom)
        } else {
            None
        }
    }

    /// A connection is to take no more requests, by the client's own choice. It goes on as long as it is needed.
    pub(super) fn end_when_possible(&mut self, id: usize, cause: CloseCause) {
        if !self.is_needed(id) {
            return self.end(id, cause);
        }
        if let Stage::Open(open) = &mut self.conns[id].stage {
            open.due.get_or_insert(cause);
        }
    }

    /// Returns true if a connection carries requests and there is no room for another one beside it: if it took no more requests,
    /// its host could not be reached before the last of them is over.
    fn is_needed(&self, id: usize) -> bool {
        let Conn { host, open, ended, .. } = self.conns[id];
        let is_shared = matches!(&self.conns[id].stage, Stage::Open(open) if open.many && open.taken > 0);
        let entry = &self.hosts[host];
        // Where the total is reached, an idle connection makes room.
        let total_has_room = self.has_room() || !self.idle.is_empty();
        let has_room = total_has_room && entry.places < self.limits(host).max_connections && entry.calm.is_none();
        is_shared && open && ended.is_none() && !has_room
    }

    /// A connection takes no more requests.
    pub(super) fn end(&mut self, id: usize, cause: CloseCause) {
        let Conn { host, ended, .. } = self.conns[id];
        if ended.is_some() {
            return;
        }
        self.conns[id].ended = Some(cause);
        self.hosts[host].usable -= 1;
        self.is_said(id);
        let Stage::Open(open) = &self.conns[id].stage else { return };
        self.hosts[host].singles -= usize::from(!open.many);
        if open.taken > 0 && self.conns[id].open {
            self.books.retiring += 1;
            self.books.yielding += usize::from(cause == CloseCause::MadeRoom);
            self.effects.push_back(Effect::Retired(self.id(id), cause));
        }
        self.unlist(id);
    }

    /// Puts a connection where it belongs after a change: free seats go to requests that wait; without requests it is idle,
    /// or closes if it takes no more.
    pub(super) fn settle(&mut self, now: Instant, id: usize) {
        let host = self.conns[id].host;
        if !matches!(self.conns[id].stage, Stage::Open(_)) {
            return self.remove_if_closed(id);
        }
        while self.has_a_seat(id) && self.first_taker(host, id).is_some() {
            self.deliver(now, host, id);
        }
        match (self.conns[id].ended.is_some(), self.open(id).taken) {
            (true, 0) => self.close(id),
            (true, _) => {}
            (false, 0) if self.open(id).listed == Listed::Idle => {}
            (false, 0) => self.make_idle(now, id),
            (false, _) => {
                self.unlist(id);
                self.list(id);
            }
        }
    }

    fn has_a_seat(&self, id: usize) -> bool {
        let open = self.open(id);
        self.conns[id].ended.is_none() && open.taken < open.seats
    }

    fn make_idle(&mut self, now: Instant, id: usize) {
        let host = self.conns[id].host;
        self.unlist(id);
        self.list(id);
        if self.hosts[host].idle.len() > self.limits(host).max_idle {
            let oldest = self.hosts[host].idle.back().expect("more than the limit");
            self.end(oldest, CloseCause::IdleLimit);
            self.settle(now, oldest);
        }
        if self.idle.len() > self.config.max_idle {
            self.close_oldest(CloseCause::IdleLimit);
        }
        self.set_idle_alarm(now, host);
        // HTTP/2 turned out to be spoken after more connections had been dialled than it takes.
        if self.conns[id].ended.is_none()
            && self.open(id).many
            && self.hosts[host].http2_connections() > self.limits(host).max_http2_connections
        {
            self.end(id, CloseCause::IdleLimit);
            self.settle(now, id);
        }
    }

    /// Ends the least recently used idle connection, if there is one.
    pub(super) fn close_oldest(&mut self, cause: CloseCause) {
        if let Some(oldest) = self.idle.back() {
            self.end(oldest, cause);
            self.close(oldest);
        }
    }

    /// A connection without requests is given up; its place is free when its socket is closed.
    fn close(&mut self, id: usize) {
        let stage = std::mem::replace(&mut self.conns[id].stage, Stage::Closing);
        if let Stage::Open(open) = stage {
            if let Some(location) = open.location.filter(|_| self.conns[id].open) {
                self.names.closed(&location);
            }
            self.effects.push_back(Effect::Close(open.conn));
            self.books.closing += 1;
        }
        self.remove_if_closed(id);
    }

    fn remove_if_closed(&mut self, id: usize) {
        let Conn { host, open, .. } = self.conns[id];
        if !open && matches!(self.conns[id].stage, Stage::Closing) {
            self.books.closing -= 1;
            self.conns.remove(id);
            self.hosts[host].conns -= 1;
        }
    }

    /// Puts a connection in its host's list of those with seats, and of the idle ones.
    fn list(&mut self, id: usize) {
        let Conn { host, ended, .. } = self.conns[id];
        let open = self.open(id);
        let listed = match open.taken {
            _ if ended.is_some() => Listed::No,
            0 => Listed::Idle,
            taken if taken < open.seats => Listed::Shared,
            _ => Listed::No,
        };
        self.open_mut(id).listed = listed;
        match listed {
            Listed::No => {}
            Listed::Shared => self.hosts[host].shared.push_front(&mut self.conns, id),
            // Nobody has used it since, so that it is the next to close; the lists are in the order of that.
            Listed::Idle if self.open(id).unused => {
                if let Some(oldest) = self.hosts[host].idle.back() {
                    let since = self.open(oldest).since;
                    let open = self.open_mut(id);
                    open.since = open.since.min(since);
                }
                self.hosts[host].idle.push_back(&mut self.conns, id);
                self.idle.push_back(&mut self.conns, id);
            }
            Listed::Idle => {
                self.hosts[host].idle.push_front(&mut self.conns, id);
                self.idle.push_front(&mut self.conns, id);
            }
        }
    }

    fn unlist(&mut self, id: usize) {
        let host = self.conns[id].host;
        match std::mem::replace(&mut self.open_mut(id).listed, Listed::No) {
            Listed::No => {}
            Listed::Shared => self.hosts[host].shared.remove(&mut self.conns, id),
            Listed::Idle => {
                self.hosts[host].idle.remove(&mut self.conns, id);
                self.idle.remove(&mut self.conns, id);
            }
        }
    }

    pub(super) fn open(&self, id: usize) -> &Open<C> {
        match &self.conns[id].stage {
            Stage::Open(open) => open,
            _ => unreachable!("the connection is open"),
        }
    }

    fn open_mut(&mut self, id: usize) -> &mut Open<C> {
        match &mut self.conns[id].stage {
            Stage::Open(open) => open,
            _ => unreachable!("the connection is open"),
        }
    }
}

/// A time give or take a tenth, which depends on the connection's number alone.
pub(super) fn jittered(time: Duration, serial: u64) -> Duration {
    // The golden ratio's multiples are spread evenly (Knuth, TAOCP vol. 3, §6.4).
    let spread = serial.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
    let tenth = time / 10;
    time.saturating_sub(tenth).saturating_add(tenth / 512 * spread as u32)
}
