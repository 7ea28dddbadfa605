//! When an HTTP/2 connection is pinged, and when it is given up. A core.

use std::time::Duration;

use crate::clock::Instant;

/// Pings by a timer, for users who want one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pings {
    /// The time without a frame of a response after which a ping is sent; `None` for pings that are sent only when a
    /// connection is in doubt.
    pub(crate) interval: Option<Duration>,
    /// The longest wait for the answer to such a ping.
    pub(crate) timeout: Duration,
    /// True if they are sent also while no request is under way.
    pub(crate) while_idle: bool,
}

impl Default for Pings {
    fn default() -> Self {
        Self { interval: None, timeout: Duration::from_secs(20), while_idle: false }
    }
}

/// How long nothing comes from the server, while a request is under way, before the server is pinged.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// How long nothing comes from the server after a ping before the connection is given up.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The most pings between two pieces of responses. Servers count them: grpc-go closes a connection for the fourth that comes
/// within five minutes of the one before, and begins to count anew only when it has sent a piece of a response.
const MAX_PINGS: u32 = 2;

/// The most of them that are sent though nothing of a request has left since the server was last heard. The other one is
/// for the next request.
const MAX_QUIET_PINGS: u32 = 1;

/// What has passed over a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    /// When a byte last came from the server, or the server last made room for more; at first, when the connection was opened.
    pub(super) heard: Instant,
    /// When a piece of a request first left after a byte had come, or the server last made room for more.
    pub(super) asked: Option<Instant>,
    /// How many pieces of responses have come.
    pub(super) responses: u64,
}

/// How soon hyper asks again where it pings, after all, when it is due: at once, give or take the machine's other work.
const MOMENT: Duration = Duration::from_secs(1);

/// Decides about the pings of a connection.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// The pings since the last piece of a response.
    pings: u32,
    /// How many pieces of responses had come by then.
    responses: u64,
    /// When the last ping was sent.
    pinged: Option<Instant>,
    /// Since when requests have been under way, as far as is known.
    since: Option<Instant>,
    /// When a ping was due that has not been sent.
    due: Option<Instant>,
}

impl Pulse {
    /// When to ping, as long as a request is under way; `None` while that would be a ping too many.
    pub(super) fn ping_at(&mut self, passed: &Passed, now: Instant) -> Option<Instant> {
        if self.responses != passed.responses {
            (self.responses, self.pings) = (passed.responses, 0);
        }
        if self.due.take().is_some_and(|due| due + MOMENT <= now) {
            // No request was under way then. What is now has just begun.
            self.since = Some(now);
        }
        let since = *self.since.get_or_insert(now);
        let (silent_since, most) = match passed.asked {
            Some(asked) => (asked, MAX_PINGS),
            None => (since.max(passed.heard), MAX_QUIET_PINGS),
        };
        if self.pings < most { Some(silent_since + SILENCE) } else { None }
    }

    /// It is time to ping, if a request is under way.
    pub(super) fn note_due(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// A ping was sent.
    pub(super) fn pinged(&mut self, now: Instant) {
        self.pings += 1;
        self.pinged = Some(now);
        self.due = None;
    }

    /// When a connection with an unanswered ping is given up.
    pub(super) fn give_up_at(&self, passed: &Passed) -> Instant {
        self.pinged.map_or(passed.heard, |pinged| pinged.max(passed.heard)) + PING_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_an_answer_is_followed_by_a_ping_and_then_by_the_end() {
        let t0 = crate::clock::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut pulse = Pulse::default();
        let passed = Passed { heard: at(0), asked: Some(at(100)), responses: 7 };
        assert_eq!(pulse.ping_at(&passed, at(100)), Some(at(110)), "the silence before it does not count");
        pulse.note_due(at(110));
        assert_eq!(pulse.ping_at(&passed, at(110)), Some(at(110)), "it is asked again at once");
        pulse.pinged(at(110));
        assert_eq!(pulse.give_up_at(&passed), at(125));
        assert_eq!(pulse.give_up_at(&Passed { heard: at(120), ..passed }), at(135), "it has said something else");
    }

    #[test]
    fn silence_counts_from_when_a_request_is_under_way() {
        let t0 = crate::clock::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut pulse = Pulse::default();
        let passed = Passed { heard: at(0), asked: None, responses: 1 };
        assert_eq!(pulse.ping_at(&passed, at(30)), Some(at(40)), "the first one");
        assert_eq!(pulse.ping_at(&passed, at(35)), Some(at(40)));
        assert_eq!(pulse.ping_at(&Passed { heard: at(36), ..passed }, at(37)), Some(at(46)));
        pulse.note_due(at(46));
        assert_eq!(pulse.ping_at(&passed, at(90)), Some(at(100)), "none was sent at 46 s, so none was under way");
    }

    #[test]
    fn there_are_two_pings_between_responses_and_one_of_them_waits_for_a_request() {
        let t0 = crate::clock::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut pulse = Pulse::default();
        let quiet = Passed { heard: at(0), asked: None, responses: 1 };
        assert_eq!(pulse.ping_at(&quiet, at(0)), Some(at(10)));
        pulse.pinged(at(10));
        let quiet = Passed { heard: at(10), ..quiet };
        assert_eq!(pulse.ping_at(&quiet, at(60)), None);
        let asked = Passed { asked: Some(at(70)), ..quiet };
        assert_eq!(pulse.ping_at(&asked, at(71)), Some(at(80)));
        pulse.pinged(at(80));
        assert_eq!(pulse.ping_at(&asked, at(90)), None);
        let answered = Passed { responses: 2, ..asked };
        assert_eq!(pulse.ping_at(&answered, at(90)), Some(at(80)), "a response makes up for both");
    }
}
