//! A server that answers each request with `ok`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use support::process::serve_at;

pub(crate) fn serve() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            std::thread::spawn(move || answer(stream));
        }
    });
    serve_at(address);
}

fn answer(mut stream: TcpStream) {
    let mut request = [0; 4_096];
    while stream.read(&mut request).is_ok_and(|read| read > 0) {
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}
