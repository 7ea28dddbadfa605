//! Which address to dial next, and when (RFC 8305). A core: it is told the time.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::scoreboard::Standing;
use crate::clock::Instant;
use crate::trace::Family;

/// The race's rules.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The longest IPv4 addresses wait for the IPv6 answer (§3): a quarter of the time that is left at most.
    pub(crate) resolution_delay: Duration,
    /// The time between the starts of two attempts (§5). It is shorter where the time that is left would not do for all addresses.
    pub(crate) attempt_delay: Duration,
    /// The number of attempts under way from which on the oldest is given up for the next one, once it had [`LEAST_TIME`].
    pub(crate) max_in_flight: usize,
    /// The most addresses of a family that are dialled: as many as fit into an answer of DNS.
    pub(crate) max_addresses: usize,
    /// The end of the connect timeout.
    pub(crate) until: Option<Instant>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            resolution_delay: Duration::from_millis(50),
            attempt_delay: Duration::from_millis(250),
            max_in_flight: 6,
            max_addresses: 4_096,
            until: None,
        }
    }
}

/// The shortest attempt delay (RFC 8305 §5).
const LEAST_DELAY: Duration = Duration::from_millis(10);

/// The least an attempt gets before it is given up for another one: a round trip around the world.
const LEAST_TIME: Duration = Duration::from_millis(300);

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Dial this address, then ask again.
    Dial(SocketAddr),
    /// Give up the attempt at this address, which had its time and whose place another one needs, then ask again.
    GiveUp(SocketAddr),
    /// Nothing before this time, or until an answer or an attempt's result comes.
    Wait(Option<Instant>),
    /// Nothing more to wait for: every address was dialled and every attempt is over.
    Exhausted,
}

/// The order and the times of one race's attempts.
#[derive(Debug)]
pub(crate) struct Schedule {
    config: Config,
    unanswered: Families,
    /// The families that had addresses.
    named: Families,
    /// The addresses not dialled yet: the better standing first, and those of one standing in the order they were answered.
    ready: SmallVec<[Ready; 2]>,
    /// The attempts under way, the oldest first.
    in_flight: SmallVec<[InFlight; 1]>,
    /// True once an address was dialled.
    is_begun: bool,
    /// The family that goes first, and whose turn it is.
    first: Family,
    turn: Family,
    /// The how many-th race for these addresses it is, where each of them is to be dialled first equally often.
    share: Option<usize>,
    /// The end of the resolution delay, once there are addresses that may have to wait for better ones.
    held_until: Option<Instant>,
    /// The start of the last attempt, unless an attempt ended since.
    spaced_since: Option<Instant>,
    /// The shortest attempt delay so far.
    delay: Duration,
}

/// Which families: IPv4, IPv6.
type Families = [bool; 2];

/// An address that waits for its turn.
#[derive(Debug, Clone, Copy)]
struct Ready {
    address: SocketAddr,
    standing: Standing,
}

/// An attempt under way.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    address: SocketAddr,
    since: Instant,
}

impl Schedule {
    /// A race that waits for the answers of `unanswered` families, of which `first` goes first.
    pub(crate) fn new(config: Config, unanswered: &[Family], first: Family) -> Self {
        Self {
            unanswered: [Family::V4, Family::V6].map(|family| unanswered.contains(&family)),
            named: [false; 2],
            ready: SmallVec::new(),
            in_flight: SmallVec::new(),
            is_begun: false,
            first,
            turn: first,
            share: None,
            held_until: None,
            spaced_since: None,
            delay: config.attempt_delay,
            config,
        }
    }

    /// The same for the `turn`-th race in which all addresses, whatever their family, have equal shares.
    pub(crate) fn sharing(config: Config, unanswered: &[Family], turn: usize) -> Self {
        Self { share: Some(turn), ..Self::new(config, unanswered, Family::V6) }
    }

    /// Has another family go first, unless one has already.
    pub(crate) fn prefer(&mut self, family: Family) {
        if !self.is_begun {
            self.first = family;
            self.turn = family;
        }
    }

    /// Takes a family's addresses, each with its standing, none if it has none; they join a race that runs already.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        family: Family,
        addresses: impl IntoIterator<Item = (SocketAddr, Standing)>,
    ) {
        self.unanswered[family as usize] = false;
        let before = self.ready.len();
        let addresses = addresses.into_iter().take(self.config.max_addresses);
        self.ready.extend(addresses.map(|(address, standing)| Ready { address, standing }));
        if self.ready.len() > before + 1 {
            let mut named = HashSet::with_capacity_and_hasher(self.ready.len(), RandomState::default());
            self.ready.retain(|ready| named.insert(ready.address));
        }
        for ready in &self.ready[before..] {
            self.named[ready.family() as usize] = true;
        }
        match self.share {
            // Whatever order they were answered in.
            Some(_) => self.ready.sort_unstable_by_key(|ready| (ready.standing, ready.address)),
            None => self.ready.sort_by_key(|ready| ready.standing),
        }
        if !self.ready.is_empty() && self.held_until.is_none() {
            let delay = self.config.resolution_delay;
            self.held_until = Some(now + self.left(now).map_or(delay, |left| delay.min(left / 4)));
        }
    }

    /// An attempt is over: if its connection will not do, the next one may start at once.
    pub(crate) fn ended(&mut self, address: SocketAddr) {
        self.in_flight.retain(|attempt| attempt.address != address);
        self.spaced_since = None;
    }

    /// Whether both families have had addresses in this race.
    pub(crate) fn has_both_families(&self) -> bool {
        self.named == [true; 2]
    }

    /// The attempt delay where there is time for it, and the shortest there was in this race.
    pub(crate) fn attempt_delays(&self) -> (Duration, Duration) {
        (self.config.attempt_delay, self.delay)
    }

    /// Returns the longest a handshake over a connection may take, where other addresses are to have their turn after it: half of what
    /// is left, however many they are. A server that is slow, rather than silent, must not be hurried because it has many addresses.
    pub(crate) fn part_of_time(&self, now: Instant) -> Option<Duration> {
        let has_others = !self.ready.is_empty() || !self.in_flight.is_empty();
        self.left(now).filter(|_| has_others).map(|left| left / 2)
    }

    /// What to do now.
    pub(crate) fn poll(&mut self, now: Instant) -> Step {
        let Some(best) = self.ready.first().map(|ready| ready.standing) else {
            let over = self.in_flight.is_empty() && self.unanswered == [false; 2];
            return if over { Step::Exhausted } else { Step::Wait(None) };
        };
        if let Some(earliest) = self.earliest(best).filter(|earliest| now < *earliest) {
            return Step::Wait(Some(earliest));
        }
        if self.in_flight.len() >= self.config.max_in_flight
            && let Some(oldest) = self.in_flight.first().copied()
            && oldest.since + LEAST_TIME <= now
        {
            self.in_flight.remove(0);
            return Step::GiveUp(oldest.address);
        }
        self.dial(best, now)
    }

    /// The first address of a standing that is of this family.
    fn first_ready(&self, standing: Standing, family: Family) -> Option<usize> {
        self.ready.iter().take_while(|ready| ready.standing == standing).position(|ready| ready.family() == family)
    }

    fn earliest(&self, best: Standing) -> Option<Instant> {
        // The first address is not one that did badly, nor one of the second family, while a better one may be coming; and whose
        // turn it is shows when all are known.
        let lacks_first = self.unanswered[self.first as usize] && self.first_ready(best, self.first).is_none();
        let is_second_choice = (best > Standing::Fine || self.share.is_some()) && self.unanswered != [false; 2];
        let waits = (lacks_first || is_second_choice) && self.in_flight.is_empty();
        let spaced_until = self.spaced_since.map(|since| since + self.delay_after(since));
        spaced_until.max(self.held_until.filter(|_| waits))
    }

    /// The delay after an attempt that began at `since`: all addresses are to have their turn in the time there is.
    fn delay_after(&self, since: Instant) -> Duration {
        let Some(left) = self.left(since) else { return self.config.attempt_delay };
        let turns = u32::try_from(self.ready.len() + 1).unwrap_or(u32::MAX);
        (left / turns).clamp(LEAST_DELAY, self.config.attempt_delay)
    }

    /// The time that is left of the connect timeout.
    fn left(&self, now: Instant) -> Option<Duration> {
        self.config.until.map(|until| until.saturating_duration_since(now))
    }

    fn dial(&mut self, best: Standing, now: Instant) -> Step {
        let place = match self.share {
            Some(turn) => turn % self.ready.partition_point(|ready| ready.standing == best),
            None => self.first_ready(best, self.turn).unwrap_or(0),
        };
        let ready = self.ready.remove(place);
        self.in_flight.push(InFlight { address: ready.address, since: now });
        self.is_begun = true;
        self.turn = ready.family().other();
        self.spaced_since = Some(now);
        self.delay = self.delay.min(self.delay_after(now));
        Step::Dial(ready.address)
    }
}

impl Ready {
    fn family(self) -> Family {
        Family::of(self.address.ip())
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
