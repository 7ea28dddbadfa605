//! Responses that are made by hand, for tests of code that reads responses.

use http::{Extensions, Method, Uri};
use url::Url;

use super::Response;
use super::http_messages::{self, MadeCall};
use crate::client::body::Body;
use crate::error;
use crate::origin::Origin;
use crate::trace::{Hooks, RequestInfo, Trace};

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
