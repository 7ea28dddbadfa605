//! The text of a body: its charset, and its decoding.

use http::HeaderMap;

/// Decodes a body: by its byte order mark, by the charset of its content type (feature `charset`), or as UTF-8.
#[cfg_attr(not(feature = "charset"), expect(unused_variables, reason = "only the feature looks at the headers"))]
pub(in crate::client) fn decode(bytes: &[u8], headers: &HeaderMap) -> String {
    if let Some(text) = decode_by_mark(bytes) {
        return text;
    }
    #[cfg(feature = "charset")]
    if let Some(encoding) = label(headers).and_then(|label| encoding_rs::Encoding::for_label(label.as_bytes())) {
        return encoding.decode(bytes).0.into_owned();
    }
    String::from_utf8_lossy(bytes).into_owned()
}

/// Like [`decode`], with `default` in place of UTF-8.
#[cfg(feature = "charset")]
pub(in crate::client) fn decode_with_default(bytes: &[u8], headers: &HeaderMap, default: &str) -> String {
    if let Some(text) = decode_by_mark(bytes) {
        return text;
    }
    let label = label(headers).unwrap_or_else(|| default.to_owned());
    let encoding = encoding_rs::Encoding::for_label(label.as_bytes()).unwrap_or(encoding_rs::UTF_8);
    encoding.decode_without_bom_handling(bytes).0.into_owned()
}

/// Decodes the text behind a byte order mark, which overrides the content type (WHATWG Encoding Standard, §6); `None`
/// if there is no mark.
fn decode_by_mark(bytes: &[u8]) -> Option<String> {
    match bytes {
        [0xef, 0xbb, 0xbf, text @ ..] => Some(String::from_utf8_lossy(text).into_owned()),
        [0xff, 0xfe, text @ ..] => Some(decode_utf16(text, u16::from_le_bytes)),
        [0xfe, 0xff, text @ ..] => Some(decode_utf16(text, u16::from_be_bytes)),
        _ => None,
    }
}

/// Decodes UTF-16, with U+FFFD for each unpaired surrogate and for an odd byte at the end.
fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (units, rest) = bytes.as_chunks::<2>();
    let chars = char::decode_utf16(units.iter().map(|bytes| unit(*bytes)));
    let mut text: String = chars.map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    if !rest.is_empty() {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

/// Returns the `charset` parameter of a content type (RFC 9110 §8.3.2), which may be within quotes, and is none within those of
/// another one.
#[cfg(feature = "charset")]
fn label(headers: &HeaderMap) -> Option<String> {
    let content_type = headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_end = |char: char| {
        let ends = char == ';' && !is_quoted;
        is_quoted ^= char == '"' && !is_escaped;
        is_escaped = char == '\\' && is_quoted && !is_escaped;
        ends
    };
    let parameters = content_type.split(is_end).skip(1).filter_map(|parameter| parameter.split_once('='));
    let (_, label) = { parameters }.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Some(label.trim().trim_matches('"').replace('\\', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_overrides_the_content_type() {
        let latin1 =
            HeaderMap::from_iter([(http::header::CONTENT_TYPE, "text/plain; charset=latin1".parse().unwrap())]);
        assert_eq!(decode(b"\xef\xbb\xbf\xc3\xa9", &latin1), "é");
        assert_eq!(decode(b"\xff\xfe\xe9\x00", &latin1), "é");
        assert_eq!(decode(b"\xfe\xff\x00\xe9", &latin1), "é");
        #[cfg(feature = "charset")]
        assert_eq!(decode(b"\xe9", &latin1), "é");
    }

    #[cfg(feature = "charset")]
    #[test]
    fn a_default_charset_counts_where_the_content_type_names_none() {
        let of = |content_type: &'static str| {
            HeaderMap::from_iter([(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type))])
        };
        assert_eq!(decode_with_default(b"\xe9", &HeaderMap::new(), "latin1"), "é");
        assert_eq!(decode_with_default(b"\xe9", &of("text/plain"), "iso-8859-1"), "é");
        assert_eq!(decode_with_default("é".as_bytes(), &of("text/plain; charset=utf-8"), "latin1"), "é");
        assert_eq!(decode_with_default(b"\xef\xbb\xbf\xc3\xa9", &HeaderMap::new(), "latin1"), "é");
        assert_eq!(decode_with_default("é".as_bytes(), &HeaderMap::new(), "no charset"), "é");
        assert_eq!(decode_with_default("é".as_bytes(), &of("text/plain; charset=unknown"), "latin1"), "é");
    }

    #[cfg(feature = "charset")]
    #[test]
    fn a_charset_is_a_parameter_of_its_own() {
        let label = |content_type: &'static str| {
            let value = http::HeaderValue::from_static(content_type);
            super::label(&HeaderMap::from_iter([(http::header::CONTENT_TYPE, value)]))
        };
        assert_eq!(label(r#"text/plain; title="x; charset=latin1"; charset=utf-8"#).as_deref(), Some("utf-8"));
        assert_eq!(label(r#"text/plain; title="\"; charset=latin1; ""#), None);
        assert_eq!(label(r#"text/plain;Charset="utf\-8""#).as_deref(), Some("utf-8"));
        assert_eq!(label("text/plain; charset = latin1 ; charset=utf-8").as_deref(), Some("latin1"));
    }

    #[test]
    fn invalid_text_is_replaced() {
        let headers = HeaderMap::new();
        assert_eq!(decode(b"a\xe9b", &headers), "a\u{fffd}b");
        assert_eq!(decode(b"\xff\xfea\x00b", &headers), "a\u{fffd}", "an odd byte at the end");
        assert_eq!(decode(b"\xfe\xff\xd8\x00", &headers), "\u{fffd}", "half of a pair");
    }
}
