//! How many dials to a host may be under way at a time. A core.
//!
//! More connections are worth their dials where the server answers more requests a second by them. Where it does not, because it, or
//! this process, has as much to do as it can, a connection that is freed is as good as a new one and costs nothing.

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

/// About as many requests as there are connections.
#[derive(Debug, Clone, Copy)]
struct Round {
    since: Instant,
    conns: usize,
    freed: usize,
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

/// They become twice as many at most so often, and only as long as more requests get a new connection than one that was
/// freed.
const DOUBLING: Duration = Duration::from_millis(25);

/// By so much the connections have to be more for it to show in what they serve.
const MORE: f64 = 1.25;

/// What more connections brought may be otherwise by then.
const STALE: Duration = Duration::from_secs(1);

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

    /// A request that waited got a connection, of which `conns` are open; `more` of them wait or not.
    #[inline]
    pub(super) fn served(&mut self, now: Instant, is_new: bool, conns: usize, more: bool, most: usize) {
        let round = self.round.get_or_insert(Round { since: now, conns, freed: 0 });
        if is_new {
            self.new += 1;
        } else {
            self.freed += 1;
            round.freed += 1;
        }
        if !more {
            self.round = None;
        } else if round.freed >= round.conns.max(FIRST) && now > round.since {
            let Round { since, conns: then, freed } = *round;
            self.round = Some(Round { since: now, conns, freed: 0 });
            let conns = (then + conns) as f64 / 2.0;
            let rate = freed as f64 / (now - since).as_secs_f64();
            self.judge(Measured { at: now, conns, rate }, most);
        }
    }

    /// A round is over.
    fn judge(&mut self, now: Measured, most: usize) {
        let Some(before) = self.before.filter(|before| now.at - before.at < STALE) else {
            self.before = Some(now);
            self.window = self.window.max(FIRST.min(most));
            return;
        };
        let (conns, rate) = (now.conns / before.conns, now.rate / before.rate);
        if (1.0..MORE).contains(&conns) {
            return;
        }
        self.before = Some(now);
        if conns < 1.0 {
            return;
        }
        // Half of what they would bring if nothing else were short.
        if rate - 1.0 >= (conns - 1.0) / 2.0 {
            self.window = self.window.max((self.window * 2).min(FIRST.min(most)));
        } else {
            let window = (self.window / 4).max(1);
            *self = Self { window, since: now.at, from: window, new: 0, freed: 0, pays: false, ..*self };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// A server, and 3,000 requests that wait for it: how many connections are opened, and how long it takes. A connection takes
    /// `dial` to open; the server works at `parallel` requests at a time, each for `think`.
    fn burst(
        pace: &mut Pace,
        start: Instant,
        mut open: usize,
        dial: Duration,
        think: Duration,
        parallel: usize,
    ) -> (usize, Duration) {
        let (mut now, mut waiting, had) = (start, 3_000_usize, open);
        let (mut dials, mut working) = (Vec::<Instant>::new(), Vec::<Instant>::new());
        // When each of the server's hands is free.
        let mut hands = vec![start; parallel];
        let mut ask = |now: Instant| {
            let hand = hands.iter_mut().min().unwrap();
            *hand = (*hand).max(now) + think;
            *hand
        };
        for _ in 0..open.min(waiting) {
            working.push(ask(now));
            waiting -= 1;
        }
        while waiting > 0 {
            while dials.len() < pace.window().min(waiting) {
                dials.push(now + dial);
            }
            let next = |times: &[Instant]| times.iter().copied().min();
            now = next(&dials).into_iter().chain(next(&working)).min().unwrap();
            let is_new = next(&dials) == Some(now);
            let from = if is_new { &mut dials } else { &mut working };
            let at = from.iter().position(|time| *time == now).unwrap();
            from.swap_remove(at);
            open += usize::from(is_new);
            waiting -= 1;
            if is_new {
                pace.grow(now, 1_024);
            }
            pace.served(now, is_new, open, waiting > 0, 1_024);
            working.push(ask(now));
        }
        (open - had, now - start)
    }

    #[test]
    fn a_server_that_is_as_fast_as_it_can_be_is_not_dialled_for_every_request() {
        let start = crate::clock::now();
        let mut pace = Pace::new(start, 1_024);
        let (opened, took) = burst(&mut pace, start, 0, micros(500), micros(10), 1);
        assert!(opened < 150, "{opened}");
        assert!(took < micros(3_000 * 10 + 2_000), "{took:?}");
        let (opened, again) = burst(&mut pace, start + took, opened, micros(500), micros(10), 1);
        assert!(opened < 80, "{opened} more for the next ones");
        assert!(again < micros(3_000 * 10), "{again:?}");
    }

    #[test]
    fn a_server_that_works_at_all_requests_at_a_time_is_given_them() {
        let start = crate::clock::now();
        let mut pace = Pace::new(start, 1_024);
        let (opened, took) = burst(&mut pace, start, 0, micros(1_000), micros(5_000), 3_000);
        assert!(opened > 400 && took < micros(60_000), "{opened} in {took:?}");
    }

    #[test]
    fn a_server_far_away_is_dialled_twice_as_often_each_time() {
        let start = crate::clock::now();
        let mut pace = Pace::new(start, 1_024);
        let (opened, took) = burst(&mut pace, start, 0, micros(50_000), micros(100_000), 3_000);
        assert!(opened > 1_000 && took < micros(500_000), "{opened} in {took:?}");
    }

    #[test]
    fn what_brought_nothing_is_tried_again_a_second_later() {
        let start = crate::clock::now();
        let mut pace = Pace::new(start, 1_024);
        let (opened, took) = burst(&mut pace, start, 0, micros(500), micros(10), 1);
        assert_eq!(pace.window(), 1);
        burst(&mut pace, start + took + STALE, opened, micros(1_000), micros(5_000), 3_000);
        assert_eq!(pace.window(), FIRST);
    }

    #[test]
    fn a_server_that_stops_answering_is_dialled_more_often_again() {
        let start = crate::clock::now();
        let mut pace = Pace::new(start, 1_024);
        let (_, took) = burst(&mut pace, start, 0, micros(500), micros(10), 1);
        assert_eq!(pace.window(), 1);
        let (opened, took) = burst(&mut pace, start + took, 0, micros(10_000), micros(10_000_000), 3_000);
        assert!(opened > 2_900 && took < micros(500_000), "{opened} in {took:?}");
    }
}
