#![doc = include_str!("../README.md")]

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use http_body::{Body as HttpBodyTrait, Frame, SizeHint};
use opendal_core::raw::{parse_content_encoding, parse_content_length};
use opendal_core::{Buffer, ErrorKind, HttpBody, HttpTransport};
use speeddial::bytes::Bytes;
use speeddial::error::FailureClass;
use speeddial::http::{self, Method, Uri};
use speeddial::redact::{self, Query};
use speeddial::settings::RequestOptions;
use speeddial::{Body, Client, Error, Request, RetryPolicy};

/// The client under opendal 0.59, as the HTTP transport of its services.
///
/// All operators with a clone of it, or of the client, share one connection pool and one DNS cache. Without opendal's features
/// `http-transport-reqwest*` (take `default-features = false`), reqwest is not built. opendal 0.59 needs Rust 1.91.
///
/// `HttpTransporter::install_default(Http::new(client))` makes it the transport of all operators of the process. The first
/// transport that is installed wins; opendal's feature `auto-register-services` installs its own before `main` if it has one.
///
/// # Retries
/// opendal retries if the operator has its `RetryLayer`. The client's [`RetryPolicy`] does not apply to these
/// requests, because the attempts of both would multiply. [Resends that are always safe](speeddial::Client::execute) are made all the same:
/// a connection that the server closes between two requests is not an error. A buffer of several pieces can be resent like any other.
/// A write with a condition (`if_not_exists`, `if_match`) is resent only if the server did nothing about it: the second copy could fail
/// because of the first one.
///
/// Errors have the kind `ConfigInvalid` if the request or the client's settings are not valid, and `Unexpected` otherwise. They
/// are temporary, so that `RetryLayer` retries them, if no connection could be opened, if it broke, or if a time limit passed;
/// not if the next attempt would fail for the same reason, such as a refused certificate, a refused redirect or a body longer
/// than [`max_body_size`](speeddial::ClientBuilder::max_body_size), or if the answer is not HTTP. A body with another length than
/// its `Content-Length` is an error, as with opendal's own transports.
///
/// # Settings
/// The time limits, default headers, proxies and the redirect policy are the client's. By default up to 10 redirects are followed,
/// as by opendal's transport over reqwest, and credentials are not sent to another origin. Decompression is off, because opendal
/// takes the size of an object from `Content-Length`.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
}

impl Http {
    /// Creates a transport that sends requests with `client`. Clones of the client share its connections.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl HttpTransport for Http {
    async fn fetch(&self, message: http::Request<Buffer>) -> opendal_core::Result<http::Response<HttpBody>> {
        let (mut head, buffer) = message.into_parts();
        // For errors: opendal's own name the URL by the extension.
        let uri: Uri = redact::url(&head.uri.to_string(), Query::Names).parse().unwrap_or_default();
        let answers_head = head.method == Method::HEAD;
        let failed = |error| failed("send http request", "speeddial::send", &uri, error);
        // opendal retries by itself, and takes the size of an object from `Content-Length`.
        head.extensions.insert(RequestOptions::new().retry(RetryPolicy::none()).decompress(false));
        // Path and query are sent as they are written, because opendal has signed them.
        let message = http::Request::from_parts(head, outgoing(buffer));
        let request = Request::try_from(message).map_err(failed)?;
        let response = self.client.execute(request).await.map_err(failed)?;
        let (mut head, body) = http::Response::<Body>::from(response).into_parts();
        // The length of a coded body is another one than that of the object, and a HEAD has no body.
        let has_length = !answers_head && parse_content_encoding(&head.headers)?.is_none();
        let length = if has_length { parse_content_length(&head.headers)? } else { None };
        head.extensions.insert(uri.clone());
        let body = HttpBody::new(Pieces { body, uri }, length);
        Ok(http::Response::from_parts(head, body))
    }
}

/// Returns the body to be sent, which can be sent again.
fn outgoing(buffer: Buffer) -> Body {
    if buffer.is_empty() {
        return Body::default();
    }
    let piece = buffer.current();
    if piece.len() == buffer.len() {
        return piece.into();
    }
    let body = BufferBody(buffer);
    Body::replayable(body.size_hint().exact(), move || body.clone())
}

/// The body of a request.
#[derive(Clone)]
struct BufferBody(Buffer);

impl HttpBodyTrait for BufferBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Iterator::next(&mut self.0).map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// The body of a response, piece by piece.
struct Pieces {
    body: Body,
    uri: Uri,
}

impl Stream for Pieces {
    type Item = opendal_core::Result<Buffer>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<opendal_core::Result<Buffer>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    let failed = failed("read data from http response", "speeddial::read", &self.uri, error);
                    return Poll::Ready(Some(Err(failed)));
                }
                None => return Poll::Ready(None),
            };
            match frame.into_data() {
                // opendal takes an empty piece for the end.
                Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data.into()))),
                _ => {}
            }
        }
    }
}

/// Returns opendal's error.
fn failed(what: &str, operation: &'static str, uri: &Uri, error: Error) -> opendal_core::Error {
    let kind = if error.is_builder() { ErrorKind::ConfigInvalid } else { ErrorKind::Unexpected };
    let is_temporary = matches!(
        error.class(),
        FailureClass::NotConnected | FailureClass::Unprocessed | FailureClass::TimedOut | FailureClass::Interrupted
    );
    opendal_core::Error::new(kind, what)
        .with_operation(operation)
        .with_context("url", uri.to_string())
        .with_temporary(is_temporary)
        .set_source(error.without_url())
}
