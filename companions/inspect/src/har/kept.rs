//! A core: the calls that a HAR recorder keeps, and those that are not over yet.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::entry::HarEntry;

/// The most calls under way whose requests are kept until their end.
const MAX_OPEN_CALLS: usize = 16_384;
/// The most requests of a call that are kept.
const MAX_REQUESTS: usize = 100;

/// The choice of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Those that ended last.
    Last,
    /// Those that took longest.
    Slowest,
}

/// The calls of a document.
#[derive(Debug)]
pub(super) struct KeptCalls {
    choice: Choice,
    /// The most calls that are kept.
    limit: usize,
    /// The ended requests of calls that are under way, by the calls' numbers. A call whose first request is under way has none.
    open: HashMap<u64, Vec<HarEntry>>,
    /// The calls by rank and order. The first one is the first to go.
    calls: BTreeMap<Rank, Arc<HarCall>>,
    /// The places of the calls that have numbers.
    ranks: HashMap<u64, Rank>,
    /// The number of calls so far.
    count: u64,
}

/// The duration of a call, if that decides, and its place in the order of all calls.
type Rank = (Duration, u64);

/// A call, as its requests.
#[derive(Debug, Clone)]
pub(super) struct HarCall {
    /// The call's number in its client; `None` for an entry that the caller added.
    number: Option<u64>,
    pub(super) entries: Vec<HarEntry>,
}

impl KeptCalls {
    pub(super) fn new(choice: Choice, limit: usize) -> Self {
        Self { choice, limit, open: HashMap::new(), calls: BTreeMap::new(), ranks: HashMap::new(), count: 0 }
    }

    /// Takes the start of a request of the call `number`.
    pub(super) fn begin_request(&mut self, number: u64) {
        if self.open.len() < MAX_OPEN_CALLS {
            self.open.entry(number).or_default();
        }
    }

    /// Takes a request of the call `number` that has ended. The attempt of a hedged request that lost may end after its call.
    pub(super) fn end_request(&mut self, number: u64, entry: HarEntry) {
        let entries = match self.open.get_mut(&number) {
            Some(entries) => entries,
            None => match self.ranks.get(&number).and_then(|rank| self.calls.get_mut(rank)) {
                // Copied if a document is being made of it.
                Some(call) => &mut Arc::make_mut(call).entries,
                None => return,
            },
        };
        if entries.len() < MAX_REQUESTS {
            entries.push(entry);
        }
    }

    /// Takes the end of the call `number`, which took `total`. `of_call` makes an entry for a call that sent no request. Returns the
    /// call that made room, so that it is freed without a lock.
    pub(super) fn end_call(
        &mut self,
        number: u64,
        total: Duration,
        of_call: impl FnOnce() -> HarEntry,
    ) -> Option<Arc<HarCall>> {
        let mut entries = self.open.remove(&number).unwrap_or_default();
        if !self.would_keep(total) {
            return Some(Arc::new(HarCall { number: Some(number), entries }));
        }
        if entries.is_empty() {
            entries.push(of_call());
        }
        self.keep(total, HarCall { number: Some(number), entries })
    }

    /// Takes a call that is one request. Returns the call that made room.
    pub(super) fn add(&mut self, entry: HarEntry) -> Option<Arc<HarCall>> {
        let total = entry.timings.total();
        let call = HarCall { number: None, entries: vec![entry] };
        if self.would_keep(total) { self.keep(total, call) } else { None }
    }

    /// Returns the calls, in no particular order.
    pub(super) fn calls(&self) -> Vec<Arc<HarCall>> {
        self.calls.values().cloned().collect()
    }

    /// Returns the number of requests that are kept of calls that are over.
    pub(super) fn len(&self) -> usize {
        self.calls.values().map(|call| call.entries.len()).sum()
    }

    fn would_keep(&self, total: Duration) -> bool {
        let is_full = self.calls.len() >= self.limit;
        let is_slow = || self.calls.first_key_value().is_some_and(|((least, _), _)| *least < total);
        match self.choice {
            _ if self.limit == 0 => false,
            Choice::Last => true,
            Choice::Slowest => !is_full || is_slow(),
        }
    }

    fn keep(&mut self, total: Duration, call: HarCall) -> Option<Arc<HarCall>> {
        self.count += 1;
        let rank = match self.choice {
            Choice::Last => (Duration::ZERO, self.count),
            Choice::Slowest => (total, self.count),
        };
        if let Some(number) = call.number {
            self.ranks.insert(number, rank);
        }
        self.calls.insert(rank, Arc::new(call));
        if self.calls.len() <= self.limit {
            return None;
        }
        let (rank, evicted) = self.calls.pop_first()?;
        if let Some(number) = evicted.number.filter(|number| self.ranks.get(number) == Some(&rank)) {
            self.ranks.remove(&number);
        }
        Some(evicted)
    }
}

#[cfg(test)]
mod tests {
    use speeddial::http::Method;
    use speeddial::url::Url;

    use super::*;
    use crate::samples::{cold_call, ms};

    fn entry() -> HarEntry {
        HarEntry::new(&Method::GET, &Url::parse("http://a.test/").unwrap(), &cold_call())
    }

    /// Returns the numbers of the calls that are kept of calls which take so many milliseconds.
    fn kept(choice: Choice, limit: usize, took: &[u64]) -> Vec<u64> {
        let mut kept = KeptCalls::new(choice, limit);
        for (number, took) in (0..).zip(took) {
            kept.begin_request(number);
            kept.end_request(number, entry());
            kept.end_call(number, ms(*took), || unreachable!("it had a request"));
        }
        assert!(kept.open.is_empty());
        assert_eq!(kept.ranks.len(), kept.calls.len());
        kept.calls().iter().filter_map(|call| call.number).collect()
    }

    #[test]
    fn the_last_or_the_slowest_calls_are_kept() {
        assert_eq!(kept(Choice::Last, 2, &[9, 1, 5, 3]), [2, 3]);
        assert_eq!(kept(Choice::Slowest, 2, &[9, 1, 5, 3]), [2, 0]);
        assert_eq!(kept(Choice::Slowest, 2, &[5, 5, 5]), [0, 1], "of equals the first ones stay");
        assert_eq!(kept(Choice::Slowest, 9, &[2, 1]), [1, 0]);
        assert!(kept(Choice::Last, 0, &[1]).is_empty() && kept(Choice::Slowest, 0, &[1]).is_empty());
    }

    #[test]
    fn a_request_that_ends_after_its_call_belongs_to_it_or_is_dropped() {
        let mut kept = KeptCalls::new(Choice::Last, 1);
        kept.begin_request(1);
        kept.end_request(1, entry());
        kept.end_call(1, ms(9), entry);
        kept.end_request(1, entry());
        assert_eq!((kept.len(), kept.open.len()), (2, 0));
        kept.end_request(7, entry());
        assert_eq!((kept.len(), kept.open.len()), (2, 0), "that call was not kept");
    }

    #[test]
    fn a_request_that_ends_while_a_document_is_made_is_not_in_it() {
        let mut kept = KeptCalls::new(Choice::Slowest, 2);
        for number in [1, 2] {
            kept.begin_request(number);
            kept.end_request(number, entry());
            kept.end_call(number, ms(number), entry);
        }
        let calls = kept.calls();
        kept.end_request(1, entry());
        assert_eq!(calls.iter().map(|call| call.entries.len()).collect::<Vec<_>>(), [1, 1]);
        let evicted = kept.end_call(3, ms(3), entry).expect("there is room for two");
        assert_eq!((evicted.number, evicted.entries.len(), kept.ranks.len()), (Some(1), 2, 2));
        kept.end_request(1, entry());
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn a_call_without_a_request_has_an_entry_and_the_requests_of_a_call_are_bounded() {
        let mut kept = KeptCalls::new(Choice::Last, 9);
        kept.end_call(1, ms(9), entry);
        assert_eq!(kept.len(), 1);
        kept.begin_request(2);
        (0..2 * MAX_REQUESTS).for_each(|_| kept.end_request(2, entry()));
        kept.end_call(2, ms(9), entry);
        assert_eq!(kept.len(), 1 + MAX_REQUESTS);
        (0..2 * MAX_OPEN_CALLS as u64).for_each(|number| kept.begin_request(number));
        assert_eq!(kept.open.len(), MAX_OPEN_CALLS);
    }
}
