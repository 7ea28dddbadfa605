//! The servers that are asked.
//!
//! | file | what it does |
//! |---|---|
//! | `group.rs` | asks one server after the other |
//! | `tries.rs` | which one is next, and which did not answer |
//! | `server.rs`, `upstream.rs`, `client.rs` | one server: its address, its clients |
//! | `shared_connection.rs`, `sockets.rs`, `watched_stream.rs` | connections to it |
//! | `records.rs` | what its answers say |
//! | `limits.rs` | timeouts and numbers |

pub(super) mod client;
pub(super) mod group;
pub(super) mod limits;
pub(in crate::dns) mod records;
pub(super) mod server;
mod shared_connection;
pub(super) mod sockets;
pub(super) mod tries;
pub(super) mod upstream;
mod watched_stream;
