//! The settings of a client that can be replaced while it runs, and the parts that are made of them.

use std::sync::Arc;

use http::HeaderMap;
use http::header::USER_AGENT;

use super::call_defaults::CallDefaults;
use super::connect_settings::ConnectSettings;
use super::connectors::Connectors;
use super::deadlines::Timeouts;
use super::host_config::HostConfig;
use crate::connect::Connector;
use crate::error::{Error, Result};
use crate::host_pattern::ByHost;
use crate::pool::{HostLimits, PoolConfig};
#[cfg(feature = "__tls")]
use crate::tls::TlsConfigError;

/// The settings of a client that can be replaced while it runs.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) connect: ConnectSettings,
    pub(super) hosts: ByHost<HostConfig>,
    /// The limits of the pool, without those of `hosts`.
    pub(super) pool: PoolConfig,
    /// The default headers of calls.
    pub(super) headers: HeaderMap,
    pub(super) timeouts: Timeouts,
}

impl Settings {
    /// Refuses settings that no client can have. `action` is what fails then, in the words of the error.
    pub(super) fn check(&self, action: &str) -> Result<()> {
        self.pool.check().map_err(|error| Error::config(action, error))?;
        self.connect.check(action)?;
        for (pattern, config) in self.hosts.iter() {
            let action = action_for(action, pattern);
            let limits = self.pool.clone().with_limits(pattern.clone(), config.limits);
            limits.check().map_err(|error| Error::config(&action, error))?;
            config.connect_settings(&self.connect, &action)?;
        }
        Ok(())
    }

    /// Returns the limits of the pool, with those of hosts.
    pub(super) fn pool_config(&self) -> PoolConfig {
        let hosts = self.hosts.iter().filter(|(_, config)| config.limits != HostLimits::default());
        hosts.fold(self.pool.clone(), |pool, (pattern, config)| pool.with_limits(pattern.clone(), config.limits))
    }

    /// Makes the connectors. `like` is one of the same client, with which they share what they have in common.
    ///
    /// # Errors
    /// Settings for hosts that [`check`](Self::check) refuses.
    pub(super) fn connectors(&self, general: Arc<Connector>, action: &str) -> Result<Connectors> {
        let mut of_hosts = ByHost::default();
        for (pattern, config) in self.hosts.iter().filter(|(_, config)| config.concerns_connections()) {
            let settings = config.connect_settings(&self.connect, &action_for(action, pattern))?;
            let user_agent = config.headers.get(USER_AGENT).or(self.headers.get(USER_AGENT)).cloned();
            of_hosts.add(pattern.clone(), Arc::new(settings.connector_like(&general, user_agent)));
        }
        Ok(Connectors::new(general, of_hosts))
    }

    /// Makes the connector of most hosts anew. It shares with `like`, the present one, what they have in common.
    pub(super) fn general_connector(&self, like: &Connector) -> Connector {
        self.connect.clone().connector_like(like, self.headers.get(USER_AGENT).cloned())
    }

    /// Sets the defaults of calls.
    pub(super) fn set_call_defaults(&self, defaults: &CallDefaults) {
        defaults.set(&self.headers, &self.timeouts, &self.hosts);
    }

    /// Returns true if calls to some hosts have defaults of their own.
    pub(super) fn has_calls_of_hosts(&self) -> bool {
        self.hosts.iter().any(|(_, config)| config.concerns_calls())
    }

    /// Returns true if some settings of TLS are those of files that are read again.
    #[cfg(feature = "__tls")]
    pub(super) fn has_watched_files(&self) -> bool {
        self.connect.tls.is_watched() || self.hosts.iter().any(|(_, config)| config.has_watched_files())
    }

    /// Reads files of TLS settings again. Returns what is wrong with those that cannot be used.
    #[cfg(feature = "__tls")]
    pub(super) fn refresh_files(&self) -> Vec<TlsConfigError> {
        let mut errors = self.connect.tls.refresh();
        errors.extend(self.hosts.iter().flat_map(|(_, config)| config.refresh_files()));
        errors
    }
}

/// Returns what fails if settings of hosts cannot be used, in the words of an error.
fn action_for(action: &str, hosts: impl std::fmt::Display) -> String {
    format!("{action}: settings of `{hosts}`")
}
