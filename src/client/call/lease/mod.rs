//! A connection for an attempt.
//!
//! | file | what it does |
//! |---|---|
//! | `checkout.rs` | gets one from the pool |
//! | `queue.rs` | the wait for it, within its limits |
//! | `dispatch.rs` | hands the message to it |
//! | `outcome.rs` | what came of it, for the balance between addresses |
//! | `notes.rs` | the connections that a call had, for adapters |

pub(super) mod checkout;
pub(super) mod dispatch;
#[cfg(feature = "aws")]
pub(in crate::client) mod notes;
pub(super) mod outcome;
pub(super) mod queue;
