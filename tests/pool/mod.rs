//! The connection pool: limits, the queue, reuse, draining, DNS changes, runtimes, and peers that close connections.

mod closing_peers;
mod common;
mod dns_changes;
mod drain;
mod limits;
mod queue;
mod reuse;
mod runtimes;
