//! The times at which the bytes of an exchange were written and read, which hyper does not report. Why a dial was
//! slow, as the kernel tells of its socket: the first packet (SYN) was lost, or bytes were here before the program read them.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{self, AtomicInstant, Instant, now};
use crate::tls::refusal;
use crate::trace::{DialTrace, Event, LATE, Phase};
use crate::transport::{Liveness, Probe};

/// The record of a connection's byte stream.
///
/// The connection's task writes it and the task of the request reads it. hyper's channel between the two orders their
/// accesses, so that the times need no lock.
#[derive(Debug, Default)]
pub(in crate::connect) struct IoRecord {
    first_write: AtomicInstant,
    last_write: AtomicInstant,
    first_read: AtomicInstant,
    last_progress: AtomicInstant,
    written: AtomicU64,
    has_read_more: AtomicBool,
    has_read: AtomicBool,
    failed_write: AtomicUsize,
    /// The peer's TLS alert that rejects the client's certificate.
    refusal: OnceLock<Arc<io::Error>>,
    /// The error that ended the connection. Shared, because many requests may find the connection ended.
    end: OnceLock<Arc<hyper::Error>>,
    /// Notified when the stream is closed.
    closed: Notify,
}

/// The times of the current exchange. Over HTTP/2, where the bytes of many requests are mixed, there are none.
#[derive(Debug, Clone, Copy)]
pub(in crate::connect) struct IoTimes {
    /// The time at which the first byte of the request was written.
    pub(in crate::connect) first_write: Option<Instant>,
    /// The time at which the last byte of the request was written; `None` while the peer does not take the rest of it.
    pub(in crate::connect) last_write: Option<Instant>,
    /// The time at which the first byte of the response was read, interim responses not counted.
    pub(in crate::connect) first_read: Option<Instant>,
    /// True if more bytes were read after those at `first_read`.
    pub(in crate::connect) has_read_more: bool,
    /// True if any byte was read, also one of an interim response.
    pub(in crate::connect) has_read: bool,
    /// The time at which bytes were last written, even if more of them wait.
    pub(in crate::connect) last_progress: Option<Instant>,
    /// The number of bytes that were written.
    pub(in crate::connect) written: u64,
    /// The length of a write that failed. Over TLS a part of it may have left.
    pub(in crate::connect) failed_write: usize,
}

impl IoRecord {
    pub(in crate::connect) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Forgets the times of the last exchange.
    pub(in crate::connect) fn reset(&self) {
        self.first_write.store(None);
        self.last_write.store(None);
        self.first_read.store(None);
        self.last_progress.store(None);
        self.written.store(0, Relaxed);
        self.has_read_more.store(false, Relaxed);
        self.has_read.store(false, Relaxed);
        self.failed_write.store(0, Relaxed);
    }

    pub(in crate::connect) fn times(&self) -> IoTimes {
        // First, and with the fence that belongs to that of `note_write`: a call that times out or is dropped reads the times
        // while the connection's task may write them.
        let last_write = self.last_write.load();
        fence(Acquire);
        IoTimes {
            first_write: self.first_write.load(),
            last_write,
            first_read: self.first_read.load(),
            has_read_more: self.has_read_more.load(Relaxed),
            has_read: self.has_read.load(Relaxed),
            last_progress: self.last_progress.load(),
            written: self.written.load(Relaxed),
            failed_write: self.failed_write.load(Relaxed),
        }
    }

    /// Returns the peer's TLS alert that rejects the client's certificate. [`reset`](Self::reset) keeps it, because it comes
    /// only once.
    pub(in crate::connect) fn refusal(&self) -> Option<&Arc<io::Error>> {
        self.refusal.get()
    }

    /// Keeps the alert in `error`, if there is one. With TLS 1.3 it comes after the handshake. h2 and a failed write
    /// would lose it.
    pub(in crate::connect) fn note_error(&self, error: &io::Error) {
        if let Some(refusal) = refusal(error) {
            let _ = self.refusal.set(Arc::new(refusal));
        }
    }

    /// Returns the error that ended the connection, if it was an error.
    pub(in crate::connect) fn end(&self) -> Option<&Arc<hyper::Error>> {
        self.end.get()
    }

    /// Keeps the error that ended the connection, for requests that the connection has not taken.
    pub(in crate::connect) fn note_end(&self, error: hyper::Error) {
        let _ = self.end.set(Arc::new(error));
    }

    /// Notes that the stream is closed.
    pub(in crate::connect) fn note_closed(&self) {
        self.closed.notify_one();
    }

    /// Waits until the stream is closed. For one caller, because it is told once.
    pub(in crate::connect) async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Notes that so many bytes were written.
    pub(in crate::connect) fn note_write(&self, bytes: usize) {
        let at = Some(now());
        if self.first_write.load().is_none() {
            self.first_write.store(at);
        }
        self.last_progress.store(at);
        self.written.store(self.written.load(Relaxed) + bytes as u64, Relaxed);
        // Who sees this one sees the two before it.
        fence(Release);
        self.last_write.store(at);
    }

    /// Notes that bytes wait to be written, so the last write was not the request's last.
    pub(in crate::connect) fn note_more_to_write(&self) {
        self.last_write.store(None);
    }

    /// Notes that a write of this many bytes failed.
    pub(in crate::connect) fn note_failed_write(&self, bytes: usize) {
        self.last_write.store(None);
        self.failed_write.store(bytes, Relaxed);
    }

    /// Notes that bytes were read. Returns true if they are the first since the last [`reset`](Self::reset).
    pub(in crate::connect) fn note_read(&self) -> bool {
        let is_first = self.first_read.load().is_none();
        self.has_read_more.store(!is_first, Relaxed);
        if is_first {
            self.first_read.store(Some(now()));
        }
        let had_read = self.has_read.load(Relaxed);
        self.has_read.store(true, Relaxed);
        !had_read
    }

    /// Notes that the last read ended an interim response. `is_all` is true if nothing followed it in that read.
    pub(in crate::connect) fn note_interim(&self, is_all: bool) {
        self.first_read.store(if is_all { None } else { Some(now()) });
        self.has_read_more.store(false, Relaxed);
    }
}

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
