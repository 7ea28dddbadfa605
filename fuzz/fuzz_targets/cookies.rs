//! Fuzzes which cookies go where.
//!
//! Run it with `cargo +nightly fuzz run cookies fuzz/corpus/cookies fuzz/seeds/cookies`.

#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../bodies/common.rs"]
mod common;
#[path = "../bodies/cookies.rs"]
mod cookies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| cookies::run(data));
