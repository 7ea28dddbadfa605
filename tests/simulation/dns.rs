//! DNS servers over UDP and TCP, which know the names of the world.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use speeddial::simulation::{Datagrams, ReadWrite};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::net;
use crate::outside::{DnsHealth, Outside, current};
use crate::plan::{Plan, View};

/// The servers: those of the first network, an internal one and a public one, and those of the second network.
pub(crate) const SERVERS: [IpAddr; 4] = [ip(10, 0, 0, 53), ip(10, 0, 1, 53), ip(10, 1, 0, 53), ip(10, 1, 1, 53)];
/// The address that public servers have for each name under the last suffix of the search list, and for some hosts.
pub(crate) const WILDCARD: IpAddr = ip(203, 0, 113, 9);
/// The most bytes of an answer over UDP.
const LARGEST_PACKET: usize = 1_232;
/// The time that negative answers say.
const NEGATIVE_TTL: u32 = 60;

const fn ip(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// Returns resolv.conf of one of the two networks.
pub(crate) fn resolv_conf(plan: &Plan, second: bool) -> String {
    let servers = if second { &SERVERS[2..] } else { &SERVERS[..2] };
    let servers = &servers[..plan.dns.servers];
    let mut text: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    if plan.dns.search {
        text.push_str("search corp.test lan.test\n");
    }
    text
}

/// Returns the full name of a host.
pub(crate) fn full_name(host: usize) -> String {
    format!("h{host}.corp.test")
}

/// Returns the name by which the program calls a host.
pub(crate) fn short_name(plan: &Plan, host: usize) -> String {
    if plan.dns.search && plan.hosts[host].view != View::Same { format!("h{host}") } else { full_name(host) }
}

/// Fills in what a server says to a question.
fn answer(outside: &Outside, server: usize, question: &Query, response: &mut Message) {
    let name = question.name().to_ascii().to_ascii_lowercase();
    let name = name.trim_end_matches('.');
    let is_public = server % 2 == 1;
    let host = name.strip_suffix(".corp.test").and_then(|label| label.strip_prefix('h')?.parse::<usize>().ok());
    let host = host.filter(|host| *host < outside.plan.hosts.len());
    let view = host.map(|host| if is_public { outside.plan.hosts[host].view } else { View::Same });
    let (addresses, ttl) = match (host, view) {
        (Some(host), Some(View::Same)) => (outside.state().in_dns[host].clone(), outside.plan.hosts[host].ttl),
        (Some(host), Some(View::Stranger)) => (vec![WILDCARD], outside.plan.hosts[host].ttl),
        _ if is_public && name.ends_with(".lan.test") => (vec![WILDCARD], 300),
        _ => {
            response.metadata.response_code = ResponseCode::NXDomain;
            add_soa(response);
            return;
        }
    };
    let mut any = false;
    for ip in addresses {
        let data = match (ip, question.query_type()) {
            (IpAddr::V4(ip), RecordType::A) => RData::A(ip.into()),
            (IpAddr::V6(ip), RecordType::AAAA) => RData::AAAA(ip.into()),
            _ => continue,
        };
        response.add_answer(Record::from_rdata(question.name().clone(), ttl, data));
        any = true;
    }
    if !any {
        add_soa(response);
    }
}

fn add_soa(response: &mut Message) {
    let name = Name::from_ascii("test.").unwrap();
    let soa = SOA::new(name.clone(), name.clone(), 1, 60, 60, 60, NEGATIVE_TTL);
    response.add_authority(Record::from_rdata(name, NEGATIVE_TTL, RData::SOA(soa)));
}

fn health(outside: &Outside, server: usize) -> Option<DnsHealth> {
    current(outside.state().dns[server], outside.now())
}

/// Returns a server's answer to a packet, and the time that it takes; `None` if there is none.
fn respond(outside: &Outside, server: usize, packet: &[u8]) -> Option<(Duration, Vec<u8>)> {
    let query = Message::from_vec(packet).ok()?;
    let question = query.queries.first()?;
    let now = outside.now();
    let health = health(outside, server);
    outside.state().questions.push((now, server, question.name().to_ascii()));
    let mut response = Message::response(query.metadata.id, OpCode::Query);
    response.metadata.recursion_desired = true;
    response.metadata.recursion_available = true;
    response.add_query(question.clone());
    let mut delay = Duration::from_millis(2);
    match health {
        Some(DnsHealth::Silent) => return None,
        Some(DnsHealth::SilentAboutV6) if question.query_type() == RecordType::AAAA => return None,
        Some(DnsHealth::ServFail) => response.metadata.response_code = ResponseCode::ServFail,
        // By the world's own numbers: the identifiers of questions are others in each run.
        Some(DnsHealth::Lossy) if fastrand::bool() => return None,
        Some(DnsHealth::Slow(ms)) => {
            delay += Duration::from_millis(ms);
            answer(outside, server, question, &mut response);
        }
        _ => answer(outside, server, question, &mut response),
    }
    outside.tell(
        None,
        format_args!(
            "dns {server} {} {} {:?} {}",
            question.name(),
            question.query_type(),
            response.metadata.response_code,
            response.answers.len()
        ),
    );
    Some((delay, response.to_vec().ok()?))
}

/// A UDP socket of a client, connected to a server.
pub(crate) struct Socket {
    outside: Arc<Outside>,
    server: SocketAddr,
    incoming: Mutex<Incoming>,
}

#[derive(Default)]
struct Incoming {
    packets: VecDeque<(Instant, io::Result<Vec<u8>>)>,
    timer: Option<Pin<Box<Sleep>>>,
    waker: Option<Waker>,
}

impl Socket {
    pub(crate) fn new(outside: Arc<Outside>, server: SocketAddr) -> Self {
        Self { outside, server, incoming: Mutex::default() }
    }
}

impl Datagrams for Socket {
    fn poll_receive(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut incoming = self.incoming.lock().unwrap();
        loop {
            let Some((at, _)) = incoming.packets.front() else {
                incoming.waker = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let at = *at;
            if at <= Instant::now() {
                let (_, packet) = incoming.packets.pop_front().unwrap();
                return Poll::Ready(packet.map(|packet| {
                    buffer[..packet.len()].copy_from_slice(&packet);
                    packet.len()
                }));
            }
            let timer = incoming.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
            timer.as_mut().reset(at);
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn send(&self, packet: &[u8]) -> io::Result<usize> {
        let way = self.outside.plan.dns.delay;
        let mut incoming = self.incoming.lock().unwrap();
        let server = SERVERS.iter().position(|server| *server == self.server.ip());
        let health = server.map(|server| health(&self.outside, server));
        match (server, health) {
            (Some(server), Some(health)) if health != Some(DnsHealth::Closed) => {
                if let Some((delay, mut response)) = respond(&self.outside, server, packet) {
                    if response.len() > LARGEST_PACKET {
                        let mut message = Message::from_vec(&response).unwrap();
                        message.answers.clear();
                        message.metadata.truncation = true;
                        response = message.to_vec().unwrap();
                    }
                    incoming.packets.push_back((Instant::now() + 2 * way + delay, Ok(response)));
                }
            }
            _ => {
                let refused = io::ErrorKind::ConnectionRefused.into();
                incoming.packets.push_back((Instant::now() + 2 * way, Err(refused)));
            }
        }
        incoming.waker.take().into_iter().for_each(Waker::wake);
        Ok(packet.len())
    }
}

/// Connects to a server over TCP.
pub(crate) async fn over_tcp(outside: Arc<Outside>, address: SocketAddr) -> io::Result<Box<dyn ReadWrite>> {
    let way = outside.plan.dns.delay;
    let server = SERVERS.iter().position(|server| *server == address.ip()).ok_or(io::ErrorKind::ConnectionRefused)?;
    match health(&outside, server) {
        Some(DnsHealth::Closed) => return Err(io::ErrorKind::ConnectionRefused.into()),
        Some(DnsHealth::Silent) => std::future::pending().await,
        _ => sleep(2 * way).await,
    }
    let (near, mut far, _) = net::stream(way, Duration::ZERO);
    tokio::spawn(async move {
        loop {
            let mut packet = vec![0; far.read_u16().await?.into()];
            far.read_exact(&mut packet).await?;
            if let Some((delay, response)) = respond(&outside, server, &packet) {
                sleep(delay).await;
                far.write_u16(u16::try_from(response.len()).unwrap()).await?;
                far.write_all(&response).await?;
            }
        }
        #[allow(unreachable_code, reason = "it names the type")]
        io::Result::Ok(())
    });
    Ok(Box::new(near))
}
