//! The pool's limits, and how they are chosen when nobody chooses them.

use std::time::Duration;

/// The limits of a client's connection pool.
///
/// ```
/// use std::time::Duration;
/// use speeddial::PoolConfig;
///
/// let pool = PoolConfig::new().max_connections_per_host(10).idle_timeout(Duration::from_secs(20));
/// let client = speeddial::Client::builder().pool(pool).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PoolConfig {
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_host: usize,
    pub(crate) max_idle: usize,
    pub(crate) max_idle_per_host: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) max_waiting: usize,
    pub(crate) wait_timeout: Duration,
}

/// Why a [`PoolConfig`] cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolConfigError {
    /// A limit of 0 that would let no request through.
    #[error("{0} must be at least 1, or no request could ever be sent")]
    Zero(&'static str),
}

/// Of the descriptors a process may open, the share the pool takes unless told otherwise.
const NOFILE_PERCENT: u64 = 70;
const MOST_CONNECTIONS: u64 = 4_096;

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            max_connections: connections_for(nofile_limit()),
            max_connections_per_host: usize::MAX,
            max_idle: 1_024,
            max_idle_per_host: usize::MAX,
            idle_timeout: Duration::from_secs(50),
            max_waiting: 10_000,
            wait_timeout: Duration::from_secs(30),
        }
    }
}

impl PoolConfig {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Connections in total, those being opened and closed among them; at least 1.
    ///
    /// By default 70 % of the descriptors the process may open (its soft `RLIMIT_NOFILE`), and at most 4,096.
    pub fn max_connections(self, max_connections: usize) -> Self {
        Self { max_connections, ..self }
    }

    /// Connections to one host, those being opened and closed among them; at least 1. No limit by default.
    pub fn max_connections_per_host(self, max_connections_per_host: usize) -> Self {
        Self { max_connections_per_host, ..self }
    }

    /// Idle connections in total; the least recently used are closed. 1,024 by default; 0 keeps none.
    pub fn max_idle(self, max_idle: usize) -> Self {
        Self { max_idle, ..self }
    }

    /// Idle connections to one host; the longest idle are closed. No limit by default; 0 keeps none.
    pub fn max_idle_per_host(self, max_idle_per_host: usize) -> Self {
        Self { max_idle_per_host, ..self }
    }

    /// How long a connection may be idle before it is closed. 50 s by default.
    pub fn idle_timeout(self, idle_timeout: Duration) -> Self {
        Self { idle_timeout, ..self }
    }

    /// Requests that may wait for a place, beyond those a connection is being opened for. 10,000 by default; with 0
    /// a request fails at once where a limit binds, be it only until another host's idle connection is closed.
    pub fn max_waiting(self, max_waiting: usize) -> Self {
        Self { max_waiting, ..self }
    }

    /// How long a request may wait for a place; opening a connection has its own limit. 30 s by default.
    pub fn wait_timeout(self, wait_timeout: Duration) -> Self {
        Self { wait_timeout, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), PoolConfigError> {
        let limits =
            [("max_connections", self.max_connections), ("max_connections_per_host", self.max_connections_per_host)];
        match limits.into_iter().find(|(_, limit)| *limit == 0) {
            Some((name, _)) => Err(PoolConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}

fn connections_for(nofile: Option<u64>) -> usize {
    let share =
        nofile.map_or(MOST_CONNECTIONS, |limit| limit / 100 * NOFILE_PERCENT + limit % 100 * NOFILE_PERCENT / 100);
    share.clamp(1, MOST_CONNECTIONS) as usize
}

/// How many descriptors the process may open; `None` without a limit.
fn nofile_limit() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_follows_the_descriptor_limit() {
        assert_eq!(connections_for(Some(1_024)), 716);
        assert_eq!(connections_for(Some(256)), 179);
        assert_eq!(connections_for(Some(1)), 1);
        assert_eq!(connections_for(Some(u64::MAX)), 4_096);
        assert_eq!(connections_for(None), 4_096);
    }

    #[test]
    fn zero_is_refused_where_nothing_could_be_sent() {
        assert_eq!(PoolConfig::new().check(), Ok(()));
        assert_eq!(PoolConfig::new().max_connections(0).check(), Err(PoolConfigError::Zero("max_connections")));
        let per_host = PoolConfig::new().max_connections_per_host(0).check();
        assert_eq!(per_host, Err(PoolConfigError::Zero("max_connections_per_host")));
        assert_eq!(PoolConfig::new().max_idle(0).max_idle_per_host(0).max_waiting(0).check(), Ok(()));
    }
}
