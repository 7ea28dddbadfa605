//! A stream of events that outlives its connections.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, mem};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderName, HeaderValue};

use super::parser::{Event, ParserLimits};
use super::reconnection::{ConnectionEnd, Reconnection, RetryVerdict, judge};
use crate::client::call::next;
use crate::client::handle::Client;
use crate::client::policy::resend::is_repeatable;
use crate::client::request::Request;
use crate::client::request_builder::RequestBuilder;
use crate::client::response::Response;
use crate::client::sse::Events;
use crate::clock::{self, Instant, Timer};
use crate::error::{Error, ErrorKind, Result};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

impl RequestBuilder {
    /// Makes the request a stream of server-sent events that opens its connection again when it is lost (feature `sse`).
    ///
    /// # Errors
    /// [`ErrorKind::Request`] if a part of the request is invalid, or if its body is a stream, which cannot be sent again.
    /// What happens later is told by the stream: see [`EventSource`].
    pub fn event_source(self) -> Result<EventSource> {
        let Self { client, request } = self;
        let mut request = request?;
        if request.try_clone().is_none() {
            let refused = Error::refused_request("an event source cannot send a body again that is a stream");
            return Err(refused.of_request(&request.method, &request.url, client.inner.defaults.left_out.queries));
        }
        request.headers.entry(ACCEPT).or_insert(HeaderValue::from_static("text/event-stream"));
        request.headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        let id = request.headers.remove(LAST_EVENT_ID);
        let last_event_id = id.map_or_else(String::new, |id| String::from_utf8_lossy(id.as_bytes()).into_owned());
        request.options.allow_quiet_stream();
        Ok(EventSource {
            is_repeatable: is_repeatable(&request.method, &request.headers),
            client,
            request: Box::new(request.into_request()),
            state: SourceState::Unopened,
            timer: Timer::default(),
            limits: ParserLimits::default(),
            reconnection: Reconnection::default(),
            last_event_id,
            last_error: None,
        })
    }
}

/// A stream of server-sent events that opens its connection again when it is lost, and resumes with `Last-Event-ID`
/// ([WHATWG HTML §9.2](https://html.spec.whatwg.org/multipage/server-sent-events.html)):
/// [`RequestBuilder::event_source`].
///
/// The first connection is opened when the stream is polled. The request has `Accept: text/event-stream` and
/// `Cache-Control: no-store`, unless it has its own. A `Last-Event-ID` of its own is where the stream begins. Redirects and
/// the retry policy of the host or of the client apply to each connection.
///
/// # When it goes on
/// After a response that ended or broke off, after a failure of the network, and after the statuses 429, 500, 502, 503 and
/// 504, the request is sent again with the ID of the last event. The stream reports none of this: see
/// [`last_error`](Self::last_error).
///
/// The wait before that is the reconnection time, 3 s or what the server has set with `retry:`, and up to half of it more,
/// at random. It doubles with each connection that fails, and is no shorter than a `Retry-After`. A connection has failed if
/// it could not be opened, or if it closed within the longest backoff and brought nothing.
///
/// A request that has an effect each time that it is sent, such as a POST without an `Idempotency-Key`, is sent again only if the server
/// cannot have acted on it: see [`repeat_always`](Self::repeat_always).
///
/// # When it ends
/// Without an error after a 204 (No Content), and at the end of the response to a request that is not sent again. With an error:
///
/// - [`ErrorKind::Status`](crate::ErrorKind::Status): a status other than 200 and those above.
/// - [`ErrorKind::Decode`](crate::ErrorKind::Decode): the content type is not `text/event-stream`; a line or an event is
///   too long, or an ID or a type longer than 4 KiB; or the body is not valid in its content coding.
/// - Any other kind if the next connection would fail as well: the request is refused, a redirect cannot be followed, a
///   certificate is not trusted, the client is drained.
/// - The error of the last connection, if too many have [failed](Self::max_failures). There is no limit by default.
///
/// # Time limits
/// The `timeout` of the request or of the client applies to each connection until the head of its response. A quiet stream
/// is not ended, unless the request itself has a [`body_idle_timeout`](RequestBuilder::body_idle_timeout): then it is opened
/// again.
///
/// # Limits of length
/// [`max_line`](Self::max_line) and [`max_event`](Self::max_event) bound the memory. All events together may have any length:
/// `max_body_size` and the limits of decompression that the client or a host has do not apply, but the request's own do. The stream that
/// exceeds them is opened again.
///
/// ```no_run
/// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
/// use futures_util::TryStreamExt;
///
/// let mut events = client.get("http://api.example.com/v1/events").bearer_auth("token").event_source()?;
/// while let Some(event) = events.try_next().await? {
///     println!("{}: {}", event.event, event.data);
/// }
/// # Ok(()) }
/// ```
///
/// Dropping it ends the response: the connection closes over HTTP/1.1, and over HTTP/2 the stream is reset.
#[must_use = "a stream does nothing until it is polled"]
pub struct EventSource {
    client: Client,
    request: Box<Request>,
    state: SourceState,
    timer: Timer,
    limits: ParserLimits,
    reconnection: Reconnection,
    /// The last event ID as the last connection left it.
    last_event_id: String,
    last_error: Option<Error>,
    /// True if the request may be sent again after a server may have acted on it.
    is_repeatable: bool,
}

/// The state of an [`EventSource`], as in the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadyState {
    /// There is no connection: one is being opened, or will be after a wait.
    Connecting,
    /// The connection is open.
    Open,
    /// The stream is over.
    Closed,
}

enum SourceState {
    /// Not polled yet.
    Unopened,
    Connecting(BoxFuture<'static, Result<Response>>),
    Open(OpenEvents),
    /// The next connection is opened at this time; never if that is too far away for a time.
    Waiting(Option<Instant>),
    Closed,
}

struct OpenEvents {
    events: Box<Events>,
    since: Instant,
}

/// The next thing that a poll does or returns.
enum SourceStep {
    GoOn,
    Return(Option<Result<Event>>),
}

impl EventSource {
    /// Sets the reconnection time that applies until the server sets one. 3 s by default.
    pub fn retry(mut self, retry: Duration) -> Self {
        self.reconnection.set_first_retry(retry);
        self
    }

    /// Sets the shortest and the longest reconnection time that the server can set by `retry:`. From 100 ms to 5 min by
    /// default. The longest one is also the limit of a `Retry-After`.
    pub fn retry_limits(mut self, min: Duration, max: Duration) -> Self {
        self.reconnection.set_retry_limits(min, max);
        self
    }

    /// Sets the longest wait that failures in a row lead to. 60 s by default. A longer reconnection time is kept to.
    pub fn max_backoff(mut self, max: Duration) -> Self {
        self.reconnection.set_max_backoff(max);
        self
    }

    /// Sets the most failures in a row; the next one ends the stream with its error. No limit by default, as in the
    /// standard.
    pub fn max_failures(mut self, max: u32) -> Self {
        self.reconnection.set_max_failures(max);
        self
    }

    /// Opens the stream again also if its request has an effect each time that it is sent, such as a POST without an `Idempotency-Key`.
    /// By default such a stream ends with its response.
    pub fn repeat_always(mut self) -> Self {
        self.is_repeatable = true;
        self
    }

    /// Sets the length of the longest line in bytes. 16 MiB by default.
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.limits.line = bytes;
        self
    }

    /// Sets the length of an event's longest data in bytes. 16 MiB by default.
    pub fn max_event(mut self, bytes: usize) -> Self {
        self.limits.event = bytes;
        self
    }

    /// Returns the state: connecting, open or closed.
    pub fn ready_state(&self) -> ReadyState {
        match self.state {
            SourceState::Unopened | SourceState::Connecting(_) | SourceState::Waiting(_) => ReadyState::Connecting,
            SourceState::Open(_) => ReadyState::Open,
            SourceState::Closed => ReadyState::Closed,
        }
    }

    /// Returns the ID with which the stream is resumed: that of the last event that had one; empty if there was none. Sent
    /// as the `Last-Event-ID` of a later event source, it resumes the stream there.
    pub fn last_event_id(&self) -> &str {
        match &self.state {
            SourceState::Open(open) => open.events.last_event_id(),
            _ => &self.last_event_id,
        }
    }

    /// Returns the error of the last connection that failed or broke off; `None` if one has been opened since, and if it
    /// ended without an error.
    pub fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<SourceStep> {
        match &mut self.state {
            SourceState::Unopened => self.connect(),
            SourceState::Waiting(None) => return Poll::Pending,
            SourceState::Waiting(Some(until)) => {
                ready!(self.timer.poll_until(cx, *until));
                self.connect();
            }
            SourceState::Connecting(response) => {
                let response = ready!(response.as_mut().poll(cx));
                return Poll::Ready(self.begin(response));
            }
            SourceState::Open(open) => {
                let event = ready!(open.events.poll_next_unpin(cx));
                return Poll::Ready(self.hand_out(event));
            }
            SourceState::Closed => return Poll::Ready(SourceStep::Return(None)),
        }
        Poll::Ready(SourceStep::GoOn)
    }

    /// Begins to open the next connection.
    fn connect(&mut self) {
        let client = self.client.clone();
        let request = next::reconnect(&self.request, &self.last_event_id);
        self.state = SourceState::Connecting(Box::pin(async move { client.run(request).await }));
    }

    /// Begins to read a response, if it has events.
    fn begin(&mut self, response: Result<Response>) -> SourceStep {
        let response = match response {
            Ok(response) => response,
            Err(error) => return self.fail(error, None),
        };
        match judge(response.status(), response.headers(), clock::wall()) {
            RetryVerdict::Read => {
                let events = Events::new(response, self.limits, mem::take(&mut self.last_event_id));
                self.state = SourceState::Open(OpenEvents { events: Box::new(events), since: clock::now() });
                self.last_error = None;
                SourceStep::GoOn
            }
            RetryVerdict::End => self.close(None),
            RetryVerdict::Later(_) if !self.is_repeatable => self.close(Some(response.status_error(Bytes::new()))),
            RetryVerdict::Later(retry_after) => self.fail(response.status_error(Bytes::new()), retry_after),
            RetryVerdict::Refused => self.close(Some(response.status_error(Bytes::new()))),
        }
    }

    /// Hands an event out, or handles the end of the connection.
    fn hand_out(&mut self, event: Option<Result<Event>>) -> SourceStep {
        let error = match event {
            Some(Ok(event)) => return SourceStep::Return(Some(Ok(event))),
            Some(Err(error)) => Some(error),
            None => None,
        };
        let SourceState::Open(OpenEvents { events, since }) = mem::replace(&mut self.state, SourceState::Closed) else {
            return SourceStep::Return(None);
        };
        events.last_event_id().clone_into(&mut self.last_event_id);
        if let Some(retry) = events.retry() {
            self.reconnection.retry_from_server(retry);
        }
        let open_for = clock::now() - since;
        let end = self.reconnection.judge_end(events.has_brought(), open_for);
        match error {
            Some(error) if is_final(&error) => self.close(Some(error)),
            error if !self.is_repeatable => self.close(error),
            error => self.wait(end, error),
        }
    }

    /// Handles a connection that could not be opened.
    fn fail(&mut self, error: Error, retry_after: Option<Duration>) -> SourceStep {
        if is_final(&error) || (!self.is_repeatable && error.may_have_been_processed()) {
            return self.close(Some(error));
        }
        self.wait(ConnectionEnd::Failed(retry_after), Some(error))
    }

    /// Begins the wait before the next connection, unless too many have failed.
    fn wait(&mut self, end: ConnectionEnd, error: Option<Error>) -> SourceStep {
        match self.reconnection.next_wait(end, fastrand::f64()) {
            Some(wait) => {
                self.state = SourceState::Waiting(clock::now().checked_add(wait));
                self.last_error = error;
                SourceStep::GoOn
            }
            None => self.close(Some(error.unwrap_or_else(|| self.no_events()))),
        }
    }

    /// Returns the error of a connection that ended without an error and without a byte.
    fn no_events(&self) -> Error {
        let discreet = self.client.inner.defaults.left_out.queries;
        Error::no_events().of_request(&self.request.method, &self.request.url, discreet)
    }

    fn close(&mut self, error: Option<Error>) -> SourceStep {
        self.state = SourceState::Closed;
        self.last_error = None;
        SourceStep::Return(error.map(Err))
    }
}

/// Returns true if the next connection would fail for the same reason. A token source may have a token by then.
fn is_final(error: &Error) -> bool {
    let is_lasting = error.is_lasting() && !error.lacks_token();
    is_lasting || matches!(error.kind(), ErrorKind::Request | ErrorKind::Redirect)
}

impl Stream for EventSource {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        loop {
            if let SourceStep::Return(item) = ready!(self.poll_step(cx)) {
                return Poll::Ready(item);
            }
        }
    }
}

impl fmt::Debug for EventSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSource")
            .field("request", &self.request)
            .field("state", &self.ready_state())
            .field("last_error", &self.last_error)
            .finish_non_exhaustive()
    }
}
