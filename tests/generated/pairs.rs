//! Pairs of settings: clients with a few settings each, so that any two values of two settings meet, against one world.
//!
//! Either `build` names the contradiction, or each setting has its effect on the calls that can show it, every call ends, and nothing is
//! left.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use speeddial::dns::FixedResolver;
use speeddial::http::{HeaderMap, HeaderName, HeaderValue, Request, Version};
use speeddial::{
    Addresses, Body, Client, ClientBuilder, HedgePolicy, HostConfig, HostLimits, PoolConfig, Proxy, RequestBuilder,
    RetryPolicy, Token, TokenSource, redirect,
};
use tokio::time::timeout;

use crate::factors::{self, factor};
use crate::strict::{Seen, Strict};

factor! {
    /// A kind of call.
    Kind { Get, Post, Stream, Redirect, Busy, Secure, Several, Relative, Slow }
}

/// A value of a setting.
struct Value {
    /// The method that sets it.
    setter: &'static str,
    apply: fn(ClientBuilder, &World) -> ClientBuilder,
    /// The kinds of calls that may fail because of it.
    fails: &'static [Kind],
    /// Returns false if it had no effect though it should have had.
    is_seen: fn(&Observed) -> bool,
}

/// The servers, and where they are.
struct World {
    server: Strict,
}

/// A call, and what came of it.
struct Called {
    kind: Kind,
    result: Result<(u16, Version), String>,
    seen: Vec<Seen>,
}

/// What was seen of the calls of one client.
struct Observed {
    calls: Vec<Called>,
    setters: HashSet<&'static str>,
    connections: usize,
    idle: usize,
}

impl Observed {
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

/// For settings that a good world cannot show: nothing hangs, fails or leaks because of them.
const UNSEEN: fn(&Observed) -> bool = |_| true;

const HTTP: &[Kind] =
    &[Kind::Get, Kind::Post, Kind::Stream, Kind::Redirect, Kind::Busy, Kind::Slow, Kind::Several, Kind::Relative];

fn headers(name: &'static str, value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
}

fn value(
    setter: &'static str,
    apply: fn(ClientBuilder, &World) -> ClientBuilder,
    is_seen: fn(&Observed) -> bool,
) -> Value {
    Value { setter, apply, fails: &[], is_seen }
}

/// A layer that adds a header.
macro_rules! adds {
    ($service:ty, $name:literal) => {
        tower::layer::layer_fn(|inner: $service| {
            tower::service_fn(move |mut request: Request<Body>| {
                request.headers_mut().insert($name, HeaderValue::from_static("yes"));
                tower::ServiceExt::oneshot(inner.clone(), request)
            })
        })
    };
}

fn values() -> Vec<Value> {
    const SECOND: Duration = Duration::from_secs(1);
    // Where the machine is busy, other calls may take as long.
    const MOMENT: Duration = Duration::from_millis(150);
    let mut all = vec![
        Value {
            fails: Kind::ALL,
            ..value("timeout", |b, _| b.timeout(MOMENT), |o| o.has("hedge") || o.has("retry") || o.fails(Kind::Slow))
        },
        value("timeout", |b, _| b.timeout(SECOND * 9), UNSEEN),
        Value {
            fails: Kind::ALL,
            ..value(
                "headers_timeout",
                |b, _| b.headers_timeout(MOMENT),
                |o| o.has("read_timeout") || o.has("hedge") || o.has("retry") || o.fails(Kind::Slow),
            )
        },
        value("headers_timeout", |b, _| b.headers_timeout(SECOND * 9), UNSEEN),
        value("queue_timeout", |b, _| b.queue_timeout(SECOND * 5), UNSEEN),
        value("connect_timeout", |b, _| b.connect_timeout(SECOND * 5), UNSEEN),
        value("tls_timeout", |b, _| b.tls_timeout(SECOND * 5), UNSEEN),
        value("body_idle_timeout", |b, _| b.body_idle_timeout(SECOND * 5), UNSEEN),
        value("read_timeout", |b, _| b.read_timeout(SECOND * 5), UNSEEN),
        value(
            "base_url",
            |b, w| b.base_url(format!("http://a.test:{}/", w.server.address().port())),
            |o| {
                o.statuses(Kind::Relative, 200)
                    && (o.has("max_body_size")
                        || o.has("timeout")
                        || o.has("headers_timeout")
                        || !o.fails(Kind::Relative))
            },
        ),
        value(
            "default_headers",
            |b, _| b.default_headers(headers("x-default", "1")),
            |o| o.all_have(Kind::Get, "x-default", "1"),
        ),
        value("user_agent", |b, _| b.user_agent("pairs/1"), |o| o.all_have(Kind::Secure, "user-agent", "pairs/1")),
        value("redirect", |b, _| b.redirect(redirect::Policy::none()), |o| o.statuses(Kind::Redirect, 307)),
        value("redirect", |b, _| b.redirect(redirect::Policy::limited(3)), |o| o.statuses(Kind::Redirect, 200)),
        value(
            "referer",
            |b, _| b.referer(true),
            |o| {
                o.of(Kind::Redirect)
                    .all(|(_, _, seen)| seen.get(1).is_none_or(|seen| seen.values("referer").len() == 1))
            },
        ),
        value(
            "retry",
            |b, _| b.retry(RetryPolicy::new().backoff(Duration::from_millis(1), Duration::from_millis(2)).no_budget()),
            |o| o.statuses(Kind::Busy, 200),
        ),
        value("retry", |b, _| b.retry(RetryPolicy::none()), |o| o.statuses(Kind::Busy, 503)),
        value(
            "hedge",
            |b, _| b.hedge(HedgePolicy::new().min_samples(1).budget(9.0).floor(Duration::from_millis(20))),
            |o| o.of(Kind::Slow).all(|(_, _, seen)| seen.len() <= 2),
        ),
        value(
            "before_attempt",
            |b, _| {
                b.before_attempt(|head| {
                    head.headers_mut().insert("x-attempt", HeaderValue::from_static("yes"));
                    Ok::<_, Infallible>(())
                })
            },
            |o| Kind::ALL.iter().all(|kind| o.all_have(*kind, "x-attempt", "yes")),
        ),
        value(
            "token_source",
            |b, _| b.token_source(TokenSource::new(|| async { Ok::<_, Infallible>(Token::new("t")) })),
            // With a base URL, its origin alone gets the token.
            |o| o.has("base_url") || Kind::ALL.iter().all(|kind| o.all_have(*kind, "authorization", "Bearer t")),
        ),
        Value {
            fails: HTTP,
            ..value("https_only", |b, _| b.https_only(true), |o| HTTP.iter().all(|kind| o.fails(*kind)))
        },
        value(
            "http1_only",
            |b, _| b.http1_only(),
            |o| Kind::ALL.iter().all(|kind| o.of(*kind).all(|(_, version, _)| version == Version::HTTP_11)),
        ),
        value(
            "http2_prior_knowledge",
            |b, _| b.http2_prior_knowledge(),
            |o| {
                o.has("proxy")
                    || Kind::ALL.iter().all(|kind| o.of(*kind).all(|(_, version, _)| version == Version::HTTP_2))
            },
        ),
        value("http1_title_case_headers", |b, _| b.http1_title_case_headers(), UNSEEN),
        value("http1_max_headers", |b, _| b.http1_max_headers(20), UNSEEN),
        value(
            "http1_allow_obsolete_multiline_headers_in_responses",
            |b, _| b.http1_allow_obsolete_multiline_headers_in_responses(true),
            UNSEEN,
        ),
        value(
            "http1_ignore_invalid_headers_in_responses",
            |b, _| b.http1_ignore_invalid_headers_in_responses(true),
            UNSEEN,
        ),
        value(
            "http1_allow_spaces_after_header_name_in_responses",
            |b, _| b.http1_allow_spaces_after_header_name_in_responses(true),
            UNSEEN,
        ),
        value("http09_responses", |b, _| b.http09_responses(), UNSEEN),
        value("http2_initial_stream_window_size", |b, _| b.http2_initial_stream_window_size(1 << 16), UNSEEN),
        value("http2_initial_connection_window_size", |b, _| b.http2_initial_connection_window_size(1 << 17), UNSEEN),
        value("http2_adaptive_window", |b, _| b.http2_adaptive_window(true), UNSEEN),
        value("http2_max_frame_size", |b, _| b.http2_max_frame_size(1 << 15), UNSEEN),
        value("http2_max_header_list_size", |b, _| b.http2_max_header_list_size(1 << 14), UNSEEN),
        value("http2_header_table_size", |b, _| b.http2_header_table_size(0), UNSEEN),
        value("http2_max_send_buf_size", |b, _| b.http2_max_send_buf_size(1 << 12), UNSEEN),
        value("http2_keep_alive_interval", |b, _| b.http2_keep_alive_interval(SECOND), UNSEEN),
        value(
            "http2_keep_alive_timeout",
            |b, _| b.http2_keep_alive_interval(SECOND).http2_keep_alive_timeout(SECOND),
            UNSEEN,
        ),
        value(
            "http2_keep_alive_while_idle",
            |b, _| b.http2_keep_alive_interval(SECOND).http2_keep_alive_while_idle(true),
            UNSEEN,
        ),
        value(
            "pool",
            |b, _| b.pool(PoolConfig::new().max_connections_per_host(1)),
            |o| {
                // Two hosts, or more by way of a hedge that waits for nothing.
                o.connections <= 2
                    || o.has("hedge")
                    || o.has("pool_max_idle_per_host")
                    || o.has("timeout")
                    || o.has("headers_timeout")
            },
        ),
        value("pool", |b, _| b.pool(PoolConfig::new().max_connections(1).lifetime(SECOND)), UNSEEN),
        value("pool_max_idle_per_host", |b, _| b.pool_max_idle_per_host(0), |o| o.idle == 0),
        value("pool_idle_timeout", |b, _| b.pool_idle_timeout(SECOND), UNSEEN),
        value(
            "proxy",
            |b, w| b.proxy(Proxy::all(format!("http://{}", w.server.address())).unwrap()),
            |o| {
                o.has("http2_prior_knowledge")
                    || o.has("no_proxy")
                    || o.of(Kind::Get)
                        .all(|(_, _, seen)| seen.iter().all(|seen| seen.target.starts_with("http://a.test")))
            },
        ),
        value("no_proxy", |b, _| b.no_proxy(), UNSEEN),
        value("unix_socket", |b, w| b.unix_socket(w.server.unix()), UNSEEN),
        value("addresses", |b, _| b.addresses(Addresses::V4Only), UNSEEN),
        value("addresses", |b, _| b.addresses(Addresses::Spread), UNSEEN),
        value("allow_addresses", |b, _| b.allow_addresses(|_| true), UNSEEN),
        value("local_address", |b, _| b.local_address(std::net::IpAddr::from([127, 0, 0, 1])), UNSEEN),
        value("tcp_nodelay", |b, _| b.tcp_nodelay(false), UNSEEN),
        value("tcp_keepalive", |b, _| b.tcp_keepalive(SECOND), UNSEEN),
        value("tcp_keepalive_interval", |b, _| b.tcp_keepalive_interval(SECOND), UNSEEN),
        value("tcp_keepalive_retries", |b, _| b.tcp_keepalive_retries(2), UNSEEN),
        value("tcp_user_timeout", |b, _| b.tcp_user_timeout(SECOND), UNSEEN),
        value("resolve", |b, w| b.resolve("a.test", w.server.address()), UNSEEN),
        value(
            "for_host",
            |b, _| b.for_host("a.test", HostConfig::new().default_headers(headers("x-host", "a"))),
            |o| {
                o.all_have(Kind::Get, "x-host", "a")
                    && o.of(Kind::Secure).all(|(_, _, seen)| seen[0].values("x-host").is_empty())
            },
        ),
        value(
            "for_host",
            |b, _| b.for_host("b.test", HostConfig::new().limits(HostLimits::new().max_connections(1))),
            UNSEEN,
        ),
        value("hide_queries", |b, _| b.hide_queries(), UNSEEN),
        value("hide_bodies", |b, _| b.hide_bodies(), UNSEEN),
        Value { fails: Kind::ALL, ..value("max_body_size", |b, _| b.max_body_size(1), |o| o.fails(Kind::Get)) },
        value("max_body_size", |b, _| b.max_body_size(1 << 20), UNSEEN),
        value(
            "layer",
            |b, _| b.layer(adds!(speeddial::ClientService, "x-outer")),
            |o| o.all_have(Kind::Post, "x-outer", "yes"),
        ),
        value(
            "attempt_layer",
            |b, _| b.attempt_layer(adds!(speeddial::AttemptService, "x-inner")),
            |o| Kind::ALL.iter().all(|kind| o.all_have(*kind, "x-inner", "yes")),
        ),
        value("connector_layer", |b, _| b.connector_layer(tower::timeout::TimeoutLayer::new(SECOND * 5)), UNSEEN),
        value("tls_info", |b, _| b.tls_info(true), UNSEEN),
        value("tls_version_min", |b, _| b.tls_version_min(speeddial::tls::Version::TLS_1_3), UNSEEN),
        value("tls_version_max", |b, _| b.tls_version_max(speeddial::tls::Version::TLS_1_2), UNSEEN),
        value("tls_sni", |b, _| b.tls_sni(false), UNSEEN),
        value("tls_reload_interval", |b, _| b.tls_reload_interval(SECOND), UNSEEN),
        value("danger_accept_invalid_certs", |b, _| b.danger_accept_invalid_certs(true), UNSEEN),
        value("danger_accept_invalid_hostnames", |b, _| b.danger_accept_invalid_hostnames(true), UNSEEN),
    ];
    #[cfg(feature = "cookies")]
    all.push(value("cookie_store", |b, _| b.cookie_store(true), UNSEEN));
    #[cfg(feature = "gzip")]
    all.extend([
        value("decompress", |b, _| b.decompress(false), |o| o.none_has("accept-encoding", "")),
        value("no_gzip", |b, _| b.no_gzip(), |o| o.none_has("accept-encoding", "gzip")),
    ]);
    all
}

/// Settings that contradict others, and what `build` says of that.
const CONTRADICTIONS: &[(&str, &[&str], &str)] = &[
    ("tls_version_min", &["tls_version_max"], "leave neither 1.2 nor 1.3"),
    ("unix_socket", OF_TCP, "a setting of TCP has no effect beside a Unix domain socket"),
    ("unix_socket", &["addresses"], "a choice of addresses has no effect beside a Unix domain socket"),
    ("unix_socket", &["resolve"], "an address for a name has no effect beside a Unix domain socket"),
    ("unix_socket", &["allow_addresses"], "a rule for addresses has no effect beside a Unix domain socket"),
    ("unix_socket", &["proxy"], "a proxy has no effect beside a Unix domain socket"),
    ("http1_only", &["http2_prior_knowledge"], "http1_only contradicts http2_prior_knowledge"),
    ("base_url", &["https_only"], "base_url is an http URL, to which https_only lets no request go"),
    ("http2_adaptive_window", WINDOWS, "http2_adaptive_window chooses the windows"),
    ("tcp_user_timeout", &["tcp_keepalive_retries"], "no effect beside tcp_user_timeout"),
];

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
    let are_meant = |known: &str, others: &[&str]| {
        (known == one && others.contains(&other)) || (known == other && others.contains(&one))
    };
    CONTRADICTIONS.iter().find(|(known, others, _)| are_meant(known, others)).map(|(.., text)| *text)
}

/// The settings of one client.
const AT_ONCE: usize = 7;

/// Returns groups of values of different settings, in which any two of them meet.
fn groups(values: &[Value], seed: u64) -> Vec<Vec<usize>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let is_pair = |one: usize, other: usize| values[one].setter != values[other].setter;
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
    let directory = std::env::temp_dir().join(format!("speeddial-pairs-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let world = World { server: Strict::start(&directory) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let values = values();
    let (seed, rounds) = (factors::number("SEED", 1), factors::number("ROUNDS", 1));
    for seed in seed..seed + rounds {
        let groups = groups(&values, seed);
        let mut failed: Vec<String> = runtime.block_on(async {
            let (values, world) = (&values, &world);
            let runs = groups.iter().map(|group| async move {
                let names: Vec<_> = group.iter().map(|index| format!("{}#{index}", values[*index].setter)).collect();
                let values: Vec<_> = group.iter().map(|index| &values[*index]).collect();
                let name = names.join(" ");
                if std::env::var("SHAPE").is_ok_and(|only| only != name) {
                    return None;
                }
                let result = timeout(Duration::from_secs(60), try_group(&values, world)).await;
                let result = result.unwrap_or_else(|_| Err("it hangs".to_owned()));
                result.err().map(|what| format!("{name}: {what}"))
            });
            let results: Vec<_> = stream::iter(runs).buffer_unordered(12).collect().await;
            results.into_iter().flatten().collect()
        });
        failed.extend(world.server.violations());
        assert!(failed.is_empty(), "SEED={seed}: {} of {} groups\n{}", failed.len(), groups.len(), failed.join("\n"));
    }
    let _ = std::fs::remove_dir_all(directory);
}

async fn try_group(values: &[&Value], world: &World) -> Result<(), String> {
    let local = [std::net::IpAddr::from([127, 0, 0, 1])];
    let names = FixedResolver::new().with("a.test", local).with("origin.test", local);
    let setters: HashSet<_> = values.iter().map(|value| value.setter).collect();
    let mut builder = Client::builder();
    if !setters.contains("danger_accept_invalid_certs") {
        builder = builder.tls_certs_only([world.server.trusted()]);
    }
    if !setters.contains("unix_socket") {
        builder = builder.dns_resolver(names);
    }
    for value in values {
        builder = (value.apply)(builder, world);
    }
    let expected = match values {
        [one, other] => contradiction(one.setter, other.setter),
        _ => None,
    };
    let client = match (builder.build(), expected) {
        (Ok(client), None) => client,
        (Err(error), Some(text)) if error.to_string().contains(text) => return Ok(()),
        (built, expected) => return Err(format!("build: {:?} in place of {expected:?}", built.map(|_| ()))),
    };
    let mut calls = Vec::new();
    for kind in Kind::ALL {
        if *kind == Kind::Relative && !setters.contains("base_url") {
            continue;
        }
        let count = if *kind == Kind::Several { 6 } else { 1 };
        let called = join_all((0..count).map(|_| call(&client, *kind, world))).await;
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
    factors::settles(&client).await?;
    let stats = client.pool_stats();
    let connections = usize::try_from(stats.opened).unwrap();
    let observed = Observed { calls, setters, connections, idle: stats.idle };
    let unseen = values.iter().filter(|value| !(value.is_seen)(&observed));
    let unseen: Vec<_> = unseen.map(|value| value.setter).collect();
    if unseen.is_empty() {
        return Ok(());
    }
    let mut text = format!("no effect of {unseen:?}, {connections} connections, {} idle", observed.idle);
    for Called { kind, result, seen } in &observed.calls {
        write!(text, "\n    {kind:?} {result:?} {seen:?}").unwrap();
    }
    Err(text)
}

async fn call(client: &Client, kind: Kind, world: &World) -> Called {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = format!("p{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let port = world.server.address().port();
    let url = |step: &str| format!("http://a.test:{port}/{id}/v11/{step}");
    let pieces = || stream::iter(["one ", "two"].map(Ok::<_, std::io::Error>));
    let request: RequestBuilder = match kind {
        Kind::Get | Kind::Several => client.get(url("plain")),
        Kind::Post => client.post(url("plain")).body("given"),
        Kind::Stream => client.post(url("plain")).body(Body::wrap_stream(pieces())),
        Kind::Redirect => client.get(url("307")),
        Kind::Busy => client.get(url("503")),
        Kind::Slow => client.get(url("slowest")),
        Kind::Secure => client.get(format!("https://origin.test:{port}/{id}/v11/plain")),
        Kind::Relative => client.get(format!("{id}/v11/plain")),
    };
    let result = async {
        let response = request.send().await.map_err(|error| format!("{error:?}"))?;
        let answer = (response.status().as_u16(), response.version());
        response.bytes().await.map_err(|error| format!("{error:?}"))?;
        Ok(answer)
    };
    let result = result.await;
    Called { kind, result, seen: world.server.seen(&id) }
}

/// Methods of the builder without a value above, and why.
const LEFT_OUT: &[(&str, &[&str])] = &[
    ("no settings", &["new", "build", "builder"]),
    ("the world itself", &["dns_resolver", "tls_certs_only"]),
    ("another way to say what has a value", OTHER_WORDS),
    ("they would keep every call from the world", &["deny_private_addresses", "identity", "interface", "transport"]),
    (
        "they need DNS records, or files, that the world does not have",
        &[
            "https_records",
            "https_records_upgrade_http",
            "encrypted_client_hello",
            "tls_crls_only",
            "add_crl",
            "add_crls",
            "tls_sslkeylogfile",
        ],
    ),
    ("they are watched elsewhere", &["observer", "connection_verbose", "cookie_provider"]),
];

const OTHER_WORDS: &[&str] = &[
    "add_root_certificate",
    "brotli",
    "deflate",
    "dns_cache",
    "gzip",
    "hickory_dns",
    "max_tls_version",
    "min_tls_version",
    "no_brotli",
    "no_deflate",
    "no_hickory_dns",
    "no_zstd",
    "resolve_to_addrs",
    "tls",
    "tls_backend_preconfigured",
    "tls_backend_rustls",
    "tls_certs_merge",
    "tls_danger_accept_invalid_certs",
    "tls_danger_accept_invalid_hostnames",
    "use_preconfigured_tls",
    "use_rustls_tls",
    "zstd",
];

#[test]
fn each_setting_of_a_client_has_a_value_or_a_reason() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/client/builder");
    let left_out: HashSet<_> = LEFT_OUT.iter().flat_map(|(_, setters)| setters.iter().copied()).collect();
    let values = values();
    let known: HashSet<_> = values.iter().map(|value| value.setter).chain(left_out).collect();
    let mut unknown = Vec::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for (_, after) in text.match_indices("    pub fn ").map(|(at, found)| text.split_at(at + found.len())) {
            let name = after.split(['(', '<']).next().unwrap();
            let is_setter = after.split('{').next().unwrap().contains("-> Self") || after.starts_with("build");
            if is_setter && !known.contains(name) {
                unknown.push(name.to_owned());
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:?}");
}
