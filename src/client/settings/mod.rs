//! The settings of a client that can be replaced while it runs, and the parts that are made of them.

pub(super) mod attempt_service;
pub(super) mod call_defaults;
pub(super) mod client_service;
pub(super) mod connect;
mod constructors;
pub(super) mod host_config;

use std::sync::Arc;

use http::HeaderMap;
use http::header::USER_AGENT;

use super::pool_side::connectors::Connectors;
use super::request::call_options::CallOptions;
use crate::connect::Connector;
use crate::error::{Error, Result};
use crate::host_pattern::{ByHost, HostPattern};
use crate::pool::PoolConfig;
use crate::tls::TlsConfigError;
use call_defaults::CallDefaults;
use connect::ConnectSettings;
use host_config::HostConfig;

/// The settings of a client that can be replaced while it runs.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) connect: ConnectSettings,
    pub(super) hosts: ByHost<HostConfig>,
    pub(super) pool: PoolConfig,
    /// The default headers of calls.
    pub(super) headers: HeaderMap,
    pub(super) calls: CallOptions,
}

impl Settings {
    /// Refuses settings that no client can have. `action` is the action that the error names.
    pub(super) fn check(&self, action: &str) -> Result<()> {
        self.pool.check().map_err(|error| Error::config(action, error))?;
        self.connect.check(action)?;
        for (pattern, config) in self.hosts.iter() {
            let action = action_for(action, pattern);
            config.connect_settings(&self.connect, &action)?;
        }
        Ok(())
    }

    /// Makes the connectors of a client that is built. They share with `general`, that of most hosts, what they have in common.
    ///
    /// # Errors
    /// Settings for hosts that [`check`](Self::check) refuses.
    pub(super) fn connectors(&self, general: Connector, action: &str) -> Result<Connectors> {
        let present = Connectors::new(Arc::new(general), ByHost::default());
        self.connectors_after(&present, |_| false, action)
    }

    /// Makes the connectors that take the place of the `present` ones. Each shares with its predecessor what they have in common, and is
    /// the same one unless `is_changed` returns true for its hosts, which are `None` for most hosts.
    ///
    /// # Errors
    /// As [`connectors`](Self::connectors).
    pub(super) fn connectors_after(
        &self,
        present: &Connectors,
        is_changed: impl Fn(Option<&HostPattern>) -> bool,
        action: &str,
    ) -> Result<Connectors> {
        let user_agent = self.headers.get(USER_AGENT);
        let mut general = present.general().clone();
        if is_changed(None) || general.user_agent.as_ref() != user_agent {
            general = Arc::new(self.connect.clone().connector_like(&general, user_agent.cloned()));
        }
        let mut of_hosts = ByHost::default();
        for (pattern, config) in self.hosts.iter().filter(|(_, config)| config.concerns_connections()) {
            let user_agent = config.headers.get(USER_AGENT).or(user_agent);
            let predecessor = present.of(pattern);
            let is_same = |present: &Connector| !is_changed(Some(pattern)) && present.user_agent.as_ref() == user_agent;
            let connector = match predecessor.filter(|present| is_same(present)) {
                Some(present) => present.clone(),
                None => {
                    let settings = config.connect_settings(&self.connect, &action_for(action, pattern))?;
                    Arc::new(settings.connector_like(predecessor.unwrap_or(&general), user_agent.cloned()))
                }
            };
            of_hosts.add(pattern.clone(), connector);
        }
        Ok(Connectors::new(general, of_hosts))
    }

    /// Sets the defaults of calls.
    pub(super) fn set_call_defaults(&self, defaults: &CallDefaults) {
        defaults.set(&self.headers, &self.calls, &self.hosts);
    }

    /// Returns true if calls to some hosts have defaults of their own.
    pub(super) fn has_calls_of_hosts(&self) -> bool {
        self.hosts.iter().any(|(_, config)| config.concerns_calls())
    }

    /// Returns true if some settings of TLS are those of files that are read again.
    pub(super) fn has_watched_files(&self) -> bool {
        self.connect.tls.is_watched() || self.hosts.iter().any(|(_, config)| config.has_watched_files())
    }

    /// Reads files of TLS settings again. Returns what is wrong with those that cannot be used.
    pub(super) fn refresh_files(&self) -> Vec<TlsConfigError> {
        let mut errors = self.connect.tls.refresh();
        errors.extend(self.hosts.iter().flat_map(|(_, config)| config.refresh_files()));
        errors
    }

    /// Returns true if files of TLS settings may have been in the middle of being written, and are to be read again in a moment.
    pub(super) fn has_unsure_files(&self) -> bool {
        self.connect.tls.is_unsure() || self.hosts.iter().any(|(_, config)| config.has_unsure_files())
    }
}

/// Returns the action that an error about the settings of some hosts names.
fn action_for(action: &str, hosts: impl std::fmt::Display) -> String {
    format!("{action}: settings of `{hosts}`")
}
