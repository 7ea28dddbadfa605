//! A connection for an attempt.
//!
//! | file | what it does |
//! |---|---|
//! | `checkout.rs` | gets one from the pool |
//! | `queue.rs` | the wait for it, within its limits |
//! | `outcome.rs` | what came of it, for the balance between addresses |

pub(super) mod checkout;
pub(super) mod outcome;
pub(super) mod queue;
