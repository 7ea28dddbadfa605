//! Fuzzes the pool's core: the bytes choose each event of a walk, and the invariants are checked after each.
//!
//! Run it with `cargo +nightly fuzz run pool fuzz/corpus/pool fuzz/seeds/pool`.

#![no_main]

libfuzzer_sys::fuzz_target!(|choices: &[u8]| speeddial::walk_through_pool(choices));
