//! The observers of a client and of a call, and how they are told of events.
//!
//! | file | what it does |
//! |---|---|
//! | `observer.rs` | the trait of observers, and what they want to be told |
//! | `hooks.rs` | the observers of a client and of a call, and in which order they are told |
//! | `announce.rs` | events of connections and settings |

pub(super) mod announce;
pub(super) mod hooks;
pub(super) mod observer;
