//! User names and passwords. Those in a URL are taken off it, so that the URL can be shown.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use url::Url;

/// A user name and a password, as bytes, because a URL can encode any bytes. There is no `Debug`, so that no log shows
/// them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    username: Vec<u8>,
    password: Vec<u8>,
}

/// A user name that contains a colon: a server would take the part after it for the password (RFC 7617 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a user's name has a colon in it")]
pub(crate) struct ColonInUsername;

impl Credentials {
    /// Creates credentials, whose parts are not percent-encoded.
    pub(crate) fn new(username: impl Into<Vec<u8>>, password: impl Into<Vec<u8>>) -> Self {
        Self { username: username.into(), password: password.into() }
    }

    /// Takes the credentials off `url` and decodes them; `None` if it has none.
    pub(crate) fn take(url: &mut Url) -> Option<Self> {
        if url.username().is_empty() && url.password().is_none() {
            return None;
        }
        let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let credentials = Self::new(decoded(url.username()), url.password().map(decoded).unwrap_or_default());
        // These fail only for URLs that cannot have credentials.
        let _ = url.set_password(None);
        let _ = url.set_username("");
        Some(credentials)
    }

    /// Returns the value of an `Authorization` header (RFC 7617), marked as sensitive.
    pub(crate) fn basic(&self) -> Result<HeaderValue, ColonInUsername> {
        if self.username.contains(&b':') {
            return Err(ColonInUsername);
        }
        let pair = [self.username.as_slice(), b":".as_slice(), self.password.as_slice()].concat();
        let text = format!("Basic {}", BASE64_STANDARD.encode(pair));
        let mut value = HeaderValue::try_from(text).expect("base64 is visible ASCII");
        value.set_sensitive(true);
        Ok(value)
    }

    /// Returns the user name.
    pub(crate) fn username(&self) -> &[u8] {
        &self.username
    }

    /// Returns the password.
    pub(crate) fn password(&self) -> &[u8] {
        &self.password
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_taken_off_a_url_and_decoded() {
        for (url, left, text) in [
            ("http://me:secret@host/x", "http://host/x", Some(("me", "secret"))),
            ("http://me@host:81/?q", "http://host:81/?q", Some(("me", ""))),
            ("http://:secret@host/", "http://host/", Some(("", "secret"))),
            ("http://m%C3%BC%40x:p%3Aw%20@host/", "http://host/", Some(("mü@x", "p:w "))),
            ("socks5://me:pa+ss@[::1]:1080", "socks5://[::1]:1080", Some(("me", "pa+ss"))),
            ("http://host/@x", "http://host/@x", None),
            ("http://:@host/", "http://host/", None),
            ("user:secret@host", "user:secret@host", None),
        ] {
            let mut parsed = Url::parse(url).unwrap();
            let taken = Credentials::take(&mut parsed);
            let taken = taken.as_ref().map(|credentials| (credentials.username(), credentials.password()));
            assert_eq!(
                taken,
                text.map(|(user, password): (&str, &str)| (user.as_bytes(), password.as_bytes())),
                "{url}"
            );
            assert_eq!(parsed.as_str(), left, "{url}");
        }
    }

    #[test]
    fn basic_authorization_is_as_in_rfc_7617_and_marked_as_sensitive() {
        let value = Credentials::new("Aladdin", "open sesame").basic().unwrap();
        assert_eq!(value, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(value.is_sensitive());
        assert_eq!(Credentials::new("a:b", "c").basic(), Err(ColonInUsername));
    }
}
