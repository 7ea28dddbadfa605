//! The crate's behaviour from outside, one file each.

mod bad_input;
mod call;
mod dns;
mod httpstat;
mod support;
mod timings;
