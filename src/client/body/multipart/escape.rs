//! Names of parts and of files in the header of a part.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

/// The encoding of the names of parts.
///
/// The two percent encodings differ in the names that they encode. A name that is encoded is written with
/// [`ATTR_CHARS`] in both: the value has no quotes, so a semicolon in it would begin the next parameter.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum NameEncoding {
    /// The encoding of browsers, which servers expect.
    #[default]
    Browsers,
    /// Percent encoding of names with something that a segment of a URL's path must not have.
    PathSegment,
    /// Percent encoding of names with something that is no `attr-char` of RFC 8187.
    AttrChars,
}

/// The bytes that are encoded in a segment of a URL's path (<https://url.spec.whatwg.org/#path-percent-encode-set>), with
/// those that divide it.
const PATH_SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// The bytes that are no `attr-char` (RFC 8187 §3.2.1).
const ATTR_CHARS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Returns the parameter of `Content-Disposition` for the name of a part: `name="…"`, or `name*=utf-8''…` (RFC 8187) if
/// something was percent-encoded.
pub(super) fn name_parameter(name: &str, encoding: NameEncoding) -> String {
    let set = match encoding {
        NameEncoding::Browsers => return format!("name=\"{}\"", escaped(&with_crlf(name))),
        NameEncoding::PathSegment => PATH_SEGMENT,
        NameEncoding::AttrChars => ATTR_CHARS,
    };
    match Cow::from(utf8_percent_encode(name, set)) {
        Cow::Borrowed(name) => format!("name=\"{name}\""),
        Cow::Owned(_) => format!("name*=utf-8''{}", utf8_percent_encode(name, ATTR_CHARS)),
    }
}

/// Returns the parameter of `Content-Disposition` for the name of a file. It has no other encoding (RFC 7578 §4.2).
pub(super) fn file_name_parameter(file_name: &str) -> String {
    format!("filename=\"{}\"", escaped(file_name))
}

/// Escapes what would end the value or the line
/// (<https://html.spec.whatwg.org/multipage/form-control-infrastructure.html#multipart-form-data>).
fn escaped(value: &str) -> String {
    value.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// Makes CRLF of each end of a line.
fn with_crlf(value: &str) -> String {
    value.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_browsers_do() {
        let cases = [
            ("plain", "plain"),
            ("a \"b\" \\ %41", "a %22b%22 \\ %41"),
            ("a\nb\rc\r\nd\n\r", "a%0D%0Ab%0D%0Ac%0D%0Ad%0D%0A%0D%0A"),
            ("größe 日本 🦀", "größe 日本 🦀"),
            ("", ""),
        ];
        for (name, escaped) in cases {
            assert_eq!(name_parameter(name, NameEncoding::Browsers), format!("name=\"{escaped}\""));
        }
        // The ends of lines in the name of a file stay what they are.
        assert_eq!(file_name_parameter("a\nb\rc \"d\".txt"), "filename=\"a%0Ab%0Dc %22d%22.txt\"");
    }

    #[test]
    fn percent_encoded_names_are_extended_parameters() {
        let name = "start%'\"\r\nßend";
        let path_segment = name_parameter(name, NameEncoding::PathSegment);
        assert_eq!(path_segment, "name*=utf-8''start%25%27%22%0D%0A%C3%9Fend");
        assert_eq!(name_parameter(name, NameEncoding::AttrChars), path_segment);
        assert_eq!(name_parameter("a;b", NameEncoding::PathSegment), "name=\"a;b\"");
        assert_eq!(name_parameter("a;b", NameEncoding::AttrChars), "name*=utf-8''a%3Bb");
        for encoding in [NameEncoding::PathSegment, NameEncoding::AttrChars] {
            assert_eq!(name_parameter("plain", encoding), "name=\"plain\"");
        }
    }

    #[test]
    fn no_name_ends_its_line_or_its_value() {
        // The characters of a value without quotes (RFC 8187 §3.2.1).
        let is_value_char = |c: char| c.is_ascii_alphanumeric() || "!#$&+-.^_`|~%".contains(c);
        let encodings = [NameEncoding::Browsers, NameEncoding::PathSegment, NameEncoding::AttrChars];
        for (code, encoding) in (0..=0x7f_u8).flat_map(|code| encodings.map(|encoding| (code, encoding))) {
            for name in [format!("a{}b", char::from(code)), format!("ü{}filename=evil.sh", char::from(code))] {
                let parameter = name_parameter(&name, encoding);
                match parameter.strip_prefix("name*=utf-8''") {
                    Some(value) => assert!(value.chars().all(is_value_char), "{parameter:?}"),
                    None => {
                        let value = parameter.strip_prefix("name=\"").and_then(|rest| rest.strip_suffix('"'));
                        assert!(!value.expect("quotes").contains(['\r', '\n', '"']), "{parameter:?}");
                    }
                }
                assert_eq!(file_name_parameter(&name).matches(['\r', '\n', '"']).count(), 2);
            }
        }
    }
}
