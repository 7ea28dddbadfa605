//! The crate's behaviour from outside, one file each.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test says loudly what it found, or did not")]

mod bad_input;
mod call;
mod dns;
mod httpstat;
mod support;
mod timings;
