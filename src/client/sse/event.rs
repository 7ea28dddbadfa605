//! A server-sent event.

use std::time::Duration;

/// A server-sent event ([WHATWG HTML §9.2](https://html.spec.whatwg.org/multipage/server-sent-events.html)).
///
/// ```
/// # fn handle(event: speeddial::sse::Event) {
/// match event.event.as_str() {
///     "message" => println!("{}", event.data),
///     other => println!("an event of type {other}: {}", event.data),
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Event {
    /// The type of the event: `message` unless the server gave another one.
    pub event: String,
    /// The data, its lines joined by LF. Invalid UTF-8 is replaced by U+FFFD.
    pub data: String,
    /// The last event ID: that of this event, or of the last one before it that had an ID; empty if there was none.
    pub id: String,
    /// The reconnection time that the server sent with this event; `None` if it sent none.
    pub retry: Option<Duration>,
}
