//! The times at which an HTTP/2 connection is pinged or given up. A core.
//!
//! With a user's [`PingConfig::interval`], pings are sent at that interval. Without one, [`PingSchedule`] decides: it
//! pings only while a request is under way and the server has been silent, because servers count pings and close
//! connections that send too many.

use std::time::Duration;

use crate::clock::Instant;

/// The user's settings for pings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PingConfig {
    /// The time without a frame of a response after which a ping is sent; `None` to ping only when a connection is in
    /// doubt.
    pub(crate) interval: Option<Duration>,
    /// The longest wait for the answer to a ping that the interval caused; [`INTERVAL_PING_TIMEOUT`] if `None`.
    pub(crate) timeout: Option<Duration>,
    /// True if pings at the interval are also sent while no request is under way.
    pub(crate) while_idle: bool,
}

/// The default of [`PingConfig::timeout`], as in hyper and reqwest.
pub(in crate::connect) const INTERVAL_PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The time without a byte from the server, while a request is under way, after which the server is pinged.
pub(in crate::connect) const SILENCE: Duration = Duration::from_secs(10);

/// The time without a byte from the server after a ping, after which the connection is given up.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The most pings between two frames of responses.
///
/// grpc-go closes a connection at the fourth ping that comes less than five minutes after the one before, and starts to
/// count anew only when it sends a frame of a response.
const MAX_PINGS: u32 = 2;

/// The most of [`MAX_PINGS`] that are sent while no frame of a request has left since the server was last heard. The
/// rest is kept for the next request.
const MAX_QUIET_PINGS: u32 = 1;

/// The longest time until hyper polls its timer again after a ping was due, if a request is under way. hyper does so at
/// once; a busy machine may need a moment.
const REPOLL_TIME: Duration = Duration::from_secs(1);

/// The frames that have passed over a connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::connect) struct Traffic {
    /// The time at which a byte last came from the server, or the server last made room for more. At first the time at
    /// which the connection was opened.
    pub(in crate::connect) heard: Instant,
    /// The time at which a frame of a request first left after `heard`, or at which the server last made room, if that
    /// is later. `None` if no frame of a request has left since a byte came.
    pub(in crate::connect) asked: Option<Instant>,
    /// The number of frames of responses that have come.
    pub(in crate::connect) responses: u64,
}

/// Decides when a connection is pinged and given up.
#[derive(Debug, Default)]
pub(in crate::connect) struct PingSchedule {
    /// The pings since the last frame of a response.
    pings: u32,
    /// [`Traffic::responses`] when `pings` was last reset.
    responses: u64,
    /// The time at which the last ping was sent.
    last_ping: Option<Instant>,
    /// The earliest time from which requests are known to have been under way.
    busy_since: Option<Instant>,
    /// The time at which a ping was due that has not been sent.
    due: Option<Instant>,
}

impl PingSchedule {
    /// Returns the time at which to ping if a request is under way; `None` while a ping would exceed the limits.
    pub(in crate::connect) fn ping_at(&mut self, traffic: &Traffic, now: Instant) -> Option<Instant> {
        if self.responses != traffic.responses {
            self.responses = traffic.responses;
            self.pings = 0;
        }
        if self.due.take().is_some_and(|due| due + REPOLL_TIME <= now) {
            // hyper did not send the ping that was due, so no request was under way then. The current one has just
            // begun.
            self.busy_since = Some(now);
        }
        let busy_since = *self.busy_since.get_or_insert(now);
        let (silent_since, max_pings) = match traffic.asked {
            Some(asked) => (asked, MAX_PINGS),
            None => (busy_since.max(traffic.heard), MAX_QUIET_PINGS),
        };
        if self.pings < max_pings { Some(silent_since + SILENCE) } else { None }
    }

    /// Notes that a ping is due, which hyper sends if a request is under way.
    pub(in crate::connect) fn note_due(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// Notes that a ping was sent.
    pub(in crate::connect) fn note_ping(&mut self, now: Instant) {
        self.pings += 1;
        self.last_ping = Some(now);
        self.due = None;
    }

    /// Returns the time at which a connection with an unanswered ping is given up.
    pub(in crate::connect) fn give_up_at(&self, traffic: &Traffic) -> Instant {
        let waits_since = match self.last_ping {
            Some(last_ping) => last_ping.max(traffic.heard),
            None => traffic.heard,
        };
        waits_since + PING_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_an_answer_leads_to_a_ping_and_then_to_the_end_of_the_connection() {
        let t0 = crate::clock::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut pings = PingSchedule::default();
        let traffic = Traffic { heard: at(0), asked: Some(at(100)), responses: 7 };
        assert_eq!(pings.ping_at(&traffic, at(100)), Some(at(110)), "the silence before it does not count");
        pings.note_due(at(110));
        assert_eq!(pings.ping_at(&traffic, at(110)), Some(at(110)), "hyper asks again at once");
        pings.note_ping(at(110));
        assert_eq!(pings.give_up_at(&traffic), at(125));
        assert_eq!(
            pings.give_up_at(&Traffic { heard: at(120), ..traffic }),
            at(135),
            "the server sent other bytes meanwhile"
        );
    }

    #[test]
    fn silence_counts_only_while_a_request_is_under_way() {
        let t0 = crate::clock::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut pings = PingSchedule::default();
        let traffic = Traffic { heard: at(0), asked: None, responses: 1 };
        assert_eq!(pings.ping_at(&traffic, at(30)), Some(at(40)), "from the first call on");
        assert_eq!(pings.ping_at(&traffic, at(35)), Some(at(40)));
        assert_eq!(pings.ping_at(&Traffic { heard: at(36), ..traffic }, at(37)), Some(at(46)));
        pings.note_due(at(46));
        assert_eq!(
            pings.ping_at(&traffic, at(90)),
            Some(at(100)),
            "no ping was sent at 46 s, so no request was under way"
        );
    }

    #[test]
    fn the_second_ping_between_responses_is_kept_for_a_request() {
        let t0 = crate::clock::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut pings = PingSchedule::default();
        let quiet = Traffic { heard: at(0), asked: None, responses: 1 };
        assert_eq!(pings.ping_at(&quiet, at(0)), Some(at(10)));
        pings.note_ping(at(10));
        let quiet = Traffic { heard: at(10), ..quiet };
        assert_eq!(pings.ping_at(&quiet, at(60)), None);
        let asked = Traffic { asked: Some(at(70)), ..quiet };
        assert_eq!(pings.ping_at(&asked, at(71)), Some(at(80)));
        pings.note_ping(at(80));
        assert_eq!(pings.ping_at(&asked, at(90)), None);
        let answered = Traffic { responses: 2, ..asked };
        assert_eq!(pings.ping_at(&answered, at(90)), Some(at(80)), "a response resets the count");
    }
}
