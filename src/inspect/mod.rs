//! Reports about a client (feature `inspect`): its calls as a page, JSON, HAR and pictures, and advice on its limits.
//!
//! | need | item |
//! |---|---|
//! | the last, slowest and failed calls of each origin, as a page, text or JSON | [`Recorder`], [`Snapshot`] |
//! | calls as a file that browsers read | [`Har`] |
//! | the phases of calls as a picture | [`waterfall_svg`], [`comparison_svg`] |
//! | which limits of the pool to change | [`Advice`] |
//!
//! All of it reads what the rest of the crate tells, and nothing in the crate reads it. The phases of one call, and why it was slow, need
//! no feature: see [`Timings`](crate::trace::Timings).

mod advice;
mod har;
mod json;
mod recorder;
mod snapshot;
mod svg;

pub use advice::{Advice, AdviceItem, Figure, HostAdvice, Setting, SettingValue, StatsSnapshot};
pub use har::{Har, HarEntry};
pub use recorder::{
    CallTotals, LatencyClass, OriginSnapshot, RecordedCall, Recorder, RecorderBuilder, Snapshot, StateTable,
};
pub use svg::{comparison_svg, waterfall_svg};
