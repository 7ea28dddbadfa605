//! The records of hosts, of their connections, and of the requests that wait for one.
//!
//! | file | what it does |
//! |---|---|
//! | `host.rs` | the record of a host |
//! | `conn.rs`, `connections.rs` | its connections, and those of all hosts |
//! | `slots.rs` | the limits of all hosts together |
//! | `queue.rs` | the requests that wait |
//! | `counters.rs`, `types.rs` | figures, and what goes in and out |

pub(super) mod conn;
pub(super) mod connections;
pub(super) mod counters;
pub(super) mod host;
pub(super) mod queue;
pub(super) mod slots;
pub(super) mod types;
