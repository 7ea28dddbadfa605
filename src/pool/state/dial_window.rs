//! How many dials to a host may be under way at a time. A core.
//!
//! More connections are worth their dials where more of them are freed in a second. Where they are not, the server, or this process, has
//! as much to do as it can, and a connection that is freed is as good as a new one and costs nothing.
//!
//! That is found out where connections are freed so fast that it shows within milliseconds. Everywhere else, and as soon as they are
//! not, dials are as many as they would be without.

use std::time::Duration;

use crate::clock::Instant;

/// The window of a host's dials.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    window: usize,
    /// The window is as it was `from` that moment on.
    since: Instant,
    from: usize,
    /// How many requests that waited have got a new connection since, and how many one that was freed.
    new: usize,
    freed: usize,
    /// Whether new connections serve more of them.
    pays: bool,
    /// What is being measured, as long as requests wait.
    round: Option<Round>,
    /// What was measured when there were fewer connections.
    before: Option<Measured>,
}

/// So many connections freed that each of them was, or more.
#[derive(Debug, Clone, Copy)]
struct Round {
    since: Instant,
    /// When a connection was freed last, and how many were.
    last: Instant,
    freed: usize,
    /// How many there were to begin with.
    conns: usize,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    at: Instant,
    conns: f64,
    /// How many of them are freed in a second.
    rate: f64,
}

/// How many dials may be under way before any of them has succeeded.
const FIRST: usize = 16;

/// They are never fewer on account of what is measured: one of them may hang.
const FEWEST: usize = 2;

/// They become twice as many at most so often, and only as long as more requests get a new connection than one that was
/// freed.
const DOUBLING: Duration = Duration::from_millis(25);

/// So many have to be freed to say how many are in a second.
const ENOUGH: usize = 64;

/// Connections that are held for longer, on average, say nothing: who waits for one may wait for long.
const FAST: Duration = Duration::from_millis(10);

/// One that was held for so long is no chance.
const SLOW: Duration = Duration::from_millis(100);

/// By so much the connections have to be more for it to show.
const MORE: f64 = 1.25;

/// What more connections brought may be otherwise by then.
const STALE: Duration = Duration::from_secs(1);

impl Round {
    fn new(now: Instant, conns: usize) -> Self {
        Self { since: now, last: now, freed: 0, conns }
    }
}

impl Pace {
    pub(super) fn new(now: Instant, most: usize) -> Self {
        let window = FIRST.min(most);
        Self { window, since: now, from: window, new: 0, freed: 0, pays: false, round: None, before: None }
    }

    /// How many dials may be under way.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// A dial has succeeded, and more are wanted: there may be one more of them at a time.
    pub(super) fn grow(&mut self, now: Instant, most: usize) {
        if now.saturating_duration_since(self.since) >= DOUBLING {
            let pays = self.new >= self.freed;
            *self = Self { since: now, from: self.window, new: 0, freed: 0, pays, ..*self };
        } else if !self.pays || self.window >= self.from * 2 {
            return;
        }
        if self.pays {
            self.window = (self.window + 1).min(most);
        }
    }

    /// A request that waited got a connection.
    pub(super) fn served(&mut self, is_new: bool) {
        *(if is_new { &mut self.new } else { &mut self.freed }) += 1;
    }

    /// Something has happened to the host, and requests wait. What was found out holds only as long as connections are freed fast.
    pub(super) fn look(&mut self, now: Instant, conns: usize, most: usize) {
        let round = self.round.get_or_insert(Round::new(now, conns));
        let is_slow = now.saturating_duration_since(round.last) > FAST;
        if is_slow || self.before.is_some_and(|before| now.saturating_duration_since(before.at) >= STALE) {
            self.forget(now, conns, most);
        }
    }

    /// Nobody waits any more.
    pub(super) fn rest(&mut self) {
        self.round = None;
    }

    /// Goes on as if nothing had been measured.
    fn forget(&mut self, now: Instant, conns: usize, most: usize) {
        (self.round, self.before) = (Some(Round::new(now, conns)), None);
        self.window = self.window.max(FIRST.min(most));
    }

    /// One of `conns` connections is freed, which was held for so long.
    #[inline]
    pub(super) fn freed(&mut self, now: Instant, held: Duration, conns: usize, most: usize) {
        let Some(round) = &mut self.round else { return };
        (round.last, round.freed) = (now, round.freed + 1);
        if held > SLOW {
            return self.forget(now, conns, most);
        }
        let (took, freed) = (now.saturating_duration_since(round.since), round.freed);
        if freed < conns.max(ENOUGH) || took.is_zero() {
            return;
        }
        let (then, rate) = (round.conns, freed as f64 / took.as_secs_f64());
        let mean = (then + conns) as f64 / 2.0;
        *round = Round::new(now, conns);
        // All are held while requests wait; this is for how long (Little's law).
        if mean / rate > FAST.as_secs_f64() {
            self.forget(now, conns, most);
        } else if conns <= then * 2 {
            self.judge(Measured { at: now, conns: mean, rate }, most);
        }
    }

    /// Compares what was measured with what was when there were fewer connections.
    fn judge(&mut self, now: Measured, most: usize) {
        let Some(before) = self.before else {
            self.before = Some(now);
            return;
        };
        let (more, faster) = (now.conns / before.conns, now.rate / before.rate);
        if more < 1.0 / MORE {
            self.forget(now.at, now.conns as usize, most);
        } else if more < MORE {
            return;
        } else if faster - 1.0 >= (more - 1.0) / 2.0 {
            // At least half of what they would bring if nothing else were short.
            self.window = self.window.max((self.window * 2).min(FIRST.min(most)));
        } else {
            let window = (self.window / 4).max(FEWEST.min(most));
            *self = Self { window, since: now.at, from: window, new: 0, freed: 0, pays: false, ..*self };
        }
        self.before = Some(now);
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

    /// A server with as many hands, that takes so long to connect to, and so long for a request.
    #[derive(Clone, Copy)]
    struct Server {
        hands: usize,
        dial: Duration,
        /// What a dial takes of the same time as requests do: where it is this process that has too much to do.
        trouble: Duration,
        work: fn(&mut Rng) -> Duration,
    }

    const BUSY: Server = Server { hands: 1, dial: micros(500), trouble: micros(30), work: |_| micros(10) };

    /// Requests that wait all at once, on so many connections. How many more are opened, and when the last one is answered.
    fn burst(pace: &mut Pace, start: Instant, open: usize, requests: usize, server: Server) -> (usize, Duration) {
        burst_with(pace, start, open, requests, server, |pace, now, open| pace.look(now, open, 1_024))
    }

    /// The same by a pace that measures nothing.
    fn unmeasured(requests: usize, server: Server) -> (usize, Duration) {
        let start = crate::clock::now();
        burst_with(&mut Pace::new(start, 1_024), start, 0, requests, server, |_, _, _| {})
    }

    fn burst_with(
        pace: &mut Pace,
        start: Instant,
        mut open: usize,
        requests: usize,
        server: Server,
        look: impl Fn(&mut Pace, Instant, usize),
    ) -> (usize, Duration) {
        let mut random = Rng::with_seed(7);
        let (mut now, had, mut waiting) = (start, open, requests.saturating_sub(open));
        let (mut dials, mut working) = (Vec::<Instant>::new(), Vec::<(Instant, Instant)>::new());
        // When each hand is free.
        let mut hands = vec![start; server.hands];
        let mut work = |now: Instant, work: Duration| {
            let hand = hands.iter_mut().min().unwrap();
            *hand = (*hand).max(now) + work;
            *hand
        };
        working.extend((0..open.min(requests)).map(|_| (work(start, (server.work)(&mut random)), start)));
        look(pace, now, open);
        while waiting > 0 {
            while dials.len() < pace.window().min(waiting) {
                dials.push(work(now, server.trouble).max(now + server.dial));
            }
            let freed = working.iter().copied().enumerate().min_by_key(|(_, (until, _))| *until);
            let opened = dials.iter().copied().enumerate().min_by_key(|(_, until)| *until);
            let is_new = match (freed, opened) {
                (Some((at, (until, since))), opened) if opened.is_none_or(|(_, opened)| until < opened) => {
                    now = until;
                    working.swap_remove(at);
                    pace.freed(now, now - since, open, 1_024);
                    false
                }
                (_, Some((at, until))) => {
                    now = until;
                    dials.swap_remove(at);
                    open += 1;
                    pace.grow(now, 1_024);
                    true
                }
                _ => unreachable!("the window is never closed"),
            };
            waiting -= 1;
            pace.served(is_new);
            match waiting {
                0 => pace.rest(),
                _ => look(pace, now, open),
            }
            working.push((work(now, (server.work)(&mut random)), now));
        }
        let last = working.iter().map(|(until, _)| *until).max();
        (open - had, last.unwrap_or(now) - start)
    }

    fn after_a_busy_server() -> (Pace, Instant) {
        let start = crate::clock::now();
        let mut pace = Pace::new(start, 1_024);
        let (_, took) = burst(&mut pace, start, 0, 3_000, BUSY);
        assert_eq!(pace.window(), FEWEST);
        (pace, start + took)
    }

    #[test]
    fn a_server_that_is_as_fast_as_it_can_be_is_not_dialled_for_every_request() {
        let start = crate::clock::now();
        let mut pace = Pace::new(start, 1_024);
        let (opened, took) = burst(&mut pace, start, 0, 3_000, BUSY);
        let (without, took_without) = unmeasured(3_000, BUSY);
        assert!(opened * 4 < without * 3, "{opened}, {without}");
        assert!(took < took_without, "{took:?}, {took_without:?}");
        let (more, _) = burst(&mut pace, start + took, opened, 3_000, BUSY);
        assert!(more < opened, "{opened} and {more} more");
    }

    #[test]
    fn wherever_connections_are_not_freed_fast_nothing_is_found_out() {
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
                    (crate::clock::now(), Server { hands: 3_000, dial, trouble: Duration::ZERO, work });
                let (opened, took) = burst(&mut Pace::new(start, 1_024), start, 0, 1_500, server);
                let (without, took_without) = unmeasured(1_500, server);
                let case = format!("{number}, {dial:?}: {opened} in {took:?}, {without} in {took_without:?} without");
                assert!(took <= took_without.mul_f64(1.05) && opened * 20 >= without * 19, "{case}");
            }
        }
    }

    #[test]
    fn a_server_nearby_that_has_room_is_given_more() {
        let start = crate::clock::now();
        for hands in [200, 3_000] {
            let server = Server { hands, dial: ms(1), trouble: Duration::ZERO, work: |_| ms(5) };
            let (_, took) = burst(&mut Pace::new(start, 1_024), start, 0, 3_000, server);
            let (_, without) = unmeasured(3_000, server);
            assert!(took < without.mul_f64(1.3), "{took:?}, {without:?} without");
        }
    }

    #[test]
    fn a_server_that_was_fast_and_becomes_slow_is_dialled_as_ever() {
        for (open, work) in [(0, (|_| ms(20)) as fn(&mut Rng) -> Duration), (100, |_| ms(30_000)), (500, |_| ms(200))] {
            let (mut pace, now) = after_a_busy_server();
            let server = Server { hands: 3_000, dial: ms(20), trouble: Duration::ZERO, work };
            let (_, took) = burst(&mut pace, now, open, 3_000, server);
            let (_, without) = unmeasured(3_000, server);
            assert!(took <= without + ms(150), "{open}: {took:?}, {without:?} without");
        }
    }

    #[test]
    fn what_was_found_out_is_forgotten_after_a_second_and_when_nothing_is_freed() {
        let (mut pace, now) = after_a_busy_server();
        pace.look(now, 100, 1_024);
        pace.look(now + FAST, 100, 1_024);
        assert_eq!(pace.window(), FEWEST);
        pace.look(now + FAST + micros(1), 100, 1_024);
        assert_eq!(pace.window(), FIRST, "nothing has been freed");

        let (mut pace, now) = after_a_busy_server();
        pace.look(now + STALE - ms(100), 100, 1_024);
        assert_eq!(pace.window(), FEWEST);
        pace.rest();
        pace.look(now + STALE, 100, 1_024);
        assert_eq!(pace.window(), FIRST);
    }

    #[test]
    fn fewer_connections_are_no_news_of_more() {
        // A server that closes connections after some requests.
        let (mut pace, mut now) = after_a_busy_server();
        for conns in (20..100).rev() {
            pace.look(now, 100, 1_024);
            for _ in 0..100 {
                now += micros(10);
                pace.freed(now, micros(10) * conns, conns as usize, 1_024);
            }
        }
        assert_eq!(pace.window(), FIRST);
    }

    #[test]
    fn a_limit_below_the_fewest_holds() {
        // As many are freed in a second, however many connections there are.
        for (most, fewest) in [(1, 1), (1_024, FEWEST)] {
            let (mut now, mut least) = (crate::clock::now(), usize::MAX);
            let mut pace = Pace::new(now, most);
            for conns in (20..200).step_by(10) {
                pace.look(now, conns, most);
                for _ in 0..conns.max(ENOUGH) {
                    now += micros(10);
                    pace.freed(now, micros(100), conns, most);
                }
                assert!(pace.window() <= most);
                least = least.min(pace.window());
            }
            assert_eq!(least, fewest, "of {most}");
        }
    }
}
