//! The connection pool: limits and advice on them, the queue, reuse, balancing over addresses, draining, DNS changes, runtimes, peers that close connections, calls that are given up, and hosts that are kept warm.

mod advice;
mod bad_servers;
mod balance;
mod closing_peers;
mod common;
mod dns_changes;
mod drain;
mod limits;
mod queue;
mod reuse;
mod runtimes;
mod unfinished;
mod unwritten;
mod warm;
