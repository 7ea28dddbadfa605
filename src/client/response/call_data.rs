//! The allocation that a call and its user share: the request first, and the response beside it once that has come.
//!
//! With one for both, a call has an allocation less, and the response finds its method and URL where they were.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use url::Url;

use crate::client::request::Request;
use crate::client::request::options::RequestOptions;
use crate::client::response::answer::{Answer, AnswerContent};
use crate::clock::Instant;
use crate::error;
use crate::origin::Origin;

struct CallData {
    request: Request,
    /// The response; `None` until it has come, and after it was taken or dropped.
    answer: Option<Answer>,
    end: CallEnd,
}

/// The facts about a call that is over, beside its request and response.
#[derive(Default)]
pub(in crate::client) struct CallEnd {
    /// The call's deadline, and the timeout from which it was computed.
    pub(in crate::client) until: Option<(Instant, Duration)>,
    /// True if errors leave the URL's query out.
    pub(in crate::client) left_out: error::LeftOut,
    /// The URLs that were requested before, the first one first.
    pub(in crate::client) redirects: Vec<Url>,
}

/// A request, with room for its response.
pub(in crate::client) struct BoxedRequest(Box<CallData>);

impl BoxedRequest {
    #[inline(always)]
    pub(in crate::client) fn new(request: Request) -> Self {
        // Built inside of the allocation, not copied into it.
        let place = Box::new_uninit();
        Self(Box::write(place, CallData { request, answer: None, end: CallEnd::default() }))
    }

    pub(in crate::client) fn into_request(self) -> Request {
        self.0.request
    }

    /// Returns the response, once it has come.
    pub(in crate::client) fn answer(&self) -> Option<&Answer> {
        self.0.answer.as_ref()
    }

    /// Returns the place of the response.
    pub(in crate::client) fn answer_mut(&mut self) -> &mut Option<Answer> {
        &mut self.0.answer
    }

    /// Hands request and response to the user.
    pub(in crate::client) fn finish(mut self, end: CallEnd) -> BoxedResponse {
        self.0.end = end;
        // Freed here, because the response may live long.
        self.0.request.headers.free();
        self.0.request.body = None;
        self.0.request.options = RequestOptions::default();
        BoxedResponse(self.0)
    }
}

impl fmt::Debug for BoxedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.request.fmt(f)
    }
}

impl Deref for BoxedRequest {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.0.request
    }
}

impl DerefMut for BoxedRequest {
    fn deref_mut(&mut self) -> &mut Request {
        &mut self.0.request
    }
}

/// A response, with the request that it answers.
pub(in crate::client) struct BoxedResponse(Box<CallData>);

impl BoxedResponse {
    /// Makes a response to a request that no call sent.
    pub(in crate::client) fn new(context: error::Context, redirects: Vec<Url>, answer: Answer) -> Self {
        let error::Context { method, url, until, left_out } = context;
        let end = CallEnd { until, left_out, redirects };
        Self(Box::new(CallData { request: Request::new(method, url), answer: Some(answer), end }))
    }

    /// Returns the URL that the response came from.
    pub(in crate::client) fn url(&self) -> &Url {
        &self.0.request.url
    }

    /// Returns the origin that the response came from.
    pub(in crate::client) fn origin(&self) -> &Origin {
        match &self.content {
            // A request that was sent has a key; a response that is made by hand is always `Replaced`.
            AnswerContent::Received(_) => &self.0.request.key().origin,
            AnswerContent::Replaced(_, facts) => &facts.origin,
        }
    }

    pub(in crate::client) fn redirects(&self) -> &[Url] {
        &self.0.end.redirects
    }

    /// Returns the facts about the call that its errors show.
    pub(in crate::client) fn context(&self) -> error::Context {
        let CallData { request, end, .. } = &*self.0;
        error::Context {
            method: request.method.clone(),
            url: request.url.to_url(),
            until: end.until,
            left_out: end.left_out,
        }
    }

    pub(in crate::client) fn into_answer(self) -> Answer {
        self.0.answer.expect(HAS_COME)
    }
}

const HAS_COME: &str = "the response has come";

impl Deref for BoxedResponse {
    type Target = Answer;

    #[inline]
    fn deref(&self) -> &Answer {
        self.0.answer.as_ref().expect(HAS_COME)
    }
}

impl DerefMut for BoxedResponse {
    #[inline]
    fn deref_mut(&mut self) -> &mut Answer {
        self.0.answer.as_mut().expect(HAS_COME)
    }
}
