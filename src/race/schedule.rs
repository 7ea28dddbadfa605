//! Which address is dialled next, and when (RFC 8305). A core: it is given the time.
//!
//! The invariants:
//! * Two attempts start at least one attempt delay apart, unless an attempt has ended in between.
//! * No more than `max_in_flight` attempts are under way, except that none is cancelled before it has had [`MIN_ATTEMPT_TIME`].
//! * Each address is dialled at most once, at most `max_addresses` are dialled, and addresses that failed lately come last.
//! * A race whose addresses have all failed, one of them by the host's own word, ends at most `late_family` after its first addresses were
//!   known.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use crate::world::RandomState;
use smallvec::SmallVec;

use super::scoreboard::DialStanding;
use crate::clock::Instant;
use crate::trace::Family;

/// The settings of a race.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The longest time for which addresses wait for better ones, as IPv4 for IPv6 (RFC 8305 §3). A quarter of the time that is
    /// left at most.
    pub(crate) resolution_delay: Duration,
    /// The time between the starts of two attempts (RFC 8305 §5). Shorter if the time that is left is not enough for all
    /// addresses.
    pub(crate) attempt_delay: Duration,
    /// The number of attempts under way at which the oldest is cancelled for the next one, once it had [`MIN_ATTEMPT_TIME`].
    pub(crate) max_in_flight: usize,
    /// The most addresses that are dialled, of both families.
    pub(crate) max_addresses: usize,
    /// The time after the first addresses for which a family without an answer is waited for once all known addresses have failed. Where this
    /// machine cannot reach them, as without IPv6, it is waited for without end.
    pub(crate) late_family: Duration,
    /// The end of the connect timeout.
    pub(crate) deadline: Option<Instant>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            resolution_delay: Duration::from_millis(50),
            attempt_delay: Duration::from_millis(250),
            max_in_flight: 6,
            max_addresses: 64,
            late_family: Duration::from_millis(300),
            deadline: None,
        }
    }
}

/// The shortest attempt delay (RFC 8305 §5).
const MIN_ATTEMPT_DELAY: Duration = Duration::from_millis(10);

/// The shortest time of an attempt before it is cancelled for another: a round trip around the world.
const MIN_ATTEMPT_TIME: Duration = Duration::from_millis(300);

/// The next thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextAction {
    /// Dial this address, then poll again.
    Dial(SocketAddr),
    /// Cancel the attempt at this address, which has had its time, then poll again.
    Cancel(SocketAddr),
    /// Wait until this time, or until an answer comes or an attempt ends.
    Wait(Option<Instant>),
    /// The race is over: every address was dialled and every attempt has ended.
    NoneLeft,
}

/// The order and the times of one race's attempts.
#[derive(Debug)]
pub(crate) struct Schedule {
    config: Config,
    unanswered: Families,
    /// The families that had addresses.
    with_addresses: Families,
    /// The addresses that are not dialled yet: those of a better standing first, within a standing in the order of the answers.
    ready: SmallVec<[ReadyAddress; 2]>,
    /// The attempts under way, the oldest first.
    in_flight: SmallVec<[InFlight; 1]>,
    /// The number of addresses that were dialled.
    dialled: usize,
    /// The family of the first attempt.
    first_family: Family,
    /// The family of the next attempt. Families alternate.
    next_family: Family,
    /// The number of races before this one, if all addresses are to be dialled first equally often.
    turn: Option<usize>,
    /// The end of the resolution delay, once there are addresses.
    resolution_delay_ends: Option<Instant>,
    /// The time up to which a family without an answer is waited for, once there are addresses.
    late_family_ends: Option<Instant>,
    /// True if an attempt got as far as the host.
    has_reached: bool,
    /// The start of the last attempt, unless an attempt has ended since.
    last_start: Option<Instant>,
    /// The shortest attempt delay so far.
    shortest_delay: Duration,
}

/// A flag for each family, indexed by the family: IPv4, IPv6.
type Families = [bool; 2];

/// An address that is not dialled yet.
#[derive(Debug, Clone, Copy)]
struct ReadyAddress {
    address: SocketAddr,
    standing: DialStanding,
}

/// An attempt under way.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    address: SocketAddr,
    started: Instant,
}

impl Schedule {
    /// Creates the schedule of a race that waits for the answers of `families`, of which `first_family` goes first.
    pub(crate) fn new(config: Config, families: &[Family], first_family: Family) -> Self {
        Self {
            unanswered: [Family::V4, Family::V6].map(|family| families.contains(&family)),
            with_addresses: [false; 2],
            ready: SmallVec::new(),
            in_flight: SmallVec::new(),
            dialled: 0,
            first_family,
            next_family: first_family,
            turn: None,
            resolution_delay_ends: None,
            late_family_ends: None,
            has_reached: false,
            last_start: None,
            shortest_delay: config.attempt_delay,
            config,
        }
    }

    /// Creates the schedule of a race in which all addresses, of both families, have equal shares: over many races, each is
    /// dialled first equally often. `turn` is the number of races before.
    pub(crate) fn with_equal_shares(config: Config, families: &[Family], turn: usize) -> Self {
        Self { turn: Some(turn), ..Self::new(config, families, Family::V6) }
    }

    /// Lets another family go first, unless an address was dialled already.
    pub(crate) fn prefer(&mut self, family: Family) {
        if self.dialled == 0 {
            self.first_family = family;
            self.next_family = family;
        }
    }

    /// Adds the answer for a family: its addresses, each with its standing, or none. The race may have started already.
    pub(crate) fn add_addresses(
        &mut self,
        now: Instant,
        family: Family,
        addresses: impl IntoIterator<Item = (SocketAddr, DialStanding)>,
    ) {
        self.unanswered[family as usize] = false;
        let before = self.ready.len();
        let addresses = addresses.into_iter();
        self.ready.extend(addresses.map(|(address, standing)| ReadyAddress { address, standing }));
        if self.ready.len() > before + 1 {
            let mut seen = HashSet::with_capacity_and_hasher(self.ready.len(), RandomState::default());
            self.ready.retain(|ready| seen.insert(ready.address));
        }
        for ready in &self.ready[before..] {
            self.with_addresses[ready.family() as usize] = true;
        }
        match self.turn {
            // The same order in every race, whatever the order of the answer.
            Some(_) => self.ready.sort_unstable_by_key(|ready| (ready.standing, ready.address)),
            None => self.ready.sort_by_key(|ready| ready.standing),
        }
        if !self.ready.is_empty() && self.resolution_delay_ends.is_none() {
            let delay = self.config.resolution_delay;
            let delay = self.time_left(now).map_or(delay, |left| delay.min(left / 4));
            self.resolution_delay_ends = Some(now + delay);
            self.late_family_ends = Some(now + self.config.late_family);
        }
    }

    /// Records the end of an attempt. If its connection does not work, the next attempt may start at once.
    pub(crate) fn record_end(&mut self, address: SocketAddr) {
        self.in_flight.retain(|attempt| attempt.address != address);
        self.last_start = None;
    }

    /// Notes that an attempt got as far as the host, which refused it or did not answer in time.
    pub(crate) fn note_reached(&mut self) {
        self.has_reached = true;
    }

    /// Returns the number of addresses that were dialled.
    pub(crate) fn dialled(&self) -> usize {
        self.dialled
    }

    /// Returns true if there are addresses that were not dialled.
    pub(crate) fn has_untried(&self) -> bool {
        !self.ready.is_empty() && self.dialled < self.config.max_addresses
    }

    /// Returns true if both families have had addresses in this race.
    pub(crate) fn has_both_families(&self) -> bool {
        self.with_addresses == [true; 2]
    }

    /// Returns the attempt delay of a race with enough time, and the shortest one in this race.
    pub(crate) fn attempt_delays(&self) -> (Duration, Duration) {
        (self.config.attempt_delay, self.shortest_delay)
    }

    /// Returns the longest time for a handshake over a connection, if time has to be left for other addresses: half of the time
    /// that is left, however many they are. A server that is slow rather than silent must not be hurried because it has many
    /// addresses.
    pub(crate) fn handshake_timeout(&self, now: Instant) -> Option<Duration> {
        let has_others = !self.ready.is_empty() || !self.in_flight.is_empty();
        self.time_left(now).filter(|_| has_others).map(|left| left / 2)
    }

    /// Returns the next thing to do.
    pub(crate) fn poll(&mut self, now: Instant) -> NextAction {
        if self.dialled >= self.config.max_addresses {
            self.ready.clear();
            self.unanswered = [false; 2];
        }
        let Some(best) = self.ready.first().map(|ready| ready.standing) else {
            let late_family_ends = self.late_family_ends.filter(|_| self.has_reached);
            let is_waited_for = late_family_ends.is_none_or(|ends| now < ends);
            return match (self.in_flight.is_empty(), self.unanswered != [false; 2] && is_waited_for) {
                (true, false) => NextAction::NoneLeft,
                (true, true) => NextAction::Wait(late_family_ends),
                (false, _) => NextAction::Wait(None),
            };
        };
        if let Some(start) = self.next_start(best)
            && now < start
        {
            return NextAction::Wait(Some(start));
        }
        if self.in_flight.len() >= self.config.max_in_flight
            && let Some(oldest) = self.in_flight.first().copied()
            && oldest.started + MIN_ATTEMPT_TIME <= now
        {
            self.in_flight.remove(0);
            return NextAction::Cancel(oldest.address);
        }
        self.dial(best, now)
    }

    /// Returns the earliest start of the next attempt, at an address of the standing `best`. `None` means at once.
    ///
    /// There are two reasons to wait: the delay since the last attempt, and, while no attempt is under way, the resolution
    /// delay for addresses that may have to give way to better ones. These are addresses of the second family before the first
    /// has answered, and addresses that were slow or failed, or any if they have equal shares, before all families have.
    fn next_start(&self, best: DialStanding) -> Option<Instant> {
        let spaced = self.last_start.map(|started| started + self.delay_after(started));
        let lacks_first_family =
            self.unanswered[self.first_family as usize] && self.first_ready(best, self.first_family).is_none();
        let may_get_better = (best > DialStanding::Fine || self.turn.is_some()) && self.unanswered != [false; 2];
        let may_wait = self.in_flight.is_empty() && best != DialStanding::Chosen;
        if may_wait && (lacks_first_family || may_get_better) {
            return spaced.max(self.resolution_delay_ends);
        }
        spaced
    }

    /// Returns the index of the first address of this standing and family.
    fn first_ready(&self, standing: DialStanding, family: Family) -> Option<usize> {
        self.ready.iter().take_while(|ready| ready.standing == standing).position(|ready| ready.family() == family)
    }

    /// Returns the delay after an attempt that started at `started`. All addresses are to have their turn in the time that was
    /// left then.
    fn delay_after(&self, started: Instant) -> Duration {
        let Some(left) = self.time_left(started) else { return self.config.attempt_delay };
        let left_to_dial = self.ready.len().min(self.config.max_addresses - self.dialled);
        let turns = u32::try_from(left_to_dial + 1).unwrap_or(u32::MAX);
        (left / turns).clamp(MIN_ATTEMPT_DELAY, self.config.attempt_delay)
    }

    /// Returns what is left of the connect timeout.
    fn time_left(&self, now: Instant) -> Option<Duration> {
        self.config.deadline.map(|deadline| deadline - now)
    }

    /// Starts an attempt at an address of the standing `best`.
    fn dial(&mut self, best: DialStanding, now: Instant) -> NextAction {
        let index = match self.turn {
            Some(turn) => turn % self.ready.partition_point(|ready| ready.standing == best),
            None => self.first_ready(best, self.next_family).unwrap_or(0),
        };
        let ready = self.ready.remove(index);
        self.in_flight.push(InFlight { address: ready.address, started: now });
        self.dialled += 1;
        self.next_family = ready.family().other();
        self.last_start = Some(now);
        self.shortest_delay = self.shortest_delay.min(self.delay_after(now));
        NextAction::Dial(ready.address)
    }
}

impl ReadyAddress {
    fn family(self) -> Family {
        Family::of(self.address.ip())
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
