//! The tries of one question: which server is asked next, and when, and which did not answer. A core: it is given the time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::Instant;
use crate::dns::hickory::servers::ServerLimits;
use crate::trace::AskedServers;

/// The time for which a server that is asked by UDP has the question to itself. Then the next server is asked beside it.
pub(in crate::dns::hickory) const HEAD_START: Duration = Duration::from_millis(300);

/// The time after which a silent server is asked again, by TCP. A server may take some hundred milliseconds for a name that it does
/// not have in its cache.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The tries of one question. They go around the servers, until each has been tried as often as the limits say.
///
/// The order of the servers is the user's will: where a name exists for the first one only, another one's "does not exist" is no
/// answer. So an answer counts at once if it has addresses, and a negative one when the first tries of all servers before are over; a
/// server that was silent lately is waited for no longer than [`HEAD_START`], and has no head start.
#[derive(Debug)]
pub(in crate::dns::hickory) struct Tries {
    servers: Vec<ServerTries>,
    /// The servers, in the order in which they are tried.
    order: SmallVec<[usize; 4]>,
    limits: ServerLimits,
    /// The number of tries that were started or left out.
    turn: usize,
    started: Instant,
    deadline: Instant,
    /// The start of the next try, unless those that run end before.
    next_at: Instant,
    /// The tries that were started and did not end with a failure that the server stated, in the order of their starts.
    unanswered: SmallVec<[(usize, TryMode); 4]>,
}

/// The tries of one server.
#[derive(Debug, Clone, Copy)]
struct ServerTries {
    is_by_udp: bool,
    /// True if the server was silent lately.
    is_silent: bool,
    asked_at: Option<Instant>,
    /// True if the server responded with a failure. It is not asked again.
    has_failed: bool,
    /// True for each [`TryMode`] of which a try runs.
    running: [bool; 2],
}

/// The connection of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dns::hickory) enum TryMode {
    /// The usual connection: UDP, or the connection that is kept.
    Usual,
    /// A new TCP connection for a server that is asked by UDP. Otherwise the connection that is kept, or the one that has
    /// replaced it.
    NewConnection,
}

/// The next step.
#[derive(Debug, PartialEq)]
pub(in crate::dns::hickory) enum NextTry {
    /// Start a try that ends at `end`.
    Start { server: usize, mode: TryMode, end: Instant },
    /// Wait until a try ends, or until this time.
    Wait(Option<Instant>),
    /// The question failed: no try is left and none runs.
    NoneLeft,
}

impl Tries {
    /// Creates the tries for the servers, of which the iterator says whether they are asked by UDP, and whether they were silent lately.
    /// They are tried in this order.
    pub(in crate::dns::hickory) fn new(
        servers: impl Iterator<Item = (bool, bool)>,
        order: SmallVec<[usize; 4]>,
        limits: ServerLimits,
        now: Instant,
        deadline: Instant,
    ) -> Self {
        let server = |(is_by_udp, is_silent)| ServerTries {
            is_by_udp,
            is_silent,
            asked_at: None,
            has_failed: false,
            running: [false; 2],
        };
        let servers = servers.map(server).collect();
        Self { servers, order, limits, turn: 0, started: now, deadline, next_at: now, unanswered: SmallVec::new() }
    }

    /// Returns the next step.
    pub(in crate::dns::hickory) fn poll(&mut self, now: Instant) -> NextTry {
        let is_running = self.servers.iter().any(|server| server.running != [false; 2]);
        let count = self.servers.len();
        while self.turn < self.limits.tries * count && now < self.deadline {
            let index = self.order[self.turn % count];
            let server = &mut self.servers[index];
            if server.has_failed {
                self.turn += 1;
                continue;
            }
            let again_at = server.asked_at.filter(|_| server.runs(TryMode::Usual)).map(|at| at + ASKED_AGAIN_AFTER);
            let at = again_at.into_iter().chain([self.next_at]).max().expect("there is one");
            if is_running && now < at {
                return NextTry::Wait(Some(at));
            }
            if !server.may_be_asked() {
                break;
            }
            let round = u32::try_from(self.turn / count).unwrap_or(u32::MAX);
            self.turn += 1;
            let mode = if server.asked_at.is_some() { TryMode::NewConnection } else { TryMode::Usual };
            server.asked_at.get_or_insert(now);
            server.running[mode as usize] = true;
            self.unanswered.push((index, mode));
            // A try that starts ahead of its round ends with its round, as if it had waited for the tries before.
            let round_ends = self.started + self.limits.try_timeout.saturating_mul(round.saturating_add(1));
            let end = self.deadline.min(round_ends.max(now + self.limits.try_timeout));
            self.next_at = match server {
                ServerTries { is_silent: true, .. } => now,
                ServerTries { is_by_udp: true, .. } => now + HEAD_START,
                _ => end,
            };
            return NextTry::Start { server: index, mode, end };
        }
        if is_running { NextTry::Wait(None) } else { NextTry::NoneLeft }
    }

    /// Records a try that ended without an answer. The next one starts at once. A server that responded with a failure is not
    /// asked again.
    pub(in crate::dns::hickory) fn record_end(&mut self, server: usize, mode: TryMode, has_failed: bool) {
        self.unanswered.retain(|started| !has_failed || *started != (server, mode));
        let server = &mut self.servers[server];
        server.running[mode as usize] = false;
        server.has_failed |= has_failed;
        self.next_at = self.started;
    }

    /// Records a try that ended with a negative answer: the server is not asked again, nor are those behind it.
    pub(in crate::dns::hickory) fn record_negative(&mut self, server: usize, mode: TryMode) {
        self.servers[server].running[mode as usize] = false;
        let place = self.place(server);
        self.order[place..].iter().for_each(|behind| self.servers[*behind].has_failed = true);
    }

    /// Returns the time from which on a server's negative answer counts: at once if the first try of no server before it runs. `None` if
    /// the end of such a try decides.
    pub(in crate::dns::hickory) fn counts_from(&self, server: usize) -> Option<Instant> {
        let mut running =
            self.order[..self.place(server)].iter().filter(|before| self.servers[**before].runs(TryMode::Usual));
        running.try_fold(self.started, |_, before| self.servers[*before].is_silent.then(|| self.started + HEAD_START))
    }

    /// Returns which servers were silent before the try `answered` gave its answer (`None` for a question without an answer); `None` if none was.
    /// `ip` returns the address of a server. One that stated a failure, such as SERVFAIL, is not silent.
    pub(in crate::dns::hickory) fn asked(
        &self,
        answered: Option<(usize, TryMode)>,
        ip: impl Fn(usize) -> IpAddr,
    ) -> Option<Arc<AskedServers>> {
        let before = self.unanswered.iter().take_while(|start| Some(**start) != answered);
        let mut silent: Vec<IpAddr> = Vec::new();
        for ip in before.map(|(server, _)| ip(*server)) {
            if !silent.contains(&ip) {
                silent.push(ip);
            }
        }
        if silent.is_empty() {
            return None;
        }
        Some(Arc::new(AskedServers { answered: answered.map(|(server, _)| ip(server)), silent, searched: 0 }))
    }

    /// Returns the place of a server in the order.
    pub(in crate::dns::hickory) fn place(&self, server: usize) -> usize {
        self.order.iter().position(|other| *other == server).unwrap_or(usize::MAX)
    }
}

impl ServerTries {
    fn runs(&self, mode: TryMode) -> bool {
        self.running[mode as usize]
    }

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

    /// What a server says to one try.
    #[derive(Clone, Copy, PartialEq)]
    enum Says {
        Yes,
        No,
        Fails,
    }
    use Says::{Fails, No, Yes};

    /// Returns the tries of one question as text. Each entry of `script` is what one try meets: nothing, or something after so many
    /// milliseconds.
    fn timeline(by_udp: &[bool], tries: usize, script: &[Option<(u64, Says)>]) -> String {
        timeline_after_silence(by_udp, tries, &[], script)
    }

    /// Like [`timeline`], where some servers were silent lately.
    fn timeline_after_silence(
        by_udp: &[bool],
        tries: usize,
        silent: &[usize],
        script: &[Option<(u64, Says)>],
    ) -> String {
        let start = crate::clock::now();
        let limits = ServerLimits { try_timeout: ms(2_000), tries, total_timeout: ms(5_000), max_in_flight: 1 };
        let order = (0..by_udp.len()).collect();
        let servers = by_udp.iter().enumerate().map(|(index, is_by_udp)| (*is_by_udp, silent.contains(&index)));
        let mut tries = Tries::new(servers, order, limits, start, start + limits.total_timeout);
        let (mut log, mut now, mut running) = (Vec::new(), start, Vec::new());
        let mut script = script.iter().copied().chain(std::iter::repeat(None));
        let mut held: Option<usize> = None;
        let at = |now: Instant| (now - start).as_millis();
        loop {
            let counts_from = held.and_then(|held| tries.counts_from(held));
            if counts_from.is_some_and(|from| from <= now) {
                log.push(format!("{} refused", at(now)));
                return log.join("; ");
            }
            let wake = match tries.poll(now) {
                NextTry::Start { server, mode, end } => {
                    let said = script.next().unwrap();
                    log.push(format!("{} {mode:?} {server}", at(now)));
                    let ends = said.map_or(end, |(after, _)| end.min(now + ms(after)));
                    running.push((ends, server, mode, said.map(|(_, says)| says)));
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
            if let Some(wake) = wake.into_iter().chain(counts_from).min().filter(|wake| *wake < next) {
                now = wake;
                continue;
            }
            let (ends, server, mode, said) = running.pop().unwrap();
            now = ends;
            match said {
                Some(Yes) => {
                    log.push(format!("{} answered", at(now)));
                    return log.join("; ");
                }
                Some(No) => {
                    tries.record_negative(server, mode);
                    held = Some(server);
                }
                Some(Fails) | None => tries.record_end(server, mode, said.is_some()),
            }
        }
    }

    const NONE: Option<(u64, Says)> = None;

    #[test]
    fn the_next_server_is_asked_300_ms_after_a_silent_one() {
        let log = timeline(&[true, true], 2, &[NONE, Some((10, Yes))]);
        assert_eq!(log, "0 Usual 0; 300 Usual 1; 310 answered");
    }

    #[test]
    fn a_single_server_is_asked_by_tcp_after_a_second() {
        assert_eq!(timeline(&[true], 2, &[NONE, Some((10, Yes))]), "0 Usual 0; 1000 NewConnection 0; 1010 answered");
        assert_eq!(
            timeline(&[true], 2, &[Some((300, Yes))]),
            "0 Usual 0; 300 answered",
            "a cold name costs one question"
        );
    }

    #[test]
    fn a_slow_answer_counts_while_the_next_try_runs() {
        let log = timeline(&[true], 2, &[Some((1_700, Yes)), NONE]);
        assert_eq!(log, "0 Usual 0; 1000 NewConnection 0; 1700 answered");
        let log = timeline(&[true], 2, &[NONE, Some((2_500, Yes))]);
        assert_eq!(log, "0 Usual 0; 1000 NewConnection 0; 3500 answered", "for two tries of 2 s");
    }

    #[test]
    fn a_later_servers_negative_answer_waits_for_the_first_tries_of_those_before() {
        let three = [true; 3];
        let log = timeline(&three, 2, &[Some((900, Yes)), Some((10, No))]);
        assert_eq!(log, "0 Usual 0; 300 Usual 1; 900 answered", "the third is not asked any more");
        let log = timeline(&three, 2, &[NONE, Some((10, No)), NONE]);
        assert_eq!(log, "0 Usual 0; 300 Usual 1; 1000 NewConnection 0; 2000 refused");
        let log = timeline(&three, 2, &[NONE, Some((10, No)), Some((40, Yes))]);
        assert_eq!(log, "0 Usual 0; 300 Usual 1; 1000 NewConnection 0; 1040 answered", "over TCP");
        let log = timeline(&three, 2, &[Some((400, Fails)), Some((10, No))]);
        assert_eq!(log, "0 Usual 0; 300 Usual 1; 400 refused");
        let log = timeline(&three, 2, &[Some((400, No)), Some((10, No))]);
        assert_eq!(log, "0 Usual 0; 300 Usual 1; 400 refused");
        assert_eq!(timeline(&three, 2, &[Some((5, No))]), "0 Usual 0; 5 refused");
    }

    #[test]
    fn a_server_that_was_silent_lately_has_no_head_start_and_is_waited_for_a_moment() {
        let log = |silent: &[usize], script: &[_]| timeline_after_silence(&[true; 3], 2, silent, script);
        assert_eq!(log(&[0], &[NONE, Some((10, Yes))]), "0 Usual 0; 0 Usual 1; 10 answered");
        assert_eq!(log(&[0], &[Some((200, Yes)), Some((10, No))]), "0 Usual 0; 0 Usual 1; 200 answered");
        assert_eq!(log(&[0], &[NONE, Some((10, No))]), "0 Usual 0; 0 Usual 1; 300 refused");
        let both = "0 Usual 0; 0 Usual 1; 0 Usual 2; 300 refused";
        assert_eq!(log(&[0, 1], &[NONE, NONE, Some((10, No))]), both);
        let second = "0 Usual 0; 0 Usual 1; 300 Usual 2; 1000 NewConnection 0; 1000 NewConnection 1; 2000 refused";
        assert_eq!(log(&[0], &[NONE, NONE, Some((10, No)), NONE, NONE]), second, "the second was heard lately");
        let by_connection = timeline_after_silence(&[false, false], 2, &[0], &[NONE, Some((10, Yes))]);
        assert_eq!(by_connection, "0 Usual 0; 0 Usual 1; 10 answered");
    }

    #[test]
    fn after_a_failure_the_next_server_is_asked_at_once_and_the_first_not_again() {
        let log = timeline(&[true, true], 2, &[Some((5, Fails)), Some((5, Fails))]);
        assert_eq!(log, "0 Usual 0; 5 Usual 1; 10 over");
    }

    #[test]
    fn servers_asked_before_the_one_that_answered_are_silent() {
        use TryMode::{NewConnection, Usual};
        let ip = |server: usize| IpAddr::from([192, 0, 2, server as u8]);
        let start = crate::clock::now();
        let limits = ServerLimits { try_timeout: ms(2_000), tries: 2, total_timeout: ms(5_000), max_in_flight: 1 };
        let mut tries = Tries::new([(true, false); 2].into_iter(), (0..2).collect(), limits, start, start + ms(5_000));
        let start_at =
            |tries: &mut Tries, after| assert!(matches!(tries.poll(start + ms(after)), NextTry::Start { .. }));
        start_at(&mut tries, 0);
        assert_eq!(tries.asked(Some((0, Usual)), ip), None);
        start_at(&mut tries, 300);
        start_at(&mut tries, 1_000);
        let asked = tries.asked(Some((1, Usual)), ip).unwrap();
        assert_eq!((asked.answered, &asked.silent[..]), (Some(ip(1)), &[ip(0)][..]));
        let late = tries.asked(Some((0, NewConnection)), ip).unwrap();
        assert_eq!((late.answered, &late.silent[..]), (Some(ip(0)), &[ip(0), ip(1)][..]));
        assert_eq!(tries.asked(None, ip).unwrap().answered, None);
        tries.record_end(0, Usual, true);
        assert_eq!(tries.asked(Some((1, Usual)), ip), None, "a server that fails is not silent");
    }

    #[test]
    fn silence_from_all_servers_ends_in_time() {
        assert_eq!(timeline(&[true], 2, &[]), "0 Usual 0; 1000 NewConnection 0; 4000 over");
        let log = timeline(&[true, true], 2, &[]);
        assert_eq!(log, "0 Usual 0; 300 Usual 1; 1000 NewConnection 0; 1300 NewConnection 1; 4000 over");
        let log = timeline(&[true], 4, &[]);
        assert_eq!(
            log, "0 Usual 0; 1000 NewConnection 0; 4000 NewConnection 0; 5000 over",
            "no second connection beside one"
        );
    }

    #[test]
    fn a_server_asked_over_a_connection_has_the_whole_try() {
        let log = timeline(&[false, false], 2, &[NONE, Some((10, Yes))]);
        assert_eq!(log, "0 Usual 0; 2000 Usual 1; 2010 answered");
        assert_eq!(timeline(&[false], 2, &[]), "0 Usual 0; 2000 NewConnection 0; 4000 over");
    }
}
