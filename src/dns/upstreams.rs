//! The DNS servers of a configuration, in the order in which they are asked.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use tokio::runtime;
use tokio::sync::{OnceCell, Semaphore};

use super::records::{answer, explain, is_answer};
use super::{Answer, Family, ResolveError, ResolveErrorKind};
use crate::clock::{Instant, before, now};

/// How long and how often servers are asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) one_try: Duration,
    pub(super) tries: usize,
    pub(super) total: Duration,
    /// How many lookups ask at once.
    pub(super) in_flight: usize,
}

/// The servers of a configuration, each with a resolver of its own: hickory would not go on to the next one after
/// SERVFAIL or REFUSED, nor to TCP where UDP goes unanswered.
pub(super) struct Upstreams {
    pub(super) servers: Vec<Upstream>,
    /// What is appended to names that have no trailing dot.
    suffixes: Vec<Name>,
    /// A name with so many dots is asked for as it is before it is asked for with a suffix.
    ndots: usize,
    limits: Limits,
    /// Each lookup has a socket or more, and a burst of them would overrun the servers' buffers.
    turns: Semaphore,
    /// The turns of lookups that have had no answer for a while, so that they hold nobody up.
    slow_turns: Semaphore,
    /// The one that answered last is asked first.
    first: AtomicUsize,
}

/// How the resolvers of a configuration are made.
pub(super) struct Workshop {
    pub(super) options: ResolverOpts,
    #[cfg(feature = "dns-over-tls")]
    pub(super) tls: rustls::ClientConfig,
}

pub(super) struct Upstream {
    server: NameServerConfig,
    workshop: Arc<Workshop>,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    kept: Vec<Line>,
    made: u64,
}

/// A resolver with the connections it keeps, which may have died without a word. They live on the runtime it was first used
/// on, so each runtime has its own.
#[derive(Clone)]
struct Line {
    serial: u64,
    runtime: runtime::Id,
    resolver: TokioResolver,
    /// Whether there was an answer in it. Until then, lookups over a connection wait for the first of them, so that a burst
    /// of them does not open one each.
    answered: Arc<OnceCell<()>>,
}

/// Of how many runtimes the lines are kept; that of the oldest is made anew.
const MOST_LINES: usize = 8;
/// After how long without an answer a lookup is a slow one.
const SLOW: Duration = Duration::from_secs(1);
/// Beyond this no limit makes sense, nor could it be added to the time.
pub(super) const LONGEST: Duration = Duration::from_secs(60 * 60);
pub(super) const MOST_TRIES: usize = 100;

impl Workshop {
    pub(super) fn options(mut options: ResolverOpts, limits: Limits) -> ResolverOpts {
        options.cache_size = 0;
        options.timeout = limits.one_try;
        options.attempts = 0;
        options.use_hosts_file = ResolveHosts::Never;
        // hickory would cut TTLs at a day, those that mean zero among them (RFC 2181 §8).
        let endless = Some(Duration::from_secs(u32::MAX.into()));
        (options.positive_max_ttl, options.negative_max_ttl) = (endless, endless);
        options
    }

    fn resolver(&self, server: NameServerConfig) -> Result<TokioResolver, NetError> {
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let builder = builder.with_options(self.options.clone());
        #[cfg(feature = "dns-over-tls")]
        let builder = builder.with_tls_config(self.tls.clone());
        builder.build()
    }
}

impl Upstream {
    fn new(server: NameServerConfig, workshop: Arc<Workshop>) -> Self {
        Self { server, workshop, lines: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line of this runtime.
    fn line(&self) -> Result<Line, NetError> {
        let runtime = runtime::Handle::current().id();
        let mut lines = self.lock();
        if let Some(line) = lines.kept.iter().find(|line| line.runtime == runtime) {
            return Ok(line.clone());
        }
        lines.made += 1;
        let resolver = self.workshop.resolver(self.server.clone())?;
        let line = Line { serial: lines.made, runtime, resolver, answered: Arc::default() };
        if lines.kept.len() >= MOST_LINES {
            lines.kept.remove(0);
        }
        lines.kept.push(line.clone());
        Ok(line)
    }

    /// Gives a line up in which there was silence, with its connections.
    fn hang_up(&self, silent: &Line) {
        self.lock().kept.retain(|line| line.serial != silent.serial);
    }

    fn is_over_connections(&self) -> bool {
        self.server.connections.iter().all(|connection| connection.protocol != ProtocolConfig::Udp)
    }

    /// A connection of its own for one more try: by TCP, unless the server is asked by something better anyway.
    fn another_way(&self) -> Result<TokioResolver, NetError> {
        let mut server = self.server.clone();
        if server.connections.iter().any(|connection| connection.protocol == ProtocolConfig::Tcp) {
            server.connections.retain(|connection| connection.protocol == ProtocolConfig::Tcp);
        }
        self.workshop.resolver(server)
    }
}

impl Upstreams {
    pub(super) fn new(config: &ResolverConfig, limits: Limits, workshop: Workshop) -> Result<Self, NetError> {
        if config.name_servers().is_empty() {
            return Err(NetError::Message("no DNS servers given"));
        }
        let (ndots, workshop) = (workshop.options.ndots, Arc::new(workshop));
        let servers = config.name_servers().iter().map(|server| Upstream::new(server.clone(), workshop.clone()));
        let servers = servers.collect();
        let suffixes = match config.search() {
            [] => config.domain().cloned().into_iter().collect(),
            search => search.to_vec(),
        };
        let in_flight = limits.in_flight.clamp(1, Semaphore::MAX_PERMITS);
        let (turns, slow_turns) = (Semaphore::new(in_flight), Semaphore::new(in_flight));
        Ok(Self { servers, suffixes, ndots, limits, turns, slow_turns, first: AtomicUsize::new(0) })
    }

    /// Looks a name up within the limits, once it is its turn.
    pub(super) async fn lookup(&self, parsed: &Name, name: &str, family: Family) -> Result<Answer, ResolveError> {
        let turn = self.turns.acquire().await.expect("nobody closes it");
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

    /// Asks for the name, and for it with each suffix, until there is an answer. That none of them exists is only said
    /// when that was the answer to each.
    async fn search(
        &self,
        parsed: &Name,
        name: &str,
        family: Family,
        deadline: Instant,
    ) -> Result<Answer, ResolveError> {
        let mut failed = None;
        let mut missing = None;
        for candidate in self.candidates(parsed) {
            match self.ask(&candidate, name, family, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(error) => match error.kind() {
                    // Whoever is silent now is silent about the next candidate as well.
                    ResolveErrorKind::Timeout | ResolveErrorKind::Unreachable => return Err(error),
                    ResolveErrorKind::NoData => missing = Some(error),
                    ResolveErrorKind::NxDomain => missing = missing.or(Some(error)),
                    _ => failed = Some(error),
                },
            }
        }
        Err(failed.or(missing).unwrap_or_else(|| ResolveError::new(ResolveErrorKind::InvalidName, name, family)))
    }

    /// The full names a name may stand for, in the order of resolv.conf(5).
    pub(super) fn candidates(&self, name: &Name) -> Vec<Name> {
        let mut bare = name.clone();
        bare.set_fqdn(true);
        if name.is_fqdn() {
            return vec![bare];
        }
        let dots = usize::from(name.num_labels()).saturating_sub(1);
        let mut candidates: Vec<_> =
            self.suffixes.iter().filter_map(|suffix| name.clone().append_domain(suffix).ok()).collect();
        for candidate in &mut candidates {
            candidate.set_fqdn(true);
        }
        let place = if dots >= self.ndots { 0 } else { candidates.len() };
        candidates.insert(place, bare);
        candidates
    }

    async fn ask(&self, parsed: &Name, name: &str, family: Family, deadline: Instant) -> Result<Answer, ResolveError> {
        let count = self.servers.len();
        let first = self.first.load(Ordering::Relaxed);
        let mut states = vec![State::Unasked; count];
        let mut last = ResolveError::new(ResolveErrorKind::Timeout, name, family);
        for turn in 0..self.limits.tries * count {
            let index = (first + turn) % count;
            // The last try ends with the lookup rather than being cut off, so that what it means for the server is noted.
            let end = deadline.min(now() + self.limits.one_try);
            if end <= now() {
                return Err(ResolveError::new(ResolveErrorKind::Timeout, name, family));
            }
            let error = match self.try_server(&self.servers[index], states[index], parsed, family, end).await {
                None => continue,
                Some(Ok(lookup)) => {
                    self.first.store(index, Ordering::Relaxed);
                    return answer(lookup.message(), parsed, name, family);
                }
                Some(Err(error)) => error,
            };
            states[index] = if is_answer(&error) { State::Failed } else { State::Silent };
            last = explain(error, name, family);
            match (last.kind(), states[index]) {
                (kind, _) if kind.is_negative() => {
                    self.first.store(index, Ordering::Relaxed);
                    return Err(last);
                }
                (_, State::Silent) => {
                    let next = (index + 1) % count;
                    // Another lookup may have found a better one in the meantime.
                    let _ = self.first.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        Err(last)
    }

    /// One try of a server, if it is worth one.
    async fn try_server(
        &self,
        server: &Upstream,
        state: State,
        name: &Name,
        family: Family,
        end: Instant,
    ) -> Option<Result<Lookup, NetError>> {
        let asked = |resolver| async {
            let asked = before(Some(end), pin!(query(resolver, name.clone(), family))).await;
            asked.unwrap_or(Err(NetError::Timeout))
        };
        match state {
            State::Unasked => Some(match server.line() {
                Ok(line) => {
                    let asked = before(Some(end), pin!(self.over(server, &line, name, family))).await;
                    let asked = asked.unwrap_or(Err(NetError::Timeout));
                    if asked.as_ref().is_err_and(|error| !is_answer(error)) {
                        server.hang_up(&line);
                    }
                    asked
                }
                Err(error) => Err(error),
            }),
            State::Silent => Some(match server.another_way() {
                Ok(resolver) => asked(resolver).await,
                Err(error) => Err(error),
            }),
            State::Failed => None,
        }
    }

    /// Asks over a line; the first ones that do so over a connection one after the other, until there is an answer.
    async fn over(&self, server: &Upstream, line: &Line, name: &Name, family: Family) -> Result<Lookup, NetError> {
        let ask = || query(line.resolver.clone(), name.clone(), family);
        if !server.is_over_connections() {
            return ask().await;
        }
        let mut first = None;
        let opening = line.answered.get_or_try_init(|| async {
            let asked = ask().await;
            let answered = asked.is_ok() || asked.as_ref().is_err_and(is_answer);
            first = Some(asked);
            if answered { Ok(()) } else { Err(()) }
        });
        // Who was not the first has yet to ask, and who was has its answer.
        let _ = opening.await;
        match first {
            Some(asked) => asked,
            None => ask().await,
        }
    }
}

/// What came of asking a server so far.
#[derive(Debug, Clone, Copy)]
enum State {
    Unasked,
    /// No answer, or none that could be understood.
    Silent,
    Failed,
}

/// One family's lookup.
async fn query(resolver: TokioResolver, name: Name, family: Family) -> Result<Lookup, NetError> {
    match family {
        Family::V4 => resolver.ipv4_lookup(name).await,
        Family::V6 => resolver.ipv6_lookup(name).await,
    }
}
