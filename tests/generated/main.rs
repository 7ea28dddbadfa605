//! Suites that generate what they try, each with an oracle of its own.
//!
//! | suite | what it tries | beside |
//! |---|---|---|
//! | `shapes/` | requests: methods, bodies, protocols, ways, and what is around them, any three together | a strict server, and the RFCs as a table |
//! | `pairs/` | settings, any two together | their effects, as each row says |
//! | `answers/` | responses: statuses, framings, codings, ends, any three together; cuts at each byte | the RFCs as a table |
//! | `names/` | resolv.conf files and DNS servers at random | getaddrinfo and Go |
//! | `steps.rs` | peers that send the smallest things there are | the turns of another task |
//! | `ends.rs` | bodies and calls, ended at each point in each way: recorder, HAR, spans, requests, events | what the peer sent, and what the program did |
//! | `truth.rs` | calls of which one part is slow: why, HAR, spans, the queue, the doctor | what the world did |
//!
//! Outages of servers are in the pool's own tests, `pool/state/tests/worlds.rs`.
//!
//! `SEED=7` makes others, and `ROUNDS=20` tries so many times as many. A failure prints the seed and the row.
//! `SHAPE="POST Form Http11 Tls Retry"` tries one row.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod answers;
mod covering;
mod ends;
mod factors;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod names;
mod pairs;
mod shapes;
mod steps;
mod strict;
mod truth;
