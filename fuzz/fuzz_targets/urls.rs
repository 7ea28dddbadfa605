//! Fuzzes URLs and headers.
//!
//! Run it with `cargo +nightly fuzz run urls fuzz/corpus/urls fuzz/seeds/urls`.

#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../bodies/common.rs"]
mod common;
#[path = "../bodies/urls.rs"]
mod urls;

libfuzzer_sys::fuzz_target!(|data: &[u8]| urls::run(data));
