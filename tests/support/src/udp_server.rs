//! A UDP server in a thread of its own, which both DNS servers of this crate use.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Handles a packet, by code of any type: that of the server is compiled once, and not for each test.
pub(crate) type Handle = dyn FnMut(&UdpSocket, &[u8], SocketAddr) + Send;

/// The server. It stops when it is dropped.
pub(crate) struct UdpServer {
    address: SocketAddr,
    packets: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UdpServer {
    /// Calls `handle` for each packet that arrives at `socket`, with the socket, the packet and the sender's address.
    pub(crate) fn start(socket: UdpSocket, mut handle: Box<Handle>) -> Self {
        let address = socket.local_addr().unwrap();
        let packets = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let counter = packets.clone();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, sender)) = socket.recv_from(&mut packet) {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                counter.fetch_add(1, Ordering::SeqCst);
                handle(&socket, &packet[..length], sender);
            }
        });
        Self { address, packets, stop, thread: Some(thread) }
    }

    /// The address at which the server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of packets that arrived.
    pub(crate) fn packets(&self) -> usize {
        self.packets.load(Ordering::SeqCst)
    }
}

impl Drop for UdpServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // An empty packet ends the wait for the next one.
        if let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
            let _ = socket.send_to(&[], self.address);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
