//! The timings of a call as members of a JSON object, with the names that serde writes.

use crate::trace::nanos;
use std::net::SocketAddr;
use std::time::Duration;

use crate::inspect::json::JsonWriter;
use crate::inspect::json_members::{TimeForm, write_part, write_tls};
use crate::trace::HostAtDial;
use crate::trace::Phase;
use crate::trace::Timings;
use crate::trace::{AskedServers, DnsLookup};
use crate::trace::{Attempt, AttemptOutcome, Hop, HopEnd};

/// Writes the members of a call's timings.
pub(super) fn write_timings(json: &mut JsonWriter, timings: &Timings) {
    write_times(json, timings);
    write_result(json, timings);
    write_connection(json, timings);
    json.key("server_timing").array(|json| {
        timings.server_timing().iter().for_each(|part| write_part(json, part, TimeForm::Nanos));
    });
    json.key("lookups").array(|json| timings.lookups().iter().for_each(|lookup| write_lookup(json, lookup)));
    json.key("attempts").array(|json| timings.attempts().iter().for_each(|attempt| write_attempt(json, attempt)));
    json.key("hops").array(|json| timings.hops().iter().for_each(|hop| write_hop(json, hop)));
    json.key("hedges").array(|json| {
        for hedge in timings.hedges() {
            json.object(|json| {
                json.key("started_ns").number(nanos(hedge.started));
                json.key("outcome").string(hedge.outcome.as_str());
            });
        }
    });
}

fn write_times(json: &mut JsonWriter, timings: &Timings) {
    json.key("total_ns").number(nanos(timings.total()));
    write_spent(json, |phase| timings.spent(phase));
    for (name, figure) in [
        ("time_queue_ns", timings.time_queue()),
        ("time_namelookup_ns", timings.time_namelookup()),
        ("time_connect_ns", timings.time_connect()),
        ("time_appconnect_ns", timings.time_appconnect()),
        ("time_pretransfer_ns", timings.time_pretransfer()),
        ("time_starttransfer_ns", timings.time_starttransfer()),
        ("time_redirect_ns", timings.time_redirect()),
    ] {
        json.key(name).number(nanos(figure));
    }
}

fn write_spent(json: &mut JsonWriter, spent: impl Fn(Phase) -> Duration) {
    json.key("spent_ns").object(|json| {
        Phase::ALL.into_iter().for_each(|phase| json.key(phase.as_str()).number(nanos(spent(phase))));
    });
}

fn write_result(json: &mut JsonWriter, timings: &Timings) {
    json.key("phase").string(timings.phase().as_str());
    json.key("complete").boolean(timings.is_complete());
    if let Some(failure) = timings.failure() {
        json.key("failure").string(failure);
    }
    if let Some(status) = timings.status() {
        json.key("status").number(status.as_u16());
    }
    if let Some(version) = timings.version() {
        json.key("version").string(&format!("{version:?}"));
    }
    json.key("sent_bytes").number(timings.sent_bytes());
    json.key("received_bytes").number(timings.received_bytes());
}

fn write_connection(json: &mut JsonWriter, timings: &Timings) {
    if let Some(connection) = timings.connection() {
        json.key("connection").number(connection);
    }
    json.key("reused").boolean(timings.reused());
    json.key("freed").boolean(timings.freed());
    if let Some(limit) = timings.queued_by() {
        json.key("queued_by").string(limit.as_str());
    }
    if let Some(usage) = timings.queue_entry().and_then(|entry| entry.usage) {
        json.key("queue_usage").object(|json| {
            json.key("taken").number(usage.taken as u64);
            json.key("limit").number(usage.limit as u64);
        });
    }
    if let Some(dial) = timings.history().dial() {
        json.key("dial").object(|json| write_dial(json, &dial.host));
    }
    write_remote(json, timings.remote_addr());
    if let Some(facts) = timings.tls_facts() {
        json.key("tls").object(|json| write_tls(json, facts));
    }
}

fn write_remote(json: &mut JsonWriter, remote: Option<SocketAddr>) {
    if let Some(remote) = remote {
        json.key("remote_addr").display(remote);
    }
}

fn write_dial(json: &mut JsonWriter, host: &HostAtDial) {
    json.key("open").number(host.open as u64);
    json.key("opened_lately").number(host.opened_lately);
    if let Some(close) = host.last_close {
        json.key("last_close").object(|json| {
            json.key("cause").string(close.cause.as_str());
            json.key("requests").number(close.requests);
            json.key("was_idle").boolean(close.was_idle);
        });
    }
    if let Some(lacking) = host.lacking {
        json.key("lacking").string(lacking.as_str());
    }
}

fn write_lookup(json: &mut JsonWriter, lookup: &DnsLookup) {
    json.object(|json| {
        json.key("name").string(&lookup.name);
        json.key("family").display(lookup.family);
        json.key("source").string(lookup.source.as_str());
        json.key("addresses").array(|json| lookup.addresses.iter().for_each(|address| json.display(address)));
        json.key("ttl_ns").number(nanos(lookup.ttl));
        json.key("elapsed_ns").number(nanos(lookup.elapsed));
        if let Some(servers) = &lookup.servers {
            json.key("servers").object(|json| write_servers(json, servers));
        }
        if let Some(error) = &lookup.error {
            json.key("error").display(error);
        }
    });
}

fn write_servers(json: &mut JsonWriter, servers: &AskedServers) {
    if let Some(answered) = servers.answered {
        json.key("answered").display(answered);
    }
    json.key("silent").array(|json| servers.silent.iter().for_each(|server| json.display(server)));
    json.key("searched").number(servers.searched);
}

fn write_attempt(json: &mut JsonWriter, attempt: &Attempt) {
    let (outcome, error) = match &attempt.outcome {
        AttemptOutcome::Pending => ("pending", None),
        AttemptOutcome::Connected => ("connected", None),
        AttemptOutcome::Failed(error) => ("failed", Some(error)),
        AttemptOutcome::Cancelled => ("cancelled", None),
    };
    json.object(|json| {
        json.key("address").display(attempt.address);
        json.key("started_ns").number(nanos(attempt.started));
        json.key("elapsed_ns").number(nanos(attempt.elapsed));
        json.key("outcome").string(outcome);
        json.key("resent_syns").number(attempt.resent_syns);
        if let Some(error) = error {
            json.key("error").display(error);
        }
    });
}

fn write_hop(json: &mut JsonWriter, hop: &Hop) {
    json.object(|json| {
        json.key("started_ns").number(nanos(hop.started));
        json.key("elapsed_ns").number(nanos(hop.elapsed));
        write_spent(json, |phase| hop.spent(phase));
        match hop.end {
            HopEnd::Redirected(status) => json.key("redirected").number(status.as_u16()),
            HopEnd::Repeated(cause) => json.key("repeated").string(cause.as_str()),
            HopEnd::Hedged | HopEnd::Secured => {}
        }
        json.key("hedged").boolean(hop.end == HopEnd::Hedged);
        json.key("reused").boolean(hop.reused);
        json.key("joined").number(hop.joined);
        write_remote(json, hop.remote);
    });
}
