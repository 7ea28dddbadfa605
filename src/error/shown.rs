//! The parts of texts and bodies that may be shown in an error message.

use url::Url;

use crate::shown::line;

/// The most bytes of a body that an error keeps.
pub(crate) const KEPT_BODY_BYTES: usize = 1_024;
/// The most characters of a body that a message shows.
const SHOWN_BODY_CHARS: usize = 80;

/// Returns the beginning of a body as one line of text.
pub(super) fn beginning(body: &[u8]) -> String {
    // A character has at most four bytes.
    let most = 4 * (SHOWN_BODY_CHARS + 1);
    line(String::from_utf8_lossy(&body[..body.len().min(most)]), SHOWN_BODY_CHARS)
}

/// The most characters of a clause, and of one cause behind it, that a message shows.
pub(super) const SHOWN_CLAUSE: usize = 1_000;
/// The most characters of a text that is not a URL, and of a place in a document, that a message shows.
pub(super) const SHOWN_PLACE: usize = 200;

/// Returns an error about JSON whose text, which quotes the document, is fit to be shown.
#[cfg(feature = "json")]
pub(super) fn json(error: serde_json::Error) -> serde_json::Error {
    if !error.is_data() {
        return error;
    }
    // serde_json reads the place off the end of the text.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = line(&error, SHOWN_PLACE);
    let what = text.strip_suffix(&place).unwrap_or(&text);
    serde::de::Error::custom(format!("{what}{place}"))
}

/// Returns the URL that a text without a scheme probably means, if it begins with a domain or an address, as `example.com/x`.
pub(super) fn url_without_scheme(text: &str) -> Option<String> {
    let scheme = if cfg!(feature = "__tls") { "https" } else { "http" };
    let text = text.trim();
    let host = text.split(['/', '\\']).next().unwrap_or_default();
    let has_port = || host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_host =
        host.starts_with('[') || (host.starts_with(char::is_alphanumeric) && (host.contains('.') || has_port()));
    if !is_host {
        return None;
    }
    let url = format!("{scheme}://{text}");
    match Url::parse(&url) {
        Ok(_) => Some(url),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_body_is_one_line_of_80_characters() {
        assert_eq!(beginning(b"two\nlines"), "two lines");
        let long = beginning("ä".repeat(100).as_bytes());
        assert_eq!((long.chars().count(), long.ends_with('…')), (81, true));
    }

    #[test]
    fn a_url_is_suggested_only_for_a_text_that_begins_with_a_host() {
        assert!(url_without_scheme("example.com/x").is_some_and(|url| url.ends_with("://example.com/x")));
        assert!(url_without_scheme("[::1]:80").is_some());
        assert_eq!(url_without_scheme("/items"), None);
        assert_eq!(url_without_scheme("items"), None);
    }
}
