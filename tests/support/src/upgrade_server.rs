//! A server on loopback that switches to other protocols: after an `Upgrade` over HTTP/1.1, after a CONNECT, and after an extended
//! CONNECT over HTTP/2 (RFC 8441). It runs in the test's own runtime.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use super::full;
use super::http_server::{ServerBody, describe};
use super::process::accept;

/// The stream of another protocol, as the server has it.
pub type ServerStream = TokioIo<hyper::upgrade::Upgraded>;

/// The way to the server's HTTP.
#[derive(Clone)]
pub enum Over {
    /// HTTP/1.1 without TLS.
    Http1,
    /// HTTP/2 without TLS, by prior knowledge.
    Http2,
    /// HTTP/2 without TLS, whose settings do not allow extended CONNECT.
    Http2WithoutExtendedConnect,
    /// TLS; the protocol by ALPN.
    #[cfg(feature = "tls-servers")]
    Tls(Arc<rustls::ServerConfig>),
}

/// The server. It stops with the test's runtime.
pub struct UpgradeServer {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl UpgradeServer {
    /// Starts a server that answers with `respond`. If the answer switches to another protocol, `serve` gets the stream.
    pub async fn start<R, S, F>(over: Over, respond: R, serve: S) -> Self
    where
        R: Fn(&Request<Incoming>) -> Response<ServerBody> + Send + Sync + 'static,
        S: Fn(ServerStream) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let serve = move |stream| -> BoxFuture<'static, ()> { Box::pin(serve(stream)) };
        Self::start_with(over, Connection { respond: Arc::new(respond), serve: Arc::new(serve) }).await
    }

    async fn start_with(over: Over, connection: Connection) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = accepted.clone();
        tokio::spawn(async move {
            loop {
                let socket = accept(&listener).await;
                counter.fetch_add(1, Ordering::SeqCst);
                let _ = socket.set_nodelay(true);
                let connection = connection.clone();
                let over = over.clone();
                tokio::spawn(async move {
                    match over {
                        Over::Http1 => connection.serve(socket, false, false).await,
                        Over::Http2 => connection.serve(socket, true, true).await,
                        Over::Http2WithoutExtendedConnect => connection.serve(socket, true, false).await,
                        #[cfg(feature = "tls-servers")]
                        Over::Tls(config) => {
                            let Ok(stream) = tokio_rustls::TlsAcceptor::from(config).accept(socket).await else {
                                return;
                            };
                            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                            connection.serve(stream, is_http2, true).await;
                        }
                    }
                });
            }
        });
        Self { address, accepted }
    }

    /// Starts a server that agrees to every request to switch, and sends back what it gets. A path `/refuse` is answered with a 426
    /// and `/to/PATH` with a redirect to `/PATH`. Other requests are [described](describe).
    pub async fn echo(over: Over) -> Self {
        Self::start(over, agree, echo).await
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connections that the server accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Answers a request as [`UpgradeServer::echo`] does, with the agreement to switch.
pub fn agree<B>(request: &Request<B>) -> Response<ServerBody> {
    let mut response = Response::new(full(""));
    if request.uri().path() == "/refuse" {
        *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
        response.headers_mut().insert("upgrade", "another".parse().unwrap());
        *response.body_mut() = full("use another protocol");
    } else if let Some(path) = request.uri().path().strip_prefix("/to/") {
        *response.status_mut() = StatusCode::FOUND;
        response.headers_mut().insert("location", format!("/{path}").parse().unwrap());
    } else if let Some(protocol) = request.headers().get("upgrade") {
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert("upgrade", protocol.clone());
        response.headers_mut().insert("connection", "upgrade".parse().unwrap());
    }
    response
}

/// Sends back what comes, until its end.
pub async fn echo(stream: ServerStream) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let _ = tokio::io::copy(&mut reader, &mut writer).await;
    let _ = writer.shutdown().await;
}

/// Answers a request.
type Respond = dyn Fn(&Request<Incoming>) -> Response<ServerBody> + Send + Sync;

/// What a connection does, of any type: the code of the server is compiled once, and not for each test.
#[derive(Clone)]
struct Connection {
    respond: Arc<Respond>,
    serve: Arc<dyn Fn(ServerStream) -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Connection {
    /// Speaks HTTP on a stream.
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, http2: bool, extended: bool) {
        let service = service_fn(move |mut request: Request<Incoming>| {
            let Self { respond, serve } = self.clone();
            async move {
                let response = respond(&request);
                let is_connect = request.method() == Method::CONNECT && response.status().is_success();
                if is_connect || response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    let switch = hyper::upgrade::on(&mut request);
                    tokio::spawn(async move {
                        if let Ok(stream) = switch.await {
                            serve(TokioIo::new(stream)).await;
                        }
                    });
                    return Ok::<_, Infallible>(response);
                }
                let is_plain = response.status() == StatusCode::OK;
                Ok(if is_plain { describe(request).await } else { response })
            }
        });
        let stream = TokioIo::new(stream);
        if http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            if extended {
                builder.enable_connect_protocol();
            }
            let _ = builder.serve_connection(stream, service).await;
        } else {
            let _ = http1::Builder::new().serve_connection(stream, service).with_upgrades().await;
        }
    }
}
