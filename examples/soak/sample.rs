//! The memory, descriptors and tasks of the process at a moment in which no call is under way.

use std::time::Instant;

use speeddial::Client;
use speeddial::pool::PoolStats;

/// One look at the process.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    /// Resident memory in KiB. `None` where the system is not asked for it: on other systems than Linux.
    pub(crate) memory: Option<u64>,
    /// Open file descriptors. `None` on other systems than Linux.
    pub(crate) descriptors: Option<u64>,
    pub(crate) tasks: u64,
    pub(crate) pool: PoolStats,
    /// The names in the DNS cache.
    pub(crate) names: u64,
    /// The queries that the cache made.
    pub(crate) queries: u64,
}

impl Sample {
    /// Returns the connections that are open.
    pub(crate) fn connections(&self) -> u64 {
        (self.pool.idle + self.pool.in_use) as u64
    }
}

/// Looks at the process and the client. Must be called in a runtime.
pub(crate) fn take(client: &Client) -> Sample {
    let pool = client.pool_stats();
    let dns = client.dns_stats();
    Sample {
        at: Instant::now(),
        memory: resident(),
        descriptors: std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64),
        tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks() as u64,
        pool,
        names: dns.names as u64,
        queries: dns.misses + dns.refreshes,
    }
}

fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
