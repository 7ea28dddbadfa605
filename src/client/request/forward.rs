//! Requests and responses that a gateway passes on (RFC 9110 §7.6).

use bytes::Bytes;
use http::header::{CONNECTION, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, Method, Uri, Version};

use crate::client::body::Body;
use crate::client::handle::Client;
use crate::client::policy::redirect;
use crate::client::request::builder::RequestBuilder;
use crate::client::response::Response;
use crate::error::Error;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The headers that are about one connection, beside those that `Connection` names.
const OF_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

impl RequestBuilder {
    /// Creates a builder that passes on a request which a server has received, as a gateway does.
    ///
    /// The request keeps its path and query, and is sent to the client's [base URL](crate::ClientBuilder::base_url), whatever host its
    /// peer named. The headers about the peer's connection are removed (RFC 9110 §7.6.1: `Connection` and the headers that it names,
    /// `Keep-Alive`, `Proxy-Connection`, `Proxy-Authenticate`, `Proxy-Authorization`, `TE`, `Transfer-Encoding`, `Upgrade`), and so is
    /// `Host`. So an upgrade is not passed on. The body is streamed, with its length if that is known, and with its trailers. A redirect
    /// is the response, and bodies are left as the server sends them. `Via` and `X-Forwarded-For` are for the caller to add.
    ///
    /// # Errors
    /// [`send`](Self::send) refuses a CONNECT, and any request if the client has no base.
    ///
    /// [`Response::forward`] passes the response on; the guide [gateways](crate::guide::gateways) has both.
    pub fn forward<B>(client: Client, message: http::Request<B>) -> Self
    where
        B: http_body::Body<Data: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        let (mut head, body) = message.into_parts();
        if head.method == Method::CONNECT {
            let refused = Error::refused_request("a CONNECT asks for a tunnel, and cannot be passed on as a request");
            return Self { client, request: Err(refused.with_method(head.method)) };
        }
        // The host in it is the peer's to choose: over HTTP/2 and in absolute form there always is one.
        head.uri = head.uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from);
        remove_those_of_connection(&mut head.headers);
        head.headers.remove(HOST);
        // The version was that of the other connection.
        head.version = Version::default();
        let message = http::Request::from_parts(head, Body::wrap(body));
        Self::from_http(client, message).redirect(redirect::Policy::none()).decompress(false)
    }
}

impl Response {
    /// Converts into a response to the request that was [passed on](RequestBuilder::forward): without the headers that are about
    /// the connection to the server. The body holds that connection until its end.
    pub fn forward(self) -> http::Response<Body> {
        let mut message = http::Response::from(self);
        remove_those_of_connection(message.headers_mut());
        // The server of the program sends it by the version of its own connection.
        *message.version_mut() = Version::default();
        message
    }
}

fn remove_those_of_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in OF_CONNECTION.iter().chain(&named) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_about_the_connection_are_removed_and_those_that_it_names() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("connection", "x-other,,\t x y"),
            ("x-hop", "1"),
            ("x-other", "1"),
            ("x-kept", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("content-length", "5"),
        ] {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        remove_those_of_connection(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "x-kept"]);
    }
}
