//! Fuzzes the reports of calls: HAR, pages, pictures, text.
//!
//! Run it with `cargo +nightly fuzz run reports fuzz/corpus/reports fuzz/seeds/reports`.

#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../bodies/common.rs"]
mod common;
#[path = "../bodies/reports.rs"]
mod reports;

libfuzzer_sys::fuzz_target!(|data: &[u8]| reports::run(data));
