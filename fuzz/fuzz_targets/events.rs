//! Fuzzes server-sent events.
//!
//! Run it with `cargo +nightly fuzz run events fuzz/corpus/events fuzz/seeds/events`.

#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../bodies/common.rs"]
mod common;
#[path = "../bodies/events.rs"]
mod events;

libfuzzer_sys::fuzz_target!(|data: &[u8]| events::run(data));
