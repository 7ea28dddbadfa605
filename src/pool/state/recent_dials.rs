//! The recent dials of each origin, and its connection that ended last, to explain why another connection is opened. A core.
//!
//! The records outlive the origin's connections. There are at most 1,024; when there is no room for another one, all are
//! forgotten.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::clock::Instant;
use crate::trace::{CloseCause, HostAtDial, HostClose};

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
    /// Notes that a connection to the origin is opened. `open` is the number of those that are open. Returns the state of the origin's
    /// connections before.
    pub(super) fn dialled(&mut self, now: Instant, origin: &K, open: usize) -> HostAtDial {
        let Some(record) = self.origins.get_mut(origin) else {
            if self.origins.len() >= MOST_ORIGINS {
                self.origins.clear();
            }
            self.origins.insert(origin.clone(), Record { since: now, opened: 1, last_close: None });
            return HostAtDial::new(open, 0, None);
        };
        if now.saturating_duration_since(record.since) >= SECOND {
            record.since = now;
            record.opened = 0;
        }
        let before = HostAtDial::new(open, record.opened, record.last_close);
        record.opened += 1;
        before
    }

    /// Notes that a connection to the origin takes no more requests.
    pub(super) fn ended(&mut self, origin: &K, cause: CloseCause, requests: u64) {
        if let Some(record) = self.origins.get_mut(origin) {
            record.last_close = Some(HostClose::new(cause, requests));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dials_of_the_last_second_are_counted_and_the_last_close_is_remembered() {
        let (mut recent, start) = (RecentDials::default(), crate::clock::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(recent.dialled(at(0), &1, 0), HostAtDial::default());
        recent.ended(&1, CloseCause::PeerAnnounced, 1);
        recent.ended(&2, CloseCause::Peer, 1);
        let close = Some(HostClose::new(CloseCause::PeerAnnounced, 1));
        assert_eq!(recent.dialled(at(400), &1, 0), HostAtDial::new(0, 1, close));
        assert_eq!(recent.dialled(at(999), &1, 1), HostAtDial::new(1, 2, close));
        assert_eq!(recent.dialled(at(1_500), &1, 0), HostAtDial::new(0, 0, close), "another second");
        assert_eq!(recent.dialled(at(1_500), &2, 0), HostAtDial::default(), "nothing was known of it");
    }

    #[test]
    fn the_records_are_bounded() {
        let (mut recent, now) = (RecentDials::default(), crate::clock::now());
        for origin in 0..3_000 {
            recent.dialled(now, &origin, 0);
            assert!(recent.origins.len() <= MOST_ORIGINS);
        }
        assert_eq!(recent.dialled(now, &2_999, 0).opened_lately, 1);
    }
}
