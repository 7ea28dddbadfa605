//! An HTTP/2 server on loopback, with or without TLS, that ends its connections while the client may be sending. It runs in a thread
//! of its own.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use speeddial::{Client, ClientBuilder};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::timeout;

#[cfg(feature = "__tls")]
use super::certs::Authority;
use super::process::accept;
use super::scripted_peer::Stack;
#[cfg(feature = "__tls")]
use super::scripted_peer::server_config;

/// The way a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// A reset (RST).
    Reset,
    /// A FIN; over TLS without close_notify.
    Fin,
    /// GOAWAY, and a FIN once the remaining requests are answered.
    GoAway,
}

/// The number of times that each request arrived. A request's number is its path.
pub type Counts = Arc<Mutex<HashMap<u64, usize>>>;

/// The server. It runs for as long as the test process.
pub struct H2Server {
    address: SocketAddr,
    /// The authority of the server's certificate, if it uses TLS.
    #[cfg(feature = "__tls")]
    authority: Option<Authority>,
}

impl H2Server {
    /// Answers one request at a time with "ok" and counts it. Ends 30 % of the connections when they have been idle for up to 5 ms,
    /// some directly after an answer.
    pub fn start(over: Stack, end: ConnectionEnd, counts: Counts) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        #[cfg(feature = "__tls")]
        let (authority, acceptor) = tls(over).unzip();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                for seed in 0.. {
                    let socket = accept(&listener).await;
                    let _ = socket.set_nodelay(true);
                    if end == ConnectionEnd::Reset {
                        let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
                    }
                    let counts = counts.clone();
                    #[cfg(feature = "__tls")]
                    if let Some(acceptor) = acceptor.clone() {
                        tokio::spawn(async move {
                            if let Ok(stream) = acceptor.accept(socket).await {
                                let _ = serve(stream, seed, end, &counts).await;
                            }
                        });
                        continue;
                    }
                    tokio::spawn(async move { serve(socket, seed, end, &counts).await });
                }
            });
        });
        #[cfg(not(feature = "__tls"))]
        assert_eq!(over, Stack::Tcp);
        Self {
            address,
            #[cfg(feature = "__tls")]
            authority,
        }
    }

    /// Returns the URL of the server, which ends in `/`.
    pub fn url(&self) -> String {
        #[cfg(feature = "__tls")]
        if self.authority.is_some() {
            return format!("https://{}/", self.address);
        }
        format!("http://{}/", self.address)
    }

    /// Returns the builder of a client that uses no proxy, trusts the server and uses HTTP/2.
    pub fn client(&self) -> ClientBuilder {
        let builder = Client::builder().no_proxy().http2_prior_knowledge();
        #[cfg(feature = "__tls")]
        if let Some(authority) = &self.authority {
            let tls = speeddial::tls::TlsConfig::new().add_roots([authority.root()]);
            return builder.tls(tls.only_added_roots());
        }
        builder
    }
}

#[cfg(feature = "__tls")]
fn tls(over: Stack) -> Option<(Authority, tokio_rustls::TlsAcceptor)> {
    let version = match over {
        Stack::Tcp => return None,
        Stack::Tls12 => &rustls::version::TLS12,
        Stack::Tls13 => &rustls::version::TLS13,
    };
    let authority = Authority::new();
    let mut config = rustls::ServerConfig::clone(&server_config(&authority, version));
    config.alpn_protocols = vec![b"h2".to_vec()];
    Some((authority, tokio_rustls::TlsAcceptor::from(Arc::new(config))))
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    seed: u64,
    end: ConnectionEnd,
    counts: &Counts,
) -> Result<(), h2::Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut builder = h2::server::Builder::new();
    let mut connection = builder.max_concurrent_streams(1).handshake::<_, Bytes>(stream).await?;
    let mut idle_time = Duration::from_secs(60);
    // The last answer is sent while the next request is awaited, even with a time of zero.
    while let Ok(accepted) = timeout(idle_time, connection.accept()).await {
        let Some(accepted) = accepted else { return Ok(()) };
        let (request, respond) = accepted?;
        answer(&request, respond, counts)?;
        idle_time = match random.u8(..100) {
            0..2 => Duration::ZERO,
            2..30 => Duration::from_micros(random.u64(..5_000)),
            _ => Duration::from_secs(60),
        };
    }
    if end == ConnectionEnd::GoAway {
        connection.graceful_shutdown();
        while let Some(accepted) = connection.accept().await {
            let (request, respond) = accepted?;
            answer(&request, respond, counts)?;
        }
    }
    Ok(())
}

fn answer(
    request: &http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    counts: &Counts,
) -> Result<(), h2::Error> {
    let number = request.uri().path().trim_start_matches('/').parse().unwrap();
    *counts.lock().unwrap().entry(number).or_default() += 1;
    respond.send_response(http::Response::new(()), false)?.send_data(Bytes::from_static(b"ok"), true)
}
