//! The world around the clients: its truth, and what it has seen. Servers, DNS and networks ask it how they are now; the judge reads
//! what they have written down.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use speeddial::simulation::{self, Datagrams, World};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::net::{End, Handle, Reachability};
use crate::plan::{Plan, Protocol};
use crate::servers::tls::Certificates;
use crate::{dns, servers};

/// Time since the world began.
pub(crate) type At = Duration;

/// The host to which a server at an address belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Host(usize),
    /// None of the plan: a server that answers each request all the same.
    Stranger,
}

/// A state that ends by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spell<T> {
    pub(crate) until: At,
    pub(crate) what: T,
}

/// A server program at an address.
pub(crate) struct Machine {
    pub(crate) owner: Owner,
    pub(crate) delay: Duration,
    pub(crate) reach: Option<Spell<Reachability>>,
    pub(crate) status: Option<Spell<u16>>,
    pub(crate) slow: Option<Spell<Duration>>,
    pub(crate) throttled: Option<Spell<Duration>>,
    /// The server closes the connection in the middle of every so manieth response.
    pub(crate) dies: Option<Spell<u32>>,
    /// The server closes the connection in place of every so manieth response.
    pub(crate) loses: Option<Spell<u32>>,
    /// The next response says `Keep-Alive: timeout=0`.
    pub says_timeout_0: bool,
    /// The next response comes behind so many interim ones.
    pub(crate) interims: u32,
    pub(crate) served: u64,
}

/// A DNS server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DnsHealth {
    Silent,
    /// It drops questions for IPv6 addresses alone.
    SilentAboutV6,
    ServFail,
    Closed,
    Slow(u64),
    Lossy,
}

/// A connection that a server accepted.
pub(crate) struct Conn {
    pub(crate) client: Option<usize>,
    pub(crate) address: SocketAddr,
    pub(crate) owner: Owner,
    pub(crate) opened: At,
    pub(crate) closed: Option<At>,
    /// The time at which the client closed it.
    pub(crate) left: Option<At>,
    /// The time at which its last response was complete, if none is under way.
    pub(crate) idle_since: Option<At>,
    pub(crate) open_streams: u32,
    pub(crate) requests: u32,
    pub(crate) handle: Handle,
    /// The server begins to restart.
    pub(crate) restart: Arc<Notify>,
}

/// A request as a server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) at: At,
    pub(crate) owner: Owner,
    pub(crate) address: SocketAddr,
    pub(crate) client: Option<usize>,
    pub(crate) call: Option<u64>,
    pub(crate) target: String,
    pub(crate) secret: Option<String>,
    pub(crate) cookies: Vec<String>,
    /// The time for which the connection had carried nothing before; `None` for its first request.
    pub(crate) idle: Option<Duration>,
    /// The age of the connection.
    pub(crate) age: Duration,
    /// True if the request had its effect.
    pub(crate) processed: bool,
    /// The bytes of content that came, and whether they came to their end, as the framing says.
    pub(crate) content: Option<(u64, bool)>,
    pub(crate) status: Option<u16>,
}

/// An address that a name had.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    pub(crate) host: usize,
    pub(crate) ip: IpAddr,
    pub(crate) from: At,
    pub(crate) until: Option<At>,
    /// The time for which requests may come there after it was left, and the rule that they break later.
    pub(crate) allowed: Duration,
    pub(crate) rule: &'static str,
}

impl Owned {
    fn new(host: usize, ip: IpAddr, from: At, allowed: Duration, rule: &'static str) -> Self {
        Self { host, ip, from, until: None, allowed, rule }
    }

    /// Returns true if the name had the address at a time.
    pub(crate) fn is_at(&self, at: At) -> bool {
        self.from <= at && self.until.is_none_or(|until| at < until)
    }
}

/// A time for which one address of a host answers by errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sick {
    pub(crate) host: usize,
    pub(crate) ip: IpAddr,
    pub(crate) from: At,
    pub(crate) until: At,
}

/// A fault that was at work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trouble {
    pub(crate) from: At,
    pub(crate) until: At,
    pub(crate) about: About,
    /// The time after its end for which calls may still be worse.
    pub(crate) grace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Host(usize),
    Dns,
    Client(usize),
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) machines: HashMap<IpAddr, Machine>,
    pub(crate) dns: [Option<Spell<DnsHealth>>; 4],
    /// The current addresses of each host, and those that DNS knows.
    pub(crate) addresses: Vec<Vec<IpAddr>>,
    pub(crate) in_dns: Vec<Vec<IpAddr>>,
    pub(crate) owned: Vec<Owned>,
    pub(crate) files: HashMap<&'static str, (String, u64)>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) requests: Vec<Request>,
    pub(crate) dials: Vec<(At, Option<usize>, SocketAddr)>,
    /// The questions that DNS servers were asked: when, which server, the name.
    pub(crate) questions: Vec<(At, usize, String)>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) sick: Vec<Sick>,
    pub(crate) is_second_network: bool,
    /// True if servers have certificates of the second authority.
    pub(crate) is_renewed: bool,
    pub(crate) timeline: String,
}

/// The world.
pub(crate) struct Outside {
    pub(crate) plan: Plan,
    pub(crate) start: Instant,
    state: Mutex<State>,
    pub(crate) tls: Arc<Certificates>,
    /// True if lines are printed as they are written, for a world that does not end.
    prints: bool,
}

impl Outside {
    pub(crate) fn new(plan: Plan, tls: Arc<Certificates>) -> Arc<Self> {
        let mut state = State::default();
        for (host, of_host) in plan.hosts.iter().enumerate() {
            for ip in &of_host.addresses {
                state.machines.insert(*ip, Machine::new(Owner::Host(host), of_host.delay));
                state.owned.push(Owned::new(host, *ip, At::ZERO, Duration::ZERO, "stale"));
            }
            state.addresses.push(of_host.addresses.clone());
            state.in_dns.push(of_host.addresses.clone());
        }
        state.machines.insert(dns::WILDCARD, Machine::new(Owner::Stranger, Duration::from_millis(5)));
        state.files.insert("/etc/resolv.conf", (dns::resolv_conf(&plan, false), 0));
        state.files.insert("/etc/roots.pem", (tls.root(false), 0));
        state.files.insert("/etc/hosts", ("127.0.0.1 localhost\n".to_owned(), 0));
        Arc::new(Self {
            plan,
            start: Instant::now(),
            state: Mutex::new(state),
            tls,
            prints: std::env::var_os("PRINT").is_some(),
        })
    }

    pub(crate) fn now(&self) -> At {
        Instant::now() - self.start
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Returns how an address can be reached, its delay, and the time that a kibibyte takes.
    pub(crate) fn way_to(&self, ip: IpAddr) -> (Reachability, Duration, Duration) {
        let now = self.now();
        match self.state().machines.get(&ip) {
            None => (Reachability::Refuses, Duration::from_millis(3), Duration::ZERO),
            Some(machine) => {
                let reach = current(machine.reach, now).unwrap_or_default();
                (reach, machine.delay, current(machine.throttled, now).unwrap_or_default())
            }
        }
    }

    pub(crate) fn note_dial(&self, client: Option<usize>, address: SocketAddr) {
        let now = self.now();
        self.state().dials.push((now, client, address));
    }

    /// Gives a connection to the server at an address.
    pub(crate) fn accept(
        self: &Arc<Self>,
        client: Option<usize>,
        address: SocketAddr,
        stream: End,
        handle: Handle,
    ) -> usize {
        let now = self.now();
        let mut state = self.state();
        let owner = state.machines[&address.ip()].owner;
        let id = state.conns.len();
        state.conns.push(Conn {
            client,
            address,
            owner,
            opened: now,
            closed: None,
            left: None,
            idle_since: None,
            open_streams: 0,
            requests: 0,
            handle,
            restart: Arc::default(),
        });
        drop(state);
        self.tell(owner.host(), format_args!("connection {id} of {client:?} to {address}"));
        let outside = self.clone();
        tokio::spawn(async move {
            let result = servers::serve(&outside, id, owner, address, stream).await;
            let now = outside.now();
            outside.state().conns[id].closed = Some(now);
            outside.tell(owner.host(), format_args!("connection {id} closed {result:?}"));
        });
        id
    }

    /// Returns the protocol of a server.
    pub(crate) fn protocol(&self, owner: Owner) -> Protocol {
        match owner {
            Owner::Host(host) => self.plan.hosts[host].protocol,
            Owner::Stranger => Protocol::Http11,
        }
    }

    /// Writes a line about a host, or about all.
    pub(crate) fn tell(&self, host: Option<usize>, what: std::fmt::Arguments<'_>) {
        let now = self.now();
        let host = host.map_or("-".to_owned(), |host| format!("h{host}"));
        let line = format!("{:>12.3} {host:<4} {what}", now.as_secs_f64());
        if self.prints {
            println!("{line}");
        }
        writeln!(self.state().timeline, "{line}").unwrap();
    }

    pub(crate) fn trouble(&self, about: About, lasts: Duration, grace: Duration) {
        let now = self.now();
        self.state().troubles.push(Trouble { from: now, until: now + lasts, about, grace });
    }

    /// Gives a host other addresses. `left` is how the old ones can be reached from now on.
    pub(crate) fn move_host(
        &self,
        host: usize,
        to: Vec<IpAddr>,
        left: Reachability,
        allowed: Duration,
        rule: &'static str,
    ) {
        let now = self.now();
        let mut state = self.state();
        state.in_dns[host] = to.clone();
        let old = std::mem::replace(&mut state.addresses[host], to.clone());
        for owned in &mut state.owned {
            if owned.host == host && owned.until.is_none() && !to.contains(&owned.ip) {
                (owned.until, owned.allowed, owned.rule) = (Some(now), allowed, rule);
            }
        }
        for ip in old.iter().filter(|ip| !to.contains(ip)) {
            let machine = state.machines.get_mut(ip).unwrap();
            if left != Reachability::Serves {
                machine.reach = Some(Spell { until: At::MAX, what: left });
            }
        }
        for ip in to {
            state.machines.entry(ip).or_insert_with(|| Machine::new(Owner::Host(host), self.plan.hosts[host].delay));
            if !old.contains(&ip) {
                state.owned.push(Owned::new(host, ip, now, allowed, rule));
            }
        }
    }

    pub(crate) fn write_file(&self, path: &'static str, text: String) {
        let mut state = self.state();
        let changes = state.files.get(path).map_or(0, |(_, changes)| changes + 1);
        state.files.insert(path, (text, changes));
    }

    /// Resets or stalls the connections of a server.
    pub(crate) fn disturb(&self, ip: IpAddr, disturb: impl Fn(&Handle)) {
        let state = self.state();
        for conn in state.conns.iter().filter(|conn| conn.closed.is_none() && conn.address.ip() == ip) {
            disturb(&conn.handle);
        }
    }
}

impl Owner {
    pub(crate) fn host(self) -> Option<usize> {
        match self {
            Self::Host(host) => Some(host),
            Self::Stranger => None,
        }
    }
}

impl Machine {
    pub(crate) fn new(owner: Owner, delay: Duration) -> Self {
        Self {
            owner,
            delay,
            reach: None,
            status: None,
            slow: None,
            throttled: None,
            dies: None,
            loses: None,
            says_timeout_0: false,
            interims: 0,
            served: 0,
        }
    }
}

/// Returns what a spell says, if it lasts.
pub(crate) fn current<T>(spell: Option<Spell<T>>, now: At) -> Option<T> {
    spell.filter(|spell| now < spell.until).map(|spell| spell.what)
}

/// The parts of the world that the crate reaches without a trait of its users.
pub(crate) struct Seams(pub(crate) Arc<Outside>);

impl World for Seams {
    fn time_of_day(&self) -> SystemTime {
        // A day of 2026.
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000) + self.0.now()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.0.state();
        let (text, _) = path.to_str().and_then(|path| state.files.get(path)).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.clone().into_bytes())
    }

    fn changes(&self, path: &Path) -> Option<u64> {
        let state = self.0.state();
        Some(state.files.get(path.to_str()?)?.1)
    }

    fn udp(&self, server: SocketAddr) -> io::Result<Box<dyn Datagrams>> {
        Ok(Box::new(dns::Socket::new(self.0.clone(), server)))
    }

    fn tcp(&self, server: SocketAddr) -> simulation::Connecting {
        Box::pin(dns::over_tcp(self.0.clone(), server))
    }
}
