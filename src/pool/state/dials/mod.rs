//! A host's dials in flight, and the rules for how many there are; the limit after descriptors ran out. A core.
//!
//! Each request that waits may have a dial begun for it, as by a client without a pool. Less is enough where a dial or a connection
//! serves several requests, so a dial begins only while requests outnumber what the dials in flight will serve. A *slow* dial does
//! not count among these. The *window* delays dials by a moment, because a connection that becomes free makes them
//! unnecessary: 16 at a time, or one as long as the protocol is not known, since one HTTP/2 connection may be enough. If the queue
//! stands still for [`PATIENCE`], the window is as large as the user's limit. docs/decisions/pool.md says why.

use std::time::Duration;

use super::values::conn::BY_AGE;
use crate::clock::Instant;
use crate::list::List;

/// A host's dials in flight.
#[derive(Debug, Default)]
pub(super) struct HostDials {
    /// The number of dials in flight.
    pub(super) in_flight: usize,
    /// The number of those that were given up and have not ended yet.
    pub(super) given_up: usize,
    /// The number of those that end when no request needs them.
    pub(super) extra: usize,
    /// The dials that are not slow, the oldest in front.
    pub(super) young: List<BY_AGE>,
    /// The slow dials, the oldest in front.
    pub(super) slow: List<BY_AGE>,
    /// The end of the pause that the server asked for (ENHANCE_YOUR_CALM), or that a lack of local ports makes.
    pub(super) paused_until: Option<Instant>,
    /// True if a dial found no local port since one succeeded.
    pub(super) lacks_ports: bool,
    /// The time at which a connection was opened last, or became free while requests waited.
    pub(super) progress_at: Option<Instant>,
    /// The end of the time in which an HTTP/2 connection is expected to announce its streams.
    pub(super) settings_by: Option<Instant>,
    /// True if a dial was slow since one succeeded.
    pub(super) has_hung: bool,
    /// The number of dials that were slow and have failed since one succeeded.
    slow_failures: usize,
    /// The usual time of a dial.
    pub(super) usual: Usual,
    failures: Failures,
    /// The end of the pause in which no dial begins for a request that had one.
    again_at: Option<Instant>,
    served: ServedLately,
    /// The age at which the only dial that a limit allows gives way to another one.
    gives_way_at: Option<Duration>,
}

/// The usual time of a host's dials.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Usual {
    mean: Option<Duration>,
    last: Duration,
}

/// The starts of the dials that failed last, since one succeeded.
#[derive(Debug, Default)]
struct Failures {
    begun: [Option<Instant>; ENOUGH_FAILURES],
    count: usize,
}

/// The number of requests that got a connection lately, in two intervals of [`PATIENCE`].
#[derive(Debug, Default)]
struct ServedLately {
    since: Option<Instant>,
    now: usize,
    before: usize,
}

/// The size of the window.
const WINDOW: usize = 16;

/// The size of the window while the host's protocol is not known.
pub(super) const PROBE_WINDOW: usize = 1;

/// The size of the window while the queue is served within [`PATIENCE`]. More connections would cost more than they bring.
const NARROW_WINDOW: usize = 4;

/// The longest time for which the window, or the wait for another request's dial, delays a dial.
pub(super) const PATIENCE: Duration = Duration::from_millis(50);

/// The time for which a sign of life of the host, or a dial that had begun before, keeps a request from failing with a dial.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// The shortest time from which the speed of the queue is taken.
const SHORTEST_SAMPLE: Duration = Duration::from_millis(5);

/// The number of slow dials from which on further ones for requests that had one begin one after the other, after a pause. Else many clients
/// of a host that does not answer would come at once when it is back.
const FEW_AGAIN: usize = 4;

/// The longest pause between the last dial and one for a request that had one, at a host that does not answer.
const LONGEST_AGAIN: Duration = Duration::from_secs(4);

/// The number of slow dials that run to their end however many there are.
pub(super) const FEW_SLOW: usize = 16;

/// The most slow dials while others begin.
pub(super) const MOST_SLOW: usize = 32;

/// The pause after a dial found no local port: those of closed connections come back one by one.
const PORTS_PAUSE: Duration = Duration::from_millis(200);

/// The number of dials in a row whose failures stand for the whole host.
const ENOUGH_FAILURES: usize = 4;

const LEAST_SLOW: Duration = Duration::from_millis(100);
const MOST_SLOW_AGE: Duration = Duration::from_secs(1);
/// The least age of a slow dial under a short connect timeout.
const LEAST_SLOW_OF_SHORT: Duration = Duration::from_millis(20);

impl HostDials {
    /// Returns the age at which a dial becomes slow: twice the usual time, from 100 ms to 1 s, and at most a quarter of the connect
    /// timeout. It doubles with each further dial for the same request, of which this is number `nth`, from 1.
    pub(super) fn slow_after(&self, connect: Duration, nth: u32) -> Duration {
        let first =
            (self.usual.longest() * 2).clamp(LEAST_SLOW, MOST_SLOW_AGE).min((connect / 4).max(LEAST_SLOW_OF_SHORT));
        first.saturating_mul(1 << nth.saturating_sub(1).min(16)).min(MOST_SLOW_AGE)
    }

    /// Returns true if a dial has failed or was slow since one succeeded, or one is slow. A dial that hangs fails only when its time is
    /// over.
    pub(super) fn are_in_trouble(&self) -> bool {
        self.failures.count > 0 || self.has_hung || !self.slow.is_empty()
    }

    /// Returns the number of dials in flight that were not given up.
    pub(super) fn live(&self) -> usize {
        self.in_flight - self.given_up
    }

    /// Notes that a dial succeeded.
    pub(super) fn succeeded(&mut self, now: Instant, begun: Instant) {
        let took = now - begun;
        self.usual.mean = Some(self.usual.mean.map_or(took, |mean| mean.mul_f64(0.8) + took.mul_f64(0.2)));
        self.usual.last = took;
        self.failures = Failures::default();
        self.again_at = None;
        self.has_hung = false;
        self.slow_failures = 0;
        self.lacks_ports = false;
        self.gives_way_at = None;
        self.progress_at = Some(now);
    }

    /// Notes that a dial found no local port, and returns the end of the pause after that.
    pub(super) fn lack_ports(&mut self, now: Instant) -> Instant {
        self.lacks_ports = true;
        *self.paused_until.get_or_insert(now + PORTS_PAUSE)
    }

    /// Notes that a dial failed.
    pub(super) fn failed(&mut self, begun: Instant, was_slow: bool) {
        self.slow_failures += usize::from(was_slow);
        self.failures.begun[self.failures.count % ENOUGH_FAILURES] = Some(begun);
        self.failures.count += 1;
    }

    /// Notes that a dial failed for a request that has an older one in flight. Where dials fail at once, as those of a name that does not
    /// exist, one would follow the other for as long as the older one hangs.
    pub(super) fn failed_beside_older(&mut self, now: Instant) {
        self.pause_again(now + PATIENCE);
    }

    /// Notes that a dial has begun. At a host that does not answer, a pause follows.
    pub(super) fn begun(&mut self, now: Instant, connect: Duration) {
        if self.answer_nothing() {
            self.pause_again(now + (connect / 4).clamp(PATIENCE, LONGEST_AGAIN));
        }
    }

    fn pause_again(&mut self, until: Instant) {
        self.again_at = self.again_at.max(Some(until));
    }

    /// Returns the end of the pause in which no dial begins for a request that had one.
    pub(super) fn pauses_again_until(&self, now: Instant) -> Option<Instant> {
        self.again_at.filter(|at| now < *at)
    }

    /// Returns true if no dial begins for a request that had one.
    pub(super) fn pauses_again(&self, now: Instant) -> bool {
        self.pauses_again_until(now).is_some()
    }

    /// Returns the time up to which requests that came have seen enough dials begin and fail, with no success between.
    pub(super) fn hopeless_until(&self) -> Option<Instant> {
        let begun: Option<Vec<Instant>> = self.failures.begun.into_iter().collect();
        begun?.into_iter().min()
    }

    /// Returns true if the host has shown a sign of life within the last 100 ms.
    pub(super) fn have_progressed(&self, now: Instant) -> bool {
        self.progress_at.is_some_and(|at| now < at + GRACE)
    }

    /// Counts a request that waited and got a connection.
    pub(super) fn served(&mut self, now: Instant) {
        self.served.begin_interval(now);
        self.served.now += 1;
    }

    /// Returns true if the queue, of which the first request to be dialled for came at `since`, stands still: it is not served soon by
    /// the connections that there are.
    pub(super) fn stand_still(&self, now: Instant, since: Instant, waiting: usize) -> bool {
        now - since >= PATIENCE && self.served.takes(now, waiting) > PATIENCE * 2
    }

    /// Returns the number of dials that are not slow and may be in flight while so many requests wait and the queue does not stand still.
    pub(super) fn window(&self, now: Instant, waiting: usize) -> usize {
        if self.served.takes(now, waiting) <= PATIENCE { NARROW_WINDOW } else { WINDOW }
    }

    /// Returns the number of dials that may begin for requests whose earlier dials have ended or are slow. `beside_others` is true if
    /// one begins for another request.
    pub(super) fn allowed_again(&self, now: Instant, beside_others: bool) -> usize {
        if self.pauses_again(now) {
            return 0;
        }
        if self.answer_nothing() { usize::from(self.young.is_empty() && !beside_others) } else { usize::MAX }
    }

    /// Returns true if so many dials are slow, or were when they failed, that one more says as much as many.
    fn answer_nothing(&self) -> bool {
        self.slow.len() + self.slow_failures >= FEW_AGAIN
    }

    /// Returns the age at which a dial gives way that is the only one a limit allows. It doubles each time, because a dial may take that
    /// long and succeed.
    pub(super) fn gives_way_at(&self) -> Duration {
        self.gives_way_at.unwrap_or((self.usual.longest() * 4).max(MOST_SLOW_AGE))
    }

    /// Notes that the only dial a limit allowed has given way.
    pub(super) fn gave_way(&mut self) {
        self.gives_way_at = Some(self.gives_way_at().saturating_mul(2));
    }
}

impl Usual {
    fn longest(&self) -> Duration {
        self.mean.map_or(Duration::ZERO, |mean| mean.max(self.last))
    }
}

impl ServedLately {
    fn begin_interval(&mut self, now: Instant) {
        let age = self.since.map(|since| now - since);
        if age.is_none_or(|age| age >= PATIENCE) {
            let is_next = age.is_some_and(|age| age < PATIENCE * 2);
            let before = if is_next { self.now } else { 0 };
            *self = Self { since: Some(now), now: 0, before };
        }
    }

    /// Returns the time in which so many requests will be served, if it goes on as in the last one or two intervals.
    fn takes(&self, now: Instant, waiting: usize) -> Duration {
        let Some(age) = self.since.map(|since| now - since) else { return Duration::MAX };
        let (served, time) = match self.before {
            _ if age >= PATIENCE * 2 => (0, age),
            0 => (self.now, age.max(SHORTEST_SAMPLE)),
            before => (self.now + before, age + PATIENCE),
        };
        if served == 0 { Duration::MAX } else { time.mul_f64(waiting as f64 / served as f64) }
    }
}

/// The number of connections that the process has descriptors (EMFILE, ENFILE) or local ports for, as far as is known.
///
/// A dial that finds none is postponed. From then on the pool has no more connections than it had, and tries one more from
/// time to time. Each connection that opens raises the limit, by twice as much each time, until it no longer matters.
#[derive(Debug, Default)]
pub(in crate::pool::state) struct Descriptors {
    /// The most slots that may be taken. `None` if no dial failed for want of descriptors lately.
    ceiling: Option<usize>,
    /// The amount by which the ceiling rises when the next connection opens.
    step: usize,
    /// The time between two tries.
    delay: Duration,
    /// True if another connection was tried, or opened, since descriptors ran out last. Failures before that count once.
    was_tried: bool,
    /// The time of the next try, if one is planned.
    pub(in crate::pool::state) timer: Option<Instant>,
}

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// The ceiling beyond which it is dropped.
const HIGHEST_CEILING: usize = 1 << 16;

impl Descriptors {
    /// Returns true if there may be another connection beside those in `slots`.
    pub(in crate::pool::state) fn allow(&self, slots: usize) -> bool {
        self.ceiling.is_none_or(|ceiling| slots < ceiling)
    }

    /// Returns true if descriptors ran out, and not enough connections have opened since then.
    pub(in crate::pool::state) fn have_run_out(&self) -> bool {
        self.ceiling.is_some()
    }

    /// Notes that a dial found no descriptor beside those of the connections in `slots`. Returns the time to
    /// [try another](Self::try_another), if that has changed.
    pub(in crate::pool::state) fn ran_out(&mut self, now: Instant, slots: usize) -> Option<Instant> {
        let had_run_out = self.have_run_out();
        self.ceiling = Some(self.ceiling.map_or(slots, |ceiling| ceiling.min(slots)));
        self.step = 1;
        if had_run_out && !self.was_tried {
            return None;
        }
        self.delay = if had_run_out { (self.delay * 2).min(LONGEST_DELAY) } else { FIRST_DELAY };
        self.was_tried = false;
        Some(now + self.delay)
    }

    /// Notes that a connection opened: there may be more of them.
    pub(in crate::pool::state) fn opened_one(&mut self) {
        let Some(ceiling) = self.ceiling else { return };
        let raised = ceiling + self.step;
        self.delay = FIRST_DELAY;
        self.was_tried = true;
        self.step *= 2;
        self.ceiling = if raised < HIGHEST_CEILING { Some(raised) } else { None };
    }

    /// Allows one more connection than those in `slots`, or any number if none `is_wanted`. Returns the time of the next try.
    pub(in crate::pool::state) fn try_another(
        &mut self,
        now: Instant,
        slots: usize,
        is_wanted: bool,
    ) -> Option<Instant> {
        if !is_wanted {
            self.ceiling = None;
        }
        let ceiling = self.ceiling?;
        self.was_tried = true;
        self.ceiling = Some(ceiling.max(slots + 1));
        Some(now + self.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_dial_is_slow_after_twice_the_usual_time_within_bounds() {
        let (mut dials, now) = (HostDials::default(), crate::clock::now());
        assert_eq!(dials.slow_after(LONG, 1), ms(100), "nothing is known");
        assert_eq!([200, 40].map(|connect| dials.slow_after(ms(connect), 1)), [ms(50), ms(20)]);
        assert_eq!([2, 3, 4, 5, 99].map(|nth| dials.slow_after(LONG, nth)), [200, 400, 800, 1_000, 1_000].map(ms));
        for (took, slow_after) in [(1, 100), (250, 500), (10_000, 1_000)] {
            dials.succeeded(now + ms(took), now);
            assert_eq!(dials.slow_after(LONG, 1), ms(slow_after));
        }
        dials.succeeded(now + ms(1), now);
        assert_eq!(dials.slow_after(LONG, 1), ms(1_000), "the mean falls slowly");
    }

    #[test]
    fn four_failures_in_a_row_stand_for_the_host_to_those_who_came_before() {
        let (mut dials, now) = (HostDials::default(), crate::clock::now());
        for begun in [5, 3, 4] {
            dials.failed(now + ms(begun), false);
            assert_eq!(dials.hopeless_until(), None);
        }
        dials.failed(now + ms(9), false);
        assert_eq!(dials.hopeless_until(), Some(now + ms(3)));
        dials.failed(now + ms(10), false);
        assert_eq!(dials.hopeless_until(), Some(now + ms(3)), "the last four: 3, 4, 9 and 10");
        dials.failed(now + ms(11), false);
        assert_eq!(dials.hopeless_until(), Some(now + ms(4)));
        dials.succeeded(now, now);
        assert!(dials.hopeless_until().is_none() && !dials.are_in_trouble());
    }

    #[test]
    fn a_queue_that_is_served_soon_does_not_stand_still() {
        let (mut dials, now) = (HostDials::default(), crate::clock::now());
        assert!(!dials.stand_still(now + ms(49), now, 1));
        assert!(dials.stand_still(now + ms(50), now, 1));
        for at in [30, 40, 50] {
            dials.served(now + ms(at));
        }
        assert!(!dials.stand_still(now + ms(60), now, 10) && dials.stand_still(now + ms(60), now, 11), "one in 10 ms");
        dials.served(now + ms(80));
        let soon = |at, waiting| !dials.stand_still(now + ms(at), now, waiting);
        assert!(soon(90, 6) && !soon(90, 7), "four in 60 ms");
        assert!(!soon(180, 1), "none for 100 ms");
    }

    #[test]
    fn the_window_is_small_while_the_queue_moves() {
        let (mut dials, now) = (HostDials::default(), crate::clock::now());
        assert_eq!(dials.window(now, 1), 16);
        dials.served(now);
        assert_eq!([10, 11].map(|waiting| dials.window(now + ms(1), waiting)), [4, 16], "one in 5 ms at the least");
    }

    #[test]
    fn the_only_dial_gives_way_later_each_time() {
        let (mut dials, now) = (HostDials::default(), crate::clock::now());
        for seconds in [1, 2, 4] {
            assert_eq!(dials.gives_way_at(), ms(seconds * 1_000));
            dials.gave_way();
        }
        dials.succeeded(now + ms(400), now);
        assert_eq!(dials.gives_way_at(), ms(1_600), "four times the usual time");
    }
}

#[cfg(test)]
mod descriptors_tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn connections_are_limited_to_what_there_was_and_one_more_is_tried_from_time_to_time() {
        let (mut descriptors, now) = (Descriptors::default(), crate::clock::now());
        assert!(descriptors.allow(1_000_000));
        assert_eq!(descriptors.ran_out(now, 10), Some(now + ms(50)));
        assert_eq!(descriptors.ran_out(now, 10), None, "a failure of the same moment counts once");
        assert!(descriptors.allow(9) && !descriptors.allow(10));
        assert_eq!(descriptors.try_another(now, 10, true), Some(now + ms(50)));
        assert!(descriptors.allow(10) && !descriptors.allow(11));
        assert_eq!(descriptors.ran_out(now, 10), Some(now + ms(100)), "the next try failed, too");
        descriptors.try_another(now, 10, true);
        assert_eq!(descriptors.ran_out(now, 10), Some(now + ms(200)));
        assert!(!descriptors.allow(10));
    }

    #[test]
    fn the_limit_is_gone_soon_after_connections_open_again() {
        let (mut descriptors, now) = (Descriptors::default(), crate::clock::now());
        descriptors.ran_out(now, 0);
        assert!(!descriptors.allow(0));
        descriptors.try_another(now, 0, true);
        let mut slots = 0;
        while descriptors.ceiling.is_some() {
            assert!(descriptors.allow(slots));
            slots += 1;
            descriptors.opened_one();
        }
        assert!(slots < 20);
    }

    #[test]
    fn the_limit_rises_by_twice_as_much_each_time_until_it_is_dropped_at_the_highest() {
        let (mut descriptors, now) = (Descriptors::default(), crate::clock::now());
        descriptors.ran_out(now, 10);
        for ceiling in [11, 13, 17] {
            descriptors.opened_one();
            assert_eq!(descriptors.ceiling, Some(ceiling));
        }
        for (slots, ceiling) in [(HIGHEST_CEILING - 2, Some(HIGHEST_CEILING - 1)), (HIGHEST_CEILING - 1, None)] {
            let mut descriptors = Descriptors::default();
            descriptors.ran_out(now, slots);
            descriptors.opened_one();
            assert_eq!(descriptors.ceiling, ceiling);
        }
    }
}
