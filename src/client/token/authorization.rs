//! The token of one call.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::driver::Bearer;
use super::source::TokenSource;
use crate::origin::Origin;

/// The use that a call makes of the client's token sources.
#[derive(Clone)]
pub(crate) struct Authorization {
    /// The origin of the call's first request.
    first: Origin,
    /// The token for the next attempt.
    token: Option<Bearer>,
    /// True if the call was redirected to an origin without a token. It gets none from then on, because that origin chose
    /// the requests that follow.
    has_left_its_origins: bool,
    /// The origin that was sent a request again with another token. After a redirect to another origin that may happen once
    /// more.
    pub(crate) repeated_at: Option<Origin>,
}

impl Authorization {
    /// Returns the state of a call that begins with a request to `origin`; `None` if it needs no token.
    pub(crate) fn of(sources: &[TokenSource], headers: &HeaderMap, origin: &Origin) -> Option<Box<Self>> {
        if headers.contains_key(AUTHORIZATION) || !sources.iter().any(|source| source.covers(origin, origin)) {
            return None;
        }
        Some(Box::new(Self { first: origin.clone(), token: None, has_left_its_origins: false, repeated_at: None }))
    }

    /// Returns the source of the token for a request to `origin`.
    pub(crate) fn source<'a>(&mut self, sources: &'a [TokenSource], origin: &Origin) -> Option<&'a TokenSource> {
        self.token = None;
        let source =
            sources.iter().find(|source| source.covers(origin, &self.first)).filter(|_| !self.has_left_its_origins);
        self.has_left_its_origins = source.is_none();
        source
    }

    /// Sets the token for the next attempts.
    pub(crate) fn set(&mut self, token: Bearer) {
        self.token = Some(token);
    }

    /// Adds the token to the headers of an attempt.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        if let Some(token) = &self.token {
            headers.entry(AUTHORIZATION).or_insert_with(|| token.value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::bearer::Token;
    use super::*;

    fn source() -> TokenSource {
        TokenSource::new(|| async { Ok::<_, Infallible>(Token::new("x")) })
    }

    fn origin(url: &str) -> Origin {
        Origin::from_url(&url.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_token_stays_with_the_origin_of_the_first_request() {
        let sources = [source()];
        let mut call = Authorization::of(&sources, &HeaderMap::new(), &origin("https://a.test")).unwrap();
        assert!(call.source(&sources, &origin("https://a.test/x")).is_some());
        for other in ["http://a.test", "https://b.test", "https://a.test:444", "https://a.test"] {
            assert!(call.source(&sources, &origin(other)).is_none(), "{other}: also on the way back");
        }
    }

    #[test]
    fn a_token_goes_to_the_origins_that_were_named() {
        let sources =
            [source().for_origin("https://a.test").unwrap(), source().for_origin("https://b.test/x").unwrap()];
        let of = |url| Authorization::of(&sources, &HeaderMap::new(), &origin(url));
        assert!(of("https://c.test").is_none());
        let mut call = of("https://a.test").unwrap();
        assert!(call.source(&sources, &origin("https://b.test")).is_some());
        assert!(call.source(&sources, &origin("https://c.test")).is_none());
        assert!(call.source(&sources, &origin("https://b.test")).is_none());
    }

    #[test]
    fn an_authorization_of_the_request_wins() {
        let own = HeaderMap::from_iter([(AUTHORIZATION, http::HeaderValue::from_static("Basic eA=="))]);
        assert!(Authorization::of(&[source()], &own, &origin("https://a.test")).is_none());
    }
}
