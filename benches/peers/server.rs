//! The server of the benches: in a thread of its own, or in another process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{NAME, Setup};
use support::certs::Authority;

/// The listen backlog: the most that Linux allows by default.
const BACKLOG: i32 = 4_096;

/// The address of a server, and the authority that signed its certificate. The server runs until the process ends.
#[derive(Clone)]
pub(crate) struct Server {
    address: SocketAddr,
    authority: Option<Arc<Authority>>,
}

impl Server {
    /// Starts a server that expects `up` bytes in a request's body and answers with `down` bytes.
    pub(crate) fn start(setup: Setup, up: usize, down: usize) -> Self {
        let authority = setup.secure.then(|| Arc::new(Authority::new()));
        let tls = authority.as_ref().map(|authority| {
            let alpn = if setup.http2 { "h2" } else { "http/1.1" };
            let mut config = rustls::ServerConfig::clone(&authority.server(&[NAME], &[alpn]));
            if setup.no_tickets {
                config.send_tls13_tickets = 0;
                config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
            }
            TlsAcceptor::from(Arc::new(config))
        });
        let listener = listen().expect("a port on loopback");
        let address = listener.local_addr().expect("a bound socket");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(accept(listener, tls, setup, up, down))
        });
        Self { address, authority }
    }

    /// Returns a server that another process has started, without TLS.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, authority: None }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, name: &str) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{name}:{}/", self.address.port())
    }

    /// Returns the certificate of the authority that signed the server's certificate.
    pub(crate) fn authority_pem(&self) -> String {
        self.authority.as_ref().expect("a server with TLS").pem()
    }

    /// Returns a configuration for a client that trusts the server, with a session cache of its own.
    pub(crate) fn client_tls(&self, alpn: &[&str]) -> Option<Arc<rustls::ClientConfig>> {
        let mut config = self.authority.as_ref()?.client();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Some(Arc::new(config))
    }
}

fn listen() -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

async fn accept(listener: std::net::TcpListener, tls: Option<TlsAcceptor>, setup: Setup, up: usize, down: usize) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            // Out of descriptors: other connections are being closed.
            tokio::task::yield_now().await;
            continue;
        };
        let _ = socket.set_nodelay(true);
        // Without a reset, closed connections would stay in TIME_WAIT for minutes, and no ports would be left.
        let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
        let tls = tls.clone();
        tokio::spawn(async move {
            match tls {
                Some(tls) => {
                    if let Ok(stream) = tls.accept(socket).await {
                        serve(stream, setup, up, down).await;
                    }
                }
                None => serve(socket, setup, up, down).await,
            }
        });
    }
}

async fn serve<S>(stream: S, setup: Setup, up: usize, down: usize)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    static BODY: &[u8] = &[b'x'; 1 << 20];
    let answer = move |request: Request<Incoming>| async move {
        let came = request.into_body().collect().await?.to_bytes().len();
        assert_eq!(came, up);
        Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from_static(&BODY[..down]))))
    };
    // A failed connection shows as an error of the client.
    if setup.cold {
        let _ = serve_simply(stream, down).await;
    } else if setup.http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams(2_000);
        let _ = builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
    } else {
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
    }
}

/// Answers GETs without a server library, to spend as little time as possible in the server.
async fn serve_simply<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, down: usize) -> io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {down}\r\n\r\n");
    let answer = [head.into_bytes(), vec![b'x'; down]].concat();
    let mut request = [0; 4_096];
    let mut filled = 0;
    loop {
        match stream.read(&mut request[filled..]).await? {
            0 => return Ok(()),
            read => filled += read,
        }
        if request[..filled].ends_with(b"\r\n\r\n") {
            filled = 0;
            stream.write_all(&answer).await?;
            stream.flush().await?;
        }
    }
}
