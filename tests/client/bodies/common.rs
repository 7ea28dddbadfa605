//! The server, the clients and the streams that the tests of bodies share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

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
    Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone()).build().unwrap()
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

/// A file in a folder of its own, which is removed with the value.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(content: impl AsRef<[u8]>) -> Self {
        Self::named("file", content)
    }

    pub(super) fn named(name: &str, content: impl AsRef<[u8]>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("speeddial-{}-bodies-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(name), content).unwrap();
        Self(folder.join(name))
    }

    /// Creates a file of zeros that take no room.
    pub(super) fn sparse(length: u64) -> Self {
        let scratch = Self::new("");
        std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(length).unwrap();
        scratch
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.parent().map(std::fs::remove_dir_all);
    }
}
