//! The recent dials of each origin, and its connection that ended last, to explain why another connection is opened. A core.
//!
//! The records outlive the origin's connections. There are at most 1,024; when there is no room for another one, all are
//! forgotten.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::clock::Instant;
#[cfg(test)]
use crate::trace::CloseCause;
use crate::trace::{HostAtDial, HostClose};

/// The recent dials of each origin.
#[derive(Debug)]
pub(super) struct RecentDials<K> {
    origins: HashMap<K, Record, RandomState>,
}

/// The recent dials of one origin.
#[derive(Debug, Clone, Copy)]
struct Record {
    /// The start of the second in which `opened` are counted.
    since: Instant,
    /// The connections opened since then.
    opened: u32,
    last_close: Option<HostClose>,
}

const MOST_ORIGINS: usize = 1_024;
const SECOND: Duration = Duration::from_secs(1);

impl<K> Default for RecentDials<K> {
    fn default() -> Self {
        Self { origins: HashMap::default() }
    }
}

impl<K: Clone + Eq + Hash> RecentDials<K> {
    /// Returns the state of the origin's connections for a dial that begins. `open` is the number of those that are open.
    pub(super) fn at_dial(&mut self, now: Instant, origin: &K, open: usize) -> HostAtDial {
        let Some(record) = self.origins.get_mut(origin) else { return HostAtDial::new(open, 0, None) };
        record.begin_second(now);
        HostAtDial::new(open, record.opened, record.last_close)
    }

    /// Notes that a connection to the origin has opened.
    pub(super) fn opened(&mut self, now: Instant, origin: &K) {
        if let Some(record) = self.origins.get_mut(origin) {
            record.begin_second(now);
            record.opened += 1;
            return;
        }
        if self.origins.len() >= MOST_ORIGINS {
            self.origins.clear();
        }
        self.origins.insert(origin.clone(), Record { since: now, opened: 1, last_close: None });
    }

    /// Notes that a connection to the origin takes no more requests.
    pub(super) fn ended(&mut self, origin: &K, close: HostClose) {
        if let Some(record) = self.origins.get_mut(origin) {
            record.last_close = Some(close);
        }
    }
}

impl Record {
    /// Begins another second if the current one is over.
    fn begin_second(&mut self, now: Instant) {
        if now - self.since >= SECOND {
            self.since = now;
            self.opened = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_opened_in_a_second_are_counted_and_the_last_close_is_remembered() {
        let (mut recent, start) = (RecentDials::default(), crate::clock::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(recent.at_dial(at(0), &1, 0), HostAtDial::default());
        assert_eq!(recent.at_dial(at(0), &1, 0), HostAtDial::default(), "a dial that fails does not count");
        recent.opened(at(0), &1);
        let close = HostClose::new(CloseCause::PeerAnnounced, 1, false);
        recent.ended(&1, close);
        recent.ended(&2, HostClose::new(CloseCause::Peer, 1, true));
        assert_eq!(recent.at_dial(at(400), &1, 0), HostAtDial::new(0, 1, Some(close)));
        recent.opened(at(400), &1);
        assert_eq!(recent.at_dial(at(999), &1, 1), HostAtDial::new(1, 2, Some(close)));
        assert_eq!(recent.at_dial(at(1_500), &1, 0), HostAtDial::new(0, 0, Some(close)), "another second");
        assert_eq!(recent.at_dial(at(1_500), &2, 0), HostAtDial::default(), "nothing was known of it");
    }

    #[test]
    fn the_records_are_bounded() {
        let (mut recent, now) = (RecentDials::default(), crate::clock::now());
        for origin in 0..3_000 {
            recent.opened(now, &origin);
            assert!(recent.origins.len() <= MOST_ORIGINS);
        }
        assert_eq!(recent.at_dial(now, &2_999, 0).opened_lately, 1);
    }

    #[test]
    fn origins_are_counted_apart() {
        let (mut recent, now) = (RecentDials::default(), crate::clock::now());
        recent.opened(now, &1);
        recent.opened(now, &2);
        assert_eq!([1, 2].map(|origin| recent.at_dial(now, &origin, 0).opened_lately), [1, 1]);
    }
}
