//! The client's side of the pool.
//!
//! | file | what it does |
//! |---|---|
//! | `dialer.rs` | what the pool dials, and by what it tells hosts apart |
//! | `dns_watch.rs` | tells the pool of changed DNS answers |
//! | `file_watch.rs` | a task that is started again by the next request |

pub(super) mod dialer;
pub(super) mod dns_watch;
pub(super) mod file_watch;
