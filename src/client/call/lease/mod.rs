//! A connection for an attempt.
//!
//! | file | what it does |
//! |---|---|
//! | `checkout.rs` | gets one from the pool |
//! | `queue.rs` | the wait for it, within its limits |
//! | `client/call/attempt/end.rs` | what came of it, for the balance between addresses |

pub(super) mod checkout;
pub(super) mod queue;
