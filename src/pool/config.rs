//! The pool's limits, and how they are chosen when nobody chooses them.

use std::time::Duration;

/// The limits of a client's connection pool.
///
/// ```
/// use std::time::Duration;
/// use speeddial::{HostLimits, PoolConfig};
///
/// let pool = PoolConfig::new()
///     .max_connections_per_host(10)
///     .idle_timeout(Duration::from_secs(20))
///     .for_host(".internal", HostLimits::new().max_connections(100))
///     .for_host("reports.internal:8443", HostLimits::new().max_connections(2));
/// let client = speeddial::Client::builder().pool(pool).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PoolConfig {
    pub(crate) max_connections: usize,
    pub(crate) max_idle: usize,
    pub(crate) max_waiting: usize,
    pub(crate) follow_dns: FollowDns,
    pub(crate) host: Limits,
    overrides: Vec<(Pattern, HostLimits)>,
    invalid: Option<PoolConfigError>,
}

/// What holds for each connection and host by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_connections: usize,
    pub(crate) max_idle: usize,
    pub(crate) max_waiting: usize,
    pub(crate) max_dials: usize,
    pub(crate) max_http2_connections: usize,
    pub(crate) max_streams: usize,
    pub(crate) max_requests: u64,
    pub(crate) idle_timeout: Duration,
    pub(crate) lifetime: Duration,
    pub(crate) wait_timeout: Duration,
}

/// Limits for some hosts alone; what is not set is as for all: see [`PoolConfig::for_host`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostLimits {
    max_connections: Option<usize>,
    max_idle: Option<usize>,
    max_waiting: Option<usize>,
    max_dials: Option<usize>,
    max_http2_connections: Option<usize>,
    max_streams: Option<usize>,
    max_requests: Option<u64>,
    idle_timeout: Option<Duration>,
    lifetime: Option<Duration>,
    wait_timeout: Option<Duration>,
}

/// What becomes of connections to an address that is no longer among its name's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FollowDns {
    /// They are closed, idle ones at once and busy ones after their request, two TTLs after the name's answers had the address
    /// last, if the next answer is without it as well. Names whose answers rotate keep their connections; where answers
    /// change a little each time, an address is left after ten TTLs.
    #[default]
    AfterTwoTtls,
    /// They are closed as soon as an answer comes without the address, also where the next one may have it again.
    AtOnce,
    /// They are kept.
    Off,
}

/// Why a [`PoolConfig`] cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolConfigError {
    /// A limit of 0 that would let no request through.
    #[error("{0} must not be 0, or no request could ever be sent")]
    Zero(&'static str),
    /// What should say which hosts are meant says nothing of the kind.
    #[error("`{0}` is not a host, a host and port, or a suffix such as `.internal`")]
    Hosts(String),
}

/// Of the descriptors a process may open, the share the pool takes unless told otherwise.
const NOFILE_PERCENT: u64 = 70;
const MOST_CONNECTIONS: u64 = 4_096;

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            max_connections: connections_for(nofile_limit()),
            max_idle: 1_024,
            max_waiting: 10_000,
            follow_dns: FollowDns::default(),
            host: Limits::default(),
            overrides: Vec::new(),
            invalid: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: usize::MAX,
            max_idle: usize::MAX,
            max_waiting: usize::MAX,
            max_dials: 1_024,
            max_http2_connections: 4,
            max_streams: 100,
            max_requests: u64::MAX,
            idle_timeout: Duration::from_secs(50),
            lifetime: Duration::from_secs(15 * 60),
            wait_timeout: Duration::from_secs(30),
        }
    }
}

impl Limits {
    fn with(self, host: &HostLimits) -> Self {
        Self {
            max_connections: host.max_connections.unwrap_or(self.max_connections),
            max_idle: host.max_idle.unwrap_or(self.max_idle),
            max_waiting: host.max_waiting.unwrap_or(self.max_waiting),
            max_dials: host.max_dials.unwrap_or(self.max_dials),
            max_http2_connections: host.max_http2_connections.unwrap_or(self.max_http2_connections),
            max_streams: host.max_streams.unwrap_or(self.max_streams),
            max_requests: host.max_requests.unwrap_or(self.max_requests),
            idle_timeout: host.idle_timeout.unwrap_or(self.idle_timeout),
            lifetime: host.lifetime.unwrap_or(self.lifetime),
            wait_timeout: host.wait_timeout.unwrap_or(self.wait_timeout),
        }
    }

    fn check(&self) -> Result<(), PoolConfigError> {
        let limits = [
            ("max_connections_per_host", self.max_connections as u64),
            ("max_dials_per_host", self.max_dials as u64),
            ("max_http2_connections_per_host", self.max_http2_connections as u64),
            ("max_streams_per_connection", self.max_streams as u64),
            ("max_requests_per_connection", self.max_requests),
            ("lifetime", self.lifetime.as_nanos().min(1) as u64),
        ];
        limits.into_iter().try_for_each(|(name, limit)| at_least_one(name, limit))
    }
}

fn at_least_one(name: &'static str, limit: u64) -> Result<(), PoolConfigError> {
    if limit == 0 { Err(PoolConfigError::Zero(name)) } else { Ok(()) }
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

    /// Idle connections in total; the least recently used are closed. 1,024 by default; 0 keeps none.
    pub fn max_idle(self, max_idle: usize) -> Self {
        Self { max_idle, ..self }
    }

    /// Requests that may wait for a place, beyond those a connection is being opened for. 10,000 by default; with 0
    /// a request fails at once where a limit binds, be it only until another host's idle connection is closed.
    pub fn max_waiting(self, max_waiting: usize) -> Self {
        Self { max_waiting, ..self }
    }

    /// What becomes of connections to an address that DNS has left. They are closed two TTLs after it was last answered, by
    /// default.
    pub fn follow_dns(self, follow_dns: FollowDns) -> Self {
        Self { follow_dns, ..self }
    }

    /// Connections to one host, those being opened and closed among them; at least 1. No limit by default.
    pub fn max_connections_per_host(mut self, limit: usize) -> Self {
        self.host.max_connections = limit;
        self
    }

    /// Idle connections to one host; the longest idle are closed. No limit by default; 0 keeps none.
    pub fn max_idle_per_host(mut self, limit: usize) -> Self {
        self.host.max_idle = limit;
        self
    }

    /// The same as [`max_waiting`](Self::max_waiting) for the requests to one host. No limit of its own by default.
    pub fn max_waiting_per_host(mut self, limit: usize) -> Self {
        self.host.max_waiting = limit;
        self
    }

    /// Connections to one host that are being opened at the same time; at least 1. Fewer are to begin with: 16, and one more
    /// for each that opened while requests still wait, as TCP's slow start has it (RFC 5681), but not more than twice as many
    /// within 25 ms, and none where more requests get a freed connection than a new one. Fewer they become, down to two at a time,
    /// where requests hold connections for less than 10 ms and more connections do not answer more of them: for a second, or
    /// until connections are held for longer. One that takes longer than a second does not count. 1,024 by default.
    pub fn max_dials_per_host(mut self, limit: usize) -> Self {
        self.host.max_dials = limit;
        self
    }

    /// HTTP/2 connections to one host; at least 1. Another one is opened when all streams of the others are taken. 4 by
    /// default.
    pub fn max_http2_connections_per_host(mut self, limit: usize) -> Self {
        self.host.max_http2_connections = limit;
        self
    }

    /// Requests at the same time on one HTTP/2 connection, if the peer allows as many; at least 1. 100 by default.
    pub fn max_streams_per_connection(mut self, limit: usize) -> Self {
        self.host.max_streams = limit;
        self
    }

    /// Requests one connection carries before it is closed; at least 1. An HTTP/2 connection with requests on it carries more
    /// while there is no room for another connection. No limit by default.
    pub fn max_requests_per_connection(mut self, limit: u64) -> Self {
        self.host.max_requests = limit;
        self
    }

    /// How long a connection may be idle before it is closed. 50 s by default; less where the server says so by
    /// `Keep-Alive: timeout`, or has been seen to close idle connections sooner.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.host.idle_timeout = timeout;
        self
    }

    /// How long a connection may be used, give or take a tenth so that not all end at once; it is closed after the request
    /// it carries then. An HTTP/2 connection with requests on it goes on while there is no room for another connection. Not
    /// zero. 15 min by default.
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.host.lifetime = lifetime;
        self
    }

    /// How long a request may wait for a place; opening a connection has its own limit. 30 s by default.
    pub fn wait_timeout(mut self, timeout: Duration) -> Self {
        self.host.wait_timeout = timeout;
        self
    }

    /// Other limits for some hosts: for one as `host:port`, as `host` whatever the port, or for all below a suffix such as
    /// `.internal`. The most exact one that fits is used, and for what it does not set, the limits for all.
    pub fn for_host(mut self, hosts: &str, limits: HostLimits) -> Self {
        match Pattern::parse(hosts) {
            Some(pattern) => self.overrides.push((pattern, limits)),
            None => self.invalid = self.invalid.or(Some(PoolConfigError::Hosts(hosts.to_owned()))),
        }
        self
    }

    pub(crate) fn check(&self) -> Result<(), PoolConfigError> {
        if let Some(error) = &self.invalid {
            return Err(error.clone());
        }
        at_least_one("max_connections", self.max_connections as u64)?;
        self.all_limits().iter().try_for_each(Limits::check)
    }

    /// The limits for all hosts, and those of the overrides, behind each other.
    pub(crate) fn all_limits(&self) -> Vec<Limits> {
        let overrides = self.overrides.iter().map(|(_, limits)| self.host.with(limits));
        std::iter::once(self.host).chain(overrides).collect()
    }

    /// Which of [`all_limits`](Self::all_limits) are those of a host.
    pub(crate) fn limits_for(&self, host: &str, port: u16) -> usize {
        let fitting = self.overrides.iter().enumerate().filter(|(_, (pattern, _))| pattern.fits(host, port));
        // Of two that say the same, the later one counts.
        fitting.max_by_key(|(_, (pattern, _))| pattern.exactness()).map_or(0, |(index, _)| index + 1)
    }
}

impl HostLimits {
    /// As for all.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`PoolConfig::max_connections_per_host`].
    pub fn max_connections(self, limit: usize) -> Self {
        Self { max_connections: Some(limit), ..self }
    }

    /// As [`PoolConfig::max_idle_per_host`].
    pub fn max_idle(self, limit: usize) -> Self {
        Self { max_idle: Some(limit), ..self }
    }

    /// As [`PoolConfig::max_waiting_per_host`].
    pub fn max_waiting(self, limit: usize) -> Self {
        Self { max_waiting: Some(limit), ..self }
    }

    /// As [`PoolConfig::max_dials_per_host`].
    pub fn max_dials(self, limit: usize) -> Self {
        Self { max_dials: Some(limit), ..self }
    }

    /// As [`PoolConfig::max_http2_connections_per_host`].
    pub fn max_http2_connections(self, limit: usize) -> Self {
        Self { max_http2_connections: Some(limit), ..self }
    }

    /// As [`PoolConfig::max_streams_per_connection`].
    pub fn max_streams_per_connection(self, limit: usize) -> Self {
        Self { max_streams: Some(limit), ..self }
    }

    /// As [`PoolConfig::max_requests_per_connection`].
    pub fn max_requests_per_connection(self, limit: u64) -> Self {
        Self { max_requests: Some(limit), ..self }
    }

    /// As [`PoolConfig::idle_timeout`].
    pub fn idle_timeout(self, timeout: Duration) -> Self {
        Self { idle_timeout: Some(timeout), ..self }
    }

    /// As [`PoolConfig::lifetime`].
    pub fn lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime: Some(lifetime), ..self }
    }

    /// As [`PoolConfig::wait_timeout`].
    pub fn wait_timeout(self, timeout: Duration) -> Self {
        Self { wait_timeout: Some(timeout), ..self }
    }
}

/// Which hosts an override is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Port(Box<str>, u16),
    Host(Box<str>),
    /// With its dot.
    Suffix(Box<str>),
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        // The dot at the end of a full name is DNS's own, and hosts come without it.
        let parse = |text: &str| url::Host::parse(text.trim_end_matches('.')).ok();
        if text.len() > 1 && text.starts_with('.') {
            let name = parse(&text[1..])?;
            return matches!(name, url::Host::Domain(_)).then(|| Self::Suffix(format!(".{name}").into()));
        }
        // As an origin has it, so that `EXAMPLE.com` and `[0:0::1]` mean what they seem to.
        let host = |text: &str| match parse(text)? {
            url::Host::Domain(name) if name.starts_with('.') || name.contains('*') => None,
            host => Some(Box::from(host.to_string())),
        };
        if let Some(host) = host(text) {
            return Some(Self::Host(host));
        }
        let (name, port) = text.rsplit_once(':')?;
        Some(Self::Port(host(name)?, port.parse().ok()?))
    }

    fn fits(&self, host: &str, port: u16) -> bool {
        match self {
            Self::Port(name, number) => **name == *host && *number == port,
            Self::Host(name) => **name == *host,
            Self::Suffix(suffix) => host.ends_with(&**suffix),
        }
    }

    fn exactness(&self) -> (u8, usize) {
        match self {
            Self::Port(..) => (2, 0),
            Self::Host(_) => (1, 0),
            Self::Suffix(suffix) => (0, suffix.len()),
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
    fn the_defaults_are_those_that_are_promised() {
        let PoolConfig { max_idle, max_waiting, host, .. } = PoolConfig::new();
        assert_eq!((max_idle, max_waiting), (1_024, 10_000));
        assert_eq!((host.max_http2_connections, host.max_streams), (4, 100));
        let secs = [host.idle_timeout, host.lifetime, host.wait_timeout].map(|time| time.as_secs());
        assert_eq!(secs, [50, 900, 30]);
    }

    #[test]
    fn each_limit_can_be_overridden_and_what_is_not_is_as_for_all() {
        let second = Duration::from_secs(1);
        let limits = HostLimits::new()
            .max_connections(1)
            .max_idle(2)
            .max_waiting(3)
            .max_dials(4)
            .max_http2_connections(5)
            .max_streams_per_connection(6)
            .max_requests_per_connection(7)
            .idle_timeout(second)
            .lifetime(2 * second)
            .wait_timeout(3 * second);
        let config = PoolConfig::new().for_host("a", limits).for_host("b", HostLimits::new());
        let all = config.all_limits();
        let of = |host| all[config.limits_for(host, 80)];
        let a = of("a");
        let counts =
            [a.max_connections, a.max_idle, a.max_waiting, a.max_dials, a.max_http2_connections, a.max_streams];
        assert_eq!((counts, a.max_requests), ([1, 2, 3, 4, 5, 6], 7));
        assert_eq!([a.idle_timeout, a.lifetime, a.wait_timeout], [second, 2 * second, 3 * second]);
        assert_eq!(format!("{:?}", of("b")), format!("{:?}", Limits::default()));
    }

    #[test]
    fn zero_is_refused_where_nothing_could_be_sent() {
        assert_eq!(PoolConfig::new().check(), Ok(()));
        let refused = [
            PoolConfig::new().max_connections(0),
            PoolConfig::new().max_connections_per_host(0),
            PoolConfig::new().max_dials_per_host(0),
            PoolConfig::new().max_http2_connections_per_host(0),
            PoolConfig::new().max_streams_per_connection(0),
            PoolConfig::new().max_requests_per_connection(0),
            PoolConfig::new().lifetime(Duration::ZERO),
            PoolConfig::new().for_host("a", HostLimits::new().max_connections(0)),
        ];
        for config in refused {
            assert!(matches!(config.check(), Err(PoolConfigError::Zero(_))), "{config:?}");
        }
        let none = PoolConfig::new().max_idle(0).max_idle_per_host(0).max_waiting(0).max_waiting_per_host(0);
        assert_eq!(none.idle_timeout(Duration::ZERO).wait_timeout(Duration::ZERO).check(), Ok(()));
        let error = PoolConfig::new().max_connections(0).check().unwrap_err().to_string();
        assert_eq!(error, "max_connections must not be 0, or no request could ever be sent");
    }

    #[test]
    fn the_most_exact_override_is_used() {
        let limit = |limit| HostLimits::new().max_connections(limit);
        let config = PoolConfig::new()
            .max_connections_per_host(1)
            .for_host(".internal", limit(2))
            .for_host(".b.internal", limit(3))
            .for_host("A.internal", limit(4))
            .for_host("a.internal:8443", limit(5))
            .for_host("[::1]:80", limit(6))
            .for_host("[0::1]", limit(7))
            .for_host("127.0.0.1", limit(8));
        let all = config.all_limits();
        let of = |host, port| all[config.limits_for(host, port)].max_connections;
        assert_eq!([of("example.com", 80), of("internal", 80), of("xinternal", 80)], [1; 3]);
        assert_eq!([of("x.internal", 1), of("x.b.internal", 1), of("a.internal", 80)], [2, 3, 4]);
        assert_eq!([of("a.internal", 8443), of("[::1]", 80), of("[::1]", 81), of("127.0.0.1", 9)], [5, 6, 7, 8]);
    }

    #[test]
    fn a_dot_at_the_end_of_a_full_name_makes_no_difference() {
        let limit = |limit| HostLimits::new().max_connections(limit);
        let config = PoolConfig::new()
            .for_host("a.internal.", limit(2))
            .for_host("a.internal.:8443", limit(3))
            .for_host(".test.", limit(4));
        let all = config.all_limits();
        let of = |host, port| all[config.limits_for(host, port)].max_connections;
        assert_eq!([of("a.internal", 80), of("a.internal", 8443), of("x.test", 80)], [2, 3, 4]);
    }

    #[test]
    fn hosts_that_mean_nothing_are_refused() {
        for hosts in ["", ".", ":80", "a:b", "a b", "http://a/", "a:99999", ".1.2.3.4", "*.internal"] {
            let config = PoolConfig::new().for_host(hosts, HostLimits::new());
            assert_eq!(config.check(), Err(PoolConfigError::Hosts(hosts.to_owned())));
        }
    }
}
