//! The request of a call, as redirects and attempts change it.

use std::ops::{Deref, DerefMut};

use http::header::{ACCEPT, ACCEPT_ENCODING, RANGE, TRAILER};
use http::{Method, Uri, Version};

use crate::client::body::{Body, Decompression, OutgoingBody, Upload};
use crate::client::policy::redirect::NextRequest;
use crate::client::request::Request;
use crate::client::response::answer::Answer;
use crate::client::response::call_data::{BoxedRequest, BoxedResponse, CallEnd};
use crate::connect::SendError;
use crate::error::Result;

/// The request of a call, as redirects have changed it so far.
pub(super) struct CurrentRequest {
    /// The request, and its response once it has come. `None` once the user has them.
    request: Option<BoxedRequest>,
    /// True if the body was a stream, and has been read.
    body_is_gone: bool,
    /// The settings for decompressing the response.
    pub(super) decompression: Decompression,
}

impl CurrentRequest {
    pub(super) fn new(request: BoxedRequest, decompression: Decompression) -> Self {
        Self { request: Some(request), body_is_gone: false, decompression }
    }

    /// Returns the path and query as they go into the request line.
    pub(super) fn take_target(&mut self) -> Result<Uri> {
        match self.parsed_target.take() {
            Some(target) => Ok(target),
            None => self.target(),
        }
    }

    /// Returns true if the request has a body, or had one that is gone.
    pub(super) fn has_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| !body.is_empty()) || self.body_is_gone
    }

    /// Returns true if the body is a stream that can be read once.
    pub(super) fn has_single_use_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| !body.is_replayable())
    }

    /// Returns true if the body can be sent over HTTP/1 in chunks alone.
    pub(super) fn needs_chunks(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.needs_chunks(self.headers.contains_key(TRAILER)))
    }

    /// Returns true if the request asks the server to switch to another protocol.
    pub(super) fn asks_for_upgrade(&self) -> bool {
        self.asks_upgrade || self.method == Method::CONNECT
    }

    /// Returns true if the body can be sent once more: it is no stream that was read.
    pub(super) fn body_is_replayable(&self) -> bool {
        !self.body_is_gone
    }

    /// Returns the body for one attempt. Bytes are shared with the next attempt, a stream is gone.
    pub(super) fn body_to_send(&mut self) -> Body {
        let Some(body) = &self.body else { return Body::default() };
        if let Some(copy) = body.try_clone() {
            return copy;
        }
        self.body_is_gone = true;
        self.body.take().unwrap_or_default()
    }

    /// Puts a stream back that was not read after all.
    pub(super) fn put_back(&mut self, body: Body) {
        self.body = Some(body);
        self.body_is_gone = false;
    }

    /// Puts a stream back if hyper returned the message and none of the stream was read.
    pub(super) fn put_unsent_back(&mut self, failed: &mut SendError<OutgoingBody>, upload: Option<&Upload>) {
        let is_unread = upload.is_some_and(|upload| !upload.is_begun());
        if let Some(message) = &mut failed.unsent
            && is_unread
            && !self.body_is_replayable()
        {
            let body = std::mem::replace(message.body_mut(), OutgoingBody::empty());
            self.put_back(body.into_body());
        }
    }

    /// Becomes the request that a redirect leads to.
    pub(super) fn redirect(&mut self, next: NextRequest, target: Uri, keeps_body: bool) {
        if !keeps_body {
            self.body = None;
            self.body_is_gone = false;
        }
        self.url = next.url.into();
        if let Some(key) = &mut self.key {
            key.origin = next.origin;
        }
        self.method = next.method;
        self.parsed_target = Some(target);
    }

    /// Removes the headers that the client has added by itself, which the next attempt gets anew.
    pub(super) fn remove_added(&mut self) {
        if self.decompression.accepted().is_some() {
            self.headers.remove(ACCEPT_ENCODING);
        }
        if self.headers.get_all(ACCEPT).iter().eq(["*/*"]) {
            self.headers.remove(ACCEPT);
        }
    }

    /// Notes the response.
    #[inline]
    pub(super) fn set_answer(&mut self, answer: Answer) {
        *self.boxed_mut().answer_mut() = Some(answer);
    }

    /// Returns the response, which has come.
    pub(super) fn answer(&self) -> &Answer {
        self.boxed().answer().expect("the response has come")
    }

    /// Returns the response, which has come, to change it.
    pub(super) fn answer_mut(&mut self) -> &mut Answer {
        self.boxed_mut().answer_mut().as_mut().expect("the response has come")
    }

    /// Takes the response, which has come.
    pub(super) fn take_answer(&mut self) -> Answer {
        self.boxed_mut().answer_mut().take().expect("the response has come")
    }

    /// Drops the response, if it has come: its connection closes.
    pub(super) fn drop_answer(&mut self) {
        *self.boxed_mut().answer_mut() = None;
    }

    /// Discards the body of the response, which has come, and frees its connection as soon as possible.
    pub(super) fn drain_answer(&mut self) {
        self.answer_mut().drain();
        self.drop_answer();
    }

    /// Ends with a response that has the request sent again at once. Over HTTP/1 the connection closes if the request had a body: the
    /// server may have answered without reading that, closes the connection then, and would lose the next request on it.
    pub(super) fn leave_answer(&mut self) {
        if self.has_body() && self.answer().head.version < Version::HTTP_2 {
            self.drop_answer();
        } else {
            self.drain_answer();
        }
    }

    /// Ends the request: hands it and its response to the user.
    pub(super) fn finish(&mut self, end: CallEnd) -> BoxedResponse {
        self.request.take().expect(HAS_REQUEST).finish(end)
    }

    #[inline]
    fn boxed(&self) -> &BoxedRequest {
        self.request.as_ref().expect(HAS_REQUEST)
    }

    #[inline]
    fn boxed_mut(&mut self) -> &mut BoxedRequest {
        self.request.as_mut().expect(HAS_REQUEST)
    }
}

/// Adds an `Accept-Encoding`, and returns the settings for decompressing the response. A request with an
/// `Accept-Encoding` or a `Range` of its own gets its response as it arrives.
pub(super) fn accept_codings(request: &mut Request, decompression: Decompression) -> Decompression {
    let headers = &mut request.headers;
    match decompression.accepted() {
        Some(accepted) if !headers.contains_key(ACCEPT_ENCODING) && !headers.contains_key(RANGE) => {
            headers.insert(ACCEPT_ENCODING, accepted);
            decompression
        }
        _ => Decompression::none(),
    }
}

const HAS_REQUEST: &str = "a call that is not over has its request";

impl Deref for CurrentRequest {
    type Target = Request;

    fn deref(&self) -> &Request {
        self.boxed()
    }
}

impl DerefMut for CurrentRequest {
    fn deref_mut(&mut self) -> &mut Request {
        self.boxed_mut()
    }
}
