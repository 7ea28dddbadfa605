//! Lost first packets (SYNs) of connections, which explain a slow dial.

use std::net::SocketAddr;
use std::time::Duration;

use crate::trace::{DialTrace, Event};
use crate::transport::Probe;

/// The time after which a first packet is sent again at the earliest. Linux waits 1 s.
const EARLIEST: Duration = Duration::from_millis(500);

/// Traces that the first packet to `address` was sent again, if the dial `took` so long that it may have been.
pub(in crate::connect) fn note(address: SocketAddr, probe: Option<&Probe>, took: Duration, trace: &DialTrace) {
    let Some(probe) = probe else { return };
    if took < EARLIEST {
        return; // this saves a system call
    }
    let times = probe.resent_packets();
    if times > 0 {
        trace.emit(Event::SynResent { address, times });
    }
}
