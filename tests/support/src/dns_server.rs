//! A DNS server on loopback over UDP and TCP: well-formed messages, answers by a closure. For packets that break the rules see
//! [`crate::scripted_dns`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, OpCode, Query};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::dns_tcp::{self, udp_and_tcp};
use super::udp_server::{Handle, UdpServer};

/// The server. It stops when it is dropped.
pub struct DnsServer {
    udp: UdpServer,
    tcp: Option<Tcp>,
}

/// The part that serves over TCP.
struct Tcp {
    queries: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
}

impl DnsServer {
    /// Serves on a port of its own. `answer` fills in the response to each question; left as it is, the response says that there is
    /// no data.
    ///
    /// Over TCP as well (RFC 7766 §5): on a busy machine an answer over UDP may come after a client's limit, and the client then asks
    /// over TCP, where a closed port would say that there is no server.
    pub fn start(answer: impl Fn(&Query, &mut Message) + Send + 'static) -> io::Result<Self> {
        let answer = Mutex::new(answer);
        let answer = Arc::new(move |question: &Query, response: &mut Message| {
            (answer.lock().unwrap())(question, response);
        });
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (socket, listener) = udp_and_tcp(bind, |socket| socket.local_addr().unwrap());
        let stopped = Arc::new(AtomicBool::new(false));
        let queries = dns_tcp::serve_until(listener, stopped.clone(), answer.clone());
        let udp = UdpServer::start(socket, by_udp(move |question, response| answer(question, response)));
        Ok(Self { udp, tcp: Some(Tcp { queries, stopped }) })
    }

    /// Like [`Self::start`], over UDP alone: TCP is left to the test.
    pub fn start_over_udp(answer: impl Fn(&Query, &mut Message) + Send + 'static) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(Self { udp: UdpServer::start(socket, by_udp(answer)), tcp: None })
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.udp.address()
    }

    /// The number of queries that arrived, without those that a client sent once more because the answer took its time.
    pub fn queries(&self) -> usize {
        self.udp.queries() + self.tcp.as_ref().map_or(0, |tcp| tcp.queries.load(Ordering::SeqCst))
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        if let Some(tcp) = &self.tcp {
            tcp.stopped.store(true, Ordering::Release);
            // A connection ends the wait for the next one.
            let _ = TcpStream::connect(self.address());
        }
    }
}

fn by_udp(answer: impl Fn(&Query, &mut Message) + Send + 'static) -> Box<Handle> {
    Box::new(move |socket, packet, sender| {
        if let Some(response) = respond(&answer, packet) {
            let _ = socket.send_to(&response, sender);
        }
    })
}

/// Returns the encoded response to a query, or `None` if the packet is not a query with a question.
pub fn respond(answer: &dyn Fn(&Query, &mut Message), packet: &[u8]) -> Option<Vec<u8>> {
    let query = Message::from_vec(packet).ok()?;
    let question = query.queries.first()?;
    let mut response = Message::response(query.metadata.id, OpCode::Query);
    response.metadata.recursion_desired = true;
    response.metadata.recursion_available = true;
    response.add_query(question.clone());
    answer(question, &mut response);
    response.to_vec().ok()
}

/// Adds an address record if the question asks for the address's family.
pub fn add_address(response: &mut Message, question: &Query, name: &Name, ip: IpAddr, ttl: u32) {
    let data = match (ip, question.query_type()) {
        (IpAddr::V4(ip), RecordType::A) => RData::A(A(ip)),
        (IpAddr::V6(ip), RecordType::AAAA) => RData::AAAA(AAAA(ip)),
        _ => return,
    };
    response.add_answer(Record::from_rdata(name.clone(), ttl, data));
}
