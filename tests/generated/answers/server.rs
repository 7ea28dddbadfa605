//! A server that sends the bytes that it was given, and ends its connection in the way that it was told.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use speeddial::tls::Certificate;
use support::certs::Authority;

use super::Way;

/// An answer.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    pub(super) ending: Ending,
}

/// The end of a connection behind an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Stays,
    Closes,
    /// The connection closes; over TLS without a close_notify (RFC 8446 §6.1).
    NoNotice,
    /// The server sends no more, and closes when the client does.
    HalfCloses,
    Resets,
}

pub(super) struct Server {
    address: SocketAddr,
    echo_address: SocketAddr,
    authority: Authority,
    replies: Arc<Mutex<HashMap<String, Reply>>>,
}

impl Server {
    pub(super) fn start() -> Self {
        let replies: Arc<Mutex<HashMap<String, Reply>>> = Arc::default();
        let authority = Authority::new();
        let tls = authority.server(&["127.0.0.1"], &["http/1.1"]);
        let (address, echo_address) = (listen(&tls, &replies), listen(&tls, &replies));
        Self { address, echo_address, authority, replies }
    }

    pub(super) fn origin(&self, way: Way) -> String {
        format!("{}://{}", scheme(way), self.address)
    }

    /// Returns the origin that sends back what it is sent, and closes no connection.
    ///
    /// A POST to `origin` itself can meet the close behind the answer before, which no client can know of in time.
    pub(super) fn echo(&self, way: Way) -> String {
        format!("{}://{}", scheme(way), self.echo_address)
    }

    /// Returns the certificate that a client of the server trusts.
    pub(super) fn trusted(&self) -> Certificate {
        Certificate::from_pem(self.authority.pem().as_bytes()).unwrap()
    }

    pub(super) fn add(&self, id: usize, reply: Reply) {
        self.replies.lock().unwrap().insert(format!("/{id}"), reply);
    }
}

fn scheme(way: Way) -> &'static str {
    if way == Way::Tls { "https" } else { "http" }
}

fn listen(tls: &Arc<ServerConfig>, replies: &Arc<Mutex<HashMap<String, Reply>>>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (tls, replies) = (tls.clone(), replies.clone());
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let (tls, replies) = (tls.clone(), replies.clone());
            std::thread::spawn(move || drop(Connection::accept(socket, tls).and_then(|conn| serve(conn, &replies))));
        }
    });
    address
}

/// A connection, with TLS or without.
enum Connection {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Connection {
    fn accept(socket: TcpStream, tls: Arc<ServerConfig>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut first = [0];
        socket.peek(&mut first)?;
        // A record with a handshake message (RFC 8446 §5.1).
        if first != [22] {
            return Ok(Self::Plain(socket));
        }
        let session = ServerConnection::new(tls).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Says that nothing follows, where TLS has a way to.
    fn notify(&mut self) -> io::Result<()> {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            stream.flush()?;
        }
        Ok(())
    }
}

impl Read for Connection {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buf),
            Self::Tls(stream) => stream.read(buf),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(buf),
            Self::Tls(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

fn serve(connection: Connection, replies: &Mutex<HashMap<String, Reply>>) -> io::Result<()> {
    let mut reader = BufReader::new(connection);
    loop {
        let Some((path, body)) = read_request(&mut reader)? else { return Ok(()) };
        let plain = |body: &[u8]| {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            Reply { bytes: [head.as_bytes(), body].concat(), ending: Ending::Stays }
        };
        let known = replies.lock().unwrap().get(&path).cloned();
        let Reply { bytes, ending } = match path.as_str() {
            "/echo" => plain(&body),
            _ => known.unwrap_or_else(|| plain(b"ok")),
        };
        let connection = reader.get_mut();
        connection.write_all(&bytes)?;
        connection.flush()?;
        match ending {
            Ending::Stays => {}
            Ending::NoNotice => return Ok(()),
            Ending::Closes => return connection.notify(),
            Ending::HalfCloses => {
                connection.notify()?;
                connection.socket().shutdown(Shutdown::Write)?;
                io::copy(&mut reader, &mut io::sink())?;
                return Ok(());
            }
            Ending::Resets => return socket2::SockRef::from(connection.socket()).set_linger(Some(Duration::ZERO)),
        }
    }
}

/// Reads a request, and returns its path and its content. `None` if the client closes.
fn read_request(reader: &mut BufReader<Connection>) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut body = Vec::new();
    if head.contains("transfer-encoding: chunked") {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            reader.by_ref().take(size).read_to_end(&mut body)?;
            if size == 0 {
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line)?;
                }
                break;
            }
            reader.read_line(&mut String::new())?;
        }
    } else if let Some(length) = head.split("content-length: ").nth(1) {
        let length = length.split("\r\n").next().unwrap_or_default().parse().map_err(io::Error::other)?;
        reader.by_ref().take(length).read_to_end(&mut body)?;
    }
    Ok(Some((path, body)))
}
