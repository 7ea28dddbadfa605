//! Bearer tokens that are refreshed for all calls of a client.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | [`TokenSource`] and [`Token`], as users make them; the token of one call |
//! | `driver.rs` | the shared token, and the tasks that refresh it |
//! | `state.rs` | when it is refreshed |
//! | `state.rs` | [`Token`] |

mod driver;
mod state;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::client::request::into_url::IntoUrl;
use crate::client::token::driver::{Bearer, SharedToken};
pub use crate::client::token::state::Token;
use crate::clock::Instant;
use crate::error::{Error, Result};
use crate::origin::Origin;

/// A source of bearer tokens (RFC 6750), for [`ClientBuilder::token_source`](crate::ClientBuilder::token_source). Clones
/// share the token.
///
/// The source gets a token when the first request needs one. All requests that need it meanwhile wait for the same
/// refresh, which no caller can cancel. A token that is in use is refreshed in the background when a tenth of its life is
/// left, at most a minute, so that no request waits for it.
///
/// If a server answers 401, the request is sent once more with a new token, unless its body is a stream that was read.
/// All requests that had the rejected token share one refresh. A second 401 of the same origin is returned to the caller. A
/// server that rejects every token causes a refresh every five seconds at most.
///
/// A refresh that fails, panics, or takes longer than 30 s fails the requests that wait for it. The next one begins after
/// a pause of one second, which doubles up to 30 s with each further failure; requests that need a token in between fail
/// with the same error. While the old token is valid, it is used on.
///
/// A refresh is lost if its runtime ends, or if that is not driven for 31 s. The requests that wait for it on other runtimes
/// begin another one.
///
/// A request with an `Authorization` of its own keeps it. The token goes to one origin only, or to those of
/// [`for_origin`](Self::for_origin), and never along with a redirect to another one.
///
/// ```
/// use std::time::Duration;
/// use speeddial::Client;
/// use speeddial::token::{Token, TokenSource};
///
/// let login = Client::new(); // not the client that uses the source: its requests would wait for the token
/// let source = TokenSource::new(move || {
///     let request = login.post("https://login.example.com/token").body("grant_type=client_credentials");
///     async move {
///         let token = request.send().await?.error_for_status()?.text().await?;
///         Ok::<_, speeddial::Error>(Token::new(token).expires_in(Duration::from_secs(3600)))
///     }
/// });
/// let client = Client::builder().token_source(source.for_origin("https://api.example.com")?).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Clone)]
pub struct TokenSource {
    shared: Arc<SharedToken>,
    /// The origins that get the token; that of a call's first request if there are none.
    origins: Vec<Origin>,
}

impl TokenSource {
    /// Creates a source whose tokens come from `fetch`. It is called for each refresh, in a task of its own.
    ///
    /// `fetch` must not use a client that has this source, because its request would wait for the token as well.
    pub fn new<F, R, E>(fetch: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<Token, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let fetch = move || -> BoxFuture<'static, _> {
            let fetching = fetch();
            Box::pin(async move { fetching.await.map_err(Into::into) })
        };
        Self { shared: Arc::new(SharedToken::new(Box::new(fetch))), origins: Vec::new() }
    }

    /// Sends the token to the origin of `url`: its scheme, host and port. May be called for several origins.
    ///
    /// Without a call, the token goes to the origin of the client's [base URL](crate::ClientBuilder::base_url) if it has
    /// one, and otherwise to the origin of each call's first request. Name the origin if a client sends requests to others
    /// as well.
    ///
    /// # Errors
    /// [`ErrorKind::Request`](crate::ErrorKind::Request) if nothing can be sent to the URL.
    pub fn for_origin(mut self, url: impl IntoUrl) -> Result<Self> {
        let url = url.resolved(None)?;
        self.origins.push(Origin::from_url(&url).map_err(|error| Error::no_origin(&url, error))?);
        Ok(self)
    }

    /// Sets the origin that gets the token if none was named.
    pub(crate) fn with_default_origin(mut self, origin: &Origin) -> Self {
        if self.origins.is_empty() {
            self.origins.push(origin.clone());
        }
        self
    }

    /// Returns true if requests to `origin` get the token, in a call whose first request went to `first`.
    fn covers(&self, origin: &Origin, first: &Origin) -> bool {
        if self.origins.is_empty() { origin == first } else { self.origins.contains(origin) }
    }

    /// Returns the token, or the error of the last refresh; `None` if a refresh has to be waited for.
    pub(crate) fn at_hand(&self, now: Instant) -> Option<Result<Bearer>> {
        self.shared.at_hand(now)
    }

    /// Waits for the token.
    pub(crate) async fn get(&self) -> Result<Bearer> {
        self.shared.get(None).await
    }

    /// Waits for a newer token than the one with this number.
    pub(crate) async fn newer_than(&self, rejected: u64) -> Result<Bearer> {
        self.shared.get(Some(rejected)).await
    }

    /// Returns the number of the token, if a server has rejected it.
    pub(crate) fn rejected(&self) -> Option<u64> {
        self.shared.rejected()
    }

    /// Takes note that a server rejected the token with this number. Returns true if another attempt gets a newer one.
    pub(crate) fn reject(&self, number: u64) -> bool {
        self.shared.reject(number)
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource").field("origins", &self.origins).finish_non_exhaustive()
    }
}

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

    use super::*;
    use crate::client::token::state::Token;

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
