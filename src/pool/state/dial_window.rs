//! The number of dials to a host that may be in flight at a time. A core.
//!
//! The window grows as dials succeed while requests wait, as TCP's slow start has it (RFC 5681).
//!
//! More connections are worth their dials if more of them become free in a second. If they do not, the server, or this process, has as
//! much to do as it can, and a connection that becomes free is as good as a new one and costs nothing. The window shrinks then.
//!
//! This shows within milliseconds where requests hold connections for less than 10 ms. Where they hold them for longer, measurements
//! are dropped, and the window is at least as large as at the start.

use std::time::Duration;

use crate::clock::Instant;

/// The window of a host's dials.
#[derive(Debug, Clone, Copy)]
pub(super) struct DialWindow {
    size: usize,
    growth: Growth,
    /// The measurement in progress, while requests wait.
    round: Option<Round>,
    /// The last measurement, made when there were fewer connections.
    last: Option<Throughput>,
}

/// The growth of the window, over one interval of [`GROWTH_INTERVAL`] or longer.
#[derive(Debug, Clone, Copy)]
struct Growth {
    since: Instant,
    /// The size of the window at `since`.
    from: usize,
    /// Requests that waited and got a new connection since.
    served_by_new: usize,
    /// Requests that waited and got a connection which became free since.
    served_by_freed: usize,
    /// True if new connections served more requests than freed ones in the interval before.
    is_worthwhile: bool,
}

/// A measurement that goes on until each connection, and at least [`MIN_SAMPLES`], became free.
#[derive(Debug, Clone, Copy)]
struct Round {
    since: Instant,
    /// The time at which a connection became free last.
    last_freed: Instant,
    /// The number of times that a connection became free.
    freed: usize,
    /// The number of connections at the start.
    conns: usize,
}

/// The result of a measurement.
#[derive(Debug, Clone, Copy)]
struct Throughput {
    at: Instant,
    /// The mean number of connections.
    conns: f64,
    /// The number of times per second that one of them became free.
    rate: f64,
}

/// The size of the window before any dial has succeeded.
const INITIAL_SIZE: usize = 16;

/// The smallest size to which a measurement shrinks the window. One dial may hang, so there is another.
const MIN_SIZE: usize = 2;

/// The shortest time in which the window doubles.
const GROWTH_INTERVAL: Duration = Duration::from_millis(25);

/// The fewest connections that have to become free in a measurement.
const MIN_SAMPLES: usize = 64;

/// The longest mean time that connections are held for a measurement to count. A request may wait long for slower ones.
const MAX_MEAN_HOLD: Duration = Duration::from_millis(10);

/// The time of one lease that ends the measurement.
const SLOW_LEASE: Duration = Duration::from_millis(100);

/// The factor by which connections must have grown before two measurements are compared.
const MIN_GROWTH: f64 = 1.25;

/// The age at which a measurement is dropped.
const MAX_AGE: Duration = Duration::from_secs(1);

impl Growth {
    fn new(now: Instant, from: usize) -> Self {
        Self { since: now, from, served_by_new: 0, served_by_freed: 0, is_worthwhile: false }
    }
}

impl Round {
    fn new(now: Instant, conns: usize) -> Self {
        Self { since: now, last_freed: now, freed: 0, conns }
    }
}

impl DialWindow {
    /// Creates the window of a host that has not been dialled yet. It never exceeds `most`.
    pub(super) fn new(now: Instant, most: usize) -> Self {
        let size = INITIAL_SIZE.min(most);
        Self { size, growth: Growth::new(now, size), round: None, last: None }
    }

    /// Returns the most dials that may be in flight.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Makes the window no larger than `most`.
    pub(super) fn cap(&mut self, most: usize) {
        self.size = self.size.min(most);
    }

    /// Grows the window by one for a dial that succeeded while more were wanted, if that is worthwhile. It doubles at most once per
    /// [`GROWTH_INTERVAL`].
    pub(super) fn grow(&mut self, now: Instant, most: usize) {
        let growth = &mut self.growth;
        if now - growth.since >= GROWTH_INTERVAL {
            let is_worthwhile = growth.served_by_new >= growth.served_by_freed;
            *growth = Growth { is_worthwhile, ..Growth::new(now, self.size) };
        } else if self.size >= growth.from * 2 {
            return;
        }
        if growth.is_worthwhile {
            self.size = (self.size + 1).min(most);
        }
    }

    /// Counts a request that waited and got a connection.
    pub(super) fn served(&mut self, by_new: bool) {
        if by_new {
            self.growth.served_by_new += 1;
        } else {
            self.growth.served_by_freed += 1;
        }
    }

    /// Begins a measurement, or continues it, after an event of the host while requests wait. Drops the results if no connection has
    /// become free for a while, or if they are stale.
    pub(super) fn observe(&mut self, now: Instant, conns: usize, most: usize) {
        let round = self.round.get_or_insert(Round::new(now, conns));
        let is_slow = now - round.last_freed > MAX_MEAN_HOLD;
        if is_slow || self.last.is_some_and(|last| now - last.at >= MAX_AGE) {
            self.forget(now, conns, most);
        }
    }

    /// Ends the measurement: no request waits any more.
    pub(super) fn rest(&mut self) {
        self.round = None;
    }

    /// Drops the measurements, and gives the window at least its first size.
    fn forget(&mut self, now: Instant, conns: usize, most: usize) {
        self.round = Some(Round::new(now, conns));
        self.last = None;
        self.size = self.size.max(INITIAL_SIZE.min(most));
    }

    /// Counts one of `conns` connections as free again, which was held since `since`.
    #[inline]
    pub(super) fn freed(&mut self, now: Instant, since: Instant, conns: usize, most: usize) {
        if self.round.is_some() {
            self.measure(now, since, conns, most);
        }
    }

    fn measure(&mut self, now: Instant, since: Instant, conns: usize, most: usize) {
        let Some(round) = &mut self.round else { return };
        round.last_freed = now;
        round.freed += 1;
        if now - since > SLOW_LEASE {
            return self.forget(now, conns, most);
        }
        let took = now - round.since;
        if round.freed < conns.max(MIN_SAMPLES) || took.is_zero() {
            return;
        }
        let conns_before = round.conns;
        let rate = round.freed as f64 / took.as_secs_f64();
        let mean = (conns_before + conns) as f64 / 2.0;
        *round = Round::new(now, conns);
        // All connections are held while requests wait, so this is the mean time for which one is (Little's law).
        let mean_held = mean / rate;
        if mean_held > MAX_MEAN_HOLD.as_secs_f64() {
            self.forget(now, conns, most);
        } else if conns <= conns_before * 2 {
            self.judge(Throughput { at: now, conns: mean, rate }, most);
        }
    }

    /// Compares a measurement with the last one, which was made with fewer connections, and sets the window accordingly.
    fn judge(&mut self, now: Throughput, most: usize) {
        let Some(last) = self.last else {
            self.last = Some(now);
            return;
        };
        let more_conns = now.conns / last.conns;
        let more_rate = now.rate / last.rate;
        if more_conns < 1.0 / MIN_GROWTH {
            self.forget(now.at, now.conns as usize, most);
        } else if more_conns < MIN_GROWTH {
            return;
        } else if more_rate - 1.0 >= (more_conns - 1.0) / 2.0 {
            // At least half of what they would bring if nothing else were short.
            self.size = self.size.max((self.size * 2).min(INITIAL_SIZE.min(most)));
        } else {
            self.size = (self.size / 4).max(MIN_SIZE.min(most));
            self.growth = Growth::new(now.at, self.size);
        }
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A simulated server.
    #[derive(Clone, Copy)]
    struct Server {
        /// The number of requests it processes at a time.
        workers: usize,
        /// The time a dial takes.
        dial: Duration,
        /// The time a dial takes from a worker: large if this process has too much to do.
        dial_cost: Duration,
        /// The time a request takes.
        work: fn(&mut Rng) -> Duration,
    }

    const BUSY: Server = Server { workers: 1, dial: micros(500), dial_cost: micros(30), work: |_| micros(10) };

    /// Simulates requests that wait all at once, with `open` connections. Returns the number of connections opened and the time
    /// until the last request is answered.
    fn burst(
        window: &mut DialWindow,
        start: Instant,
        open: usize,
        requests: usize,
        server: Server,
    ) -> (usize, Duration) {
        burst_with(window, start, open, requests, server, |window, now, open| window.observe(now, open, 1_024))
    }

    /// Simulates a burst with a window that measures nothing.
    fn unmeasured(requests: usize, server: Server) -> (usize, Duration) {
        let start = crate::clock::now();
        burst_with(&mut DialWindow::new(start, 1_024), start, 0, requests, server, |_, _, _| {})
    }

    fn burst_with(
        window: &mut DialWindow,
        start: Instant,
        mut open: usize,
        requests: usize,
        server: Server,
        look: impl Fn(&mut DialWindow, Instant, usize),
    ) -> (usize, Duration) {
        let mut random = Rng::with_seed(7);
        let (mut now, had, mut waiting) = (start, open, requests.saturating_sub(open));
        let (mut dials, mut working) = (Vec::<Instant>::new(), Vec::<(Instant, Instant)>::new());
        // The time at which each worker is free.
        let mut workers = vec![start; server.workers];
        let mut work = |now: Instant, work: Duration| {
            let worker = workers.iter_mut().min().unwrap();
            *worker = (*worker).max(now) + work;
            *worker
        };
        working.extend((0..open.min(requests)).map(|_| (work(start, (server.work)(&mut random)), start)));
        look(window, now, open);
        while waiting > 0 {
            while dials.len() < window.size().min(waiting) {
                dials.push(work(now, server.dial_cost).max(now + server.dial));
            }
            let freed = working.iter().copied().enumerate().min_by_key(|(_, (until, _))| *until);
            let opened = dials.iter().copied().enumerate().min_by_key(|(_, until)| *until);
            let is_new = match (freed, opened) {
                (Some((at, (until, since))), opened) if opened.is_none_or(|(_, opened)| until < opened) => {
                    now = until;
                    working.swap_remove(at);
                    window.freed(now, since, open, 1_024);
                    false
                }
                (_, Some((at, until))) => {
                    now = until;
                    dials.swap_remove(at);
                    open += 1;
                    window.grow(now, 1_024);
                    true
                }
                _ => unreachable!("the window is never closed"),
            };
            waiting -= 1;
            window.served(is_new);
            match waiting {
                0 => window.rest(),
                _ => look(window, now, open),
            }
            working.push((work(now, (server.work)(&mut random)), now));
        }
        let last = working.iter().map(|(until, _)| *until).max();
        (open - had, last.unwrap_or(now) - start)
    }

    fn after_a_busy_server() -> (DialWindow, Instant) {
        let start = crate::clock::now();
        let mut window = DialWindow::new(start, 1_024);
        let (_, took) = burst(&mut window, start, 0, 3_000, BUSY);
        assert_eq!(window.size(), MIN_SIZE);
        (window, start + took)
    }

    #[test]
    fn a_server_that_gains_nothing_from_more_connections_is_not_dialled_for_every_request() {
        let start = crate::clock::now();
        let mut window = DialWindow::new(start, 1_024);
        let (opened, took) = burst(&mut window, start, 0, 3_000, BUSY);
        let (without, took_without) = unmeasured(3_000, BUSY);
        assert!(opened * 4 < without * 3, "{opened}, {without}");
        assert!(took < took_without, "{took:?}, {took_without:?}");
        let (more, _) = burst(&mut window, start + took, opened, 3_000, BUSY);
        assert!(more < opened, "{opened} and {more} more");
    }

    #[test]
    fn nothing_is_measured_where_connections_are_held_for_long() {
        fn noisy(random: &mut Rng, mean: f64) -> Duration {
            Duration::from_secs_f64(-random.f64().max(1e-9).ln() * mean)
        }
        let works: [fn(&mut Rng) -> Duration; 5] = [
            |_| ms(20),
            |_| ms(100),
            |random| noisy(random, 0.05),
            |random| noisy(random, 0.1),
            |random| if random.u8(..10) == 0 { ms(10_000) } else { ms(25) },
        ];
        for (number, work) in works.into_iter().enumerate() {
            for dial in [ms(1), ms(20), ms(50), ms(300)] {
                let (start, server) =
                    (crate::clock::now(), Server { workers: 3_000, dial, dial_cost: Duration::ZERO, work });
                let (opened, took) = burst(&mut DialWindow::new(start, 1_024), start, 0, 1_500, server);
                let (without, took_without) = unmeasured(1_500, server);
                let case = format!("{number}, {dial:?}: {opened} in {took:?}, {without} in {took_without:?} without");
                assert!(took <= took_without.mul_f64(1.05) && opened * 20 >= without * 19, "{case}");
            }
        }
    }

    #[test]
    fn a_near_server_with_capacity_gets_more_connections() {
        let start = crate::clock::now();
        for workers in [200, 3_000] {
            let server = Server { workers, dial: ms(1), dial_cost: Duration::ZERO, work: |_| ms(5) };
            let (_, took) = burst(&mut DialWindow::new(start, 1_024), start, 0, 3_000, server);
            let (_, without) = unmeasured(3_000, server);
            assert!(took < without.mul_f64(1.3), "{took:?}, {without:?} without");
        }
    }

    #[test]
    fn a_server_that_becomes_slow_is_dialled_as_if_nothing_had_been_measured() {
        for (open, work) in [(0, (|_| ms(20)) as fn(&mut Rng) -> Duration), (100, |_| ms(30_000)), (500, |_| ms(200))] {
            let (mut window, now) = after_a_busy_server();
            let server = Server { workers: 3_000, dial: ms(20), dial_cost: Duration::ZERO, work };
            let (_, took) = burst(&mut window, now, open, 3_000, server);
            let (_, without) = unmeasured(3_000, server);
            assert!(took <= without + ms(150), "{open}: {took:?}, {without:?} without");
        }
    }

    #[test]
    fn a_measurement_is_dropped_after_a_second_and_when_nothing_becomes_free() {
        let (mut window, now) = after_a_busy_server();
        window.observe(now, 100, 1_024);
        window.observe(now + MAX_MEAN_HOLD, 100, 1_024);
        assert_eq!(window.size(), MIN_SIZE);
        window.observe(now + MAX_MEAN_HOLD + micros(1), 100, 1_024);
        assert_eq!(window.size(), INITIAL_SIZE, "no connection became free");

        let (mut window, now) = after_a_busy_server();
        window.observe(now + MAX_AGE - ms(100), 100, 1_024);
        assert_eq!(window.size(), MIN_SIZE);
        window.rest();
        window.observe(now + MAX_AGE, 100, 1_024);
        assert_eq!(window.size(), INITIAL_SIZE);
    }

    #[test]
    fn a_measurement_with_fewer_connections_drops_the_last_one() {
        // A server that closes connections after some requests.
        let (mut window, mut now) = after_a_busy_server();
        for conns in (20..100).rev() {
            window.observe(now, 100, 1_024);
            for _ in 0..100 {
                now += micros(10);
                window.freed(now, now - micros(10) * conns, conns as usize, 1_024);
            }
        }
        assert_eq!(window.size(), INITIAL_SIZE);
    }

    #[test]
    fn a_limit_below_the_smallest_window_holds() {
        // The same number becomes free in a second, however many connections there are.
        for (most, fewest) in [(1, 1), (1_024, MIN_SIZE)] {
            let (mut now, mut least) = (crate::clock::now(), usize::MAX);
            let mut window = DialWindow::new(now, most);
            for conns in (20..200).step_by(10) {
                window.observe(now, conns, most);
                for _ in 0..conns.max(MIN_SAMPLES) {
                    now += micros(10);
                    window.freed(now, now - micros(100), conns, most);
                }
                assert!(window.size() <= most);
                least = least.min(window.size());
            }
            assert_eq!(least, fewest, "of {most}");
        }
    }

    #[test]
    fn a_lower_limit_makes_the_window_smaller_and_a_higher_one_does_not_make_it_larger() {
        let mut window = DialWindow::new(crate::clock::now(), 1_024);
        let sizes = [20, 3, 100].map(|most| {
            window.cap(most);
            window.size()
        });
        assert_eq!(sizes, [16, 3, 3]);
    }

    #[test]
    fn the_window_grows_while_new_connections_serve_as_many_requests_as_freed_ones() {
        for (by_new, by_freed, size) in [(0, 1, 16), (1, 1, 17), (1, 2, 16), (2, 1, 17)] {
            let start = crate::clock::now();
            let mut window = DialWindow::new(start, 1_024);
            (0..by_new).for_each(|_| window.served(true));
            (0..by_freed).for_each(|_| window.served(false));
            window.grow(start + GROWTH_INTERVAL, 1_024);
            assert_eq!(window.size(), size, "{by_new} by new ones, {by_freed} by freed ones");
        }
    }

    #[test]
    fn a_lease_of_more_than_100_ms_drops_the_measurements() {
        let (mut window, now) = after_a_busy_server();
        window.observe(now, 100, 1_024);
        window.freed(now + ms(1), now + ms(1) - SLOW_LEASE, 100, 1_024);
        assert_eq!(window.size(), MIN_SIZE);
        window.freed(now + ms(1), now + ms(1) - SLOW_LEASE - Duration::from_nanos(1), 100, 1_024);
        assert_eq!(window.size(), INITIAL_SIZE);
    }

    /// Measures how often connections become free: `freed` times, the last time after `took`. Their number grows from `before` to
    /// `conns`. Returns the result.
    fn measured(before: usize, conns: usize, freed: usize, took: Duration) -> Option<Throughput> {
        let start = crate::clock::now();
        let mut window = DialWindow::new(start, 1_024);
        window.observe(start, before, 1_024);
        for _ in 1..freed {
            window.freed(start + took / 2, start + took / 2 - micros(1), conns, 1_024);
        }
        window.freed(start + took, start + took - micros(1), conns, 1_024);
        window.last
    }

    #[test]
    fn a_measurement_ends_when_each_connection_and_at_least_64_became_free() {
        for (conns, freed, is_over) in [(10, 63, false), (10, 64, true), (100, 99, false), (100, 100, true)] {
            assert_eq!(measured(conns, conns, freed, ms(4)).is_some(), is_over, "{freed} of {conns}");
        }
        assert!(measured(10, 10, 64, Duration::ZERO).is_none(), "there is no rate without time");
        let Throughput { conns, rate, .. } = measured(10, 20, 64, Duration::from_nanos(7_812_500)).unwrap();
        assert_eq!((conns, rate), (15.0, 8_192.0));
    }

    #[test]
    fn a_measurement_counts_if_connections_are_held_for_10_ms_at_most() {
        assert!(measured(64, 64, 64, MAX_MEAN_HOLD).is_some());
        assert!(measured(64, 64, 64, MAX_MEAN_HOLD + micros(1)).is_none());
    }

    /// Judges a measurement after one of ten connections, of which a thousand became free in a second. Returns the size of the
    /// window, which had been `size`, and the number of connections of the measurement that is kept.
    fn judged(size: usize, conns: f64, rate: f64) -> (usize, Option<f64>) {
        let now = crate::clock::now();
        let last = Throughput { at: now, conns: 10.0, rate: 1_000.0 };
        let mut window = DialWindow { size, last: Some(last), ..DialWindow::new(now, 1_024) };
        window.judge(Throughput { at: now + ms(1), conns, rate }, 1_024);
        (window.size(), window.last.map(|last| last.conns))
    }

    #[test]
    fn measurements_are_compared_if_the_connections_have_grown_by_a_quarter() {
        let sizes = [7.9, 8.0, 9.0, 12.4, 12.5].map(|conns| judged(12, conns, 1_000.0));
        let dropped = (16, Some(7.9));
        let waits = (12, Some(10.0));
        assert_eq!(sizes, [dropped, waits, waits, waits, (3, Some(12.5))]);
    }

    #[test]
    fn the_window_shrinks_unless_more_connections_bring_half_of_what_they_would_alone() {
        assert_eq!([1_499.0, 1_500.0].map(|rate| judged(12, 20.0, rate).0), [3, 16]);
        assert_eq!([1_499.0, 1_500.0].map(|rate| judged(4, 20.0, rate).0), [2, 8], "it is never below 2");
        assert_eq!([1_499.0, 1_500.0].map(|rate| judged(100, 20.0, rate).0), [25, 100]);
    }
}
