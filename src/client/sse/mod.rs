//! Server-sent events (feature `sse`): [`Response::events`](crate::Response::events) reads those of one response, and an
//! [`EventSource`] opens the connection again when it is lost.
//!
//! | file | what it holds |
//! |---|---|
//! | `event_source.rs` | [`EventSource`]: one response after the other |
//! | `reconnection.rs` | what follows a response or its end, and the waits in between |
//! | `mod.rs` | [`Events`]: the events of one response |
//! | `parser.rs` | from bytes to events |

mod event_source;
mod parser;
mod reconnection;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::Stream;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use crate::client::policy::deadlines::is_event_stream;
use crate::client::response::Response;
use crate::client::sse::parser::{Parser, ParserLimits};
use crate::error::{Error, Result};
pub use event_source::{EventSource, ReadyState};
pub use parser::Event;

impl Response {
    /// Reads the body as server-sent events (feature `sse`). Its content type has to be `text/event-stream`.
    ///
    /// Dropping the stream closes the connection, or the HTTP/2 stream. The call's time limits apply: `timeout`, and
    /// [`body_idle_timeout`](crate::ClientBuilder::body_idle_timeout), which is unlimited by default for a stream of events.
    /// [`RequestBuilder::event_source`](crate::RequestBuilder::event_source) opens the connection again when it is lost.
    ///
    /// ```no_run
    /// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
    /// use futures_util::TryStreamExt;
    ///
    /// let answer = client.post("http://api.example.com/v1/chat").body(r#"{"stream":true}"#).send().await?;
    /// let mut events = answer.error_for_status()?.events();
    /// while let Some(event) = events.try_next().await? {
    ///     println!("{}", event.data);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn events(self) -> Events {
        Events::new(self, ParserLimits::default(), String::new())
    }
}

/// The server-sent events of one response: [`Response::events`].
///
/// The stream ends with the body, and after its first error. An event that is not complete by then is not handed out.
///
/// # Errors
/// - [`ErrorKind::Decode`](crate::ErrorKind::Decode): the content type is not `text/event-stream`; a line or an event is
///   too long, or an ID or a type longer than 4 KiB; or the body cannot be decompressed.
/// - The errors of [`Response::chunk`].
///
/// ```no_run
/// # async fn run(response: speeddial::Response) -> speeddial::Result<()> {
/// use futures_util::TryStreamExt;
///
/// let mut events = response.events().max_line(64 * 1024);
/// while let Some(event) = events.try_next().await? {
///     println!("{} {}", event.id, event.data);
/// }
/// println!("the server ended the stream after {}", events.last_event_id());
/// # Ok(()) }
/// ```
#[must_use = "a stream does nothing until it is polled"]
pub struct Events {
    /// `None` after the end.
    response: Option<Response>,
    /// The bytes that arrived and are not parsed yet.
    unparsed: Bytes,
    parser: Parser,
    has_brought: bool,
}

/// The most pieces of a body that one poll reads without an event, so that other tasks of the thread have their turn.
const PIECES_PER_POLL: usize = 32;

impl Events {
    fn new(response: Response, limits: ParserLimits, last_event_id: String) -> Self {
        let mut parser = Parser::new(last_event_id);
        *parser.limits_mut() = limits;
        Self { response: Some(response), unparsed: Bytes::new(), parser, has_brought: false }
    }

    /// Sets the length of the longest line in bytes. 16 MiB by default.
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.parser.limits_mut().line = bytes;
        self
    }

    /// Sets the length of an event's longest data in bytes. 16 MiB by default.
    pub fn max_event(mut self, bytes: usize) -> Self {
        self.parser.limits_mut().event = bytes;
        self
    }

    /// Returns the ID of the last event that had one, as a `Last-Event-ID` header resumes the stream behind it; empty if
    /// there was none.
    pub fn last_event_id(&self) -> &str {
        self.parser.last_event_id()
    }

    /// Returns the reconnection time that the server has set last; `None` if it has set none.
    pub fn retry(&self) -> Option<Duration> {
        self.parser.retry()
    }

    /// Returns true if anything of the body has arrived.
    fn has_brought(&self) -> bool {
        self.has_brought
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        let Some(response) = &mut self.response else { return Poll::Ready(None) };
        let content_type = response.headers().get(CONTENT_TYPE);
        if !self.has_brought && !content_type.is_some_and(is_event_stream) {
            let content_type = content_type.map(HeaderValue::as_bytes);
            return Poll::Ready(Some(Err(response.about(Error::not_events(content_type)))));
        }
        for _ in 0..PIECES_PER_POLL {
            let mut input = &self.unparsed[..];
            let parsed = self.parser.next_event(&mut input);
            let read = self.unparsed.len() - input.len();
            self.unparsed.advance(read);
            match parsed {
                Ok(Some(event)) => return Poll::Ready(Some(Ok(event))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(response.about(Error::long_event(error))))),
            }
            match ready!(response.poll_chunk(cx)) {
                Ok(Some(piece)) => {
                    self.unparsed = piece;
                    self.has_brought = true;
                }
                Ok(None) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Stream for Events {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        let event = ready!(self.poll_event(cx));
        if !matches!(event, Some(Ok(_))) {
            self.response = None;
            self.unparsed = Bytes::new();
        }
        Poll::Ready(event)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("response", &self.response).finish_non_exhaustive()
    }
}
