//! The DNS servers of a configuration, in the order in which they are asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use tokio::sync::Semaphore;

use super::records::{answer, explain, is_answer};
use super::{Answer, Family, ResolveError, ResolveErrorKind};

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
    /// Each lookup has a socket, and a burst of them would overrun the servers' buffers.
    turns: Semaphore,
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
    line: Mutex<Line>,
}

/// A resolver with the connections it keeps, which may have died without a word.
#[derive(Clone)]
struct Line {
    serial: u64,
    resolver: TokioResolver,
}

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
    fn new(server: NameServerConfig, workshop: Arc<Workshop>) -> Result<Self, NetError> {
        let line = Mutex::new(Line { serial: 0, resolver: workshop.resolver(server.clone())? });
        Ok(Self { server, workshop, line })
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self) -> Line {
        self.lock().clone()
    }

    /// Gives a line up in which there was silence, with its connections.
    fn hang_up(&self, silent: &Line) {
        let mut line = self.lock();
        if line.serial == silent.serial
            && let Ok(resolver) = self.workshop.resolver(self.server.clone())
        {
            *line = Line { serial: silent.serial + 1, resolver };
        }
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
        let servers = servers.collect::<Result<_, _>>()?;
        let suffixes = match config.search() {
            [] => config.domain().cloned().into_iter().collect(),
            search => search.to_vec(),
        };
        let turns = Semaphore::new(limits.in_flight.clamp(1, Semaphore::MAX_PERMITS));
        Ok(Self { servers, suffixes, ndots, limits, turns, first: AtomicUsize::new(0) })
    }

    /// Looks a name up within the limits, once it is its turn.
    pub(super) async fn lookup(&self, parsed: &Name, name: &str, family: Family) -> Result<Answer, ResolveError> {
        let _turn = self.turns.acquire().await.expect("nobody closes it");
        // Made when it is its turn, so that those who wait are small.
        let searching = Box::pin(self.search(parsed, name, family));
        let searched = tokio::time::timeout(self.limits.total, searching).await;
        searched.unwrap_or_else(|_| Err(ResolveError::new(ResolveErrorKind::Timeout, name, family)))
    }

    /// Asks for the name, and for it with each suffix, until there is an answer. That none of them exists is only said
    /// when that was the answer to each.
    async fn search(&self, parsed: &Name, name: &str, family: Family) -> Result<Answer, ResolveError> {
        let mut failed = None;
        let mut missing = None;
        for candidate in self.candidates(parsed) {
            match self.ask(&candidate, name, family).await {
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

    async fn ask(&self, parsed: &Name, name: &str, family: Family) -> Result<Answer, ResolveError> {
        let count = self.servers.len();
        let first = self.first.load(Ordering::Relaxed);
        let mut states = vec![State::Unasked; count];
        let mut last = ResolveError::new(ResolveErrorKind::Timeout, name, family);
        for turn in 0..self.limits.tries * count {
            let index = (first + turn) % count;
            let error = match self.try_server(&self.servers[index], states[index], parsed, family).await {
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
    ) -> Option<Result<Lookup, NetError>> {
        let asked = |resolver| async {
            let asked = tokio::time::timeout(self.limits.one_try, query(resolver, name.clone(), family)).await;
            asked.unwrap_or(Err(NetError::Timeout))
        };
        match state {
            State::Unasked => {
                let line = server.line();
                let asked = asked(line.resolver.clone()).await;
                if asked.as_ref().is_err_and(|error| !is_answer(error)) {
                    server.hang_up(&line);
                }
                Some(asked)
            }
            State::Silent => Some(match server.another_way() {
                Ok(resolver) => asked(resolver).await,
                Err(error) => Err(error),
            }),
            State::Failed => None,
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
