//! A source of bearer tokens, as users make it.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::bearer::Token;
use super::driver::{Bearer, SharedToken};
use crate::client::request::into_url::IntoUrl;
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
    pub(super) fn covers(&self, origin: &Origin, first: &Origin) -> bool {
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
