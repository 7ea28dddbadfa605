//! Fuzzes forms of several parts.
//!
//! Run it with `cargo +nightly fuzz run forms fuzz/corpus/forms fuzz/seeds/forms`.

#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../bodies/common.rs"]
mod common;
#[path = "../bodies/forms.rs"]
mod forms;

libfuzzer_sys::fuzz_target!(|data: &[u8]| forms::run(data));
