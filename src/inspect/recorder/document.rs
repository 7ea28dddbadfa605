//! A snapshot as JSON. Times are whole nanoseconds, times of day are milliseconds of Unix time.

use crate::trace::nanos;
use std::time::SystemTime;

use super::call_members::write_timings;
use super::latency_class::LatencyClass;
use super::snapshot::{OriginSnapshot, RecordedCall, Snapshot};
use super::table::StateTable;
use super::totals::CallTotals;
use crate::inspect::json::JsonWriter;
use crate::inspect::json_members::{TimeForm, write_reason};
use crate::trace::Phase;
use crate::trace::Timings;

impl Snapshot {
    /// Returns the snapshot as JSON: totals per origin, and each kept call with its timings and why it took its time.
    ///
    /// Times are whole nanoseconds, and times of day are milliseconds of Unix time. A member without a value is left out. The
    /// member `timings` of a call has the members that serde writes of [`Timings`], without those that are `null` there.
    pub fn to_json(&self) -> String {
        let mut json = JsonWriter::new();
        json.object(|json| {
            json.key("taken_unix_ms").number(unix_ms(self.taken));
            json.key("since_unix_ms").number(unix_ms(self.since));
            json.key("calls_per_list").number(self.calls_per_list as u64);
            json.key("max_origins").number(self.max_origins as u64);
            json.key("evicted_origins").number(self.evicted_origins);
            json.key("origins").array(|json| self.origins.iter().for_each(|origin| write_origin(json, origin)));
            json.key("tables").array(|json| self.tables.iter().for_each(|table| write_table(json, table)));
        });
        json.finish()
    }
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

fn write_origin(json: &mut JsonWriter, origin: &OriginSnapshot) {
    json.object(|json| {
        json.key("scheme").display(origin.origin.scheme());
        json.key("origin").display(&origin.origin);
        json.key("totals").object(|json| write_totals(json, &origin.totals));
        json.key("calls").array(|json| origin.calls.iter().for_each(|call| write_call(json, call)));
    });
}

fn write_totals(json: &mut JsonWriter, totals: &CallTotals) {
    for (name, count) in [
        ("calls", totals.calls),
        ("failed", totals.failed),
        ("cancelled", totals.cancelled),
        ("server_errors", totals.server_errors),
        ("further_requests", totals.further_requests),
        ("on_new_connections", totals.on_new_connections),
        ("received_bytes", totals.received_bytes),
        ("total_ns", nanos(totals.latency.sum())),
    ] {
        json.key(name).number(count);
    }
    for (name, share) in [("median_ns", 0.5), ("p99_ns", 0.99)] {
        if let Some(time) = totals.latency.quantile(share) {
            json.key(name).number(nanos(time));
        }
    }
    json.key("spent_ns").object(|json| {
        Phase::ALL.into_iter().for_each(|phase| json.key(phase.as_str()).number(nanos(totals.spent(phase))));
    });
    json.key("classes").array(|json| LatencyClass::ALL.into_iter().for_each(|class| write_class(json, totals, class)));
}

fn write_class(json: &mut JsonWriter, totals: &CallTotals, class: LatencyClass) {
    json.object(|json| {
        json.key("from_ns").number(nanos(class.lower()));
        json.key("calls").number(totals.in_class(class));
    });
}

fn write_call(json: &mut JsonWriter, call: &RecordedCall) {
    json.object(|json| {
        json.key("number").number(call.number);
        json.key("started_unix_ms").number(unix_ms(call.started));
        json.key("method").string(&call.method);
        json.key("target").string(&call.target);
        json.key("recent").boolean(call.is_recent);
        json.key("slow").boolean(call.is_slow);
        json.key("failure").boolean(call.is_failure);
        write_why(json, &call.timings);
        json.key("timings").object(|json| write_timings(json, &call.timings));
    });
}

fn write_why(json: &mut JsonWriter, timings: &Timings) {
    let why = timings.why();
    json.key("why").display(&why);
    json.key("reasons").array(|json| {
        why.reasons().iter().for_each(|reason| write_reason(json, reason, TimeForm::Nanos));
    });
}

fn write_table(json: &mut JsonWriter, table: &StateTable) {
    json.object(|json| {
        json.key("title").string(&table.title);
        json.key("columns").array(|json| table.columns.iter().for_each(|column| json.string(column)));
        json.key("rows").array(|json| {
            table.rows.iter().for_each(|row| json.array(|json| row.iter().for_each(|text| json.string(text))));
        });
        json.key("left_out").number(table.left_out as u64);
    });
}
