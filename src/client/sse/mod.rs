//! Server-sent events (feature `sse`): [`Response::events`](crate::Response::events) reads those of one response, and an
//! [`EventSource`] opens the connection again when it is lost.
//!
//! | file | what it holds |
//! |---|---|
//! | `event_source.rs` | [`EventSource`]: one response after the other |
//! | `reconnection.rs` | what follows a response or its end, and the waits in between |
//! | `events.rs` | [`Events`]: the events of one response |
//! | `parser.rs` | from bytes to events |

mod event_source;
mod events;
mod parser;
mod reconnection;

pub use event_source::{EventSource, ReadyState};
pub use events::Events;
pub use parser::Event;
