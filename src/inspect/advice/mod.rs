//! Advice on the limits of the pool, from the pool's own statistics.
//!
//! A file calls files further down in this list: `table.rs` (the advice as text), `report.rs` (the advice), `snapshot.rs` (the
//! statistics at a moment), `host_rules.rs` and `total_rules.rs` (one function for each setting), `item.rs`, `load.rs`,
//! `staffing.rs` (the formulas).

mod host_rules;
mod item;
mod load;
mod report;
#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod simulation_tests;
mod snapshot;
mod staffing;
mod table;
mod total_rules;

use crate::client::Client;
use crate::clock;
use crate::os;

pub use item::{AdviceItem, Figure, Setting, SettingValue};
pub use report::{Advice, HostAdvice};
pub use snapshot::StatsSnapshot;

impl Client {
    /// Returns advice on the limits of the pool, from its statistics since the client was built: how many connections the load
    /// needs, what the server does with idle ones, and how many descriptors that takes. [`Advice`] says how.
    ///
    /// For a shorter time, such as a busy minute, see [`Advice::between`].
    pub fn advise(&self) -> Advice {
        Advice::since_built(&self.stats_snapshot())
    }

    /// Returns the statistics of the pool and of the DNS cache at the moment, for [`Advice::between`].
    pub fn stats_snapshot(&self) -> StatsSnapshot {
        let (hosts, config, built) = self.load();
        StatsSnapshot {
            at: clock::now(),
            built,
            pool: self.pool_stats(),
            hosts,
            dns: self.dns_stats(),
            config,
            descriptors: os::descriptor_limit(),
        }
    }
}
