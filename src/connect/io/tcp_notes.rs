//! Traces why a dial was slow, as the kernel tells of its socket: the first packet (SYN) was lost, or bytes were here before the
//! program read them.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use crate::clock::{self, Instant};
use crate::trace::{DialTrace, Event, LATE, Phase};
use crate::transport::{Liveness, Probe};

/// The time after which a first packet is sent again at the earliest. Linux waits 1 s.
const EARLIEST: Duration = Duration::from_millis(500);

/// The most by which the kernel's times are off, which count its timer's ticks.
const COARSENESS: Duration = Duration::from_millis(10);

/// The times since which a connection to an address was waited for.
pub(in crate::connect) struct DialWait {
    /// The start of the dial.
    pub(in crate::connect) dial: Instant,
    /// The time from which on the program looked at the race. Meanwhile it may have tried another address.
    pub(in crate::connect) race: Instant,
}

impl DialWait {
    /// Traces why the connection to `address` was open no earlier than at `now`: its first packet was sent again, or it had been open
    /// before the program came to it.
    pub(in crate::connect) fn note_connected(
        self,
        now: Instant,
        address: SocketAddr,
        probe: Option<&Probe>,
        trace: &DialTrace,
    ) {
        let Some(probe) = probe else { return };
        note_late(probe, now, Phase::Connect, now - self.race, trace);
        if now - self.dial < EARLIEST {
            return; // this saves a system call
        }
        let times = probe.resent_packets();
        if times > 0 {
            trace.emit(Event::SynResent { address, times });
        }
    }
}

/// Traces that the kernel has had the bytes that the program comes to at `now`, after a wait of `took`.
fn note_late(probe: &Probe, now: Instant, phase: Phase, took: Duration, trace: &DialTrace) {
    if took < LATE {
        return; // this saves a system call
    }
    // Of a socket that has received no data, the age is that of its handshake.
    let age = probe.data_age().filter(|age| *age <= took + COARSENESS);
    trace.note_read_late(now, phase, age.unwrap_or_default().min(took));
}

/// A part of a dial that reads from a socket, and its trace.
#[derive(Clone, Copy)]
pub(in crate::connect) struct DialRead<'a> {
    pub(in crate::connect) phase: Phase,
    /// A look at the socket, if there is one.
    pub(in crate::connect) probe: Option<&'a Probe>,
    pub(in crate::connect) trace: &'a DialTrace,
}

impl DialRead<'_> {
    /// Runs the future that reads until `end`, and traces for how long bytes were here before it came to them, or how late the end was
    /// noticed. Returns `None` if it came first.
    pub(in crate::connect) async fn until<F: Future + Unpin>(
        self,
        end: Option<Instant>,
        mut future: F,
    ) -> Option<F::Output> {
        let Self { phase, probe, trace } = self;
        let mut waits_since = None;
        let watched = std::future::poll_fn(|cx| {
            let now = clock::now();
            if let (Some(since), Some(probe)) = (waits_since, probe)
                && now - since >= LATE
                && probe.look() == Liveness::Unread
            {
                note_late(probe, now, phase, now - since, trace);
            }
            let polled = Pin::new(&mut future).poll(cx);
            waits_since = Some(clock::now());
            polled
        });
        let read = clock::before(end, watched).await;
        if let (None, Some(end)) = (&read, end) {
            trace.note_timer(end, clock::now(), phase);
        }
        read
    }
}
