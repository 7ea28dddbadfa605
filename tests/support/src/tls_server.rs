//! An HTTPS server on loopback, HTTP/1.1 or HTTP/2 by ALPN, in the test's own runtime. It answers by
//! [`describe`].

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::http_server::describe;
use super::listeners_at_two_addresses;
use super::process::accept;

/// The server. It stops with the test's runtime.
pub struct TlsServer {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    handshakes: Arc<AtomicUsize>,
}

impl TlsServer {
    /// Starts a server on 127.0.0.1.
    pub async fn start(config: Arc<ServerConfig>) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), 0, config).await
    }

    /// Starts a server on an address and port; port 0 is any free port.
    pub async fn at(ip: IpAddr, port: u16, config: Arc<ServerConfig>) -> Self {
        Self::on(TcpListener::bind((ip, port)).await.unwrap(), config)
    }

    /// Starts servers at 127.0.0.1 and 127.0.0.2, with one port.
    pub fn at_two_addresses(first: Arc<ServerConfig>, second: Arc<ServerConfig>) -> [Self; 2] {
        let [one, other] = listeners_at_two_addresses().map(|listener| {
            listener.set_nonblocking(true).unwrap();
            TcpListener::from_std(listener).unwrap()
        });
        [Self::on(one, first), Self::on(other, second)]
    }

    fn on(listener: TcpListener, config: Arc<ServerConfig>) -> Self {
        let address = listener.local_addr().unwrap();
        let [accepted, handshakes] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let counters = (accepted.clone(), handshakes.clone());
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(config);
            loop {
                let socket = accept(&listener).await;
                counters.0.fetch_add(1, Ordering::SeqCst);
                let acceptor = acceptor.clone();
                let handshakes = counters.1.clone();
                tokio::spawn(async move { serve(socket, acceptor, Duration::ZERO, &handshakes).await });
            }
        });
        Self { address, accepted, handshakes }
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connections that the server accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// The number of connections whose handshake succeeded.
    pub fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::SeqCst)
    }
}

/// Serves a connection, as the server does, with this time for each answer. For connections in memory, and so for paused time.
pub async fn serve<S>(socket: S, acceptor: TlsAcceptor, think: Duration, handshakes: &AtomicUsize)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(stream) = acceptor.accept(socket).await else { return };
    handshakes.fetch_add(1, Ordering::SeqCst);
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(stream);
    // A failed connection shows as an error of the client.
    let service = service_fn(|request| async move {
        if think > Duration::ZERO {
            tokio::time::sleep(think).await;
        }
        Ok::<_, Infallible>(describe(request).await)
    });
    let _ = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
        false => http1::Builder::new().serve_connection(stream, service).await,
    };
}
