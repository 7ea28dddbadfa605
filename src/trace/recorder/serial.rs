//! Serialization of a snapshot with serde: times are whole nanoseconds, times of day are milliseconds of Unix time.

use std::time::{Duration, SystemTime};

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::latency_class::LatencyClass;
use super::snapshot::{OriginSnapshot, RecordedCall, Snapshot};
use super::table::StateTable;
use super::totals::CallTotals;
use crate::origin::Scheme;
use crate::trace::phase::Phase;
use crate::trace::timings::Timings;

impl Snapshot {
    /// Returns the snapshot as JSON: totals per origin, and each kept call with its timings and why it took its time.
    ///
    /// The keys are those that serde gives other formats.
    #[cfg(feature = "json")]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers can be written as JSON")
    }
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// Serializes the totals of each origin, its kept calls with their timings, and the tables.
impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut snapshot = serializer.serialize_struct("Snapshot", 7)?;
        snapshot.serialize_field("taken_unix_ms", &unix_ms(self.taken))?;
        snapshot.serialize_field("since_unix_ms", &unix_ms(self.since))?;
        snapshot.serialize_field("calls_per_list", &self.calls_per_list)?;
        snapshot.serialize_field("max_origins", &self.max_origins)?;
        snapshot.serialize_field("evicted_origins", &self.evicted_origins)?;
        snapshot.serialize_field("origins", &self.origins)?;
        snapshot.serialize_field("tables", &self.tables)?;
        snapshot.end()
    }
}

impl Serialize for OriginSnapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut origin = serializer.serialize_struct("OriginSnapshot", 4)?;
        let scheme = match self.origin.scheme() {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        origin.serialize_field("scheme", scheme)?;
        origin.serialize_field("origin", &self.origin.to_string())?;
        origin.serialize_field("totals", &self.totals)?;
        origin.serialize_field("calls", &self.calls)?;
        origin.end()
    }
}

impl Serialize for CallTotals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut totals = serializer.serialize_struct("CallTotals", 12)?;
        totals.serialize_field("calls", &self.calls)?;
        totals.serialize_field("failed", &self.failed)?;
        totals.serialize_field("cancelled", &self.cancelled)?;
        totals.serialize_field("server_errors", &self.server_errors)?;
        totals.serialize_field("further_requests", &self.further_requests)?;
        totals.serialize_field("on_new_connections", &self.on_new_connections)?;
        totals.serialize_field("received_bytes", &self.received_bytes)?;
        totals.serialize_field("total_ns", &nanos(self.latency.sum()))?;
        totals.serialize_field("median_ns", &self.latency.quantile(0.5).map(nanos))?;
        totals.serialize_field("p99_ns", &self.latency.quantile(0.99).map(nanos))?;
        totals.serialize_field("spent_ns", &NanosByPhase(self))?;
        totals.serialize_field("classes", &LatencyClass::ALL.map(|class| Class(class, self.in_class(class))))?;
        totals.end()
    }
}

/// A map from the phases' names to their nanoseconds.
struct NanosByPhase<'a>(&'a CallTotals);

impl Serialize for NanosByPhase<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Phase::ALL.map(|phase| (phase.as_str(), nanos(self.0.spent(phase)))))
    }
}

/// The number of calls in a class.
struct Class(LatencyClass, u64);

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut class = serializer.serialize_struct("LatencyClass", 2)?;
        class.serialize_field("from_ns", &nanos(self.0.lower()))?;
        class.serialize_field("calls", &self.1)?;
        class.end()
    }
}

impl Serialize for RecordedCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut call = serializer.serialize_struct("RecordedCall", 10)?;
        call.serialize_field("number", &self.number)?;
        call.serialize_field("started_unix_ms", &unix_ms(self.started))?;
        call.serialize_field("method", &self.method)?;
        call.serialize_field("target", &self.target)?;
        call.serialize_field("recent", &self.is_recent)?;
        call.serialize_field("slow", &self.is_slow)?;
        call.serialize_field("failure", &self.is_failure)?;
        call.serialize_field("why", &self.timings.why().to_string())?;
        call.serialize_field("reasons", &Reasons(&self.timings))?;
        call.serialize_field("timings", &self.timings)?;
        call.end()
    }
}

/// The reasons why a call took its time.
struct Reasons<'a>(&'a Timings);

impl Serialize for Reasons<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let why = self.0.why();
        serializer.collect_seq(why.reasons().iter().map(|reason| {
            let (cause, phase) = (reason.cause.as_str(), reason.phase.as_str());
            ReasonFields { cause, phase, time_ns: nanos(reason.time), share: reason.share, remedy: reason.remedy }
        }))
    }
}

#[derive(serde::Serialize)]
struct ReasonFields {
    cause: &'static str,
    phase: &'static str,
    time_ns: u64,
    share: f64,
    remedy: Option<&'static str>,
}

impl Serialize for StateTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = serializer.serialize_struct("StateTable", 4)?;
        table.serialize_field("title", &self.title)?;
        table.serialize_field("columns", &self.columns)?;
        table.serialize_field("rows", &self.rows)?;
        table.serialize_field("left_out", &self.left_out)?;
        table.end()
    }
}
