//! Who gets which connection, and when one is dialled or closed. A core: it is told the time and returns effects.
//!
//! A connection has seats: one where it speaks HTTP/1, as many as the peer and the configuration allow where it speaks
//! HTTP/2. It takes a place from the start of its dial until its socket is closed. Each dial is paired with the request it was
//! started for, so the failure of a dial has exactly one addressee; connections themselves go to whoever has waited longest.
//! When that is not the dial's own request, the two swap their dials.
//!
//! Where the total keeps requests out, one rule makes room for each of them: close an idle connection, or the next one that
//! is released by a host whose own requests came later.

mod conduct;
mod conn;
mod descriptors;
mod dial_window;
mod learned_keep_alive;
mod moved_addresses;
mod queue;
mod slots;
mod timers;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use slab::Slab;

use self::conduct::Conduct;
use self::descriptors::Pressure;
use self::dial_window::Pace;
use self::learned_keep_alive::Lessons;
use self::moved_addresses::Names;
use super::config::{Limits, PoolConfig};
use crate::clock::Instant;
use crate::latency::Latency;
use crate::list::{Linked, Links, List};
use crate::trace::{CloseCause, Family, Limit};

/// The pool's books. `K` names a host, `C` is a handle on a connection, `W` a request that waits, `E` a dial's error.
pub(crate) struct State<K, C, W, E> {
    config: PoolConfig,
    limits: Vec<Limits>,
    profile: Box<dyn Fn(&K) -> Profile + Send>,
    hosts: Slab<Host<K>>,
    index: HashMap<K, usize, RandomState>,
    conns: Slab<Conn<C>>,
    tickets: Slab<Ticket<W>>,
    /// All idle connections, the most recently used in front.
    idle: List<IN_TOTAL>,
    /// Hosts that could open a connection if the total allowed it; they take turns.
    ring: List<0>,
    alarms: BTreeSet<(Instant, usize)>,
    pressure_alarm: Option<Instant>,
    names_alarm: Option<Instant>,
    effects: VecDeque<Effect<K, C, W, E>>,
    serial: u64,
    books: Books,
    pressure: Pressure,
    names: Names,
    lessons: Lessons<K>,
    conduct: Conduct<K>,
    draining: bool,
    /// Calls that are under way, though they neither wait nor have a connection.
    staying: usize,
}

/// What is known of a host beforehand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profile {
    /// Which of the configuration's limits are its own.
    pub(crate) limits: usize,
    pub(crate) speaks: Speaks,
}

/// How many requests a host's connections carry at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// The first connection will show.
    Unknown,
    /// One: HTTP/1.
    One,
    /// Many: HTTP/2.
    Many,
}

/// How many connections and requests are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Books {
    /// Places taken: connections from the start of their dial to the end of their socket.
    pub(crate) places: usize,
    pub(crate) dialling: usize,
    /// Connections that carry requests, and how many requests they carry.
    pub(crate) busy: usize,
    pub(crate) leased: usize,
    pub(crate) idle: usize,
    /// Busy, and to be closed when they no longer are; and those among them that make room for another host's.
    pub(crate) retiring: usize,
    pub(crate) yielding: usize,
    /// Given up, with a socket that is not closed yet.
    pub(crate) closing: usize,
    /// Requests that wait, and those among them for which nothing is being dialled.
    pub(crate) waiting: usize,
    pub(crate) unpaired: usize,
    /// Since the pool was made.
    pub(crate) tally: Tally,
}

/// The same for one host, as long as it has any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HostBooks {
    pub(crate) dialling: usize,
    pub(crate) busy: usize,
    pub(crate) leased: usize,
    pub(crate) idle: usize,
    pub(crate) waiting: usize,
    pub(crate) tally: Tally,
}

/// What happened, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) opened: u64,
    pub(crate) closed: [u64; CloseCause::ALL.len()],
    /// Requests that got a connection another one had used before.
    pub(crate) reused: u64,
    /// How long requests waited for a connection, those that did not among them, and how long they held it.
    pub(crate) queued: Latency,
    pub(crate) held: Latency,
}

/// A connection, from the start of its dial on. Its serial number is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnId {
    index: usize,
    pub(crate) serial: u64,
}

/// The runtime that serves a connection, or that a request is made on. It is only compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Home(pub(crate) u64);

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TicketId {
    index: usize,
    serial: u64,
}

/// The right to dial once. It must end in [`State::dialed`], [`State::dial_failed`] or [`State::dial_postponed`].
#[derive(Debug)]
pub(crate) struct Permit(ConnId);

impl Permit {
    pub(crate) fn id(&self) -> ConnId {
        self.0
    }
}

/// A seat on a connection. It must end in [`State::release`].
#[derive(Debug)]
pub(crate) struct Held {
    id: ConnId,
    since: Instant,
}

impl Held {
    /// The connection's number.
    pub(crate) fn connection(&self) -> u64 {
        self.id.serial
    }
}

/// A request's connection.
#[derive(Debug)]
pub(crate) struct Grant<C> {
    pub(crate) held: Held,
    pub(crate) conn: C,
    /// How many requests the connection carried before.
    pub(crate) requests: u64,
    /// For how long nobody had used it.
    pub(crate) idle: Duration,
    /// Somebody else is done with it, while another one was being opened for the request.
    pub(crate) freed: bool,
}

/// A request's place in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InLine {
    /// What keeps it waiting.
    pub(crate) limit: Limit,
    /// How many of the host's requests wait before it.
    pub(crate) position: usize,
}

/// What a request wants of the connection that it gets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wish {
    /// The connection on which its last attempt failed: it gets neither that nor an idle one.
    pub(crate) failed_on: Option<u64>,
    /// True if it belongs to a call that has begun before: it is served also while the pool is drained.
    pub(crate) begun: bool,
    /// True if it must be sent once: of a server that cuts kept connections it gets a rested or a new one.
    pub(crate) once: bool,
    /// The runtime it is made on, whose connections it gets rather than others.
    pub(crate) home: Home,
    /// True if an HTTP/2 connection is dialled for it, where there is room, though another dial would do. While it is, the request
    /// gets others of its own runtime alone.
    pub(crate) own: bool,
}

/// How a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was not used.
    Unused,
    /// The connection can serve again; the server may have said for how long it keeps it idle.
    Kept { keep_alive: Option<Duration> },
    /// It cannot. Other requests on it go on.
    Retire(CloseCause),
    /// The peer closed it, which it had kept, under the request; before that it had been idle for so long.
    Cut { idle: Duration },
}

/// A connection that was just dialled.
#[derive(Debug)]
pub(crate) struct Opened<C> {
    /// The handle on it, for requests that waited for the dial.
    pub(crate) fresh: C,
    /// The same for those that come later.
    pub(crate) conn: C,
    /// One seat until it is said how many there are, where it speaks HTTP/2.
    pub(crate) speaks: Speaks,
    pub(crate) location: Option<Location>,
    /// The runtime that serves it.
    pub(crate) home: Home,
}

/// Where a connection leads, as DNS had it.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    pub(crate) name: Arc<str>,
    pub(crate) ip: IpAddr,
}

/// What came of warming up.
#[derive(Debug)]
pub(crate) struct WarmUp {
    pub(crate) open: usize,
    pub(crate) dialled: usize,
    pub(crate) dials: Vec<ConnId>,
}

/// A name's answer in one family.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    pub(crate) family: Family,
    pub(crate) ips: Arc<[IpAddr]>,
    pub(crate) ttl: Duration,
    /// A newer one has a higher one.
    pub(crate) serial: Option<u64>,
}

#[derive(Debug)]
pub(crate) enum Acquired<C> {
    /// A connection that has a seat.
    Ready(Grant<C>),
    /// An effect will tell the waiter; what keeps it waiting.
    Wait(TicketId, InLine),
    /// So many wait already, for this reason.
    Refused(Limit),
}

/// What the driver must do, outside of its lock.
#[derive(Debug)]
pub(crate) enum Effect<K, C, W, E> {
    Dial(Permit, K),
    Deliver {
        waiter: W,
        grant: Grant<C>,
    },
    Fail {
        waiter: W,
        why: Failure<E>,
    },
    Close(C),
    /// Busy connections that take no more requests.
    Retired(ConnId, CloseCause),
    /// What DNS answers for a name should be told, to see whether it is the same as before.
    Ask(Arc<str>),
    /// Nobody needs the connection that is being dialled.
    Abort(ConnId),
    /// The pool was to be drained, and is.
    Drained,
}

/// Why a waiting request gets no connection.
#[derive(Debug)]
pub(crate) enum Failure<E> {
    Dial(E),
    WaitTimeout { waited: Duration, limit: Limit },
}

const PER_HOST: usize = 0;
const IN_TOTAL: usize = 1;

struct Host<K> {
    key: K,
    limits: usize,
    /// Connections the host is still needed for: those with a place, and leased ones whose socket is closed.
    conns: usize,
    places: usize,
    /// Those among them that carry requests, or will.
    usable: usize,
    /// Those of the usable ones that are open and speak HTTP/1.
    singles: usize,
    dialling: usize,
    busy: usize,
    leased: usize,
    /// Idle connections, the most recently used in front.
    idle: List<PER_HOST>,
    /// Busy connections with a seat left.
    shared: List<PER_HOST>,
    /// Dials whose request was served otherwise, or left.
    orphans: List<PER_HOST>,
    /// Dials that count against the window, the oldest in front.
    dials: List<IN_TOTAL>,
    /// How many dials may be under way; and how many, as long as nothing is known of the host.
    pace: Pace,
    probes: usize,
    speaks: Speaks,
    /// How many seats a connection has, as far as is known.
    seats: usize,
    /// Connections whose peer has not said yet how many they have.
    unsaid: usize,
    /// What the server said by `Keep-Alive: timeout`.
    keep_alive: Option<Duration>,
    /// Requests in the order they came: first those with a dial under way, then those without.
    queue: List<0>,
    first_unpaired: Option<usize>,
    /// How many they are.
    unpaired: usize,
    /// The number of requests in the queue that take no used HTTP/1 connection.
    shunning: usize,
    alarm: Option<Instant>,
    /// When its server, which asked for calm, may be dialled again.
    calm: Option<Instant>,
    in_ring: bool,
    ring_links: Links,
    tally: Tally,
}

struct Conn<C> {
    host: usize,
    serial: u64,
    /// Whether the socket may be open, that is, whether a place is taken.
    open: bool,
    /// Set when it takes no more requests.
    ended: Option<CloseCause>,
    stage: Stage<C>,
    links: [Links; 2],
}

enum Stage<C> {
    /// The peer may have said how many seats there are before anybody else knew of the connection.
    Dialling {
        ticket: Option<usize>,
        since: Instant,
        slow: bool,
        /// Whether it was begun before anybody asked for it.
        ahead: bool,
        said: Option<usize>,
    },
    Open(Open<C>),
    Closing,
}

struct Open<C> {
    conn: C,
    /// Until its first request is over.
    fresh: Option<C>,
    /// Whether it speaks HTTP/2.
    many: bool,
    seats: usize,
    /// Whether the peer has not said yet how many these are.
    unsaid: bool,
    /// Whether its last lease ended without having been used.
    unused: bool,
    taken: usize,
    requests: u64,
    /// When it was opened, or released last.
    since: Instant,
    /// When its lifetime is over.
    expires: Option<Instant>,
    /// Why it is to take no more requests once there is room for another connection.
    due: Option<CloseCause>,
    listed: Listed,
    location: Option<Location>,
    home: Home,
}

/// In which of its host's lists an open connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    No,
    Idle,
    Shared,
}

/// The connections that a waiting request takes.
#[derive(Debug, Clone, Copy)]
struct Wants {
    /// True if it failed before: it stands in front of those without a dial.
    again: bool,
    /// True if it takes no HTTP/1 connection that others have used, and while it has a dial no HTTP/2 connection that was just
    /// given back.
    shuns: bool,
    /// The only runtime whose connections it takes while it has a dial.
    own: Option<Home>,
}

struct Ticket<W> {
    host: usize,
    serial: u64,
    since: Instant,
    wants: Wants,
    waiter: W,
    dial: Option<usize>,
    links: Links,
}

impl<K> Linked<0> for Host<K> {
    fn place(&self) -> &Links {
        &self.ring_links
    }

    fn links(&mut self) -> &mut Links {
        &mut self.ring_links
    }
}

impl<C> Linked<PER_HOST> for Conn<C> {
    fn place(&self) -> &Links {
        &self.links[PER_HOST]
    }

    fn links(&mut self) -> &mut Links {
        &mut self.links[PER_HOST]
    }
}

impl<C> Linked<IN_TOTAL> for Conn<C> {
    fn place(&self) -> &Links {
        &self.links[IN_TOTAL]
    }

    fn links(&mut self) -> &mut Links {
        &mut self.links[IN_TOTAL]
    }
}

impl<W> Linked<0> for Ticket<W> {
    fn place(&self) -> &Links {
        &self.links
    }

    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<K: Clone + Eq + Hash, C: Clone, W, E> State<K, C, W, E> {
    pub(crate) fn new(config: PoolConfig, profile: impl Fn(&K) -> Profile + Send + 'static) -> Self {
        Self {
            limits: config.all_limits(),
            names: Names::new(config.follow_dns),
            config,
            profile: Box::new(profile),
            hosts: Slab::new(),
            index: HashMap::default(),
            conns: Slab::new(),
            tickets: Slab::new(),
            idle: List::default(),
            ring: List::default(),
            alarms: BTreeSet::new(),
            pressure_alarm: None,
            names_alarm: None,
            effects: VecDeque::new(),
            serial: 0,
            books: Books::default(),
            pressure: Pressure::default(),
            lessons: Lessons::default(),
            conduct: Conduct::default(),
            draining: false,
            staying: 0,
        }
    }

    /// Takes a seat on the host's most recently used connection that has one, or queues.
    ///
    /// A request that failed on a connection suspects the others, too: it queues for one that is new, or shared with others at the
    /// moment.
    pub(crate) fn checkout(&mut self, now: Instant, key: &K, wish: Wish, waiter: impl FnOnce() -> W) -> Acquired<C> {
        if self.draining && !wish.begun {
            return Acquired::Refused(Limit::Draining);
        }
        let host = self.host(now, key);
        let rest = self.rest(now, host, wish.once);
        let mut found = self.with_a_seat(now, host, wish, rest);
        if found.is_none() && (rest.is_some() || wish.own) && self.refusal(host).is_some() {
            // A connection that has not rested, or is another runtime's, is better than none.
            found = self.with_a_seat(now, host, Wish { own: false, ..wish }, None);
        }
        if let Some(id) = found {
            self.count(host, |tally| tally.queued.add(Duration::ZERO));
            let grant = self.seat(now, id);
            // It may have been the last seat a connection gives away, and others may wait for one of another connection.
            if !self.hosts[host].queue.is_empty() {
                self.fill(now, host);
            }
            return Acquired::Ready(grant);
        }
        if let Some(limit) = self.refusal(host) {
            self.prune(host);
            return Acquired::Refused(limit);
        }
        let again = wish.failed_on.is_some();
        let position = self.length_before(host, again);
        let wants = Wants { again, shuns: again || rest.is_some(), own: wish.own.then_some(wish.home) };
        let ticket = self.enqueue(now, host, wants, waiter());
        // An effect may have told it already.
        let waits = self.tickets.get(ticket.index).is_some_and(|other| other.serial == ticket.serial);
        let limit = if waits { self.kept_waiting_by(ticket.index) } else { self.binding_limit(host) };
        Acquired::Wait(ticket, InLine { limit, position })
    }

    /// A dial succeeded: its connection goes to the requests that waited longest, or becomes idle. Whether the answers of
    /// the name it was dialled for should be [told](Self::answered).
    pub(crate) fn dialed(&mut self, now: Instant, permit: Permit, opened: Opened<C>) -> bool {
        let id = permit.0.index;
        let host = self.conns[id].host;
        self.count(host, |tally| tally.opened += 1);
        self.give_to_the_first(host, id, opened.home);
        self.end_dial(id);
        self.pressure.relieved();
        let unknown = self.admit(now, id, opened);
        // One that is over already still goes to its request, which finds out, lest it be dialled for without end.
        if self.first_taker(host, id).is_some() {
            self.deliver(now, host, id);
        }
        self.settle(now, id);
        self.finish(now, host);
        self.follow(now);
        unknown
    }

    /// A dial failed, and with it the request it was started for. The error of one whose request has gone comes back.
    pub(crate) fn dial_failed(&mut self, now: Instant, permit: Permit, error: E) -> Option<E> {
        let id = permit.0.index;
        let host = self.conns[id].host;
        self.probe_more(host);
        let unwanted = match self.conns[id].stage {
            Stage::Dialling { ticket: Some(ticket), .. } => {
                let waiter = self.remove_ticket(ticket).waiter;
                self.effects.push_back(Effect::Fail { waiter, why: Failure::Dial(error) });
                None
            }
            _ => {
                self.hosts[host].orphans.remove(&mut self.conns, id);
                Some(error)
            }
        };
        self.drop_dial(now, id);
        unwanted
    }

    /// A dial failed because sockets have run out: its request goes on waiting, and an idle connection makes room.
    pub(crate) fn dial_postponed(&mut self, now: Instant, permit: Permit) {
        let id = permit.0.index;
        let host = self.conns[id].host;
        match self.conns[id].stage {
            Stage::Dialling { ticket: Some(ticket), .. } => self.put_back(now, host, ticket),
            _ => self.hosts[host].orphans.remove(&mut self.conns, id),
        }
        // A place that was given up already is not counted.
        let others = self.books.places - usize::from(self.conns[id].open);
        if let Some(wake) = self.pressure.felt(now, others) {
            self.set_pressure_alarm(Some(wake));
            self.close_oldest(CloseCause::Descriptors);
        }
        self.drop_dial(now, id);
    }

    /// A lease ended.
    pub(crate) fn release(&mut self, now: Instant, held: Held, ended: Ended) {
        let id = held.id.index;
        let host = self.conns[id].host;
        let time = now.saturating_duration_since(held.since);
        self.count(host, |tally| tally.held.add(time));
        if ended != Ended::Unused && !self.open(id).many {
            let (open, most) = (self.hosts[host].open(), self.limits(host).max_dials);
            self.hosts[host].pace.freed(now, time, open, most);
        }
        self.unseat(now, id, ended);
        match ended {
            Ended::Retire(cause @ (CloseCause::Peer | CloseCause::PeerAsked)) => self.end(id, cause),
            Ended::Retire(cause) => self.end_when_possible(id, cause),
            Ended::Kept { keep_alive } => self.heard(now, host, keep_alive),
            Ended::Cut { idle } => {
                self.note_close(now, host, idle, true);
                self.end(id, CloseCause::Peer);
            }
            Ended::Unused => {}
        }
        match self.overdue(now, id) {
            Some(cause) => {
                let turn = self.next_turn(now, host, self.open(id).taken > 0);
                self.give_turn(turn);
                self.end(id, cause);
            }
            None => self.give_turn(None),
        }
        self.settle(now, id);
        self.finish(now, host);
    }

    /// The peer lets a connection have so many requests at the same time.
    pub(crate) fn reseat(&mut self, now: Instant, id: ConnId, seats: usize) {
        let Some(host) = self.find(id) else { return };
        let most = self.limits[self.hosts[host].limits].max_streams;
        self.hosts[host].seats = seats.clamp(1, most);
        match &mut self.conns[id.index].stage {
            Stage::Dialling { said, .. } => *said = Some(seats.min(most)),
            Stage::Open(open) => {
                open.seats = seats.min(most);
                self.is_said(id.index);
                self.settle(now, id.index);
            }
            Stage::Closing => {}
        }
        self.finish(now, host);
    }

    /// A connection takes no more requests; those it has go on.
    pub(crate) fn retire(&mut self, now: Instant, id: ConnId, cause: CloseCause) {
        let Some(host) = self.find(id) else { return };
        self.end(id.index, cause);
        self.settle(now, id.index);
        self.finish(now, host);
    }

    /// The peer of a connection asks for calm: the connection takes no more requests, and its host is not dialled for a while.
    /// `random` is from 0 to 1.
    pub(crate) fn calm(&mut self, now: Instant, id: ConnId, random: f64) {
        let Some(host) = self.find(id) else { return };
        let until = self.conduct.calm(now, &self.hosts[host].key, random);
        self.hosts[host].calm = Some(until);
        self.set_calm_alarm(host);
        self.retire(now, id, CloseCause::PeerAsked);
    }

    /// Takes one resend from a host's allowance. Returns false if there is none left.
    pub(crate) fn may_resend(&mut self, now: Instant, key: &K) -> bool {
        self.conduct.may_resend(now, key)
    }

    /// A connection's socket is closed: its place is free, and a connection without requests is gone. Why it closed.
    pub(crate) fn closed(&mut self, now: Instant, id: ConnId) -> CloseCause {
        let Some(host) = self.find(id) else { return CloseCause::Peer };
        let cause = self.conns[id.index].ended.unwrap_or(CloseCause::Peer);
        self.count(host, |tally| tally.closed[cause as usize] += 1);
        self.learn(now, id.index);
        self.lose_socket(id.index);
        self.settle(now, id.index);
        self.finish(now, host);
        cause
    }

    /// A request no longer waits. Nothing happens if it was served in the meantime.
    pub(crate) fn abandon(&mut self, now: Instant, id: TicketId) -> Option<W> {
        let ticket = self.tickets.get(id.index).filter(|ticket| ticket.serial == id.serial)?;
        let host = ticket.host;
        let waiter = self.leave(id.index).waiter;
        self.finish(now, host);
        Some(waiter)
    }

    /// Dials until a host has `count` connections that are open or being opened, as far as the limits allow, but not more than
    /// `budget` times. How many are open, how many were dialled, and if they are too few, the dials under way.
    pub(crate) fn warm_up(&mut self, now: Instant, key: &K, count: usize, budget: usize) -> WarmUp {
        let host = self.host(now, key);
        let limits = *self.limits(host);
        let count = count.min(limits.max_connections).min(limits.max_idle).min(self.config.max_idle);
        let mut dialled = 0;
        while dialled < budget && self.hosts[host].usable < count && self.may_dial_ahead(host) {
            dialled += 1;
            let id = self.dial(now, host);
            match self.hosts[host].first_unpaired {
                Some(_) => self.pair(host, id),
                None => {
                    self.hosts[host].orphans.push_front(&mut self.conns, id);
                    if let Stage::Dialling { ahead, .. } = &mut self.conns[id].stage {
                        *ahead = true;
                    }
                }
            }
        }
        self.relist(host);
        let open = self.hosts[host].open();
        let is_dial = |conn: &Conn<C>| conn.host == host && matches!(conn.stage, Stage::Dialling { .. });
        let dials = self.conns.iter().filter(|(_, conn)| open < count && is_dial(conn));
        let dials = dials.map(|(index, conn)| ConnId { index, serial: conn.serial }).collect();
        self.prune(host);
        WarmUp { open, dialled, dials }
    }

    /// Whether a connection may be dialled that nobody waits for yet.
    fn may_dial_ahead(&self, host: usize) -> bool {
        let entry = &self.hosts[host];
        let most = if entry.speaks == Speaks::Unknown { entry.probes } else { entry.pace.window() };
        let may_dial = !self.draining && entry.calm.is_none() && entry.dials.len() < most;
        may_dial && self.has_room() && self.host_has_room(host)
    }

    /// Closes every idle connection.
    pub(crate) fn close_idle(&mut self, now: Instant) {
        while let Some(oldest) = self.idle.back() {
            let host = self.conns[oldest].host;
            self.end(oldest, CloseCause::Asked);
            self.settle(now, oldest);
            self.finish(now, host);
        }
    }

    /// Serves nobody who comes from now on, and closes what is not needed for the others. An effect tells of the end.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.draining = true;
        self.close_idle(now);
        let ids: Vec<_> = self.conns.iter().map(|(id, _)| self.id(id)).filter(|id| self.is_orphan(*id)).collect();
        self.effects.extend(ids.into_iter().map(Effect::Abort));
        self.tell_if_drained();
    }

    /// A call goes on later: a drain waits for it.
    pub(crate) fn stay(&mut self) {
        self.staying += 1;
    }

    /// It does, or is over.
    pub(crate) fn stay_no_longer(&mut self) {
        self.staying -= 1;
        self.tell_if_drained();
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.draining
            && self.staying == 0
            && self.books.places == 0
            && self.books.leased == 0
            && self.tickets.is_empty()
    }

    /// What DNS answers for a name, where that is not known yet; `new` where it replaces what is known.
    pub(crate) fn answered(&mut self, now: Instant, name: &str, answer: &Addresses, new: bool) {
        self.names.answered(now, name, answer, new);
        self.follow(now);
    }

    /// The names of open connections.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.names.all()
    }

    /// The next thing to do, until there is none.
    pub(crate) fn poll(&mut self) -> Option<Effect<K, C, W, E>> {
        self.effects.pop_front()
    }

    /// Whether there is anything to [`poll`](Self::poll).
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Returns true if a dial is under way that no request needs, and the pool is drained.
    pub(crate) fn is_unwanted(&self, id: ConnId) -> bool {
        self.draining && self.is_orphan(id)
    }

    /// Returns true if a dial is under way for no request.
    fn is_orphan(&self, id: ConnId) -> bool {
        let is_orphan = |conn: &Conn<C>| matches!(conn.stage, Stage::Dialling { ticket: None, .. });
        self.conns.get(id.index).is_some_and(|conn| conn.serial == id.serial && is_orphan(conn))
    }

    /// The request a dial is paired with.
    pub(crate) fn waiter_of(&self, permit: &Permit) -> Option<&W> {
        match self.conns[permit.0.index].stage {
            Stage::Dialling { ticket, .. } => ticket.map(|ticket| &self.tickets[ticket].waiter),
            _ => None,
        }
    }

    /// The requests that wait, in no order.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &W> {
        self.tickets.iter().map(|(_, ticket)| &ticket.waiter)
    }

    /// The dial that is under way for a request.
    pub(crate) fn dial_of(&self, id: TicketId) -> Option<ConnId> {
        let ticket = self.tickets.get(id.index).filter(|ticket| ticket.serial == id.serial)?;
        ticket.dial.map(|dial| self.id(dial))
    }

    pub(crate) fn books(&self) -> Books {
        Books { idle: self.idle.len(), waiting: self.tickets.len(), ..self.books }
    }

    /// What each host has.
    pub(crate) fn host_books(&self) -> impl Iterator<Item = (&K, HostBooks)> {
        self.hosts.iter().map(|(_, host)| {
            let Host { dialling, busy, leased, tally, .. } = *host;
            let (idle, waiting) = (host.idle.len(), host.queue.len());
            (&host.key, HostBooks { dialling, busy, leased, idle, waiting, tally })
        })
    }

    /// Counts for a host, and in total.
    fn count(&mut self, host: usize, count: impl Fn(&mut Tally)) {
        count(&mut self.books.tally);
        count(&mut self.hosts[host].tally);
    }

    fn host(&mut self, now: Instant, key: &K) -> usize {
        if let Some(&host) = self.index.get(key) {
            return host;
        }
        let Profile { limits, speaks } = (self.profile)(key);
        let host = self.hosts.insert(Host {
            key: key.clone(),
            limits,
            conns: 0,
            places: 0,
            usable: 0,
            singles: 0,
            dialling: 0,
            busy: 0,
            leased: 0,
            idle: List::default(),
            shared: List::default(),
            orphans: List::default(),
            dials: List::default(),
            pace: Pace::new(now, self.limits[limits].max_dials),
            probes: 1,
            speaks,
            seats: self.limits[limits].max_streams,
            unsaid: 0,
            keep_alive: None,
            queue: List::default(),
            first_unpaired: None,
            unpaired: 0,
            shunning: 0,
            alarm: None,
            calm: self.conduct.calm_until(now, key),
            in_ring: false,
            ring_links: Links::default(),
            tally: Tally::default(),
        });
        self.index.insert(key.clone(), host);
        self.set_calm_alarm(host);
        host
    }

    /// Forgets a host nobody needs.
    fn prune(&mut self, host: usize) {
        let Some(entry) = self.hosts.get(host) else { return };
        if entry.conns == 0 && entry.queue.is_empty() {
            self.clear_alarm(host);
            let entry = self.hosts.remove(host);
            self.index.remove(&entry.key);
        }
    }

    fn limits(&self, host: usize) -> &Limits {
        &self.limits[self.hosts[host].limits]
    }

    fn id(&self, index: usize) -> ConnId {
        ConnId { index, serial: self.conns[index].serial }
    }

    /// The host of a connection that still has a place.
    fn find(&self, id: ConnId) -> Option<usize> {
        self.conns.get(id.index).filter(|conn| conn.serial == id.serial).map(|conn| conn.host)
    }

    /// What follows from a change to a host: dials, and perhaps its end.
    fn finish(&mut self, now: Instant, host: usize) {
        let entry = &self.hosts[host];
        let nobody_waits = entry.queue.is_empty() && !entry.in_ring && self.ring.is_empty();
        if nobody_waits && entry.conns > 0 && !self.draining {
            return;
        }
        self.fill(now, host);
        self.share_what_there_is(now, host);
        if self.draining && self.hosts[host].queue.is_empty() {
            while let Some(idle) = self.hosts[host].idle.back() {
                self.end(idle, CloseCause::Asked);
                self.settle(now, idle);
            }
        }
        self.prune(host);
        self.tell_if_drained();
    }

    fn tell_if_drained(&mut self) {
        if self.is_drained() {
            self.effects.push_back(Effect::Drained);
        }
    }
}

fn next(serial: &mut u64) -> u64 {
    *serial += 1;
    *serial
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod walks;
