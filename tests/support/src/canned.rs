//! A connection that answers by itself, without a server: a measurement over it counts only the client's work.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use speeddial::dns::FixedResolver;
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::url::Url;
use speeddial::{Client, ClientBuilder, RequestBuilder};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok";

/// The headers of a request of one service to another.
pub const HEADERS: [(&str, &str); 8] = [
    ("accept", "application/json"),
    (
        "authorization",
        "Bearer 2YotnFZFEjr1zCsicMWpAA.0af7651916cd43dd8448eb211c80319c.b7ad6b7169203331b7ad6b7169203331",
    ),
    ("content-type", "application/json"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("user-agent", "items/1.0"),
    ("x-api-version", "2"),
    ("x-request-id", "0af7651916cd43dd8448eb211c80319c"),
    ("x-tenant", "42"),
];

/// A stream that answers each write with the same response.
pub struct Canned {
    response: &'static [u8],
    answer: &'static [u8],
    reader: Option<Waker>,
}

impl Canned {
    /// Returns a stream that answers each write with these bytes.
    pub fn answering(response: &'static [u8]) -> Self {
        Self { response, answer: &[], reader: None }
    }
}

impl Default for Canned {
    fn default() -> Self {
        Self::answering(ANSWER)
    }
}

impl AsyncRead for Canned {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.answer.is_empty() {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (now, later) = self.answer.split_at(self.answer.len().min(buf.remaining()));
        buf.put_slice(now);
        self.answer = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Canned {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.answer = self.response;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct Everywhere;

impl Transport for Everywhere {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(std::future::ready(Ok(Box::new(Canned::default()) as Box<dyn Stream>)))
    }
}

/// Returns the builder of a client whose connections all answer by themselves.
pub fn builder() -> ClientBuilder {
    let names = FixedResolver::new().with("api.test", [[192, 0, 2, 1].into()]);
    plain().dns_resolver(names).transport(Everywhere)
}

/// Returns the builder of a client whose instructions are the same in each run.
pub fn plain() -> ClientBuilder {
    let builder = Client::builder().no_proxy();
    // valgrind counts all threads, and the number of instructions that collect entropy varies.
    #[cfg(feature = "__tls")]
    let builder = builder.tls(speeddial::tls::TlsConfig::new().prepare_in_background(false));
    // Without decompression the request has the same headers whatever features are on.
    builder.decompress(speeddial::settings::Decompression::none())
}

/// A URL that the canned connections answer for.
pub const URL: &str = "http://api.test/v1/items";

/// Returns the same, parsed.
pub fn url() -> Url {
    Url::parse(URL).expect("a URL")
}

/// Makes one GET and checks the response.
pub async fn get(client: &Client, url: &Url) {
    send(client.get(url)).await;
}

/// Sends a request and checks the response.
pub async fn send(request: RequestBuilder) {
    let response = request.send().await.expect("a response");
    assert_eq!(response.bytes().await.expect("a body"), "ok");
}
