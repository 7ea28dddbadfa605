//! Addresses to byte streams: the [`Transport`] seam, TCP, and Unix domain sockets.

mod options;

use std::any::Any;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use options::{Pending, Waits, is_acknowledged};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};

#[cfg(unix)]
use crate::clock::{now, sleep_until};

/// Connects to one address: the seam under the race between addresses.
///
/// Implement it to put connections over something other than TCP, or to script a network in a test.
///
/// ```
/// use std::{io, net::SocketAddr};
/// use speeddial::transport::{Connecting, Transport};
///
/// /// Refuses every address.
/// struct Nowhere;
/// impl Transport for Nowhere {
///     fn connect(&self, _: SocketAddr) -> Connecting<'_> {
///         Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
///     }
/// }
/// let client = speeddial::Client::builder().transport(Nowhere).build();
/// ```
pub trait Transport: Send + Sync + 'static {
    /// Connects to `address`. Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// The operating system's, as they are: the race goes on with the next address.
    fn connect(&self, address: SocketAddr) -> Connecting<'_>;

    /// The address from which packets to `address` would be sent, where that can be told at once and without sending any:
    /// an error says that there is no way to it. It sorts a host's addresses (RFC 6724). Not known by default.
    fn source_of(&self, address: SocketAddr) -> Option<io::Result<IpAddr>> {
        let _ = address;
        None
    }
}

/// A connection attempt under way: what [`Transport::connect`] returns.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

impl<T: Transport + ?Sized> Transport for std::sync::Arc<T> {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        (**self).connect(address)
    }

    fn source_of(&self, address: SocketAddr) -> Option<io::Result<IpAddr>> {
        (**self).source_of(address)
    }
}

/// A connected byte stream: anything that reads and writes.
pub trait Stream: AsyncRead + AsyncWrite + Any + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Any + Send + Unpin> Stream for S {}

/// TCP, with nodelay on, keepalive after 15 s of silence (3 probes, 15 s apart), and on Linux a user timeout of 30 s
/// (RFC 5482) after which unacknowledged data closes the connection.
///
/// A socket gets these options before they begin to matter, and on Linux not sooner: nodelay before anything but a first write of
/// up to 536 bytes, the others after half the shorter of their times. A connection that is over by then has not paid for
/// them. The runtime's clock has to be enabled.
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
    user_timeout: Option<Duration>,
    send_buffer: Option<u32>,
    receive_buffer: Option<u32>,
    local_v4: Option<Ipv4Addr>,
    local_v6: Option<Ipv6Addr>,
    interface: Option<String>,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fast_open: bool,
}

const KEEPALIVE: Duration = Duration::from_secs(15);
const USER_TIMEOUT: Duration = Duration::from_secs(30);

impl Default for TcpTransport {
    fn default() -> Self {
        Self {
            nodelay: true,
            keepalive: Some(KEEPALIVE),
            user_timeout: Some(USER_TIMEOUT),
            send_buffer: None,
            receive_buffer: None,
            local_v4: None,
            local_v6: None,
            interface: None,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            fast_open: false,
        }
    }
}

impl TcpTransport {
    /// TCP with the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether small writes go out at once, rather than being gathered (Nagle's algorithm, RFC 896). They do by default.
    pub fn nodelay(mut self, nodelay: bool) -> Self {
        self.nodelay = nodelay;
        self
    }

    /// After how long a silence the peer is probed, and how long after a probe comes the next one; after three the
    /// connection is given up. 15 s by default, `None` for never.
    pub fn keepalive(mut self, keepalive: Option<Duration>) -> Self {
        self.keepalive = keepalive;
        self
    }

    /// How long what was sent may go unacknowledged before the connection is given up (RFC 5482; Linux alone). 30 s by
    /// default, `None` for the system's own, which is a quarter of an hour or so. A peer that acknowledges and takes no more
    /// is not given up: that it reads slowly, or not at all, is for the limits of requests.
    pub fn user_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.user_timeout = timeout;
        self
    }

    /// The size of the socket's send buffer in bytes. The system's own choice by default, which adapts.
    pub fn send_buffer_size(mut self, bytes: u32) -> Self {
        self.send_buffer = Some(bytes);
        self
    }

    /// The size of the socket's receive buffer in bytes. The system's own choice by default, which adapts.
    pub fn receive_buffer_size(mut self, bytes: u32) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// The address connections come from; one of each family can be set. A connection to the other family's addresses comes
    /// from wherever the system likes.
    pub fn local_address(mut self, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => self.local_v4 = Some(ip),
            IpAddr::V6(ip) => self.local_v6 = Some(ip),
        }
        self
    }

    /// The network interface connections go through (`SO_BINDTODEVICE`; Linux alone).
    #[cfg(target_os = "linux")]
    pub fn interface(mut self, name: impl Into<String>) -> Self {
        self.interface = Some(name.into());
        self
    }

    /// Whether the first bytes go out with the connection's first packet, to servers that have allowed it before (TCP Fast
    /// Open, RFC 7413; Linux alone, where the kernel has it). Off by default, for two reasons: a network that doubles that
    /// packet may show the server a request twice (§2.1), and to such a server an address counts as connected before a packet
    /// was sent, so the race cannot tell whether it is there, nor does anybody remember that it was not.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn fast_open(mut self, fast_open: bool) -> Self {
        self.fast_open = fast_open;
        self
    }

    fn local(&self, address: SocketAddr) -> Option<IpAddr> {
        match address {
            SocketAddr::V4(_) => self.local_v4.map(Into::into),
            SocketAddr::V6(_) => self.local_v6.map(Into::into),
        }
    }

    /// What has to be so before the connection is made. Unlike the options that are set later, these change where packets go, so
    /// a system that cannot do it refuses the connection.
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
            // A kernel without it connects as ever.
            let _ = nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::TcpFastOpenConnect, &true);
        }
        match self.local(address) {
            Some(ip) => socket.bind(SocketAddr::new(ip, 0)),
            None => Ok(()),
        }
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        self.bind(&socket, address)?;
        socket.connect(address).await
    }

    /// What is set as it begins to matter.
    fn pending(&self) -> Pending {
        Pending::new(self.nodelay, self.keepalive, self.user_timeout)
    }
}

impl Transport for TcpTransport {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            let stream = self.dial(address).await?;
            Ok(Box::new(Tcp::new(stream, self.pending())) as Box<dyn Stream>)
        })
    }

    /// Connects a UDP socket, which sends nothing and asks the routing table.
    fn source_of(&self, address: SocketAddr) -> Option<io::Result<IpAddr>> {
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let probe = || {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
            #[cfg(target_os = "linux")]
            if let Some(interface) = &self.interface {
                socket.bind_device(Some(interface.as_bytes()))?;
            }
            socket.bind(&SocketAddr::new(self.local(address).unwrap_or(any), 0).into())?;
            socket.connect(&address.into())?;
            let local = socket.local_addr()?.as_socket();
            Ok(local.ok_or(io::ErrorKind::AddrNotAvailable)?.ip())
        };
        Some(probe())
    }
}

/// A TCP stream that can be looked at from outside while somebody reads from it.
struct Tcp {
    read: OwnedReadHalf,
    /// Shared with whoever looks, who keeps it only for that moment.
    write: Option<Arc<OwnedWriteHalf>>,
    options: Pending,
}

impl Tcp {
    fn new(stream: TcpStream, options: Pending) -> Self {
        let (read, write) = stream.into_split();
        Self { read, write: Some(Arc::new(write)), options }
    }

    fn poll_try<T>(
        &mut self,
        cx: &mut Context<'_>,
        bytes: usize,
        attempt: impl Fn(&OwnedWriteHalf) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let write = self.write.as_ref().expect("taken by drop alone");
        let stream: &TcpStream = write.as_ref().as_ref();
        self.options.before_write(bytes, || stream.into());
        loop {
            match attempt(write) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match stream.poll_write_ready(cx) {
                    Poll::Ready(ready) => ready?,
                    Poll::Pending => {
                        self.options.poll_silence(cx, Waits::ToWrite, || stream.into());
                        return Poll::Pending;
                    }
                },
                done => {
                    self.options.after_write(cx, || stream.into());
                    return Poll::Ready(done);
                }
            }
        }
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        // The socket closes right after, so it need not be shut down first.
        if let Some(write) = self.write.take().and_then(Arc::into_inner) {
            write.forget();
        }
    }
}

impl AsyncRead for Tcp {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { read, options, .. } = &mut *self;
        let polled = Pin::new(&mut *read).poll_read(cx, buf);
        if polled.is_pending() {
            options.poll_silence(cx, Waits::ToRead, || read.as_ref().into());
        }
        polled
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(cx, buf.len(), |write| write.try_write(buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        self.poll_try(cx, bytes, |write| write.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(self.read.as_ref()).shutdown(std::net::Shutdown::Write))
    }
}

/// Looks at a TCP socket that belongs to somebody else, without keeping it open.
#[derive(Debug)]
pub(crate) struct Probe(Weak<OwnedWriteHalf>);

/// What a look at a socket shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// Nothing: it is as it was.
    Quiet,
    /// There are bytes nobody has read yet.
    Unread,
    /// The peer has closed it, or it is broken.
    Closed,
}

impl Probe {
    /// For a stream that is TCP's own.
    pub(crate) fn of(stream: &dyn Stream) -> Option<Self> {
        let tcp = (stream as &dyn Any).downcast_ref::<Tcp>()?;
        tcp.write.as_ref().map(|write| Self(Arc::downgrade(write)))
    }

    /// Returns true if the peer is known to have acknowledged all that was written.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.0.upgrade().is_some_and(|socket| is_acknowledged(&SockRef::from(socket.as_ref().as_ref())))
    }

    /// Peeks at what there is to read.
    pub(crate) fn look(&self) -> Liveness {
        let Some(socket) = self.0.upgrade() else { return Liveness::Closed };
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(socket.as_ref().as_ref()).peek(&mut byte) {
            Ok(0) => Liveness::Closed,
            Ok(_) => Liveness::Unread,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Liveness::Quiet,
            Err(_) => Liveness::Closed,
        }
    }
}

/// The first wait before another connect to a Unix domain socket whose backlog is full. It doubles each time.
#[cfg(unix)]
const FIRST_BACKOFF: Duration = Duration::from_millis(1);
/// The longest of these waits.
#[cfg(unix)]
const LONGEST_BACKOFF: Duration = Duration::from_millis(50);

/// Connects to a Unix domain socket, and tries again while its backlog is full. Dropping the future gives it up.
///
/// Over TCP the kernel repeats the SYN. To a Unix domain socket Linux answers EAGAIN at once (connect(2)), and does not
/// signal when the backlog has room again. Other systems answer ECONNREFUSED, as they do where no process listens.
#[cfg(unix)]
pub(crate) async fn connect_unix(path: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    let mut longest = FIRST_BACKOFF;
    loop {
        match tokio::net::UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            connected => return Ok(Box::new(connected?)),
        }
        // Dials that were turned away together do not come back together.
        let wait = longest / 2 + (longest / 2).mul_f64(fastrand::f64());
        sleep_until(now().checked_add(wait)).await;
        longest = (longest * 2).min(LONGEST_BACKOFF);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn the_source_of_loopback_is_loopback() {
        let source = TcpTransport::new().source_of(([127, 0, 0, 1], 80).into()).unwrap().unwrap();
        assert!(source.is_loopback());
    }

    #[tokio::test]
    async fn options_are_what_was_asked_for() {
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

    #[tokio::test]
    async fn a_probe_sees_what_the_reader_has_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpTransport::new().connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let probe = Probe::of(&*stream).unwrap();
        assert_eq!(probe.look(), Liveness::Quiet);
        peer.write_all(b"unasked").await.unwrap();
        assert_eq!(probe.look(), Liveness::Unread);
        drop(stream);
        assert_eq!(probe.look(), Liveness::Closed, "it keeps nothing open");
        let stream = TcpTransport::new().connect(listener.local_addr().unwrap()).await.unwrap();
        drop(listener.accept().await.unwrap());
        assert_eq!(Probe::of(&*stream).unwrap().look(), Liveness::Closed);
        let (other, _) = tokio::io::duplex(1);
        assert!(Probe::of(&other).is_none());
    }

    #[tokio::test]
    async fn it_reads_and_writes_and_says_that_it_is_done() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpTransport::new().connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let sent = vec![7; 8 * 1024 * 1024];
        let echo = tokio::spawn(async move {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).await.unwrap();
            peer.write_all(b"done").await.unwrap();
            all
        });
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!((answer.as_slice(), echo.await.unwrap()), (&b"done"[..], sent));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_unix_socket_with_a_full_backlog_is_tried_again_until_it_has_room() {
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
        assert!(connect_unix(&path).await.is_err(), "what is not there is not waited for");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_interface_that_is_not_there_refuses_the_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert!(TcpTransport::new().interface("no-such-one").connect(address).await.is_err());
        // Without the right to choose an interface the system says so; with it, loopback leads to loopback.
        match TcpTransport::new().interface("lo").connect(address).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
