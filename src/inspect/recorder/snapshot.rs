//! The record of a recorder, as plain data.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::latency_class::LatencyClass;
use super::origin_calls::KeptCall;
use super::origin_calls::{ListedCall, OriginCalls};
use super::origins::Origins;
use super::table::StateTable;
use super::totals::{CallTotals, is_failure};
use crate::clock::Instant;
use crate::origin::Origin;
use crate::redact::{self, Query};
use crate::trace::Timings;

/// The record of a [`Recorder`](super::Recorder) at one moment: as plain data, as a page ([`to_html`](Self::to_html)), and as
/// JSON ([`to_json`](Self::to_json)).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Snapshot {
    /// The time of day at which the snapshot was taken.
    pub taken: SystemTime,
    /// The time of day at which the recorder was made.
    pub since: SystemTime,
    /// The most calls that the recorder keeps in each list of an origin.
    pub calls_per_list: usize,
    /// The most origins that the recorder keeps.
    pub max_origins: usize,
    /// The number of origins that were forgotten because there were too many.
    pub evicted_origins: u64,
    /// The origins with their calls, the one with the most calls first.
    pub origins: Vec<OriginSnapshot>,
    /// Further tables, such as the state of the pool and of the DNS cache that [`with_client`](Self::with_client) adds.
    pub tables: Vec<StateTable>,
}

/// The calls to one origin.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OriginSnapshot {
    /// The origin.
    pub origin: Origin,
    /// The figures of all calls, also of those that were not kept.
    pub totals: CallTotals,
    /// The calls that are kept, each once, the latest one first.
    pub calls: Vec<RecordedCall>,
}

/// A call that was kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The number of the call among those to its origin, from 1, in the order in which they ended.
    pub number: u64,
    /// The time of day at which the call began.
    pub started: SystemTime,
    /// The method of the call's first request.
    pub method: String,
    /// The path of the call's first request, with its query if the recorder
    /// [shows queries](super::RecorderBuilder::show_queries). At most 512 bytes.
    pub target: String,
    /// The class of the call's duration.
    pub class: LatencyClass,
    /// True if the call is one of the last ones.
    pub is_recent: bool,
    /// True if the call is one of the slowest ones of its class.
    pub is_slow: bool,
    /// True if the call failed, was cancelled, or has a response of status 5xx.
    pub is_failure: bool,
    /// The call's timings.
    pub timings: Timings,
}

impl Snapshot {
    /// Adds a table, which the page and the JSON text show below the calls.
    pub fn add_table(&mut self, table: StateTable) {
        self.tables.push(table);
    }

    /// Returns the `count` calls that took longest, the slowest one first, among those to the origins that are kept. It is exact up to
    /// [`calls_per_list`](Self::calls_per_list). Calls to origins that made room ([`evicted_origins`](Self::evicted_origins)) are missing.
    pub fn slowest(&self, count: usize) -> Vec<(&Origin, &RecordedCall)> {
        let calls = self.origins.iter().flat_map(|of| of.calls.iter().map(move |call| (&of.origin, call)));
        let mut calls: Vec<_> = calls.collect();
        calls.sort_by_key(|(_, call)| std::cmp::Reverse(call.timings.total()));
        calls.truncate(count);
        calls
    }

    /// Returns the figures of the calls to all origins together.
    pub fn totals(&self) -> CallTotals {
        let mut totals = CallTotals::default();
        self.origins.iter().for_each(|origin| totals.add(&origin.totals));
        totals
    }
}

/// Takes a snapshot at `now`, which is `wall` by the time of day.
pub(super) fn take(origins: &Origins, now: Instant, wall: SystemTime, with_queries: bool) -> Snapshot {
    let query = if with_queries { Query::Whole } else { Query::LeftOut };
    let moment = Moment { now, wall, query };
    let kept = origins.map(|origin, calls| (origin.clone(), calls.totals, lists(calls)));
    let mut all: Vec<_> = kept
        .into_iter()
        .map(|(origin, totals, lists)| OriginSnapshot { origin, totals, calls: moment.calls(lists) })
        .collect();
    all.sort_by_cached_key(|origin| (std::cmp::Reverse(origin.totals.calls), origin.origin.to_string()));
    Snapshot {
        taken: wall,
        since: origins.since,
        calls_per_list: origins.most_calls,
        max_origins: origins.most_origins,
        evicted_origins: origins.evicted(),
        origins: all,
        tables: Vec::new(),
    }
}

/// The list that a call is in.
#[derive(Clone, Copy, PartialEq)]
enum CallList {
    Recent,
    Slowest,
    Failures,
}

/// Lists the calls of all lists, so that the rest is done without the origin's lock.
fn lists(calls: &OriginCalls) -> Vec<(CallList, ListedCall)> {
    let slowest = calls.slowest.iter().flat_map(|slowest| slowest.calls());
    let recent = calls.recent.calls().iter().map(|call| (CallList::Recent, call.clone()));
    let slowest = slowest.map(|call| (CallList::Slowest, call.clone()));
    let failures = calls.failures.calls().iter().map(|call| (CallList::Failures, call.clone()));
    recent.chain(slowest).chain(failures).collect()
}

/// The moment of a snapshot.
struct Moment {
    now: Instant,
    wall: SystemTime,
    query: Query,
}

impl Moment {
    /// Returns each call once, the latest one first.
    fn calls(&self, lists: Vec<(CallList, ListedCall)>) -> Vec<RecordedCall> {
        let mut calls = BTreeMap::new();
        for (list, listed) in lists {
            let call = calls.entry(listed.number).or_insert_with(|| self.call(&listed));
            call.is_recent |= list == CallList::Recent;
            call.is_slow |= list == CallList::Slowest;
        }
        calls.into_values().rev().collect()
    }

    fn call(&self, listed: &ListedCall) -> RecordedCall {
        let KeptCall { request, timings } = &listed.call;
        // Never the authority, which may have credentials.
        let target = request.target.path_and_query().map_or("", |target| target.as_str());
        RecordedCall {
            number: listed.number,
            started: self.time_of_day(timings.start()),
            method: request.method.to_string(),
            target: redact::url(target, self.query),
            class: LatencyClass::of(timings.total()),
            is_recent: false,
            is_slow: false,
            is_failure: is_failure(timings),
            timings: Timings::clone(timings),
        }
    }

    fn time_of_day(&self, at: Instant) -> SystemTime {
        let ago: Duration = self.now - at;
        self.wall.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}
