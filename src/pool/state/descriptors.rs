//! How many connections there may be after sockets have run out. A core.

use std::time::Duration;

use crate::clock::Instant;

/// After sockets could not be opened: no more connections than there were then, and from time to time one more, to see
/// whether it goes again.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    ceiling: Option<usize>,
    /// By how much the ceiling rises when a connection could be opened: twice as much each time.
    step: usize,
    delay: Duration,
    /// Whether it was eased since it was felt last: what is felt all at once counts once.
    eased: bool,
}

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// By then the ceiling has long been out of reach.
const MOST: usize = 1 << 16;

impl Pressure {
    pub(super) fn allows(&self, places: usize) -> bool {
        self.ceiling.is_none_or(|ceiling| places < ceiling)
    }

    /// A socket could not be opened beside those of `places`. When to [ease](Self::eased), if that has changed.
    pub(super) fn felt(&mut self, now: Instant, places: usize) -> Option<Instant> {
        let again = self.ceiling.is_some();
        self.ceiling = Some(self.ceiling.map_or(places, |ceiling| ceiling.min(places)));
        self.step = 1;
        if again && !self.eased {
            return None;
        }
        self.delay = if again { (self.delay * 2).min(LONGEST_DELAY) } else { FIRST_DELAY };
        self.eased = false;
        Some(now + self.delay)
    }

    /// A connection could be opened.
    pub(super) fn relieved(&mut self) {
        let Some(ceiling) = self.ceiling else { return };
        let raised = ceiling + self.step;
        self.delay = FIRST_DELAY;
        self.eased = true;
        self.step *= 2;
        self.ceiling = Some(raised).filter(|raised| *raised < MOST);
    }

    /// Time has passed: one more connection may be tried; any number if none is `wanted`. When to ease further.
    pub(super) fn eased(&mut self, now: Instant, places: usize, wanted: bool) -> Option<Instant> {
        self.ceiling = self.ceiling.filter(|_| wanted);
        let ceiling = self.ceiling?;
        self.eased = true;
        self.ceiling = Some(ceiling.max(places + 1));
        Some(now + self.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_falls_back_to_what_there_was_and_tries_one_more_from_time_to_time() {
        let (mut pressure, now) = (Pressure::default(), crate::clock::now());
        assert!(pressure.allows(1_000_000));
        assert_eq!(pressure.felt(now, 10), Some(now + ms(50)));
        assert_eq!(pressure.felt(now, 10), None, "the same once more");
        assert!(pressure.allows(9) && !pressure.allows(10));
        assert_eq!(pressure.eased(now, 10, true), Some(now + ms(50)));
        assert!(pressure.allows(10) && !pressure.allows(11));
        assert_eq!(pressure.felt(now, 10), Some(now + ms(100)), "still nothing");
        pressure.eased(now, 10, true);
        assert_eq!(pressure.felt(now, 10), Some(now + ms(200)));
        assert!(!pressure.allows(10));
    }

    #[test]
    fn it_is_over_soon_after_sockets_can_be_had_again() {
        let (mut pressure, now) = (Pressure::default(), crate::clock::now());
        pressure.felt(now, 0);
        assert!(!pressure.allows(0));
        pressure.eased(now, 0, true);
        let mut places = 0;
        while pressure.ceiling.is_some() {
            assert!(pressure.allows(places));
            places += 1;
            pressure.relieved();
        }
        assert!(places < 20);
    }
}
