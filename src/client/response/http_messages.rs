//! Responses as messages of the `http` crate, and back; responses that a program makes by hand.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Extensions, Method, Uri};
use http_body::{Frame, SizeHint};
use url::Url;

use super::answer::{Answer, AnswerContent, BodyFacts, joined};
use super::call_data::BoxedResponse;
use crate::client::body::{Body, BodyReader};
use crate::client::policy::framing;
use crate::client::response::{Response, http_messages};
use crate::error::{self, Error, Result};
use crate::origin::Origin;
use crate::trace::{Hooks, RequestInfo, Trace};

/// The part of a [`Response`] that an `http::Response` has no room for, kept in its extensions.
#[derive(Clone)]
struct ResponseExtension {
    context: error::Context,
    /// The URLs that were requested before, the first one first.
    redirects: Vec<Url>,
    body: BodyFacts,
}

/// Converts into a response of the `http` crate. Its body holds the connection.
impl From<Response> for http::Response<Body> {
    fn from(response: Response) -> Self {
        let data = &response.data;
        let (origin, context) = (data.origin().clone(), data.context());
        let (trace, start, answers_head) = (data.content.trace().clone(), data.content.start(), data.answers_head);
        let redirects = response.redirects().to_vec();
        let body = BodyFacts { origin, trace, start, answers_head, received: None };
        let mut message = response.into_message();
        message.extensions_mut().insert(ResponseExtension { context, redirects, body });
        message
    }
}

impl Response {
    /// Returns the head and the body, without what a [`Response`] could be made of again.
    fn into_message(self) -> http::Response<Body> {
        let context = self.data.context();
        let Answer { head, content, .. } = self.data.into_answer();
        let body = match content {
            AnswerContent::Received(reader) => {
                let mut body = Body::wrap(ReceivedBody { reader, context });
                if let Some(names) = framing::list_of(&framing::trailer_names(&head.headers)) {
                    body.announce_trailers(names);
                }
                body
            }
            AnswerContent::Replaced(body, _) => body,
        };
        http::Response::from_parts(head, body)
    }
}

/// The facts of a call for a response that no call returned: one made by a layer or by hand.
pub(in crate::client) struct MadeCall {
    pub(in crate::client) context: error::Context,
    pub(in crate::client) origin: Origin,
    pub(in crate::client) trace: Trace,
    /// The values that go along with the request.
    pub(in crate::client) extensions: Extensions,
}

/// Passes the body of a response on, for example as the body of another request: with its length, if that is known, and
/// its trailers, and decompressed if the response would be. The body holds the connection it comes from until its end. Trailers that are
/// about that connection stay on it (RFC 9110 §7.6.1).
impl From<Response> for Body {
    fn from(response: Response) -> Self {
        let mut message = response.into_message();
        leave_connection(&mut message);
        message.into_body()
    }
}

/// Removes from a response that is passed on what is about the connection that it came on, headers and trailers alike.
pub(in crate::client) fn leave_connection(message: &mut http::Response<Body>) {
    let fields = framing::leave_connection(message.headers_mut());
    message.body_mut().leave_connection(fields);
}

/// Converts a response that layers returned, or that was made by hand. `answers_head` is true if the request was a HEAD.
/// `begin` starts a trace for a response that a layer made itself, without a call.
pub(in crate::client) fn returned(
    mut message: http::Response<Body>,
    answers_head: bool,
    begin: impl FnOnce() -> MadeCall,
) -> Response {
    let extension = message.extensions_mut().remove().unwrap_or_else(|| {
        let MadeCall { context, origin, trace, extensions } = begin();
        trace.answered_by_layer(message.status(), message.version());
        let own = std::mem::take(message.extensions_mut());
        *message.extensions_mut() = joined(extensions, own);
        let body = BodyFacts { origin, trace, start: Bytes::new(), answers_head, received: None };
        ResponseExtension { context, redirects: Vec::new(), body }
    });
    let (head, body) = message.into_parts();
    let ResponseExtension { context, redirects, body: facts } = extension;
    let answers_head = facts.answers_head;
    let content = AnswerContent::Replaced(body, facts);
    let answer = Answer::of(head, content, answers_head);
    Response { data: BoxedResponse::new(context, redirects, answer) }
}

/// A received body as a body of the `http_body` crate, whose errors name the call.
struct ReceivedBody {
    reader: BodyReader,
    context: error::Context,
}

impl http_body::Body for ReceivedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let frame = ready!(self.reader.poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(|error| error.about(&self.context, self.reader.trace().timings()))))
    }

    fn is_end_stream(&self) -> bool {
        self.reader.is_over() || self.reader.lacks_only_its_end()
    }

    fn size_hint(&self) -> SizeHint {
        self.reader.remaining()
    }
}

/// The URL of a response that was made without one, as in reqwest.
const NO_URL: &str = "http://no.url.provided.local/";

/// The URL of a response that is made by hand, kept in its extensions.
#[derive(Clone)]
struct ResponseUrl(Url);

/// Gives an `http::Response` the URL that the [`Response`] made of it will have. The name is reqwest's.
///
/// ```
/// use speeddial::{Response, ResponseBuilderExt, Url, http};
///
/// let message = http::Response::builder().status(404).url(Url::parse("http://api.test/items/1")?).body("none")?;
/// let response = Response::from(message);
/// assert_eq!((response.status().as_u16(), response.url().path()), (404, "/items/1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ResponseBuilderExt {
    /// Sets the URL.
    #[must_use]
    fn url(self, url: Url) -> Self;
}

impl ResponseBuilderExt for http::response::Builder {
    fn url(self, url: Url) -> Self {
        self.extension(ResponseUrl(url))
    }
}

/// Makes a response by hand, for tests of code that reads responses. Its URL is that of [`ResponseBuilderExt::url`], or
/// `http://no.url.provided.local/`. Its timings have nothing but zeros.
impl<B: Into<Body>> From<http::Response<B>> for Response {
    fn from(message: http::Response<B>) -> Self {
        let mut message = message.map(Into::into);
        let given = message.extensions_mut().remove().map(|ResponseUrl(url)| url);
        http_messages::returned(message, false, || {
            let placeholder = || Url::parse(NO_URL).expect("the placeholder is a URL");
            let url = given.unwrap_or_else(placeholder);
            let origin = Origin::from_url(&url).or_else(|_| Origin::from_url(&placeholder()));
            let origin = origin.expect("the placeholder has an origin");
            let asked = || RequestInfo {
                method: Method::GET,
                origin: origin.clone(),
                target: Uri::default(),
                extensions: Extensions::new(),
            };
            let trace = Trace::start(&Hooks::default(), None, asked);
            let context = error::Context { method: Method::GET, url, until: None, left_out: error::LeftOut::default() };
            MadeCall { context, origin, trace, extensions: Extensions::new() }
        })
    }
}
