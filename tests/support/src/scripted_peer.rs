//! A peer on loopback whose connections each run a script, with or without TLS, in a thread each. For servers that break off, stall
//! or send any bytes; [`crate::http_server`] is for correct ones.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(feature = "__tls")]
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use speeddial::{Client, ClientBuilder};

#[cfg(feature = "__tls")]
use super::certs::{Authority, provider};
use super::process::accepted;

/// The protocols below HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// TCP without TLS.
    Tcp,
    /// TLS 1.2.
    #[cfg(feature = "__tls")]
    Tls12,
    /// TLS 1.3.
    #[cfg(feature = "__tls")]
    Tls13,
}

impl Stack {
    /// Every stack that the features allow.
    #[cfg(not(feature = "__tls"))]
    pub const ALL: [Self; 1] = [Self::Tcp];
    /// Every stack that the features allow.
    #[cfg(feature = "__tls")]
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Tls12, Self::Tls13];
}

/// The peer. It accepts connections for as long as the test process runs.
pub struct ScriptedPeer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// The authority of the peer's certificate, if it uses TLS.
    #[cfg(feature = "__tls")]
    authority: Option<Authority>,
}

impl ScriptedPeer {
    /// Runs `script` for each connection, with the connection's number from 0. The socket closes when the script returns.
    pub fn start(script: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_with(Arc::new(script))
    }

    /// Takes a script of any type, so that this is compiled once, and not for each script.
    fn start_with(script: Arc<dyn Fn(usize, TcpStream) + Send + Sync>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = connections.clone();
        std::thread::spawn(move || {
            for socket in accepted(listener) {
                // Without Nagle's algorithm nothing is held back, so a reset drops nothing that was written before it.
                let _ = socket.set_nodelay(true);
                let number = counter.fetch_add(1, Ordering::SeqCst);
                let script = script.clone();
                std::thread::spawn(move || script(number, socket));
            }
        });
        Self {
            address,
            connections,
            #[cfg(feature = "__tls")]
            authority: None,
        }
    }

    /// Like [`Self::start`], over TCP or TLS.
    ///
    /// The TLS handshake is part of the first read. When the script returns, the socket closes without close_notify.
    pub fn start_over(over: Stack, script: impl Fn(usize, Socket) + Send + Sync + 'static) -> Self {
        match over {
            Stack::Tcp => Self::start(move |number, socket| script(number, Socket::Tcp(socket))),
            #[cfg(feature = "__tls")]
            Stack::Tls12 => Self::start_tls(&rustls::version::TLS12, script),
            #[cfg(feature = "__tls")]
            Stack::Tls13 => Self::start_tls(&rustls::version::TLS13, script),
        }
    }

    #[cfg(feature = "__tls")]
    fn start_tls(
        version: &'static SupportedProtocolVersion,
        script: impl Fn(usize, Socket) + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new();
        let config = server_config(&authority, version);
        let peer = Self::start(move |number, socket| {
            let session = ServerConnection::new(config.clone()).unwrap();
            script(number, Socket::Tls(Box::new(StreamOwned::new(session, socket))));
        });
        Self { authority: Some(authority), ..peer }
    }

    /// Returns the URL of the peer, which ends in `/`.
    pub fn url(&self) -> String {
        #[cfg(feature = "__tls")]
        if self.authority.is_some() {
            return format!("https://{}/", self.address);
        }
        format!("http://{}/", self.address)
    }

    /// Returns the builder of a client that uses no proxy and trusts the peer.
    pub fn client(&self) -> ClientBuilder {
        let builder = Client::builder().no_proxy();
        #[cfg(feature = "__tls")]
        if let Some(authority) = &self.authority {
            return builder.tls(authority.client());
        }
        builder
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Returns the configuration of a server for 127.0.0.1 that accepts only one version of TLS.
#[cfg(feature = "__tls")]
pub fn server_config(authority: &Authority, version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let params = rcgen::CertificateParams::new(vec![Ipv4Addr::LOCALHOST.to_string()]).unwrap();
    let (certificate, key) = authority.sign(params);
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[version]).unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap())
}

/// The peer's side of a connection.
pub enum Socket {
    /// A connection without TLS.
    Tcp(TcpStream),
    /// A connection with TLS.
    #[cfg(feature = "__tls")]
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Socket {
    /// Returns the TCP socket, below TLS if there is TLS.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(socket) => socket,
            #[cfg(feature = "__tls")]
            Self::Tls(stream) => stream.get_ref(),
        }
    }

    /// Closes the writing side: with close_notify over TLS, then with a FIN.
    pub fn half_close(&mut self) {
        #[cfg(feature = "__tls")]
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let _ = self.tcp().shutdown(Shutdown::Write);
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buf),
            #[cfg(feature = "__tls")]
            Self::Tls(stream) => stream.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(buf),
            #[cfg(feature = "__tls")]
            Self::Tls(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.flush(),
            #[cfg(feature = "__tls")]
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Reads the head of a request. Returns false if the client closed instead.
pub fn read_head(socket: &mut impl Read) -> bool {
    read_head_text(socket).is_some()
}

/// Reads the head of a request and returns it. Returns `None` if the client closed instead.
pub fn read_head_text(socket: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Answers requests without a body with "ok" until the client closes.
pub fn answer_all(socket: &mut (impl Read + Write)) {
    while read_head(socket) {
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    }
}
