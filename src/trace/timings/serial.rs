//! Serialization of timings with serde: times are whole nanoseconds, names are in lower case.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::Timings;
use super::hops::{DialOutcome, DialledAddress, Hedge, Hop, HopEnd};
use crate::trace::events::event::{HostAtDial, HostClose, Phase, TlsFacts, Usage};
use crate::trace::events::{AskedServers, DnsLookup};
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
impl Serialize for crate::trace::events::Family {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::trace::events::event::Event;
    use crate::trace::events::{CloseCause, Limit};
    use crate::trace::events::{Family, Source};
    use crate::trace::timings::samples::{SENT, address, dns_start, folded, leased, ms, origin, queued};

    /// Returns the timings of a call that opens a connection after the last one was closed, asks two servers for the name, and sends
    /// the first packet three times.
    fn slow_dial() -> Timings {
        let servers =
            AskedServers { answered: Some([192, 0, 2, 53].into()), silent: vec![[192, 0, 2, 54].into()], searched: 1 };
        let address = address();
        let lookup = DnsLookup::answered("api.test".into(), Family::V4, [address.ip()].into(), ms(2_000), Source::Miss);
        let lookup = lookup.with_servers(Some(Arc::new(servers)));
        let close = HostClose::new(CloseCause::Peer, 7, true);
        folded(&[
            (0, queued(Limit::ConnectionsPerHost, Usage::new(2, 3))),
            (5, Event::DialStart { origin: origin(), host: HostAtDial::new(1, 4, Some(close)) }),
            (5, dns_start(Family::V4)),
            (15, Event::DnsEnd(lookup)),
            (15, Event::AttemptStart { address }),
            (90, Event::AttemptEnd { address, error: None }),
            (90, Event::SynResent { address, times: 2 }),
            (90, leased(0)),
            (90, SENT),
            (95, Event::FirstByte),
            (99, Event::BodyEnd { bytes: 2 }),
        ])
    }

    #[test]
    fn a_dial_has_what_led_to_it() {
        let timings = serde_json::to_value(slow_dial()).unwrap();
        let attempt = &timings["dialled"][0];
        assert_eq!((&attempt["resent_syns"], &attempt["elapsed_ns"]), (&2.into(), &75_000_000.into()));
        let servers = serde_json::json!({ "answered": "192.0.2.53", "silent": ["192.0.2.54"], "searched": 1 });
        let lookup = &timings["lookups"][0];
        assert_eq!((&lookup["elapsed_ns"], &lookup["servers"]), (&10_000_000.into(), &servers));
        assert_eq!(timings["queue_usage"], serde_json::json!({ "taken": 2, "limit": 3 }));
        let close = serde_json::json!({ "cause": CloseCause::Peer.as_str(), "requests": 7, "was_idle": true });
        let dial = serde_json::json!({ "open": 1, "opened_lately": 4, "last_close": close, "lacking": null });
        assert_eq!(timings["dial"], dial);
    }
}
