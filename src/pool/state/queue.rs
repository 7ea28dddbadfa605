//! The requests that wait, and the queue of each host. A core.
//!
//! A host's requests stand in the order they came: first those with a dial in flight, then those without. A resend stands in front
//! of those without, because it came before them.

use std::net::IpAddr;
use std::ops::{Index, IndexMut};

use slab::Slab;

use super::types::{PoolTypes, WaiterId};
use crate::clock::Instant;
use crate::list::{Linked, Links, List};

/// The requests that wait, of all hosts.
pub(super) struct Waiters<T: PoolTypes> {
    slab: Slab<WaitingRequest<T>>,
    /// The number of requests without a dial in flight.
    undialled: usize,
    /// The most requests that may wait without a dial in flight.
    max: usize,
}

/// A request that waits.
pub(super) struct WaitingRequest<T: PoolTypes> {
    pub(super) host: usize,
    pub(super) serial: u64,
    pub(super) since: Instant,
    pub(super) needs: Needs<T::Runtime>,
    /// The driver's side of the request.
    pub(super) handle: T::Waiter,
    /// The dial in flight that the request is paired with.
    pub(super) dial: Option<usize>,
    links: Links,
}

/// The connections that a waiting request takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs<R> {
    /// True if an attempt of the request failed: it stands in front of the requests without a dial.
    pub(super) is_resend: bool,
    /// True if the request takes no used HTTP/1 connection and, while it has a dial, no HTTP/2 connection that was just given back.
    pub(super) refuses_used: bool,
    /// The only runtime whose connections the request takes while it has a dial.
    pub(super) only_runtime: Option<R>,
    /// The number of the only connection that the request never takes: another attempt at it waits there.
    pub(super) not_on: Option<u64>,
    /// The address of a balanced host to which no dial for the request leads, if there are others.
    pub(super) not_at: Option<IpAddr>,
    /// True if the request is to have a dial of its own, because a free connection leads to an address that is out of use.
    pub(super) shuns_free: bool,
}

/// The queue of one host.
#[derive(Default)]
pub(super) struct Queue {
    list: List<0>,
    first_undialled: Option<usize>,
    undialled: usize,
    /// The number of requests that refuse used connections.
    refusing: usize,
}

/// A connection, or a finished dial, that is offered to the requests of its host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<R> {
    pub(super) conn: usize,
    /// The connection's number.
    pub(super) number: u64,
    pub(super) runtime: R,
    /// True if the connection speaks HTTP/1 and has carried requests.
    pub(super) is_used_http1: bool,
    /// True if the connection speaks HTTP/2 and its last request has just ended. Some servers close connections right after an
    /// answer, so a request that failed because of that waits for its own dial, if it has one.
    pub(super) is_just_given_back: bool,
    /// True if the connection leads to an address of a balanced host that is out of use. A request with a dial of its own waits for
    /// that.
    pub(super) is_out_of_use: bool,
    /// True if the pool drains. Its last connections then serve every request.
    pub(super) is_draining: bool,
}

impl<T: PoolTypes> Linked<0> for WaitingRequest<T> {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<T: PoolTypes> WaitingRequest<T> {
    /// Creates a request that begins to wait.
    pub(super) fn new(now: Instant, host: usize, serial: u64, needs: Needs<T::Runtime>, handle: T::Waiter) -> Self {
        Self { host, serial, since: now, needs, handle, dial: None, links: Links::default() }
    }

    /// Returns true if the request waits for its dial rather than take the connection that is offered.
    fn waits_for_own_dial(&self, offer: &Offer<T::Runtime>) -> bool {
        let is_foreign = self.needs.only_runtime.is_some_and(|only| only != offer.runtime) && !offer.is_draining;
        is_foreign && self.dial.is_some_and(|dial| dial != offer.conn)
    }

    /// Returns true if the request takes the connection that is offered.
    fn takes(&self, offer: &Offer<T::Runtime>) -> bool {
        let is_used = offer.is_used_http1 || (offer.is_just_given_back && self.dial.is_some());
        if offer.is_out_of_use && self.dial.is_some_and(|dial| dial != offer.conn) && !offer.is_draining {
            return false;
        }
        if (self.needs.refuses_used && is_used) || self.needs.not_on == Some(offer.number) {
            return false;
        }
        !self.waits_for_own_dial(offer)
    }
}

impl Queue {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn front(&self) -> Option<usize> {
        self.list.front()
    }

    /// Returns the first request without a dial in flight.
    pub(super) fn first_undialled(&self) -> Option<usize> {
        self.first_undialled
    }

    /// Returns the number of requests without a dial in flight.
    #[inline]
    pub(super) fn undialled(&self) -> usize {
        self.undialled
    }

    /// Returns the number of requests that would wait before one that comes now.
    pub(super) fn length_before(&self, is_resend: bool) -> usize {
        if is_resend { self.len() - self.undialled } else { self.len() }
    }
}

impl<T: PoolTypes> Waiters<T> {
    pub(super) fn new(max: usize) -> Self {
        Self { slab: Slab::new(), undialled: 0, max }
    }

    /// Sets the most requests that may wait without a dial in flight.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Returns the number of requests without a dial in flight.
    pub(super) fn undialled(&self) -> usize {
        self.undialled
    }

    /// Returns true if no more requests may wait without a dial in flight.
    pub(super) fn is_full(&self) -> bool {
        self.undialled >= self.max
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &WaitingRequest<T>> {
        self.slab.iter().map(|(_, waiter)| waiter)
    }

    /// Returns the request with this id if it still waits.
    pub(super) fn get(&self, id: WaiterId) -> Option<&WaitingRequest<T>> {
        self.slab.get(id.index).filter(|waiter| waiter.serial == id.serial)
    }

    /// Returns the request behind another one.
    fn after(&self, queue: &Queue, index: usize) -> Option<usize> {
        queue.list.after(&self.slab, index)
    }

    /// Adds a request: at the end of its queue, or in front of those without a dial if it is a resend.
    pub(super) fn push(&mut self, queue: &mut Queue, waiter: WaitingRequest<T>) -> usize {
        let needs = waiter.needs;
        let index = self.slab.insert(waiter);
        self.undialled += 1;
        queue.undialled += 1;
        queue.refusing += usize::from(needs.refuses_used);
        match queue.first_undialled.filter(|_| needs.is_resend) {
            Some(other) => {
                queue.list.insert_before(&mut self.slab, other, index);
                queue.first_undialled = Some(index);
            }
            None => {
                queue.list.push_back(&mut self.slab, index);
                queue.first_undialled.get_or_insert(index);
            }
        }
        index
    }

    /// Removes a request from its queue.
    pub(super) fn remove(&mut self, queue: &mut Queue, index: usize) -> WaitingRequest<T> {
        if queue.first_undialled == Some(index) {
            queue.first_undialled = self.after(queue, index);
        }
        queue.list.remove(&mut self.slab, index);
        let waiter = self.slab.remove(index);
        queue.refusing -= usize::from(waiter.needs.refuses_used);
        if waiter.dial.is_none() {
            queue.undialled -= 1;
            self.undialled -= 1;
        }
        waiter
    }

    /// Pairs the first request without a dial with `dial`, and returns it.
    pub(super) fn pair_first(&mut self, queue: &mut Queue, dial: usize) -> usize {
        let first = queue.first_undialled.expect("a request without a dial");
        queue.first_undialled = self.after(queue, first);
        self.slab[first].dial = Some(dial);
        queue.undialled -= 1;
        self.undialled -= 1;
        first
    }

    /// Takes the dial from the last request that has one. Returns the request, which is now the first without, and the dial.
    pub(super) fn unpair_last(&mut self, queue: &mut Queue) -> (usize, usize) {
        let last = match queue.first_undialled {
            Some(first) => queue.list.before(&self.slab, first),
            None => queue.list.back(),
        };
        let last = last.expect("a request with a dial");
        let dial = self.slab[last].dial.take().expect("requests with a dial stand in front");
        queue.first_undialled = Some(last);
        queue.undialled += 1;
        self.undialled += 1;
        (last, dial)
    }

    /// Returns the first request that takes the connection that is offered.
    pub(super) fn first_taker(&self, queue: &Queue, offer: &Offer<T::Runtime>) -> Option<usize> {
        if offer.is_used_http1 && queue.refusing == queue.len() {
            return None;
        }
        let mut taker = queue.front()?;
        while !self.slab[taker].takes(offer) {
            taker = self.after(queue, taker)?;
        }
        Some(taker)
    }

    /// Returns the first request that does not wait for a dial of its own, for a finished dial that is paired with one.
    pub(super) fn first_for_dial(&self, queue: &Queue, offer: &Offer<T::Runtime>) -> usize {
        let mut first = queue.front().expect("a paired request waits");
        while self.slab[first].waits_for_own_dial(offer) {
            first = self.after(queue, first).expect("the one the dial was meant for takes it");
        }
        first
    }

    /// Returns the request without a dial whose time is over first. They stand in the order they came, but for the resends, which
    /// stand in front.
    pub(super) fn oldest_undialled(&self, queue: &Queue) -> Option<usize> {
        let mut oldest = queue.first_undialled?;
        let mut next = Some(oldest);
        while let Some(waiter) = next {
            if self.slab[waiter].since < self.slab[oldest].since {
                oldest = waiter;
            }
            next = if self.slab[waiter].needs.is_resend { self.after(queue, waiter) } else { None };
        }
        Some(oldest)
    }

    /// Returns true if the next request to be dialled for takes nothing but a new connection.
    pub(super) fn next_refuses_used(&self, queue: &Queue) -> bool {
        queue.first_undialled.is_some_and(|first| self.slab[first].needs.refuses_used)
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

#[cfg(test)]
mod tests {
    use super::super::tests::TestTypes;
    use super::*;

    const ANY: Needs<u64> = Needs {
        is_resend: false,
        refuses_used: false,
        only_runtime: None,
        not_on: None,
        not_at: None,
        shuns_free: false,
    };
    const USED_HTTP1: Offer<u64> = Offer {
        conn: 0,
        number: 0,
        runtime: 0,
        is_used_http1: true,
        is_just_given_back: false,
        is_out_of_use: false,
        is_draining: false,
    };

    /// A queue of requests with these needs, numbered from 0.
    fn queue(needs: &[Needs<u64>]) -> (Waiters<TestTypes>, Queue) {
        let mut waiters = Waiters::new(usize::MAX);
        let mut queue = Queue::default();
        for (number, needs) in (0..).zip(needs) {
            waiters.push(&mut queue, WaitingRequest::new(crate::clock::now(), 0, number, *needs, number as u32));
        }
        (waiters, queue)
    }

    fn drain(waiters: &mut Waiters<TestTypes>, queue: &mut Queue) -> Vec<u32> {
        std::iter::from_fn(|| queue.front().map(|front| waiters.remove(queue, front).handle)).collect()
    }

    #[test]
    fn a_resend_stands_behind_the_requests_with_a_dial_and_before_the_others() {
        let (mut waiters, mut queue) = queue(&[ANY; 3]);
        waiters.pair_first(&mut queue, 7);
        assert_eq!((queue.length_before(true), queue.length_before(false)), (1, 3));
        let resend = Needs { is_resend: true, ..ANY };
        waiters.push(&mut queue, WaitingRequest::new(crate::clock::now(), 0, 9, resend, 9));
        assert_eq!(queue.undialled(), 3);
        assert_eq!(drain(&mut waiters, &mut queue), [0, 9, 1, 2]);
        assert_eq!((queue.undialled(), waiters.undialled(), waiters.is_empty()), (0, 0, true));
    }

    #[test]
    fn the_last_request_with_a_dial_is_the_first_to_lose_it() {
        let (mut waiters, mut queue) = queue(&[ANY; 3]);
        for dial in [7, 8] {
            waiters.pair_first(&mut queue, dial);
        }
        assert_eq!(waiters.unpair_last(&mut queue), (1, 8));
        assert_eq!((queue.first_undialled(), queue.undialled()), (Some(1), 2));
    }

    #[test]
    fn a_used_connection_goes_to_the_first_request_that_does_not_refuse_it() {
        let refuses = Needs { refuses_used: true, ..ANY };
        let (waiters, line) = queue(&[refuses, ANY, ANY]);
        assert_eq!(waiters.first_taker(&line, &USED_HTTP1), Some(1));
        assert_eq!(waiters.first_taker(&line, &Offer { is_used_http1: false, ..USED_HTTP1 }), Some(0));
        let (waiters, line) = queue(&[refuses]);
        assert_eq!(waiters.first_taker(&line, &USED_HTTP1), None);
    }

    #[test]
    fn a_request_with_a_dial_waits_for_a_connection_of_its_own_runtime() {
        let (mut waiters, mut line) = queue(&[Needs { only_runtime: Some(3), ..ANY }]);
        let offer = Offer { is_used_http1: false, ..USED_HTTP1 };
        assert_eq!(waiters.first_taker(&line, &offer), Some(0), "without a dial it takes any");
        waiters.pair_first(&mut line, 7);
        assert_eq!(waiters.first_taker(&line, &offer), None);
        for taken in
            [Offer { runtime: 3, ..offer }, Offer { conn: 7, number: 7, ..offer }, Offer { is_draining: true, ..offer }]
        {
            assert_eq!(waiters.first_taker(&line, &taken), Some(0), "{taken:?}");
        }
    }

    #[test]
    fn a_connection_that_is_out_of_use_goes_to_a_request_with_a_dial_only_while_the_pool_drains() {
        let (mut waiters, mut line) = queue(&[ANY]);
        let offer = Offer { is_used_http1: false, is_out_of_use: true, ..USED_HTTP1 };
        assert_eq!(waiters.first_taker(&line, &offer), Some(0), "without a dial it takes any");
        waiters.pair_first(&mut line, 7);
        assert_eq!(waiters.first_taker(&line, &offer), None);
        for taken in [Offer { conn: 7, number: 7, ..offer }, Offer { is_draining: true, ..offer }] {
            assert_eq!(waiters.first_taker(&line, &taken), Some(0), "{taken:?}");
        }
    }

    #[test]
    fn a_used_connection_is_offered_after_the_requests_that_refuse_it_have_left() {
        let refuses = Needs { refuses_used: true, ..ANY };
        let (mut waiters, mut line) = queue(&[refuses, ANY, ANY]);
        assert_eq!((waiters.undialled(), waiters.is_empty()), (3, false));
        waiters.remove(&mut line, 0);
        assert_eq!((waiters.first_taker(&line, &USED_HTTP1), waiters.undialled()), (Some(1), 2));
    }

    #[test]
    fn of_requests_that_came_at_the_same_time_the_time_of_the_first_in_the_queue_is_over_first() {
        let now = crate::clock::now();
        let (mut waiters, mut line) = (Waiters::<TestTypes>::new(usize::MAX), Queue::default());
        for (number, is_resend) in [(0, false), (1, true)] {
            waiters.push(&mut line, WaitingRequest::new(now, 0, number, Needs { is_resend, ..ANY }, number as u32));
        }
        assert_eq!(waiters.oldest_undialled(&line), Some(1));
    }
}
