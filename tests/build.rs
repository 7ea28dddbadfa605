//! Lets tests run twice as many at once as there are processors: half of them wait for servers, for names or for time to pass.
//!
//! cargo passes the variable on to the tests that it runs. Without it they run as libtest has it, one for each processor.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUST_TEST_THREADS");
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        println!("cargo::rustc-env=RUST_TEST_THREADS={}", 2 * processors);
    }
}
