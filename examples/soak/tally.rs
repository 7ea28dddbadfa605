//! The outcomes of calls, by kind.

use std::collections::BTreeMap;

use crate::calls::{Failure, Kind};

/// The outcomes so far.
#[derive(Default)]
pub(crate) struct Tally {
    succeeded: BTreeMap<Kind, u64>,
    failed: BTreeMap<(Kind, &'static str), Failed>,
}

/// The failures of one kind of call with one kind of error.
pub(crate) struct Failed {
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) example: String,
    /// True if such calls may fail so.
    pub(crate) is_expected: bool,
}

impl Tally {
    pub(crate) fn add(&mut self, kind: Kind, outcome: Result<(), Failure>) {
        let Err(failure) = outcome else {
            *self.succeeded.entry(kind).or_default() += 1;
            return;
        };
        let (word, example) = failure.shown();
        let is_expected = kind.may_fail(&failure);
        let failed = self.failed.entry((kind, word)).or_insert(Failed { count: 0, example, is_expected });
        failed.count += 1;
    }

    /// Returns the calls that have ended.
    pub(crate) fn calls(&self) -> u64 {
        self.succeeded.values().sum::<u64>() + self.failures()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failed.values().map(|failed| failed.count).sum()
    }

    /// Returns the failures, by the kind of call and of error.
    pub(crate) fn failed(&self) -> impl Iterator<Item = (Kind, &'static str, &Failed)> {
        self.failed.iter().map(|((kind, word), failed)| (*kind, *word, failed))
    }

    /// Returns the failures of all calls, by the kind of error.
    pub(crate) fn by_error(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for (_, word, failed) in self.failed() {
            *sums.entry(word).or_default() += failed.count;
        }
        sums
    }

    /// Returns the number of calls of a kind that succeeded.
    pub(crate) fn succeeded(&self, kind: Kind) -> u64 {
        self.succeeded.get(&kind).copied().unwrap_or_default()
    }
}
