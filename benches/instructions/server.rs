//! A server in a process of its own, whose instructions valgrind does not count.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A server that answers each request with `ok`. It ends when it is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let mut process = command.arg("serve").stdout(Stdio::piped()).spawn().expect("this program runs");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut line).expect("a line");
        Self { process, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).expect("the server ends");
    }
}

/// Serves until the process is killed.
#[allow(clippy::print_stdout, reason = "the other process reads it")]
pub(crate) fn serve() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    println!("{}", listener.local_addr().expect("it is bound").port());
    for stream in listener.incoming() {
        let stream = stream.expect("a connection");
        std::thread::spawn(move || answer(stream));
    }
}

fn answer(mut stream: TcpStream) {
    let mut request = [0; 4_096];
    while stream.read(&mut request).is_ok_and(|read| read > 0) {
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}
