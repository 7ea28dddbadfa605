//! Socket options that are set only when they begin to matter, so that a short connection does not pay for the system
//! calls.
//!
//! Nodelay matters from the second write on. Keepalive and the user timeout matter once the peer has been silent for a
//! while: Linux counts both from the last packet, not from when they are set, so they can be set after half of their
//! time. Once the user timeout is set, it is lifted while the peer answers and takes nothing.

use std::num::NonZeroU32;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::runtime::Handle;

#[cfg(target_os = "linux")]
use super::tcp_info::SendState;
use crate::clock::{Instant, Timer, now};
use crate::sync;

/// The number of keepalive probes without an answer after which the connection is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// The most bytes of a first write that Nagle's algorithm never delays: the segment size that every peer accepts (RFC
/// 9293 §3.7.1). The end of a longer write might be kept back.
const MAX_SHORT_WRITE: usize = 536;

/// The most bytes that the kernel keeps unsent for a connection that has written more than [`UNLIMITED_BYTES`].
///
/// By itself the kernel keeps four times as many. A slow peer takes minutes for them, in which no write makes progress.
/// With fewer, uploads to fast peers are slower.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MAX_UNSENT: u32 = 1024 * 1024;

/// The bytes that are written before the kernel's buffer is limited.
const UNLIMITED_BYTES: u32 = 64 * 1024;

/// The options that are still to be set on a socket. An option that the system does not know is left out.
pub(super) struct LateOptions {
    /// True if nodelay is still to be set.
    nodelay: bool,
    has_written: bool,
    /// The bytes that may still be written before the kernel's buffer is limited; `None` once it is.
    unlimited: Option<u32>,
    /// The options about silence; `None` if nothing more is to be done about them.
    silence: Option<SilenceOptions>,
}

/// The keepalive probes of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probes {
    /// The time of silence before the first probe.
    pub(super) time: Duration,
    /// The time between two probes.
    pub(super) interval: Duration,
    /// The number of probes without an answer after which the connection is given up; [`KEEPALIVE_PROBES`] if `None`.
    pub(super) retries: Option<u32>,
}

/// The options about peers that fall silent.
struct SilenceOptions {
    keepalive: Option<Millis>,
    /// The time between two probes; `keepalive` if `None`.
    interval: Option<Millis>,
    retries: u8,
    user_timeout: Option<Millis>,
    stage: OptionStage,
    /// The time at which to look at the socket next; `None` if nothing is to be done until the next write.
    next_look: Option<Instant>,
    timer: Timer,
    /// The task that the timer wakes, and what it waits for.
    waker: Option<(Waits, Waker)>,
}

/// The state of the options about silence.
#[derive(Clone, Copy)]
enum OptionStage {
    /// The options are not set.
    Unset,
    /// The options are set, and the kernel is asked what becomes of written bytes.
    Set {
        /// True if something was written since the last look.
        written: bool,
        /// True while the user timeout is lifted, because the peer answers and takes nothing.
        lifted: bool,
    },
}

/// A time of an option, in half of the memory of a `Duration`: every connection has two of them.
type Millis = NonZeroU32;

fn millis(time: Duration) -> Millis {
    Millis::new(time.as_millis().try_into().unwrap_or(u32::MAX)).unwrap_or(Millis::MIN)
}

fn duration(time: Millis) -> Duration {
    Duration::from_millis(time.get().into())
}

impl LateOptions {
    pub(super) fn new(nodelay: bool, probes: Option<Probes>, user_timeout: Option<Duration>) -> Self {
        // The system takes a timeout of 0 for its own default.
        let user_timeout = user_timeout.filter(|timeout| cfg!(target_os = "linux") && timeout.as_millis() > 0);
        let silence = SilenceOptions::new(probes, user_timeout.map(millis));
        Self { nodelay, has_written: false, unlimited: Some(UNLIMITED_BYTES), silence }
    }

    /// Returns true if no timer runs and none will before the next write.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.silence.as_ref().is_none_or(SilenceOptions::is_at_rest)
    }

    /// Sets the options that matter for a write of this many bytes, before it.
    pub(super) fn before_write<'a>(&mut self, bytes: usize, socket: impl Fn() -> SockRef<'a>) {
        // Nagle's algorithm keeps back only bytes that follow unacknowledged ones.
        if self.nodelay && (self.has_written || bytes > MAX_SHORT_WRITE) {
            self.nodelay = false;
            let _ = socket().set_tcp_nodelay(true);
        }
        self.has_written = true;
        if let Some(left) = self.unlimited {
            self.unlimited = left.checked_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
            #[cfg(any(target_os = "linux", target_os = "android"))]
            if self.unlimited.is_none() {
                let _ = socket().set_tcp_notsent_lowat(MAX_UNSENT);
            }
        }
        if let Some(SilenceOptions { stage: OptionStage::Set { written, .. }, .. }) = &mut self.silence {
            *written = true;
        }
    }

    /// Restarts the timer after a write, if it was at rest. The writer may have polled for the response before it
    /// wrote, and may not poll again until the response comes.
    pub(super) fn after_write<'a>(&mut self, cx: &mut Context<'_>, socket: impl FnOnce() -> SockRef<'a>) {
        let Some(silence) = &self.silence else { return };
        if silence.next_look.is_none() && matches!(silence.stage, OptionStage::Set { .. }) {
            self.poll_silence(cx, Waits::ToWrite, socket);
        }
    }

    /// Sets the options about silence once a read or a write has been pending for half of their time, and follows the
    /// user timeout from then on.
    pub(super) fn poll_silence<'a>(
        &mut self,
        cx: &mut Context<'_>,
        waits: Waits,
        socket: impl FnOnce() -> SockRef<'a>,
    ) {
        let Some(silence) = &mut self.silence else { return };
        if silence.poll(cx, waits).is_pending() {
            return;
        }
        if silence.look(&socket()) {
            // This sets the timer to the next look.
            let _ = silence.poll(cx, waits);
        } else {
            self.silence = None;
        }
    }
}

/// The readiness that a task waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    ToRead,
    ToWrite,
}

impl SilenceOptions {
    /// Creates the options; `None` if neither is wanted.
    fn new(probes: Option<Probes>, user_timeout: Option<Millis>) -> Option<Self> {
        if probes.is_none() && user_timeout.is_none() {
            return None;
        }
        let retries = probes.and_then(|probes| probes.retries).unwrap_or(KEEPALIVE_PROBES);
        Some(Self {
            keepalive: probes.map(|probes| millis(probes.time)),
            interval: probes.map(|probes| millis(probes.interval)),
            retries: retries.try_into().unwrap_or(u8::MAX),
            user_timeout,
            stage: OptionStage::Unset,
            next_look: None,
            timer: Timer::default(),
            waker: None,
        })
    }

    /// Becomes ready when it is time to look at the socket: after half of the shortest time. Ready at once on systems other
    /// than Linux, which count from when an option is set, and outside of a runtime.
    fn poll(&mut self, cx: &mut Context<'_>, waits: Waits) -> Poll<()> {
        // A task without tokio budget is polled again soon, and its timer would not be set now.
        if self.is_at_rest() || !sync::has_budget() {
            return Poll::Pending;
        }
        match &self.waker {
            Some((_, waker)) if self.next_look.is_some() && waker.will_wake(cx.waker()) && !self.timer.is_elapsed() => {
                return Poll::Pending;
            }
            // One task reads and another one writes. The one that has the timer may go away with it, so set the options
            // now.
            Some((waits_before, waker))
                if matches!(self.stage, OptionStage::Unset)
                    && *waits_before != waits
                    && !waker.will_wake(cx.waker()) =>
            {
                return Poll::Ready(());
            }
            _ => {}
        }
        if !cfg!(target_os = "linux") || Handle::try_current().is_err() {
            return Poll::Ready(());
        }
        let first = match self.stage {
            OptionStage::Unset => self.keepalive.into_iter().chain(self.user_timeout).min(),
            OptionStage::Set { .. } => self.user_timeout,
        };
        let period = first.map_or(Duration::ZERO, duration) / 2;
        let at = *self.next_look.get_or_insert_with(|| now() + period);
        self.waker = Some((waits, cx.waker().clone()));
        self.timer.poll_until(cx, at)
    }

    /// Returns true if the options are set and no written bytes can be unacknowledged.
    fn is_at_rest(&self) -> bool {
        self.next_look.is_none() && matches!(self.stage, OptionStage::Set { written: false, lifted: false })
    }

    /// Sets the options that are due. Returns false if nothing will be to do later.
    fn look(&mut self, socket: &SockRef<'_>) -> bool {
        self.next_look = None;
        if matches!(self.stage, OptionStage::Unset) {
            self.set(socket);
            self.stage = OptionStage::Set { written: true, lifted: false };
        }
        #[cfg(target_os = "linux")]
        if let Some(timeout) = self.user_timeout.map(duration)
            && Handle::try_current().is_ok()
        {
            self.follow_user_timeout(socket, timeout);
            return true;
        }
        false
    }

    /// Lifts the user timeout while the peer answers and takes nothing.
    ///
    /// Linux counts the time for which a window is closed, although the peer acknowledges each probe of it. RFC 9293
    /// §3.8.6.1 asks that such a connection stays open.
    #[cfg(target_os = "linux")]
    fn follow_user_timeout(&mut self, socket: &SockRef<'_>, timeout: Duration) {
        let OptionStage::Set { written, lifted: was_lifted } = self.stage else { return };
        let sending = SendState::of(socket);
        let lifted = sending.as_ref().is_some_and(SendState::is_window_closed);
        if lifted != was_lifted {
            let _ = socket.set_tcp_user_timeout(if lifted { None } else { Some(timeout) });
        }
        let under_way = lifted || sending.is_some_and(|sending| sending.is_under_way());
        // A window is known to be closed only after it was probed, so look once more after the last write.
        self.stage = OptionStage::Set { written: false, lifted };
        self.next_look = if written || under_way { Some(now() + timeout / 2) } else { None };
    }

    /// Sets the options.
    fn set(&self, socket: &SockRef<'_>) {
        if let Some(time) = self.keepalive.map(duration) {
            let interval = self.interval.map_or(time, duration);
            let mut keepalive = TcpKeepalive::new().with_time(time).with_interval(interval);
            // With a user timeout, Linux goes by that and does not count probes (RFC 5482 §4.1).
            if self.user_timeout.is_none() {
                keepalive = keepalive.with_retries(self.retries.into());
            }
            let _ = socket.set_tcp_keepalive(&keepalive);
        }
        #[cfg(target_os = "linux")]
        if let Some(timeout) = self.user_timeout.map(duration) {
            let _ = socket.set_tcp_user_timeout(Some(timeout));
        }
    }
}

/// Returns true if the peer is known to have acknowledged all that was written to a socket. Only Linux tells.
pub(super) fn is_acknowledged(socket: &SockRef<'_>) -> bool {
    #[cfg(target_os = "linux")]
    {
        SendState::of(socket).is_some_and(|sending| !sending.is_under_way())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        false
    }
}

/// Returns the time since data last came. Only Linux tells.
pub(super) fn data_age(socket: &SockRef<'_>) -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        super::tcp_info::data_age(socket)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        None
    }
}

/// Returns the number of times that packets were sent again so far. Only Linux tells; 0 elsewhere.
pub(super) fn resent_packets(socket: &SockRef<'_>) -> u32 {
    #[cfg(target_os = "linux")]
    {
        super::tcp_info::resent_packets(socket)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        0
    }
}

#[cfg(test)]
#[path = "late_options_tests.rs"]
mod tests;
