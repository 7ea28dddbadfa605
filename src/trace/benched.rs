//! The timings of one warm request, alone, for benches.

use std::net::SocketAddr;
use std::time::Duration;

use http::{StatusCode, Version};

use super::events::event::Event;
use super::recording::call_trace::Trace;
use crate::clock::now;
use crate::trace::observers::Hooks;

/// Records the timings of one request on an idle connection as the client does, without sending a request.
///
/// `hooks` are the hooks of a client without observers. The trace of the call, the readings of the clock and the fold of
/// each event are part of it.
pub fn time_warm_request(hooks: &BenchedHooks) {
    let trace = Trace::start(&hooks.0, None, || unreachable!("there is no observer"));
    let leased = Event::Leased {
        connection: 1,
        remote: Some(SocketAddr::from(([192, 0, 2, 1], 80))),
        requests: 1,
        idle: Duration::ZERO,
        tls: None,
        waited: Duration::ZERO,
        freed: false,
        forwarded: false,
    };
    trace.emit(leased);
    // The socket notes the time of a write, and of the first read.
    let sent = now();
    let answered = now();
    trace.record_exchange(None, Some(sent), 0, Some(answered));
    // The head came in that read.
    trace.emit_at(answered, Event::Headers { status: StatusCode::OK, version: Version::HTTP_11 });
    trace.emit(Event::BodyEnd { bytes: 2 });
}

/// The hooks of a client without observers.
#[derive(Debug, Default)]
pub struct BenchedHooks(Hooks);
