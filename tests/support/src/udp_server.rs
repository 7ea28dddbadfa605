//! A UDP server in a thread of its own, which both DNS servers of this crate use.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Handles a packet, by code of any type: that of the server is compiled once, and not for each test.
pub(crate) type Handle = dyn FnMut(&UdpSocket, &[u8], SocketAddr) + Send;

/// The time after which a server that gets nothing looks whether it is to stop.
const LOOKS_AFTER: Duration = Duration::from_millis(20);

/// The server. It stops when it is dropped.
pub(crate) struct UdpServer {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UdpServer {
    /// Calls `handle` for each packet that arrives at `socket`, with the socket, the packet and the sender's address.
    pub(crate) fn start(socket: UdpSocket, mut handle: Box<Handle>) -> Self {
        let address = socket.local_addr().unwrap();
        socket.set_read_timeout(Some(LOOKS_AFTER)).unwrap();
        // On a busy machine, what comes while the thread has no processor is not lost.
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(4 * 1024 * 1024);
        let queries = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let counter = queries.clone();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut packet = [0; 1500];
            let mut last_ids = HashMap::new();
            while !stopped.load(Ordering::Acquire) {
                let Ok((length, sender)) = socket.recv_from(&mut packet) else { continue };
                let packet = &packet[..length];
                if !repeats(packet, &mut last_ids) {
                    counter.fetch_add(1, Ordering::SeqCst);
                }
                handle(&socket, packet, sender);
            }
        });
        Self { address, queries, stop, thread: Some(thread) }
    }

    /// The address at which the server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of queries that arrived. A packet that came again counts once.
    pub(crate) fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

/// Returns true if a packet is the last one with its question once more.
///
/// A client sends a query again, under the same id, when it has no answer after some 300 ms. How often it does so says how busy the machine
/// is, and not what the client asks.
fn repeats(packet: &[u8], last_ids: &mut HashMap<Vec<u8>, [u8; 2]>) -> bool {
    let Some((id, rest)) = packet.split_first_chunk() else { return false };
    last_ids.insert(rest.to_vec(), *id) == Some(*id)
}

impl Drop for UdpServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
