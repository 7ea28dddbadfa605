//! Which server is asked next for one name, and when. A core: it is told the time.

use std::time::Duration;

use crate::clock::Instant;

/// How long a server that is asked by UDP has the question to itself. The next one is asked then, or the same by TCP; who
/// answers first is believed.
pub(super) const HEAD_START: Duration = Duration::from_millis(250);

/// The tries of one lookup.
#[derive(Debug)]
pub(super) struct Tries {
    servers: Vec<Server>,
    first: usize,
    /// How often each server is tried.
    tries: usize,
    /// How many turns are over; the servers take them one after the other.
    turn: usize,
    one_try: Duration,
    began: Instant,
    deadline: Instant,
    /// When the next try begins, where none that runs ends before.
    next_at: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Server {
    by_udp: bool,
    was_asked: bool,
    /// It said that it will not answer, so it is not asked again.
    has_failed: bool,
    running: [bool; 2],
}

/// How a server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// As usual: by UDP, or over the connection that is kept.
    Usual,
    /// Over a connection of this try's own; a server that is not asked by UDP is asked over the one that is kept, or over the
    /// one that took its place.
    Anew,
}

/// What to do now.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Ask this server in this way, until then.
    Try { server: usize, way: Way, end: Instant },
    /// Wait until a try ends, or until then.
    Wait(Option<Instant>),
    /// Nothing is left to do.
    Over,
}

impl Tries {
    /// The tries of servers, of which it is said whether they are asked by UDP; `first` is asked first.
    pub(super) fn new(
        by_udp: impl Iterator<Item = bool>,
        first: usize,
        (tries, one_try): (usize, Duration),
        now: Instant,
        deadline: Instant,
    ) -> Self {
        let server = |by_udp| Server { by_udp, was_asked: false, has_failed: false, running: [false; 2] };
        let servers = by_udp.map(server).collect();
        Self { servers, first, tries, turn: 0, one_try, began: now, deadline, next_at: now }
    }

    pub(super) fn poll(&mut self, now: Instant) -> Step {
        let is_running = self.servers.iter().any(|server| server.running != [false; 2]);
        if is_running && now < self.next_at {
            return Step::Wait(Some(self.next_at));
        }
        let count = self.servers.len();
        while self.turn < self.tries * count && now < self.deadline {
            let place = (self.first + self.turn) % count;
            let server = &mut self.servers[place];
            if !server.has_failed && !server.may_be_asked() {
                break;
            }
            let round = u32::try_from(self.turn / count).unwrap_or(u32::MAX);
            self.turn += 1;
            if server.has_failed {
                continue;
            }
            let way = if server.was_asked { Way::Anew } else { Way::Usual };
            server.was_asked = true;
            server.running[way as usize] = true;
            // A try that begins ahead of its turn lasts as long as if it had waited for it.
            let turn_ends = self.began + self.one_try.saturating_mul(round.saturating_add(1));
            let end = self.deadline.min(turn_ends.max(now + self.one_try));
            self.next_at = if server.by_udp { now + HEAD_START } else { end };
            return Step::Try { server: place, way, end };
        }
        if is_running { Step::Wait(None) } else { Step::Over }
    }

    /// A try came to nothing: the next one begins at once. One that `failed` says the server will not answer.
    pub(super) fn ended(&mut self, server: usize, way: Way, failed: bool) {
        let server = &mut self.servers[server];
        server.running[way as usize] = false;
        server.has_failed |= failed;
        self.next_at = self.began;
    }
}

impl Server {
    /// Returns true if another try makes sense while others run: by TCP beside UDP, and no second connection beside one.
    fn may_be_asked(&self) -> bool {
        match self.running {
            [false, false] => true,
            [true, false] => self.by_udp,
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

    /// The tries of one lookup as text, where each server does what `script` says of its turn: nothing, or something after
    /// so many milliseconds: `true` is an answer, and `false` a failure.
    fn timeline(by_udp: &[bool], tries: usize, script: &[Option<(u64, bool)>]) -> String {
        let start = crate::clock::now();
        let mut tries = Tries::new(by_udp.iter().copied(), 0, (tries, ms(2_000)), start, start + ms(5_000));
        let (mut log, mut now, mut running) = (Vec::new(), start, Vec::new());
        let mut script = script.iter().copied().chain(std::iter::repeat(None));
        let at = |now: Instant| (now - start).as_millis();
        loop {
            let wake = match tries.poll(now) {
                Step::Try { server, way, end } => {
                    let said = script.next().unwrap();
                    log.push(format!("{} {way:?} {server}", at(now)));
                    let ends = said.map_or(end, |(after, _)| end.min(now + ms(after)));
                    running.push((ends, server, way, said.map(|(_, answers)| answers)));
                    continue;
                }
                Step::Wait(until) => until,
                Step::Over => {
                    log.push(format!("{} over", at(now)));
                    return log.join("; ");
                }
            };
            running.sort_unstable_by_key(|(ends, ..)| std::cmp::Reverse(*ends));
            let next = running.last().map(|(ends, ..)| *ends).expect("it waits for a try");
            if let Some(wake) = wake.filter(|wake| *wake < next) {
                now = wake;
                continue;
            }
            let (ends, server, way, said) = running.pop().unwrap();
            now = ends;
            if said == Some(true) {
                log.push(format!("{} answered", at(now)));
                return log.join("; ");
            }
            tries.ended(server, way, said == Some(false));
        }
    }

    const NONE: Option<(u64, bool)> = None;

    #[test]
    fn the_next_server_is_asked_a_quarter_of_a_second_after_one_that_is_silent() {
        let told = timeline(&[true, true], 2, &[NONE, Some((10, true))]);
        assert_eq!(told, "0 Usual 0; 250 Usual 1; 260 answered");
    }

    #[test]
    fn a_server_alone_is_asked_by_tcp_as_soon() {
        assert_eq!(timeline(&[true], 2, &[NONE, Some((10, true))]), "0 Usual 0; 250 Anew 0; 260 answered");
    }

    #[test]
    fn one_that_is_slow_is_still_listened_to() {
        let told = timeline(&[true], 2, &[Some((700, true)), NONE]);
        assert_eq!(told, "0 Usual 0; 250 Anew 0; 700 answered");
        let told = timeline(&[true], 2, &[NONE, Some((3_000, true))]);
        assert_eq!(told, "0 Usual 0; 250 Anew 0; 3250 answered", "for two tries of 2 s");
    }

    #[test]
    fn a_server_that_failed_is_not_asked_again_and_the_next_one_at_once() {
        let told = timeline(&[true, true], 2, &[Some((5, false)), Some((5, false))]);
        assert_eq!(told, "0 Usual 0; 5 Usual 1; 10 over");
    }

    #[test]
    fn silence_from_all_of_them_ends_in_time() {
        assert_eq!(timeline(&[true], 2, &[]), "0 Usual 0; 250 Anew 0; 4000 over");
        let told = timeline(&[true, true], 2, &[]);
        assert_eq!(told, "0 Usual 0; 250 Usual 1; 500 Anew 0; 750 Anew 1; 4000 over");
        let told = timeline(&[true], 4, &[]);
        assert_eq!(told, "0 Usual 0; 250 Anew 0; 4000 Anew 0; 5000 over", "no second connection beside one");
    }

    #[test]
    fn connections_have_the_whole_try_to_themselves() {
        let told = timeline(&[false, false], 2, &[NONE, Some((10, true))]);
        assert_eq!(told, "0 Usual 0; 2000 Usual 1; 2010 answered");
        assert_eq!(timeline(&[false], 2, &[]), "0 Usual 0; 2000 Anew 0; 4000 over");
    }
}
