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
    /// The address families that the client looks up.
    families: &'static [Family],
    next_report: Instant,
}

/// The shortest time between two reports to the cache. It is shorter than any TTL but 0.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// The shortest time between two reports while the cache holds no addresses of the name.
const REPORT_INTERVAL_UNKNOWN: Duration = Duration::from_secs(30);

impl NameUse {
    /// Creates the record of a name that was looked up at `now`.
    pub(crate) fn new(resolver: &CachedResolver, name: &Arc<str>, families: &'static [Family], now: Instant) -> Self {
        Self { resolver: resolver.clone(), name: name.clone(), families, next_report: now + REPORT_INTERVAL }
    }

    pub(in crate::connect) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Reports to the DNS cache that the name is in use, unless it did so a moment ago.
    pub(crate) fn touch(&mut self, now: Instant) {
        if now < self.next_report {
            return;
        }
        let is_known = self.resolver.touch_families(&self.name, self.families);
        self.next_report = now + if is_known { REPORT_INTERVAL } else { REPORT_INTERVAL_UNKNOWN };
    }
}
