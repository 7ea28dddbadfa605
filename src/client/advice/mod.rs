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
mod simulation;
mod snapshot;
mod staffing;
mod table;
mod total_rules;

pub use item::{AdviceItem, Figure, Setting, SettingValue};
pub use report::{Advice, HostAdvice};
pub use snapshot::StatsSnapshot;
