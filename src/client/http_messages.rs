//! Requests and responses as messages of the `http` crate, and back.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Uri, Version};
use http_body::{Frame, SizeHint};
use url::Url;

use super::answer::ResponseData;
use super::answer::{BodyFacts, Content, FinishedCall};
use super::body::{Body, BodyReader};
use super::into_url::IntoUrl;
use super::request::{Options, Request};
use super::response::Response;
use crate::error::{self, Error, Result};
use crate::origin::Origin;
use crate::trace::{Hooks, RequestInfo, Trace};

/// Converts a request of the `http` crate. Its URI must be absolute. `HTTP/1.0` is required of the connection; any
/// other version is ignored.
impl<B: Into<Body>> TryFrom<http::Request<B>> for Request {
    type Error = Error;

    fn try_from(request: http::Request<B>) -> Result<Self> {
        let (mut head, body) = request.into_parts();
        let url = head.uri.to_string().into_url(None)?;
        // A message that was made of a `Request` carries its settings.
        let mut options = head.extensions.remove::<Options>().unwrap_or_default();
        if options.version.is_none() && head.version == Version::HTTP_10 {
            options.version = Some(Version::HTTP_10);
        }
        Ok(Self { headers: head.headers, body: body.into(), options, ..Self::new(head.method, url)? })
    }
}

/// Converts into a request of the `http` crate. The request's settings are kept in its extensions.
impl From<Request> for http::Request<Body> {
    fn from(mut request: Request) -> Self {
        // This fails if there are too many headers. Such a request is refused when it is sent.
        let _ = request.add_url_authorization();
        let mut message = Self::new(request.body);
        *message.method_mut() = request.method;
        *message.uri_mut() = request.url.as_str().parse().unwrap_or_default();
        *message.headers_mut() = request.headers;
        *message.version_mut() = request.options.version.unwrap_or_default();
        message.extensions_mut().insert(request.options);
        message
    }
}

/// The part of a [`Response`] that an `http::Response` has no room for, kept in its extensions.
#[derive(Clone)]
struct ResponseExtension {
    call: FinishedCall,
    body: BodyFacts,
}

/// Converts into a response of the `http` crate. Its body holds the connection.
impl From<Response> for http::Response<Body> {
    fn from(response: Response) -> Self {
        let data = *response.data;
        let call = data.call.expect("the call of a response is over");
        let content = data.content;
        let facts = BodyFacts {
            origin: content.origin().clone(),
            trace: content.trace().clone(),
            start: content.start(),
            answers_head: data.answers_head,
        };
        let body = match content {
            Content::Received(reader) => Body::wrap(ReceivedBody { reader, context: call.context.clone() }),
            Content::Replaced(body, _) => body,
        };
        let mut head = data.head;
        head.extensions.insert(ResponseExtension { call, body: facts });
        Self::from_parts(head, body)
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
        returned(message, false, || {
            let placeholder = || Url::parse(NO_URL).expect("the placeholder is a URL");
            let url = given.unwrap_or_else(placeholder);
            let origin = Origin::from_url(&url).or_else(|_| Origin::from_url(&placeholder()));
            let origin = origin.expect("the placeholder has an origin");
            let asked = || RequestInfo { method: Method::GET, origin: origin.clone(), target: Uri::default() };
            let trace = Trace::start(&Hooks::default(), None, asked);
            (error::Context { method: Method::GET, url, until: None, discreet: false }, origin, trace)
        })
    }
}

/// Converts a response that layers returned, or that was made by hand. `answers_head` is true if the request was a HEAD. `begin` starts a trace for a
/// response that a layer made itself, without a call.
pub(super) fn returned(
    mut message: http::Response<Body>,
    answers_head: bool,
    begin: impl FnOnce() -> (error::Context, Origin, Trace),
) -> Response {
    let extension = message.extensions_mut().remove().unwrap_or_else(|| {
        let (context, origin, trace) = begin();
        trace.answered_by_layer(message.status(), message.version());
        let body = BodyFacts { origin, trace, start: Bytes::new(), answers_head };
        ResponseExtension { call: FinishedCall { context, redirects: Vec::new() }, body }
    });
    let (head, body) = message.into_parts();
    let ResponseExtension { call, body: facts } = extension;
    let answers_head = facts.answers_head;
    let content = Content::Replaced(body, facts);
    let data = ResponseData { head, call: Some(call), content, trailers: None, answers_head, is_partly_read: false };
    Response { data: Box::new(data) }
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
        self.reader.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.reader.remaining()
    }
}
