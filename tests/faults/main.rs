//! Many mixed calls through proxies that delay, split, cut, reset, corrupt and stall connections, below TLS and above it.
//!
//! Each call carries its id, which the server repeats in the head and all over the body of its answer. No answer may be that of
//! another call, no POST may be processed twice, no call may end later than 100 ms after its deadline, every error must be one that
//! the faults of the call's connections explain, and nothing may be left afterwards: no lease, no task, no descriptor.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `FAULT_SEED` | the seed of all calls and faults | a random one |
//! | `FAULT_REQUESTS` | the most calls | 100000 |
//! | `FAULT_SECONDS` | the longest time in which calls begin | 25 |
//!
//! A run prints its seed, and one that fails the calls and the scripts of their connections. The same seed gives the same calls,
//! and the same script for a connection of the same number. Which call gets which connection depends on threads and on time, so a
//! rare failure may take several runs to come again. By hand:
//!
//! ```text
//! FAULT_SECONDS=600 cargo test --release --all-features --test faults -- --nocapture
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `plan.rs` | what each call does |
//! | `calls.rs` | the call itself |
//! | `pattern.rs` | bodies that belong to one call |
//! | `judge.rs` | what a call may end with |
//! | `server.rs` | the server, which can be told to lie |
//! | `far.rs` | servers, proxies and clients |
//! | `suite.rs` | many calls at once, and what must hold after them |
//! | `lateness.rs` | what a busy machine adds to a deadline |
//! | `proxy.rs` | tests of the proxy, which is `fault_proxy` of `tests/support` |
//! | `lies.rs` | wrong servers and wrong clients that the judge must find |

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics on failure and prints its seed")]

mod calls;
mod far;
mod judge;
mod lateness;
mod lies;
mod pattern;
mod plan;
mod proxy;
mod server;
mod suite;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use suite::Options;

/// Runs the future on a runtime of its own. There is one at a time, because runs count the tasks and descriptors of the process.
fn alone<F: Future>(future: F) -> F::Output {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

/// The violations that are printed.
const SHOWN: usize = 20;

/// Returns the number in an environment variable.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

#[test]
fn hazard_faults_mix_no_answers_repeat_no_posts_and_leave_nothing() {
    let options = Options {
        seed: variable("FAULT_SEED").unwrap_or_else(|| fastrand::u64(..)),
        requests: variable("FAULT_REQUESTS").unwrap_or(100_000),
        time: Duration::from_secs(variable("FAULT_SECONDS").unwrap_or(25)),
        faults: true,
        lies: false,
    };
    println!("FAULT_SEED={}", options.seed);
    let start = Instant::now();
    let report = alone(suite::run(options));
    println!("{} calls in {:?}\n{}", report.calls, start.elapsed(), report.table);
    let violations = report.violations.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>();
    assert!(violations.is_empty(), "FAULT_SEED={}\n{}", options.seed, violations.join("\n"));
    assert!(report.calls > 100, "{} calls", report.calls);
}
