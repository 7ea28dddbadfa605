//! The settings of connections: of TCP, and of the pool.

use std::net::IpAddr;
use std::time::Duration;

use crate::client::client_builder::ClientBuilder;
use crate::error::Error;
use crate::pool::PoolConfig;
use crate::transport::TcpTransport;

/// Settings of TCP. [`TcpTransport`] has the same settings and more; a client with a
/// [transport](ClientBuilder::transport) of its own cannot have these beside it, and [`build`](ClientBuilder::build)
/// refuses them. It also refuses them beside a Unix domain socket.
impl ClientBuilder {
    /// Sets whether small writes are sent at once rather than gathered (Nagle's algorithm, RFC 896). True by default.
    pub fn tcp_nodelay(self, enabled: bool) -> Self {
        self.with_tcp(|tcp| tcp.nodelay(enabled))
    }

    /// Sets the time of silence after which the peer is probed. 15 s by default; `None` sends no probes.
    pub fn tcp_keepalive<D: Into<Option<Duration>>>(self, time: D) -> Self {
        let time = time.into();
        self.with_tcp(|tcp| tcp.keepalive(time))
    }

    /// Sets the time between two probes of [`tcp_keepalive`](Self::tcp_keepalive). `None` by default: the same as the
    /// silence before the first.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it if no probes are sent.
    pub fn tcp_keepalive_interval<D: Into<Option<Duration>>>(self, interval: D) -> Self {
        let interval = interval.into();
        self.with_tcp(|tcp| tcp.keepalive_interval(interval))
    }

    /// Sets the number of probes of [`tcp_keepalive`](Self::tcp_keepalive) without an answer after which a connection is
    /// given up. `None` by default: on Linux the user timeout of 30 s takes the place of such a number, on other systems
    /// it is 3. Setting a number turns that user timeout off, because Linux does not count probes beside one.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses 0, more than 127, a number if no probes are sent, and one beside a
    /// [`tcp_user_timeout`](TcpTransport::user_timeout).
    pub fn tcp_keepalive_retries<C: Into<Option<u32>>>(self, retries: C) -> Self {
        let retries = retries.into();
        self.with_tcp(|tcp| tcp.keepalive_retries(retries))
    }

    /// Sets the longest time that sent data, or a probe of [`tcp_keepalive`](Self::tcp_keepalive), may stay
    /// unacknowledged before a connection is given up (RFC 5482). 30 s by default; `None` leaves it to the system. Only
    /// Linux has it.
    #[cfg(target_os = "linux")]
    pub fn tcp_user_timeout<D: Into<Option<Duration>>>(self, timeout: D) -> Self {
        let timeout = timeout.into();
        self.with_tcp(|tcp| tcp.user_timeout(timeout))
    }

    /// Sets the local address of connections. Call it twice to set one of each family; `None` unsets both. For a family
    /// without one, which is the default, the system chooses the address.
    pub fn local_address<T: Into<Option<IpAddr>>>(self, address: T) -> Self {
        let address = address.into();
        self.with_tcp(|tcp| match address {
            Some(ip) => tcp.local_address(ip),
            None => tcp.any_local_address(),
        })
    }

    /// Sets the network interface that connections go through (`SO_BINDTODEVICE`). Only Linux has it. A connection fails
    /// if there is no such interface when it is opened.
    #[cfg(target_os = "linux")]
    pub fn interface(self, interface: &str) -> Self {
        self.with_tcp(|tcp| tcp.interface(interface))
    }

    fn with_tcp(mut self, set: impl FnOnce(TcpTransport) -> TcpTransport) -> Self {
        let tcp = self.connect.tcp.take().unwrap_or_default();
        self.connect.tcp = Some(set(tcp));
        self
    }
}

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
