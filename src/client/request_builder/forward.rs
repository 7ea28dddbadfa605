//! Requests and responses that a gateway passes on (RFC 9110 §7.6).

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Uri, Version};

use crate::client::body::Body;
use crate::client::handle::Client;
use crate::client::policy::{framing, redirect};
use crate::client::request::options::RequestOptions;
use crate::client::request_builder::RequestBuilder;
use crate::client::response::{Response, http_messages};
use crate::error::{Cause, Error, Result};

impl RequestBuilder {
    /// Creates a builder that passes on a request which a server has received, as a gateway does.
    ///
    /// The request keeps its path and query byte for byte, and is sent to the client's [base URL](crate::ClientBuilder::base_url),
    /// whatever host its peer named. `OPTIONS *` stays what it is. The headers about the peer's connection are removed (RFC 9110 §7.6.1:
    /// `Connection` and the headers that it names, `Keep-Alive`, `Proxy-Connection`, `Proxy-Authenticate`, `Proxy-Authorization`, `TE`,
    /// `Transfer-Encoding`, `Upgrade`), and so is `Host`. So an upgrade is not passed on. `TE: trailers` is sent anew. `Connection` cannot
    /// remove what gateways say: `Forwarded`, `Via`, `X-Forwarded-…` and `X-Real-IP`. Add headers of your own to the builder that this
    /// returns, because those that are in the message before can be named by the peer. `Cookie` headers are joined to one.
    ///
    /// The body is streamed, with its length if that is known, and with its trailers, from which the same fields are removed. If it is
    /// hyper's [`Incoming`](hyper::body::Incoming), a body that its peer cut off is cut off for the upstream as well. A redirect is the
    /// response, and bodies are left as the server sends them. The client's cookie store takes no part. `Via` and `X-Forwarded-For` are
    /// for the caller to add.
    ///
    /// # Errors
    /// [`send`](Self::send) refuses a CONNECT, and any request if the client has no base. A TRACE or an OPTIONS with `Max-Forwards: 0` is
    /// for the gateway itself to answer (RFC 9110 §7.6.2):
    /// [`ErrorDetail::LastForward`](crate::error::ErrorDetail::LastForward). A request with a transfer coding other than `chunked` is for
    /// the gateway to refuse with a 501 (RFC 9112 §6.1):
    /// [`ErrorDetail::TransferCoding`](crate::error::ErrorDetail::TransferCoding).
    ///
    /// [`Response::forward`] passes the response on; the guide [gateways](crate::guide::gateways) has both.
    pub fn forward<B>(client: Client, message: http::Request<B>) -> Self
    where
        B: http_body::Body<Data: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        let (mut head, body) = message.into_parts();
        if let Err(refused) = admit(&mut head) {
            return Self { client, request: Err(refused.with_method(head.method)) };
        }
        // The host in it is the peer's to choose: over HTTP/2 and in absolute form there always is one.
        head.uri = head.uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from);
        let fields = framing::pass_on(&mut head.headers);
        let mut body = Body::received(body, head.version);
        body.leave_connection(fields);
        // The version was that of the other connection.
        head.version = Version::default();
        let message = http::Request::from_parts(head, body);
        let request = Self::from_http(client, message).redirect(redirect::Policy::none()).decompress(false);
        request.set(RequestOptions::passed_on)
    }
}

/// Refuses a request that cannot be passed on, and counts down how often it may be.
fn admit(head: &mut Parts) -> Result<()> {
    if head.method == Method::CONNECT {
        return Err(Error::refused_request("a CONNECT asks for a tunnel, and cannot be passed on as a request"));
    }
    if framing::has_other_coding(&head.headers) {
        return Err(Error::coded_request());
    }
    if !framing::count_forward(&head.method, &mut head.headers) {
        return Err(Error::last_forward());
    }
    Ok(())
}

impl Response {
    /// Converts into a response to the request that was [passed on](RequestBuilder::forward): without the headers that are about
    /// the connection to the server, without trailers of these names, and without a `Content-Length` that is not the body's. One that the
    /// server repeated is written once. The body holds that connection until its end.
    pub fn forward(self) -> http::Response<Body> {
        let mut message = http::Response::from(self);
        http_messages::leave_connection(&mut message);
        framing::write_length_once(message.headers_mut());
        // The server of the program sends it by the version of its own connection.
        *message.version_mut() = Version::default();
        message
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;
    use http_body_util::{BodyExt, Empty};

    use super::*;
    use crate::error::ErrorDetail;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let mut fields = HeaderMap::new();
        fields.extend(lines.collect::<Vec<(http::HeaderName, http::HeaderValue)>>());
        fields
    }

    /// Returns a body that ends with trailers, some of them about a connection.
    fn body(last: &'static str) -> impl http_body::Body<Data = Bytes, Error = Error> + Send + 'static {
        let trailers = fields(&[
            ("x-sum", "7"),
            ("x-hop", "1"),
            ("connection", "x"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "gzip"),
            ("upgrade", "x"),
            ("te", "gzip"),
        ]);
        Body::from(last).map_err(|error| error).with_trailers(std::future::ready(Some(Ok(trailers))))
    }

    fn client() -> Client {
        Client::builder().no_proxy().base_url("http://upstream.test/").build().unwrap()
    }

    async fn read(body: Body) -> (Bytes, HeaderMap) {
        let all = body.collect().await.unwrap();
        let trailers = all.trailers().cloned().unwrap_or_default();
        (all.to_bytes(), trailers)
    }

    #[tokio::test]
    async fn trailers_about_a_connection_and_those_that_it_names_stay_on_it() {
        let kept = fields(&[("x-sum", "7")]);
        for content in ["", "hello"] {
            let message = http::Request::post("/x").header("connection", "close, x-hop").body(body(content)).unwrap();
            let mut request = RequestBuilder::forward(client(), message).build().unwrap();
            let body_of_request = std::mem::take(request.body_mut()).unwrap_or_default();
            assert_eq!(read(body_of_request).await, (content.into(), kept.clone()));
            let response = || {
                let message = http::Response::builder().header("connection", "x-hop");
                Response::from(message.body(Body::wrap(body(content))).unwrap())
            };
            assert_eq!(read(response().forward().into_body()).await, (content.into(), kept.clone()));
            assert_eq!(read(Body::from(response())).await, (content.into(), kept.clone()));
        }
    }

    #[tokio::test]
    async fn the_last_piece_of_a_body_that_is_passed_on_waits_for_the_trailers_that_cannot_be_sent() {
        let late = async {
            tokio::task::yield_now().await;
            Some(Ok::<_, Error>(fields(&[("x-sum", "7")])))
        };
        let message = http::Request::post("/x").header("content-length", "5");
        let message = message.body(Body::from("hello").map_err(|error| error).with_trailers(late)).unwrap();
        let mut request = RequestBuilder::forward(client(), message).build().unwrap();
        let mut body = std::mem::take(request.body_mut()).unwrap_or_default();
        body.restrict_trailers(|| framing::Sendable::Announced(Vec::new()));
        assert!(body.frame().await.unwrap().is_err());
    }

    #[test]
    fn a_request_with_a_transfer_coding_that_is_not_taken_off_is_refused() {
        for (codings, is_refused) in [
            (&["chunked"][..], false),
            (&["Chunked, , chunked"], false),
            (&["identity"], false),
            (&["gzip, chunked"], true),
            (&["gzip"], true),
            (&["chunked", "deflate"], true),
        ] {
            let mut message = http::Request::post("/x");
            for coding in codings {
                message = message.header("transfer-encoding", *coding);
            }
            let built = RequestBuilder::forward(client(), message.body(Empty::<Bytes>::new()).unwrap()).build();
            assert_eq!(built.is_err(), is_refused, "{codings:?}");
            if let Err(error) = built {
                assert_eq!((error.detail(), error.is_builder()), (Some(ErrorDetail::TransferCoding), true));
            }
        }
    }

    #[test]
    fn a_length_that_is_repeated_is_passed_on_once_or_left_out() {
        for (lengths, sent) in [
            (&["5"][..], Some("5")),
            (&["5, 5"], Some("5")),
            (&["5", "5,05"], Some("5")),
            (&["5", "6"], None),
            (&["5,"], None),
            (&["+5"], None),
            (&[""], None),
            (&[], None),
        ] {
            let mut message = http::Response::builder();
            for length in lengths {
                message = message.header("content-length", *length);
            }
            let forwarded = Response::from(message.body(Body::default()).unwrap()).forward();
            let left: Vec<_> = forwarded.headers().get_all("content-length").iter().collect();
            assert_eq!(left, sent.as_slice(), "{lengths:?}");
        }
    }
}
