//! A bearer token, as its source returns it.

use std::fmt;
use std::time::Duration;

use http::HeaderValue;
use http::header::InvalidHeaderValue;

/// A bearer token (RFC 6750) with the length of its life. Its `Debug` output does not show the secret.
///
/// ```
/// use std::time::Duration;
/// use speeddial::token::Token;
///
/// let token = Token::new("s3cr3t").expires_in(Duration::from_secs(3600));
/// assert!(!format!("{token:?}").contains("s3cr3t"));
/// ```
#[derive(Clone)]
pub struct Token {
    header: Result<HeaderValue, InvalidToken>,
    life: Option<Duration>,
}

/// A token that no header can hold. Its text is not part of the error.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the token has characters that no header may have")]
pub(super) struct InvalidToken;

impl From<InvalidHeaderValue> for InvalidToken {
    fn from(_: InvalidHeaderValue) -> Self {
        Self
    }
}

impl Token {
    /// Creates a token that is used until a server rejects it. `secret` is the token alone, without `Bearer`.
    ///
    /// A secret with characters that no header may have, such as a line break, is an error of the calls that need it.
    pub fn new(secret: impl AsRef<str>) -> Self {
        let header = HeaderValue::try_from(format!("Bearer {}", secret.as_ref())).map(|mut value| {
            value.set_sensitive(true);
            value
        });
        Self { header: header.map_err(Into::into), life: None }
    }

    /// Sets the time after which the token is no longer valid, counted from its arrival (`expires_in` of RFC 6749 §5.1).
    /// No end by default.
    #[must_use]
    pub fn expires_in(self, life: Duration) -> Self {
        Self { life: Some(life), ..self }
    }

    /// Returns the value of the `Authorization` header, and the length of the token's life.
    pub(super) fn into_parts(self) -> Result<(HeaderValue, Option<Duration>), InvalidToken> {
        Ok((self.header?, self.life))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_in", &self.life).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_as_a_sensitive_header() {
        let (header, life) = Token::new("abc").expires_in(Duration::from_secs(5)).into_parts().unwrap();
        assert_eq!((header.as_bytes(), life), (&b"Bearer abc"[..], Some(Duration::from_secs(5))));
        assert!(header.is_sensitive());
        let error = Token::new("ab\nc").into_parts().unwrap_err();
        assert!(!error.to_string().contains("ab"), "{error}");
    }
}
