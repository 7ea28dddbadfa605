//! The tries of one question: which server is asked next, and when. A core: it is given the time.

use std::time::Duration;

use super::limits::Limits;
use crate::clock::Instant;

/// The time for which a server that is asked by UDP has the question to itself. Then the next server is asked, or the same one
/// by TCP, and the first answer counts.
pub(super) const HEAD_START: Duration = Duration::from_millis(250);

/// The tries of one question. They go around the servers, until each has been tried as often as the limits say.
#[derive(Debug)]
pub(super) struct Tries {
    servers: Vec<ServerTries>,
    /// The server that is tried first.
    first: usize,
    limits: Limits,
    /// The number of tries that were started or left out.
    turn: usize,
    started: Instant,
    deadline: Instant,
    /// The start of the next try, unless those that run end before.
    next_at: Instant,
}

/// The tries of one server.
#[derive(Debug, Clone, Copy)]
struct ServerTries {
    is_by_udp: bool,
    was_asked: bool,
    /// True if the server responded with a failure. It is not asked again.
    has_failed: bool,
    /// True for each [`TryMode`] of which a try runs.
    running: [bool; 2],
}

/// The connection of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TryMode {
    /// The usual connection: UDP, or the connection that is kept.
    Usual,
    /// A new TCP connection for a server that is asked by UDP. Otherwise the connection that is kept, or the one that has
    /// replaced it.
    NewConnection,
}

/// The next step.
#[derive(Debug, PartialEq)]
pub(super) enum NextTry {
    /// Start a try that ends at `end`.
    Start { server: usize, mode: TryMode, end: Instant },
    /// Wait until a try ends, or until this time.
    Wait(Option<Instant>),
    /// The question failed: no try is left and none runs.
    NoneLeft,
}

impl Tries {
    /// Creates the tries for the servers, of which the iterator says whether they are asked by UDP.
    pub(super) fn new(
        by_udp: impl Iterator<Item = bool>,
        first: usize,
        limits: Limits,
        now: Instant,
        deadline: Instant,
    ) -> Self {
        let server = |is_by_udp| ServerTries { is_by_udp, was_asked: false, has_failed: false, running: [false; 2] };
        let servers = by_udp.map(server).collect();
        Self { servers, first, limits, turn: 0, started: now, deadline, next_at: now }
    }

    /// Returns the next step.
    pub(super) fn poll(&mut self, now: Instant) -> NextTry {
        let is_running = self.servers.iter().any(|server| server.running != [false; 2]);
        if is_running && now < self.next_at {
            return NextTry::Wait(Some(self.next_at));
        }
        let count = self.servers.len();
        while self.turn < self.limits.tries * count && now < self.deadline {
            let index = (self.first + self.turn) % count;
            let server = &mut self.servers[index];
            if !server.has_failed && !server.may_be_asked() {
                break;
            }
            let round = u32::try_from(self.turn / count).unwrap_or(u32::MAX);
            self.turn += 1;
            if server.has_failed {
                continue;
            }
            let mode = if server.was_asked { TryMode::NewConnection } else { TryMode::Usual };
            server.was_asked = true;
            server.running[mode as usize] = true;
            // A try that starts ahead of its round ends with its round, as if it had waited for the tries before.
            let round_ends = self.started + self.limits.try_timeout.saturating_mul(round.saturating_add(1));
            let end = self.deadline.min(round_ends.max(now + self.limits.try_timeout));
            self.next_at = if server.is_by_udp { now + HEAD_START } else { end };
            return NextTry::Start { server: index, mode, end };
        }
        if is_running { NextTry::Wait(None) } else { NextTry::NoneLeft }
    }

    /// Records a try that ended without an answer. The next one starts at once. A server that responded with a failure is not
    /// asked again.
    pub(super) fn record_end(&mut self, server: usize, mode: TryMode, has_failed: bool) {
        let server = &mut self.servers[server];
        server.running[mode as usize] = false;
        server.has_failed |= has_failed;
        self.next_at = self.started;
    }
}

impl ServerTries {
    /// Returns true if a try may start beside those that run: by TCP beside UDP, but no second connection beside the first.
    fn may_be_asked(&self) -> bool {
        match self.running {
            [false, false] => true,
            [true, false] => self.is_by_udp,
            [_, true] => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns the tries of one question as text. Each entry of `script` is the response to one try: none, or one after so many
    /// milliseconds, which is an answer (`true`) or a failure (`false`).
    fn timeline(by_udp: &[bool], tries: usize, script: &[Option<(u64, bool)>]) -> String {
        let start = crate::clock::now();
        let limits = Limits { try_timeout: ms(2_000), tries, total_timeout: ms(5_000), max_in_flight: 1 };
        let mut tries = Tries::new(by_udp.iter().copied(), 0, limits, start, start + limits.total_timeout);
        let (mut log, mut now, mut running) = (Vec::new(), start, Vec::new());
        let mut script = script.iter().copied().chain(std::iter::repeat(None));
        let at = |now: Instant| (now - start).as_millis();
        loop {
            let wake = match tries.poll(now) {
                NextTry::Start { server, mode, end } => {
                    let said = script.next().unwrap();
                    log.push(format!("{} {mode:?} {server}", at(now)));
                    let ends = said.map_or(end, |(after, _)| end.min(now + ms(after)));
                    running.push((ends, server, mode, said.map(|(_, answers)| answers)));
                    continue;
                }
                NextTry::Wait(until) => until,
                NextTry::NoneLeft => {
                    log.push(format!("{} over", at(now)));
                    return log.join("; ");
                }
            };
            running.sort_unstable_by_key(|(ends, ..)| std::cmp::Reverse(*ends));
            let next = running.last().map(|(ends, ..)| *ends).expect("a try runs");
            if let Some(wake) = wake.filter(|wake| *wake < next) {
                now = wake;
                continue;
            }
            let (ends, server, mode, said) = running.pop().unwrap();
            now = ends;
            if said == Some(true) {
                log.push(format!("{} answered", at(now)));
                return log.join("; ");
            }
            tries.record_end(server, mode, said == Some(false));
        }
    }

    const NONE: Option<(u64, bool)> = None;

    #[test]
    fn the_next_server_is_asked_a_quarter_of_a_second_after_a_silent_one() {
        let log = timeline(&[true, true], 2, &[NONE, Some((10, true))]);
        assert_eq!(log, "0 Usual 0; 250 Usual 1; 260 answered");
    }

    #[test]
    fn a_single_server_is_asked_by_tcp_after_a_quarter_of_a_second() {
        assert_eq!(timeline(&[true], 2, &[NONE, Some((10, true))]), "0 Usual 0; 250 NewConnection 0; 260 answered");
    }

    #[test]
    fn a_slow_answer_counts_while_the_next_try_runs() {
        let log = timeline(&[true], 2, &[Some((700, true)), NONE]);
        assert_eq!(log, "0 Usual 0; 250 NewConnection 0; 700 answered");
        let log = timeline(&[true], 2, &[NONE, Some((3_000, true))]);
        assert_eq!(log, "0 Usual 0; 250 NewConnection 0; 3250 answered", "for two tries of 2 s");
    }

    #[test]
    fn after_a_failure_the_next_server_is_asked_at_once_and_the_first_not_again() {
        let log = timeline(&[true, true], 2, &[Some((5, false)), Some((5, false))]);
        assert_eq!(log, "0 Usual 0; 5 Usual 1; 10 over");
    }

    #[test]
    fn silence_from_all_servers_ends_in_time() {
        assert_eq!(timeline(&[true], 2, &[]), "0 Usual 0; 250 NewConnection 0; 4000 over");
        let log = timeline(&[true, true], 2, &[]);
        assert_eq!(log, "0 Usual 0; 250 Usual 1; 500 NewConnection 0; 750 NewConnection 1; 4000 over");
        let log = timeline(&[true], 4, &[]);
        assert_eq!(
            log, "0 Usual 0; 250 NewConnection 0; 4000 NewConnection 0; 5000 over",
            "no second connection beside one"
        );
    }

    #[test]
    fn a_server_asked_over_a_connection_has_the_whole_try() {
        let log = timeline(&[false, false], 2, &[NONE, Some((10, true))]);
        assert_eq!(log, "0 Usual 0; 2000 Usual 1; 2010 answered");
        assert_eq!(timeline(&[false], 2, &[]), "0 Usual 0; 2000 NewConnection 0; 4000 over");
    }
}
