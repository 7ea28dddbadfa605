//! The TCP transport and its socket options, and the way to Unix domain sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

use super::late_options::{LateOptions, Probes};
use super::tcp_stream::ProbedTcpStream;
use super::{Connecting, Transport};
use crate::clock::{now, sleep_until};
use crate::transport::Stream;

/// Opens TCP connections. The default transport of a client.
///
/// By default nodelay is on, and a peer that has been silent for 15 s is probed every 15 s (keepalive). On Linux a
/// connection is given up when the peer has acknowledged nothing, neither data nor a probe, for 30 s (the user timeout,
/// RFC 5482). Other systems give it up after three probes without an answer, which takes a minute.
///
/// On Linux a socket gets these options as late as possible, so that a short connection does not pay for the system
/// calls: nodelay before the second write, or before a first write of more than 536 bytes; keepalive and the user
/// timeout after half of the shorter of the two. The runtime's timers have to be enabled.
///
/// ```
/// use std::{net::Ipv4Addr, time::Duration};
/// use speeddial::transport::TcpTransport;
///
/// let tcp = TcpTransport::new().local_address(Ipv4Addr::LOCALHOST.into()).keepalive(Some(Duration::from_secs(60)));
/// let client = speeddial::Client::builder().transport(tcp).build();
/// ```
#[derive(Debug, Clone)]
pub struct TcpTransport {
    nodelay: bool,
    keepalive: Option<Duration>,
    /// The time between probes; that before the first if `None`.
    keepalive_interval: Option<Duration>,
    keepalive_retries: Option<u32>,
    /// The user timeout; the default if `None`.
    user_timeout: Option<Option<Duration>>,
    send_buffer: Option<u32>,
    receive_buffer: Option<u32>,
    local_v4: Option<Ipv4Addr>,
    local_v6: Option<Ipv6Addr>,
    #[cfg(target_os = "linux")]
    interface: Option<String>,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fast_open: bool,
}

/// The default of [`TcpTransport::keepalive`].
pub(super) const KEEPALIVE: Duration = Duration::from_secs(15);
/// The default of [`TcpTransport::user_timeout`].
pub(super) const USER_TIMEOUT: Duration = Duration::from_secs(30);

impl Default for TcpTransport {
    fn default() -> Self {
        Self {
            nodelay: true,
            keepalive: Some(KEEPALIVE),
            keepalive_interval: None,
            keepalive_retries: None,
            user_timeout: None,
            send_buffer: None,
            receive_buffer: None,
            local_v4: None,
            local_v6: None,
            #[cfg(target_os = "linux")]
            interface: None,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            fast_open: false,
        }
    }
}

impl TcpTransport {
    /// Creates the transport with the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether small writes are sent at once rather than gathered (Nagle's algorithm, RFC 896). True by default.
    pub fn nodelay(mut self, nodelay: bool) -> Self {
        self.nodelay = nodelay;
        self
    }

    /// Sets the time of silence after which the peer is probed, which is also the time between probes unless there is a
    /// [`keepalive_interval`](Self::keepalive_interval). 15 s by default; `None` sends no probes.
    ///
    /// After 3 probes without an answer the connection is given up. On Linux a [user timeout](Self::user_timeout) takes
    /// the place of that number: the first probe that is due after so much silence, with an earlier one unanswered, gives
    /// the connection up.
    pub fn keepalive(mut self, keepalive: Option<Duration>) -> Self {
        self.keepalive = keepalive;
        self
    }

    /// Sets the time between two [keepalive](Self::keepalive) probes. `None` by default: the same as the silence before the
    /// first.
    pub fn keepalive_interval(mut self, interval: Option<Duration>) -> Self {
        self.keepalive_interval = interval;
        self
    }

    /// Sets the number of [keepalive](Self::keepalive) probes without an answer after which a connection is given up, at
    /// most 127. `None` by default: 3, and on Linux the [user timeout](Self::user_timeout) in place of a number. Setting a
    /// number turns the default user timeout off, because Linux does not count probes beside one.
    pub fn keepalive_retries(mut self, retries: Option<u32>) -> Self {
        self.keepalive_retries = retries;
        self
    }

    /// Sets the longest time that sent data, or a [keepalive](Self::keepalive) probe, may stay unacknowledged before the
    /// connection is given up (RFC 5482). Only Linux has it.
    ///
    /// 30 s by default; `None` leaves it to the system, which waits about a quarter of an hour. A peer that
    /// acknowledges data but reads none of it is not given up; the time limits of requests are for that.
    pub fn user_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.user_timeout = Some(timeout);
        self
    }

    /// Sets the size of the socket's send buffer in bytes. By default the system chooses it and adapts it.
    pub fn send_buffer_size(mut self, bytes: u32) -> Self {
        self.send_buffer = Some(bytes);
        self
    }

    /// Sets the size of the socket's receive buffer in bytes. By default the system chooses it and adapts it.
    pub fn receive_buffer_size(mut self, bytes: u32) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Sets the local address of connections. Call it twice to set one of each family; for a family without one, the
    /// system chooses the address.
    pub fn local_address(mut self, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => self.local_v4 = Some(ip),
            IpAddr::V6(ip) => self.local_v6 = Some(ip),
        }
        self
    }

    /// Leaves the local addresses of both families to the system.
    pub(crate) fn any_local_address(self) -> Self {
        Self { local_v4: None, local_v6: None, ..self }
    }

    /// Sets the network interface that connections go through (`SO_BINDTODEVICE`). Only Linux has it.
    #[cfg(target_os = "linux")]
    pub fn interface(mut self, name: impl Into<String>) -> Self {
        self.interface = Some(name.into());
        self
    }

    /// Sets whether the first bytes go out with the connection's first packet, to servers that have allowed it before
    /// (TCP Fast Open, RFC 7413). Only Linux has it, if the kernel supports it.
    ///
    /// Off by default, for two reasons. A network that duplicates the packet may deliver a request twice (§2.1). And to
    /// such a server an address counts as connected before a packet was sent, so the race between addresses cannot tell
    /// whether the server is there, and a dead address is not remembered.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn fast_open(mut self, fast_open: bool) -> Self {
        self.fast_open = fast_open;
        self
    }

    fn local_address_for(&self, address: SocketAddr) -> Option<IpAddr> {
        match address {
            SocketAddr::V4(_) => self.local_v4.map(Into::into),
            SocketAddr::V6(_) => self.local_v6.map(Into::into),
        }
    }

    /// Sets the options that matter before the connection is made. An error fails the connection, because most of these
    /// options decide where packets go.
    fn bind(&self, socket: &TcpSocket, address: SocketAddr) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(interface) = &self.interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        if let Some(size) = self.send_buffer {
            socket.set_send_buffer_size(size)?;
        }
        if let Some(size) = self.receive_buffer {
            socket.set_recv_buffer_size(size)?;
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if self.fast_open {
            // A kernel without it connects as usual.
            let _ = nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::TcpFastOpenConnect, &true);
        }
        let Some(ip) = self.local_address_for(address) else { return Ok(()) };
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            // The port is chosen when the peer is known then, and connections to other peers may have the same one. A kernel without it
            // (before 4.2) takes a port right away.
            let _ = nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::IpBindAddressNoPort, &true);
        }
        socket.bind(SocketAddr::new(ip, 0))
    }

    pub(super) async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        self.bind(&socket, address)?;
        socket.connect(address).await
    }

    /// Returns the options that are set later.
    pub(super) fn late_options(&self) -> LateOptions {
        let probes = self.keepalive.map(|time| Probes {
            time,
            interval: self.keepalive_interval.unwrap_or(time),
            retries: self.keepalive_retries,
        });
        let user_timeout = match (self.user_timeout, self.keepalive_retries) {
            (Some(given), _) => given,
            (None, Some(_)) => None,
            (None, None) => Some(USER_TIMEOUT),
        };
        LateOptions::new(self.nodelay, probes, user_timeout)
    }
}

impl Transport for TcpTransport {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            let stream = self.dial(address).await?;
            Ok(Box::new(ProbedTcpStream::new(stream, self.late_options())) as Box<dyn Stream>)
        })
    }

    fn contradiction(&self) -> Option<&'static str> {
        let has_user_timeout = cfg!(target_os = "linux") && matches!(self.user_timeout, Some(Some(_)));
        if self.keepalive.is_none() && self.keepalive_interval.is_some() {
            Some("an interval of keepalive probes has no effect where none are sent")
        } else if self.keepalive.is_none() && self.keepalive_retries.is_some() {
            Some("a number of keepalive probes has no effect where none are sent")
        } else if self.keepalive_retries.is_some() && has_user_timeout {
            Some("a number of keepalive probes has no effect beside a user timeout, by which Linux goes instead")
        } else if self.keepalive_retries.is_some_and(|retries| !(1..=127).contains(&retries)) {
            Some("the number of keepalive probes must be 1 to 127")
        } else {
            None
        }
    }

    /// Connects a UDP socket. That sends nothing, and the socket's local address is the routing table's answer.
    fn source_of(&self, address: SocketAddr) -> Option<io::Result<IpAddr>> {
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let probe = || {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
            #[cfg(target_os = "linux")]
            if let Some(interface) = &self.interface {
                socket.bind_device(Some(interface.as_bytes()))?;
            }
            socket.bind(&SocketAddr::new(self.local_address_for(address).unwrap_or(any), 0).into())?;
            socket.connect(&address.into())?;
            let local = socket.local_addr()?.as_socket();
            Ok(local.ok_or(io::ErrorKind::AddrNotAvailable)?.ip())
        };
        Some(probe())
    }
}

/// The first wait before another attempt when the socket's backlog is full. Each further wait is twice as long.
const FIRST_BACKOFF: Duration = Duration::from_millis(1);
/// The longest wait between two attempts.
const MAX_BACKOFF: Duration = Duration::from_millis(50);

/// Connects to a Unix domain socket, and tries again while its backlog is full. Dropping the future gives up.
///
/// Over TCP the kernel repeats the SYN when a backlog is full. For a Unix domain socket Linux returns EAGAIN at once
/// (connect(2)), and does not signal when there is room again, so this function waits and repeats. Other systems return
/// ECONNREFUSED, as they do if no process listens; that is final.
pub(crate) async fn connect_unix(path: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    let mut backoff = FIRST_BACKOFF;
    loop {
        match connect_once(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            connected => return connected,
        }
        // The wait is random between half and all of the backoff, so that many dials do not repeat at the same moment.
        let wait = backoff / 2 + (backoff / 2).mul_f64(fastrand::f64());
        sleep_until(now().checked_add(wait)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

#[cfg(unix)]
async fn connect_once(path: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(tokio::net::UnixStream::connect(path).await?))
}

/// This system has no such sockets, and a builder no setter for them.
#[cfg(not(unix))]
async fn connect_once(_: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use socket2::SockRef;

    use super::*;

    #[test]
    fn packets_to_loopback_come_from_loopback() {
        let source = TcpTransport::new().source_of(([127, 0, 0, 1], 80).into()).unwrap().unwrap();
        assert!(source.is_loopback());
    }

    #[tokio::test]
    async fn buffer_sizes_and_the_local_address_are_set() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let transport = TcpTransport::new().send_buffer_size(50_000).receive_buffer_size(60_000);
        let transport = transport.local_address([127, 0, 0, 9].into());
        let stream = transport.dial(address).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.send_buffer_size().unwrap() >= 50_000 && socket.recv_buffer_size().unwrap() >= 60_000);
        assert_eq!(stream.local_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 9]));
        assert_eq!(transport.source_of(address).unwrap().unwrap(), IpAddr::from([127, 0, 0, 9]));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_interface_that_does_not_exist_fails_the_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert!(TcpTransport::new().interface("no-such-one").connect(address).await.is_err());
        // Choosing an interface may need a privilege that the test does not have.
        match TcpTransport::new().interface("lo").connect(address).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn a_local_address_takes_no_port_before_the_peer_is_known() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let socket = TcpSocket::new_v4().unwrap();
        let transport = TcpTransport::new().local_address([127, 0, 0, 1].into());
        transport.bind(&socket, ([127, 0, 0, 1], 80).into()).unwrap();
        assert_eq!(socket.local_addr().unwrap().port(), 0);
    }
}

#[cfg(test)]
mod unix_tests {
    use super::*;

    #[tokio::test]
    async fn a_full_backlog_is_waited_for() {
        use futures_util::FutureExt;
        use tokio::net::{UnixSocket, UnixStream};

        let path = std::env::temp_dir().join(format!("speeddial-backlog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(&path).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut queued = Vec::new();
        let full = loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let mut connecting = Box::pin(connect_unix(&path));
        let early = connecting.as_mut().now_or_never().map(|connected| connected.map(drop));
        assert!(early.is_none(), "{early:?}");
        let accepting = async {
            for _ in &queued {
                listener.accept().await.unwrap();
            }
        };
        let (connected, ()) = tokio::join!(connecting, accepting);
        connected.unwrap();
        std::fs::remove_file(&path).unwrap();
        drop(listener);
        assert!(connect_unix(&path).await.is_err(), "a socket that does not exist is not waited for");
    }
}
