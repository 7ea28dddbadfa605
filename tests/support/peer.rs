//! A peer that misbehaves as scripted, on a real socket, a thread a connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The peer. It accepts for as long as the test runs.
pub(crate) struct Peer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Peer {
    /// Runs `script` for each connection, with the connection's number from 0; the socket closes when it returns.
    pub(crate) fn start(script: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counter, script) = (connections.clone(), Arc::new(script));
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let number = counter.fetch_add(1, Ordering::SeqCst);
                let script = script.clone();
                std::thread::spawn(move || script(number, socket));
            }
        });
        Self { address, connections }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Reads the head of a request; `false` when the client closed instead.
pub(crate) fn read_head(socket: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Answers requests with "ok" until the client closes.
pub(crate) fn answer_all(socket: &mut TcpStream) {
    while read_head(socket) {
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    }
}
