//! The parts of a world, as data that are drawn from a seed, so that it can be made smaller.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::net::Reachability;
use crate::outside::DnsHealth;

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// The time for which calls are made.
    pub(crate) length: Duration,
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) dns: DnsPlan,
    pub(crate) clients: Vec<ClientPlan>,
    pub(crate) traffic: Vec<Traffic>,
    pub(crate) faults: Vec<Fault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http10,
    Http11,
    Http2,
}

/// What public DNS servers say of a host of an internal network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// What the internal ones say.
    Same,
    /// It does not exist.
    Absent,
    /// The address of a stranger.
    Stranger,
}

#[derive(Debug, Clone)]
pub(crate) struct HostPlan {
    pub(crate) addresses: Vec<IpAddr>,
    /// The addresses that it may move to.
    pub(crate) spare: Vec<IpAddr>,
    pub(crate) ttl: u32,
    pub(crate) protocol: Protocol,
    pub(crate) tls: bool,
    /// What public DNS servers say of it.
    pub(crate) view: View,
    pub(crate) delay: Duration,
    /// The time after which the server closes an idle connection.
    pub(crate) keep_alive: Duration,
    pub(crate) says_keep_alive: bool,
    pub(crate) max_requests: u32,
    /// END_STREAM comes a moment after the content.
    pub(crate) ends_late: bool,
    pub(crate) think: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct DnsPlan {
    pub(crate) servers: usize,
    pub(crate) search: bool,
    pub(crate) delay: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct ClientPlan {
    pub(crate) idle_timeout: Duration,
    pub(crate) lifetime: Duration,
    pub(crate) max_per_host: Option<usize>,
    pub(crate) spread: bool,
    pub(crate) retry: bool,
    pub(crate) hedge: bool,
    pub(crate) cookies: bool,
    pub(crate) timeout: Duration,
    /// Requests pass through a gateway that forwards them.
    pub(crate) is_gateway: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Post,
    /// A PUT with `If-None-Match: *`.
    PutOnce,
    Upload,
    /// A body of some kibibytes.
    Download(u32),
    /// Takes so many milliseconds.
    Slow(u64),
    /// The body is dropped when a piece of it has come.
    HalfRead,
    /// Given up after so many milliseconds.
    GivenUp(u64),
    /// `error_for_status`, and the response dropped unread.
    Unread,
    /// Reads as many bytes as were announced, and drops the body then.
    Counted(u32),
    /// So many at once.
    Many(u32),
}

impl Kind {
    /// Returns what the path asks a server for, and how much of it.
    pub(crate) fn path(self) -> (&'static str, u64) {
        match self {
            Self::Download(kib) => ("plain", u64::from(kib) * 1024),
            Self::HalfRead => ("plain", 200 * 1024),
            Self::Slow(ms) => ("slow", ms),
            Self::Counted(bytes) => ("plain", u64::from(bytes)),
            _ => ("plain", 5),
        }
    }

    /// Returns true if the request may be sent again by itself.
    pub(crate) fn is_repeatable(self) -> bool {
        !matches!(self, Self::Post | Self::PutOnce | Self::Upload)
    }

    /// Returns true if the program lets the call run to its end.
    pub(crate) fn is_patient(self) -> bool {
        !matches!(self, Self::HalfRead | Self::GivenUp(_) | Self::Unread)
    }
}

/// Calls of one kind, one after the other, whether the last one has ended or not.
#[derive(Debug, Clone)]
pub(crate) struct Traffic {
    pub(crate) client: usize,
    pub(crate) host: usize,
    pub(crate) kind: Kind,
    pub(crate) every: Duration,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// Something that goes wrong. Which host, client and address it concerns is drawn for each, also where it concerns none.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) client: usize,
    pub(crate) host: usize,
    /// The number of the host's address that it concerns.
    pub(crate) address: usize,
    /// The first of the addresses that it concerns, where it concerns several.
    pub(crate) from: usize,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum What {
    /// One of the two DNS servers of the current network.
    Dns(usize, DnsHealth),
    /// Addresses drop what is sent to them.
    Drops,
    Refuses,
    /// Connections of one address are reset.
    Resets,
    /// Nothing arrives on connections to one address.
    Stalls,
    /// One address answers by this status.
    Status(u16),
    /// Answers take so many milliseconds more.
    Slow(u64),
    /// The connection breaks in the middle of every so manieth response.
    Dies(u32),
    /// The server does what a request says, and closes the connection in place of every so manieth response.
    Loses(u32),
    /// A restart with GOAWAY or FIN.
    Restarts,
    /// The name moves to its spare addresses; how the old ones can be reached from then on.
    Moves(Reachability),
    /// Names move because the network is another one: resolv.conf is rewritten.
    OtherNetwork,
    /// The hosts file says where a host is.
    HostsFile,
    /// One response says `Keep-Alive: timeout=0`.
    Timeout0,
    /// One response comes behind so many interim ones.
    Interims(u32),
    /// The program does not run: a blocked thread, or a suspended machine.
    Frozen,
    /// A client gets another resolver, while the first DNS server hangs.
    SetResolver,
    /// A client gets another resolver, whatever the first DNS server does.
    NewResolver,
    CloseIdle,
    /// The servers get certificates of another authority, a minute after the file of trusted ones says so.
    Renewed,
}

fn seconds(random: &mut fastrand::Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(random.u64(from * 1_000..=to * 1_000))
}

fn one_of<T: Copy>(random: &mut fastrand::Rng, all: &[T]) -> T {
    all[random.usize(..all.len())]
}

impl Plan {
    /// Draws a world from a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let random = &mut random;
        let length = Duration::from_secs(one_of(random, &[1_200, 1_800, 2_700, 3_600]));
        let hosts: Vec<_> = (0..random.usize(1..=5)).map(|host| HostPlan::draw(random, host)).collect();
        let dns = DnsPlan {
            servers: 1 + usize::from(random.u8(..4) > 0),
            search: random.bool(),
            delay: Duration::from_millis(random.u64(1..=15)),
        };
        let clients: Vec<_> = (0..random.usize(1..=2)).map(|_| ClientPlan::draw(random)).collect();
        let mut traffic = Vec::new();
        for (client, of_client) in clients.iter().enumerate() {
            // Some are used for the first time long after they were built.
            let from = if random.u8(..5) == 0 { length / 2 } else { Duration::ZERO };
            let upstreams = if of_client.is_gateway { 1 } else { hosts.len() };
            for host in 0..upstreams {
                for _ in 0..random.usize(1..=2) {
                    traffic.push(Traffic::draw(random, client, host, from, length));
                }
            }
        }
        let mut plan = Self { seed, length, hosts, dns, clients, traffic, faults: Vec::new() };
        let mut at = seconds(random, 30, 300);
        while at + Duration::from_secs(400) < length {
            // Some at once, and then a calm in which everything has to become as it was.
            let mut longest = Duration::ZERO;
            for _ in 0..random.usize(1..=2) {
                let fault = Fault::draw(random, &plan, at);
                longest = longest.max(fault.lasts);
                plan.faults.push(fault);
            }
            at += longest + seconds(random, 240, 500);
        }
        plan
    }
}

impl HostPlan {
    fn draw(random: &mut fastrand::Rng, host: usize) -> Self {
        let number = u8::try_from(host).unwrap();
        let count = one_of(random, &[1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 200]);
        let address = |at: u16| IpAddr::V4(Ipv4Addr::new(10, 100 + number, (at >> 8) as u8, at as u8));
        let protocol =
            one_of(random, &[Protocol::Http10, Protocol::Http11, Protocol::Http11, Protocol::Http11, Protocol::Http2]);
        Self {
            addresses: (1..=count).map(address).collect(),
            spare: (1_001..=1_000 + count).map(address).collect(),
            ttl: one_of(random, &[1, 5, 30, 60, 300, 3_600]),
            protocol,
            tls: random.u8(..10) == 0,
            view: one_of(random, &[View::Same, View::Absent, View::Stranger]),
            delay: Duration::from_millis(random.u64(1..=20)),
            keep_alive: Duration::from_secs(one_of(random, &[5, 15, 60, 75, 600])),
            says_keep_alive: random.u8(..4) == 0,
            max_requests: one_of(random, &[u32::MAX, u32::MAX, 1_000, 100]),
            ends_late: random.u8(..4) == 0,
            think: Duration::from_millis(random.u64(1..=30)),
        }
    }
}

impl ClientPlan {
    fn draw(random: &mut fastrand::Rng) -> Self {
        Self {
            idle_timeout: Duration::from_secs(one_of(random, &[5, 50, 50, 50, 90])),
            lifetime: Duration::from_secs(one_of(random, &[60, 900, 900])),
            max_per_host: one_of(random, &[None, None, Some(1), Some(2), Some(8)]),
            spread: random.u8(..5) < 2,
            retry: random.u8(..3) == 0,
            hedge: random.u8(..6) == 0,
            cookies: random.u8(..4) == 0,
            timeout: Duration::from_secs(one_of(random, &[5, 15, 30])),
            is_gateway: random.u8(..5) == 0,
        }
    }
}

impl Traffic {
    fn draw(random: &mut fastrand::Rng, client: usize, host: usize, from: Duration, length: Duration) -> Self {
        let kind = match random.u8(..20) {
            0..=5 => Kind::Get,
            7 | 8 => Kind::Post,
            9 | 10 => Kind::PutOnce,
            11 | 12 => Kind::Upload,
            13 => Kind::Download(random.u32(1..=200)),
            6 => Kind::Counted(random.u32(1..=20_000)),
            14 => Kind::Slow(random.u64(100..=3_000)),
            15 => Kind::HalfRead,
            16 => Kind::GivenUp(random.u64(1..=60)),
            17 | 18 => Kind::Unread,
            _ => Kind::Many(random.u32(2..=12)),
        };
        let every = match kind {
            Kind::Many(_) => seconds(random, 20, 60),
            _ => seconds(random, 2, 20),
        };
        Self { client, host, kind, every, from: from + seconds(random, 0, 20), until: length }
    }
}

impl Fault {
    fn draw(random: &mut fastrand::Rng, plan: &Plan, at: Duration) -> Self {
        let host = random.usize(..plan.hosts.len());
        let addresses = plan.hosts[host].addresses.len();
        let address = random.usize(..addresses);
        let client = random.usize(..plan.clients.len());
        let lasts = match random.u8(..4) {
            0 => seconds(random, 1, 4),
            1 | 2 => seconds(random, 4, 30),
            _ => seconds(random, 30, 120),
        };
        let from = if random.bool() { 0 } else { address };
        let what = match random.u8(..26) {
            0..=3 => {
                let health = match random.u8(..8) {
                    0..=2 => DnsHealth::Silent,
                    3 | 4 => DnsHealth::ServFail,
                    5 => DnsHealth::Closed,
                    6 => DnsHealth::Slow(random.u64(100..=3_000)),
                    _ => DnsHealth::Lossy,
                };
                What::Dns(if random.u8(..4) > 0 { 0 } else { plan.dns.servers - 1 }, health)
            }
            4 => What::Drops,
            5 => What::Refuses,
            6 => What::Resets,
            7 => What::Stalls,
            8 | 9 => What::Status(one_of(random, &[503, 503, 500, 429])),
            10 => What::Slow(random.u64(100..=9_000)),
            11 => What::Dies(random.u32(1..=4)),
            12 => What::Restarts,
            13 | 14 => What::Moves(one_of(random, &[Reachability::Serves, Reachability::Drops])),
            15 => What::OtherNetwork,
            16 => What::HostsFile,
            17 => What::Timeout0,
            18 => What::Interims(one_of(random, &[1, 5, 21, 40])),
            19 => What::Frozen,
            20 | 21 => What::SetResolver,
            22 => What::CloseIdle,
            23 => What::Renewed,
            _ => What::Loses(random.u32(1..=3)),
        };
        Self { at, lasts, client, host, address, from, what }
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = format!("world {} of {:?}, {:?}\n", self.seed, self.length, self.dns);
        for (number, host) in self.hosts.iter().enumerate() {
            writeln!(text, "  h{number}: {host:?}")?;
        }
        for (number, client) in self.clients.iter().enumerate() {
            writeln!(text, "  client {number}: {client:?}")?;
        }
        for traffic in &self.traffic {
            writeln!(text, "  {traffic:?}")?;
        }
        for fault in &self.faults {
            writeln!(text, "  {fault:?}")?;
        }
        f.write_str(&text)
    }
}
