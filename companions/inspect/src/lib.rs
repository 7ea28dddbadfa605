#![doc = include_str!("../README.md")]
//!
//! | need | item |
//! |---|---|
//! | the last, slowest and failed calls of each origin, as a page, text or JSON | [`Recorder`], [`Snapshot`] |
//! | calls as a file that browsers read | [`Har`] |
//! | which limits of the pool to change | [`Advice`] |
//!
//! Pictures of calls, and the reasons why one was slow, are a part of speeddial: see [`Timings`](speeddial::trace::Timings).

mod advice;
mod calls;
mod har;
mod json;
mod page;
mod recorder;
#[cfg(test)]
mod samples;
mod snapshot;
mod tables;
#[cfg(test)]
mod tests;
mod text;

pub use advice::{Advice, AdviceItem, Figure, HostAdvice, Setting, SettingValue, StatsSnapshot};
pub use calls::{CallTotals, LatencyClass};
pub use har::{Har, HarEntry};
pub use recorder::{Recorder, RecorderBuilder};
pub use snapshot::{OriginSnapshot, RecordedCall, Snapshot};
pub use tables::StateTable;
