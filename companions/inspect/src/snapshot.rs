//! The record of a recorder, as plain data and as JSON. In JSON times are whole nanoseconds, times of day milliseconds of Unix time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value, json};
use speeddial::origin::Origin;
use speeddial::redact::{self, Query};
use speeddial::trace::{Phase, Timings};

use crate::calls::{CallTotals, LatencyClass, ListedCall, OriginCalls, is_failure};
use crate::json::{self, TimeForm, array, nanos};
use crate::recorder::Origins;
use crate::tables::StateTable;

/// The record of a [`Recorder`](crate::Recorder) at one moment: as plain data, as a page ([`to_html`](Self::to_html)), and as
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
    /// [shows queries](crate::RecorderBuilder::show_queries). At most 512 bytes.
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
pub(crate) fn take(origins: &Origins, now: Instant, wall: SystemTime, with_queries: bool) -> Snapshot {
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
        let (call, timings) = (&listed.call, &listed.call.timings);
        // Never the authority, which may have credentials.
        let target = call.target().path_and_query().map_or("", |target| target.as_str());
        RecordedCall {
            number: listed.number,
            started: self.time_of_day(timings.started()),
            method: call.method().to_string(),
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

impl Snapshot {
    /// Returns the snapshot as JSON: totals per origin, and each kept call with its timings and why it took its time.
    ///
    /// Times are whole nanoseconds, and times of day are milliseconds of Unix time. A member without a value is left out. The
    /// member `timings` of a call has the members that serde writes of [`Timings`](speeddial::trace::Timings), without those that are `null`
    /// there.
    pub fn to_json(&self) -> String {
        json::text(json!({
            "taken_unix_ms": unix_ms(self.taken),
            "since_unix_ms": unix_ms(self.since),
            "calls_per_list": self.calls_per_list,
            "max_origins": self.max_origins,
            "evicted_origins": self.evicted_origins,
            "origins": array(&self.origins, origin),
            "tables": array(&self.tables, table),
        }))
    }
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

fn origin(origin: &OriginSnapshot) -> Value {
    json!({
        "scheme": origin.origin.scheme().to_string(),
        "origin": origin.origin.to_string(),
        "totals": totals(&origin.totals),
        "calls": array(&origin.calls, call),
    })
}

fn totals(totals: &CallTotals) -> Value {
    let quantile = |share| totals.latency.quantile(share).map(nanos);
    let spent = Phase::ALL.into_iter().map(|phase| (phase.as_str().to_owned(), nanos(totals.spent(phase)).into()));
    json!({
        "calls": totals.calls,
        "failed": totals.failed,
        "cancelled": totals.cancelled,
        "server_errors": totals.server_errors,
        "further_requests": totals.further_requests,
        "on_new_connections": totals.on_new_connections,
        "received_bytes": totals.received_bytes,
        "total_ns": nanos(totals.latency.sum()),
        "median_ns": quantile(0.5),
        "p99_ns": quantile(0.99),
        "spent_ns": spent.collect::<Map<String, Value>>(),
        "classes": array(LatencyClass::ALL, |class| {
            let spent = Phase::ALL.map(|phase| (phase.as_str().to_owned(), nanos(totals.spent_in_class(class, phase)).into()));
            let spent: Map<String, Value> = spent.into_iter().collect();
            json!({ "from_ns": nanos(class.lower()), "calls": totals.in_class(class), "spent_ns": spent })
        }),
    })
}

fn call(call: &RecordedCall) -> Value {
    let why = call.timings.why();
    json!({
        "number": call.number,
        "started_unix_ms": unix_ms(call.started),
        "method": call.method,
        "target": call.target,
        "recent": call.is_recent,
        "slow": call.is_slow,
        "failure": call.is_failure,
        "why": why.to_string(),
        "reasons": array(why.reasons(), |reason| json::reason(reason, TimeForm::Nanos)),
        "timings": call.timings,
    })
}

fn table(table: &StateTable) -> Value {
    let StateTable { title, columns, rows, left_out } = table;
    json!({ "title": title, "columns": columns, "rows": rows, "left_out": left_out })
}
