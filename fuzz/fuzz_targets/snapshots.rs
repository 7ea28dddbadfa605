//! Fuzzes what a client restores from an earlier process.
//!
//! Run it with `cargo +nightly fuzz run snapshots fuzz/corpus/snapshots fuzz/seeds/snapshots`.

#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../bodies/common.rs"]
mod common;
#[path = "../bodies/snapshots.rs"]
mod snapshots;

libfuzzer_sys::fuzz_target!(|data: &[u8]| snapshots::run(data));
