//! The connection pool: limits and advice on them, the queue, reuse, draining, DNS changes, runtimes, peers that close connections, and calls that are given up.

mod advice;
mod closing_peers;
mod common;
mod dns_changes;
mod drain;
mod limits;
mod queue;
mod reuse;
mod runtimes;
mod unfinished;
