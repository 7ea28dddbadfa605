//! The server, the clients and the streams that the tests of bodies share.

use futures_util::stream;
use http_body_util::BodyExt;
use speeddial::Client;
use speeddial::dns::FixedResolver;
use tokio::io::DuplexStream;

use support::http_server::HttpServer;
use support::scripted_net::ScriptedNet;
use support::{full, read_request_head, v4};

/// The URL that [`client_over`] finds on its network.
pub(super) const URL: &str = "http://api.test/";

/// Returns a client over a network in memory.
pub(super) fn client_over(net: &ScriptedNet) -> Client {
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    Client::builder().no_proxy().resolver(resolver).transport(net.clone()).build().unwrap()
}

/// Reads the head of a request. Returns false if the client closed instead.
pub(super) async fn request(stream: &mut DuplexStream) -> bool {
    read_request_head(stream).await.is_some()
}

/// Starts a server that answers with the request's framing, body and trailers, as text.
pub(super) fn body_mirror(http2: bool) -> HttpServer {
    HttpServer::start_as(http2, |request: hyper::Request<hyper::body::Incoming>| async move {
        let (head, body) = request.into_parts();
        let named = |name: &str| head.headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
        let framing = format!("{:?} {} {}", head.version, named("content-length"), named("transfer-encoding"));
        let description = match body.collect().await {
            Ok(all) => {
                let trailers = all.trailers().map(|trailers| format!("{trailers:?}")).unwrap_or_default();
                format!("{framing} {} {trailers}", String::from_utf8(all.to_bytes().to_vec()).unwrap())
            }
            Err(error) => format!("{framing} failed: {error}"),
        };
        hyper::Response::new(full(description))
    })
    .unwrap()
}

/// Returns a client for HTTP/1.1 and one for HTTP/2, each with `true` for HTTP/2.
pub(super) fn clients() -> [(bool, Client); 2] {
    let builder = || Client::builder().no_proxy();
    [(false, builder().build().unwrap()), (true, builder().http2_prior_knowledge().build().unwrap())]
}

/// The pieces of a body stream.
pub(super) type Pieces = Vec<Result<&'static str, std::io::Error>>;

/// Returns a stream of these pieces, without errors.
pub(super) fn pieces(
    pieces: &[&'static str],
) -> stream::Iter<std::vec::IntoIter<Result<&'static str, std::io::Error>>> {
    stream::iter(pieces.iter().map(|piece| Ok(*piece)).collect::<Pieces>())
}
