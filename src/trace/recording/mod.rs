//! The record of a call or a dial while it goes on: it folds events into timings, and tells observers.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::clock::{Instant, now};
use crate::sync::lock;
use crate::trace::events::event::{Event, HostAtDial, Phase};
use crate::trace::observers::{Hooks, Wants, tell_connection};
use crate::trace::quota::{self, Stopped};
use crate::trace::timings::DialEvents;
#[cfg(feature = "hyper-util")]
use crate::trace::timings::Timings;
use crate::trace::timings::late::LATE;

pub(super) mod call_trace;

/// The events of one dial so far.
pub(crate) struct DialTrace {
    hooks: Hooks,
    connection: u64,
    host: HostAtDial,
    /// The time at which the dial was asked for. Its task may begin later.
    asked_at: Instant,
    events: Mutex<Vec<(Instant, Event)>>,
    /// True while the host has addresses that the dial has not tried.
    has_untried: AtomicBool,
}

/// The number of events of a dial that looks up a name and has no TLS.
const USUAL_EVENTS: usize = 9;

impl DialTrace {
    /// Creates the trace of a dial to a host of whose connections nothing is known.
    #[cfg(any(test, feature = "hyper-util"))]
    pub(crate) fn new(hooks: &Hooks, connection: u64) -> Arc<Self> {
        Self::of_host(hooks, connection, HostAtDial::default())
    }

    /// Creates the trace of a dial to a host whose connections are in the state `host`.
    pub(crate) fn of_host(hooks: &Hooks, connection: u64, host: HostAtDial) -> Arc<Self> {
        let events = Mutex::new(Vec::with_capacity(USUAL_EVENTS));
        let has_untried = AtomicBool::new(false);
        Arc::new(Self { hooks: hooks.clone(), connection, host, asked_at: now(), events, has_untried })
    }

    /// Returns the timings of the dial so far, as if it were a call.
    #[cfg(feature = "hyper-util")]
    pub(crate) fn timings(&self) -> Timings {
        let mut timings = Timings::new(self.begun().unwrap_or_else(now));
        self.lock().iter().for_each(|(at, event)| timings.fold(*at, event));
        timings
    }

    /// Returns the time at which the dial was asked for, from which its time limit runs.
    pub(crate) fn asked_at(&self) -> Instant {
        self.asked_at
    }

    /// Takes an event that happens now, and returns its time.
    pub(crate) fn emit(&self, event: Event) -> Instant {
        let at = now();
        self.emit_at(at, event);
        at
    }

    /// Takes an event that happened at `at`.
    pub(crate) fn emit_at(&self, at: Instant, event: Event) {
        if !self.hooks.wants().intersects(Wants::CONNECTIONS) {
            return self.lock().push((at, event));
        }
        self.lock().push((at, event.clone()));
        tell_connection(&self.hooks, None, self.connection, at, event);
    }

    /// Takes two events that happened at `at`, in this order.
    pub(crate) fn emit_both_at(&self, at: Instant, first: Event, second: Event) {
        if self.hooks.wants().intersects(Wants::CONNECTIONS) {
            self.emit_at(at, first);
            return self.emit_at(at, second);
        }
        let mut events = self.lock();
        events.push((at, first));
        events.push((at, second));
    }

    /// Notes that the dial acts at `now` on a timer of `phase` that was due before.
    pub(crate) fn note_timer(&self, due: Instant, now: Instant, phase: Phase) {
        let by = now - due;
        if by >= LATE {
            tell_late(now, by, Event::TimerLate { phase, by }, |event| self.emit_at(now, event));
        }
    }

    /// Notes that what `phase` waited for was here for the time `by` before the program came to it at `now`.
    pub(crate) fn note_read_late(&self, now: Instant, phase: Phase, by: Duration) {
        if by >= LATE {
            tell_late(now, by, Event::ReadLate { phase, by }, |event| self.emit_at(now, event));
        }
    }

    /// Ends the dial as failed.
    pub(crate) fn fail(&self) {
        self.end(Event::DialFailed);
    }

    /// Ends a dial that is dropped: it was given up, unless it panicked.
    pub(crate) fn end_dropped(&self) {
        self.end(if std::thread::panicking() { Event::DialFailed } else { Event::DialCancelled });
    }

    /// Ends the dial. One whose runtime ended before it began is told to nobody.
    fn end(&self, event: Event) {
        let has_begun = !self.lock().is_empty();
        if has_begun {
            self.emit(event);
        }
    }

    /// Returns the number of the connection that is being opened.
    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    /// Returns the state of the host's connections when the dial began.
    pub(crate) fn host(&self) -> HostAtDial {
        self.host
    }

    /// Returns the time of the dial's first event.
    #[cfg(feature = "hyper-util")]
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.lock().first().map(|(at, _)| *at)
    }

    /// Notes whether the host has addresses that the dial has not tried.
    pub(crate) fn note_untried(&self, has_untried: bool) {
        self.has_untried.store(has_untried, Ordering::Relaxed);
    }

    /// Returns true if another dial would do the same again: this one waits for DNS, or has addresses left that it has not tried.
    pub(crate) fn is_on_its_way(&self) -> bool {
        if self.has_untried.load(Ordering::Relaxed) {
            return true;
        }
        let (mut lookups, mut attempts) = (0_u32, 0_u32);
        // Before the first attempt, the answer may have to wait for a better one.
        let (mut has_asked, mut is_beyond, mut has_failed) = (false, false, false);
        for (_, event) in self.lock().iter() {
            match event {
                Event::DnsStart { .. } => (lookups, has_asked) = (lookups + 1, true),
                Event::DnsEnd(_) | Event::DnsCancelled { .. } => lookups = lookups.saturating_sub(1),
                Event::AttemptStart { .. } => (attempts, is_beyond) = (attempts + 1, true),
                Event::AttemptEnd { error, .. } => {
                    (attempts, has_failed) = (attempts.saturating_sub(1), error.is_some());
                }
                Event::AttemptCancelled { .. } => attempts = attempts.saturating_sub(1),
                Event::ProxyStart { .. } => return false,
                _ => {}
            }
        }
        match is_beyond {
            true => attempts == 0 && has_failed && lookups > 0,
            false => has_asked,
        }
    }

    /// Returns the dial's events so far.
    pub(crate) fn events(&self) -> Vec<(Instant, Event)> {
        self.lock().clone()
    }
}

/// Tells that the program was late by the time `by` at `now`, and the quota that stopped it meanwhile.
#[cold]
fn tell_late(now: Instant, by: Duration, event: Event, emit: impl Fn(Event)) {
    emit(event);
    if let Some(Stopped { by: stopped, within }) = quota::stopped(now, by) {
        emit(Event::Throttled { stopped, within });
    }
}

impl DialEvents for DialTrace {
    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Event)>> {
        lock(&self.events)
    }
}

impl fmt::Debug for DialTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DialTrace").field(&self.connection).finish()
    }
}
