//! One request of a HAR document: what is kept of it until the document is written.

use std::time::Duration;

use http::{HeaderMap, Method, Uri};
use url::Url;

use super::super::event::RequestInfo;
use super::super::phase::Phase;
use super::super::requests::{EndedRequest, RequestEnd};
use super::super::timings::Timings;
use super::phases::HarPhases;
use crate::clock::Instant;
use crate::origin::{Origin, Scheme};

/// A request and its response for a [`Har`](super::Har), made of a call's timings.
///
/// The entry is about the last request of the call. Earlier ones, whose URLs the timings do not know, are listed in `_earlier`.
/// A [`Har`](super::Har) that is an observer of the client has an entry for each of them instead.
#[derive(Debug, Clone)]
pub struct HarEntry {
    pub(super) method: Method,
    pub(super) place: Place,
    pub(super) request_headers: HeaderMap,
    pub(super) response_headers: HeaderMap,
    pub(super) timings: Timings,
    pub(super) phases: HarPhases,
    /// The time from the call's start until the request began, after any backoff.
    pub(super) after: Duration,
    /// The end of a request that an observer was told of; `None` if the entry is for a whole call.
    pub(super) end: Option<RequestEnd>,
    pub(super) failure: Option<&'static str>,
}

/// The URL of a request.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Url(Url),
    Target(Origin, Uri),
}

impl HarEntry {
    /// Creates an entry for a call, with the method and the URL of its last request
    /// ([`Response::url`](crate::Response::url)).
    pub fn new(method: &Method, url: &Url, timings: &Timings) -> Self {
        Self::of(method, Place::Url(url.clone()), timings)
    }

    /// Creates an entry for a call of which an observer is told only the first request.
    pub(super) fn of_call(request: &RequestInfo, timings: &Timings) -> Self {
        Self::of(&request.method, Place::of(request), timings)
    }

    /// Creates an entry for one of the requests of a call.
    pub(super) fn of_request(ended: &EndedRequest<'_>) -> Self {
        let request = ended.request.request;
        let entry = Self::of(&request.method, Place::of(request), ended.timings);
        Self { end: Some(ended.end), failure: ended.failure, ..entry }
    }

    fn of(method: &Method, place: Place, timings: &Timings) -> Self {
        Self {
            method: method.clone(),
            place,
            request_headers: HeaderMap::new(),
            response_headers: HeaderMap::new(),
            timings: timings.clone(),
            phases: HarPhases::of(timings),
            after: timings.last_started() + timings.spent_last(Phase::Backoff),
            end: None,
            failure: timings.failure(),
        }
    }

    /// Adds the request's headers. Those with secrets are removed when the document is written.
    pub fn request_headers(self, headers: &HeaderMap) -> Self {
        Self { request_headers: headers.clone(), ..self }
    }

    /// Adds the response's headers. Those with secrets are removed when the document is written.
    pub fn response_headers(self, headers: &HeaderMap) -> Self {
        Self { response_headers: headers.clone(), ..self }
    }

    /// Returns true if the request is the last one of its call, as far as it is known: the times are those of the whole call.
    pub(super) fn is_last(&self) -> bool {
        matches!(self.end, None | Some(RequestEnd::Answered | RequestEnd::Failed))
    }

    /// Returns the time at which the request began.
    pub(super) fn started(&self) -> Instant {
        self.timings.start() + self.after
    }
}

impl Place {
    fn of(request: &RequestInfo) -> Self {
        Self::Target(request.origin.clone(), request.target.clone())
    }

    /// Returns the whole URL, with its query.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Url(url) => url.to_string(),
            Self::Target(origin, target) => {
                let scheme = match origin.scheme() {
                    Scheme::Http => "http",
                    Scheme::Https => "https",
                };
                let target = target.path_and_query().map_or("/", |target| target.as_str());
                if origin.has_default_port() {
                    format!("{scheme}://{}{target}", origin.host())
                } else {
                    format!("{scheme}://{origin}{target}")
                }
            }
        }
    }
}
