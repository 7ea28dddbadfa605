//! Events of calls and connections, the [`Observer`]s that receive them, and the [`Timings`] of each call.
//!
//! Every step of a call, of a connection and of the DNS resolver is an [`Event`]. The client tells each event to its
//! observers, and folds the events of a call into its [`Timings`]. Timings are always on. Observers cost nothing until one wants
//! an event.
//!
#![doc = include_str!("hooks.md")]

mod announce;
#[cfg(feature = "__bench")]
pub(crate) mod benched;
mod bounded;
mod call_trace;
mod causes;
mod curl_figures;
mod dial_trace;
mod event;
mod fold;
mod har;
mod hedges;
mod hooks;
mod hops;
mod host_at_dial;
mod json;
mod json_members;
mod lookup;
mod milestones;
mod observer;
mod one_line;
mod phase;
mod recorder;
mod requests;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(feature = "serde")]
mod serial;
mod server_timing;
mod spent;
mod svg;
mod text;
mod timings;
mod waterfall;
mod why;

pub use call_trace::TimingsHandle;
pub use causes::{Budgeted, CloseCause, Limit, RepeatCause};
pub use event::{Event, Record, RequestInfo, Subject, TlsFacts};
pub use har::{Har, HarEntry};
pub use hops::{Attempt, AttemptOutcome, Hedge, HedgeOutcome, Hop, HopEnd};
pub use host_at_dial::{HostAtDial, HostClose, Usage};
pub use lookup::{AskedServers, DnsLookup, Family, Source};
pub use observer::{EndedCall, Observer, Wants};
pub use phase::Phase;
pub use recorder::{
    CallTotals, LatencyClass, OriginSnapshot, RecordedCall, Recorder, RecorderBuilder, Snapshot, StateTable,
};
pub(crate) use requests::ObservedRequest;
pub use requests::{EndedRequest, RequestEnd, StartedRequest, UrlTemplate};
pub use server_timing::ServerTiming;
pub use svg::{comparison_svg, waterfall_svg};
pub use timings::Timings;
pub use waterfall::Waterfall;
pub use why::{Cause, Reason, Why};

pub(crate) use announce::{config_skipped, connection_closed, connection_released, connection_retired, upgrade_ended};
#[cfg(feature = "__tls")]
pub(crate) use announce::{tls_files_refused, tls_files_reloaded};
pub(crate) use call_trace::{LastLease, Trace};
pub(crate) use dial_trace::DialTrace;
pub(crate) use hooks::{Hooks, ObserverHandle};
#[cfg(all(feature = "doctor", feature = "serde"))]
pub(crate) use serial::{serialize_known_nanos, serialize_nanos};
pub(crate) use server_timing::{SERVER_TIMING, metrics_of};
pub(crate) use text::span;
