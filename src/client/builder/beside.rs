//! A client beside another one: with its connector, and with a pool and settings of calls of its own.

use std::sync::Arc;

use http::header::USER_AGENT;

use super::ClientBuilder;
use crate::client::deadlines::Deadlines;
use crate::client::dialer::Dialer;
use crate::client::dns_watch::DnsWatch;
use crate::client::handle::Client;
use crate::client::inner::{Inner, RetryBudget};
use crate::client::redirect_policy;
use crate::clock;
use crate::connect::Connector;
use crate::pool::{Pool, PoolConfig};
use crate::trace::Hooks;

impl ClientBuilder {
    /// Builds a client that connects by `connector`. It has none of the headers, tokens, layers and observers of the connector's
    /// own client, apart from its `User-Agent`, and it follows no redirects.
    pub(in crate::client) fn build_beside(connector: Arc<Connector>, pool: PoolConfig) -> Client {
        let mut defaults = Self::default().defaults;
        defaults.redirects = redirect_policy::Policy::none();
        if let Some(user_agent) = connector.user_agent.clone() {
            defaults.headers.insert(USER_AGENT, user_agent);
        }
        let inner = Inner {
            pool: Pool::new(pool, Dialer(connector.clone()), Hooks::default()),
            resolver: connector.resolver.clone(),
            hooks: Hooks::default(),
            retry_budget: RetryBudget::new(None),
            defaults,
            deadlines: Deadlines::default(),
            dns_watch: DnsWatch::new(false),
            built: clock::now(),
            connector,
            #[cfg(feature = "tower")]
            attempt_layers: None,
        };
        Client {
            inner: Arc::new(inner),
            #[cfg(feature = "tower")]
            layered: None,
        }
    }
}
