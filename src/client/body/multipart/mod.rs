//! Forms of several parts (`multipart/form-data`, RFC 7578), such as those with files (feature `multipart`).
//!
//! ```no_run
//! # async fn run(client: speeddial::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use speeddial::multipart::{Form, Part};
//!
//! let form = Form::new()
//!     .text("title", "Holiday")
//!     .file("photo", "beach.jpg").await?
//!     .part("thumbnail", Part::bytes(vec![0xff, 0xd8]).file_name("small.jpg").mime_str("image/jpeg")?);
//! client.post("http://api.example.com/photos").multipart(form).send().await?.error_for_status()?;
//! # Ok(()) }
//! ```

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::{fmt, io};

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use mime_guess::Mime;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

use super::joined::Joiner;
use crate::client::body::Body;
use crate::error::{Cause, Error, Result};

/// A form of several parts, for [`RequestBuilder::multipart`](crate::RequestBuilder::multipart).
///
/// Its length is known if that of every part is. It can be sent again, after a redirect or in a resend or retry, unless a
/// part is a stream.
///
/// ```
/// use speeddial::multipart::Form;
///
/// let form = Form::new().text("name", "value").text("other", "value");
/// let request = speeddial::Client::new().post("http://127.0.0.1/").multipart(form).build().unwrap();
/// assert!(request.body().unwrap().content_length().is_some() && request.try_clone().is_some());
/// ```
pub struct Form {
    boundary: String,
    parts: Vec<(Cow<'static, str>, Part)>,
    encoding: NameEncoding,
}

impl Form {
    /// Creates a form without parts.
    pub fn new() -> Self {
        Self { boundary: random_boundary(), parts: Vec::new(), encoding: NameEncoding::default() }
    }

    /// Returns the boundary between the parts: 32 random hexadecimal digits.
    pub fn boundary(&self) -> &str {
        &self.boundary
    }

    /// Adds a part of text.
    #[must_use]
    pub fn text<T, U>(self, name: T, value: U) -> Self
    where
        T: Into<Cow<'static, str>>,
        U: Into<Cow<'static, str>>,
    {
        self.part(name, Part::text(value))
    }

    /// Adds the file at `path`, with its name and the media type of its extension: see [`Part::file`].
    ///
    /// # Errors
    /// The file cannot be opened, or is a directory.
    pub async fn file<T, U>(self, name: T, path: U) -> io::Result<Self>
    where
        T: Into<Cow<'static, str>>,
        U: AsRef<Path>,
    {
        Ok(self.part(name, Part::file(path).await?))
    }

    /// Adds a part. Several parts may have the same name.
    #[must_use]
    pub fn part<T: Into<Cow<'static, str>>>(mut self, name: T, part: Part) -> Self {
        self.parts.push((name.into(), part));
        self
    }

    /// Percent-encodes the names of parts that have something that a segment of a URL's path may not have. Such a name
    /// becomes an extended parameter (`name*=utf-8''…`, RFC 8187), which many servers cannot read. In it, all is encoded
    /// that is no `attr-char`.
    #[must_use]
    pub fn percent_encode_path_segment(mut self) -> Self {
        self.encoding = NameEncoding::PathSegment;
        self
    }

    /// Percent-encodes the names of parts that have something other than `attr-char`s (RFC 8187 §3.2.1), in the same
    /// way as [`percent_encode_path_segment`](Self::percent_encode_path_segment).
    #[must_use]
    pub fn percent_encode_attr_chars(mut self) -> Self {
        self.encoding = NameEncoding::AttrChars;
        self
    }

    /// Sends the names of parts as they are, apart from quotes (`%22`) and line ends (`%0D%0A`), which would end the
    /// header. This is the default, and what browsers do.
    #[must_use]
    pub fn percent_encode_noop(mut self) -> Self {
        self.encoding = NameEncoding::Browsers;
        self
    }

    /// Returns the form as a stream of pieces, as it is sent.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes>> + Send + Sync {
        let mut body = self.into_body();
        futures_util::stream::poll_fn(move |cx| {
            let frame = ready!(body.poll_own(cx));
            let piece = frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()));
            Poll::Ready(piece.map(|piece| piece.map_err(Error::upload)))
        })
    }

    /// Returns the form as a body.
    pub(in crate::client) fn into_body(self) -> Body {
        let Self { boundary, parts, encoding } = self;
        let mut joiner = Joiner::default();
        let mut head = Vec::new();
        for (name, part) in parts {
            head.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
            part.write_headers(&name, encoding, &mut head);
            head.extend_from_slice(b"\r\n");
            joiner.push_bytes(&head);
            joiner.push(part.body);
            head.clear();
            head.extend_from_slice(b"\r\n");
        }
        joiner.push_bytes(&head);
        joiner.push_bytes(format!("--{boundary}--\r\n").as_bytes());
        joiner.finish()
    }
}

impl Default for Form {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Form").field("boundary", &self.boundary).field("parts", &self.parts).finish_non_exhaustive()
    }
}

/// Returns a boundary that no part contains, be it by chance or because it was guessed: a keyed hash of a number. The
/// key is random.
fn random_boundary() -> String {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let key = KEY.get_or_init(RandomState::new);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{:016x}{:016x}", key.hash_one((number, 0_u8)), key.hash_one((number, 1_u8)))
}

/// A part of a [`Form`]: a value, and possibly a file name, a media type and further headers.
///
/// ```
/// # fn run() -> speeddial::Result<()> {
/// use speeddial::multipart::{Form, Part};
///
/// let part = Part::bytes(&b"%PDF-1.7"[..]).file_name("report.pdf").mime_str("application/pdf")?;
/// let form = Form::new().text("title", "Report").part("file", part);
/// # Ok(()) }
/// # run().unwrap();
/// ```
pub struct Part {
    body: Body,
    file_name: Option<Cow<'static, str>>,
    media_type: Option<HeaderValue>,
    headers: HeaderMap,
}

impl Part {
    /// Creates a part of text. Its line ends stay as they are.
    pub fn text<T: Into<Cow<'static, str>>>(value: T) -> Self {
        Self::new(match value.into() {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        })
    }

    /// Creates a part of bytes.
    pub fn bytes<T: Into<Cow<'static, [u8]>>>(value: T) -> Self {
        Self::new(match value.into() {
            Cow::Borrowed(bytes) => bytes.into(),
            Cow::Owned(bytes) => bytes.into(),
        })
    }

    /// Creates a part of a body: a stream, a file, a response, bytes. If the length of the body is not known, that of
    /// the form is not known either.
    pub fn stream<T: Into<Body>>(value: T) -> Self {
        Self::new(value.into())
    }

    /// Creates a part of a body of `length` bytes. The request fails if the body has another length.
    pub fn stream_with_length<T: Into<Body>>(value: T, length: u64) -> Self {
        let mut body = value.into();
        if body.is_streamed() {
            body.require_length(length);
        } else if body.content_length() != Some(length) {
            let bytes = Bytes::copy_from_slice(body.as_bytes().unwrap_or_default());
            body = Body::sized(length, stream::iter([Ok::<_, Cause>(bytes)]));
        }
        Self::new(body)
    }

    /// Creates a part of the file at `path`, with its file name, and with the media type that belongs to the extension
    /// of the name, or else `application/octet-stream`. The file is read as that of [`Body::file`].
    ///
    /// # Errors
    /// The file cannot be opened, or is a directory.
    pub async fn file<T: AsRef<Path>>(path: T) -> io::Result<Self> {
        let path = path.as_ref();
        let part = Self::new(Body::file(path).await?).media_type(&mime_guess::from_path(path).first_or_octet_stream());
        Ok(match path.file_name() {
            Some(name) => part.file_name(name.to_string_lossy().into_owned()),
            None => part,
        })
    }

    fn new(body: Body) -> Self {
        Self { body, file_name: None, media_type: None, headers: HeaderMap::new() }
    }

    /// Sets the media type.
    ///
    /// # Errors
    /// [`ErrorKind::Request`](crate::ErrorKind::Request) if `mime` is no media type.
    pub fn mime_str(self, mime: &str) -> Result<Self> {
        let media_type: Mime =
            mime.parse().map_err(|error| Error::invalid_request("the media type is not valid", error))?;
        Ok(self.media_type(&media_type))
    }

    fn media_type(mut self, media_type: &Mime) -> Self {
        // A media type with a character that no header may have is left out.
        self.media_type = HeaderValue::from_str(media_type.as_ref()).ok();
        self
    }

    /// Sets the file name, by which servers tell files from other values.
    #[must_use]
    pub fn file_name<T: Into<Cow<'static, str>>>(mut self, file_name: T) -> Self {
        self.file_name = Some(file_name.into());
        self
    }

    /// Sets further headers of the part, in place of those that were set before. A `Content-Disposition` or a
    /// `Content-Type` among them replaces the part's own.
    #[must_use]
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// Writes the headers of the part, each with its line end.
    fn write_headers(&self, name: &str, encoding: NameEncoding, lines: &mut Vec<u8>) {
        if !self.headers.contains_key(CONTENT_DISPOSITION) {
            lines.extend_from_slice(b"Content-Disposition: form-data; ");
            lines.extend_from_slice(name_parameter(name, encoding).as_bytes());
            if let Some(file_name) = &self.file_name {
                lines.extend_from_slice(b"; ");
                lines.extend_from_slice(file_name_parameter(file_name).as_bytes());
            }
            lines.extend_from_slice(b"\r\n");
        }
        let own_type = self.media_type.as_ref().filter(|_| !self.headers.contains_key(CONTENT_TYPE));
        let own_type = own_type.map(|media_type| ("Content-Type", media_type));
        let others = self.headers.iter().map(|(name, value)| (name.as_str(), value));
        for (name, value) in own_type.into_iter().chain(others) {
            lines.extend_from_slice(name.as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(value.as_bytes());
            lines.extend_from_slice(b"\r\n");
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("body", &self.body)
            .field("file_name", &self.file_name)
            .field("media_type", &self.media_type)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// The encoding of the names of parts.
///
/// The two percent encodings differ in the names that they encode. A name that is encoded is written with
/// [`ATTR_CHARS`] in both: the value has no quotes, so a semicolon in it would begin the next parameter.
#[derive(Debug, Clone, Copy, Default)]
enum NameEncoding {
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
fn name_parameter(name: &str, encoding: NameEncoding) -> String {
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
fn file_name_parameter(file_name: &str) -> String {
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
    use std::collections::HashSet;

    use super::*;

    fn text(mut form: Form) -> String {
        form.boundary = "B".to_owned();
        String::from_utf8(form.into_body().as_bytes().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn a_form_is_written_part_by_part() {
        let form = Form::new().text("a", "1\n").part("b", Part::bytes(&[0x32][..]).file_name("b.bin"));
        assert_eq!(
            text(form),
            "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\n\r\n\
             --B\r\nContent-Disposition: form-data; name=\"b\"; filename=\"b.bin\"\r\n\r\n2\r\n--B--\r\n"
        );
        assert_eq!(text(Form::new()), "--B--\r\n");
    }

    #[test]
    fn names_can_be_percent_encoded() {
        let names = |form: Form| text(form.text("ü", "").text("x", "")).matches("name=").count();
        assert_eq!(names(Form::new()), 2);
        assert_eq!(names(Form::new().percent_encode_path_segment()), 1);
        assert_eq!(names(Form::new().percent_encode_attr_chars()), 1);
        assert_eq!(names(Form::new().percent_encode_attr_chars().percent_encode_noop()), 2);
    }

    #[test]
    fn boundaries_differ_and_need_no_quotes() {
        let boundaries: HashSet<_> = (0..1_000).map(|_| Form::new().boundary().to_owned()).collect();
        assert_eq!(boundaries.len(), 1_000);
        assert!(boundaries.iter().all(|text| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())));
    }

    #[test]
    fn debug_shows_no_values() {
        let shown = format!("{:?}", Form::new().text("password", "secret"));
        assert!(shown.contains("password") && shown.contains("6 bytes") && !shown.contains("secret"), "{shown}");
    }
}

#[cfg(test)]
mod escape_tests {
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

#[cfg(test)]
mod part_tests {
    use super::*;

    fn headers(part: &Part) -> String {
        let mut lines = Vec::new();
        part.write_headers("n", NameEncoding::default(), &mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn headers_are_written_in_order() {
        let mut more = HeaderMap::new();
        more.insert("x-id", HeaderValue::from_static("7"));
        let part = Part::text("x").file_name("a.png").mime_str("image/png").unwrap().headers(more.clone());
        assert_eq!(
            headers(&part),
            "Content-Disposition: form-data; name=\"n\"; filename=\"a.png\"\r\nContent-Type: image/png\r\nx-id: 7\r\n"
        );
        more.insert(CONTENT_TYPE, HeaderValue::from_static("a/b"));
        more.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
        assert_eq!(headers(&part.headers(more)), "x-id: 7\r\ncontent-type: a/b\r\ncontent-disposition: attachment\r\n");
    }

    #[test]
    fn a_media_type_that_would_add_a_header_is_refused() {
        for text in ["", "text", "a/b\r\nx: y", "a/b; c=\"\r\nx: y\"", "a/b; c=\"\n\"", "a/b\0", "a /b"] {
            let error = Part::text("x").mime_str(text).expect_err("refused");
            assert_eq!(error.to_string(), "the media type is not valid", "{text:?}");
        }
        assert_eq!(headers(&Part::text("x")), "Content-Disposition: form-data; name=\"n\"\r\n");
    }

    #[test]
    fn a_length_is_taken_from_the_body_or_given() {
        let pieces = || Body::wrap_stream(stream::iter([Ok::<_, Cause>("12345")]));
        assert_eq!(Part::stream(pieces()).body.content_length(), None);
        assert_eq!(Part::stream_with_length(pieces(), 5).body.content_length(), Some(5));
        assert_eq!(Part::stream_with_length("12345", 5).body.as_bytes(), Some(&b"12345"[..]));
        assert_eq!(Part::stream_with_length("12345", 6).body.content_length(), Some(6));
        assert_eq!(Part::bytes(vec![1, 2]).body.content_length(), Some(2));
    }
}
