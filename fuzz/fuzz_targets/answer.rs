//! Fuzzes the path of a DNS answer into the cache.
//!
//! Run it with `cargo +nightly fuzz run answer fuzz/corpus/answer fuzz/seeds/answer`.

#![no_main]

libfuzzer_sys::fuzz_target!(|packet: &[u8]| speeddial::dns::fuzzed::answer_to_cache(packet));
