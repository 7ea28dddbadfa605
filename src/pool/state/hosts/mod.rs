//! The records of hosts, of their connections, and of the requests that wait for one.
//!
//! | file | what it does |
//! |---|---|
//! | `host.rs` | the record of a host |
//! | `connections.rs` | the connections of all hosts |
//! | `slots.rs` | the limits of all hosts together |
//! | `queue.rs` | the requests that wait |

pub(super) mod connections;
pub(super) mod host;
pub(super) mod queue;
pub(super) mod slots;
