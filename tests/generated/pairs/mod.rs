//! Pairs of settings: clients with a few settings each, so that any two values of two settings meet, against one world.
//!
//! Either `build` names the contradiction, or each setting has its effect on the calls that can show it, every call ends, and nothing is
//! left. The world has a server with two addresses, which is a proxy as well, and DNS by which the host moves from one to the other. The
//! server closes connections as a restart does.

mod client;
mod parts;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use hickory_proto::op::{Message, Query};
use speeddial::dns::{CachedResolverBuilder, HickoryResolver};
use speeddial::http::{HeaderMap, HeaderName, HeaderValue, Version};
use speeddial::pool::HostLimits;
use speeddial::settings::HostConfig;
use speeddial::tls::TlsConfig;
use speeddial::trace::CloseCause;
use speeddial::{Body, Client, ClientBuilder, PoolConfig, Proxy, RequestBuilder};
use support::dns_server::DnsServer;
use tokio::time::timeout;

use crate::factors::{self, factor};
use crate::strict::{Seen, Strict};

factor! {
    /// A kind of call.
    Kind { Get, Post, Stream, Redirect, Busy, Secure, Several, Relative, Slow, Restart }
}

/// A value of a setting.
struct Value {
    /// The method that sets it.
    setter: &'static str,
    apply: Apply,
    /// The kinds of calls that may fail because of it.
    fails: &'static [Kind],
    /// Returns false if it had no effect though it should have had.
    is_seen: fn(&Observed) -> bool,
}

/// The way in which a value is set: by a method of this part of a client.
enum Apply {
    Client(fn(ClientBuilder, &World<'_>) -> ClientBuilder),
    Pool(fn(PoolConfig) -> PoolConfig),
    Limits(fn(HostLimits) -> HostLimits),
    Host(fn(HostConfig, &World<'_>) -> HostConfig),
    Request(fn(RequestBuilder, &World<'_>) -> RequestBuilder),
    Tls(fn(TlsConfig) -> TlsConfig),
    Resolver(fn(HickoryResolver) -> HickoryResolver),
    Cache(fn(CachedResolverBuilder) -> CachedResolverBuilder),
}

/// The parts that the values of a client change.
#[derive(Default)]
struct Parts {
    pool: PoolConfig,
    limits: Option<HostLimits>,
    host: Option<HostConfig>,
    tls: Option<TlsConfig>,
    resolver: Option<HickoryResolver>,
    cache: Option<CachedResolverBuilder>,
}

impl Parts {
    fn apply(mut self, value: &Value, world: &World<'_>, setters: &HashSet<&'static str>) -> Self {
        match value.apply {
            Apply::Pool(set) => self.pool = set(self.pool),
            Apply::Limits(set) => self.limits = Some(set(self.limits.unwrap_or_default())),
            Apply::Host(set) => self.host = Some(set(self.host.unwrap_or_default(), world)),
            Apply::Tls(set) => {
                let trusting = || match setters.contains("danger_accept_invalid_certs") {
                    true => TlsConfig::new(),
                    false => TlsConfig::new().add_roots([world.server.trusted()]).only_added_roots(),
                };
                self.tls = Some(set(self.tls.unwrap_or_else(trusting)));
            }
            Apply::Resolver(set) => self.resolver = Some(set(self.resolver.unwrap_or_else(|| world.resolver()))),
            Apply::Cache(set) => self.cache = Some(set(self.cache.unwrap_or_default())),
            // These come behind the parts.
            Apply::Client(_) | Apply::Request(_) => {}
        }
        self
    }

    /// Returns the builder of a client with these parts.
    fn builder(self, world: &World<'_>, setters: &HashSet<&'static str>) -> ClientBuilder {
        let pool = match self.limits {
            Some(limits) => self.pool.for_host(&world.host, limits),
            None => self.pool,
        };
        let mut builder = Client::builder().pool(pool).connect_timeout(LONG).tls_timeout(LONG);
        if let Some(host) = self.host {
            builder = builder.for_host(&world.host, host);
        }
        if let Some(tls) = self.tls {
            builder = builder.tls(tls);
        } else if !setters.contains("danger_accept_invalid_certs") {
            builder = builder.tls_certs_only([world.server.trusted()]);
        }
        let is_chosen = self.resolver.is_some();
        let resolver = self.resolver.unwrap_or_else(|| world.resolver());
        let has_cache = self.cache.is_some();
        let cache = self.cache.unwrap_or_default().query_timeout(LONG);
        match has_cache || is_chosen || !setters.contains("unix_socket") {
            true => builder.dns_cache(cache.build(resolver)),
            false => builder,
        }
    }
}

/// A DNS server on which each host is at one address of the server, and moves to the other.
struct Dns {
    server: DnsServer,
    moved: Arc<Mutex<HashSet<String>>>,
}

impl Dns {
    fn start() -> Self {
        let moved: Arc<Mutex<HashSet<String>>> = Arc::default();
        let known = moved.clone();
        let answer = move |question: &Query, response: &mut Message| {
            let name = question.name().to_ascii();
            let is_moved = known.lock().unwrap().contains(name.trim_end_matches('.'));
            let address = if is_moved { SECOND_ADDRESS } else { Ipv4Addr::LOCALHOST };
            support::dns_server::add_address(response, question, question.name(), address.into(), 1);
        };
        Self { server: DnsServer::start(answer).unwrap(), moved }
    }
}

/// The servers, and the name of a host that one client alone calls.
struct World<'a> {
    server: &'a Strict,
    dns: &'a Dns,
    host: String,
}

impl World<'_> {
    fn resolver(&self) -> HickoryResolver {
        let resolver = HickoryResolver::with_servers([self.dns.server.address()]);
        resolver.with_try_timeout(LONG).with_total_timeout(LONG)
    }

    fn proxy(&self) -> Proxy {
        Proxy::all(format!("http://{}", self.server.address())).unwrap()
    }
}

/// A call, and what came of it.
struct Called {
    kind: Kind,
    result: Result<(u16, Version), String>,
    seen: Vec<Seen>,
    took: Duration,
}

/// What was seen of the calls of one client.
struct Observed {
    calls: Vec<Called>,
    setters: HashSet<&'static str>,
    connections: usize,
    idle: usize,
    /// The idle connections to the host that this client alone calls.
    idle_of_host: usize,
    /// True if a call came to the other address of the host some time after it moved.
    moved: bool,
    /// The number of connections that were opened after the host had moved.
    opened_since: u64,
    /// True if a connection was closed because the host had moved.
    left_address: bool,
}

impl Observed {
    /// Returns true if nothing follows where DNS has the host.
    fn is_pinned(&self) -> bool {
        is_pinned(&self.setters)
    }

    fn is_by_proxy(&self) -> bool {
        ["proxy", "HostConfig::proxy", "RequestBuilder::proxy"].iter().any(|setter| self.has(setter))
    }

    fn has_own_authorization(&self) -> bool {
        self.has("RequestBuilder::basic_auth") || self.has("RequestBuilder::bearer_auth")
    }

    fn has_host_version(&self) -> bool {
        OTHER_VERSIONS.iter().any(|setter| self.has(setter))
    }

    /// Returns true if a call may take longer than its limit where the machine is busy.
    fn has_short_limit(&self) -> bool {
        self.setters.iter().any(|setter| setter.ends_with(SHORT))
    }

    /// Returns true if each refusal of a busy server was followed by another attempt, unless that would have begun behind the call's limit.
    fn repeats_busy(&self) -> bool {
        let lacked_time = |took: Duration| self.has_short_limit() && took + LONGEST_BACKOFF >= MOMENT;
        let mut calls = self.calls.iter().filter(|call| call.kind == Kind::Busy);
        calls.all(|call| match call.result {
            Ok((200, _)) | Err(_) => true,
            Ok((503, _)) => lacked_time(call.took),
            Ok(_) => false,
        })
    }

    /// Returns true if calls may be repeated.
    fn repeats(&self) -> bool {
        ["hedge", "retry", "HostConfig::retry", "RequestBuilder::retry"].iter().any(|setter| self.has(setter))
    }

    fn repeats_without_hedges(&self) -> bool {
        ["retry", "HostConfig::retry", "RequestBuilder::retry"].iter().any(|setter| self.has(setter))
    }

    /// Returns true if an HTTP/2 connection may carry more requests than are set, because there is no room for another connection.
    fn may_lack_room(&self) -> bool {
        let has_limit = self.setters.iter().any(|setter| setter.contains("max_connections"));
        has_limit && self.calls.iter().any(|call| matches!(call.result, Ok((_, Version::HTTP_2))))
    }

    /// Returns the number of requests that were answered.
    fn answered(&self) -> usize {
        self.calls.iter().filter(|call| call.result.is_ok()).count()
    }

    /// Returns true if a full queue is the only reason for which calls failed, and not all of them did.
    fn only_the_queue_refuses(&self) -> bool {
        let mut errors = self.calls.iter().filter_map(|call| call.result.as_ref().err());
        let others = ["max_body_size", "https_only"];
        let has_others = self.setters.iter().any(|setter| others.contains(&setter.rsplit("::").next().unwrap()));
        has_others
            || self.has_short_limit()
            || self.answered() > 0 && errors.all(|error| error.contains("the queue is full"))
    }

    /// Returns true if connections do not stay open from call to call.
    fn keeps_none(&self) -> bool {
        [
            "pool_max_idle_per_host",
            "PoolConfig::max_idle#0",
            "PoolConfig::max_idle_per_host",
            "HostLimits::max_idle",
            "PoolConfig::max_requests_per_connection",
            "HostLimits::max_requests_per_connection",
            "PoolConfig::lifetime",
            "HostLimits::lifetime",
            "pool_idle_timeout",
            "PoolConfig::idle_timeout",
            "HostLimits::idle_timeout",
            // Calls that end by these take their connections with them, as they do by a short limit.
            "max_body_size",
            "HostConfig::max_body_size",
            "RequestBuilder::max_body_size",
            "hedge",
            // Another host may need the room.
            "PoolConfig::max_connections",
        ]
        .iter()
        .any(|setter| self.has(setter))
            || self.has_short_limit()
    }

    /// Returns true if this is so of all requests of the calls of a kind that succeeded.
    fn all(&self, kind: Kind, is_so: impl Fn(&Seen) -> bool) -> bool {
        self.of(kind).all(|(.., seen)| seen.iter().all(&is_so))
    }

    fn none_has_of(&self, kind: Kind, name: &str) -> bool {
        self.all(kind, |seen| seen.values(name).is_empty())
    }

    /// Returns the calls of a kind that succeeded.
    fn of(&self, kind: Kind) -> impl Iterator<Item = (u16, Version, &[Seen])> {
        let calls = self.calls.iter().filter(move |call| call.kind == kind);
        calls.filter_map(|call| call.result.as_ref().ok().map(|(status, version)| (*status, *version, &call.seen[..])))
    }

    /// Returns true if each request of the calls of a kind that succeeded had this header.
    fn all_have(&self, kind: Kind, name: &str, value: &str) -> bool {
        self.of(kind).all(|(_, _, seen)| seen.iter().all(|seen| seen.values(name) == [value]))
    }

    fn none_has(&self, name: &str, part: &str) -> bool {
        let mut seen = self.calls.iter().flat_map(|call| &call.seen);
        !seen.any(|seen| seen.values(name).iter().any(|value| value.contains(part)))
    }

    fn has(&self, setter: &str) -> bool {
        self.setters.contains(setter)
    }

    fn statuses(&self, kind: Kind, status: u16) -> bool {
        self.of(kind).all(|(found, ..)| found == status)
    }

    fn fails(&self, kind: Kind) -> bool {
        self.of(kind).next().is_none()
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// A limit that no call meets, however busy the machine is.
const LONG: Duration = Duration::from_secs(300);
/// The end of the names of values that are a limit of [`MOMENT`].
const SHORT: &str = "#short";
/// A limit that a slow call exceeds. Where the machine is busy, other calls may take as long.
const MOMENT: Duration = Duration::from_millis(150);
const LONGEST_BACKOFF: Duration = Duration::from_millis(3);

/// For settings that a good world cannot show: nothing hangs, fails or leaks because of them.
const UNSEEN: fn(&Observed) -> bool = |_| true;

const HTTP: &[Kind] = &[
    Kind::Get,
    Kind::Post,
    Kind::Stream,
    Kind::Redirect,
    Kind::Busy,
    Kind::Slow,
    Kind::Several,
    Kind::Relative,
    Kind::Restart,
];

const SECOND_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn headers(name: &'static str, value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
}

fn value(
    setter: &'static str,
    apply: fn(ClientBuilder, &World<'_>) -> ClientBuilder,
    is_seen: fn(&Observed) -> bool,
) -> Value {
    Value { setter, apply: Apply::Client(apply), fails: &[], is_seen }
}

fn values() -> Vec<Value> {
    client::values().into_iter().chain(parts::values()).collect()
}

/// Settings that contradict others, and what `build` says of that. What ends in `*` stands for all that begin so.
const CONTRADICTIONS: &[(&str, &[&str], &str)] = &[
    ("TlsConfig::min_version", &["tls_version_max", "TlsConfig::max_version"], "leave neither 1.2 nor 1.3"),
    ("TlsConfig::max_version", &["tls_version_min"], "leave neither 1.2 nor 1.3"),
    (
        "TlsConfig::alpn",
        &["HostConfig::http2_prior_knowledge", "http2_prior_knowledge"],
        "the protocols offered (ALPN)",
    ),
    ("HostConfig::http1_only", OTHER_VERSIONS, "two versions of HTTP are chosen"),
    ("HostConfig::http2_prior_knowledge", OTHER_VERSIONS, "two versions of HTTP are chosen"),
    (
        "RequestBuilder::proxy",
        &["unix_socket", "HostConfig::unix_socket"],
        "a proxy of the request has no effect beside",
    ),
    ("unix_socket", &["HostConfig::local_address"], "a setting of TCP has no effect beside a Unix domain socket"),
    ("unix_socket", &["HostConfig::addresses"], "a choice of addresses has no effect beside a Unix domain socket"),
    ("unix_socket", &["HostConfig::proxy"], "a proxy has no effect beside a Unix domain socket"),
    ("HostConfig::unix_socket", &["HostConfig::local_address"], "a setting of TCP has no effect beside"),
    ("HostConfig::unix_socket", &["allow_addresses"], "a rule for addresses has no effect beside"),
    ("HostConfig::unix_socket", &["HostConfig::addresses"], "a choice of addresses has no effect beside"),
    ("HostConfig::unix_socket", &["HostConfig::proxy"], "a proxy has no effect beside"),
    ("unix_socket", &["CachedResolverBuilder::*", "HickoryResolver::*"], "no effect beside a Unix domain socket"),
    ("PoolConfig::min_idle_per_host", &["PoolConfig::max_idle_per_host", "pool_max_idle_per_host"], "min_idle"),
    ("HostLimits::min_idle", &["PoolConfig::max_idle_per_host", "pool_max_idle_per_host"], "min_idle"),
    ("HostLimits::min_idle", &["HostLimits::max_idle"], "min_idle"),
    ("PoolConfig::max_idle#0", &["PoolConfig::min_idle_per_host", "HostLimits::min_idle"], "max_idle allows only 0"),
    ("tls_version_min", &["tls_version_max"], "leave neither 1.2 nor 1.3"),
    ("unix_socket", OF_TCP, "a setting of TCP has no effect beside a Unix domain socket"),
    ("unix_socket", &["addresses"], "a choice of addresses has no effect beside a Unix domain socket"),
    ("unix_socket", &["resolve"], "an address for a name has no effect beside a Unix domain socket"),
    ("unix_socket", &["allow_addresses"], "a rule for addresses has no effect beside a Unix domain socket"),
    ("http1_only", &["http2_prior_knowledge"], "http1_only contradicts http2_prior_knowledge"),
    ("base_url", &["https_only"], "base_url is an http URL, to which https_only lets no request go"),
    ("http2_adaptive_window", WINDOWS, "http2_adaptive_window chooses the windows"),
    ("tcp_user_timeout", &["tcp_keepalive_retries"], "no effect beside a user timeout"),
];

const OTHER_VERSIONS: &[&str] =
    &["HostConfig::http1_only", "HostConfig::http2_prior_knowledge", "HostConfig::negotiate_http_version"];

const WINDOWS: &[&str] = &["http2_initial_stream_window_size", "http2_initial_connection_window_size"];

const OF_TCP: &[&str] = &[
    "tcp_nodelay",
    "tcp_keepalive",
    "tcp_keepalive_interval",
    "tcp_keepalive_retries",
    "tcp_user_timeout",
    "local_address",
];

/// Returns what `build` says of two settings that contradict each other.
fn contradiction(one: &str, other: &str) -> Option<&'static str> {
    let is_one_of = |others: &[&str], setter: &str| {
        others.iter().any(|other| other.strip_suffix('*').map_or(*other == setter, |start| setter.starts_with(start)))
    };
    let are_meant = |known: &str, others: &[&str]| {
        (known == one && is_one_of(others, other)) || (known == other && is_one_of(others, one))
    };
    CONTRADICTIONS.iter().find(|(known, others, _)| are_meant(known, others)).map(|(.., text)| *text)
}

/// The settings of one client.
const AT_ONCE: usize = 7;

/// The groups that are tried at once. They wait most of the time.
const GROUPS_AT_ONCE: usize = 100;
/// The groups that are tried at once on a machine that does not keep up: their limits are in real time.
const GROUPS_WHEN_LATE: usize = 6;

/// Waits until the runtime keeps up, or runs few groups.
async fn keep_up(running: &AtomicUsize) {
    const PAUSE: Duration = Duration::from_millis(5);
    loop {
        let start = Instant::now();
        tokio::time::sleep(PAUSE).await;
        if start.elapsed() < PAUSE * 6 || running.load(Ordering::Relaxed) < GROUPS_WHEN_LATE {
            break;
        }
    }
    running.fetch_add(1, Ordering::Relaxed);
}

/// Returns groups of values of different settings, in which any two of them meet.
fn groups(values: &[Value], seed: u64) -> Vec<Vec<usize>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let name = |value: usize| values[value].setter.split('#').next().unwrap();
    let is_pair = |one: usize, other: usize| name(one) != name(other);
    let pairs = (0..values.len()).flat_map(|one| (0..one).map(move |other| (other, one)));
    let mut open: HashSet<(usize, usize)> = pairs.filter(|(one, other)| is_pair(*one, *other)).collect();
    let mut order: Vec<_> = open.iter().copied().collect();
    order.sort_unstable();
    random.shuffle(&mut order);
    let mut groups = Vec::new();
    for (one, other) in order {
        if !open.contains(&(one, other)) {
            continue;
        }
        let mut group = vec![one, other];
        let goes_along = |one: usize, other: usize| {
            is_pair(one, other) && contradiction(values[one].setter, values[other].setter).is_none()
        };
        while group.len() < AT_ONCE && goes_along(one, other) {
            let fits = (0..values.len()).filter(|next| group.iter().all(|known| goes_along(*known, *next)));
            let gain = |next: &usize| {
                group.iter().filter(|known| open.contains(&(*next.min(*known), *next.max(*known)))).count()
            };
            let Some(next) = fits.max_by_key(gain).filter(|next| gain(next) > 0) else { break };
            group.push(next);
        }
        open.retain(|(one, other)| !(group.contains(one) && group.contains(other)));
        group.sort_unstable();
        groups.push(group);
    }
    groups
}

#[test]
fn any_two_settings_have_their_effects_or_contradict_each_other() {
    support::process::allow_descriptors();
    let directory = std::env::temp_dir().join(format!("speeddial-pairs-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (server, dns) = (Strict::start(&directory), Dns::start());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let values = values();
    let (hosts, running) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (seed, rounds) = (factors::number("SEED", 1), factors::number("ROUNDS", 1));
    for seed in seed..seed + rounds {
        let groups = match std::env::var("SHAPE") {
            Ok(name) => vec![name.split(' ').map(|part| part.rsplit('#').next().unwrap().parse().unwrap()).collect()],
            Err(_) => groups(&values, seed),
        };
        let mut failed: Vec<String> = runtime.block_on(async {
            let (values, hosts, running) = (&values, &hosts, &running);
            let host = || format!("a{}.test", hosts.fetch_add(1, Ordering::Relaxed));
            let world = || World { server: &server, dns: &dns, host: host() };
            let runs = groups.iter().map(|group| (group, world())).map(|(group, world)| async move {
                let names: Vec<_> = group.iter().map(|index| format!("{}#{index}", values[*index].setter)).collect();
                let values: Vec<_> = group.iter().map(|index| &values[*index]).collect();
                let name = names.join(" ");
                keep_up(running).await;
                let result = timeout(LONG * 2, try_group(&values, &world)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                let result = result.unwrap_or_else(|_| Err("it hangs".to_owned()));
                result.err().map(|what| format!("{name}: {what}"))
            });
            let results: Vec<_> = stream::iter(runs).buffer_unordered(GROUPS_AT_ONCE).collect().await;
            results.into_iter().flatten().collect()
        });
        failed.extend(server.violations());
        assert!(failed.is_empty(), "SEED={seed}: {} of {} groups\n{}", failed.len(), groups.len(), failed.join("\n"));
    }
    let _ = std::fs::remove_dir_all(directory);
}

async fn try_group(values: &[&Value], world: &World<'_>) -> Result<(), String> {
    let setters: HashSet<_> = values.iter().map(|value| value.setter).collect();
    let parts = values.iter().fold(Parts::default(), |parts, value| parts.apply(value, world, &setters));
    let builder = values.iter().fold(parts.builder(world, &setters), |builder, value| match value.apply {
        Apply::Client(set) => set(builder, world),
        _ => builder,
    });
    let expected = match values {
        [one, other] => contradiction(one.setter, other.setter),
        _ => None,
    };
    let client = match (builder.build(), expected) {
        (Ok(client), None) => client,
        (Err(error), Some(text)) if error.to_string().contains(text) => return Ok(()),
        // What a request says is known with the request.
        (Ok(client), Some(text)) if values.iter().any(|value| matches!(value.apply, Apply::Request(_))) => {
            return match call(&client, Kind::Get, values, world).await.result {
                Err(error) if error.contains(text) => Ok(()),
                result => Err(format!("{result:?} in place of {text:?}")),
            };
        }
        (built, expected) => return Err(format!("build: {:?} in place of {expected:?}", built.map(|_| ()))),
    };
    let mut calls = Vec::new();
    for kind in Kind::ALL {
        if *kind == Kind::Relative && !setters.contains("base_url") {
            continue;
        }
        let called = match kind {
            Kind::Several => join_all((0..6).map(|_| call(&client, *kind, values, world))).await,
            // The next call meets what the restart has left.
            Kind::Restart => {
                vec![call(&client, *kind, values, world).await, call(&client, *kind, values, world).await]
            }
            _ => vec![call(&client, *kind, values, world).await],
        };
        for called in called {
            let may_fail = values.iter().any(|value| value.fails.contains(kind));
            if let Err(error) = &called.result
                && !may_fail
            {
                return Err(format!("{kind:?}: {error}"));
            }
            calls.push(called);
        }
    }
    let most_calls = if is_pinned(&setters) { STAYS_FOR } else { FOLLOWS_WITHIN };
    let opened = client.pool_stats().opened;
    let moved = follows(&client, values, world, most_calls).await;
    let opened_since = client.pool_stats().opened - opened;
    factors::settles(&client).await?;
    let stats = client.pool_stats();
    let of_host = client.host_stats().into_iter().filter(|(origin, _)| origin.host().to_string() == world.host);
    let idle_of_host = of_host.map(|(_, stats)| stats.idle).sum();
    let connections = usize::try_from(stats.opened).unwrap();
    let left_address = stats.closed_by(CloseCause::AddressMoved) > 0;
    let observed =
        Observed { calls, setters, connections, idle: stats.idle, idle_of_host, moved, opened_since, left_address };
    if !(moved || observed.is_pinned() || observed.fails(Kind::Get)) {
        return Err("it does not follow the host to its other address".to_owned());
    }
    let unseen = values.iter().filter(|value| !(value.is_seen)(&observed));
    let unseen: Vec<_> = unseen.map(|value| value.setter).collect();
    if unseen.is_empty() {
        return Ok(());
    }
    let mut text = format!("no effect of {unseen:?}, {connections} connections, {} idle", observed.idle);
    for Called { kind, result, seen, took } in &observed.calls {
        write!(text, "\n    {kind:?} {result:?} in {took:?} {seen:?}").unwrap();
    }
    Err(text)
}

/// Settings beside which nothing follows where DNS has a host.
const PINS: [&str; 9] = [
    "resolve",
    "unix_socket",
    "HostConfig::unix_socket",
    "CachedResolverBuilder::ttl_floor",
    "proxy",
    "HostConfig::proxy",
    "RequestBuilder::proxy",
    // What is open stays where it is.
    "PoolConfig::follow_dns#Off",
    // Without a cache a host is asked for each 30 s.
    "CachedResolverBuilder::max_names",
];

fn is_pinned(setters: &HashSet<&'static str>) -> bool {
    PINS.iter().any(|setter| setters.contains(setter))
}

/// Moves the host, and calls it until a call comes to its other address. Returns true if one does.
async fn follows(client: &Client, values: &[&Value], world: &World<'_>, most_calls: usize) -> bool {
    world.dns.moved.lock().unwrap().insert(world.host.clone());
    for _ in 0..most_calls {
        let called = call(client, Kind::Get, values, world).await;
        if called.seen.iter().any(|seen| seen.local == Some(SECOND_ADDRESS.into())) {
            return true;
        }
        // Answers of DNS expire: the passing of time is what is tested.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}

/// The number of calls, 100 ms apart, within which a client follows a host: three TTLs of a second, and more on a busy machine.
const FOLLOWS_WITHIN: usize = 200;
/// The number of calls of a client that should not follow.
const STAYS_FOR: usize = 35;

async fn call(client: &Client, kind: Kind, values: &[&Value], world: &World<'_>) -> Called {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = format!("p{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let port = world.server.address().port();
    let url = |step: &str| format!("http://{}:{port}/{id}/v11/{step}", world.host);
    let pieces = || stream::iter(["one ", "two"].map(Ok::<_, std::io::Error>));
    let request: RequestBuilder = match kind {
        Kind::Get | Kind::Several => client.get(url("plain")),
        Kind::Post => client.post(url("plain")).body("given"),
        Kind::Stream => client.post(url("plain")).body(Body::wrap_stream(pieces())),
        Kind::Redirect => client.get(url("307")),
        Kind::Busy => client.get(url("503")),
        Kind::Slow if values.iter().any(|value| value.setter.ends_with(SHORT)) => client.get(url("longest")),
        Kind::Slow => client.get(url("slowest")),
        Kind::Secure => client.get(format!("https://origin.test:{port}/{id}/v11/plain")),
        Kind::Relative => client.get(format!("{id}/v11/plain")),
        Kind::Restart => client.get(url("restart")),
    };
    let request = values.iter().fold(request, |request, value| match value.apply {
        Apply::Request(set) => set(request, world),
        _ => request,
    });
    let start = Instant::now();
    let result = async {
        let response = request.send().await.map_err(|error| format!("{error:?}"))?;
        let answer = (response.status().as_u16(), response.version());
        response.bytes().await.map_err(|error| format!("{error:?}"))?;
        Ok(answer)
    };
    let result = result.await;
    Called { kind, result, seen: world.server.seen(&id), took: start.elapsed() }
}

/// The places of settings: a file or a folder, and what stands before their names.
const PLACES: &[(&str, &str)] = &[
    ("client/client_builder", ""),
    ("client/settings/host_config.rs", "HostConfig::"),
    ("client/request/call_options.rs", "HostConfig::"),
    ("client/request_builder/mod.rs", "RequestBuilder::"),
    ("client/request_builder/multipart.rs", "RequestBuilder::"),
    ("pool/config.rs", "PoolConfig::"),
    ("tls/config/mod.rs", "TlsConfig::"),
    ("dns/hickory/mod.rs", "HickoryResolver::"),
    ("dns/cache/mod.rs", "CachedResolverBuilder::"),
];

#[test]
fn each_setting_has_a_value_or_a_reason() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    let values = values();
    let known: HashSet<_> =
        values.iter().map(|value| value.setter.split('#').next().unwrap()).chain(client::left_out()).collect();
    let mut unknown = Vec::new();
    for (place, before) in PLACES {
        let place = source.join(place);
        let files = match std::fs::read_dir(&place) {
            Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
            Err(_) => vec![place],
        };
        for text in files.into_iter().map(|file| std::fs::read_to_string(file).unwrap()) {
            unknown.extend(setters(&text).map(|name| format!("{before}{name}")));
            unknown.extend(host_limits(&text).map(|name| format!("HostLimits::{name}")));
        }
    }
    assert!(unknown.len() > 150 && unknown.iter().any(|name| name == "HostLimits::lifetime"), "settings are not found");
    unknown.retain(|name| !known.contains(&**name));
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Returns the names of the limits in the table of those that hosts have for themselves.
fn host_limits(text: &str) -> impl Iterator<Item = &str> {
    let table = text.split_once("\nlimits! {").map_or("", |(_, rest)| rest.split_once("\n}").unwrap().0);
    table.lines().filter_map(|row| Some(row.rsplit_once('(')?.0.rsplit(' ').next().unwrap()))
}

/// Returns the names of methods that set something.
fn setters(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("    pub fn ").filter_map(|(at, found)| {
        let after = &text[at + found.len()..];
        let is_setter = after.split('{').next().unwrap().contains("-> Self") || after.contains("-> Result<Self");
        (is_setter && !after.starts_with('$')).then(|| after.split(['(', '<']).next().unwrap())
    })
}
