//! Additions to hyper's HTTP/2: an executor and a timer for h2's tasks, pings whose answers are timed, and a reader of all frames.
//!
//! | file | what it does |
//! |---|---|
//! | `runtime.rs`, `timer.rs`, `part_wakers.rs` | the tasks and timers of a connection, run by the connection's own task |
//! | `watch.rs`, `frames.rs` | the frames that pass: SETTINGS, GOAWAY, resets, pings |
//! | `settings.rs` | what the peer's SETTINGS allow |
//! | `pings.rs` | pings by interval |

pub(super) mod frames;
pub(super) mod part_wakers;
pub(super) mod pings;
pub(super) mod runtime;
pub(super) mod settings;
pub(super) mod timer;
pub(super) mod watch;
