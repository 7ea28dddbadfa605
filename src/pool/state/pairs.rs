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

#[cfg(test)]
mod tests {
    use super::super::queue::{Needs, WaitingRequest};
    use super::super::tests::TestTypes;
    use super::super::types::{Profile, Speaks};
    use super::*;
    use crate::pool::config::PoolConfig;

    struct Parts {
        host: Host<u8>,
        waiters: Waiters<TestTypes>,
        conns: Connections<TestTypes>,
    }

    impl Parts {
        /// A host with requests, numbered from 0, of which the first ones have dials, numbered likewise.
        fn new(requests: usize, dials: usize) -> Self {
            let now = crate::clock::now();
            let profile =
                Profile { limits: PoolConfig::new().limits_for("", 0), speaks: Speaks::Http1, balanced: None };
            let (waiters, conns) = (Waiters::new(usize::MAX), Connections::new(usize::MAX));
            let mut parts = Self { host: Host::new(now, 1, profile, None), waiters, conns };
            for number in 0..requests {
                let needs = Needs {
                    is_resend: false,
                    refuses_used: false,
                    only_runtime: None,
                    not_on: None,
                    not_at: None,
                    shuns_free: false,
                };
                let waiter = WaitingRequest::new(now, 0, number as u64, needs, number as u32);
                parts.waiters.push(&mut parts.host.queue, waiter);
            }
            for number in 0..dials {
                let dial = parts.conns.begin_dial(now, number as u64, 0, &mut parts.host);
                parts.pairs().pair(dial);
            }
            parts
        }

        fn pairs(&mut self) -> Pairs<'_, TestTypes> {
            Pairs { host: &mut self.host, waiters: &mut self.waiters, conns: &mut self.conns }
        }

        /// Returns the requests that the dials are paired with.
        fn paired(&self, dials: usize) -> Vec<Option<usize>> {
            (0..dials).map(|dial| self.conns.waiter_of(dial)).collect()
        }
    }

    #[test]
    fn the_dial_of_a_request_that_left_goes_to_the_first_one_without() {
        let mut parts = Parts::new(3, 2);
        let left = parts.pairs().remove(0);
        assert!(parts.pairs().pass_on(left.dial.unwrap()));
        assert_eq!(parts.paired(2), [Some(2), Some(1)]);
        let left = parts.pairs().remove(1);
        assert!(!parts.pairs().pass_on(left.dial.unwrap()), "all others have one");
        assert_eq!((parts.paired(2), parts.host.dials.unclaimed.front()), (vec![Some(2), None], Some(1)));
    }

    #[test]
    fn a_faster_dial_is_given_to_the_first_request_and_the_two_swap() {
        let mut parts = Parts::new(2, 2);
        let offer = Offer {
            conn: 1,
            number: 1,
            runtime: 0,
            is_used_http1: false,
            is_just_given_back: false,
            is_out_of_use: false,
            is_draining: false,
        };
        parts.pairs().give_to_first(&offer);
        assert_eq!(parts.paired(2), [Some(1), Some(0)]);
        assert_eq!((parts.waiters[0].dial, parts.waiters[1].dial), (Some(1), Some(0)));
    }

    #[test]
    fn a_request_whose_dial_came_to_nothing_gets_the_dial_of_the_last_one() {
        let mut parts = Parts::new(3, 3);
        assert_eq!(parts.pairs().take_dial_of(0), 2);
        assert_eq!((parts.waiters[0].dial, parts.waiters[2].dial), (Some(2), None));
        assert_eq!(parts.host.queue.first_undialled(), Some(2));
    }
}
