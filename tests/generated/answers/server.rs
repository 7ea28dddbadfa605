//! A server that sends the bytes that it was given, and ends its connection in the way that it was told.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    /// The server sends no more, and closes when the client does.
    HalfCloses,
    Resets,
}

pub(super) struct Server {
    address: SocketAddr,
    replies: Arc<Mutex<HashMap<String, Reply>>>,
}

impl Server {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let replies: Arc<Mutex<HashMap<String, Reply>>> = Arc::default();
        let known = replies.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let known = known.clone();
                std::thread::spawn(move || drop(serve(socket, &known)));
            }
        });
        Self { address, replies }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn add(&self, id: usize, reply: Reply) {
        self.replies.lock().unwrap().insert(format!("/{id}"), reply);
    }
}

fn serve(mut socket: TcpStream, replies: &Mutex<HashMap<String, Reply>>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut reader = BufReader::new(socket.try_clone()?);
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
        socket.write_all(&bytes)?;
        match ending {
            Ending::Stays => {}
            Ending::Closes => return Ok(()),
            Ending::HalfCloses => {
                socket.shutdown(Shutdown::Write)?;
                io::copy(&mut reader, &mut io::sink())?;
                return Ok(());
            }
            Ending::Resets => return socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)),
        }
    }
}

/// Reads a request, and returns its path and its content. `None` if the client closes.
fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<(String, Vec<u8>)>> {
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
