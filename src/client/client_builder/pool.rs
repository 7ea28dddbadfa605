//! The settings of the connection pool.

use std::time::Duration;

use super::ClientBuilder;
use crate::error::Error;
use crate::pool::PoolConfig;

impl ClientBuilder {
    /// Sets the limits of the connection pool. [`PoolConfig`] has the defaults.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it after [`pool_idle_timeout`](Self::pool_idle_timeout) or
    /// [`pool_max_idle_per_host`](Self::pool_max_idle_per_host), which it would replace.
    pub fn pool(mut self, pool: PoolConfig) -> Self {
        if let Some(name) = self.pool_setting {
            self.refuse(Error::refused_request(format!("build a client: pool() would replace {name}; call it first")));
        }
        Self { pool, ..self }
    }

    /// Sets the longest time a connection may be idle: [`PoolConfig::idle_timeout`]. 50 s by default; `None` for no limit
    /// but those that servers announce or show.
    pub fn pool_idle_timeout<D: Into<Option<Duration>>>(self, timeout: D) -> Self {
        let pool = self.pool.clone().idle_timeout(timeout.into().unwrap_or(Duration::MAX));
        Self { pool, pool_setting: Some("pool_idle_timeout"), ..self }
    }

    /// Sets the most idle connections of a host: [`PoolConfig::max_idle_per_host`]. No limit by default, but
    /// [`PoolConfig::max_idle`] bounds them in total.
    pub fn pool_max_idle_per_host(self, max: usize) -> Self {
        let pool = self.pool.clone().max_idle_per_host(max);
        Self { pool, pool_setting: Some("pool_max_idle_per_host"), ..self }
    }
}
