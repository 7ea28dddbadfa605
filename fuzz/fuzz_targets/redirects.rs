//! Fuzzes redirects.
//!
//! Run it with `cargo +nightly fuzz run redirects fuzz/corpus/redirects fuzz/seeds/redirects`.

#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../bodies/common.rs"]
mod common;
#[path = "../bodies/redirects.rs"]
mod redirects;

libfuzzer_sys::fuzz_target!(|data: &[u8]| redirects::run(data));
