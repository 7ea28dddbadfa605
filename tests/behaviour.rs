//! The behaviour of speeddial from outside.
//!
//! | chapter | subject |
//! |---|---|
//! | `client` | requests, responses, bodies, HTTP/2, errors, redirects, retries, deadlines; under tower, tonic, hyper-util and reqwest |
//! | `connect` | addresses, TLS, proxies, Unix domain sockets, network namespaces, reports of the doctor |
//! | `dns` | lookups over UDP, TCP, TLS and HTTPS |
//! | `pool` | limits, the queue, reuse, draining, DNS changes, runtimes, peers that close |
//! | `hostile` | peers that break the rules, and wrong input |
//! | `observe` | timings, events, measurements, the `httpstat` example |
//! | `servers` | real DNS and web servers |
//!
//! All chapters are one binary, which links once. `cargo test --test behaviour redirects` runs the tests with that word in their
//! path. Tests whose name begins with `hazard_` are those of the hazards that the client has to withstand.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test panics on failure and prints what it skips")]

mod client;
mod connect;
mod dns;
mod hostile;
mod observe;
mod pool;
mod servers;
