//! The requests that wait, and the queue of each host. A core.
//!
//! A host's requests are served in the order they came, resends first: they came before all others. A finished dial and a
//! connection that becomes free go to the first request that takes them. A dial notes the request that it was begun for, which
//! decides nothing but whose runtime it runs on and who hears of its failure.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use slab::Slab;

use crate::clock::Instant;
use crate::list::{Linked, Links, List, count_step};
use crate::pool::state::dials::GRACE;
use crate::pool::state::values::{ConnId, PoolTypes, WaitLimits, WaiterId};

/// The requests that wait, of all hosts.
pub(in crate::pool::state) struct Waiters<T: PoolTypes> {
    slab: Slab<WaitingRequest<T>>,
    /// The number of requests without a dial in flight.
    pub(in crate::pool::state) undialled: usize,
    /// The most requests that may wait without a dial in flight.
    pub(in crate::pool::state) max: usize,
}

/// A request that waits.
pub(in crate::pool::state) struct WaitingRequest<T: PoolTypes> {
    pub(in crate::pool::state) host: usize,
    pub(in crate::pool::state) serial: u64,
    pub(in crate::pool::state) since: Instant,
    pub(in crate::pool::state) needs: Needs<T::Runtime>,
    pub(in crate::pool::state) limits: WaitLimits,
    /// The driver's side of the request.
    pub(in crate::pool::state) handle: T::Waiter,
    pub(in crate::pool::state) dials: OwnDials,
    /// The failure that the request leaves the queue with, unless a connection comes in time.
    pub(in crate::pool::state) failure: Option<Box<Failure<T::Error>>>,
    /// The time at which the request may have waited for too long.
    pub(in crate::pool::state) ends_at: Option<Instant>,
    links: [Links; 2],
}

/// The dials that were begun for a request.
#[derive(Debug, Clone, Copy)]
pub(in crate::pool::state) struct OwnDials {
    /// The dial in flight that is not slow. There is at most one.
    young: Option<u32>,
    /// The number of the first one that was begun, and when, if it is in flight.
    pub(in crate::pool::state) oldest: Option<(NonZeroU64, Instant)>,
    pub(in crate::pool::state) in_flight: u32,
    /// The number of dials begun so far.
    pub(in crate::pool::state) begun: u32,
    /// The time since which no dial is in flight.
    pub(in crate::pool::state) waits_from: Instant,
    /// The time from which on the connect timeout runs.
    pub(in crate::pool::state) connect_from: Instant,
    /// True if a limit has kept the request from being dialled for: the connect timeout runs from the next dial.
    pub(in crate::pool::state) is_limited: bool,
}

impl OwnDials {
    /// Returns the dial in flight that is not slow.
    pub(in crate::pool::state) fn young(&self) -> Option<usize> {
        self.young.map(|dial| dial as usize)
    }
}

/// A dial's failure that a request may leave the queue with.
#[derive(Debug)]
pub(in crate::pool::state) struct Failure<E> {
    pub(in crate::pool::state) error: E,
    pub(in crate::pool::state) at: Instant,
    /// The end of the time for which the request waits for dials that were in flight then.
    pub(in crate::pool::state) hopes_until: Instant,
}

/// The list of its queue in which a request stands, beside the order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitingList {
    /// No dial was begun for the request.
    Fresh,
    /// A dial for the request is in flight and not slow. The request is in no list.
    Dialled,
    /// The dials that were begun for the request have ended or are slow.
    Again,
    /// The request has a [failure](WaitingRequest::failure), and is dialled for no more.
    Failed,
}

/// The connections that a waiting request takes.
#[derive(Debug, Clone, Copy)]
pub(in crate::pool::state) struct Needs<R> {
    /// True if an attempt of the request failed: it stands in front of the other requests.
    pub(in crate::pool::state) is_resend: bool,
    /// True if the request takes no used HTTP/1 connection and, while it has a dial, no HTTP/2 connection that was just given back.
    pub(in crate::pool::state) refuses_used: bool,
    /// The only runtime whose connections the request takes while it has a dial.
    pub(in crate::pool::state) only_runtime: Option<R>,
    /// The number of the only connection that the request never takes: another attempt at it waits there.
    pub(in crate::pool::state) not_on: Option<u64>,
    /// True if the request lets connections become idle for a moment, for another host that has none.
    pub(in crate::pool::state) yields: bool,
    /// The address of a balanced host to which no dial for the request leads, if there are others.
    pub(in crate::pool::state) not_at: Option<IpAddr>,
}

/// The queue of one host.
#[derive(Default)]
pub(in crate::pool::state) struct Queue {
    /// The requests of which an attempt has failed. They are served first.
    resends: List<0>,
    /// The other requests.
    first_attempts: List<0>,
    /// The number of requests without a dial in flight.
    pub(in crate::pool::state) undialled: usize,
    /// The number of first attempts that refuse used connections. All resends do.
    refusing: usize,
    pub(in crate::pool::state) fresh: List<1>,
    /// The arrival of the first request for which no dial was begun.
    pub(in crate::pool::state) fresh_since: Option<Instant>,
    pub(in crate::pool::state) again: List<1>,
    pub(in crate::pool::state) failed: List<1>,
    /// The times at which requests may have waited for too long, with their numbers and indices.
    ends: BTreeSet<(Instant, u64, usize)>,
}

/// A connection that is offered to the requests of its host.
#[derive(Debug, Clone, Copy)]
pub(in crate::pool::state) struct Offer<R> {
    /// The connection's number.
    pub(in crate::pool::state) number: u64,
    pub(in crate::pool::state) runtime: R,
    /// True if the connection speaks HTTP/1 and has carried requests.
    pub(in crate::pool::state) is_used_http1: bool,
    /// True if the connection speaks HTTP/2 and its last request has just ended. Some servers close connections right after an
    /// answer, so a request that failed because of that waits for its own dial, if it has one.
    pub(in crate::pool::state) is_just_given_back: bool,
    /// True if the connection carries requests.
    pub(in crate::pool::state) is_busy: bool,
    /// Set if the connection leads to an address of a balanced host that is out of use. A request takes it after this time, or when its
    /// dial has failed or is slow.
    pub(in crate::pool::state) shunned_for: Option<Duration>,
    /// True if the pool drains. Its last connections then serve every request.
    pub(in crate::pool::state) is_draining: bool,
}

impl<T: PoolTypes> Linked for WaitingRequest<T> {
    fn links(&self, list: usize) -> &Links {
        &self.links[list]
    }

    fn links_mut(&mut self, list: usize) -> &mut Links {
        &mut self.links[list]
    }
}

impl<T: PoolTypes> WaitingRequest<T> {
    /// Creates a request that begins to wait.
    pub(in crate::pool::state) fn new(
        now: Instant,
        host: usize,
        serial: u64,
        needs: Needs<T::Runtime>,
        limits: WaitLimits,
        handle: T::Waiter,
    ) -> Self {
        Self {
            host,
            serial,
            since: now,
            needs,
            limits,
            handle,
            dials: OwnDials {
                young: None,
                oldest: None,
                in_flight: 0,
                begun: 0,
                waits_from: now,
                connect_from: now,
                is_limited: false,
            },
            failure: None,
            ends_at: None,
            links: Default::default(),
        }
    }

    /// Returns the id of the request, given its index.
    pub(in crate::pool::state) fn id(&self, index: usize) -> WaiterId {
        WaiterId { index, serial: self.serial }
    }

    /// Returns the list of its queue in which the request stands.
    fn standing(&self) -> WaitingList {
        match self.dials {
            _ if self.failure.is_some() => WaitingList::Failed,
            OwnDials { young: Some(_), .. } => WaitingList::Dialled,
            OwnDials { begun: 0, .. } => WaitingList::Fresh,
            _ => WaitingList::Again,
        }
    }

    /// Returns the place of the request in the order of service.
    pub(in crate::pool::state) fn turn(&self) -> (bool, u64) {
        (!self.needs.is_resend, self.serial)
    }

    /// Returns true if a dial for the request has failed, was postponed or is slow, and no other one is in flight that can be relied on.
    fn lacks_luck(&self) -> bool {
        let dials = &self.dials;
        let is_unlucky = dials.begun > 0 && dials.young.is_none() && (dials.in_flight > 0 || dials.is_limited);
        is_unlucky || self.failure.is_some()
    }

    /// Returns true if the request takes the connection that is offered.
    pub(in crate::pool::state) fn takes(&self, now: Instant, offer: &Offer<T::Runtime>) -> bool {
        let has_dial = self.dials.young.is_some();
        let is_used = offer.is_used_http1 || (offer.is_just_given_back && has_dial);
        let is_foreign = self.needs.only_runtime.is_some_and(|only| only != offer.runtime);
        let is_yielded = self.needs.yields && offer.is_busy && now - self.since < GRACE;
        let is_shunned = offer.shunned_for.is_some_and(|time| !self.lacks_luck() && now - self.since < time);
        if ((has_dial && is_foreign) || is_shunned || is_yielded) && !offer.is_draining {
            return false;
        }
        !(self.needs.refuses_used && is_used) && self.needs.not_on != Some(offer.number)
    }

    /// Returns the time at which the request's connect timeout passes, if that runs.
    ///
    /// It runs from the request's arrival, or from its first dial if a limit kept it waiting before. A dial that began a moment
    /// later may run to its own end, which says more than that the time is over. While no dial of the request is in flight, it waits
    /// as long as its host answers, of which `progress_at` was the last sign.
    pub(in crate::pool::state) fn connect_end(&self, progress_at: Option<Instant>) -> Option<Instant> {
        let connect = self.limits.connect;
        let from = self.dials.connect_from;
        if self.dials.in_flight == 0 {
            return from.max(progress_at.unwrap_or(from)).checked_add(connect);
        }
        let end = from.checked_add(connect)?;
        let Some((_, begun)) = self.dials.oldest.filter(|_| self.limits.ends_dials) else { return Some(end) };
        let end_of_dial = begun.checked_add(connect)?.checked_add(OWN_ERROR)?;
        Some(end.max(end_of_dial.min(end + MAX_LATE)))
    }
}

/// The time for which a request's own dial is waited for after it should have failed by its timeout.
const OWN_ERROR: Duration = Duration::from_millis(10);

/// The longest time by which a request outlasts its connect timeout, because its dial began later than it came.
const MAX_LATE: Duration = Duration::from_millis(90);

impl Queue {
    #[inline]
    pub(in crate::pool::state) fn len(&self) -> usize {
        self.resends.len() + self.first_attempts.len()
    }

    #[inline]
    pub(in crate::pool::state) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first time at which a request may have waited for too long.
    #[inline]
    pub(in crate::pool::state) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(at, ..)| *at)
    }

    /// Returns the first request that may have waited for too long by now.
    pub(in crate::pool::state) fn first_to_end(&self, now: Instant) -> Option<usize> {
        self.ends.first().filter(|(at, ..)| *at <= now).map(|(.., index)| *index)
    }

    /// Returns the request that is served first.
    pub(in crate::pool::state) fn front(&self) -> Option<usize> {
        self.resends.front().or(self.first_attempts.front())
    }

    fn list_of(&mut self, standing: WaitingList) -> Option<&mut List<1>> {
        match standing {
            WaitingList::Fresh => Some(&mut self.fresh),
            WaitingList::Again => Some(&mut self.again),
            WaitingList::Failed => Some(&mut self.failed),
            WaitingList::Dialled => None,
        }
    }

    fn list(&mut self, is_resend: bool) -> &mut List<0> {
        if is_resend { &mut self.resends } else { &mut self.first_attempts }
    }

    /// Returns the next request that a dial may be begun for: those without any come first.
    pub(in crate::pool::state) fn next_to_dial_for(&self) -> Option<usize> {
        self.fresh.front().or(self.again.front())
    }

    /// Returns the number of requests that a dial may be begun for.
    pub(in crate::pool::state) fn to_dial_for(&self) -> usize {
        self.fresh.len() + self.again.len()
    }

    /// Returns the number of requests that would wait before one that comes now.
    pub(in crate::pool::state) fn length_before(&self, is_resend: bool) -> usize {
        if is_resend { self.resends.len() } else { self.len() }
    }
}

impl<T: PoolTypes> Waiters<T> {
    pub(in crate::pool::state) fn new(max: usize) -> Self {
        Self { slab: Slab::new(), undialled: 0, max }
    }

    pub(in crate::pool::state) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns true if no more requests may wait without a dial in flight.
    pub(in crate::pool::state) fn is_full(&self) -> bool {
        self.undialled >= self.max
    }

    pub(in crate::pool::state) fn iter(&self) -> impl Iterator<Item = &WaitingRequest<T>> {
        self.slab.iter().inspect(|_| count_step()).map(|(_, waiter)| waiter)
    }

    /// Returns the request with this id if it still waits.
    pub(in crate::pool::state) fn get(&self, id: WaiterId) -> Option<&WaitingRequest<T>> {
        self.slab.get(id.index).filter(|waiter| waiter.serial == id.serial)
    }

    /// Returns the requests of a queue, in the order in which they are served.
    pub(in crate::pool::state) fn in_order<'a>(&'a self, queue: &Queue) -> impl Iterator<Item = usize> + use<'a, T> {
        queue.resends.iter(&self.slab).chain(queue.first_attempts.iter(&self.slab))
    }

    /// Returns the requests of one of a queue's lists beside the order of service.
    pub(in crate::pool::state) fn in_list<'a>(&'a self, list: &List<1>) -> impl Iterator<Item = usize> + use<'a, T> {
        list.iter(&self.slab)
    }

    /// Adds a request: at the end of its queue, or behind the other resends if it is one.
    pub(in crate::pool::state) fn push(&mut self, queue: &mut Queue, waiter: WaitingRequest<T>) -> usize {
        let needs = waiter.needs;
        let index = self.slab.insert(waiter);
        queue.refusing += usize::from(needs.refuses_used && !needs.is_resend);
        queue.list(needs.is_resend).push_back(&mut self.slab, index);
        if needs.is_resend {
            queue.fresh.push_front(&mut self.slab, index);
        } else {
            queue.fresh.push_back(&mut self.slab, index);
        }
        self.note_changed(queue, false, true);
        index
    }

    /// Removes a request from its queue.
    pub(in crate::pool::state) fn remove(&mut self, queue: &mut Queue, index: usize) -> WaitingRequest<T> {
        if let Some(list) = queue.list_of(self.slab[index].standing()) {
            list.remove(&mut self.slab, index);
        }
        queue.list(self.slab[index].needs.is_resend).remove(&mut self.slab, index);
        self.set_end(queue, index, None);
        let waiter = self.slab.remove(index);
        queue.refusing -= usize::from(waiter.needs.refuses_used && !waiter.needs.is_resend);
        self.note_changed(queue, waiter.dials.in_flight == 0, false);
        waiter
    }

    /// Sets the time at which a request may have waited for too long.
    pub(in crate::pool::state) fn set_end(&mut self, queue: &mut Queue, index: usize, at: Option<Instant>) {
        let waiter = &mut self.slab[index];
        if let Some(old) = std::mem::replace(&mut waiter.ends_at, at) {
            queue.ends.remove(&(old, waiter.serial, index));
        }
        queue.ends.extend(at.map(|at| (at, waiter.serial, index)));
    }

    /// Sets the time at which a request may have waited for too long, unless it is set to an earlier one.
    pub(in crate::pool::state) fn set_end_earlier(&mut self, queue: &mut Queue, index: usize, at: Instant) {
        if self.slab[index].ends_at.is_none_or(|set| at < set) {
            self.set_end(queue, index, Some(at));
        }
    }

    /// Changes a request, which then stands in the list of its queue that fits.
    pub(in crate::pool::state) fn change(
        &mut self,
        queue: &mut Queue,
        index: usize,
        change: impl FnOnce(&mut WaitingRequest<T>),
    ) {
        let waiter = &mut self.slab[index];
        let (stood, was_undialled) = (waiter.standing(), waiter.dials.in_flight == 0);
        change(waiter);
        let (stands, is_undialled) = (waiter.standing(), waiter.dials.in_flight == 0);
        if stood != stands {
            if let Some(list) = queue.list_of(stood) {
                list.remove(&mut self.slab, index);
            }
            if let Some(list) = queue.list_of(stands) {
                list.push_back(&mut self.slab, index);
            }
        }
        self.note_changed(queue, was_undialled, is_undialled);
    }

    /// Restores what is known of a queue after a change to a request that was undialled, or is now.
    fn note_changed(&mut self, queue: &mut Queue, was_undialled: bool, is_undialled: bool) {
        for undialled in [&mut self.undialled, &mut queue.undialled] {
            *undialled = *undialled + usize::from(is_undialled) - usize::from(was_undialled);
        }
        queue.fresh_since = queue.fresh.front().map(|first| self.slab[first].since);
    }

    /// Notes that a dial begins for a request.
    pub(in crate::pool::state) fn dial_begins(
        &mut self,
        queue: &mut Queue,
        now: Instant,
        index: usize,
        (dial, id): (usize, ConnId),
    ) {
        self.change(queue, index, |WaitingRequest { dials, limits, .. }| {
            // The request would have failed before, had neither a limit kept it waiting nor its host shown signs of life.
            let is_over = dials.connect_from.checked_add(limits.connect).is_some_and(|end| end <= now);
            if dials.in_flight == 0 && (dials.is_limited || is_over) {
                dials.connect_from = now;
                dials.is_limited = false;
            }
            dials.young = Some(u32::try_from(dial).expect("a list has fewer than 2^32 items"));
            dials.in_flight += 1;
            if dials.begun == 0 {
                dials.oldest = NonZeroU64::new(id.serial).map(|number| (number, now));
            }
            dials.begun += 1;
        });
    }

    /// Notes that a request's dial is slow now, or has ended: another one may be begun for it.
    pub(in crate::pool::state) fn dial_is_slow(&mut self, queue: &mut Queue, index: usize, dial: usize) {
        if self.slab[index].dials.young() == Some(dial) {
            self.change(queue, index, |waiter| waiter.dials.young = None);
        }
    }

    /// Notes that a dial of a request has ended. Returns true if an older one of it is in flight.
    pub(in crate::pool::state) fn dial_ends(
        &mut self,
        queue: &mut Queue,
        now: Instant,
        index: usize,
        (dial, id): (usize, ConnId),
    ) -> bool {
        self.dial_is_slow(queue, index, dial);
        self.change(queue, index, |WaitingRequest { dials, .. }| {
            dials.in_flight -= 1;
            dials.waits_from = now;
            dials.oldest = dials.oldest.filter(|(oldest, _)| oldest.get() != id.serial);
        });
        self.slab[index].dials.oldest.is_some()
    }

    /// Lets dials be begun again for the requests of a queue that have failures: one has succeeded.
    pub(in crate::pool::state) fn forgive(&mut self, queue: &mut Queue) {
        while let Some(index) = queue.failed.front() {
            self.change(queue, index, |waiter| waiter.failure = None);
        }
    }

    /// Returns the first request that takes the connection that is offered.
    pub(in crate::pool::state) fn first_taker(
        &self,
        now: Instant,
        queue: &Queue,
        offer: &Offer<T::Runtime>,
    ) -> Option<usize> {
        if offer.is_used_http1 && queue.refusing == queue.first_attempts.len() {
            return None;
        }
        let takes = |index: &usize| self.slab[*index].takes(now, offer);
        let resends = queue.resends.iter(&self.slab).take_while(|_| !offer.is_used_http1);
        let Some(shunned_for) = offer.shunned_for.filter(|_| !offer.is_draining) else {
            return resends.chain(queue.first_attempts.iter(&self.slab)).find(takes);
        };
        // Those who waited for long enough stand in front of the others, of whom only some with bad luck take it.
        let is_old = |index: &usize| now - self.slab[*index].since >= shunned_for;
        let old = resends.chain(queue.first_attempts.iter(&self.slab).take_while(is_old)).find(takes);
        let again = queue.again.iter(&self.slab).find(takes);
        let failed = queue.failed.iter(&self.slab).find(takes);
        [old, again, failed].into_iter().flatten().min_by_key(|index| self.slab[*index].turn())
    }
}

impl<T: PoolTypes> Index<usize> for Waiters<T> {
    type Output = WaitingRequest<T>;

    fn index(&self, index: usize) -> &WaitingRequest<T> {
        &self.slab[index]
    }
}

impl<T: PoolTypes> IndexMut<usize> for Waiters<T> {
    fn index_mut(&mut self, index: usize) -> &mut WaitingRequest<T> {
        &mut self.slab[index]
    }
}
