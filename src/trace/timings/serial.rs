//! Serialization of timings with serde: times are whole nanoseconds, names are in lower case.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::Timings;
use super::hops::{DialOutcome, DialledAddress, Hedge, Hop, HopEnd};
use crate::trace::events::event::TlsFacts;
use crate::trace::events::host_at_dial::{HostAtDial, HostClose, Usage};
use crate::trace::events::lookup::{AskedServers, DnsLookup};
use crate::trace::events::phase::Phase;
use crate::trace::server_timing::ServerTiming;

/// Returns a time in nanoseconds, at most `u64::MAX` (584 years).
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Serializes a time as whole nanoseconds, for fields of reports.
#[cfg(feature = "doctor")]
pub(crate) fn serialize_nanos<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(nanos(*time))
}

/// Serializes a time that may be unknown as whole nanoseconds.
#[cfg(feature = "doctor")]
pub(crate) fn serialize_known_nanos<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(nanos).serialize(serializer)
}

/// Serializes a family by its name.
#[cfg(feature = "doctor")]
impl Serialize for crate::trace::events::lookup::Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A map from the phases' names to their nanoseconds.
struct NanosByPhase<F>(F);

impl<F: Fn(Phase) -> Duration> Serialize for NanosByPhase<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Phase::ALL.map(|phase| (phase.as_str(), nanos((self.0)(phase)))))
    }
}

/// Serializes the total, the phases, curl's figures, the call's result, and its lookups, attempts and earlier requests.
impl Serialize for Timings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut timings = serializer.serialize_struct("Timings", 32)?;
        timings.serialize_field("total_ns", &nanos(self.total()))?;
        timings.serialize_field("spent_ns", &NanosByPhase(|phase| self.spent(phase)))?;
        for (name, figure) in [
            ("time_queue_ns", self.time_queue()),
            ("time_namelookup_ns", self.time_namelookup()),
            ("time_connect_ns", self.time_connect()),
            ("time_appconnect_ns", self.time_appconnect()),
            ("time_pretransfer_ns", self.time_pretransfer()),
            ("time_starttransfer_ns", self.time_starttransfer()),
            ("time_redirect_ns", self.time_redirect()),
        ] {
            timings.serialize_field(name, &nanos(figure))?;
        }
        timings.serialize_field("phase", self.phase().as_str())?;
        timings.serialize_field("complete", &self.is_complete())?;
        timings.serialize_field("unread", &self.is_unread())?;
        timings.serialize_field("failure", &self.failure())?;
        timings.serialize_field("status", &self.status().map(|status| status.as_u16()))?;
        timings.serialize_field("version", &self.version().map(|version| format!("{version:?}")))?;
        timings.serialize_field("sent_bytes", &self.sent_bytes())?;
        timings.serialize_field("received_bytes", &self.received_bytes())?;
        timings.serialize_field("connection", &self.connection())?;
        timings.serialize_field("reused", &self.reused())?;
        timings.serialize_field("freed", &self.freed())?;
        timings.serialize_field("queued_by", &self.queued_by().map(|limit| limit.as_str()))?;
        timings.serialize_field("queue_usage", &self.queue_entry().and_then(|entry| entry.usage))?;
        timings.serialize_field("dial", &self.history().dial().map(|dial| dial.host))?;
        timings.serialize_field("remote_addr", &self.remote_addr())?;
        timings.serialize_field("tls", &self.tls_facts())?;
        timings.serialize_field("runtime_delay_ns", &nanos(self.runtime_delay()))?;
        timings.serialize_field("server_timing", self.server_timing())?;
        timings.serialize_field("lookups", self.lookups())?;
        timings.serialize_field("attempts", &self.attempts())?;
        timings.serialize_field("dialled", self.dialled())?;
        timings.serialize_field("hops", self.hops())?;
        timings.serialize_field("hedges", self.hedges())?;
        timings.end()
    }
}

impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut usage = serializer.serialize_struct("Usage", 2)?;
        usage.serialize_field("taken", &self.taken)?;
        usage.serialize_field("limit", &self.limit)?;
        usage.end()
    }
}

impl Serialize for HostAtDial {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut host = serializer.serialize_struct("HostAtDial", 4)?;
        host.serialize_field("open", &self.open)?;
        host.serialize_field("opened_lately", &self.opened_lately)?;
        host.serialize_field("last_close", &self.last_close)?;
        host.serialize_field("lacking", &self.lacking.map(|limit| limit.as_str()))?;
        host.end()
    }
}

impl Serialize for HostClose {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut close = serializer.serialize_struct("HostClose", 3)?;
        close.serialize_field("cause", self.cause.as_str())?;
        close.serialize_field("requests", &self.requests)?;
        close.serialize_field("was_idle", &self.was_idle)?;
        close.end()
    }
}

impl Serialize for AskedServers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut servers = serializer.serialize_struct("AskedServers", 3)?;
        servers.serialize_field("answered", &self.answered)?;
        servers.serialize_field("silent", &self.silent)?;
        servers.serialize_field("searched", &self.searched)?;
        servers.end()
    }
}

impl Serialize for DnsLookup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut lookup = serializer.serialize_struct("DnsLookup", 8)?;
        lookup.serialize_field("name", &*self.name)?;
        lookup.serialize_field("family", &self.family.to_string())?;
        lookup.serialize_field("source", self.source.as_str())?;
        lookup.serialize_field("addresses", &*self.addresses)?;
        lookup.serialize_field("ttl_ns", &nanos(self.ttl))?;
        lookup.serialize_field("elapsed_ns", &nanos(self.elapsed))?;
        lookup.serialize_field("servers", &self.servers.as_deref())?;
        lookup.serialize_field("error", &self.error.as_ref().map(ToString::to_string))?;
        lookup.end()
    }
}

impl Serialize for DialledAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (outcome, error) = match &self.outcome {
            DialOutcome::Pending => ("pending", None),
            DialOutcome::Connected => ("connected", None),
            DialOutcome::Failed(error) => ("failed", Some(error.to_string())),
            DialOutcome::Cancelled => ("cancelled", None),
        };
        let mut attempt = serializer.serialize_struct("DialledAddress", 6)?;
        attempt.serialize_field("address", &self.address)?;
        attempt.serialize_field("started_ns", &nanos(self.started))?;
        attempt.serialize_field("elapsed_ns", &nanos(self.elapsed))?;
        attempt.serialize_field("outcome", outcome)?;
        attempt.serialize_field("resent_syns", &self.resent_syns)?;
        attempt.serialize_field("error", &error)?;
        attempt.end()
    }
}

impl Serialize for Hop {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (status, repeated) = match self.end {
            HopEnd::Redirected(status) => (Some(status.as_u16()), None),
            HopEnd::Repeated(cause) => (None, Some(cause.as_str())),
            HopEnd::Hedged => (None, None),
        };
        let mut hop = serializer.serialize_struct("Hop", 9)?;
        hop.serialize_field("started_ns", &nanos(self.started))?;
        hop.serialize_field("elapsed_ns", &nanos(self.elapsed))?;
        hop.serialize_field("spent_ns", &NanosByPhase(|phase| self.spent(phase)))?;
        hop.serialize_field("redirected", &status)?;
        hop.serialize_field("repeated", &repeated)?;
        hop.serialize_field("hedged", &(self.end == HopEnd::Hedged))?;
        hop.serialize_field("reused", &self.reused)?;
        hop.serialize_field("joined", &self.joined)?;
        hop.serialize_field("remote_addr", &self.remote)?;
        hop.end()
    }
}

impl Serialize for ServerTiming {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut metric = serializer.serialize_struct("ServerTiming", 3)?;
        metric.serialize_field("name", &self.name)?;
        metric.serialize_field("duration_ns", &self.duration.map(nanos))?;
        metric.serialize_field("description", &self.description)?;
        metric.end()
    }
}

impl Serialize for Hedge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut hedge = serializer.serialize_struct("Hedge", 2)?;
        hedge.serialize_field("started_ns", &nanos(self.started))?;
        hedge.serialize_field("outcome", self.outcome.as_str())?;
        hedge.end()
    }
}

impl Serialize for TlsFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut facts = serializer.serialize_struct("TlsFacts", 6)?;
        facts.serialize_field("version", self.version)?;
        facts.serialize_field("cipher_suite", self.cipher_suite)?;
        facts.serialize_field("alpn", &self.alpn.as_deref())?;
        facts.serialize_field("resumed", &self.resumed)?;
        facts.serialize_field("verified", &self.verified)?;
        facts.end()
    }
}
