//! A DNS server on loopback: UDP, real messages, answers by a closure.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use hickory_proto::op::{Message, OpCode, Query};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// The server; it stops when it is dropped.
pub struct DnsServer {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DnsServer {
    /// Serves on a port of its own; `answer` fills in the response to each question, which says "no data" as it is.
    pub fn start(answer: impl Fn(&Query, &mut Message) + Send + 'static) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = socket.local_addr()?;
        let (queries, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, stopped) = (queries.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut packet) {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                counter.fetch_add(1, Ordering::SeqCst);
                if let Some(response) = respond(&answer, &packet[..length]) {
                    let _ = socket.send_to(&response, peer);
                }
            }
        });
        Ok(Self { address, queries, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many queries came.
    pub fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
            let _ = socket.send_to(&[], self.address);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn respond(answer: &impl Fn(&Query, &mut Message), packet: &[u8]) -> Option<Vec<u8>> {
    let query = Message::from_vec(packet).ok()?;
    let question = query.queries.first()?;
    let mut response = Message::response(query.metadata.id, OpCode::Query);
    response.metadata.recursion_desired = true;
    response.metadata.recursion_available = true;
    response.add_query(question.clone());
    answer(question, &mut response);
    response.to_vec().ok()
}

/// Adds an address record, if it is of the family the question asks for.
pub fn add_address(response: &mut Message, question: &Query, name: &Name, ip: IpAddr, ttl: u32) {
    let data = match (ip, question.query_type()) {
        (IpAddr::V4(ip), RecordType::A) => RData::A(A(ip)),
        (IpAddr::V6(ip), RecordType::AAAA) => RData::AAAA(AAAA(ip)),
        _ => return,
    };
    response.add_answer(Record::from_rdata(name.clone(), ttl, data));
}
