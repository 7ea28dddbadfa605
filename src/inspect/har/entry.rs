//! One request of a HAR document: what is kept of it until the document is written.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Uri};
use url::Url;

use super::phases::HarPhases;
use crate::clock::Instant;
use crate::origin::Origin;
use crate::redact::{self, Query};
use crate::trace::Phase;
use crate::trace::Timings;
use crate::trace::{EndedRequest, RequestEnd};
use crate::trace::{RequestInfo, TlsFacts};
use crate::trace::{bounded_timings, cut_method, cut_target, url_of};

/// The most bytes of the target of a request that an observer was told of.
const MAX_TARGET: usize = 8 * 1024;

/// A request and its response for a [`Har`](super::Har), made of a call's timings.
///
/// The entry is about the last request of the call. Earlier ones, whose URLs the timings do not know, are listed in `_earlier`.
/// A [`Har`](super::Har) that is an observer of the client has an entry for each of them instead.
#[derive(Clone)]
pub struct HarEntry {
    pub(super) method: Method,
    pub(super) place: HarPlace,
    pub(super) request_headers: HeaderMap,
    pub(super) response_headers: HeaderMap,
    pub(super) timings: Timings,
    pub(super) phases: HarPhases,
    /// The wait before the request.
    pub(super) backoff: Duration,
    /// The time from the call's start until the request began, after any backoff.
    pub(super) after: Duration,
    /// The end of a request that an observer was told of; `None` if the entry is for a whole call.
    pub(super) end: Option<RequestEnd>,
    pub(super) failure: Option<&'static str>,
}

impl fmt::Debug for HarEntry {
    // Without header values and query, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = redact::url(&self.place.url(), Query::LeftOut);
        f.debug_struct("HarEntry").field("method", &self.method).field("url", &url).finish_non_exhaustive()
    }
}

/// The URL of a request.
#[derive(Clone)]
pub(super) enum HarPlace {
    Url(Url),
    Target(Origin, Uri),
}

impl HarEntry {
    /// Creates an entry for a call, with the method and the URL of its last request
    /// ([`Response::url`](crate::Response::url)).
    pub fn new(method: &Method, url: &Url, timings: &Timings) -> Self {
        Self::of(method, HarPlace::Url(url.clone()), timings.clone())
    }

    /// Creates an entry for a call of which an observer is told only the first request. `tls` replaces the result of the TLS
    /// handshake.
    pub(super) fn of_call(
        request: &RequestInfo,
        timings: &Timings,
        tls: impl FnOnce(&Arc<TlsFacts>) -> Arc<TlsFacts>,
    ) -> Self {
        Self::of(&cut_method(&request.method), HarPlace::of(request), bounded_timings(timings, tls))
    }

    /// Creates an entry for one of the requests of a call. `tls` replaces the result of the TLS handshake.
    pub(super) fn of_request(ended: &EndedRequest<'_>, tls: impl FnOnce(&Arc<TlsFacts>) -> Arc<TlsFacts>) -> Self {
        let entry = Self::of_call(ended.request.request, ended.timings, tls);
        let (backoff, paused) = (ended.spent(Phase::Backoff), ended.paused());
        Self {
            phases: HarPhases::of(ended.timings, paused),
            after: ended.timings.last_started() + backoff,
            backoff,
            end: Some(ended.end),
            failure: ended.failure,
            ..entry
        }
    }

    fn of(method: &Method, place: HarPlace, timings: Timings) -> Self {
        let backoff = timings.spent_last(Phase::Backoff);
        Self {
            method: method.clone(),
            place,
            request_headers: HeaderMap::new(),
            response_headers: HeaderMap::new(),
            phases: HarPhases::of(&timings, Duration::ZERO),
            after: timings.last_started() + backoff,
            backoff,
            end: None,
            failure: timings.failure(),
            timings,
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
        matches!(self.end, None | Some(RequestEnd::Answered | RequestEnd::Unread | RequestEnd::Failed))
    }

    /// Returns the time at which the request ended.
    pub(super) fn ended(&self) -> Instant {
        self.timings.start() + self.timings.total()
    }

    /// Returns the time at which the request began.
    pub(super) fn started(&self) -> Instant {
        self.timings.start() + self.after
    }
}

impl HarPlace {
    /// Returns the URL of a request, with a target of at most 8 KiB.
    fn of(request: &RequestInfo) -> Self {
        Self::Target(request.origin.clone(), cut_target(&request.target, MAX_TARGET))
    }

    /// Returns the whole URL, with its query.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Url(url) => url.to_string(),
            Self::Target(origin, target) => url_of(origin, target),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Extensions;

    use super::*;
    use crate::trace::timings::samples::{cold_call, origin};

    #[test]
    fn debug_shows_no_secrets() {
        let headers = [(http::header::COOKIE, "secret".parse().unwrap())].into_iter().collect();
        let url = Url::parse("http://me:secret@a.test/x?secret").unwrap();
        let entry = HarEntry::new(&Method::GET, &url, &cold_call()).request_headers(&headers);
        assert_eq!(format!("{entry:?}"), "HarEntry { method: GET, url: \"http://a.test/x\", .. }");
    }

    #[test]
    fn a_long_target_is_cut_and_certificates_are_let_go() {
        let target = format!("/{}", "a".repeat(30_000)).parse().unwrap();
        let method = Method::from_bytes(&b"X".repeat(1_000)).unwrap();
        let request = RequestInfo { method, origin: origin(), target, extensions: Extensions::new() };
        let facts = TlsFacts {
            version: "TLSv1_3",
            cipher_suite: "TLS13_AES_128_GCM_SHA256",
            alpn: None,
            resumed: false,
            verified: true,
            peer_certificates: vec![bytes::Bytes::from_static(&[7; 2_000])],
        };
        let mut timings = cold_call();
        timings.request.tls = Some(Arc::new(facts));
        let mut handshake = super::super::LastHandshake::default();
        let entry = HarEntry::of_call(&request, &timings, |facts| handshake.without_chain(facts));
        assert_eq!(entry.place.url().len(), "http://api.test".len() + MAX_TARGET);
        assert_eq!(entry.method.as_str().len(), 32);
        assert!(entry.timings.tls_facts().is_some_and(|facts| facts.peer_certificates.is_empty()));
    }
}
