//! The behaviour of speeddial from outside, in chapters: one binary, so that it links once.
//!
//! `cargo test --test behaviour redirects` runs one part.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test panics on failure and prints what it skips")]

mod client;
mod connect;
mod dns;
mod hostile;
mod observe;
mod pool;
mod servers;
