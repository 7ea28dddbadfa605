//! What happens, as it is told to observers.
//!
//! | file | what it does |
//! |---|---|
//! | `event.rs` | the events |
//! | `lookup.rs`, `causes.rs`, `host_at_dial.rs` | their parts: lookups of DNS, why connections close, what was known of a host |
//! | `phase.rs` | the phases of a call |

pub(super) mod causes;
pub(super) mod event;
pub(super) mod host_at_dial;
pub(crate) mod lookup;
pub(super) mod phase;
