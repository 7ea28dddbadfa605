//! HTTPS records (RFC 9460): which endpoints and protocols the service of an `https` origin has.
//!
//! | step | file |
//! |---|---|
//! | one record, and the checks of its parameters | `record.rs` |
//! | from an origin to endpoints: aliases, priorities, protocols | `resolution.rs` |
//! | the cache: rules, and the driver that runs the queries | `state.rs`, `cache.rs` |

mod cache;
mod record;
mod resolution;
mod state;

pub(super) use cache::HttpsCache;
pub use record::{HttpsAnswer, HttpsRecord};
pub(super) use record::{Malformed, Param};
pub(crate) use resolution::{Abilities, Endpoint, Resolution, Step};
pub(crate) use state::HttpsOutcome;
pub(super) use state::{HttpsLimits, host_of};
