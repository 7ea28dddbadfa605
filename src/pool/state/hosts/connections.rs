//! All connections of the pool: their stages, streams, lists and counters. A core.
//!
//! Every method keeps a connection's record, its host's figures and the pool's figures in step. The decisions are made elsewhere.

use std::collections::HashMap;
use std::ops::Index;
use std::time::Duration;

use slab::Slab;

use super::host::Host;
use crate::clock::Instant;
use crate::list::{List, count_step};
use crate::pool::state::values::conn::{BY_AGE, Conn, Dialling, FreeConns, Listed, OpenConn, Pace, Stage, jittered};
use crate::pool::state::values::{
    ConnId, Counters, Grant, LeaseEnd, LeaseToken, Opened, PoolTypes, Totals, Tracking, Wish,
};
use crate::trace::CloseCause;
use crate::world::RandomState;

/// The connections of all hosts, dials included.
pub(in crate::pool::state) struct Connections<T: PoolTypes> {
    slab: Slab<Conn<T>>,
    /// The indices of connections by their numbers.
    by_number: HashMap<u64, usize, RandomState>,
    /// The idle connections, the most recently used in front.
    pub(in crate::pool::state) idle: List<BY_AGE>,
    /// The most connections that may be idle.
    pub(in crate::pool::state) max_idle: usize,
    /// The number of dials that were given up and have not ended yet.
    pub(in crate::pool::state) given_up: usize,
    /// The counters of connections. Those of slots and waiting requests are kept in `slots.rs` and `queue.rs`.
    pub(in crate::pool::state) counters: Counters,
}

/// A request's conditions for an open connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::pool::state) struct Search<'a, R> {
    pub(in crate::pool::state) wish: &'a Wish,
    /// The runtime of the request, whose connections it gets rather than others.
    pub(in crate::pool::state) runtime: R,
    /// The time for which a used HTTP/1 connection must have been idle to serve the request.
    pub(in crate::pool::state) rest: Option<Duration>,
    /// True if connections to the addresses of earlier attempts will do.
    pub(in crate::pool::state) any_address: bool,
}

impl<'a, R> Search<'a, R> {
    pub(in crate::pool::state) fn new(wish: &'a Wish, runtime: R, rest: Option<Duration>) -> Self {
        Self { wish, runtime, rest, any_address: false }
    }

    /// Returns true if any connection of the request's own runtime will do.
    pub(in crate::pool::state) fn has_no_conditions(&self) -> bool {
        self.wish.failed.is_none() && self.rest.is_none() && self.wish.avoid.is_none()
    }

    /// Returns true unless the connection is that of an earlier attempt, or leads to the address of one that is to be avoided.
    fn allows<T: PoolTypes>(&self, host: &Host<T::Key>, conn: &Conn<T>) -> bool {
        let Wish { failed, avoid, .. } = self.wish;
        let ip = || match (&host.balance, conn.address) {
            (Some(balance), Some(key)) => Some(balance.ip(key)),
            _ => conn.open().location.as_ref().map(|location| location.ip),
        };
        failed.iter().chain(avoid).all(|earlier| {
            conn.serial != earlier.number && (self.any_address || earlier.ip.is_none() || earlier.ip != ip())
        })
    }
}

/// The most connections examined for one of the request's own runtime. Mostly there is one runtime.
const MOST_EXAMINED: usize = 16;

impl<T: PoolTypes> Index<usize> for Connections<T> {
    type Output = Conn<T>;

    #[inline]
    fn index(&self, index: usize) -> &Conn<T> {
        &self.slab[index]
    }
}

// Reading.
impl<T: PoolTypes> Connections<T> {
    /// Creates an empty set, of which at most `max_idle` connections may be idle.
    pub(in crate::pool::state) fn new(max_idle: usize) -> Self {
        Self {
            slab: Slab::new(),
            by_number: HashMap::default(),
            idle: List::default(),
            max_idle,
            given_up: 0,
            counters: Counters::default(),
        }
    }

    #[inline]
    pub(in crate::pool::state) fn open(&self, id: usize) -> &OpenConn<T> {
        self.slab[id].open()
    }

    pub(in crate::pool::state) fn id(&self, index: usize) -> ConnId {
        self.slab[index].id(index)
    }

    /// Returns the connection with this id, unless it is gone.
    pub(in crate::pool::state) fn get(&self, id: ConnId) -> Option<&Conn<T>> {
        self.slab.get(id.index).filter(|conn| conn.serial == id.serial)
    }

    /// Returns the connection with this number, unless it is gone.
    pub(in crate::pool::state) fn of_number(&self, number: u64) -> Option<ConnId> {
        self.by_number.get(&number).map(|index| self.id(*index))
    }

    pub(in crate::pool::state) fn iter(&self) -> impl Iterator<Item = (usize, &Conn<T>)> {
        self.slab.iter().inspect(|_| count_step())
    }

    /// Returns the items of one of the lists of connections, from front to back.
    pub(in crate::pool::state) fn front_to_back<'a, const L: usize>(
        &'a self,
        list: &List<L>,
    ) -> impl Iterator<Item = usize> + use<'a, T, L> {
        list.iter(&self.slab)
    }

    /// Returns the items of one of the lists of connections, from back to front.
    pub(in crate::pool::state) fn back_to_front<'a, const L: usize>(
        &'a self,
        list: &List<L>,
    ) -> impl Iterator<Item = usize> + use<'a, T, L> {
        list.iter_back(&self.slab)
    }

    /// Returns the connections of a host that have a free stream: the shared ones, then the idle ones, the most recently used first.
    pub(in crate::pool::state) fn free_of<'a>(
        &'a self,
        host: &Host<T::Key>,
    ) -> impl Iterator<Item = usize> + use<'a, T> {
        self.front_to_back(&host.conns.shared).chain(self.front_to_back(&host.conns.idle))
    }

    /// Returns true if a connection is there and has a free stream.
    pub(in crate::pool::state) fn is_free(&self, id: usize) -> bool {
        let conn = self.slab.get(id);
        conn.is_some_and(|conn| matches!(conn.stage, Stage::Open(_)) && conn.has_free_stream())
    }

    /// Returns the host of a connection, if that is there and open.
    pub(in crate::pool::state) fn host_of_open(&self, id: usize) -> Option<usize> {
        self.slab.get(id).filter(|conn| matches!(conn.stage, Stage::Open(_))).map(|conn| conn.host)
    }

    /// Finds a connection with a free stream.
    ///
    /// Connections of the request's own runtime are preferred, then busy ones, then the most recently used. A resend never gets the
    /// connection on which it failed, and gets an idle one only during a pause that the server asked for.
    pub(in crate::pool::state) fn find(
        &self,
        now: Instant,
        host: &Host<T::Key>,
        search: &Search<'_, T::Runtime>,
    ) -> Option<usize> {
        let is_own = |id: &usize| self.open(*id).runtime == search.runtime;
        // Most requests over HTTP/1 end here: they have no conditions, and the first idle connection fits.
        if host.conns.shared.is_empty()
            && search.has_no_conditions()
            && let Some(first) = host.conns.idle.front()
            && is_own(&first)
            && self.open(first).streams.allowed > 0
        {
            return Some(first);
        }
        self.find_among(now, host, (&host.conns.shared, &host.conns.idle), search)
    }

    /// Finds a connection with a free stream to an address of a balanced host.
    pub(in crate::pool::state) fn find_at(
        &self,
        now: Instant,
        host: &Host<T::Key>,
        key: usize,
        search: &Search<'_, T::Runtime>,
    ) -> Option<usize> {
        let free = host.balance.as_ref()?.free(key);
        self.find_among(now, host, (&free.shared, &free.idle), search)
    }

    fn find_among<const L: usize>(
        &self,
        now: Instant,
        host: &Host<T::Key>,
        (shared, idle): (&List<L>, &List<L>),
        search: &Search<'_, T::Runtime>,
    ) -> Option<usize> {
        let is_own = |id: &usize| self.open(*id).runtime == search.runtime;
        let shared = self.nearest(now, host, shared, search);
        if shared.as_ref().is_some_and(is_own) {
            return shared;
        }
        let idle = self.nearest(now, host, idle, search);
        let own_idle = idle.filter(is_own);
        if search.wish.own_dial { own_idle } else { own_idle.or(shared).or(idle) }
    }

    /// Returns true if a connection has a free stream and meets a request's conditions.
    ///
    /// A resend does not trust idle connections. During a pause that the server asked for, there will be no others.
    fn fits(&self, now: Instant, host: &Host<T::Key>, id: usize, search: &Search<'_, T::Runtime>) -> bool {
        let conn = &self.slab[id];
        let open = conn.open();
        if !conn.has_free_stream() {
            return false;
        }
        let is_idle = open.streams.taken == 0;
        let is_trusted = search.wish.failed.is_none() || !is_idle || host.is_paused(now);
        let has_rested = open.is_http2 || search.rest.is_none_or(|rest| now - open.used_at >= rest);
        is_trusted && has_rested && search.allows(host, conn)
    }

    /// Returns the first connection of a list that fits, or one not far behind it that the request's own runtime serves.
    fn nearest<const L: usize>(
        &self,
        now: Instant,
        host: &Host<T::Key>,
        list: &List<L>,
        search: &Search<'_, T::Runtime>,
    ) -> Option<usize> {
        let mut fitting = self.front_to_back(list).filter(|id| self.fits(now, host, *id, search)).peekable();
        let first = *fitting.peek()?;
        let own = fitting.take(MOST_EXAMINED).find(|id| self.open(*id).runtime == search.runtime);
        Some(own.unwrap_or(first))
    }
}

// The dial.
impl<T: PoolTypes> Connections<T> {
    /// Adds a connection whose dial begins now. `index` is its host's.
    pub(in crate::pool::state) fn begin_dial(
        &mut self,
        dialling: Dialling,
        serial: u64,
        index: usize,
        host: &mut Host<T::Key>,
    ) -> usize {
        host.dials.extra += usize::from(dialling.is_extra);
        let id = self.slab.insert(Conn::new(dialling, index, serial));
        self.by_number.insert(serial, id);
        host.conns.records += 1;
        host.conns.slots += 1;
        host.conns.usable += 1;
        host.dials.in_flight += 1;
        host.dials.young.push_back(&mut self.slab, id);
        self.counters.dialling += 1;
        id
    }

    /// Has a dial try an address of its balanced host first.
    pub(in crate::pool::state) fn aim(&mut self, host: &mut Host<T::Key>, dial: usize, key: usize) {
        if let Some(balance) = &mut host.balance {
            balance.dial_begun(key);
            self.slab[dial].address = Some(key);
        }
    }

    /// Returns the record of a dial in flight.
    pub(in crate::pool::state) fn dialling_mut(&mut self, dial: usize) -> &mut Dialling {
        self.slab[dial].dialling_mut()
    }

    /// Changes how far a dial is relied on.
    pub(in crate::pool::state) fn set_pace(&mut self, host: &mut Host<T::Key>, dial: usize, pace: Pace) {
        let was_young = self.slab[dial].dialling().pace == Pace::Young;
        self.unlist_dial(host, dial);
        self.slab[dial].dialling_mut().pace = pace;
        if let Some(key) = self.slab[dial].address.filter(|_| was_young && pace != Pace::Young)
            && let Some(balance) = &mut host.balance
        {
            balance.dial_slowed(key);
        }
        match pace {
            Pace::Young => host.dials.young.push_back(&mut self.slab, dial),
            Pace::Slow => host.dials.slow.push_back(&mut self.slab, dial),
            Pace::GivenUp => {
                host.dials.given_up += 1;
                self.given_up += 1;
            }
        }
    }

    fn unlist_dial(&mut self, host: &mut Host<T::Key>, dial: usize) {
        match self.slab[dial].dialling().pace {
            Pace::Young => host.dials.young.remove(&mut self.slab, dial),
            Pace::Slow => host.dials.slow.remove(&mut self.slab, dial),
            Pace::GivenUp => {
                host.dials.given_up -= 1;
                self.given_up -= 1;
            }
        }
    }

    /// Counts a dial as over. Its record stays.
    pub(in crate::pool::state) fn end_dial(&mut self, host: &mut Host<T::Key>, id: usize) {
        self.counters.dialling -= 1;
        host.dials.in_flight -= 1;
        self.unlist_dial(host, id);
        host.dials.extra -= usize::from(self.slab[id].dialling().is_extra);
        if let Some(balance) = &mut host.balance
            && let Some(key) = self.slab[id].address.take()
        {
            balance.dial_ended(key, self.slab[id].dialling().pace == Pace::Young);
        }
    }

    /// Removes a dial that came to nothing. Returns true if it held a slot.
    pub(in crate::pool::state) fn remove_dial(&mut self, host: &mut Host<T::Key>, id: usize) -> bool {
        self.end_dial(host, id);
        self.end(host, id, CloseCause::Unfinished);
        let held_slot = self.free_slot(host, id);
        self.remove(host, id);
        held_slot
    }

    /// Turns a dial that has ended into an open connection without requests.
    pub(in crate::pool::state) fn admit(
        &mut self,
        now: Instant,
        host: &mut Host<T::Key>,
        id: usize,
        opened: Opened<T>,
    ) {
        let conn = &mut self.slab[id];
        let announced = conn.dialling().announced;
        let is_usable = conn.end_cause.is_none();
        if let Some(balance) = &mut host.balance
            && let Some(remote) = opened.remote
            && is_usable
        {
            conn.address = Some(balance.opened(remote));
        }
        // The version of HTTP may be one of the settings that have changed.
        if conn.dialling().outdated_after.is_none() {
            host.speaks = opened.speaks;
        }
        let expires = now.checked_add(jittered(host.limits.lifetime, conn.serial));
        let mut open = OpenConn::new(now, opened, announced, expires);
        open.streams.is_unannounced &= is_usable;
        host.conns.unannounced += usize::from(open.streams.is_unannounced);
        host.conns.http1 += usize::from(!open.is_http2 && is_usable);
        conn.stage = Stage::Open(open);
    }
}

// Streams.
impl<T: PoolTypes> Connections<T> {
    /// Takes a stream of a connection.
    #[inline]
    pub(in crate::pool::state) fn take_stream(
        &mut self,
        now: Instant,
        host: &mut Host<T::Key>,
        id: usize,
    ) -> Grant<T::Conn> {
        let tracking = self.track(now, host, id);
        let conn = &mut self.slab[id];
        let token = LeaseToken { id: conn.id(id), since: now, tracking };
        let open = conn.open_mut();
        let is_first = open.streams.taken == 0;
        let idle = is_first.then(|| now - open.used_at);
        let grant = Grant { token, conn: open.conn.clone(), requests: open.requests, idle, freed: false };
        open.streams.taken += 1;
        open.requests += 1;
        let is_full = open.streams.taken >= open.streams.allowed;
        let changes_list = is_first || is_full;
        let listed = if changes_list { std::mem::replace(&mut open.listed, Listed::No) } else { Listed::No };
        self.counters.leased += 1;
        self.counters.busy += usize::from(is_first);
        host.conns.leased += 1;
        host.conns.leased_since = host.conns.leased_since.wrapping_add(now.nanos());
        host.conns.busy += usize::from(is_first);
        host.facts.totals.most_leased = host.facts.totals.most_leased.max(host.conns.leased);
        self.counters.totals.most_leased = self.counters.totals.most_leased.max(self.counters.leased);
        self.count(host, |totals| totals.reused += u64::from(grant.requests > 0));
        if let Some(idle) = idle {
            host.facts.keep_alive.used(idle);
            host.facts.keep_lost.used(idle);
        }
        self.take_off(host, id, listed);
        if is_first && !is_full {
            self.list(host, id);
        }
        grant
    }

    /// Counts a request of a balanced host for its address.
    #[inline]
    fn track(&mut self, now: Instant, host: &mut Host<T::Key>, id: usize) -> Tracking {
        let Some(balance) = &mut host.balance else { return Tracking::None };
        match self.slab[id].address {
            None => Tracking::None,
            Some(key) if balance.leased(now, key) => Tracking::Probe,
            Some(_) => Tracking::Request,
        }
    }

    /// Ends what [`track`](Self::track) began.
    pub(in crate::pool::state) fn untrack(&mut self, now: Instant, host: &mut Host<T::Key>, token: &LeaseToken) {
        if token.is_tracked()
            && let Some(balance) = &mut host.balance
            && let Some(key) = self.slab[token.id.index].address
        {
            balance.released(now, key, token.tracking == Tracking::Probe);
        }
    }

    /// Gives a stream back.
    pub(in crate::pool::state) fn give_back_stream(
        &mut self,
        now: Instant,
        host: &mut Host<T::Key>,
        id: usize,
        end: LeaseEnd,
    ) {
        let open = self.slab[id].open_mut();
        open.streams.taken -= 1;
        open.fresh = None;
        let is_free = open.streams.taken == 0;
        open.was_unused = end == LeaseEnd::Unused && is_free;
        if end != LeaseEnd::Unused {
            open.used_at = now;
        }
        if is_free {
            self.stop_retiring(id);
        }
        self.counters.leased -= 1;
        self.counters.busy -= usize::from(is_free);
        host.conns.leased -= 1;
        host.conns.busy -= usize::from(is_free);
    }

    /// Sets the number of streams that the peer allows. Returns true if the connection is open.
    pub(in crate::pool::state) fn announce_streams(
        &mut self,
        host: &mut Host<T::Key>,
        id: usize,
        streams: usize,
    ) -> bool {
        let most = host.limits.max_streams;
        let conn = &mut self.slab[id];
        let others = host.open_conns() - usize::from(matches!(conn.stage, Stage::Open(_)) && conn.end_cause.is_none());
        // A connection that takes no requests says something of its server only if there is no other one.
        if conn.end_cause.is_none() && (streams > 0 || others == 0) {
            host.conns.streams_per_conn = streams.min(most);
        }
        match &mut conn.stage {
            Stage::Dialling(dialling) => {
                dialling.announced = Some(streams.min(most));
                false
            }
            Stage::Open(open) => {
                open.streams.allowed = streams.min(most);
                self.stop_expecting_streams(host, id);
                true
            }
            Stage::Closing => false,
        }
    }

    /// Stops expecting a connection's peer to announce its streams.
    fn stop_expecting_streams(&mut self, host: &mut Host<T::Key>, id: usize) {
        if let Stage::Open(open) = &mut self.slab[id].stage
            && open.streams.is_unannounced
        {
            open.streams.is_unannounced = false;
            host.conns.unannounced -= 1;
        }
    }
}

// The end.
impl<T: PoolTypes> Connections<T> {
    /// Returns the record of an open connection.
    pub(in crate::pool::state) fn open_mut(&mut self, id: usize) -> &mut OpenConn<T> {
        self.slab[id].open_mut()
    }

    /// Returns the record of a connection if it is open.
    pub(in crate::pool::state) fn try_open_mut(&mut self, id: usize) -> Option<&mut OpenConn<T>> {
        match &mut self.slab[id].stage {
            Stage::Open(open) => Some(open),
            _ => None,
        }
    }

    /// Lets a connection take no new requests. Returns true if it still carries some, which is worth a report.
    pub(in crate::pool::state) fn end(&mut self, host: &mut Host<T::Key>, id: usize, cause: CloseCause) -> bool {
        let conn = &mut self.slab[id];
        if conn.end_cause.is_some() {
            return false;
        }
        conn.end_cause = Some(cause);
        host.conns.usable -= 1;
        let Stage::Open(open) = &conn.stage else { return false };
        let (address, is_http2) = (conn.address, open.is_http2);
        let is_retiring = open.streams.taken > 0 && conn.holds_slot;
        host.conns.http1 -= usize::from(!is_http2);
        self.stop_expecting_streams(host, id);
        if is_retiring {
            self.counters.retiring += 1;
            self.counters.yielding += usize::from(cause == CloseCause::MadeRoom);
        }
        self.unlist(host, id);
        if let Some(balance) = &mut host.balance
            && let Some(key) = address
        {
            balance.ended(key);
        }
        is_retiring
    }

    /// Counts a connection as no longer retiring: its last request is over, or its socket is closed.
    fn stop_retiring(&mut self, id: usize) {
        let conn = &self.slab[id];
        if let Some(cause) = conn.end_cause
            && conn.holds_slot
        {
            self.counters.retiring -= 1;
            self.counters.yielding -= usize::from(cause == CloseCause::MadeRoom);
        }
    }

    /// Gives up a connection without requests, and returns what it was. Its slot is free when its socket is closed.
    pub(in crate::pool::state) fn begin_closing(&mut self, id: usize) -> Option<OpenConn<T>> {
        match std::mem::replace(&mut self.slab[id].stage, Stage::Closing) {
            Stage::Open(open) => {
                self.counters.closing += 1;
                Some(open)
            }
            _ => None,
        }
    }

    /// Ends a connection whose socket is closed, at whatever stage. Returns true if it held a slot.
    pub(in crate::pool::state) fn lose_socket(&mut self, host: &mut Host<T::Key>, id: usize) -> bool {
        if let Stage::Open(open) = &self.slab[id].stage
            && open.streams.taken > 0
        {
            self.stop_retiring(id);
        }
        let held_slot = self.free_slot(host, id);
        self.end(host, id, CloseCause::Peer);
        held_slot
    }

    fn free_slot(&mut self, host: &mut Host<T::Key>, id: usize) -> bool {
        let held_slot = std::mem::take(&mut self.slab[id].holds_slot);
        host.conns.slots -= usize::from(held_slot);
        held_slot
    }

    /// Removes a connection that is given up and whose socket is closed.
    pub(in crate::pool::state) fn remove_if_closed(&mut self, host: &mut Host<T::Key>, id: usize) {
        let conn = &self.slab[id];
        if !conn.holds_slot && matches!(conn.stage, Stage::Closing) {
            self.counters.closing -= 1;
            self.remove(host, id);
        }
    }

    fn remove(&mut self, host: &mut Host<T::Key>, id: usize) {
        let conn = self.slab.remove(id);
        self.by_number.remove(&conn.serial);
        host.conns.records -= 1;
    }
}

// Lists and counters.
impl<T: PoolTypes> Connections<T> {
    /// Puts an open connection that stands in no list where it belongs.
    pub(in crate::pool::state) fn list(&mut self, host: &mut Host<T::Key>, id: usize) {
        let conn = &mut self.slab[id];
        if conn.end_cause.is_some() {
            return;
        }
        let open = conn.open_mut();
        if open.streams.taken == 0 {
            open.listed = Listed::Idle;
            // A request that takes an idle connection has not waited for its dial.
            if open.fresh.is_some() {
                open.fresh = None;
            }
            let was_unused = open.was_unused;
            self.list_idle(host, id, was_unused);
        } else if open.streams.taken < open.streams.allowed {
            open.listed = Listed::Shared;
            host.conns.shared.push_front(&mut self.slab, id);
            self.at_address(host, id, |free, conns| free.shared.push_front(conns, id));
        }
    }

    /// Puts an open connection where it belongs, from the list in which it stands now or from none.
    pub(in crate::pool::state) fn list_anew(&mut self, host: &mut Host<T::Key>, id: usize) {
        self.unlist(host, id);
        self.list(host, id);
    }

    fn list_idle(&mut self, host: &mut Host<T::Key>, id: usize, was_unused: bool) {
        if !was_unused {
            host.conns.idle.push_front(&mut self.slab, id);
            self.idle.push_front(&mut self.slab, id);
            self.at_address(host, id, |free, conns| free.idle.push_front(conns, id));
            return;
        }
        // It was not used since it was taken, so it is the next to close. The lists are in the order of that.
        if let Some(oldest) = host.conns.idle.back() {
            let used_at = self.open(oldest).used_at;
            let open = self.slab[id].open_mut();
            open.used_at = open.used_at.min(used_at);
        }
        host.conns.idle.push_back(&mut self.slab, id);
        self.idle.push_back(&mut self.slab, id);
        self.at_address(host, id, |free, conns| free.idle.push_back(conns, id));
    }

    /// Changes the lists of a connection's address, if its host is balanced.
    #[inline]
    fn at_address(
        &mut self,
        host: &mut Host<T::Key>,
        id: usize,
        change: impl FnOnce(&mut FreeConns, &mut Slab<Conn<T>>),
    ) {
        if let Some(balance) = &mut host.balance
            && let Some(key) = self.slab[id].address
        {
            change(balance.free_mut(key), &mut self.slab);
        }
    }

    /// Takes an open connection off its list.
    pub(in crate::pool::state) fn unlist(&mut self, host: &mut Host<T::Key>, id: usize) {
        let listed = std::mem::replace(&mut self.slab[id].open_mut().listed, Listed::No);
        self.take_off(host, id, listed);
    }

    /// Takes an open connection off the list in which it stood.
    fn take_off(&mut self, host: &mut Host<T::Key>, id: usize, listed: Listed) {
        match listed {
            Listed::No => {}
            Listed::Shared => {
                host.conns.shared.remove(&mut self.slab, id);
                self.at_address(host, id, |free, conns| free.shared.remove(conns, id));
            }
            Listed::Idle => {
                host.conns.idle.remove(&mut self.slab, id);
                self.idle.remove(&mut self.slab, id);
                self.at_address(host, id, |free, conns| free.idle.remove(conns, id));
            }
        }
    }

    /// Returns true if there is no connection and no dial.
    #[cfg(any(test, fuzzing))]
    pub(in crate::pool::state) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Counts for a host and for the pool.
    pub(in crate::pool::state) fn count(&mut self, host: &mut Host<T::Key>, count: impl Fn(&mut Totals)) {
        count(&mut self.counters.totals);
        count(&mut host.facts.totals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::config::PoolConfig;
    use crate::pool::state::tests::TestTypes;
    use crate::pool::state::values::{Profile, Speaks};

    /// A host and an open connection of it, number 0.
    fn open(config: &PoolConfig, speaks: Speaks) -> (Connections<TestTypes>, Host<u8>, Instant) {
        let now = crate::clock::now();
        let mut host = Host::new(
            crate::clock::now(),
            1,
            Profile { limits: config.limits_for("", 0), speaks, balanced: None },
            Box::default(),
        );
        let mut conns = Connections::new(usize::MAX);
        let id = conns.begin_dial(Dialling::new(now, now), 1, 0, &mut host);
        assert_eq!((conns.counters.dialling, host.conns.slots, host.open_conns()), (1, 1, 0));
        conns.end_dial(&mut host, id);
        conns.admit(now, &mut host, id, Opened { fresh: 7, conn: 7, speaks, location: None, remote: None, runtime: 0 });
        conns.list(&mut host, id);
        (conns, host, now)
    }

    #[test]
    fn an_http1_connection_is_idle_or_busy() {
        let (mut conns, mut host, now) = open(&PoolConfig::new(), Speaks::Http1);
        assert_eq!((conns.idle.back(), host.conns.http1, host.conns.idle.len()), (Some(0), 1, 1));
        for carried in [0, 1] {
            let grant = conns.take_stream(now, &mut host, 0);
            assert_eq!((grant.conn, grant.requests, conns.idle.len()), (7, carried, 0));
            assert_eq!((conns.counters.busy, host.conns.leased, host.conns.shared.len()), (1, 1, 0));
            conns.give_back_stream(now, &mut host, 0, LeaseEnd::Kept { keep_alive: None });
            conns.list(&mut host, 0);
        }
        assert_eq!((conns.counters.busy, conns.idle.len(), conns.counters.totals.reused), (0, 1, 1));
    }

    #[test]
    fn an_http2_connection_has_one_stream_until_its_peer_announces_more() {
        let (mut conns, mut host, now) = open(&PoolConfig::new(), Speaks::Http2);
        assert_eq!((host.conns.unannounced, conns[0].open().streams.allowed), (1, 1));
        assert!(conns.announce_streams(&mut host, 0, 10_000));
        assert_eq!((host.conns.unannounced, conns[0].open().streams.allowed), (0, 1_000), "the configured limit");
        conns.take_stream(now, &mut host, 0);
        assert!(conns[0].has_free_stream());
        assert_eq!((host.conns.shared.len(), host.conns.idle.len()), (1, 0));
    }

    #[test]
    fn a_busy_connection_retires_and_frees_its_slot_when_its_socket_closes() {
        let (mut conns, mut host, now) = open(&PoolConfig::new(), Speaks::Http1);
        conns.take_stream(now, &mut host, 0);
        assert!(conns.end(&mut host, 0, CloseCause::MadeRoom));
        assert!(!conns.end(&mut host, 0, CloseCause::Peer), "it has ended already");
        assert_eq!((conns.counters.retiring, conns.counters.yielding, host.conns.usable), (1, 1, 0));
        assert!(conns.lose_socket(&mut host, 0));
        assert_eq!((conns.counters.retiring, conns.counters.yielding, host.conns.slots), (0, 0, 0));
        conns.give_back_stream(now, &mut host, 0, LeaseEnd::Unused);
        conns.begin_closing(0);
        conns.remove_if_closed(&mut host, 0);
        assert!(conns.is_empty() && host.is_unused());
    }

    #[test]
    fn a_connection_is_free_while_it_is_open_and_has_a_free_stream() {
        let (mut conns, mut host, now) = open(&PoolConfig::new(), Speaks::Http1);
        assert_eq!((conns.is_free(0), conns.free_of(&host).collect::<Vec<_>>()), (true, vec![0]));
        conns.take_stream(now, &mut host, 0);
        assert_eq!((conns.is_free(0), host.counters().busy), (false, 1));
        let dial = conns.begin_dial(Dialling::new(now, now), 2, 0, &mut host);
        assert_eq!((conns.is_free(dial), conns.is_free(99)), (false, false));
        conns.give_back_stream(now, &mut host, 0, LeaseEnd::Kept { keep_alive: None });
        conns.list(&mut host, 0);
        assert_eq!((conns.is_free(0), host.counters().busy, conns.is_empty()), (true, 0, false));
    }
}
