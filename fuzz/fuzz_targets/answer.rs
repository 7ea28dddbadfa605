//! Any bytes as a DNS answer, on their way into the cache: `cargo +nightly fuzz run answer fuzz/corpus/answer fuzz/seeds/answer`.

#![no_main]

libfuzzer_sys::fuzz_target!(|packet: &[u8]| speeddial::dns::fuzzed::answer_to_cache(packet));
