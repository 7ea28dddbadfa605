//! The recent conduct of a host, as far as the client has to hold back for it. A core.
//!
//! Some servers close a connection a moment after an answer, without announcing it. A request that is on its way by then is lost,
//! unless it can be sent twice. A request that must be sent once goes to such a server on a new connection, or on one that has been
//! idle for several times as long as the server was seen to wait. This lasts until the server has closed no connection that way for
//! a minute.
//!
//! A server that asks for fewer requests (GOAWAY with ENHANCE_YOUR_CALM, RFC 9113 §7) is not dialled for up to 200 ms. The pause
//! doubles each time it asks again, up to 30 s, and half of each pause is random. Requests that a host refused are resent within
//! an allowance: 100 requests, and 10 more each second.

use std::time::Duration;

use crate::clock::Instant;

/// The conduct of one host.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::pool::state) struct Conduct {
    cuts: Option<Cuts>,
    pause: Option<AskedPause>,
    /// The allowance of resends. `None` if all of it is left.
    allowance: Option<Allowance>,
}

/// Closes of connections soon after their last request.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cuts {
    /// The time of the last one.
    last: Instant,
    /// The longest time from the end of a connection's last request to its close.
    age: Duration,
}

/// A pause that the server asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
struct AskedPause {
    until: Instant,
    /// The length of the pause before its random half was shortened.
    longest: Duration,
}

/// An allowance of resends.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Allowance {
    /// The number of resends that were left at `since`.
    left: f64,
    since: Instant,
}

/// The time after which a server's last cut is forgotten.
const CUTS_REMEMBERED: Duration = Duration::from_secs(60);
/// The factor between the age at which connections were cut and the time for which one has to rest.
const REST_FACTOR: u32 = 4;
const SHORTEST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The time after a pause in which the next one is twice as long.
const PAUSE_REMEMBERED: Duration = Duration::from_secs(60);
const MOST_RESENDS: f64 = 100.0;
const RESENDS_PER_SECOND: f64 = 10.0;

impl Conduct {
    /// Notes that the server closed a reused connection under a request, after it had been idle for `age`.
    pub(in crate::pool::state) fn cut(&mut self, now: Instant, age: Duration) {
        let before = self.cuts(now).map_or(Duration::ZERO, |cuts| cuts.age);
        self.cuts = Some(Cuts { last: now, age: age.max(before) });
    }

    /// Notes that the server closed a connection that had been idle for `age`. This counts as a cut only if the server is known to
    /// cut.
    pub(in crate::pool::state) fn closed_idle(&mut self, now: Instant, age: Duration) {
        if self.cuts(now).is_some() {
            self.cut(now, age);
        }
    }

    /// Returns the time that a reused connection must have been idle for a request that must be sent once. `None` if the server is
    /// not known to cut.
    pub(in crate::pool::state) fn rest(&self, now: Instant) -> Option<Duration> {
        self.cuts(now).map(|cuts| (cuts.age * REST_FACTOR).clamp(SHORTEST_REST, LONGEST_REST))
    }

    fn cuts(&self, now: Instant) -> Option<Cuts> {
        self.cuts.filter(|cuts| now < cuts.last + CUTS_REMEMBERED)
    }

    /// Begins a pause that the server asked for, and returns its end. `random` is from 0 to 1.
    pub(in crate::pool::state) fn pause(&mut self, now: Instant, random: f64) -> Instant {
        let longest = match self.pause {
            // The server asks on each of its connections.
            Some(pause) if now < pause.until => return pause.until,
            Some(pause) if now < pause.until + PAUSE_REMEMBERED => (pause.longest * 2).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        let until = now + longest / 2 + (longest / 2).mul_f64(random);
        self.pause = Some(AskedPause { until, longest });
        until
    }

    /// Returns the end of the pause that the server asked for, if it is not over.
    pub(in crate::pool::state) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.pause.map(|pause| pause.until).filter(|until| now < *until)
    }

    /// Takes one resend from the allowance. Returns false if none is left.
    pub(in crate::pool::state) fn may_resend(&mut self, now: Instant) -> bool {
        let left = self.allowance.map_or(MOST_RESENDS, |Allowance { left, since }| {
            (left + (now - since).as_secs_f64() * RESENDS_PER_SECOND).min(MOST_RESENDS)
        });
        let is_enough = left >= 1.0;
        self.allowance = Some(Allowance { left: if is_enough { left - 1.0 } else { left }, since: now });
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn connections_to_a_server_that_cuts_rest_until_it_has_not_cut_for_a_minute() {
        let (mut conduct, now) = (Conduct::default(), crate::clock::now());
        conduct.closed_idle(now, ms(3));
        assert_eq!(conduct.rest(now), None, "closing an idle connection is no cut");
        conduct.cut(now, ms(3));
        assert_eq!(conduct.rest(now), Some(SHORTEST_REST));
        conduct.closed_idle(now + ms(50_000), ms(100));
        conduct.cut(now + ms(50_000), ms(3));
        assert_eq!(conduct.rest(now + ms(109_999)), Some(ms(400)));
        assert_eq!(conduct.rest(now + ms(110_000)), None);
        conduct.cut(now + ms(120_000), ms(3));
        assert_eq!(conduct.rest(now + ms(120_000)), Some(SHORTEST_REST), "earlier cuts are forgotten");
    }

    #[test]
    fn pauses_double_until_the_server_has_asked_for_none_for_a_minute() {
        let (mut conduct, mut now) = (Conduct::default(), crate::clock::now());
        for longest in [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
            assert_eq!(conduct.pause(now, 1.0), now + ms(longest));
            assert_eq!(
                conduct.pause(now + ms(1), 0.0),
                now + ms(longest),
                "another connection's GOAWAY begins no other"
            );
            assert_eq!(conduct.paused_until(now), Some(now + ms(longest)));
            now += ms(longest);
        }
        assert_eq!(conduct.paused_until(now), None);
        now += PAUSE_REMEMBERED;
        assert_eq!(conduct.pause(now, 0.0), now + ms(100), "half of a pause is random");
    }

    #[test]
    fn resends_are_allowed_a_hundred_at_once_and_ten_in_a_second() {
        let (mut conduct, now) = (Conduct::default(), crate::clock::now());
        let mut resends = |at: u64| (0..1_000).filter(|_| conduct.may_resend(now + ms(at))).count();
        assert_eq!([resends(0), resends(0), resends(1_000), resends(100_000)], [100, 0, 10, 100]);
    }
}
