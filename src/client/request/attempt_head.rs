//! The head of a single attempt, for functions that change it right before it is sent.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use url::Url;

use crate::client::policy::framing::FRAMING;
use crate::client::request::MAX_HEADERS;
use crate::error::{Cause, Error, Result};
use crate::redact::{self, Query};

/// The head of a single attempt at a request, right before it is sent: for
/// [`ClientBuilder::before_attempt`](crate::ClientBuilder::before_attempt).
///
/// ```
/// use speeddial::layers::AttemptHead;
///
/// fn tag(head: &mut AttemptHead<'_>) -> Result<(), speeddial::http::header::InvalidHeaderValue> {
///     let target = format!("{} {}", head.method(), head.target());
///     head.headers_mut().insert("x-target", target.parse()?);
///     Ok(())
/// }
///
/// let client = speeddial::Client::builder().before_attempt(tag).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
pub struct AttemptHead<'a> {
    pub(in crate::client) method: &'a Method,
    pub(in crate::client) url: &'a Url,
    pub(in crate::client) target: &'a Uri,
    pub(in crate::client) headers: &'a mut HeaderMap,
    pub(in crate::client) body: Option<&'a [u8]>,
}

impl AttemptHead<'_> {
    /// Returns the method.
    pub fn method(&self) -> &Method {
        self.method
    }

    /// Returns the URL of this attempt, without credentials. After a redirect it is the one that the redirect led to. What is sent of it
    /// is [`target`](Self::target).
    pub fn url(&self) -> &Url {
        self.url
    }

    /// Returns the path and query as they are sent: byte for byte what a server reads, and so what a signature or a check of the path is
    /// about. Those of [`url`](Self::url) are normalised, and a request that is [passed on](crate::RequestBuilder::forward) keeps the
    /// target of its peer.
    ///
    /// `OPTIONS *` has `*`, and a CONNECT for a tunnel the host and port.
    pub fn target(&self) -> &str {
        match (self.target.path_and_query(), self.target.authority()) {
            (Some(target), _) => target.as_str(),
            (None, tunnel) => tunnel.map_or("", |place| place.as_str()),
        }
    }

    /// Returns the headers as they will be sent, apart from those that the connection adds: `Content-Length`,
    /// `Transfer-Encoding`, and the authorization for a proxy. Over HTTP/2 a `Host` becomes part of the target.
    pub fn headers(&self) -> &HeaderMap {
        self.headers
    }

    /// Returns the headers, to change them for this attempt only. The next attempt begins with those of the request
    /// again.
    ///
    /// The headers that frame the message or belong to its connection must stay as they are: `Connection`,
    /// `Content-Length`, `Expect`, `Host`, `TE`, `Trailer`, `Transfer-Encoding` and `Upgrade`.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers
    }

    /// Returns the bytes of the body, for a digest of them; `None` if it is a file, a stream, or a form with a part of
    /// more than 4 KiB.
    pub fn body(&self) -> Option<&[u8]> {
        self.body
    }
}

impl fmt::Debug for AttemptHead<'_> {
    // Without header values and query, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptHead")
            .field("method", &self.method)
            .field("url", &redact::url(self.url.as_str(), Query::LeftOut))
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A user's function that changes the head of each attempt, or refuses it.
pub(in crate::client) type BeforeAttempt = Box<dyn Fn(&mut AttemptHead<'_>) -> Result<(), Cause> + Send + Sync>;

/// Calls the functions, in their order.
///
/// # Errors
/// One of them failed, changed a header that frames the message, or added too many headers.
pub(in crate::client) fn prepare(functions: &[BeforeAttempt], head: &mut AttemptHead<'_>) -> Result<()> {
    let framing_before = framing(head.headers);
    for function in functions {
        function(head).map_err(Error::before_attempt)?;
    }
    if framing(head.headers) != framing_before {
        let what = "a function of `before_attempt` changed a header that frames the message";
        return Err(Error::refused_request(what));
    }
    if head.headers.len() > MAX_HEADERS {
        return Err(Error::refused_request(format!("there are more than {MAX_HEADERS} headers")));
    }
    Ok(())
}

/// Adds headers of observers, except those of a name that the request has, and those that would frame the message.
pub(in crate::client) fn add_observed(headers: &mut HeaderMap, added: HeaderMap) {
    let missing = added.keys().filter(|name| !headers.contains_key(*name) && !FRAMING.contains(name));
    for name in missing.cloned().collect::<Vec<_>>() {
        for value in added.get_all(&name) {
            if headers.len() < MAX_HEADERS {
                headers.append(name.clone(), value.clone());
            }
        }
    }
}

/// Returns the headers that frame the message.
fn framing(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let values = |name: &HeaderName| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
    FRAMING.into_iter().flat_map(|name| values(&name).into_iter().map(move |value| (name.clone(), value))).collect()
}

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;

    fn prepared(change: impl Fn(&mut HeaderMap) + Send + Sync + 'static) -> Result<HeaderMap> {
        let function: BeforeAttempt = Box::new(move |head| {
            change(head.headers_mut());
            Ok(())
        });
        let mut headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("a.test"))]);
        let url = Url::parse("http://a.test/x?token=secret").unwrap();
        let target = Uri::from_static("/x?token=secret");
        let mut head =
            AttemptHead { method: &Method::GET, url: &url, target: &target, headers: &mut headers, body: None };
        prepare(&[function], &mut head)?;
        assert!(!format!("{head:?}").contains("secret"));
        Ok(headers)
    }

    #[test]
    fn framing_headers_must_stay_as_they_are() {
        assert!(prepared(|_| {}).is_ok());
        let signed = prepared(|headers| drop(headers.insert("x-signature", HeaderValue::from_static("s"))));
        assert_eq!(signed.unwrap()["x-signature"], "s");
        for name in FRAMING {
            let named = name.clone();
            let added = prepared(move |headers| {
                headers.append(named.clone(), HeaderValue::from_static("1"));
            });
            assert!(added.unwrap_err().to_string().contains("frames the message"), "{name}");
        }
        assert!(prepared(|headers| drop(headers.remove(HOST))).is_err());
    }

    #[test]
    fn headers_without_end_are_refused() {
        let many = |headers: &mut HeaderMap| {
            for number in 0..=MAX_HEADERS {
                headers.append(HeaderName::try_from(format!("x-{number}")).unwrap(), HeaderValue::from_static("1"));
            }
        };
        assert!(prepared(many).unwrap_err().is_builder());
    }
}
