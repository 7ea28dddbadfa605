//! The client under crates that take a tower service, and the DNS cache under other clients.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod caching;
mod resolvers;
mod watches;
