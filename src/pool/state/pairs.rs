//! The pairing of dials with requests. A core.
//!
//! Each dial is paired with the request it was begun for, so that its failure has exactly one addressee. A connection goes to the
//! request that has waited longest; if that is not the dial's own request, the two swap their dials. A dial whose request leaves is
//! handed to the next request without one, or is unclaimed.

use super::connections::Connections;
use super::host::Host;
use super::queue::{Offer, Waiters, WaitingRequest};
use super::types::PoolTypes;

/// One host's dials and requests.
pub(super) struct Pairs<'a, T: PoolTypes> {
    pub(super) host: &'a mut Host<T::Key>,
    pub(super) waiters: &'a mut Waiters<T>,
    pub(super) conns: &'a mut Connections<T>,
}

impl<T: PoolTypes> Pairs<'_, T> {
    /// Pairs a dial with the first request that has none.
    pub(super) fn pair(&mut self, dial: usize) {
        let waiter = self.waiters.pair_first(&mut self.host.queue, dial);
        self.conns.set_waiter(dial, Some(waiter));
    }

    /// Pairs an unclaimed dial with the first request that has none.
    pub(super) fn claim(&mut self, dial: usize) {
        self.conns.remove_unclaimed(self.host, dial);
        self.pair(dial);
    }

    /// Hands the dial of a request that is gone to the first request without one. Returns false if there is none, and the dial is
    /// unclaimed.
    pub(super) fn pass_on(&mut self, dial: usize) -> bool {
        self.conns.set_waiter(dial, None);
        self.conns.add_unclaimed(self.host, dial);
        if self.host.queue.first_undialled().is_none() {
            return false;
        }
        self.claim(dial);
        true
    }

    /// Pairs a finished dial with the first request that takes it. That one's own dial goes to the request which this one was
    /// meant for.
    pub(super) fn give_to_first(&mut self, offer: &Offer<T::Runtime>) {
        let dial = offer.conn;
        let Some(meant) = self.conns.waiter_of(dial) else {
            return self.conns.remove_unclaimed(self.host, dial);
        };
        let first = self.waiters.first_for_dial(&self.host.queue, offer);
        if first != meant {
            let other = self.waiters[first].dial.replace(dial);
            let other = other.expect("requests with a dial stand before those without");
            self.waiters[meant].dial = Some(other);
            self.conns.set_waiter(other, Some(meant));
        }
        self.conns.set_waiter(dial, Some(first));
    }

    /// Takes a request's dial away, which came to nothing. Requests with a dial stand in front, so the request gets the dial of the
    /// last of them, which is returned: it is the first without a dial now.
    pub(super) fn take_dial_of(&mut self, waiter: usize) -> usize {
        let (last, dial) = self.waiters.unpair_last(&mut self.host.queue);
        if last != waiter {
            self.waiters[waiter].dial = Some(dial);
            self.conns.set_waiter(dial, Some(waiter));
        }
        last
    }

    /// Removes a request from the queue. Its dial, if it has one, is for the caller to [pass on](Self::pass_on).
    pub(super) fn remove(&mut self, waiter: usize) -> WaitingRequest<T> {
        self.waiters.remove(&mut self.host.queue, waiter)
    }
}
