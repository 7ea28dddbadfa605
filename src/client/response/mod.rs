//! A response as its user reads it: the head at once, the body as it arrives. The body holds the connection until its
//! end.

pub(super) mod answer;
pub(super) mod call_data;
pub(super) mod http_messages;
pub(super) mod upgraded;

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use answer::AnswerContent;
use bytes::{Bytes, BytesMut};
use call_data::BoxedResponse;
use futures_util::Stream;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Extensions, HeaderMap, StatusCode, Version};
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use upgraded::{PendingUpgrade, Upgraded};
use url::Url;

use crate::error::{Error, KEPT_BODY_BYTES, Result};
use crate::redact::Query;
use crate::trace::{Timings, TimingsHandle, TlsFacts};
use crate::{clock, redact};

/// The most bytes that are allocated for a body before they arrive, whatever length its headers announce.
const MAX_PREALLOCATED: u64 = 1024 * 1024;

/// The longest wait for the start of an error response's body.
const START_TIMEOUT: Duration = Duration::from_secs(1);

/// The response to a request. Its connection serves other requests once the body was read to its end.
///
/// If the response is dropped before that, the rest of the body is read in the background, up to 64 KiB and for up to
/// 50 ms, and the connection is closed if more is left. Over HTTP/2 only the stream is closed, and with it the rest of
/// the request.
pub struct Response {
    pub(super) data: BoxedResponse,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status())
            .field("version", &self.version())
            .field("url", &redact::url(self.url().as_str(), Query::LeftOut))
            .finish_non_exhaustive()
    }
}

impl Response {
    /// Makes the response of a call that ends with it.
    pub(super) fn new(mut data: BoxedResponse) -> Self {
        data.finish();
        Self { data }
    }

    /// Returns the status code.
    pub fn status(&self) -> StatusCode {
        self.data.head.status
    }

    /// Returns the reason phrase as the server sent it (RFC 9112 §4), such as `Not Found`. `None` over HTTP/2, which has
    /// none, and if the phrase is empty or not ASCII.
    pub fn reason(&self) -> Option<&str> {
        // hyper keeps only a phrase that is not the usual one of the status.
        match self.data.head.extensions.get::<ReasonPhrase>() {
            Some(_) => self.own_reason(),
            None if self.version() < Version::HTTP_2 => self.status().canonical_reason(),
            None => None,
        }
    }

    /// Returns the server's reason phrase if it is not the usual one of the status.
    fn own_reason(&self) -> Option<&str> {
        let phrase = self.data.head.extensions.get::<ReasonPhrase>()?;
        str::from_utf8(phrase.as_bytes()).ok().filter(|phrase| !phrase.is_empty())
    }

    /// Returns the HTTP version of the response.
    pub fn version(&self) -> Version {
        self.data.head.version
    }

    /// Returns the headers. If the body is decompressed, `AnswerContent-Encoding` and `AnswerContent-Length` are not among them,
    /// because they describe the compressed form.
    pub fn headers(&self) -> &HeaderMap {
        &self.data.head.headers
    }

    /// Returns the headers, to change them: what was learned from them while the response arrived stays as it is.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.data.head.headers
    }

    /// Returns the URLs that redirected to this response, the first one first; empty if there was no redirect.
    pub fn redirects(&self) -> &[Url] {
        self.data.redirects()
    }

    /// Returns the URL that this response came from: the request's own, or the last one after redirects.
    pub fn url(&self) -> &Url {
        self.data.url()
    }

    /// Returns the length of the body in bytes; `None` if it is not announced, or if the body is decompressed.
    ///
    /// For a response to HEAD, and for a 304 (Not Modified), it is the `AnswerContent-Length` header: the length of the body that
    /// a GET would get (RFC 9110 §8.6). The response itself has no body.
    pub fn content_length(&self) -> Option<u64> {
        if self.data.answers_head || self.status() == StatusCode::NOT_MODIFIED {
            return announced_length(self.headers());
        }
        self.data.content.length()
    }

    /// Returns the address that the connection was opened to, the server's or the proxy's; `None` over a Unix domain
    /// socket.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.data.content.trace().remote_addr()
    }

    /// Returns the result of the connection's TLS handshake; `None` if the connection does not use TLS.
    pub fn tls(&self) -> Option<Arc<TlsFacts>> {
        self.data.content.trace().tls()
    }

    /// Returns the time spent in each phase of the call so far. Right after [`send`](crate::RequestBuilder::send) they
    /// end with the headers; after the body was read, with its last byte.
    pub fn timings(&self) -> Timings {
        self.data.content.trace().timings()
    }

    /// Returns a handle on the timings that outlives the response, and so sees the end of the body.
    pub fn timings_handle(&self) -> TimingsHandle {
        TimingsHandle::new(self.data.content.trace().clone())
    }

    /// Returns the trailers (RFC 9110 §6.5) once the body was read to its end; `None` before that, and if there are
    /// none.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.data.trailers.as_deref()
    }

    /// Returns the response, or an error if its status is from 400 to 599.
    ///
    /// # Errors
    /// [`ErrorKind::Status`](crate::ErrorKind::Status) from 400 to 599, with the [start of the body](Error::body_start)
    /// as far as it has arrived. The start of a body mostly arrives together with the headers, but not always:
    /// [`error_for_status_with_body`](Self::error_for_status_with_body) waits for it. The rest of the response is dropped.
    pub fn error_for_status(mut self) -> Result<Self> {
        if !self.has_error_status() {
            return Ok(self);
        }
        if !self.data.is_partly_read {
            self.data.content.read_arrived();
        }
        Err(self.status_error(self.data.content.start()))
    }

    /// Like [`error_for_status`](Self::error_for_status), for a borrowed response.
    ///
    /// # Errors
    /// [`ErrorKind::Status`](crate::ErrorKind::Status) from 400 to 599, with the [start of the body](Error::body_start) if
    /// it arrived together with the headers. The whole body can still be read.
    pub fn error_for_status_ref(&self) -> Result<&Self> {
        if !self.has_error_status() {
            return Ok(self);
        }
        Err(self.status_error(self.data.content.start()))
    }

    /// Like [`error_for_status`](Self::error_for_status), but waits for the start of the body of an error response: until
    /// 1 KiB has arrived, the body has ended or failed, or 1 s has passed.
    ///
    /// ```no_run
    /// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
    /// let response = client.get("http://api.example.com/v1/items").send().await?;
    /// let items = response.error_for_status_with_body().await?.text().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Status`](crate::ErrorKind::Status) from 400 to 599, with the [start of the body](Error::body_start). The
    /// rest of the response is dropped.
    pub async fn error_for_status_with_body(mut self) -> Result<Self> {
        if !self.has_error_status() {
            return Ok(self);
        }
        let start = self.read_start().await;
        Err(self.status_error(start))
    }

    /// Waits for the start of the body, for [`START_TIMEOUT`] at most. Returns what has arrived.
    async fn read_start(&mut self) -> Bytes {
        // The rest of a body is not its start. Outside of a runtime there are no timers.
        if self.data.is_partly_read || Handle::try_current().is_err() {
            return self.data.content.start();
        }
        let mut start = BytesMut::new();
        let until = clock::now().checked_add(START_TIMEOUT);
        while start.len() < KEPT_BODY_BYTES
            && let Some(Ok(Some(chunk))) = clock::before(until, pin!(self.chunk())).await
        {
            let missing = KEPT_BODY_BYTES - start.len();
            start.extend_from_slice(&chunk[..chunk.len().min(missing)]);
        }
        start.freeze()
    }

    fn has_error_status(&self) -> bool {
        self.status().is_client_error() || self.status().is_server_error()
    }

    /// Returns the error for the status. `start` is the beginning of the body.
    pub(super) fn status_error(&self, start: Bytes) -> Error {
        self.about(Error::from_status(self.status(), self.own_reason(), start))
    }

    /// Adds the URL and the timings of the call to an error.
    pub(super) fn about(&self, error: Error) -> Error {
        error.about(&self.data.context(), self.data.content.trace().timings())
    }

    /// Waits for the next piece of the body; `None` at its end. Dropping the future loses nothing.
    ///
    /// # Errors
    /// - [`ErrorKind::Body`](crate::ErrorKind::Body): the connection failed or closed before the end of the body.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode): the body is compressed and cannot be decompressed.
    /// - [`ErrorKind::Timeout`](crate::ErrorKind::Timeout): the call's timeout passed, or nothing arrived for the
    ///   [body idle timeout](crate::ClientBuilder::body_idle_timeout).
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        loop {
            match ready!(self.data.content.poll_frame(cx)).transpose() {
                Err(error) => return Poll::Ready(Err(self.about(error))),
                Ok(None) => return Poll::Ready(Ok(None)),
                Ok(Some(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => {
                        self.data.is_partly_read = true;
                        return Poll::Ready(Ok(Some(data)));
                    }
                    Err(other) => self.data.trailers = other.into_trailers().ok().map(Box::new),
                },
            }
        }
    }

    /// Returns the body as a stream of pieces. The stream ends after its first error.
    ///
    /// ```no_run
    /// # async fn run(response: speeddial::Response) -> speeddial::Result<()> {
    /// use futures_util::TryStreamExt;
    ///
    /// let mut pieces = response.bytes_stream();
    /// while let Some(piece) = pieces.try_next().await? {
    ///     println!("{} bytes", piece.len());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn bytes_stream(mut self) -> impl Stream<Item = Result<Bytes>> + Send + Unpin {
        let mut over = false;
        futures_util::stream::poll_fn(move |cx| {
            if over {
                return Poll::Ready(None);
            }
            let chunk = ready!(self.poll_chunk(cx)).transpose();
            over = !matches!(chunk, Some(Ok(_)));
            Poll::Ready(chunk)
        })
    }

    /// Writes the body to `writer` as it arrives, and flushes the writer. Returns the number of bytes. Holds one piece
    /// of the body in memory at a time.
    ///
    /// # Errors
    /// The errors of [`chunk`](Self::chunk), and [`ErrorKind::Body`](crate::ErrorKind::Body) if the writer fails.
    pub async fn copy_to<W: AsyncWrite + Unpin + ?Sized>(mut self, writer: &mut W) -> Result<u64> {
        let mut written = 0;
        while let Some(chunk) = self.chunk().await? {
            let wrote = writer.write_all(&chunk).await;
            wrote.map_err(|error| self.about(Error::writer(error)))?;
            written += chunk.len() as u64;
        }
        writer.flush().await.map_err(|error| self.about(Error::writer(error)))?;
        Ok(written)
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// The errors of [`chunk`](Self::chunk).
    pub async fn bytes(mut self) -> Result<Bytes> {
        self.collect(u64::MAX).await
    }

    /// Reads the whole body, of at most `limit` bytes.
    ///
    /// # Errors
    /// The errors of [`chunk`](Self::chunk), and [`ErrorKind::Body`](crate::ErrorKind::Body) if the body is longer. At most
    /// `limit` bytes are kept in memory.
    pub async fn bytes_with_limit(mut self, limit: u64) -> Result<Bytes> {
        self.collect(limit).await
    }

    /// Reads the body to its end.
    async fn collect(&mut self, limit: u64) -> Result<Bytes> {
        let expected = self.data.content.length().unwrap_or(0);
        self.check_length(expected, limit)?;
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        self.check_length(first.len() as u64, limit)?;
        if self.data.content.is_over() {
            return Ok(first); // most bodies of one piece end here
        }
        let Some(second) = self.chunk().await? else { return Ok(first) };
        let expected = expected.min(MAX_PREALLOCATED) as usize;
        let mut all = BytesMut::with_capacity(expected.max(first.len() + second.len()));
        all.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(chunk) = next {
            self.check_length((all.len() + chunk.len()) as u64, limit)?;
            all.extend_from_slice(&chunk);
            next = self.chunk().await?;
        }
        Ok(all.freeze())
    }

    fn check_length(&self, length: u64, limit: u64) -> Result<()> {
        if length > limit {
            return Err(self.about(Error::long_body(limit)));
        }
        Ok(())
    }

    /// Reads the whole body as JSON (feature `json`).
    ///
    /// # Errors
    /// The errors of [`chunk`](Self::chunk), and [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the body is no JSON of
    /// type `T`. The error names the place in the document and shows the start of the body.
    #[cfg(feature = "json")]
    pub async fn json<T: serde::de::DeserializeOwned>(mut self) -> Result<T> {
        let bytes = self.collect(u64::MAX).await?;
        let mut document = serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(&mut document).map_err(|error| {
            let path = error.path().to_string();
            Error::json(Some(path), error.into_inner(), &bytes)
        });
        let value = value.and_then(|value| match document.end() {
            Ok(()) => Ok(value),
            Err(error) => Err(Error::json(None, error, &bytes)),
        });
        value.map_err(|error| self.about(error))
    }

    /// Reads the whole body as text.
    ///
    /// The charset is that of a byte order mark (UTF-8 or UTF-16), which is not part of the text; otherwise that of the
    /// content type (feature `charset`); otherwise UTF-8. Invalid parts are replaced by U+FFFD.
    ///
    /// # Errors
    /// The errors of [`chunk`](Self::chunk).
    pub async fn text(mut self) -> Result<String> {
        let bytes = self.collect(u64::MAX).await?;
        Ok(decode(&bytes, &self.data.head.headers))
    }

    /// Like [`text`](Self::text), with another charset than UTF-8 for a body whose content type names none (feature
    /// `charset`). A charset that the WHATWG Encoding Standard does not know counts as UTF-8.
    ///
    /// # Errors
    /// The errors of [`chunk`](Self::chunk).
    #[cfg(feature = "charset")]
    pub async fn text_with_charset(mut self, default_encoding: &str) -> Result<String> {
        let bytes = self.collect(u64::MAX).await?;
        Ok(decode_with_default(&bytes, &self.data.head.headers, default_encoding))
    }

    /// Reads the first piece of an error response's body ahead, if it has come with the head, so that
    /// [`error_for_status_ref`](Self::error_for_status_ref) can show it.
    pub(super) fn read_ahead(&mut self) {
        if self.has_error_status()
            && let Some(reader) = self.data.content.reader()
        {
            reader.read_arrived();
        }
    }
}

/// Returns the length in the headers of a response without a body.
fn announced_length(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(TRANSFER_ENCODING) {
        return None; // It overrides the length (RFC 9112 §6.3).
    }
    let length = headers.get(CONTENT_LENGTH)?.to_str().ok()?;
    if length.starts_with('+') { None } else { length.parse().ok() }
}

impl Response {
    /// Returns the values that go along with the response: those of the request
    /// ([`RequestBuilder::extension`](crate::RequestBuilder::extension)), and what the client and its layers add.
    ///
    /// ```no_run
    /// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
    /// #[derive(Clone)]
    /// struct Tenant(u32);
    ///
    /// let response = client.get("http://api.example.com/v1/items").extension(Tenant(7)).send().await?;
    /// assert_eq!(response.extensions().get::<Tenant>().map(|tenant| tenant.0), Some(7));
    /// # Ok(()) }
    /// ```
    pub fn extensions(&self) -> &Extensions {
        &self.data.head.extensions
    }

    /// Returns the values that go along with the response, to change them.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.data.head.extensions
    }
}

impl Response {
    /// Calls `callback` for each piece of the body that is read, with the bytes received so far, the piece included, and
    /// the length of the body if it is announced. Replaces a callback that was set before.
    ///
    /// The bytes are those that the server sent: of a compressed body those before decompression, so that they can be
    /// compared with the length. With tower layers they are those that the layers pass on, decompressed; the length of a
    /// decompressed body is not known. An empty body has no pieces. The callback runs where the body is read, so it should be quick. If it panics, the panic is
    /// caught, the body can be read on, and the callback is not called again.
    ///
    /// ```no_run
    /// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
    /// let response = client.get("http://store.example/backup.tar").send().await?.error_for_status()?;
    /// let response = response.on_progress(|received, total| match total {
    ///     Some(total) => println!("{received} of {total} bytes"),
    ///     None => println!("{received} bytes"),
    /// });
    /// response.copy_to(&mut tokio::io::sink()).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn on_progress<F>(mut self, callback: F) -> Self
    where
        F: FnMut(u64, Option<u64>) + Send + 'static,
    {
        match &mut self.data.content {
            AnswerContent::Received(reader) => reader.on_progress(callback),
            AnswerContent::Replaced(body, _) => *body = std::mem::take(body).on_progress(callback),
        }
        self
    }
}

impl Response {
    /// Returns the byte stream of the protocol that the connection has switched to: after a 101 to a request with an `Upgrade`
    /// header (HTTP/1.1, RFC 9110 §7.8), or a 2xx to CONNECT (RFC 9110 §9.3.6; over HTTP/2 a 200, and RFC 8441 with
    /// [`protocol`](crate::RequestBuilder::protocol)).
    ///
    /// Any other response is an ordinary one, and means that the server declined: check the [status](Self::status) first. If an
    /// upgraded response is dropped instead, its connection closes. The [guide](crate::guide::upgrades) has more.
    ///
    /// # Errors
    /// [`ErrorKind::Upgrade`](crate::ErrorKind::Upgrade) if the response switches to no other protocol, if the
    /// connection failed, or if the server agreed before it had read the request's body, and the rest of that is not written
    /// within 60 s, or is not sent at all because the server did not ask for it
    /// ([`expect_continue`](crate::RequestBuilder::expect_continue)).
    pub async fn upgrade(mut self) -> Result<Upgraded> {
        let upgraded = match self.data.head.extensions.remove::<PendingUpgrade>() {
            Some(pending) => pending.take().await,
            None => Err(Error::no_upgrade(self.status())),
        };
        upgraded.map_err(|error| self.about(error))
    }
}

#[cfg(feature = "cookies")]
impl Response {
    /// Returns the cookies that the response sets (feature `cookies`), in the order of its `Set-Cookie` headers. Those that are not
    /// UTF-8 or have no name are left out. Whether the client's store has taken a cookie makes no difference.
    ///
    /// Responses that were redirects set cookies as well, which are in the client's store only.
    #[cfg_attr(docsrs, doc(cfg(feature = "cookies")))]
    pub fn cookies(&self) -> impl Iterator<Item = crate::cookie::Cookie<'_>> {
        self.headers().get_all(http::header::SET_COOKIE).iter().filter_map(crate::cookie::Cookie::parse)
    }
}

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
            label(&HeaderMap::from_iter([(http::header::CONTENT_TYPE, value)]))
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
