//! Which address to dial next, and when (RFC 8305). A core: it is told the time.

use std::net::SocketAddr;
use std::time::Duration;

use smallvec::SmallVec;

use super::scoreboard::Standing;
use crate::clock::Instant;
use crate::trace::Family;

/// The race's rules.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// How long IPv4 addresses wait for the IPv6 answer (§3).
    pub(crate) resolution_delay: Duration,
    /// How long after one attempt the next one starts (§5).
    pub(crate) attempt_delay: Duration,
    /// How many attempts may run at once; the oldest is given up for the next.
    pub(crate) max_in_flight: usize,
    /// How many addresses of each family are dialled at all.
    pub(crate) max_addresses: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            resolution_delay: Duration::from_millis(50),
            attempt_delay: Duration::from_millis(250),
            max_in_flight: 6,
            max_addresses: 64,
        }
    }
}

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
    /// In the order they were answered.
    addresses: SmallVec<[Known; 2]>,
    /// How many were dialled.
    dialled: usize,
    /// The family that goes first, and whose turn it is.
    first: Family,
    turn: Family,
    /// The how many-th race for these addresses it is, where each of them is to be dialled first equally often.
    share: Option<usize>,
    /// The end of the resolution delay, once there are addresses that may have to wait for better ones.
    held_until: Option<Instant>,
    /// The end of the attempt delay, unless an attempt ended since.
    spaced_until: Option<Instant>,
}

/// Which families: IPv4, IPv6.
type Families = [bool; 2];

/// An address of the race.
#[derive(Debug)]
struct Known {
    address: SocketAddr,
    standing: Standing,
    attempt: Attempt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    NotYet,
    /// Under way, as the how many-th.
    InFlight(usize),
    Over,
}

impl Schedule {
    /// A race that waits for the answers of `unanswered` families, of which `first` goes first.
    pub(crate) fn new(config: Config, unanswered: &[Family], first: Family) -> Self {
        let unanswered = [Family::V4, Family::V6].map(|family| unanswered.contains(&family));
        let (addresses, dialled, turn) = (SmallVec::new(), 0, first);
        Self { config, unanswered, addresses, dialled, first, turn, share: None, held_until: None, spaced_until: None }
    }

    /// The same for the `turn`-th race in which all addresses, whatever their family, have equal shares.
    pub(crate) fn sharing(config: Config, unanswered: &[Family], turn: usize) -> Self {
        Self { share: Some(turn), ..Self::new(config, unanswered, Family::V6) }
    }

    /// Has another family go first, unless one has already.
    pub(crate) fn prefer(&mut self, family: Family) {
        if self.dialled == 0 {
            (self.first, self.turn) = (family, family);
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
        for (address, standing) in addresses {
            let of_family = self.addresses.iter().filter(|known| known.family() == family).count();
            let is_known = self.addresses.iter().any(|known| known.address == address);
            if of_family < self.config.max_addresses && !is_known {
                self.addresses.push(Known { address, standing, attempt: Attempt::NotYet });
            }
        }
        if !self.addresses.is_empty() && self.held_until.is_none() {
            self.held_until = Some(now + self.config.resolution_delay);
        }
    }

    /// An attempt is over: if its connection will not do, the next one may start at once.
    pub(crate) fn ended(&mut self, address: SocketAddr) {
        if let Some(known) = self.addresses.iter_mut().find(|known| known.address == address) {
            known.attempt = Attempt::Over;
        }
        self.spaced_until = None;
    }

    /// Whether both families have had addresses in this race.
    pub(crate) fn has_both_families(&self) -> bool {
        Family::BOTH.iter().all(|family| self.addresses.iter().any(|known| known.family() == *family))
    }

    pub(crate) fn attempt_delay(&self) -> Duration {
        self.config.attempt_delay
    }

    /// What to do now.
    pub(crate) fn poll(&mut self, now: Instant) -> Step {
        let Some(best) = self.best() else {
            let over = self.in_flight().next().is_none() && self.unanswered == [false; 2];
            return if over { Step::Exhausted } else { Step::Wait(None) };
        };
        if let Some(earliest) = self.earliest(best).filter(|earliest| now < *earliest) {
            return Step::Wait(Some(earliest));
        }
        if self.in_flight().count() >= self.config.max_in_flight
            && let Some((_, oldest)) = self.in_flight().min()
        {
            self.addresses[oldest].attempt = Attempt::Over;
            return Step::GiveUp(self.addresses[oldest].address);
        }
        self.dial(best, now)
    }

    /// The attempts under way: which they were, and whose.
    fn in_flight(&self) -> impl Iterator<Item = (usize, usize)> {
        self.addresses.iter().enumerate().filter_map(|(place, known)| match known.attempt {
            Attempt::InFlight(turn) => Some((turn, place)),
            Attempt::NotYet | Attempt::Over => None,
        })
    }

    /// The best standing of those not dialled yet: from them the next one is chosen.
    fn best(&self) -> Option<Standing> {
        self.ready().map(|(_, known)| known.standing).min()
    }

    fn ready(&self) -> impl Iterator<Item = (usize, &Known)> {
        self.addresses.iter().enumerate().filter(|(_, known)| known.attempt == Attempt::NotYet)
    }

    /// The first of a standing that is not dialled yet, of this family or of any.
    fn first_ready(&self, standing: Standing, family: Option<Family>) -> Option<usize> {
        let is_meant =
            |known: &Known| known.standing == standing && family.is_none_or(|family| known.family() == family);
        self.ready().find(|(_, known)| is_meant(known)).map(|(place, _)| place)
    }

    /// Whose turn it is among those of a standing, whatever order they were answered in.
    fn shared(&self, standing: Standing, turn: usize) -> Option<usize> {
        let mut ready: Vec<_> = self.ready().filter(|(_, known)| known.standing == standing).collect();
        ready.sort_unstable_by_key(|(_, known)| known.address);
        ready.get(turn.checked_rem(ready.len())?).map(|(place, _)| *place)
    }

    fn earliest(&self, best: Standing) -> Option<Instant> {
        // The first address is not one that did badly, nor one of the second family, while a better one may be coming; and whose
        // turn it is shows when all are known.
        let lacks_first = self.unanswered[self.first as usize] && self.first_ready(best, Some(self.first)).is_none();
        let is_second_choice = (best > Standing::Fine || self.share.is_some()) && self.unanswered != [false; 2];
        let waits = (lacks_first || is_second_choice) && self.in_flight().next().is_none();
        self.spaced_until.max(self.held_until.filter(|_| waits))
    }

    fn dial(&mut self, best: Standing, now: Instant) -> Step {
        let place = match self.share {
            Some(turn) => self.shared(best, turn),
            None => self.first_ready(best, Some(self.turn)).or_else(|| self.first_ready(best, None)),
        };
        let known = &mut self.addresses[place.expect("an address is ready")];
        known.attempt = Attempt::InFlight(self.dialled);
        self.dialled += 1;
        self.turn = known.family().other();
        self.spaced_until = Some(now + self.config.attempt_delay);
        Step::Dial(known.address)
    }
}

impl Known {
    fn family(&self) -> Family {
        Family::of(self.address.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Family::{V4, V6};

    fn v4(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 80).into()
    }

    fn v6(last: u16) -> SocketAddr {
        ([0x2001, 0xdb8, 0, 0, 0, 0, 0, last], 80).into()
    }

    fn answered(race: &mut Schedule, now: Instant, family: Family, addresses: impl IntoIterator<Item = SocketAddr>) {
        race.answered(now, family, addresses.into_iter().map(|address| (address, Standing::Fine)));
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn both() -> (Schedule, Instant) {
        (Schedule::new(Config::default(), &[V6, V4], V6), crate::clock::now())
    }

    #[test]
    fn v6_starts_at_once_and_families_alternate() {
        let (mut race, t0) = both();
        assert_eq!(race.poll(t0), Step::Wait(None));
        answered(&mut race, t0, V6, [v6(1), v6(2)]);
        answered(&mut race, t0, V4, [v4(1), v4(2)]);
        for (step, address) in [v6(1), v4(1), v6(2), v4(2)].into_iter().enumerate() {
            let at = t0 + ms(250) * step as u32;
            assert_eq!(race.poll(at), Step::Dial(address));
            let again = if step < 3 { Step::Wait(Some(at + ms(250))) } else { Step::Wait(None) };
            assert_eq!(race.poll(at), again);
        }
    }

    #[test]
    fn v4_waits_50_ms_for_v6() {
        let (mut race, t0) = both();
        answered(&mut race, t0, V4, [v4(1)]);
        assert_eq!(race.poll(t0), Step::Wait(Some(t0 + ms(50))));
        assert_eq!(race.poll(t0 + ms(50)), Step::Dial(v4(1)));
    }

    #[test]
    fn v6_that_comes_within_the_delay_goes_first() {
        let (mut race, t0) = both();
        answered(&mut race, t0, V4, [v4(1)]);
        answered(&mut race, t0 + ms(20), V6, [v6(1)]);
        assert_eq!(race.poll(t0 + ms(20)), Step::Dial(v6(1)));
        assert_eq!(race.poll(t0 + ms(270)), Step::Dial(v4(1)));
    }

    #[test]
    fn no_v6_addresses_end_the_delay() {
        let (mut race, t0) = both();
        answered(&mut race, t0, V4, [v4(1)]);
        answered(&mut race, t0 + ms(20), V6, []);
        assert_eq!(race.poll(t0 + ms(20)), Step::Dial(v4(1)));
    }

    #[test]
    fn the_next_starts_at_once_when_one_fails() {
        let (mut race, t0) = both();
        answered(&mut race, t0, V6, [v6(1)]);
        answered(&mut race, t0, V4, [v4(1)]);
        assert_eq!(race.poll(t0), Step::Dial(v6(1)));
        race.ended(v6(1));
        assert_eq!(race.poll(t0 + ms(1)), Step::Dial(v4(1)));
        race.ended(v4(1));
        assert_eq!(race.poll(t0 + ms(2)), Step::Exhausted);
    }

    #[test]
    fn late_answers_join() {
        let (mut race, t0) = both();
        answered(&mut race, t0, V4, [v4(1)]);
        assert_eq!(race.poll(t0 + ms(50)), Step::Dial(v4(1)));
        race.ended(v4(1));
        assert_eq!(race.poll(t0 + ms(60)), Step::Wait(None));
        answered(&mut race, t0 + ms(900), V6, [v6(1)]);
        assert_eq!(race.poll(t0 + ms(900)), Step::Dial(v6(1)));
    }

    #[test]
    fn at_most_six_run_at_once_and_every_address_gets_its_turn() {
        let (mut race, t0) = both();
        answered(&mut race, t0, V6, []);
        answered(&mut race, t0, V4, (1..=20).map(v4));
        for turn in 0..20 {
            let at = t0 + ms(250) * turn;
            let address = v4(turn as u8 + 1);
            if turn >= 6 {
                assert_eq!(race.poll(at), Step::GiveUp(v4(turn as u8 - 5)));
            }
            assert_eq!(race.poll(at), Step::Dial(address));
            assert!(race.in_flight().count() <= 6);
        }
        assert_eq!(race.poll(t0 + ms(60_000)), Step::Wait(None), "the last six have all the time there is");
    }

    #[test]
    fn an_address_named_twice_is_dialled_once() {
        let (mut race, t0) = both();
        answered(&mut race, t0, V6, []);
        answered(&mut race, t0, V4, [v4(1), v4(1)]);
        assert_eq!(race.poll(t0), Step::Dial(v4(1)));
        race.ended(v4(1));
        assert_eq!(race.poll(t0), Step::Exhausted);
    }

    #[test]
    fn a_thousand_addresses_are_bounded_attempts() {
        let (mut race, t0) = both();
        answered(&mut race, t0, V6, (0..1_000).map(v6).map(|address| (address.ip(), 80).into()));
        answered(&mut race, t0, V4, []);
        let mut dialled = 0;
        while let Step::Dial(address) = race.poll(t0) {
            race.ended(address);
            dialled += 1;
        }
        assert_eq!(dialled, 64);
    }

    #[test]
    fn many_addresses_of_one_family_leave_the_other_its_turn() {
        let (mut race, t0) = both();
        answered(&mut race, t0, V6, (0..1_000).map(v6));
        answered(&mut race, t0, V4, [v4(1)]);
        assert_eq!(race.poll(t0), Step::Dial(v6(0)));
        assert_eq!(race.poll(t0 + ms(250)), Step::Dial(v4(1)));
    }

    #[test]
    fn addresses_that_did_badly_come_last_whatever_their_family() {
        let (mut race, t0) = both();
        race.answered(t0, V6, [(v6(1), Standing::Failed), (v6(2), Standing::Slow)]);
        race.answered(t0, V4, [(v4(1), Standing::Failed), (v4(2), Standing::Fine)]);
        for (step, address) in [v4(2), v6(2), v4(1), v6(1)].into_iter().enumerate() {
            assert_eq!(race.poll(t0 + ms(250) * step as u32), Step::Dial(address));
        }
    }

    #[test]
    fn an_address_that_failed_waits_50_ms_for_a_better_one() {
        let (mut race, t0) = both();
        race.answered(t0, V6, [(v6(1), Standing::Failed)]);
        assert_eq!(race.poll(t0), Step::Wait(Some(t0 + ms(50))));
        answered(&mut race, t0 + ms(20), V4, [v4(1)]);
        assert_eq!(race.poll(t0 + ms(20)), Step::Dial(v4(1)));
        let (mut race, t0) = both();
        race.answered(t0, V6, [(v6(1), Standing::Failed)]);
        assert_eq!(race.poll(t0 + ms(50)), Step::Dial(v6(1)), "and no longer");
    }

    #[test]
    fn where_all_have_their_share_each_is_first_equally_often_whatever_its_family() {
        let mut firsts = [0; 3];
        for turn in 0..9 {
            let t0 = crate::clock::now();
            let mut race = Schedule::sharing(Config::default(), &[V6, V4], turn);
            let mut addresses = [v4(1), v4(2)];
            addresses.rotate_left(turn % 2);
            answered(&mut race, t0, V4, addresses);
            assert_eq!(race.poll(t0), Step::Wait(Some(t0 + ms(50))), "there may be more");
            answered(&mut race, t0, V6, [v6(1)]);
            let Step::Dial(first) = race.poll(t0) else { panic!("nothing to wait for") };
            firsts[[v4(1), v4(2), v6(1)].iter().position(|address| *address == first).unwrap()] += 1;
            let Step::Dial(second) = race.poll(t0 + ms(250)) else { panic!("the next has its turn") };
            assert_ne!(first, second);
        }
        assert_eq!(firsts, [3; 3]);
    }

    #[test]
    fn the_family_that_did_well_goes_first() {
        let t0 = crate::clock::now();
        let mut race = Schedule::new(Config::default(), &[V6, V4], V4);
        answered(&mut race, t0, V6, [v6(1)]);
        assert_eq!(race.poll(t0), Step::Wait(Some(t0 + ms(50))));
        answered(&mut race, t0, V4, [v4(1)]);
        assert_eq!(race.poll(t0), Step::Dial(v4(1)));
        assert_eq!(race.poll(t0 + ms(250)), Step::Dial(v6(1)));
    }

    #[test]
    fn without_any_address_it_is_exhausted() {
        let (mut race, t0) = both();
        answered(&mut race, t0, V6, []);
        answered(&mut race, t0, V4, []);
        assert_eq!(race.poll(t0), Step::Exhausted);
    }
}
