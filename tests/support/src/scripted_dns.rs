//! A DNS server on loopback that sends what its script says, over UDP and TCP: forged, broken or missing answers. For well-formed
//! messages see [`crate::dns_server`].

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;

use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::dns_server::add_address;
use super::dns_tcp;
use super::process::accepted;
use super::udp_server::UdpServer;

/// A query, as it arrived.
pub struct ReceivedQuery {
    /// The message's id.
    pub id: u16,
    /// The question: name, class and type.
    pub question: Query,
    /// The number of earlier queries with the same question over UDP.
    pub before: usize,
    /// True if the query has an EDNS record (RFC 6891).
    pub has_edns: bool,
}

impl ReceivedQuery {
    /// Returns the first label of the name, in lower case.
    pub fn label(&self) -> String {
        let name = self.question.name();
        name.iter().next().map(|label| String::from_utf8_lossy(label).to_lowercase()).unwrap_or_default()
    }

    /// Returns true if the question asks for IPv6 addresses.
    pub fn is_v6(&self) -> bool {
        self.question.query_type() == RecordType::AAAA
    }

    /// Returns an empty response to the question.
    pub fn response(&self) -> Message {
        let mut response = Message::response(self.id, OpCode::Query);
        response.metadata.recursion_desired = true;
        response.metadata.recursion_available = true;
        response.add_query(self.question.clone());
        response
    }

    /// Returns a correct response with one address: 127.0.0.`last`, or ::1 if the question asks for IPv6.
    pub fn good(&self, last: u8, ttl: u32) -> Message {
        let mut response = self.response();
        self.add(&mut response, self.question.name(), last, ttl);
        response
    }

    /// Adds the address record of [`Self::good`] to a response, for the name `name`.
    pub fn add(&self, response: &mut Message, name: &Name, last: u8, ttl: u32) {
        for address in [[127, 0, 0, last].into(), std::net::Ipv6Addr::LOCALHOST.into()] {
            add_address(response, &self.question, name, address, ttl);
        }
    }

    /// Returns an empty response with a response code.
    pub fn code(&self, code: ResponseCode) -> Message {
        let mut response = self.response();
        response.metadata.response_code = code;
        response
    }
}

/// Parses a name.
pub fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

/// Returns a CNAME record.
pub fn alias(from: &str, ttl: u32, to: &str) -> Record {
    Record::from_rdata(name(from), ttl, RData::CNAME(CNAME(name(to))))
}

/// Returns the SOA record of the zone `test.`, with the TTL for negative answers in `minimum` (RFC 2308).
pub fn soa(ttl: u32, minimum: u32) -> Record {
    let root = Name::root();
    Record::from_rdata(name("test."), ttl, RData::SOA(SOA::new(root.clone(), root, 1, 60, 60, 60, minimum)))
}

/// Returns a message as it is sent.
pub fn bytes(message: &Message) -> Vec<u8> {
    message.to_vec().unwrap()
}

/// The packets that answer a query over UDP, each with the port it is sent from.
pub type Packets = Vec<(Vec<u8>, SentFrom)>;

/// The port that a packet is sent from.
#[derive(Clone, Copy, PartialEq)]
pub enum SentFrom {
    /// The port to which the query was sent.
    ServerPort,
    /// Any other port, as an attacker uses who cannot fake the server's address.
    AnotherPort,
}

/// Returns one packet, sent from the server's port.
pub fn packet(message: &Message) -> Packets {
    vec![(bytes(message), SentFrom::ServerPort)]
}

/// The server. It stops when it is dropped.
pub struct ScriptedDns(UdpServer);

impl ScriptedDns {
    /// Answers over UDP with the packets that `udp` returns. Over TCP, `tcp` gets the stream once a query was read, and an error from
    /// it closes the connection.
    pub fn start(
        udp: impl Fn(&ReceivedQuery) -> Packets + Send + 'static,
        tcp: impl Fn(&ReceivedQuery, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (socket, listener) = dns_tcp::udp_and_tcp(bind, |socket| socket.local_addr().unwrap());
        serve_tcp(listener, Arc::new(tcp));
        Self::serve_udp(socket, bind(), Box::new(udp))
    }

    fn serve_udp(
        socket: UdpSocket,
        another_port: UdpSocket,
        udp: Box<dyn Fn(&ReceivedQuery) -> Packets + Send>,
    ) -> Self {
        let mut seen = HashMap::new();
        let handle = move |socket: &UdpSocket, packet: &[u8], sender| {
            let Some(mut query) = parse(packet) else { return };
            let before = seen.entry(query.question.clone()).or_insert(0);
            query.before = *before;
            *before += 1;
            for (packet, from) in udp(&query) {
                let from = if from == SentFrom::ServerPort { socket } else { &another_port };
                let _ = from.send_to(&packet, sender);
            }
        };
        Self(UdpServer::start(socket, Box::new(handle)))
    }

    /// The address at which the server listens, over UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The number of queries that arrived over UDP, without those that a client sent once more because the answer took its time.
    pub fn queries(&self) -> usize {
        self.0.queries()
    }
}

fn parse(packet: &[u8]) -> Option<ReceivedQuery> {
    let query = Message::from_vec(packet).ok()?;
    let question = query.queries.first()?.clone();
    Some(ReceivedQuery { id: query.metadata.id, question, before: 0, has_edns: query.edns.is_some() })
}

/// Answers a query that came over TCP.
type OverTcp = dyn Fn(&ReceivedQuery, &mut TcpStream) -> std::io::Result<()> + Send + Sync;

fn serve_tcp(listener: TcpListener, tcp: Arc<OverTcp>) {
    std::thread::spawn(move || {
        for stream in accepted(listener) {
            let tcp = tcp.clone();
            std::thread::spawn(move || converse(stream, &*tcp));
        }
    });
}

fn converse(mut stream: TcpStream, tcp: &OverTcp) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut packet = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut packet)?;
        let Some(query) = parse(&packet) else { return Ok(()) };
        tcp(&query, &mut stream)?;
    }
}

/// Returns a message with its length in front, as it is sent over TCP (RFC 1035 §4.2.2).
pub fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

/// Closes the connection: the script of a server without TCP.
pub fn no_tcp(_: &ReceivedQuery, _: &mut TcpStream) -> std::io::Result<()> {
    Err(std::io::ErrorKind::ConnectionAborted.into())
}

/// Sends a message over TCP.
pub fn send(stream: &mut TcpStream, message: &[u8]) -> std::io::Result<()> {
    stream.write_all(&framed(message))
}
