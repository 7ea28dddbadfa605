//! Events of calls and connections, the [`Observer`]s that receive them, and the [`Timings`] of each call.
//!
//! Every step of a call, of a connection and of the DNS resolver is an [`Event`]. The client tells each event to its
//! observers, and folds the events of a call into its [`Timings`]. Timings are always on. Observers cost nothing until one wants
//! an event.
//!
#![doc = include_str!("hooks.md")]

#[cfg(feature = "__bench")]
pub(crate) mod benched;
pub(crate) mod events;
mod observers;
mod quota;
mod recording;
pub mod semconv;
mod server_timing;
mod show;
mod text;
pub(crate) mod timings;
mod why;

pub use crate::latency::Latency;
pub(crate) use crate::trace::events::NotRetried;
pub use crate::trace::events::event::Phase;
pub use crate::trace::events::event::{HostAtDial, HostClose, Usage};
pub use crate::trace::events::{AskedServers, DnsLookup};
pub use crate::trace::events::{Budgeted, CloseCause, HedgeOutcome, Limit, RepeatCause};
pub(crate) use crate::trace::events::{Family, Source};
pub use crate::trace::observers::{EndedCall, Observer, Wants};
pub use crate::trace::show::rows::Waterfall;
pub use events::event::{Event, Record, RequestInfo, Subject, TlsFacts};
pub use recording::call_trace::TimingsHandle;
pub use server_timing::ServerTiming;
pub use show::rows::Row;
pub use show::svg::{comparison_svg, escaped, waterfall_svg};
pub(crate) use timings::CallEnd;
pub use timings::Timings;
pub use timings::hops::{DialOutcome, DialledAddress, Hedge, Hop, HopEnd};
pub(crate) use timings::late::LATE;
pub(crate) use timings::requests::ObservedRequest;
pub use timings::requests::{EndedRequest, RequestEnd, StartedRequest, UrlTemplate};
pub use why::{Cause, Reason, Why};

#[cfg(feature = "hyper-util")]
pub(crate) use crate::trace::observers::connection_active;
pub(crate) use crate::trace::observers::{Hooks, ObserverHandle};
pub(crate) use crate::trace::observers::{
    config_skipped, connection_closed, connection_released, connection_retired, setting_ignored, upgrade_ended,
};
pub(crate) use crate::trace::observers::{tls_files_refused, tls_files_reloaded};
pub(crate) use crate::trace::recording::DialTrace;
pub(crate) use recording::call_trace::{LastLease, Trace};
pub(crate) use server_timing::{SERVER_TIMING, metrics_of};
pub(crate) use text::exact;
#[cfg(all(feature = "doctor", feature = "serde"))]
pub(crate) use timings::serial::{serialize_known_nanos, serialize_nanos};
