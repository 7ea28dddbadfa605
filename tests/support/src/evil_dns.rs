//! A DNS server that does what servers must not: bytes by script, over UDP and TCP.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::dns_server::add_address;
use super::dns_tcp;

/// A question, and how often one for the same name and type came before.
pub struct Asked {
    pub id: u16,
    pub question: Query,
    pub before: usize,
    pub has_edns: bool,
}

impl Asked {
    /// The name's first label.
    pub fn label(&self) -> String {
        let name = self.question.name();
        name.iter().next().map(|label| String::from_utf8_lossy(label).to_lowercase()).unwrap_or_default()
    }

    pub fn is_v6(&self) -> bool {
        self.question.query_type() == RecordType::AAAA
    }

    /// An empty response to the question.
    pub fn response(&self) -> Message {
        let mut response = Message::response(self.id, OpCode::Query);
        response.metadata.recursion_desired = true;
        response.metadata.recursion_available = true;
        response.add_query(self.question.clone());
        response
    }

    /// A response with one address, 127.0.0.`last` or ::1, of the name itself.
    pub fn good(&self, last: u8, ttl: u32) -> Message {
        let mut response = self.response();
        self.add(&mut response, self.question.name(), last, ttl);
        response
    }

    pub fn add(&self, response: &mut Message, name: &Name, last: u8, ttl: u32) {
        for address in [[127, 0, 0, last].into(), std::net::Ipv6Addr::LOCALHOST.into()] {
            add_address(response, &self.question, name, address, ttl);
        }
    }

    pub fn code(&self, code: ResponseCode) -> Message {
        let mut response = self.response();
        response.metadata.response_code = code;
        response
    }
}

pub fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

pub fn alias(from: &str, ttl: u32, to: &str) -> Record {
    Record::from_rdata(name(from), ttl, RData::CNAME(CNAME(name(to))))
}

pub fn soa(ttl: u32, minimum: u32) -> Record {
    let root = Name::root();
    Record::from_rdata(name("test."), ttl, RData::SOA(SOA::new(root.clone(), root, 1, 60, 60, 60, minimum)))
}

pub fn bytes(message: &Message) -> Vec<u8> {
    message.to_vec().unwrap()
}

/// What to send back by UDP, packet by packet; those marked come from another port.
pub type Packets = Vec<(Vec<u8>, From)>;

#[derive(Clone, Copy, PartialEq)]
pub enum From {
    Here,
    AnotherPort,
}

/// One honest packet.
pub fn packet(message: &Message) -> Packets {
    vec![(bytes(message), From::Here)]
}

/// The server; it stops when it is dropped.
pub struct EvilDns {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EvilDns {
    /// Answers by UDP with the packets of `udp`, and by TCP as `tcp` likes, which gets the stream once a query was read.
    pub fn start(
        udp: impl Fn(&Asked) -> Packets + Send + 'static,
        tcp: impl Fn(&Asked, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (socket, listener) = dns_tcp::twins(bind, |socket| socket.local_addr().unwrap());
        let address = socket.local_addr().unwrap();
        serve_tcp(listener, tcp);
        let (queries, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, stopped) = (queries.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let elsewhere = bind();
            let mut seen = HashMap::new();
            let mut buffer = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                counter.fetch_add(1, Ordering::SeqCst);
                let Some(mut asked) = parse(&buffer[..length]) else { continue };
                let before = seen.entry(asked.question.clone()).or_insert(0);
                asked.before = *before;
                *before += 1;
                for (packet, from) in udp(&asked) {
                    let from = if from == From::Here { &socket } else { &elsewhere };
                    let _ = from.send_to(&packet, peer);
                }
            }
        });
        Self { address, queries, stop, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many queries came by UDP.
    pub fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

impl Drop for EvilDns {
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

fn parse(packet: &[u8]) -> Option<Asked> {
    let query = Message::from_vec(packet).ok()?;
    let question = query.queries.first()?.clone();
    Some(Asked { id: query.metadata.id, question, before: 0, has_edns: query.edns.is_some() })
}

fn serve_tcp(
    listener: TcpListener,
    tcp: impl Fn(&Asked, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) {
    let tcp = Arc::new(tcp);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let tcp = tcp.clone();
            std::thread::spawn(move || converse(stream, &*tcp));
        }
    });
}

fn converse(
    mut stream: TcpStream,
    tcp: &impl Fn(&Asked, &mut TcpStream) -> std::io::Result<()>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut query)?;
        let Some(asked) = parse(&query) else { return Ok(()) };
        tcp(&asked, &mut stream)?;
    }
}

/// A message as TCP carries it, behind its length.
pub fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

/// No server by TCP: the connection ends at once.
pub fn no_tcp(_: &Asked, _: &mut TcpStream) -> std::io::Result<()> {
    Err(std::io::ErrorKind::ConnectionAborted.into())
}

/// The whole message by TCP.
pub fn send(stream: &mut TcpStream, message: &[u8]) -> std::io::Result<()> {
    stream.write_all(&framed(message))
}
