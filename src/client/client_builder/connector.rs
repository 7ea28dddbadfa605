//! The connector for clients of other crates, and the settings that it has no use for.

use http::header::USER_AGENT;

use super::{ClientBuilder, ClientParts, RELOAD_INTERVAL};
use crate::client::body::{Coding, Decompression};
use crate::client::inner::Defaults;
use crate::client::policy::deadlines::{SILENCE_TIMEOUT, Timeouts};
use crate::client::request::call_options::CallOptions;
use crate::client::settings::connect::ConnectSettings;
use crate::connect::Connector;
use crate::error::{Error, LeftOut, Result};
use crate::pool::PoolConfig;
use crate::trace::Hooks;

impl ClientBuilder {
    /// Builds only the connector, for clients of other crates.
    ///
    /// # Errors
    /// Those of [`build`](Self::build), and one that names the settings for which a connector has no use.
    pub(crate) fn into_connector(self) -> Result<(Connector, Hooks)> {
        let unused = self.unused_by_connectors();
        let ClientParts { connector, hooks, .. } = self.into_parts()?;
        if !unused.is_empty() {
            return Err(Error::refused_request(format!("build a connector: it has no use for {}", listed(&unused))));
        }
        Ok((Connector { for_other_pools: true, ..connector }, hooks))
    }

    /// Returns the names of the settings that differ from the defaults and have an effect on calls only.
    fn unused_by_connectors(&self) -> Vec<&'static str> {
        // Every field is named, here and below, so that the compiler asks about each new one.
        let Self {
            invalid: _,
            resolver: _,
            hickory: _,
            observers: _,
            pool,
            pool_setting,
            hosts,
            reload_interval,
            chooses_codings,
            #[cfg(feature = "cookies")]
            cookie_setting,
            connect,
            defaults,
            layers,
            attempt_layers,
        } = self;
        let mut unused = unused_defaults(defaults);
        unused.extend(unused_of_pool(pool, pool_setting.is_some()));
        unused.extend(unused_of_connections(connect));
        unused.extend(chosen([("for_host", !hosts.is_empty())]));
        unused.extend(chosen([("tls_reload_interval", *reload_interval != RELOAD_INTERVAL)]));
        unused.extend(unused_of_codings(defaults.options.decompression.unwrap_or_default(), *chooses_codings));
        #[cfg(feature = "cookies")]
        unused.extend(*cookie_setting);
        unused.extend(chosen([("layer", !layers.is_empty()), ("attempt_layer", !attempt_layers.is_empty())]));
        unused
    }
}

/// Returns the names of the settings of calls.
fn unused_defaults(defaults: &Defaults) -> Vec<&'static str> {
    let Defaults {
        base_url,
        options: CallOptions { timeouts, redirects, retries, hedges, decompression: _, max_body_size },
        headers,
        #[cfg(feature = "cookies")]
            cookies: _,
        before_attempt,
        token_sources,
        // Connections leave the bodies of proxies out.
        left_out: LeftOut { queries, bodies: _ },
        name,
        https_only,
        sends_referer,
        adds_tls_info,
    } = defaults;
    // The connect timeout is one of the settings of connections.
    let Timeouts { total, queue, connect: _, headers: headers_timeout, body } = timeouts;
    chosen([
        ("base_url", base_url.is_some()),
        ("timeout", total.is_some()),
        ("queue_timeout", queue.is_some()),
        ("headers_timeout", *headers_timeout != Some(SILENCE_TIMEOUT)),
        ("body_idle_timeout", body.is_some_and(|least| least.bytes == 1)),
        ("min_speed", body.is_some_and(|least| least.bytes > 1)),
        // The user agent is told to proxies.
        ("default_headers", headers.keys().any(|name| name != USER_AGENT)),
        ("redirect", redirects.as_ref().is_some_and(|policy| !policy.is_default())),
        ("retry", retries.is_some()),
        ("max_body_size", max_body_size.is_some()),
        ("before_attempt", !before_attempt.is_empty()),
        ("token_source", !token_sources.is_empty()),
        ("hedge", hedges.is_some()),
        ("hide_queries", *queries),
        ("name", name.is_some()),
        ("https_only", *https_only),
        ("referer", *sends_referer),
        ("tls_info", *adds_tls_info),
    ])
}

/// Returns the names of the settings of the pool. `has_own_setters` is true if a method of the builder changed it.
fn unused_of_pool(pool: &PoolConfig, has_own_setters: bool) -> Vec<&'static str> {
    let usual = PoolConfig::default();
    if !has_own_setters {
        return chosen([("pool", *pool != usual)]);
    }
    let max_idle = usual.per_host.max_idle;
    let idle_timeout = usual.per_host.idle_timeout;
    let rest = pool.clone().max_idle_per_host(max_idle).idle_timeout(idle_timeout);
    chosen([
        ("pool", rest != usual),
        ("pool_idle_timeout", pool.per_host.idle_timeout != idle_timeout),
        ("pool_max_idle_per_host", pool.per_host.max_idle != max_idle),
    ])
}

/// Returns the names of the settings of connections that have an effect only after the connection is handed over.
fn unused_of_connections(connect: &ConnectSettings) -> Vec<&'static str> {
    let ConnectSettings {
        transport: _,
        tcp: _,
        timeout: _,
        versions: _,
        http,
        addresses: _,
        address_policy: _,
        pins: _,
        proxies: _,
        unix_socket: _,
        verbose,
        hides_bodies: _,
        layered: _,
        tls: _,
        tls_setting: _,
        tls_timeout: _,
    } = connect;
    let rest = chosen([("connection_verbose", *verbose)]);
    [chosen(http.set()), rest].concat()
}

/// Returns the names of the settings of decompression. `by_coding` is true if a single coding was chosen or excluded.
fn unused_of_codings(decompression: Decompression, by_coding: bool) -> Vec<&'static str> {
    let usual = Decompression::default();
    if !by_coding {
        return chosen([("decompress", decompression != usual)]);
    }
    let codings =
        [("gzip", Coding::Gzip), ("brotli", Coding::Brotli), ("zstd", Coding::Zstd), ("deflate", Coding::Deflate)];
    let with_all = codings.iter().fold(decompression, |all, (_, coding)| all.with(*coding, true));
    let mut unused = chosen([("decompress", with_all != usual)]);
    unused.extend(chosen(codings.map(|(name, coding)| (name, decompression.with(coding, true) != decompression))));
    unused
}

/// Returns the names beside which there is a `true`.
fn chosen<const N: usize>(settings: [(&'static str, bool); N]) -> Vec<&'static str> {
    settings.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
}

/// Returns the names as a part of a sentence.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        all => all.join(", "),
    }
}
