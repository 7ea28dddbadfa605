//! The settings of a client, each with one or two values and how their effect is seen.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use speeddial::http::{HeaderValue, Request, Version};
use speeddial::settings::{Addresses, HostConfig};
use speeddial::token::{Token, TokenSource};
use speeddial::{Body, HedgePolicy, Proxy, RetryPolicy, redirect};

use super::{HTTP, Kind, LONG, LONGEST_BACKOFF, MOMENT, Observed, SECOND, UNSEEN, Value, headers, value};

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

/// Returns the values of the settings of a client.
pub(super) fn values() -> Vec<Value> {
    let mut all = vec![
        Value {
            fails: Kind::ALL,
            ..value("timeout#short", |b, _| b.timeout(MOMENT), |o| o.repeats() || o.fails(Kind::Slow))
        },
        value("timeout", |b, _| b.timeout(LONG), UNSEEN),
        Value {
            fails: Kind::ALL,
            ..value(
                "headers_timeout#short",
                |b, _| b.headers_timeout(MOMENT),
                |o| o.has("read_timeout") || o.has("HostConfig::read_timeout") || o.repeats() || o.fails(Kind::Slow),
            )
        },
        value("headers_timeout", |b, _| b.headers_timeout(LONG), UNSEEN),
        value("queue_timeout", |b, _| b.queue_timeout(LONG), UNSEEN),
        value("connect_timeout", |b, _| b.connect_timeout(LONG), UNSEEN),
        value("tls_timeout", |b, _| b.tls_timeout(LONG), UNSEEN),
        value("body_idle_timeout", |b, _| b.body_idle_timeout(LONG), UNSEEN),
        value("min_speed", |b, _| b.min_speed(1, LONG), UNSEEN),
        value("read_timeout", |b, _| b.read_timeout(LONG), UNSEEN),
        value(
            "base_url",
            |b, w| b.base_url(format!("http://{}:{}/", w.host, w.server.address().port())),
            |o| {
                o.statuses(Kind::Relative, 200)
                    && (o.has("max_body_size")
                        || o.has("RequestBuilder::max_body_size")
                        || o.has("HostConfig::max_body_size")
                        || o.has_short_limit()
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
        value(
            "redirect",
            |b, _| b.redirect(redirect::Policy::limited(3)),
            |o| o.has("HostConfig::redirect") || o.has("RequestBuilder::redirect") || o.statuses(Kind::Redirect, 200),
        ),
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
            |b, _| b.retry(RetryPolicy::new().backoff(LONGEST_BACKOFF / 3, LONGEST_BACKOFF).no_budget()),
            Observed::repeats_busy,
        ),
        value(
            "retry",
            |b, _| b.retry(RetryPolicy::none()),
            |o| o.has("HostConfig::retry") || o.has("RequestBuilder::retry") || o.statuses(Kind::Busy, 503),
        ),
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
            |o| {
                o.has("base_url")
                    || o.has_own_authorization()
                    || Kind::ALL.iter().all(|kind| o.all_have(*kind, "authorization", "Bearer t"))
            },
        ),
        Value {
            fails: HTTP,
            ..value("https_only", |b, _| b.https_only(true), |o| HTTP.iter().all(|kind| o.fails(*kind)))
        },
        value(
            "http1_only",
            |b, _| b.http1_only(),
            |o| {
                o.has_host_version()
                    || Kind::ALL.iter().all(|kind| o.of(*kind).all(|(_, version, _)| version == Version::HTTP_11))
            },
        ),
        value(
            "http2_prior_knowledge",
            |b, _| b.http2_prior_knowledge(),
            |o| {
                o.is_by_proxy()
                    || o.has_host_version()
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
        value(
            "http2_keep_alive_interval",
            |b, _| b.http2_keep_alive_interval(SECOND).http2_keep_alive_timeout(LONG),
            UNSEEN,
        ),
        value(
            "http2_keep_alive_timeout",
            |b, _| b.http2_keep_alive_interval(SECOND).http2_keep_alive_timeout(LONG),
            UNSEEN,
        ),
        value(
            "http2_keep_alive_while_idle",
            |b, _| b.http2_keep_alive_interval(SECOND).http2_keep_alive_timeout(LONG).http2_keep_alive_while_idle(true),
            UNSEEN,
        ),
        value("pool_max_idle_per_host", |b, _| b.pool_max_idle_per_host(0), |o| o.idle == 0),
        value("pool_idle_timeout", |b, _| b.pool_idle_timeout(SECOND), UNSEEN),
        value(
            "proxy",
            |b, w| b.proxy(Proxy::all(format!("http://{}", w.server.address())).unwrap()),
            |o| {
                o.has("http2_prior_knowledge")
                    || o.has("no_proxy")
                    || o.has("HostConfig::no_proxy")
                    || o.has("HostConfig::unix_socket")
                    || o.has("unix_socket")
                    || o.has("RequestBuilder::no_proxy")
                    || o.has("HostConfig::http2_prior_knowledge")
                    || o.of(Kind::Get).all(|(_, _, seen)| seen.iter().all(|seen| seen.target.starts_with("http://")))
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
        value("tcp_user_timeout", |b, _| b.tcp_user_timeout(LONG), UNSEEN),
        value("resolve", |b, w| b.resolve(&w.host, w.server.address()), UNSEEN),
        value("for_host", |b, _| b.for_host("other.test", HostConfig::new().timeout(SECOND)), UNSEEN),
        value("hide_queries", |b, _| b.hide_queries(), UNSEEN),
        value("hide_bodies", |b, _| b.hide_bodies(), UNSEEN),
        value("name", |b, _| b.name("mine"), UNSEEN),
        Value { fails: Kind::ALL, ..value("max_body_size", |b, _| b.max_body_size(1), |o| o.fails(Kind::Get)) },
        value("max_body_size", |b, _| b.max_body_size(1 << 20), UNSEEN),
        value(
            "layer",
            |b, _| b.layer(adds!(speeddial::layers::ClientService, "x-outer")),
            |o| o.all_have(Kind::Post, "x-outer", "yes"),
        ),
        value(
            "attempt_layer",
            |b, _| b.attempt_layer(adds!(speeddial::layers::AttemptService, "x-inner")),
            |o| Kind::ALL.iter().all(|kind| o.all_have(*kind, "x-inner", "yes")),
        ),
        value("connector_layer", |b, _| b.connector_layer(tower::timeout::TimeoutLayer::new(LONG)), UNSEEN),
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

/// Methods of the builder without a value above, and why.
const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "no settings",
        &[
            "HostConfig::new",
            "HostLimits::new",
            "PoolConfig::new",
            "RequestBuilder::from_http",
            "RequestBuilder::from_parts",
            "TlsConfig::new",
        ],
    ),
    ("bodies and protocols, of which the suite of shapes is", BODIES),
    ("they hold the settings that have values", &["HostConfig::limits", "HostConfig::tls", "pool"]),
    ("the certificates of the world, or its servers", OF_THE_WORLD),
    ("they would keep every call from the world", &["HostConfig::identity", "HostConfig::transport"]),
    ("they need files", &["TlsConfig::add_revocation_lists", "TlsConfig::key_log_file"]),
    ("they are watched elsewhere", &["HickoryResolver::with_observer", "RequestBuilder::observer"]),
    ("no settings", &["new", "build", "builder", "CachedResolverBuilder::new", "RequestBuilder::forward"]),
    ("those of `Ejection`, of which a host has values", OF_EJECTIONS),
    ("the world itself", &["dns_cache", "tls_certs_only"]),
    ("another way to say what has a value", OTHER_WORDS),
    ("they would keep every call from the world", &["deny_private_addresses", "identity", "interface", "transport"]),
    (
        "they need DNS records, or files, that the world does not have",
        &["tls_crls_only", "add_crl", "add_crls", "tls_sslkeylogfile"],
    ),
    ("they are watched elsewhere", &["observer", "connection_verbose", "cookie_provider"]),
];

const OF_EJECTIONS: &[&str] = &[
    "PoolConfig::off",
    "PoolConfig::failures",
    "PoolConfig::failure_percent",
    "PoolConfig::base_time",
    "PoolConfig::max_time",
    "PoolConfig::max_percent",
];

const BODIES: &[&str] = &[
    "RequestBuilder::body",
    "RequestBuilder::fetch_mode_no_cors",
    "RequestBuilder::form",
    "RequestBuilder::json",
    "RequestBuilder::multipart",
    "RequestBuilder::protocol",
    "RequestBuilder::version",
];

const OF_THE_WORLD: &[&str] = &[
    "HickoryResolver::system",
    "HickoryResolver::with_servers",
    "HickoryResolver::with_tls_config",
    "TlsConfig::add_roots",
    "TlsConfig::danger_accept_invalid_certs",
    "TlsConfig::identity",
    "TlsConfig::only_added_roots",
    "TlsConfig::pin_spki_sha256",
    "TlsConfig::server_name",
    "TlsConfig::watch_roots",
    "TlsConfig::webpki_roots",
];

const OTHER_WORDS: &[&str] = &[
    "PoolConfig::update_host",
    "add_root_certificate",
    "brotli",
    "deflate",
    "dns_resolver",
    "dns_resolver2",
    "gzip",
    "hickory_dns",
    "max_tls_version",
    "min_tls_version",
    "no_brotli",
    "no_deflate",
    "no_hickory_dns",
    "no_trust_dns",
    "no_zstd",
    "resolve_to_addrs",
    "tls",
    "tls_backend_native",
    "tls_backend_preconfigured",
    "tls_backend_rustls",
    "tls_built_in_root_certs",
    "tls_certs_merge",
    "tls_danger_accept_invalid_certs",
    "tls_danger_accept_invalid_hostnames",
    "trust_dns",
    "use_native_tls",
    "use_preconfigured_tls",
    "use_rustls_tls",
    "zstd",
];

/// Returns the names of the settings of which there are no values.
pub(super) fn left_out() -> HashSet<&'static str> {
    LEFT_OUT.iter().flat_map(|(_, setters)| setters.iter().copied()).collect()
}
