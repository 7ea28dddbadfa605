//! Requests as messages of the `http` crate, and back.

use http::{Uri, Version, request};
use url::Url;

use super::Request;
use super::into_url::sealed::Sealed;
use super::options::{RequestOptions, checked_version};
use super::url_cache::RequestUrl;
use crate::client::body::Body;
use crate::client::request::url_cache::Target;
use crate::error::{Error, Result};

/// Converts a request of the `http` crate. Its URI must be absolute;
/// [`RequestBuilder::from_http`](crate::RequestBuilder::from_http) takes relative ones. `HTTP/1.0` is required of the
/// connection; any other version is ignored. Settings are taken from a [`RequestOptions`] in the extensions. The other
/// extensions go along with the request.
impl<B: Into<Body>> TryFrom<http::Request<B>> for Request {
    type Error = Error;

    fn try_from(request: http::Request<B>) -> Result<Self> {
        request_of(request, None)
    }
}

/// Converts a request of the `http` crate. A relative URI is resolved against `base`.
pub(in crate::client) fn request_of<B: Into<Body>>(message: http::Request<B>, base: Option<&Url>) -> Result<Request> {
    let (mut head, body) = message.into_parts();
    // A message that was made of a `Request` carries its settings.
    let options = head.extensions.remove::<RequestOptions>().unwrap_or_default();
    Request::of_message(head, options, body.into(), base)
}

impl Request {
    /// Makes a request of a message and settings. A relative URI is resolved against `base`.
    pub(crate) fn of_message(
        mut head: request::Parts,
        mut options: RequestOptions,
        body: Body,
        base: Option<&Url>,
    ) -> Result<Self> {
        let target = Target::of_message(&head.method, &head.uri);
        let fragment = head.extensions.remove::<Fragment>().filter(|fragment| fragment.of == head.uri);
        let mut request = match url_of(&head.uri, target.as_ref(), base) {
            Ok(url) => Self::begun(head.method, url, |request| request)?,
            Err(error) => return Err(error.with_method(head.method)),
        };
        if let Some(Fragment { text, .. }) = fragment {
            request.url.set_fragment(Some(&text));
        }
        if let (Some(key), Some(target)) = (&request.key, target) {
            request.url.set_target(&key.origin, target);
        }
        if let Some(version) = options.required_version() {
            checked_version(version)?;
        } else if head.version == Version::HTTP_10 {
            options.require_version(Version::HTTP_10);
        }
        // A server's request that is passed on has one. The response must not seem to offer that upgrade.
        head.extensions.remove::<hyper::upgrade::OnUpgrade>();
        Ok(Self { headers: head.headers.into(), body: Some(body), options, extensions: head.extensions, ..request })
    }
}

/// Returns the URL of a URI with this target. A path is put in place of the base's: it is no reference, in which `//host` would name
/// another host. The asterisk has the URL of the whole server.
fn url_of(uri: &Uri, target: Option<&Target>, base: Option<&Url>) -> Result<RequestUrl> {
    let is_asterisk = target.is_some_and(Target::is_asterisk);
    match (base, uri.authority()) {
        (Some(base), None) if target.is_some() => {
            let mut url = base.clone();
            url.set_path(if is_asterisk { "/" } else { uri.path() });
            url.set_query(uri.query());
            url.set_fragment(None);
            Ok(url.into())
        }
        (_, Some(authority)) if is_asterisk => {
            format!("{}://{authority}/", uri.scheme_str().unwrap_or_default()).into_request_url(None)
        }
        _ => uri.to_string().into_request_url(None),
    }
}

/// The fragment of a URL, which a URI has no room for, as an extension of the message that is made of it.
#[derive(Clone)]
struct Fragment {
    text: Box<str>,
    of: Uri,
}

/// The URI of a message that is made of a request to no URI: nothing can be sent to it, unlike to the default, a path.
const NOWHERE: &str = "nowhere";

/// Returns the URI of a URL, with its target.
fn uri_of(url: &RequestUrl) -> Option<Uri> {
    let mut parts = url.as_str().parse::<Uri>().ok()?.into_parts();
    if let Some((_, target)) = url.parts() {
        parts.path_and_query = Some(target.clone().into());
    }
    Uri::from_parts(parts).ok()
}

/// Converts into a request of the `http` crate. The request's settings are kept in its extensions.
impl From<Request> for http::Request<Body> {
    fn from(mut request: Request) -> Self {
        // Both fail for a request that cannot be sent. It is refused when it is sent.
        let _ = request.check_target();
        let _ = request.add_url_authorization();
        let mut message = Self::new(request.body.unwrap_or_default());
        *message.method_mut() = request.method;
        *message.uri_mut() = uri_of(&request.url).unwrap_or(Uri::from_static(NOWHERE));
        *message.headers_mut() = request.headers.into_map();
        *message.version_mut() = request.options.required_version().unwrap_or_default();
        *message.extensions_mut() = request.extensions;
        message.extensions_mut().insert(request.options);
        if let Some(text) = request.url.fragment() {
            let fragment = Fragment { text: text.into(), of: message.uri().clone() };
            message.extensions_mut().insert(fragment);
        }
        message
    }
}
