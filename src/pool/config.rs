//! The configuration of the pool: its limits, their defaults, and overrides for some hosts. The configuration as code.

use std::time::Duration;

use crate::host_pattern::{ByHost, HostPattern};
use crate::origin::Origin;
use crate::os;

/// The limits of a client's connection pool.
///
/// A host in these limits is an [`Origin`]: a scheme, a name and a port. Each has its own connections, queue and
/// limits.
///
/// ```
/// use std::time::Duration;
/// use speeddial::pool::HostLimits;
/// use speeddial::PoolConfig;
///
/// let pool = PoolConfig::new()
///     .max_connections_per_host(10)
///     .idle_timeout(Duration::from_secs(20))
///     .for_host(".internal", HostLimits::new().max_connections(100))
///     .for_host("reports.internal:8443", HostLimits::new().max_connections(2));
/// let client = speeddial::Client::builder().pool(pool).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    pub(crate) max_connections: usize,
    pub(crate) max_idle: usize,
    pub(crate) max_waiting: usize,
    pub(crate) follow_dns: FollowDns,
    /// The limits of hosts without an override.
    pub(crate) per_host: Limits,
    pub(super) overrides: ByHost<HostLimits>,
    /// The first pattern that could not be parsed.
    invalid: Option<PoolConfigError>,
}

/// True for each limit that is set for the host itself, and not for all hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OwnLimits {
    pub(crate) max_connections: bool,
    pub(crate) max_dials: bool,
    pub(crate) max_http2_connections: bool,
}

impl OwnLimits {
    fn with(self, host: &HostLimits) -> Self {
        Self {
            max_connections: self.max_connections || host.max_connections.is_some(),
            max_dials: self.max_dials || host.max_dials.is_some(),
            max_http2_connections: self.max_http2_connections || host.max_http2_connections.is_some(),
        }
    }
}

/// Makes the limits that hosts have for themselves of one table: a row is the name of a limit, its default and its type, the method that
/// sets it for all hosts, and the one that does for some of them.
macro_rules! limits {
    ($($field:ident: $default:expr => $type:ty, $of_all:literal, $of_some:ident($arg:ident);)*) => {
        /// The limits of one host and of each of its connections.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct Limits {
            $(pub(crate) $field: $type,)*
            pub(crate) own: OwnLimits,
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: $default,)* own: OwnLimits::default() }
            }
        }

        impl Limits {
            /// Returns the limits with those of an override.
            fn with(self, host: &HostLimits) -> Self {
                Self { $($field: host.$field.unwrap_or(self.$field),)* own: self.own.with(host) }
            }

            /// Returns the methods of [`PoolConfig`] that make these limits of the default, each with its argument as Rust.
            pub(super) fn written(&self) -> impl Iterator<Item = (&'static str, String)> {
                let default = Self::default();
                let rows = [$(($of_all, (self.$field != default.$field).then(|| self.$field.written())),)*];
                rows.into_iter().filter_map(|(name, value)| Some((name, value?)))
            }
        }

        /// Limits for some hosts, given to [`PoolConfig::for_host`]. Each host that fits has them for itself. A limit that is not set here
        /// is the one for all hosts.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct HostLimits {
            $($field: Option<$type>,)*
        }

        impl HostLimits {
            /// Creates limits that are all the same as those for all hosts.
            pub fn new() -> Self {
                Self::default()
            }

            $(
                #[doc = concat!("Sets [`PoolConfig::", $of_all, "`] for these hosts.")]
                pub fn $of_some(self, $arg: $type) -> Self {
                    Self { $field: Some($arg), ..self }
                }
            )*

            /// Returns the methods that set these limits, each with its argument as Rust.
            pub(super) fn written(&self) -> impl Iterator<Item = (&'static str, String)> {
                let rows = [$((stringify!($of_some), self.$field.map(|limit| limit.written())),)*];
                rows.into_iter().filter_map(|(name, value)| Some((name, value?)))
            }
        }
    };
}

limits! {
    max_connections: usize::MAX => usize, "max_connections_per_host", max_connections(limit);
    max_idle: usize::MAX => usize, "max_idle_per_host", max_idle(limit);
    min_idle: 0 => usize, "min_idle_per_host", min_idle(count);
    max_waiting: usize::MAX => usize, "max_waiting_per_host", max_waiting(limit);
    max_dials: 1_024 => usize, "max_dials_per_host", max_dials(limit);
    max_http2_connections: 4 => usize, "max_http2_connections_per_host", max_http2_connections(limit);
    max_streams: 1_000 => usize, "max_streams_per_connection", max_streams_per_connection(limit);
    max_requests: u64::MAX => u64, "max_requests_per_connection", max_requests_per_connection(limit);
    idle_timeout: Duration::from_secs(50) => Duration, "idle_timeout", idle_timeout(timeout);
    lifetime: Duration::from_secs(15 * 60) => Duration, "lifetime", lifetime(lifetime);
    wait_timeout: Duration::from_secs(30) => Duration, "wait_timeout", wait_timeout(timeout);
    ejection: Ejection::default() => Ejection, "ejection", ejection(ejection);
}

/// The policy for connections to an address that has left the DNS answer of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FollowDns {
    /// Closes the connections when two answers in a row, a TTL apart, lack the address: idle connections at once, busy ones after
    /// their request. That is two TTLs after the last answer with the address. Names whose answers rotate keep their connections.
    /// Where answers change a little each time, an address must be missing for ten TTLs.
    #[default]
    AfterTwoTtls,
    /// Closes the connections as soon as one answer lacks the address, even if the next one may have it again.
    AtOnce,
    /// Keeps the connections.
    Off,
}

/// The reason why a [`PoolConfig`] is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolConfigError {
    /// A limit is 0, so that no request could ever be sent. Names the limit.
    #[error("{0} must not be 0, or no request could ever be sent")]
    Zero(&'static str),
    /// A pattern given to [`PoolConfig::for_host`] is not valid. Holds the pattern.
    #[error("`{0}` is not a host, a host and port, or a suffix such as `.internal`")]
    Hosts(String),
    /// More connections are to be kept open ([`PoolConfig::min_idle_per_host`]) than a limit lets be idle.
    #[error("min_idle_per_host is {min_idle}, and {limit} allows only {most}")]
    #[non_exhaustive]
    MinIdle {
        /// The number of connections to keep open.
        min_idle: usize,
        /// The name of the limit.
        limit: &'static str,
        /// The limit.
        most: usize,
    },
    /// Connections are to be kept open ([`PoolConfig::min_idle_per_host`]), and are idle for too short a time for that: the
    /// least is 1 s. Holds the [`idle_timeout`](PoolConfig::idle_timeout) or the [`lifetime`](PoolConfig::lifetime).
    #[error("min_idle_per_host needs connections that live for 1 s or longer, and a limit ends them after {0:?}")]
    ShortLived(Duration),
    /// A rule for the [`Ejection`] of addresses is not valid. Says which.
    #[error("ejection: {0}")]
    Ejection(&'static str),
}

/// The default share of the descriptors a process may open that connections may take.
const NOFILE_PERCENT: u64 = 70;
/// The shortest time for which a connection must live to be kept open ahead of requests.
const SHORTEST_KEPT: Duration = Duration::from_secs(1);
/// The highest default of the limit on all connections.
const MOST_CONNECTIONS: u64 = 4_096;

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            max_connections: connections_for(os::descriptor_limit()),
            max_idle: 1_024,
            max_waiting: 10_000,
            follow_dns: FollowDns::default(),
            per_host: Limits::default(),
            overrides: ByHost::default(),
            invalid: None,
        }
    }
}

impl Limits {
    fn check(&self) -> Result<(), PoolConfigError> {
        let limits = [
            ("max_connections_per_host", self.max_connections as u64),
            ("max_dials_per_host", self.max_dials as u64),
            ("max_http2_connections_per_host", self.max_http2_connections as u64),
            ("max_streams_per_connection", self.max_streams as u64),
            ("max_requests_per_connection", self.max_requests),
            ("lifetime", self.lifetime.as_nanos().min(1) as u64),
        ];
        limits.into_iter().try_for_each(|(name, limit)| at_least_one(name, limit))?;
        self.ejection.check().map_err(PoolConfigError::Ejection)
    }
}

/// Returns the call of a method as Rust.
fn call(name: &str, argument: &str) -> String {
    format!(".{name}({argument})")
}

/// Checks that a limit is not zero.
fn at_least_one(name: &'static str, limit: u64) -> Result<(), PoolConfigError> {
    if limit == 0 { Err(PoolConfigError::Zero(name)) } else { Ok(()) }
}

impl PoolConfig {
    /// Creates a configuration with the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of connections in total, including those being opened or closed. At least 1.
    ///
    /// Default: 70 % of the descriptors that the process may open (its soft `RLIMIT_NOFILE`), but at most 4,096.
    pub fn max_connections(self, max_connections: usize) -> Self {
        Self { max_connections, ..self }
    }

    /// Sets the maximum number of idle connections in total. Beyond that, the least recently used one is closed. With 0, no idle
    /// connection is kept, and one over HTTP/1.1 serves one request. Default: 1,024.
    pub fn max_idle(self, max_idle: usize) -> Self {
        Self { max_idle, ..self }
    }

    /// Sets the maximum number of requests that wait for a connection, not counting those for which one is being opened. Default:
    /// 10,000.
    ///
    /// With 0, a request fails at once if a limit keeps it from a connection. Where idle connections of other hosts fill the pool, one of
    /// them closes for it, and it waits for that.
    pub fn max_waiting(self, max_waiting: usize) -> Self {
        Self { max_waiting, ..self }
    }

    /// Sets the policy for connections to an address that has left the DNS answer of its name. Default:
    /// [`FollowDns::AfterTwoTtls`].
    pub fn follow_dns(self, follow_dns: FollowDns) -> Self {
        Self { follow_dns, ..self }
    }

    /// Sets the maximum number of connections to one host, including those being opened or closed. At least 1. Default: no limit.
    pub fn max_connections_per_host(mut self, limit: usize) -> Self {
        self.per_host.max_connections = limit;
        self
    }

    /// Sets the maximum number of idle connections to one host. Beyond that, the one idle for longest is closed. With 0, no idle
    /// connection is kept, and one over HTTP/1.1 serves one request. Default: no limit.
    pub fn max_idle_per_host(mut self, limit: usize) -> Self {
        self.per_host.max_idle = limit;
        self
    }

    /// Sets the number of idle connections that are kept open to one host, so that a burst after a long silence opens none.
    /// Default: 0, which is off.
    ///
    /// A host counts from its first connection, opened by a request or by [`warm_up`](crate::Client::warm_up), until no
    /// request was made to it for an hour. Of more than 256 hosts, only those requested last are kept warm.
    ///
    /// Each connection is replaced shortly before its idle timeout or lifetime ends: first another one is opened, then the old
    /// one is closed ([`CloseCause::Replaced`](crate::trace::CloseCause::Replaced)). The idle timeout is the one that the server
    /// announced or showed, if that is shorter. Connections that close for another reason are replaced at once.
    ///
    /// This many are wanted beside the busy ones. If requests hold so many that fewer are idle, others are opened after a
    /// second, so that a short burst opens none. Over HTTP/2, a connection with a free stream counts, and
    /// [`max_http2_connections_per_host`](Self::max_http2_connections_per_host) bounds the number.
    ///
    /// All limits apply. No connection is opened ahead while a request waits for its own, while descriptors are short, or if
    /// the pool would then have more connections than [`max_idle`](Self::max_idle) or the host more than
    /// [`max_idle_per_host`](Self::max_idle_per_host). If a limit leaves no room for a replacement beside the old connection, the
    /// old one closes first.
    ///
    /// After a failure, the next try is made within 1 s. The pause doubles with each failure, up to 60 s, and half of it is
    /// random. A connection that closes within its first second, unused, is a failure too.
    ///
    /// [`drain`](crate::Client::drain) and the end of the client end this. After [`close_idle`](crate::Client::close_idle), new
    /// connections are opened.
    ///
    /// # Errors
    /// Building the client fails if this is more than the `max_idle_per_host` or `max_connections_per_host` of the same hosts, or
    /// than `max_idle`, or if `idle_timeout` or `lifetime` is shorter than 1 s. Where [`for_host`](Self::for_host) lowers one of the
    /// limits per host and does not set [`HostLimits::min_idle`], the lower limit bounds the number.
    ///
    /// ```
    /// use speeddial::{Client, PoolConfig};
    /// use speeddial::pool::HostLimits;
    ///
    /// let pool = PoolConfig::new()
    ///     .min_idle_per_host(2)
    ///     .for_host("api.example.com", HostLimits::new().min_idle(20))
    ///     .for_host(".rarely-used.example", HostLimits::new().min_idle(0));
    /// let client = Client::builder().pool(pool).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn min_idle_per_host(mut self, count: usize) -> Self {
        self.per_host.min_idle = count;
        self
    }

    /// Sets the maximum number of requests to one host that wait for a connection. [`max_waiting`](Self::max_waiting) applies as
    /// well. Default: no limit.
    pub fn max_waiting_per_host(mut self, limit: usize) -> Self {
        self.per_host.max_waiting = limit;
        self
    }

    /// Sets the maximum number of connections to one host that are being opened at the same time. At least 1. Default: 1,024.
    ///
    /// The pool opens 16 at a time, or 1 while it is not known which version of HTTP the host speaks. If the connections that become
    /// free are about to serve all requests within 50 ms, it opens 4 at a time. If they are not, a request that has waited for 50 ms
    /// has a connection opened for it whatever the number, up to this limit.
    ///
    /// A connection that takes much longer to open than usual does not count.
    pub fn max_dials_per_host(mut self, limit: usize) -> Self {
        self.per_host.max_dials = limit;
        self
    }

    /// Sets the maximum number of HTTP/2 connections to one host. At least 1. Another one is opened when all streams of the others
    /// are taken. Default: 4.
    ///
    /// If requests are balanced over the host's addresses ([`Addresses::Spread`](crate::settings::Addresses::Spread)), the limit is for each
    /// address.
    pub fn max_http2_connections_per_host(mut self, limit: usize) -> Self {
        self.per_host.max_http2_connections = limit;
        self
    }

    /// Sets the maximum number of concurrent requests on one HTTP/2 connection. At least 1. The peer may allow fewer, and of 16 or
    /// more that it allows, one is left free. Default: 1,000.
    pub fn max_streams_per_connection(mut self, limit: usize) -> Self {
        self.per_host.max_streams = limit;
        self
    }

    /// Sets the number of requests after which a connection is closed. At least 1. An HTTP/2 connection with requests in progress
    /// carries more while there is no room for another connection. Default: no limit.
    pub fn max_requests_per_connection(mut self, limit: u64) -> Self {
        self.per_host.max_requests = limit;
        self
    }

    /// Sets the longest time a connection may be idle. Default: 50 s.
    ///
    /// The pool uses a shorter time if the server announced one by `Keep-Alive: timeout`, or was seen to close idle connections
    /// sooner.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.per_host.idle_timeout = timeout;
        self
    }

    /// Sets the age at which a connection is closed, after the requests it carries. Not zero. Default: 15 min.
    ///
    /// Each connection lives up to a tenth longer or shorter, so that not all end at once. An HTTP/2 connection with requests in
    /// progress goes on while there is no room for another connection.
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.per_host.lifetime = lifetime;
        self
    }

    /// Sets the longest time for which a limit of the pool may keep a request waiting. It does not apply while a connection is being
    /// opened for the request: the connect timeout bounds that, and a request may wait for one after the other. Default: 30 s.
    ///
    /// A client or a request can set a shorter limit of the same wait:
    /// [`ClientBuilder::queue_timeout`](crate::ClientBuilder::queue_timeout),
    /// [`RequestBuilder::queue_timeout`](crate::RequestBuilder::queue_timeout).
    pub fn wait_timeout(mut self, timeout: Duration) -> Self {
        self.per_host.wait_timeout = timeout;
        self
    }

    /// Sets the rules by which failing addresses of a host get no requests for a while. They apply to hosts whose requests are
    /// balanced over their addresses ([`Addresses::Spread`](crate::settings::Addresses::Spread)). Default: [`Ejection::new`].
    pub fn ejection(mut self, ejection: Ejection) -> Self {
        self.per_host.ejection = ejection;
        self
    }

    /// Sets other limits for some hosts: `host:port`, `host` for any port, or a suffix such as `.internal` for all names below it.
    ///
    /// The limits are those of each host that fits, not of all of them together: with ten connections for `.internal`,
    /// `a.internal` and `b.internal` may have ten each, and so may each of their ports. The host is that of the request's URL, also
    /// if the connection leads through a proxy.
    ///
    /// If several patterns fit a host, only the most exact one is used: `host:port` before `host`, before the longest suffix. A limit
    /// that it does not set is the one for all hosts.
    pub fn for_host(mut self, hosts: &str, limits: HostLimits) -> Self {
        match HostPattern::parse(hosts) {
            Some(pattern) => self.overrides.add(pattern, limits),
            None => self.invalid = self.invalid.or(Some(PoolConfigError::Hosts(hosts.to_owned()))),
        }
        self
    }

    /// Changes the limits of one origin. `change` gets those that [`for_host`](Self::for_host) sets for it, by whichever pattern, and its
    /// result is set for this host and port alone.
    ///
    /// ```
    /// use speeddial::PoolConfig;
    /// use speeddial::origin::Origin;
    /// use speeddial::pool::HostLimits;
    ///
    /// let pool = PoolConfig::new().for_host("api.test", HostLimits::new().max_connections(5).max_waiting(100));
    /// let origin = Origin::from_url(&"http://api.test:8080/".parse()?)?;
    /// let raised = pool.clone().update_host(&origin, |limits| limits.max_connections(20));
    /// let limits = HostLimits::new().max_connections(20).max_waiting(100);
    /// assert_eq!(raised, pool.for_host("api.test:8080", limits));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update_host(mut self, origin: &Origin, change: impl FnOnce(HostLimits) -> HostLimits) -> Self {
        // As the pool looks its limits up: without the dot at the end of a fully qualified name.
        let (name, port) = (origin.host().to_string(), origin.port());
        let name = name.trim_end_matches('.');
        let limits = change(self.override_for(name, port));
        self.overrides.replace(HostPattern::of(name, port), limits);
        self
    }

    /// Returns the lines of Rust that make this configuration: the settings that differ from the defaults, one in a line.
    ///
    /// ```
    /// let pool = speeddial::PoolConfig::new().max_idle(8);
    /// assert_eq!(pool.to_code(), "PoolConfig::new()\n    .max_idle(8)");
    /// ```
    pub fn to_code(&self) -> String {
        let default = Self::default();
        let rows = [
            ("max_connections", self.max_connections != default.max_connections, self.max_connections.written()),
            ("max_idle", self.max_idle != default.max_idle, self.max_idle.written()),
            ("max_waiting", self.max_waiting != default.max_waiting, self.max_waiting.written()),
            ("follow_dns", self.follow_dns != default.follow_dns, format!("FollowDns::{:?}", self.follow_dns)),
        ];
        let of_all = rows.into_iter().filter_map(|(name, differs, value)| differs.then_some((name, value)));
        let of_some = self.overrides.iter().map(|(hosts, limits)| {
            let code =
                limits.written().fold("HostLimits::new()".to_owned(), |code, (name, value)| code + &call(name, &value));
            ("for_host", format!("{:?}, {code}", hosts.to_string()))
        });
        let calls = of_all.chain(self.per_host.written()).chain(of_some);
        calls.fold("PoolConfig::new()".to_owned(), |code, (name, value)| code + "\n    " + &call(name, &value))
    }

    pub(crate) fn check(&self) -> Result<(), PoolConfigError> {
        if let Some(error) = &self.invalid {
            return Err(error.clone());
        }
        at_least_one("max_connections", self.max_connections as u64)?;
        self.per_host.check()?;
        self.check_min_idle(&self.per_host)?;
        self.overrides.iter().try_for_each(|(_, limits)| {
            let all = self.per_host.with(limits);
            all.check()?;
            // A number that was set for all hosts is bounded by the limits of some of them.
            if limits.min_idle.is_some() { self.check_min_idle(&all) } else { Ok(()) }
        })
    }

    /// Checks that the limits of a host let as many connections be idle as are to be kept open.
    ///
    /// The limit on all connections is not looked at: its default depends on the machine.
    fn check_min_idle(&self, host: &Limits) -> Result<(), PoolConfigError> {
        let min_idle = host.min_idle;
        if min_idle == 0 {
            return Ok(());
        }
        let limits = [
            ("max_idle", self.max_idle),
            ("max_idle_per_host", host.max_idle),
            ("max_connections_per_host", host.max_connections),
        ];
        if let Some((limit, most)) = limits.into_iter().find(|(_, most)| *most < min_idle) {
            return Err(PoolConfigError::MinIdle { min_idle, limit, most });
        }
        let shortest = host.idle_timeout.min(host.lifetime);
        if shortest < SHORTEST_KEPT { Err(PoolConfigError::ShortLived(shortest)) } else { Ok(()) }
    }

    /// Returns the limits of a host: the ones for all hosts, replaced by those of the most exact override that fits.
    pub(crate) fn limits_for(&self, host: &str, port: u16) -> Limits {
        self.per_host.with(&self.override_for(host, port))
    }

    /// Returns the most exact override that fits a host, or one that sets no limit.
    fn override_for(&self, host: &str, port: u16) -> HostLimits {
        self.overrides.find(host, port).copied().unwrap_or_default()
    }
}

/// Returns the default limit on all connections for a limit on descriptors.
fn connections_for(nofile: Option<u64>) -> usize {
    let share =
        nofile.map_or(MOST_CONNECTIONS, |limit| limit / 100 * NOFILE_PERCENT + limit % 100 * NOFILE_PERCENT / 100);
    share.clamp(1, MOST_CONNECTIONS) as usize
}

/// The ejection of failing addresses, for hosts whose requests are balanced over their addresses
/// ([`Addresses::Spread`](crate::settings::Addresses::Spread)).
///
/// A failure is a 5xx response, a gRPC response that has the status UNAVAILABLE in its headers, a time limit that passed before
/// the headers of the response, a connection that broke, or a connection that could not be opened. A connection that the server
/// closed while it was idle, and a request that the server did not process, are no failures.
///
/// An address is ejected after [`failures`](Self::failures) in a row, or when
/// [`failure_percent`](Self::failure_percent) of its last requests failed. Either counts only if the address fails at least twice
/// as often as the others: where all fail alike, the fault is not the address's. It then gets no request for
/// [`base_time`](Self::base_time), longer each time it happens again, up to [`max_time`](Self::max_time). After that a single
/// request is let through. If that succeeds, the address is used again, and its share grows over 10 s; if it fails, the
/// address is ejected again.
///
/// ```
/// use std::time::Duration;
/// use speeddial::settings::Addresses;
/// use speeddial::{Client, PoolConfig};
/// use speeddial::pool::Ejection;
///
/// let ejection = Ejection::new().failures(3).base_time(Duration::from_secs(5)).max_percent(30);
/// let pool = PoolConfig::new().ejection(ejection);
/// let client = Client::builder().addresses(Addresses::Spread).pool(pool).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ejection {
    pub(crate) failures: u32,
    pub(crate) failure_percent: u8,
    pub(crate) base_time: Duration,
    pub(crate) max_time: Duration,
    pub(crate) max_percent: u8,
}

impl Default for Ejection {
    fn default() -> Self {
        Self {
            failures: 5,
            failure_percent: 30,
            base_time: Duration::from_secs(10),
            max_time: Duration::from_secs(300),
            max_percent: 50,
        }
    }
}

impl Ejection {
    /// Creates the default rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates rules by which no address is ever ejected.
    pub fn off() -> Self {
        Self { max_percent: 0, ..Self::default() }
    }

    /// Sets the number of failures in a row after which an address is ejected. At least 1. Default: 5.
    pub fn failures(self, failures: u32) -> Self {
        Self { failures, ..self }
    }

    /// Sets the percentage of failed requests at which an address is ejected, of at least ten requests in the last ten seconds or
    /// so. From 1 to 100. Default: 30.
    pub fn failure_percent(self, failure_percent: u8) -> Self {
        Self { failure_percent, ..self }
    }

    /// Sets the time for which an address is ejected the first time. It is that many times as long as the number of ejections in
    /// a row. Not zero. Default: 10 s.
    pub fn base_time(self, base_time: Duration) -> Self {
        Self { base_time, ..self }
    }

    /// Sets the longest time for which an address is ejected. Default: 300 s.
    pub fn max_time(self, max_time: Duration) -> Self {
        Self { max_time, ..self }
    }

    /// Sets the highest percentage of a host's addresses that are ejected at the same time. One of two or more may always be, the
    /// last one never is. With 0, none is. Default: 50.
    pub fn max_percent(self, max_percent: u8) -> Self {
        Self { max_percent, ..self }
    }

    /// Returns what is wrong with the rules.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let is_percentage = |percent: u8, least: u8| (least..=100).contains(&percent);
        if self.failures == 0 {
            Err("failures must be at least 1")
        } else if !is_percentage(self.failure_percent, 1) {
            Err("failure_percent must be from 1 to 100")
        } else if !is_percentage(self.max_percent, 0) {
            Err("max_percent must be from 0 to 100")
        } else if self.base_time.is_zero() {
            Err("base_time must not be 0")
        } else {
            Ok(())
        }
    }
}

/// A value of a setting, as the Rust that makes it.
pub(super) trait Written {
    fn written(self) -> String;
}

impl Written for usize {
    fn written(self) -> String {
        if self == Self::MAX { "usize::MAX".to_owned() } else { self.to_string() }
    }
}

impl Written for u64 {
    fn written(self) -> String {
        if self == Self::MAX { "u64::MAX".to_owned() } else { self.to_string() }
    }
}

impl Written for Duration {
    /// In the largest unit without a fraction.
    fn written(self) -> String {
        if self == Self::MAX {
            return "Duration::MAX".to_owned();
        }
        let nanos = self.as_nanos();
        let units = [("secs", 1_000_000_000), ("millis", 1_000_000), ("micros", 1_000)];
        match units.into_iter().find(|(_, unit)| nanos.is_multiple_of(*unit)) {
            Some((name, unit)) => format!("Duration::from_{name}({})", nanos / unit),
            None => format!("Duration::new({}, {})", self.as_secs(), self.subsec_nanos()),
        }
    }
}

impl Written for Ejection {
    fn written(self) -> String {
        let (start, default) = match self.max_percent {
            0 => ("Ejection::off()", Self::off()),
            _ => ("Ejection::new()", Self::new()),
        };
        let rules = [
            ("failures", self.failures == default.failures, self.failures.to_string()),
            ("failure_percent", self.failure_percent == default.failure_percent, self.failure_percent.to_string()),
            ("base_time", self.base_time == default.base_time, self.base_time.written()),
            ("max_time", self.max_time == default.max_time, self.max_time.written()),
            ("max_percent", self.max_percent == default.max_percent, self.max_percent.to_string()),
        ];
        let rules = rules.into_iter().filter(|(_, is_default, _)| !is_default);
        rules.fold(start.to_owned(), |code, (name, _, value)| format!("{code}.{name}({value})"))
    }
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
    fn the_defaults_are_as_documented() {
        let PoolConfig { max_idle, max_waiting, per_host: host, .. } = PoolConfig::new();
        assert_eq!((max_idle, max_waiting), (1_024, 10_000));
        assert_eq!((host.max_http2_connections, host.max_streams, host.min_idle), (4, 1_000, 0));
        let secs = [host.idle_timeout, host.lifetime, host.wait_timeout].map(|time| time.as_secs());
        assert_eq!(secs, [50, 900, 30]);
    }

    #[test]
    fn each_limit_can_be_overridden_and_the_others_stay() {
        let second = Duration::from_secs(1);
        let limits = HostLimits::new()
            .max_connections(1)
            .max_idle(2)
            .min_idle(8)
            .max_waiting(3)
            .max_dials(4)
            .max_http2_connections(5)
            .max_streams_per_connection(6)
            .max_requests_per_connection(7)
            .idle_timeout(second)
            .lifetime(2 * second)
            .wait_timeout(3 * second)
            .ejection(Ejection::off());
        let config = PoolConfig::new().for_host("a", limits).for_host("b", HostLimits::new());
        let of = |host| config.limits_for(host, 80);
        let a = of("a");
        let counts =
            [a.max_connections, a.max_idle, a.max_waiting, a.max_dials, a.max_http2_connections, a.max_streams];
        assert_eq!((counts, a.max_requests, a.min_idle), ([1, 2, 3, 4, 5, 6], 7, 8));
        assert_eq!([a.idle_timeout, a.lifetime, a.wait_timeout], [second, 2 * second, 3 * second]);
        assert_eq!((a.ejection, of("b").ejection), (Ejection::off(), Ejection::new()));
        assert_eq!(format!("{:?}", of("b")), format!("{:?}", Limits::default()));
    }

    #[test]
    fn the_limits_of_one_origin_are_changed_whichever_pattern_they_are_of() {
        let origin = Origin::from_url(&"http://a.internal./".parse().unwrap()).unwrap();
        let config = PoolConfig::new().for_host(".internal", HostLimits::new().max_idle(3));
        let config = config.update_host(&origin, |limits| limits.max_connections(2));
        let config = config.update_host(&origin, |limits| limits.max_waiting(4));
        let of = |host| config.limits_for(host, 80);
        let [a, b] = ["a.internal", "b.internal"].map(of);
        assert_eq!([a.max_idle, a.max_connections, a.max_waiting], [3, 2, 4]);
        assert_eq!([b.max_idle, b.max_connections], [3, usize::MAX]);
        assert_eq!(config.overrides.iter().count(), 2, "one pattern is added");
    }

    #[test]
    fn limits_of_zero_that_let_no_request_through_are_refused() {
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
    fn more_connections_to_keep_than_may_be_idle_are_refused_and_bounded_where_the_number_is_not_of_the_same_hosts() {
        let five = || PoolConfig::new().min_idle_per_host(5);
        let of_host = |limits| PoolConfig::new().for_host("a", limits);
        let refused = [
            (five().max_idle(4), "max_idle", 4),
            (five().max_idle_per_host(3), "max_idle_per_host", 3),
            (five().max_connections_per_host(2), "max_connections_per_host", 2),
            (of_host(HostLimits::new().min_idle(5).max_idle(0)), "max_idle_per_host", 0),
            (of_host(HostLimits::new().min_idle(5)).max_connections_per_host(4), "max_connections_per_host", 4),
        ];
        for (config, limit, most) in refused {
            assert_eq!(config.check(), Err(PoolConfigError::MinIdle { min_idle: 5, limit, most }));
        }
        let short = [five().idle_timeout(Duration::from_millis(999)), five().lifetime(Duration::from_millis(999))];
        for config in short {
            assert_eq!(config.check(), Err(PoolConfigError::ShortLived(Duration::from_millis(999))));
        }
        let accepted = [
            five().max_idle(5).max_idle_per_host(5).max_connections_per_host(5).max_connections(1),
            five().idle_timeout(SHORTEST_KEPT).lifetime(SHORTEST_KEPT),
            five().max_http2_connections_per_host(1),
            five().for_host("a", HostLimits::new().max_idle(0).max_connections(1)),
            of_host(HostLimits::new().min_idle(0)).idle_timeout(Duration::ZERO).max_idle(0),
        ];
        for config in accepted {
            assert_eq!(config.check(), Ok(()));
        }
        let error = five().max_idle_per_host(3).check().unwrap_err().to_string();
        assert_eq!(error, "min_idle_per_host is 5, and max_idle_per_host allows only 3");
    }

    #[test]
    fn rules_of_ejection_that_make_no_sense_are_refused() {
        let rules = Ejection::new;
        let refused = [
            rules().failures(0),
            rules().failure_percent(0),
            rules().failure_percent(101),
            rules().max_percent(101),
            rules().base_time(Duration::ZERO),
        ];
        for ejection in refused {
            let config = PoolConfig::new().ejection(ejection);
            assert!(matches!(config.check(), Err(PoolConfigError::Ejection(_))), "{config:?}");
            let config = PoolConfig::new().for_host("a", HostLimits::new().ejection(ejection));
            assert!(config.check().is_err());
        }
        assert_eq!(PoolConfig::new().ejection(Ejection::off()).check(), Ok(()));
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
        let of = |host, port| config.limits_for(host, port).max_connections;
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
        let of = |host, port| config.limits_for(host, port).max_connections;
        assert_eq!([of("a.internal", 80), of("a.internal", 8443), of("x.test", 80)], [2, 3, 4]);
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for hosts in ["", ".", ":80", "a:b", "a b", "http://a/", "a:99999", ".1.2.3.4", "*.internal"] {
            let config = PoolConfig::new().for_host(hosts, HostLimits::new());
            assert_eq!(config.check(), Err(PoolConfigError::Hosts(hosts.to_owned())));
        }
    }
}

#[cfg(test)]
mod written_tests {
    use super::*;
    use crate::pool::{FollowDns, HostLimits, PoolConfig};

    /// Returns a value and its source text without white space.
    macro_rules! with_source {
        ($code:expr) => {
            ($code, stringify!($code).split_whitespace().collect::<String>())
        };
    }

    fn without_space(code: &str) -> String {
        code.split_whitespace().collect()
    }

    #[test]
    fn the_code_of_a_configuration_makes_it_again() {
        let (config, source) = with_source!(
            PoolConfig::new()
                .max_connections(300)
                .max_idle(200)
                .max_waiting(100)
                .follow_dns(FollowDns::Off)
                .max_connections_per_host(10)
                .max_idle_per_host(9)
                .min_idle_per_host(1)
                .max_waiting_per_host(8)
                .max_dials_per_host(7)
                .max_http2_connections_per_host(6)
                .max_streams_per_connection(5)
                .max_requests_per_connection(4)
                .idle_timeout(Duration::from_millis(3500))
                .lifetime(Duration::from_secs(2))
                .wait_timeout(Duration::new(1, 1))
                .ejection(Ejection::off().failures(3))
                .for_host("a.test:8443", HostLimits::new().max_connections(1).idle_timeout(Duration::MAX))
                .for_host(".internal", HostLimits::new().max_idle(usize::MAX).max_requests_per_connection(2))
                .for_host("[::1]", HostLimits::new())
        );
        assert_eq!(without_space(&config.to_code()), source);
        assert_eq!(PoolConfig::new().to_code(), "PoolConfig::new()");
    }

    #[test]
    fn every_limit_of_a_host_is_written() {
        let second = Duration::from_secs(1);
        let (limits, source) = with_source!(
            HostLimits::new()
                .max_connections(1)
                .max_idle(2)
                .min_idle(8)
                .max_waiting(3)
                .max_dials(4)
                .max_http2_connections(5)
                .max_streams_per_connection(6)
                .max_requests_per_connection(7)
                .idle_timeout(second)
                .lifetime(second)
                .wait_timeout(second)
                .ejection(
                    Ejection::new().failures(1).failure_percent(2).base_time(second).max_time(second).max_percent(3)
                )
        );
        let config = PoolConfig::new().for_host("a", limits).to_code();
        let source = format!("PoolConfig::new()\n    .for_host(\"a\", {source})");
        assert_eq!(config, source.replace("second", "Duration::from_secs(1)"));
    }
}
