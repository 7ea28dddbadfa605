//! The failure of a call as a value, for programs that decide by it.

use std::net::IpAddr;
use std::time::Duration;

use http::StatusCode;

use crate::dns::ResolveErrorKind;
#[cfg(feature = "__tls")]
use crate::tls::CertificateProblem;
use crate::trace::Limit;

/// The failure of a call, where more is known than its [kind](crate::ErrorKind): [`Error::detail`](crate::Error::detail).
///
/// ```
/// use speeddial::dns::ResolveErrorKind;
/// use speeddial::error::ErrorDetail;
///
/// fn page(error: &speeddial::Error) -> &'static str {
///     match error.detail() {
///         Some(ErrorDetail::Deadline(_) | ErrorDetail::TimeLimit(_)) => "It takes too long.",
///         Some(ErrorDetail::Lookup(ResolveErrorKind::NxDomain)) => "There is no such host.",
///         Some(ErrorDetail::BodyTooLong { .. }) => "The answer is too long.",
///         _ => "It failed.",
///     }
/// }
/// # let error = speeddial::Client::new().get("no url").build().unwrap_err();
/// # assert_eq!(page(&error), "It failed.");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorDetail {
    /// The call took longer than this, its [`timeout`](crate::RequestBuilder::timeout).
    Deadline(Duration),
    /// A part of the call took longer than this. The kind names the phase.
    TimeLimit(Duration),
    /// The request got no connection because of this limit: the queue was full, or no connection became free in time.
    Limit(Limit),
    /// The lookup of the host's, or the proxy's, addresses failed so.
    Lookup(ResolveErrorKind),
    /// The client may not connect to this address, the only one or one of several.
    AddressDenied(IpAddr),
    /// The server's certificate was refused, for this reason.
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    Certificate(CertificateProblem),
    /// The server rejected the client's certificate, or the lack of one.
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    ClientCertificate,
    /// The peer does not speak TLS.
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    NotTls,
    /// The proxy did not connect to the origin. Holds the status of its answer; `None` for a SOCKS5 proxy, and for an answer that is no
    /// response.
    ProxyRefused(Option<StatusCode>),
    /// The connection closed before the request was sent.
    ClosedBeforeSend,
    /// The request's own body, which the program gave, failed.
    RequestBody,
    /// A redirect was not followed, because so many had been followed before it, or it led back to where the call had been.
    TooManyRedirects(usize),
    /// The response's body is longer than this many bytes, its limit.
    BodyTooLong {
        /// The limit in bytes.
        limit: u64,
    },
    /// The response's body ended too early.
    BodyBrokeOff {
        /// The bytes that had arrived.
        received: u64,
        /// The length that the server had announced.
        announced: Option<u64>,
    },
    /// The request may be passed on no further (`Max-Forwards: 0`), and the gateway is to answer it:
    /// [`RequestBuilder::forward`](crate::RequestBuilder::forward).
    LastForward,
    /// The request given to [`RequestBuilder::forward`](crate::RequestBuilder::forward), or the server's response, has a transfer coding
    /// other than `chunked`, such as `Transfer-Encoding: gzip, chunked`. The client decodes `chunked` alone. A gateway answers a
    /// request with a 501 (RFC 9112 §6.1), for which the kind is [`ErrorKind::Request`](crate::ErrorKind::Request), and with a 502 in
    /// place of a response.
    TransferCoding,
    /// The writer that the response's body is copied to failed.
    Writer,
    /// The token source has no token.
    NoToken,
}
