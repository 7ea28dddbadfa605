//! The crate's behaviour from outside, one file each.

mod bad_input;
mod call;
mod support;
mod timings;
