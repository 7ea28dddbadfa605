//! One part of a form.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::Path;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use mime_guess::Mime;

use super::escape::{NameEncoding, file_name_parameter, name_parameter};
use crate::client::body::Body;
use crate::error::{Cause, Error, Result};

/// A part of a [`Form`](super::Form): a value, and possibly a file name, a media type and further headers.
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
    pub(super) body: Body,
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
    pub(super) fn write_headers(&self, name: &str, encoding: NameEncoding, lines: &mut Vec<u8>) {
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

#[cfg(test)]
mod tests {
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
