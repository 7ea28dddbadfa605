//! Keeps a connection's host name in the DNS cache while requests are sent on the connection.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::dns::{CachedResolver, Family};

/// The host name that a connection was opened for.
///
/// A connection that is kept busy never looks its name up again. The cache refreshes only names that are in use, so
/// each request reports the use of the name here.
pub(crate) struct NameUse {
    resolver: CachedResolver,
    name: Arc<str>,
    /// The port that the resolver has named; 0 for the usual one of the target.
    own_port: u16,
    /// The address families that the client looks up.
    families: &'static [Family],
    next_report: Instant,
    /// The time between two reports: longer each time that the cache holds no addresses of the name.
    interval: Duration,
}

/// The shortest time between two reports to the cache. It is shorter than any TTL but 0.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// The longest time between two reports while the cache holds no addresses of the name. It may be without them for a moment alone,
/// because they expired before their refresh was over.
const REPORT_INTERVAL_UNKNOWN: Duration = Duration::from_secs(30);

impl NameUse {
    /// Creates the record of a name that was looked up at `now`. `own_port` is the port that the resolver has named for it, or 0.
    pub(crate) fn new(
        resolver: &CachedResolver,
        (name, own_port): (&Arc<str>, u16),
        families: &'static [Family],
        now: Instant,
    ) -> Self {
        Self {
            resolver: resolver.clone(),
            name: name.clone(),
            own_port,
            families,
            next_report: now + REPORT_INTERVAL,
            interval: REPORT_INTERVAL,
        }
    }

    pub(in crate::connect) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(in crate::connect) fn own_port(&self) -> u16 {
        self.own_port
    }

    /// Reports to the DNS cache that the name is in use, unless it did so a moment ago.
    pub(crate) fn touch(&mut self, now: Instant) {
        if now < self.next_report {
            return;
        }
        let is_known = self.resolver.touch_families(&self.name, self.families);
        self.interval = if is_known { REPORT_INTERVAL } else { (self.interval * 2).min(REPORT_INTERVAL_UNKNOWN) };
        self.next_report = now + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::dns::FixedResolver;

    #[tokio::test(start_paused = true)]
    async fn a_name_that_the_cache_lacks_for_a_moment_is_reported_again_soon() {
        let names = || FixedResolver::new().with("a.test", [[192, 0, 2, 1].into()]).with_ttl(Duration::from_secs(60));
        let intervals = async |resolver: CachedResolver| {
            let mut name_use = NameUse::new(&resolver, (&Arc::from("a.test"), 0), &[Family::V4], clock::now());
            let mut intervals = Vec::new();
            for _ in 0..10 {
                tokio::time::sleep(name_use.interval).await;
                name_use.touch(clock::now());
                intervals.push(name_use.interval.as_millis());
            }
            intervals
        };
        let kept = intervals(CachedResolver::new(names())).await;
        assert_eq!(kept[..3], [500, 250, 250], "the first report starts a query");
        let not_kept = intervals(CachedResolver::builder().max_names(0).build(names())).await;
        assert_eq!(not_kept[..4], [500, 1_000, 2_000, 4_000]);
        assert_eq!(not_kept[9], REPORT_INTERVAL_UNKNOWN.as_millis());
    }
}
