//! Suites that generate what they try, each with an oracle of its own: covering arrays over the shapes of requests and of answers,
//! over pairs of settings, random calls of which one part is slow, and peers that send the smallest things there are.
//!
//! `SEED=7` makes another array, and `ROUNDS=20` tries so many of them. A failure prints the seed and the row.
//! `SHAPE="POST Form Http11 Tls Retry"` tries one row.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod answers;
mod covering;
mod factors;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod names;
mod pairs;
mod shapes;
mod steps;
mod strict;
mod truth;
