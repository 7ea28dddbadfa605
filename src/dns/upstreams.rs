//! The DNS servers of a configuration: in which order they are asked, and for which of the names a name may stand for.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hickory_resolver::config::{NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{PoolContext, Resolver, TlsConfig};
use tokio::runtime;
use tokio::sync::Semaphore;

use super::connections::{Connections, MOST_UNDER_WAY};
use super::records::{answer, explain, is_answer};
use super::resolv_conf::Skipped;
use super::search::{Memory, Said, SearchList, Verdict, is_silence, judge, merge};
use super::sockets::Sockets;
use super::tries::{HEAD_START, Step, Tries, Way};
use super::{Answer, Family, ResolveError, ResolveErrorKind};
use crate::clock::{Instant, before, now};
use crate::sync::lock;

/// How long and how often servers are asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) one_try: Duration,
    pub(super) tries: usize,
    pub(super) total: Duration,
    /// How many lookups ask at once.
    pub(super) in_flight: usize,
}

/// Which servers are asked, for which names, and how.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) servers: Vec<Endpoint>,
    /// No server is configured, and this machine is asked, in case it is one.
    pub(super) is_assumed: bool,
    pub(super) search: SearchList,
    /// Each question goes to the next server first.
    pub(super) rotate: bool,
    /// One question about a name at a time.
    pub(super) single_request: bool,
    /// The family that is asked for, where it is one alone.
    pub(super) only: Option<Family>,
    /// What of the configuration was left out.
    pub(super) skipped: Vec<Skipped>,
}

/// A server, and the index of the network card that leads to it; zero for none.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) config: NameServerConfig,
    pub(super) scope: u32,
}

/// The servers of a configuration, each with a resolver of its own: hickory would not go on to the next one after
/// SERVFAIL or REFUSED, nor to TCP where UDP goes unanswered.
pub(super) struct Upstreams {
    pub(super) servers: Vec<Upstream>,
    is_assumed: bool,
    search: SearchList,
    /// What was said of the candidates of names that are searched for.
    memory: Mutex<Memory>,
    only: Option<Family>,
    rotate: bool,
    pairs: Option<Pairs>,
    skipped: Mutex<Vec<Skipped>>,
    limits: Limits,
    /// Each lookup has a socket or more, and a burst of them would overrun the servers' buffers.
    turns: Semaphore,
    /// The turns of lookups that have had no answer for a while, so that they hold nobody up.
    slow_turns: Semaphore,
    /// The one that answered last is asked first; or the next one, where they rotate.
    first: AtomicUsize,
}

/// One question about a name at a time, for servers that lose the second one (`single-request`).
#[derive(Default)]
struct Pairs(Mutex<HashMap<Name, Weak<Semaphore>>>);

/// How the resolvers of a configuration are made.
pub(super) struct Workshop {
    pub(super) options: ResolverOpts,
    #[cfg(feature = "dns-over-tls")]
    pub(super) tls: rustls::ClientConfig,
}

pub(super) struct Upstream {
    endpoint: Endpoint,
    workshop: Arc<Workshop>,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    kept: Vec<Line>,
    made: u64,
}

/// An asker with the connection it keeps, which may have died without a word. It lives on the runtime it was first used on,
/// so each runtime has its own.
#[derive(Clone)]
struct Line {
    serial: u64,
    runtime: runtime::Id,
    asker: Asker,
}

/// A resolver that asks one server, and its connections.
#[derive(Clone)]
struct Asker {
    resolver: Resolver<Connections>,
    connections: Connections,
    by_udp: bool,
}

/// Of how many runtimes the lines are kept; that of the oldest is made anew.
const MOST_LINES: usize = 8;
/// After how long without an answer a lookup is a slow one.
const SLOW: Duration = Duration::from_secs(1);
/// How long a name that does not exist for IPv4 is still asked for IPv6: such an answer speaks for both (RFC 8020), but
/// not every server knows that.
const SECOND_OPINION: Duration = Duration::from_millis(50);
/// Beyond this no limit makes sense, nor could it be added to the time.
pub(super) const LONGEST: Duration = Duration::from_secs(60 * 60);
pub(super) const MOST_TRIES: usize = 100;

impl Workshop {
    pub(super) fn options(mut options: ResolverOpts, limits: Limits) -> ResolverOpts {
        options.cache_size = 0;
        // A try has an end of its own; this is the latest there is.
        options.timeout = limits.one_try.saturating_mul(limits.tries as u32).min(LONGEST);
        options.attempts = 0;
        // The limit is ours, because hickory gives up a connection that has reached its own. It still counts a question for a
        // moment after its answer, and those that go unanswered go on without a turn.
        options.max_active_requests = 2 * (MOST_UNDER_WAY + limits.in_flight.min(1 << 14));
        options.use_hosts_file = ResolveHosts::Never;
        // hickory would cut TTLs at a day, those that mean zero among them (RFC 2181 §8).
        let endless = Some(Duration::from_secs(u32::MAX.into()));
        (options.positive_max_ttl, options.negative_max_ttl) = (endless, endless);
        options
    }

    fn asker(&self, endpoint: Endpoint) -> Result<Asker, NetError> {
        #[cfg(feature = "dns-over-tls")]
        let tls = TlsConfig { config: self.tls.clone() };
        #[cfg(not(feature = "dns-over-tls"))]
        let tls = TlsConfig::new()?;
        let context = PoolContext::new(self.options.clone(), tls);
        let connections = Connections::new(Sockets::new(endpoint.scope), context);
        let by_udp = is_by_udp(&endpoint.config);
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![endpoint.config]);
        let builder = Resolver::builder_with_config(config, connections.clone());
        let builder = builder.with_options(self.options.clone());
        #[cfg(feature = "dns-over-tls")]
        let builder = builder.with_tls_config(self.tls.clone());
        Ok(Asker { resolver: builder.build()?, connections, by_udp })
    }
}

impl Asker {
    /// One family's lookup.
    async fn ask(&self, name: Name, family: Family) -> Result<Lookup, NetError> {
        let asked = match family {
            Family::V4 => self.resolver.ipv4_lookup(name).await,
            Family::V6 => self.resolver.ipv6_lookup(name).await,
        };
        match asked {
            // hickory says this of a connection that it could not open, whatever the reason.
            Err(NetError::NoConnections) if !self.by_udp => {
                Err(self.connections.failure().unwrap_or(NetError::NoConnections))
            }
            asked => asked,
        }
    }
}

impl Pairs {
    /// The turn of a name's questions.
    fn turn_of(&self, name: &Name) -> Arc<Semaphore> {
        let mut turns = lock(&self.0);
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(Semaphore::new(1));
        turns.insert(name.clone(), Arc::downgrade(&turn));
        turn
    }
}

impl Upstream {
    fn new(endpoint: Endpoint, workshop: Arc<Workshop>) -> Self {
        Self { endpoint, workshop, lines: Mutex::default() }
    }

    /// The line of this runtime.
    fn line(&self) -> Result<Line, NetError> {
        let runtime = runtime::Handle::current().id();
        let mut lines = lock(&self.lines);
        if let Some(line) = lines.kept.iter().find(|line| line.runtime == runtime) {
            return Ok(line.clone());
        }
        lines.made += 1;
        let asker = self.workshop.asker(self.endpoint.clone())?;
        let line = Line { serial: lines.made, runtime, asker };
        if lines.kept.len() >= MOST_LINES {
            lines.kept.remove(0);
        }
        lines.kept.push(line.clone());
        Ok(line)
    }

    /// Gives a line up in which there was silence, with its connections.
    fn hang_up(&self, silent: &Line) {
        lock(&self.lines).kept.retain(|line| line.serial != silent.serial);
    }

    fn is_by_udp(&self) -> bool {
        is_by_udp(&self.endpoint.config)
    }

    /// A connection of its own for one more try, by TCP.
    fn another_way(&self) -> Result<Asker, NetError> {
        let mut endpoint = self.endpoint.clone();
        let connections = &mut endpoint.config.connections;
        if connections.iter().any(|connection| connection.protocol == ProtocolConfig::Tcp) {
            connections.retain(|connection| connection.protocol == ProtocolConfig::Tcp);
        }
        self.workshop.asker(endpoint)
    }
}

impl Upstreams {
    pub(super) fn new(plan: Plan, limits: Limits, workshop: Workshop) -> Result<Self, NetError> {
        let Plan { servers, is_assumed, search, rotate, single_request, only, skipped } = plan;
        if servers.is_empty() {
            return Err(NetError::Message("no DNS servers given"));
        }
        let workshop = Arc::new(workshop);
        let in_flight = limits.in_flight.clamp(1, Semaphore::MAX_PERMITS);
        Ok(Self {
            servers: servers.into_iter().map(|server| Upstream::new(server, workshop.clone())).collect(),
            is_assumed,
            search,
            memory: Mutex::default(),
            only,
            rotate,
            pairs: single_request.then(Pairs::default),
            skipped: Mutex::new(skipped),
            limits,
            turns: Semaphore::new(in_flight),
            slow_turns: Semaphore::new(in_flight),
            first: AtomicUsize::new(0),
        })
    }

    /// Returns true if a family is asked for at all.
    pub(super) fn asks_for(&self, family: Family) -> bool {
        self.only.is_none_or(|only| only == family)
    }

    /// What of the configuration was left out, once.
    pub(super) fn take_skipped(&self) -> Vec<Skipped> {
        std::mem::take(&mut *lock(&self.skipped))
    }

    /// Looks a name up within the limits, once it is its turn.
    pub(super) async fn lookup(&self, parsed: &Name, name: &str, family: Family) -> Result<Answer, ResolveError> {
        let turn = self.turns.acquire().await.expect("it is never closed");
        let start = now();
        // Made when it is its turn, so that those who wait are small.
        let mut searching = Box::pin(self.search(parsed, name, family, start + self.limits.total));
        if let Some(searched) = before(Some(start + SLOW), &mut searching).await {
            return searched;
        }
        // Servers that are silent about some names must not hold up the others; nor can there be ever more such lookups.
        let slow = self.slow_turns.try_acquire();
        drop(turn);
        match slow {
            Ok(_slow) => searching.await,
            Err(_) => Err(ResolveError::new(ResolveErrorKind::Timeout, name, family)),
        }
    }

    /// Asks for the name and for it with each suffix, until one of them has addresses in this family or in the other: that
    /// is the one the name stands for, and this family's answer is what it has of it. Each family's lookup searches by
    /// itself, so that a slow one does not hold up the other where it has addresses; both come to the same candidate,
    /// because what one has asked the other does not ask again.
    async fn search(
        &self,
        parsed: &Name,
        name: &str,
        family: Family,
        deadline: Instant,
    ) -> Result<Answer, ResolveError> {
        let mut candidates = VecDeque::from(self.search.candidates(parsed));
        let is_search = candidates.len() > 1;
        let mut told: Option<ResolveError> = None;
        while let Some(candidate) = candidates.pop_front() {
            let outcome = self.ask(&candidate.name, name, family, deadline).await;
            if is_search {
                lock(&self.memory).note(now(), &candidate.name, family, &outcome);
            }
            let error = match outcome {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let has_failed = told.as_ref().is_some_and(|told| !told.kind().is_negative());
            if is_silence(error.kind()) || (candidates.is_empty() && !has_failed) {
                return Err(if is_silence(error.kind()) { error } else { merge(told, error) });
            }
            let own = Err(error.kind());
            let other = self.other_family(&candidate.name, name, (family, error.kind()), deadline).await;
            let verdict = match family {
                Family::V4 => judge(own, other),
                Family::V6 => judge(other, own),
            };
            match verdict {
                Verdict::Chosen => return Err(of_the_chosen(error)),
                Verdict::Unknown(kind) => return Err(ResolveError::new(kind, name, family)),
                Verdict::Bare if !candidate.is_bare => candidates.retain(|candidate| candidate.is_bare),
                Verdict::Bare | Verdict::Next => {}
            }
            told = Some(merge(told, error));
        }
        Err(told.unwrap_or_else(|| ResolveError::new(ResolveErrorKind::InvalidName, name, family)))
    }

    /// What a candidate has in the family that is not `asked` for: what it had a moment ago, or what it has now.
    async fn other_family(
        &self,
        candidate: &Name,
        name: &str,
        (asked, said): (Family, ResolveErrorKind),
        deadline: Instant,
    ) -> Said {
        let family = asked.other();
        if !self.asks_for(family) {
            return Err(ResolveErrorKind::NoData);
        }
        if let Some(said) = lock(&self.memory).recall(now(), candidate, family) {
            return said;
        }
        let end = match (family, said) {
            (Family::V4, _) => deadline,
            (Family::V6, ResolveErrorKind::NxDomain) => deadline.min(now() + SECOND_OPINION),
            (Family::V6, _) => deadline.min(now() + self.limits.one_try),
        };
        let asked = before(Some(end), pin!(self.ask(candidate, name, family, deadline))).await;
        let Some(outcome) = asked else { return Err(ResolveErrorKind::Timeout) };
        lock(&self.memory).note(now(), candidate, family, &outcome);
        outcome.map(drop).map_err(|error| error.kind())
    }

    /// Asks for a full name: one server after the other, until one says something.
    async fn ask(&self, parsed: &Name, name: &str, family: Family, deadline: Instant) -> Result<Answer, ResolveError> {
        let turn = self.pairs.as_ref().map(|pairs| pairs.turn_of(parsed));
        let _alone = match &turn {
            // So far behind, the question is not lost because of the one before.
            Some(turn) => before(Some(deadline.min(now() + HEAD_START)), pin!(turn.acquire())).await,
            None => None,
        };
        let rules = (self.limits.tries, self.limits.one_try);
        let by_udp = self.servers.iter().map(Upstream::is_by_udp);
        let mut tries = Tries::new(by_udp, self.first(), rules, now(), deadline);
        let mut running = FuturesUnordered::new();
        let mut last = None;
        loop {
            let wake = match tries.poll(now()) {
                Step::Try { server, way, end } => {
                    running.push(self.try_server(server, way, parsed, family, end));
                    continue;
                }
                Step::Wait(until) => until,
                Step::Over => break,
            };
            let Some(Some((server, way, outcome))) = before(wake, running.next()).await else { continue };
            let error = match outcome {
                Ok(lookup) => {
                    self.answered(server);
                    return answer(lookup.message(), parsed, name, family);
                }
                Err(error) => error,
            };
            let has_failed = is_answer(&error);
            let error = explain(error, name, family, self.servers[server].endpoint.config.ip);
            if error.kind().is_negative() {
                self.answered(server);
                return Err(error);
            }
            if !has_failed {
                self.was_silent(server);
            }
            tries.ended(server, way, has_failed);
            last = Some(more_telling(last, error));
        }
        let error = last.unwrap_or_else(|| ResolveError::new(ResolveErrorKind::Timeout, name, family));
        // Its configuration is not there yet.
        Err(match self.is_assumed && is_silence(error.kind()) {
            true => ResolveError::new(ResolveErrorKind::Local, name, family).with_cause(error),
            false => error,
        })
    }

    /// The server to be asked first.
    fn first(&self) -> usize {
        match self.rotate {
            true => self.first.fetch_add(1, Ordering::Relaxed) % self.servers.len(),
            false => self.first.load(Ordering::Relaxed),
        }
    }

    fn answered(&self, server: usize) {
        if !self.rotate {
            self.first.store(server, Ordering::Relaxed);
        }
    }

    fn was_silent(&self, server: usize) {
        if !self.rotate {
            let next = (server + 1) % self.servers.len();
            // Another lookup may have found a better one in the meantime.
            let _ = self.first.compare_exchange(server, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// One try of a server.
    async fn try_server(
        &self,
        index: usize,
        way: Way,
        name: &Name,
        family: Family,
        end: Instant,
    ) -> (usize, Way, Result<Lookup, NetError>) {
        let server = &self.servers[index];
        let outcome = match way {
            Way::Anew if server.is_by_udp() => match server.another_way() {
                Ok(asker) => in_time(end, pin!(asker.ask(name.clone(), family))).await,
                Err(error) => Err(error),
            },
            Way::Usual | Way::Anew => self.try_line(server, name, family, end).await,
        };
        (index, way, outcome)
    }

    async fn try_line(&self, server: &Upstream, name: &Name, family: Family, end: Instant) -> Result<Lookup, NetError> {
        let line = server.line()?;
        let answers = line.asker.connections.answers();
        let asked = in_time(end, pin!(line.asker.ask(name.clone(), family))).await;
        // A connection in which other questions were answered meanwhile is not a silent one.
        let was_silent = line.asker.connections.answers() == answers;
        if was_silent && asked.as_ref().is_err_and(|error| !is_answer(error)) {
            server.hang_up(&line);
        }
        asked
    }
}

fn is_by_udp(server: &NameServerConfig) -> bool {
    server.connections.iter().any(|connection| connection.protocol == ProtocolConfig::Udp)
}

/// The error of a family of a candidate that has addresses in the other: it exists.
fn of_the_chosen(error: ResolveError) -> ResolveError {
    match error.kind() {
        ResolveErrorKind::NxDomain => {
            let nothing = ResolveError::new(ResolveErrorKind::NoData, error.name(), error.family());
            nothing.with_negative_ttl(error.negative_ttl())
        }
        _ => error,
    }
}

/// The error that says more: what a server said, rather than that none said anything, rather than that none could be asked.
fn more_telling(last: Option<ResolveError>, error: ResolveError) -> ResolveError {
    let weight = |error: &ResolveError| match error.kind() {
        kind if kind.is_local() => 0,
        kind if is_silence(kind) => 1,
        _ => 2,
    };
    match last {
        Some(last) if weight(&last) > weight(&error) => last,
        _ => error,
    }
}

async fn in_time(
    end: Instant,
    asking: impl Future<Output = Result<Lookup, NetError>> + Unpin,
) -> Result<Lookup, NetError> {
    before(Some(end), asking).await.unwrap_or(Err(NetError::Timeout))
}

#[cfg(test)]
#[path = "upstreams_tests.rs"]
mod tests;
