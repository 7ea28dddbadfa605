//! A DNS server on loopback over UDP: well-formed messages, answers by a closure. For packets that break the rules see
//! [`crate::scripted_dns`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use hickory_proto::op::{Message, OpCode, Query};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::udp_server::UdpServer;

/// The server. It stops when it is dropped.
pub struct DnsServer(UdpServer);

impl DnsServer {
    /// Serves on a port of its own. `answer` fills in the response to each question; left as it is, the response says that there is
    /// no data.
    pub fn start(answer: impl Fn(&Query, &mut Message) + Send + 'static) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let handle = move |socket: &UdpSocket, packet: &[u8], sender| {
            if let Some(response) = respond(&answer, packet) {
                let _ = socket.send_to(&response, sender);
            }
        };
        Ok(Self(UdpServer::start(socket, Box::new(handle))))
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The number of queries that arrived.
    pub fn queries(&self) -> usize {
        self.0.packets()
    }
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
