//! A client beside another one: with its connector, and with a pool and settings of calls of its own.

use std::sync::Arc;

use http::header::USER_AGENT;

use parking_lot::Mutex;

use super::ClientBuilder;
use crate::client::body::Dialer;
use crate::client::handle::Client;
use crate::client::inner::Inner;
use crate::client::policy::deadlines::Deadlines;
use crate::client::policy::redirect;
use crate::client::pool_side::dialer::Connectors;
use crate::client::pool_side::dns_watch::DnsWatch;
use crate::client::pool_side::file_watch::FileWatch;
use crate::client::settings::connect::ConnectSettings;
use crate::client::settings::{CallDefaults, Settings};
use crate::clock;
use crate::connect::Connector;
use crate::host_pattern::ByHost;
use crate::pool::{Pool, PoolConfig};
use crate::trace::Hooks;

impl ClientBuilder {
    /// Builds a client that connects by `connector`. It has none of the headers, tokens, layers and observers of the connector's
    /// own client, apart from its `User-Agent`, and it follows no redirects.
    pub(crate) fn build_beside(connector: Arc<Connector>, pool: PoolConfig) -> Client {
        let mut defaults = Self::default().defaults;
        defaults.options.redirects = Some(redirect::Policy::none());
        if let Some(user_agent) = connector.user_agent.clone() {
            defaults.headers.insert(USER_AGENT, user_agent);
        }
        let settings = Settings {
            connect: ConnectSettings::default(),
            hosts: ByHost::default(),
            pool: pool.clone(),
            headers: defaults.headers.clone(),
            calls: defaults.options.clone(),
        };
        let resolver = connector.resolver.clone();
        let connectors = Connectors::new(connector, ByHost::default());
        let file_watch = FileWatch::new(super::RELOAD_INTERVAL, false, std::sync::Weak::<Inner>::new());
        let inner = Inner {
            pool: Pool::new(pool, Dialer::new(connectors, file_watch), Hooks::default()),
            resolver,
            hooks: Hooks::default(),
            retry_budgets: std::sync::Mutex::default(),
            defaults,
            call_defaults: CallDefaults::default(),
            hedging: std::sync::Mutex::default(),
            settings: Mutex::new(settings),
            deadlines: Deadlines::default(),
            dns_watch: DnsWatch::new(false),
            built: clock::now(),
            layers: None,
            attempt_layers: None,
        };
        Client { inner: Arc::new(inner) }
    }
}
