//! An HTTPS server on loopback: HTTP/1.1 or HTTP/2 by ALPN, "ok" to every request, in the test's own runtime.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::http_server::describe;

/// The server; it stops with the test.
pub struct TlsServer {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    shaken: Arc<AtomicUsize>,
}

impl TlsServer {
    pub async fn start(config: Arc<ServerConfig>) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), 0, config).await
    }

    pub async fn at(ip: IpAddr, port: u16, config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind((ip, port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let [accepted, shaken] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let counters = (accepted.clone(), shaken.clone());
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(config);
            while let Ok((socket, _)) = listener.accept().await {
                counters.0.fetch_add(1, Ordering::SeqCst);
                let (acceptor, shaken) = (acceptor.clone(), counters.1.clone());
                tokio::spawn(async move { serve(socket, acceptor, &shaken).await });
            }
        });
        Self { address, accepted, shaken }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// With how many of them the handshake succeeded.
    pub fn shaken(&self) -> usize {
        self.shaken.load(Ordering::SeqCst)
    }
}

async fn serve(socket: TcpStream, acceptor: TlsAcceptor, shaken: &AtomicUsize) {
    let Ok(stream) = acceptor.accept(socket).await else { return };
    shaken.fetch_add(1, Ordering::SeqCst);
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(stream);
    // How a connection ends is the client's to tell.
    let service = service_fn(|request| async { Ok::<_, Infallible>(describe(request).await) });
    let _ = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
        false => http1::Builder::new().serve_connection(stream, service).await,
    };
}
