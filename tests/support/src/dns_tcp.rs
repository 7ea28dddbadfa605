//! DNS over TCP on loopback, on the port of a UDP server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hickory_proto::op::{Message, Query};

use super::dns_server::respond;
use super::process::accepted;

/// Binds a UDP server by `udp`, and the TCP port of the same number.
///
/// That TCP port may be taken; then another UDP port is tried.
pub fn udp_and_tcp<T>(udp: impl Fn() -> T, address: impl Fn(&T) -> SocketAddr) -> (T, TcpListener) {
    let both = || {
        let udp = udp();
        let tcp = TcpListener::bind(address(&udp)).ok()?;
        Some((udp, tcp))
    };
    (0..20).find_map(|_| both()).expect("a port that is free for both")
}

/// Fills in the response to a question, by code of any type: that of the server is compiled once, and not for each test.
pub(crate) type Answering = dyn Fn(&Query, &mut Message) + Send + Sync;

/// Answers questions over TCP for as long as the test runs. Returns the number of queries.
pub fn serve(listener: TcpListener, answer: impl Fn(&Query, &mut Message) + Send + Sync + 'static) -> Arc<AtomicUsize> {
    serve_until(listener, Arc::default(), Arc::new(answer))
}

/// Answers questions over TCP until a connection comes after `stopped` was set. Returns the number of queries.
pub(crate) fn serve_until(listener: TcpListener, stopped: Arc<AtomicBool>, answer: Arc<Answering>) -> Arc<AtomicUsize> {
    let queries = Arc::new(AtomicUsize::new(0));
    let counter = queries.clone();
    std::thread::spawn(move || {
        for socket in accepted(listener) {
            if stopped.load(Ordering::Acquire) {
                return;
            }
            let answer = answer.clone();
            let counter = counter.clone();
            std::thread::spawn(move || while exchange(&socket, &*answer, &counter).is_some() {});
        }
    });
    queries
}

/// Answers one query. A message over TCP has its length in two bytes in front (RFC 1035 §4.2.2).
fn exchange(mut socket: &TcpStream, answer: &dyn Fn(&Query, &mut Message), queries: &AtomicUsize) -> Option<()> {
    let mut length = [0; 2];
    socket.read_exact(&mut length).ok()?;
    let mut packet = vec![0; u16::from_be_bytes(length).into()];
    socket.read_exact(&mut packet).ok()?;
    queries.fetch_add(1, Ordering::SeqCst);
    let response = respond(answer, &packet)?;
    let length = u16::try_from(response.len()).ok()?;
    socket.write_all(&[&length.to_be_bytes()[..], &response].concat()).ok()
}
