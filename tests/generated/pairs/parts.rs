//! The settings of the parts of a client: of its pool, hosts, TLS, resolver and cache, and of its requests.

use std::time::Duration;

use speeddial::http::Version;
use speeddial::pool::{Ejection, FollowDns};
use speeddial::settings::Addresses;
use speeddial::tls;
use speeddial::{HedgePolicy, RetryPolicy, redirect};

use super::{Apply, HTTP, Kind, LONG, LONGEST_BACKOFF, MOMENT, Observed, SECOND, UNSEEN, Value, headers};

/// Returns true if the calls of a kind cannot be judged, because a setting may end or repeat them.
fn may_differ(observed: &Observed) -> bool {
    let names = ["timeout#short", "read_timeout", "HostConfig::read_timeout", "HostConfig::timeout#short"];
    observed.repeats() || names.iter().any(|name| observed.has(name))
}

fn row(setter: &'static str, apply: Apply, is_seen: fn(&Observed) -> bool) -> Value {
    Value { setter, apply, fails: &[], is_seen }
}

/// A row for calls that may fail because of it.
fn failing(setter: &'static str, apply: Apply, is_seen: fn(&Observed) -> bool) -> Value {
    Value { setter, apply, fails: Kind::ALL, is_seen }
}

/// A row by which calls may be refused while others have, or have just had, the connections.
fn crowded(setter: &'static str, apply: Apply) -> Value {
    Value { setter, apply, fails: Kind::ALL, is_seen: |observed| observed.only_the_queue_refuses() }
}

/// Returns the values of the settings of the parts.
pub(super) fn values() -> Vec<Value> {
    [pool(), limits(), hosts(), requests(), of_tls(), resolver(), cache()].into_iter().flatten().collect()
}

fn pool() -> Vec<Value> {
    use Apply::Pool;
    vec![
        row("PoolConfig::max_connections", Pool(|p| p.max_connections(1)), UNSEEN),
        row("PoolConfig::max_connections", Pool(|p| p.max_connections(3)), UNSEEN),
        row("PoolConfig::max_idle#0", Pool(|p| p.max_idle(0)), |o| o.idle == 0),
        row("PoolConfig::max_idle", Pool(|p| p.max_idle(1)), |o| o.idle <= 1),
        crowded("PoolConfig::max_waiting", Pool(|p| p.max_waiting(0))),
        row("PoolConfig::max_waiting", Pool(|p| p.max_waiting(100)), UNSEEN),
        row("PoolConfig::follow_dns", Pool(|p| p.follow_dns(FollowDns::AtOnce)), UNSEEN),
        row("PoolConfig::follow_dns#Off", Pool(|p| p.follow_dns(FollowDns::Off)), |o| {
            // What keeps no connection moves with the next one. On a busy machine other connections are opened, too: not because
            // the host has moved.
            !o.moved || o.keeps_none() || o.has("addresses") || o.opened_since > 0 && !o.left_address
        }),
        row("PoolConfig::max_connections_per_host", Pool(|p| p.max_connections_per_host(1)), UNSEEN),
        row("PoolConfig::max_idle_per_host", Pool(|p| p.max_idle_per_host(0)), |o| {
            o.idle == 0 || o.has("HostLimits::max_idle") || o.has("HostLimits::min_idle")
        }),
        row("PoolConfig::min_idle_per_host", Pool(|p| p.min_idle_per_host(1)), UNSEEN),
        crowded("PoolConfig::max_waiting_per_host", Pool(|p| p.max_waiting_per_host(0))),
        row("PoolConfig::max_dials_per_host", Pool(|p| p.max_dials_per_host(1)), UNSEEN),
        row("PoolConfig::max_http2_connections_per_host", Pool(|p| p.max_http2_connections_per_host(1)), UNSEEN),
        row("PoolConfig::max_streams_per_connection", Pool(|p| p.max_streams_per_connection(1)), UNSEEN),
        row("PoolConfig::max_requests_per_connection", Pool(|p| p.max_requests_per_connection(1)), |o| {
            o.has("HostLimits::max_requests_per_connection") || o.connections >= o.answered() || o.may_lack_room()
        }),
        row("PoolConfig::idle_timeout", Pool(|p| p.idle_timeout(SECOND)), UNSEEN),
        row("PoolConfig::lifetime", Pool(|p| p.lifetime(SECOND)), UNSEEN),
        row("PoolConfig::wait_timeout", Pool(|p| p.wait_timeout(LONG)), UNSEEN),
        row("PoolConfig::ejection", Pool(|p| p.ejection(Ejection::new().failures(1))), UNSEEN),
        row(
            "PoolConfig::for_host",
            Pool(|p| p.for_host("other.test", speeddial::pool::HostLimits::new().max_idle(0))),
            UNSEEN,
        ),
    ]
}

fn limits() -> Vec<Value> {
    use Apply::Limits;
    vec![
        row("HostLimits::max_connections", Limits(|l| l.max_connections(1)), UNSEEN),
        row("HostLimits::max_idle", Limits(|l| l.max_idle(0)), |o| o.idle_of_host == 0),
        row("HostLimits::min_idle", Limits(|l| l.min_idle(1)), UNSEEN),
        crowded("HostLimits::max_waiting", Limits(|l| l.max_waiting(0))),
        row("HostLimits::max_dials", Limits(|l| l.max_dials(1)), UNSEEN),
        row("HostLimits::max_http2_connections", Limits(|l| l.max_http2_connections(1)), UNSEEN),
        row("HostLimits::max_streams_per_connection", Limits(|l| l.max_streams_per_connection(2)), UNSEEN),
        row("HostLimits::max_requests_per_connection", Limits(|l| l.max_requests_per_connection(1)), |o| {
            // Two calls go to the other host.
            o.connections + 1 >= o.answered() || o.may_lack_room()
        }),
        row("HostLimits::idle_timeout", Limits(|l| l.idle_timeout(SECOND)), UNSEEN),
        row("HostLimits::lifetime", Limits(|l| l.lifetime(SECOND)), UNSEEN),
        row("HostLimits::wait_timeout", Limits(|l| l.wait_timeout(LONG)), UNSEEN),
        row("HostLimits::ejection", Limits(|l| l.ejection(Ejection::off())), UNSEEN),
    ]
}

fn hosts() -> Vec<Value> {
    use Apply::Host;
    vec![
        row("HostConfig::default_headers", Host(|h, _| h.default_headers(headers("x-one-host", "1"))), |o| {
            HTTP.iter().all(|kind| o.all_have(*kind, "x-one-host", "1")) && o.none_has_of(Kind::Secure, "x-one-host")
        }),
        failing("HostConfig::timeout#short", Host(|h, _| h.timeout(MOMENT)), |o| {
            o.has("RequestBuilder::timeout#short") || o.repeats() || o.fails(Kind::Slow)
        }),
        failing("HostConfig::headers_timeout#short", Host(|h, _| h.headers_timeout(MOMENT)), |o| {
            o.has("RequestBuilder::headers_timeout#short")
                || o.has("HostConfig::read_timeout")
                || o.repeats()
                || o.fails(Kind::Slow)
        }),
        row("HostConfig::redirect", Host(|h, _| h.redirect(redirect::Policy::none())), |o| {
            o.has("RequestBuilder::redirect") || o.statuses(Kind::Redirect, 307)
        }),
        row(
            "HostConfig::retry",
            Host(|h, _| h.retry(RetryPolicy::new().backoff(LONGEST_BACKOFF / 3, LONGEST_BACKOFF).no_budget())),
            Observed::repeats_busy,
        ),
        row("HostConfig::hedge", Host(|h, _| h.hedge(HedgePolicy::none())), |o| {
            o.repeats_without_hedges() || o.of(Kind::Slow).all(|(.., seen)| seen.len() == 1)
        }),
        row("HostConfig::decompress", Host(|h, _| h.decompress(false)), |o| {
            o.has("RequestBuilder::decompress") || HTTP.iter().all(|kind| o.none_has_of(*kind, "accept-encoding"))
        }),
        failing("HostConfig::max_body_size", Host(|h, _| h.max_body_size(1)), |o| {
            o.has("RequestBuilder::max_body_size") || o.fails(Kind::Get)
        }),
        row("HostConfig::queue_timeout", Host(|h, _| h.queue_timeout(LONG)), UNSEEN),
        row("HostConfig::body_idle_timeout", Host(|h, _| h.body_idle_timeout(LONG)), UNSEEN),
        row("HostConfig::min_speed", Host(|h, _| h.min_speed(1, LONG)), UNSEEN),
        row("HostConfig::read_timeout", Host(|h, _| h.read_timeout(LONG)), UNSEEN),
        row("HostConfig::connect_timeout", Host(|h, _| h.connect_timeout(LONG)), UNSEEN),
        row("HostConfig::tls_timeout", Host(|h, _| h.tls_timeout(LONG)), UNSEEN),
        row("HostConfig::addresses", Host(|h, _| h.addresses(Addresses::V4Only)), UNSEEN),
        row("HostConfig::local_address", Host(|h, _| h.local_address([127, 0, 0, 9].into())), UNSEEN),
        row("HostConfig::unix_socket", Host(|h, w| h.unix_socket(w.server.unix())), |o| {
            o.all(Kind::Get, |seen| seen.local.is_none())
        }),
        row("HostConfig::proxy", Host(|h, w| h.proxy(w.proxy())), |o| {
            o.has("RequestBuilder::proxy")
                || o.has("RequestBuilder::no_proxy")
                || o.has("HostConfig::no_proxy")
                || o.has("HostConfig::http2_prior_knowledge")
                || o.has("http2_prior_knowledge")
                || o.all(Kind::Get, |seen| seen.target.starts_with("http://"))
        }),
        row("HostConfig::no_proxy", Host(|h, _| h.no_proxy()), |o| {
            o.has("RequestBuilder::proxy") || o.all(Kind::Get, |seen| seen.target.starts_with('/'))
        }),
        row("HostConfig::http1_only", Host(|h, _| h.http1_only()), |o| {
            HTTP.iter().all(|kind| o.of(*kind).all(|(_, version, _)| version == Version::HTTP_11))
        }),
        row("HostConfig::http2_prior_knowledge", Host(|h, _| h.http2_prior_knowledge()), |o| {
            o.is_by_proxy() || HTTP.iter().all(|kind| o.of(*kind).all(|(_, version, _)| version == Version::HTTP_2))
        }),
        row("HostConfig::negotiate_http_version", Host(|h, _| h.negotiate_http_version()), |o| {
            HTTP.iter().all(|kind| o.of(*kind).all(|(_, version, _)| version == Version::HTTP_11))
        }),
    ]
}

fn requests() -> Vec<Value> {
    use Apply::Request;
    vec![
        row("RequestBuilder::redirect", Request(|r, _| r.redirect(redirect::Policy::none())), |o| {
            o.statuses(Kind::Redirect, 307)
        }),
        row(
            "RequestBuilder::retry",
            Request(|r, _| r.retry(RetryPolicy::new().backoff(LONGEST_BACKOFF / 3, LONGEST_BACKOFF).no_budget())),
            Observed::repeats_busy,
        ),
        row("RequestBuilder::decompress", Request(|r, _| r.decompress(false)), |o| o.none_has("accept-encoding", "")),
        row("RequestBuilder::proxy", Request(|r, w| r.proxy(w.proxy())), |o| {
            o.has("http2_prior_knowledge")
                || o.has("HostConfig::http2_prior_knowledge")
                || o.has("RequestBuilder::no_proxy")
                || o.all(Kind::Get, |seen| seen.target.starts_with("http://"))
        }),
        row("RequestBuilder::no_proxy", Request(|r, _| r.no_proxy()), |o| {
            o.all(Kind::Get, |seen| seen.target.starts_with('/'))
        }),
        failing("RequestBuilder::max_body_size", Request(|r, _| r.max_body_size(1)), |o| o.fails(Kind::Get)),
        row("RequestBuilder::hedge", Request(|r, _| r.hedge(HedgePolicy::none())), |o| {
            o.repeats_without_hedges() || o.of(Kind::Slow).all(|(.., seen)| seen.len() == 1)
        }),
        row("RequestBuilder::extension", Request(|r, _| r.extension(7_u8)), UNSEEN),
        row("RequestBuilder::header", Request(|r, _| r.header("x-one", "1")), |o| {
            Kind::ALL.iter().all(|kind| o.all_have(*kind, "x-one", "1"))
        }),
        row("RequestBuilder::headers", Request(|r, _| r.headers(headers("x-some", "1"))), |o| {
            Kind::ALL.iter().all(|kind| o.all_have(*kind, "x-some", "1"))
        }),
        failing("RequestBuilder::timeout#short", Request(|r, _| r.timeout(MOMENT)), |o| {
            o.repeats() || o.fails(Kind::Slow)
        }),
        failing("RequestBuilder::headers_timeout#short", Request(|r, _| r.headers_timeout(MOMENT)), |o| {
            may_differ(o) || o.fails(Kind::Slow)
        }),
        row("RequestBuilder::queue_timeout", Request(|r, _| r.queue_timeout(LONG)), UNSEEN),
        row("RequestBuilder::connect_timeout", Request(|r, _| r.connect_timeout(LONG)), UNSEEN),
        row("RequestBuilder::body_idle_timeout", Request(|r, _| r.body_idle_timeout(LONG)), UNSEEN),
        row("RequestBuilder::min_speed", Request(|r, _| r.min_speed(1, LONG)), UNSEEN),
        row("RequestBuilder::expect_continue", Request(|r, _| r.expect_continue()), |o| {
            o.of(Kind::Post)
                .all(|(_, version, seen)| version == Version::HTTP_2 || !seen[0].values("expect").is_empty())
        }),
        row("RequestBuilder::basic_auth", Request(|r, _| r.basic_auth("me", Some("secret"))), |o| {
            o.has("RequestBuilder::bearer_auth") || o.all_have(Kind::Get, "authorization", "Basic bWU6c2VjcmV0")
        }),
        row("RequestBuilder::bearer_auth", Request(|r, _| r.bearer_auth("mine")), |o| {
            o.has("RequestBuilder::basic_auth") || o.all_have(Kind::Get, "authorization", "Bearer mine")
        }),
        row("RequestBuilder::query", Request(|r, _| r.query(&[("q", "1")])), |o| {
            o.all(Kind::Get, |seen| seen.target.ends_with("?q=1"))
        }),
    ]
}

fn of_tls() -> Vec<Value> {
    use Apply::Tls;
    vec![
        row("TlsConfig::min_version", Tls(|t| t.min_version(tls::Version::TLS_1_3)), UNSEEN),
        row("TlsConfig::max_version", Tls(|t| t.max_version(tls::Version::TLS_1_2)), UNSEEN),
        row("TlsConfig::sni", Tls(|t| t.sni(false)), UNSEEN),
        row("TlsConfig::session_cache", Tls(|t| t.session_cache(0)), UNSEEN),
        row("TlsConfig::alpn", Tls(|t| t.alpn(["http/1.1"])), |o| {
            o.of(Kind::Secure).all(|(_, version, _)| version == Version::HTTP_11)
        }),
        row("TlsConfig::danger_accept_invalid_hostnames", Tls(|t| t.danger_accept_invalid_hostnames(true)), UNSEEN),
        row("TlsConfig::prepare_in_background", Tls(|t| t.prepare_in_background(false)), UNSEEN),
    ]
}

fn resolver() -> Vec<Value> {
    use Apply::Resolver;
    vec![
        row("HickoryResolver::with_family", Resolver(|r| r.with_family(speeddial::dns::Family::V4)), UNSEEN),
        row("HickoryResolver::with_try_timeout", Resolver(|r| r.with_try_timeout(LONG)), UNSEEN),
        // The only try may take its time where the machine is busy.
        row("HickoryResolver::with_tries", Resolver(|r| r.with_tries(1).with_try_timeout(LONG)), UNSEEN),
        row("HickoryResolver::with_total_timeout", Resolver(|r| r.with_total_timeout(LONG)), UNSEEN),
        row("HickoryResolver::with_max_in_flight", Resolver(|r| r.with_max_in_flight(1)), UNSEEN),
    ]
}

fn cache() -> Vec<Value> {
    use Apply::Cache;
    vec![
        row("CachedResolverBuilder::max_names", Cache(|c| c.max_names(0)), UNSEEN),
        row("CachedResolverBuilder::ttl_floor", Cache(|c| c.ttl_floor(LONG * 10)), |o| {
            let others = ["resolve", "CachedResolverBuilder::ttl_ceiling", "CachedResolverBuilder::max_names"];
            !o.moved
                || others.iter().any(|setter| o.has(setter))
                || o.has("RequestBuilder::proxy")
                || o.has("HostConfig::unix_socket")
        }),
        row("CachedResolverBuilder::ttl_ceiling", Cache(|c| c.ttl_ceiling(Duration::ZERO)), UNSEEN),
        row("CachedResolverBuilder::negative_ceiling", Cache(|c| c.negative_ceiling(Duration::ZERO)), UNSEEN),
        row("CachedResolverBuilder::stale", Cache(|c| c.stale(Duration::ZERO)), UNSEEN),
        row("CachedResolverBuilder::failure_pause", Cache(|c| c.failure_pause(Duration::ZERO)), UNSEEN),
        row("CachedResolverBuilder::query_timeout", Cache(|c| c.query_timeout(LONG)), UNSEEN),
    ]
}
