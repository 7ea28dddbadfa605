//! A snapshot as JSON. Times are whole nanoseconds, times of day are milliseconds of Unix time.

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::latency_class::LatencyClass;
use super::snapshot::{OriginSnapshot, RecordedCall, Snapshot};
use super::table::StateTable;
use super::totals::CallTotals;
use crate::inspect::json::{self, TimeForm, array};
use crate::trace::{Phase, nanos};

impl Snapshot {
    /// Returns the snapshot as JSON: totals per origin, and each kept call with its timings and why it took its time.
    ///
    /// Times are whole nanoseconds, and times of day are milliseconds of Unix time. A member without a value is left out. The
    /// member `timings` of a call has the members that serde writes of [`Timings`](crate::trace::Timings), without those that are `null`
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
