//! URLs as users give them: text or [`Url`], absolute or relative to the client's base.

use url::{ParseError, Url};

use super::url_cache::RequestUrl;
use crate::error::{Error, Result};
use crate::origin::OriginError;

/// A value that a URL can be made of: text, or a parsed [`Url`].
///
/// Code that is generic over it can call `into_url(self) -> Result<Url>`, which wants an absolute URL with a host, and
/// `as_str(&self) -> &str`.
pub trait IntoUrl: sealed::Sealed + Sized {}

pub(crate) mod sealed {
    use super::{Error, OriginError, RequestUrl, Result, Url};

    // Not methods of the trait itself: imported, it would shadow those of `&&Url` and `&&String`.
    pub trait Sealed: Sized {
        /// Returns the URL. It must be absolute, with a scheme and a host.
        fn into_url(self) -> Result<Url> {
            let url = self.resolved(None)?;
            match url.has_host() {
                true => Ok(url),
                false => Err(Error::no_origin(&url, OriginError::NoHost)),
            }
        }

        fn as_str(&self) -> &str;

        /// Returns the URL; a relative one is resolved against `base`.
        fn resolved(self, base: Option<&Url>) -> Result<Url>;

        /// Returns the URL for a request; a relative one is resolved against `base`.
        fn into_request_url(self, base: Option<&Url>) -> Result<RequestUrl>;
    }
}

use sealed::Sealed;

impl IntoUrl for &str {}

impl IntoUrl for &String {}

impl IntoUrl for String {}

impl IntoUrl for Url {}

impl IntoUrl for &Url {}

impl Sealed for &str {
    fn as_str(&self) -> &str {
        self
    }

    fn resolved(self, base: Option<&Url>) -> Result<Url> {
        let url = Url::options().base_url(base).parse(self);
        // `url` reads the host of `host:3128` as a scheme. To take that as http, as curl does, would send tokens in clear text. If there
        // is a base, the text may just as well be a path.
        if base.is_none() && !url.as_ref().is_ok_and(Url::is_special) && begins_with_host_and_port(self) {
            return Err(Error::invalid_url(self, ParseError::RelativeUrlWithoutBase));
        }
        let url = url.map_err(|error| Error::invalid_url(self, error))?;
        // `//other/x` and `\\other\x` are relative, and lead away.
        if base.is_some_and(|base| base.origin() != url.origin()) && Url::parse(self).is_err() {
            return Err(Error::refused_request("the URL has no scheme and leads away from the client's base URL"));
        }
        Ok(url)
    }

    #[inline]
    fn into_request_url(self, base: Option<&Url>) -> Result<RequestUrl> {
        // An absolute URL is the same with any base.
        RequestUrl::kept(self, None).map_or_else(|| self.resolved(base).map(RequestUrl::Own), Ok)
    }
}

/// Returns true if `text` has a host and a port where a URL has its scheme: `localhost:3128/x`, `[::1]:3128`.
fn begins_with_host_and_port(text: &str) -> bool {
    let authority = text.trim().split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let Some((host, port)) = authority.rsplit_once(':') else { return false };
    let is_host = host.starts_with('[') || (!host.is_empty() && !host.contains([':', '@']));
    is_host && is_port(port)
}

impl Sealed for &String {
    fn as_str(&self) -> &str {
        String::as_str(self)
    }

    fn resolved(self, base: Option<&Url>) -> Result<Url> {
        self.as_str().resolved(base)
    }

    fn into_request_url(self, base: Option<&Url>) -> Result<RequestUrl> {
        self.as_str().into_request_url(base)
    }
}

impl Sealed for String {
    fn as_str(&self) -> &str {
        String::as_str(self)
    }

    fn resolved(self, base: Option<&Url>) -> Result<Url> {
        self.as_str().resolved(base)
    }

    fn into_request_url(self, base: Option<&Url>) -> Result<RequestUrl> {
        self.as_str().into_request_url(base)
    }
}

impl Sealed for Url {
    fn as_str(&self) -> &str {
        Url::as_str(self)
    }

    fn resolved(self, _: Option<&Url>) -> Result<Url> {
        Ok(self)
    }

    #[inline]
    fn into_request_url(self, _: Option<&Url>) -> Result<RequestUrl> {
        Ok(RequestUrl::kept(self.as_str(), Some(&self)).unwrap_or(RequestUrl::Own(self)))
    }
}

impl Sealed for &Url {
    fn as_str(&self) -> &str {
        Url::as_str(self)
    }

    fn resolved(self, _: Option<&Url>) -> Result<Url> {
        Ok(self.clone())
    }

    #[inline]
    fn into_request_url(self, _: Option<&Url>) -> Result<RequestUrl> {
        Ok(RequestUrl::kept(self.as_str(), Some(self)).unwrap_or_else(|| RequestUrl::Own(self.clone())))
    }
}

/// Returns true if `text` is a port: decimal digits alone, up to 65535.
pub(in crate::client) fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::client::request::Request;
    use crate::error::ErrorKind;

    fn refused(url: &str) -> String {
        let error = Client::new().get(url).build().expect_err("refused");
        assert_eq!((error.kind(), error.method()), (ErrorKind::Request, Some(&http::Method::GET)));
        format!("{error:#}")
    }

    #[test]
    fn a_url_that_cannot_be_sent_to_is_refused_with_the_reason() {
        assert_eq!(
            refused("http://a.test:x/\x1b[2J\0"),
            "`http://a.test:x/\u{fffd}[2J\u{fffd}` is not a URL: invalid port number"
        );
        assert_eq!(refused("no url"), "`no url` is not a URL: relative URL without a base");
        assert_eq!(refused("mailto:me@host"), "cannot send to `host`: unknown scheme `mailto`");
        assert_eq!(refused("http://host:99999/"), "`http://host:99999/` is not a URL: invalid port number");
        assert!(!refused("http://me:secret@host:0/").contains("secret"));
    }

    #[tokio::test]
    async fn a_request_of_another_scheme_is_refused_when_it_is_sent_unless_it_was_changed() {
        let client = Client::new();
        let mut request = client.get("ws://me:secret@127.0.0.1:1/x").build().unwrap();
        assert_eq!(request.url().as_str(), "ws://127.0.0.1:1/x");
        assert_eq!(request.headers()[http::header::AUTHORIZATION], "Basic bWU6c2VjcmV0");
        let mut elsewhere = request.try_clone().unwrap();
        *elsewhere.url_mut() = Url::parse("http://127.0.0.1:2/").unwrap();
        let message = http::Request::from(elsewhere);
        assert!(!message.headers().contains_key(http::header::AUTHORIZATION), "they are for their own origin");
        let unknown = client.get("gopher://me:secret@127.0.0.1/").build().unwrap_err();
        assert!(!format!("{unknown:#} {unknown:?}").contains("secret"), "{unknown:#}");
        assert_eq!((request.url().scheme(), request.origin()), ("ws", None));
        let error = client.execute(request.try_clone().unwrap()).await.unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "GET ws://127.0.0.1:1/x: cannot send to `ws://127.0.0.1:1/x`: unknown scheme `ws`"
        );
        request.url_mut().set_scheme("http").unwrap();
        assert!(client.execute(request).await.unwrap_err().is_connect());
        let message = http::Request::get("ws://127.0.0.1:1/x").body("").unwrap();
        assert_eq!(Request::try_from(message).unwrap().url().scheme(), "ws");
        let error = client.get("ftp://host/").header("x", "1").send().await.unwrap_err();
        assert!(error.is_builder() && format!("{error:#}").ends_with("unknown scheme `ftp`"), "{error:#}");
    }

    #[test]
    fn urls_are_read_as_reqwest_reads_them() {
        assert_eq!(Sealed::into_url("http://a.test").unwrap().as_str(), "http://a.test/");
        assert_eq!(Sealed::into_url("ws://a.test/x".to_owned()).unwrap().scheme(), "ws");
        assert_eq!(Sealed::as_str(&"no url"), "no url");
        let error = Sealed::into_url("/relative").unwrap_err();
        assert!(error.is_builder() && error.method().is_none(), "{error}");
        assert!(Sealed::into_url("file:///etc/hosts").unwrap_err().is_builder());
    }

    #[test]
    fn a_host_and_a_port_without_a_scheme_are_refused_with_a_suggestion() {
        let scheme = if cfg!(feature = "__tls") { "https" } else { "http" };
        for text in ["localhost:3128", "api.test:443/v1", "127.0.0.1:3128?q", "[::1]:3128/x", "my_host:80"] {
            let shown = text.split('?').next().unwrap();
            let error = refused(text);
            assert!(error.contains(&format!("(did you mean {scheme}://{shown}?)")), "{error}");
        }
        // With a base it is a path, or a URL that nothing can be sent to.
        let base = Url::parse("http://a.test/v1/").unwrap();
        assert_eq!("127.0.0.1:80".resolved(Some(&base)).unwrap().as_str(), "http://a.test/v1/127.0.0.1:80");
        assert_eq!("items:42".resolved(Some(&base)).unwrap().as_str(), "items:42");
        for text in ["user:1@host:80", "urn:isbn:80", "tel:5551234", "host:x", "host:-1", ":80"] {
            assert!(Client::new().get(text).build().is_err(), "{text}");
        }
        assert_eq!("http:80".resolved(None).unwrap().as_str(), "http://0.0.0.80/");
    }

    #[test]
    fn a_url_is_the_same_however_often_it_is_given() {
        let base = Url::parse("http://a.test/v1/").unwrap();
        let texts = [
            "http://b.test/x",
            "http:///b.test/x",
            "http://b.test",
            "http://B.test:80/./x/#part",
            "http://b.test\\x y",
            "http://b.test/ä?q",
            "http:x",
            "HTTP://b.test/",
            " http://b.test/",
            "/x",
            "//b.test/x",
            "b.test:80",
            "http://me:secret@b.test/",
            "http://",
        ];
        for text in texts {
            for base in [None, Some(&base), None] {
                let expected = text.resolved(base).ok();
                for _ in 0..3 {
                    let given = text.into_request_url(base).ok();
                    assert_eq!(given.as_deref(), expected.as_ref(), "{text} with {base:?}");
                    let Some(url) = &expected else { continue };
                    for given in [url.into_request_url(base), url.clone().into_request_url(base)] {
                        assert_eq!(&*given.unwrap(), url);
                    }
                }
            }
        }
    }

    #[test]
    fn a_domain_without_a_scheme_is_an_error_with_a_suggestion() {
        let scheme = if cfg!(feature = "__tls") { "https" } else { "http" };
        for (text, shown) in
            [("example.com/x", "example.com/x"), ("me@[::1]/?token=secret", "[::1]/"), ("a.test", "a.test")]
        {
            let expected =
                format!("`{shown}` is not a URL (did you mean {scheme}://{shown}?): relative URL without a base");
            assert_eq!(refused(text), expected);
        }
        for text in ["items", "/etc/passwd", "../x.y", "no url.test", "http//nowhere", ""] {
            assert!(!refused(text).contains("did you mean"), "{text}");
        }
    }
}
