//! A random world of names: a resolv.conf, the names that exist, and what each DNS server does in each round.

use std::collections::HashSet;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::factors::factor;

pub(super) const ROUNDS: usize = 3;
/// The number of names that are looked up in a world.
pub(super) const NAMES_EACH: usize = 4;
/// The names of which they are chosen. The first one stands in the hosts file.
const NAMES: [&str; 7] = ["listed", "db", "db.", "api.eu", "api.eu.", "www.far.test", "many"];
const SUFFIXES: [&str; 3] = ["a.test", "b.test", "far.test"];

factor! {
    /// What a server does with queries.
    Conduct { Answers, Fails, Refuses, Silent, Slow, Lossy }
}

factor! {
    /// What there is of a full name.
    Fact { Nothing, Empty, V4, V6, Both, Long, Alias, Failing, Refused, FailingV6 }
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) resolv_conf: String,
    pub(super) names: [&'static str; NAMES_EACH],
    /// What each server does, by round.
    conducts: [Vec<Conduct>; ROUNDS],
    ttl: u32,
    /// True if all addresses are others in each round.
    moves: bool,
    /// True if each lookup of the client has a runtime of its own, with which all that it left in the background ends.
    pub(super) has_short_runtimes: bool,
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, resolv_conf, conducts, ttl, moves, has_short_runtimes, .. } = self;
        write!(
            f,
            "world {seed}: {resolv_conf:?}, {conducts:?}, TTL {ttl}, moves {moves}, short runtimes {has_short_runtimes}"
        )
    }
}

impl World {
    pub(super) fn random(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let servers = random.usize(1..=3);
        let mut conf: String = (1..=servers).map(|last| format!("nameserver 127.0.0.{last}\n")).collect();
        let searched = random.usize(0..=SUFFIXES.len());
        if searched > 0 {
            conf += &format!("search {}\n", SUFFIXES[..searched].join(" "));
        }
        let ndots = random.usize(0..4);
        conf += &format!("options timeout:1 attempts:{}", random.usize(1..3));
        // One is the default.
        if ndots != 1 {
            conf += &format!(" ndots:{ndots}");
        }
        if random.bool() {
            conf += " rotate";
        }
        let mut conduct = || match random.bool() {
            true => Conduct::Answers,
            false => Conduct::ALL[random.usize(..Conduct::ALL.len())],
        };
        let conducts = std::array::from_fn(|_| (0..servers).map(|_| conduct()).collect());
        let chosen = random.choose_multiple(NAMES, NAMES_EACH);
        let names = std::array::from_fn(|index| chosen[index]);
        let (ttl, moves, has_short_runtimes) = (random.u32(0..2), random.bool(), random.u8(..3) == 0);
        Self { seed, names, resolv_conf: conf + "\n", conducts, ttl, moves, has_short_runtimes }
    }

    /// Returns what there is of a full name. It is the same in all rounds and at all servers.
    fn fact(&self, name: &str) -> Fact {
        let letters = name.bytes().fold(self.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let mut random = fastrand::Rng::with_seed(letters);
        match random.usize(..3) {
            0 => Fact::Nothing,
            1 => Fact::Both,
            _ => Fact::ALL[random.usize(..Fact::ALL.len())],
        }
    }

    /// Fills in the answer to a question. Returns true if it is too long for UDP.
    fn answer(&self, round: usize, question: &Query, response: &mut Message) -> bool {
        let name = question.name().to_ascii().to_lowercase();
        let v6 = question.query_type() == RecordType::AAAA;
        let number = self.number(round);
        // Each full name has addresses of its own.
        let own = name.bytes().fold(7_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
        let fact = self.fact(&name);
        let alias = Name::from_ascii("alias.test.").expect("a name");
        if fact == Fact::Alias {
            let data = RData::CNAME(CNAME(alias.clone()));
            response.add_answer(Record::from_rdata(question.name().clone(), self.ttl, data));
        }
        let mut add = |owner: &Name, last: u8| {
            let data = match v6 {
                true => {
                    RData::AAAA(AAAA(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, number.into(), own.into(), last.into())))
                }
                false => RData::A(A(Ipv4Addr::new(10, number, own, last))),
            };
            response.add_answer(Record::from_rdata(owner.clone(), self.ttl, data));
        };
        match fact {
            Fact::V4 if !v6 => add(question.name(), 1),
            Fact::V6 if v6 => add(question.name(), 1),
            Fact::Both => add(question.name(), 1),
            Fact::FailingV6 if !v6 => add(question.name(), 1),
            Fact::Long => (1..=60).for_each(|last| add(question.name(), last)),
            Fact::Alias => add(&alias, 7),
            Fact::Failing | Fact::FailingV6 => response.metadata.response_code = ResponseCode::ServFail,
            Fact::Refused => response.metadata.response_code = ResponseCode::Refused,
            Fact::Nothing => {
                response.metadata.response_code = ResponseCode::NXDomain;
                response.add_authority(self.authority());
            }
            Fact::Empty | Fact::V4 | Fact::V6 => {
                response.add_authority(self.authority());
            }
        }
        fact == Fact::Long
    }

    /// Returns the part of the addresses that a move changes.
    fn number(&self, round: usize) -> u8 {
        if self.moves { 2 + round as u8 } else { 2 }
    }

    fn authority(&self) -> Record {
        let root = Name::root();
        let soa = SOA::new(root.clone(), root.clone(), 1, 60, 60, 60, self.ttl);
        Record::from_rdata(root, self.ttl, RData::SOA(soa))
    }

    /// Returns how long answers and the absence of names count.
    pub(super) fn lifetime(&self) -> Duration {
        Duration::from_secs(self.ttl.into())
    }

    /// Returns true if a server loses the only packet that resolv.conf allows.
    pub(super) fn loses_the_only_packet(&self, round: usize) -> bool {
        self.resolv_conf.contains("attempts:1") && self.conducts[round].contains(&Conduct::Lossy)
    }

    /// Returns true if the first server does not answer at once, and the word of another one counts for less.
    pub(super) fn lacks_its_first_server(&self, round: usize) -> bool {
        self.conducts[round][0] != Conduct::Answers && !self.resolv_conf.contains("rotate")
    }

    /// Returns true if a server does not answer at once.
    pub(super) fn has_trouble(&self, round: usize) -> bool {
        self.conducts[round].iter().any(|conduct| *conduct != Conduct::Answers)
    }

    /// Returns true if an address is of a round.
    pub(super) fn is_of(&self, round: usize, address: &str) -> bool {
        let number = self.number(round);
        address.starts_with(&format!("10.{number}.")) || address.starts_with(&format!("2001:db8::{number}:"))
    }
}

/// The servers of a world, for as long as the process runs.
pub(super) struct Servers {
    world: World,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    round: usize,
    /// The questions whose first packet a lossy server has dropped.
    dropped: HashSet<(usize, Query)>,
}

impl Servers {
    /// Starts the servers in the namespace of the calling thread.
    pub(super) fn start(world: World) -> std::io::Result<Arc<Self>> {
        let servers = Arc::new(Self { world, state: Mutex::default() });
        for number in 0..servers.world.conducts[0].len() {
            let address = Ipv4Addr::new(127, 0, 0, 1 + number as u8);
            let (socket, listener) = (UdpSocket::bind((address, 53))?, TcpListener::bind((address, 53))?);
            let of_tcp = servers.clone();
            support::dns_tcp::serve(listener, move |question, response| {
                of_tcp.over_tcp(number, question, response);
            });
            let servers = servers.clone();
            thread::spawn(move || {
                let mut packet = [0; 1_500];
                while let Ok((length, peer)) = socket.recv_from(&mut packet) {
                    servers.over_udp(number, &packet[..length], &socket, peer);
                }
            });
        }
        Ok(servers)
    }

    /// Begins a round, and what each program meets in it.
    pub(super) fn begin(&self, round: usize) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State { round, ..State::default() };
    }

    fn conduct(&self, server: usize) -> (usize, Conduct) {
        let round = self.state.lock().unwrap_or_else(PoisonError::into_inner).round;
        (round, self.world.conducts[round][server])
    }

    fn over_udp(&self, server: usize, packet: &[u8], socket: &UdpSocket, peer: std::net::SocketAddr) {
        let Ok(query) = Message::from_vec(packet) else { return };
        let Some(question) = query.queries.first() else { return };
        let (_, conduct) = self.conduct(server);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if conduct == Conduct::Silent || conduct == Conduct::Lossy && state.dropped.insert((server, question.clone())) {
            return;
        }
        drop(state);
        let answer = |question: &Query, response: &mut Message| self.respond(server, question, response, true);
        let Some(response) = support::dns_server::respond(&answer, packet) else { return };
        let Ok(socket) = socket.try_clone() else { return };
        let wait = if conduct == Conduct::Slow { Duration::from_millis(400) } else { Duration::ZERO };
        thread::spawn(move || {
            thread::sleep(wait);
            socket.send_to(&response, peer)
        });
    }

    fn over_tcp(&self, server: usize, question: &Query, response: &mut Message) {
        // A server that is silent is so for longer than anybody waits.
        while self.conduct(server).1 == Conduct::Silent {
            thread::sleep(Duration::from_millis(100));
        }
        self.respond(server, question, response, false);
    }

    fn respond(&self, server: usize, question: &Query, response: &mut Message, over_udp: bool) {
        let (round, conduct) = self.conduct(server);
        match conduct {
            Conduct::Fails => response.metadata.response_code = ResponseCode::ServFail,
            Conduct::Refuses => response.metadata.response_code = ResponseCode::Refused,
            _ => {
                let is_long = self.world.answer(round, question, response);
                if is_long && over_udp {
                    response.answers.clear();
                    response.metadata.truncation = true;
                }
            }
        }
    }
}
