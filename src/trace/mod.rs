//! Events of calls and connections, the [`Observer`]s that receive them, and the [`Timings`] of each call.
//!
//! Every step of a call, of a connection and of the DNS resolver is an [`Event`]. The client tells each event to its
//! observers, and folds the events of a call into its [`Timings`]. Timings are always on. Observers cost nothing until one wants
//! an event.
//!
#![doc = include_str!("hooks.md")]

#[cfg(feature = "__bench")]
pub(crate) mod benched;
#[cfg(feature = "inspect")]
mod bounded;
pub(crate) mod events;
mod quota;
pub mod semconv;
mod server_timing;
mod show;
pub(crate) mod timings;
mod why;

pub use crate::latency::Latency;
pub(crate) use events::causes::NotRetried;
pub use events::causes::{Budgeted, CloseCause, Limit, RepeatCause};
#[cfg(feature = "inspect")]
pub(crate) use events::event::url_of;
pub use events::event::{Event, Record, RequestInfo, Subject, TlsFacts};
pub use events::host_at_dial::{HostAtDial, HostClose, Usage};
pub use events::lookup::{AskedServers, DnsLookup};
pub(crate) use events::lookup::{Family, Source};
pub use events::observer::{EndedCall, Observer, Wants};
pub use server_timing::ServerTiming;
pub use show::waterfall::Waterfall;
pub(crate) use timings::CallEnd;
pub use timings::Timings;
pub use timings::call_trace::TimingsHandle;
pub use timings::hops::{DialOutcome, DialledAddress, Hedge, HedgeOutcome, Hop, HopEnd};
pub(crate) use timings::late::LATE;
pub use timings::phase::Phase;
pub(crate) use timings::requests::ObservedRequest;
pub use timings::requests::{EndedRequest, RequestEnd, StartedRequest, UrlTemplate};
pub use why::{Cause, Reason, Why};

#[cfg(feature = "inspect")]
pub(crate) use bounded::{LastHandshake, bounded_request, bounded_timings, cut_method, cut_target, shared_timings};
#[cfg(feature = "hyper-util")]
pub(crate) use events::announce::connection_active;
pub(crate) use events::announce::{
    config_skipped, connection_closed, connection_released, connection_retired, setting_ignored, upgrade_ended,
};
pub(crate) use events::announce::{tls_files_refused, tls_files_reloaded};
pub(crate) use events::hooks::{Hooks, ObserverHandle};
pub(crate) use server_timing::{SERVER_TIMING, metrics_of};
#[cfg(feature = "inspect")]
pub(crate) use show::rows::{MAX_PARTS, Row};
pub(crate) use show::text::exact;
#[cfg(feature = "inspect")]
pub(crate) use show::text::{cut, size, span};
pub(crate) use timings::call_trace::{LastLease, Trace};
pub(crate) use timings::dial_trace::DialTrace;
#[cfg(all(feature = "doctor", feature = "serde"))]
pub(crate) use timings::serial::{serialize_known_nanos, serialize_nanos};
#[cfg(feature = "inspect")]
pub(crate) use timings::{serial::nanos, spent::PhaseTimes};
