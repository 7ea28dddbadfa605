//! Lets at least four tests run at once: half of them wait for servers, for names or for time to pass.
//!
//! cargo passes the variable on to the tests that it runs. Without it they run as libtest has it, one for each processor.

use std::thread::available_parallelism;

const FEWEST: usize = 4;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUST_TEST_THREADS");
    let is_set = std::env::var_os("RUST_TEST_THREADS").is_some();
    if !is_set && available_parallelism().is_ok_and(|processors| processors.get() < FEWEST) {
        println!("cargo::rustc-env=RUST_TEST_THREADS={FEWEST}");
    }
}
