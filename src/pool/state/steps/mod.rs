//! The steps that several events take: they restore a host and a connection, begin dials, and keep hosts warm.
//!
//! | file | what it does |
//! |---|---|
//! | `flow.rs` | restores a host after an event |
//! | `settle.rs` | restores a connection |
//! | `provision.rs`, `timeouts.rs` | begins and ends dials; what is due |
//! | `balancing.rs` | chooses between the addresses of a host |
//! | `warm_look.rs`, `warm_watch.rs` | keeps hosts warm |

pub(super) mod balancing;
pub(super) mod flow;
pub(super) mod provision;
pub(super) mod settle;
pub(super) mod timeouts;
pub(super) mod warm_look;
pub(super) mod warm_watch;
