//! The record of a host that is kept warm: when it is looked at, and how long it is left alone after failures. A core.
//!
//! Which hosts are kept warm is decided in `parts.rs`, and what a look finds and does in `steps/warm_look.rs`.

use std::time::Duration;

use crate::clock::Instant;

/// The time after a host's last request for which it is kept warm.
pub(in crate::pool::state) const KEPT_FOR: Duration = Duration::from_secs(60 * 60);
/// The time for which busy connections may leave too few idle ones before others are opened. A short burst opens none.
pub(in crate::pool::state) const GRACE: Duration = Duration::from_secs(1);
/// The time after which a host is looked at again if a limit kept it from being dialled.
const NEXT_TRY: Duration = Duration::from_secs(1);
/// The shortest time between two looks at a host.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The age from which on a connection that was never used shows that the host can be dialled.
pub(in crate::pool::state) const PROVEN_AFTER: Duration = Duration::from_secs(1);

/// The record of a host that is kept warm.
#[derive(Debug)]
pub(super) struct Warm {
    /// The time of the last request, to within a second.
    pub(super) requested_at: Instant,
    /// The time of the next look at the host's connections.
    pub(super) look_at: Instant,
    /// The earliest time of the next look, unless something changes before.
    not_before: Option<Instant>,
    /// The time since which too few connections are idle, because others are busy.
    busy_since: Option<Instant>,
    pub(super) backoff: WarmBackoff,
}

/// The pauses between dials ahead to a host that fail.
#[derive(Debug, Default)]
pub(super) struct WarmBackoff {
    /// The length of the last pause, before its random half was shortened. Zero if there was none.
    length: Duration,
    /// The end of the last pause, until a dial for a request succeeds.
    until: Option<Instant>,
    /// The time of the first dial that succeeded since the last failure.
    opened_at: Option<Instant>,
}

impl Warm {
    /// Creates the record of a host that is requested now and is to be looked at.
    pub(super) fn new(now: Instant) -> Self {
        Self { requested_at: now, look_at: now, not_before: None, busy_since: None, backoff: WarmBackoff::default() }
    }

    /// Returns true if no request was made to the host for so long that it is kept warm no longer.
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        now - self.requested_at >= KEPT_FOR
    }

    /// Returns true if the next look is as soon as it may be.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_looked_at_in_time(&self, now: Instant) -> bool {
        self.look_at <= self.not_before.unwrap_or(now).max(now)
    }

    /// Has the host looked at by a time, unless it is left alone until later.
    pub(super) fn look_by(&mut self, at: Instant) {
        self.look_at = self.look_at.min(at.max(self.not_before.unwrap_or(at)));
    }

    /// Has the host looked at without regard to the last look, after something has changed.
    pub(super) fn may_look_at_once(&mut self) {
        self.not_before = None;
    }

    /// Ends a look. `next` is the time at which a connection has to be replaced. `is_done` is true if no connection lacks.
    pub(super) fn looked(&mut self, now: Instant, next: Option<Instant>, is_done: bool) {
        let pause = if is_done { LOOK_INTERVAL } else { NEXT_TRY };
        let not_before = (now + pause).max(self.backoff.until.unwrap_or(now));
        let forgotten_at = self.requested_at + KEPT_FOR;
        let next = if is_done { next.unwrap_or(forgotten_at) } else { not_before };
        self.not_before = Some(not_before);
        self.look_at = next.max(not_before).min(forgotten_at);
    }

    /// Notes whether too many connections are busy. Returns the time at which that has lasted for too long.
    pub(super) fn set_busy(&mut self, now: Instant, is_busy: bool) -> Option<Instant> {
        self.busy_since = if is_busy { self.busy_since.or(Some(now)) } else { None };
        self.busy_since.map(|since| since + GRACE)
    }
}

impl WarmBackoff {
    /// Notes a dial that failed, or a new connection that was lost unused. `random`, from 0 to 1, shortens the pause. Failures of
    /// the same moment count once.
    pub(super) fn failed(&mut self, now: Instant, random: f64) {
        if self.until.is_some_and(|until| now < until) {
            return;
        }
        let was_up = self.opened_at.take().is_some_and(|opened_at| now - opened_at >= PROVEN_AFTER);
        let is_first = was_up || self.length.is_zero();
        self.length = if is_first { FIRST_PAUSE } else { (self.length * 2).min(LONGEST_PAUSE) };
        self.until = Some(now + self.length.mul_f64(0.5 + random / 2.0));
    }

    /// Notes a dial that succeeded. After a failure, one ahead of requests has to last for a while before others are begun; one for a
    /// request is enough.
    pub(super) fn opened(&mut self, now: Instant, for_request: bool) {
        if for_request {
            self.length = Duration::ZERO;
            self.until = None;
        }
        self.opened_at.get_or_insert(now);
    }

    /// Returns the number of dials that may be begun ahead beside those `in_flight`. After a pause that is one.
    pub(super) fn allowed(&self, now: Instant, in_flight: usize) -> usize {
        match (self.until, self.opened_at) {
            (None, _) => usize::MAX,
            (_, Some(opened_at)) if now - opened_at >= PROVEN_AFTER => usize::MAX,
            (_, Some(_)) => 0,
            (Some(until), None) if now < until => 0,
            (Some(_), None) => 1_usize.saturating_sub(in_flight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns the lengths of the pauses of dials that fail one after the other, in milliseconds.
    fn pauses(backoff: &mut WarmBackoff, now: &mut Instant, random: f64, count: usize) -> Vec<u128> {
        let mut pauses = Vec::new();
        for _ in 0..count {
            backoff.failed(*now, random);
            let until = backoff.until.expect("a pause");
            assert_eq!(backoff.allowed(until - ms(1), 0), 0);
            assert_eq!((backoff.allowed(until, 0), backoff.allowed(until, 1)), (1, 0), "one try at a time");
            pauses.push((until - *now).as_millis());
            *now = until;
        }
        pauses
    }

    #[test]
    fn the_pause_doubles_from_one_second_to_sixty_and_half_of_it_is_random() {
        let (mut backoff, mut now) = (WarmBackoff::default(), crate::clock::now());
        assert_eq!(backoff.allowed(now, 99), usize::MAX);
        let longest = pauses(&mut backoff, &mut now, 1.0, 8);
        assert_eq!(longest, [1, 2, 4, 8, 16, 32, 60, 60].map(|seconds| seconds * 1_000));
        assert_eq!(pauses(&mut backoff, &mut now, 0.0, 1), [30_000]);
    }

    #[test]
    fn failures_of_the_same_moment_count_once() {
        let (mut backoff, now) = (WarmBackoff::default(), crate::clock::now());
        for at in 0..900 {
            backoff.failed(now + ms(at), 1.0);
        }
        assert_eq!(backoff.until, Some(now + ms(1_000)));
    }

    #[test]
    fn a_success_ends_the_pause_and_the_next_one_is_longer_unless_the_connection_lasted_or_served_a_request() {
        for (lasted, for_request, next) in [(999, false, 16_000), (1_000, false, 1_000), (0, true, 1_000)] {
            let (mut backoff, mut now) = (WarmBackoff::default(), crate::clock::now());
            pauses(&mut backoff, &mut now, 1.0, 4);
            backoff.opened(now, for_request);
            assert_eq!(backoff.allowed(now, 5), if for_request { usize::MAX } else { 0 });
            assert_eq!(backoff.allowed(now + PROVEN_AFTER, 5), usize::MAX);
            now += ms(lasted);
            assert_eq!(pauses(&mut backoff, &mut now, 1.0, 1), [next], "{lasted}");
        }
    }

    #[test]
    fn a_host_that_could_not_be_dialled_is_looked_at_once_in_a_second() {
        let now = crate::clock::now();
        let mut warm = Warm::new(now);
        warm.looked(now, None, false);
        warm.look_by(now);
        assert_eq!(warm.look_at, now + NEXT_TRY);
        warm.may_look_at_once();
        warm.look_by(now + ms(20));
        assert_eq!(warm.look_at, now + ms(20));
        warm.looked(now + ms(20), Some(now + ms(9_000)), true);
        assert_eq!(warm.look_at, now + ms(9_000));
        warm.look_by(now + ms(21));
        assert_eq!(warm.look_at, now + ms(30), "two looks are not at the same moment");
        warm.looked(now, None, true);
        assert_eq!(warm.look_at, now + KEPT_FOR, "the host is then forgotten");
    }
}
