//! A DNS server on loopback: UDP, real messages, a zone in memory.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// What a name is.
pub(crate) enum Entry {
    /// Addresses with a TTL in seconds.
    Addresses(Vec<IpAddr>, u32),
    /// Another name, with a TTL in seconds.
    Alias(&'static str, u32),
    /// A name the server fails for.
    Broken,
}

/// The server; it stops when it is dropped.
pub(crate) struct DnsServer {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DnsServer {
    /// Serves a zone on a port of its own. Names that are not in it do not exist.
    pub(crate) fn start(zone: impl IntoIterator<Item = (&'static str, Entry)>) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = socket.local_addr()?;
        let zone: HashMap<_, _> = zone.into_iter().collect();
        let (queries, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, stopped) = (queries.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut packet) {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                counter.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = answer(&zone, &packet[..length]) {
                    let _ = socket.send_to(&answer, peer);
                }
            }
        });
        Ok(Self { address, queries, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many queries came.
    pub(crate) fn queries(&self) -> usize {
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

fn answer(zone: &HashMap<&'static str, Entry>, packet: &[u8]) -> Option<Vec<u8>> {
    let query = Message::from_vec(packet).ok()?;
    let question = query.queries.first()?.clone();
    let mut response = Message::response(query.metadata.id, OpCode::Query);
    response.metadata.recursion_desired = true;
    response.metadata.recursion_available = true;
    response.add_query(question.clone());
    let mut name = question.name().clone();
    loop {
        let text = name.to_string().to_lowercase();
        match zone.get(text.trim_end_matches('.')) {
            None => {
                response.metadata.response_code = ResponseCode::NXDomain;
                response.add_authority(start_of_authority(&name));
            }
            Some(Entry::Broken) => response.metadata.response_code = ResponseCode::ServFail,
            Some(Entry::Alias(target, ttl)) => {
                let target = Name::from_ascii(format!("{target}.")).ok()?;
                response.add_answer(Record::from_rdata(name, *ttl, RData::CNAME(CNAME(target.clone()))));
                name = target;
                continue;
            }
            Some(Entry::Addresses(addresses, ttl)) => {
                let records = addresses.iter().filter_map(|ip| match (ip, question.query_type()) {
                    (IpAddr::V4(ip), RecordType::A) => Some(RData::A(A(*ip))),
                    (IpAddr::V6(ip), RecordType::AAAA) => Some(RData::AAAA(AAAA(*ip))),
                    _ => None,
                });
                let records: Vec<_> = records.map(|data| Record::from_rdata(name.clone(), *ttl, data)).collect();
                if records.is_empty() {
                    response.add_authority(start_of_authority(&name));
                }
                response.add_answers(records);
            }
        }
        return response.to_vec().ok();
    }
}

/// Says that the negative answer holds for two seconds.
fn start_of_authority(zone: &Name) -> Record {
    let root = Name::root();
    Record::from_rdata(zone.clone(), 2, RData::SOA(SOA::new(root.clone(), root, 1, 60, 60, 60, 2)))
}
