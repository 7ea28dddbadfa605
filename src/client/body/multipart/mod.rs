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

mod escape;
mod part;

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};

use bytes::Bytes;
use futures_util::Stream;

pub use self::part::Part;

use self::escape::NameEncoding;
use super::Body;
use super::joined::Joiner;
use crate::error::{Error, Result};

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
