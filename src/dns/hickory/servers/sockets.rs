//! The sockets over which DNS servers are asked, and the streams that notice what passes.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::{BoxFuture, FutureExt, poll_fn};
use hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_resolver::net::runtime::{
    DnsUdpSocket, RuntimeProvider, Spawn, TokioHandle, TokioRuntimeProvider, TokioTime,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UdpSocket;

use crate::world::{self, ReadWrite, Udp};

type Opening<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

/// Opens the sockets to one server. Unlike hickory's own, UDP sockets are connected, so that a closed port is noticed, and all
/// sockets use the network interface that the server's address names.
#[derive(Clone)]
pub(in crate::dns::hickory) struct Sockets {
    tokio: TokioRuntimeProvider,
    /// The index of the network interface; zero for none in particular.
    scope: u32,
    /// The state of one connection over TCP or TLS, which its stream and its task share.
    watch: Option<Watch>,
}

impl Sockets {
    pub(in crate::dns::hickory) fn new(server: SocketAddr) -> Self {
        let scope = if let SocketAddr::V6(address) = server { address.scope_id() } else { 0 };
        Self { tokio: TokioRuntimeProvider::default(), scope, watch: None }
    }

    /// Returns the sockets of one connection over TCP or TLS, whose task leaves nothing unread.
    pub(super) fn of_a_connection(&self) -> Self {
        Self { watch: Some(Watch::default()), ..self.clone() }
    }

    /// Adds the network interface to the address of the server.
    fn scoped(&self, mut server: SocketAddr) -> SocketAddr {
        if let SocketAddr::V6(address) = &mut server
            && self.scope != 0
        {
            address.set_scope_id(self.scope);
        }
        server
    }
}

impl RuntimeProvider for Sockets {
    type Handle = Tasks;
    type Timer = TokioTime;
    type Udp = ConnectedUdp;
    type Tcp = AsyncIoTokioAsStd<WatchedDnsStream>;

    fn create_handle(&self) -> Self::Handle {
        Tasks { tokio: self.tokio.create_handle(), watch: self.watch.clone() }
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Opening<Self::Tcp> {
        let watch = self.watch.clone().unwrap_or_default();
        #[cfg(feature = "__simulation")]
        if let Some(connecting) = world::simulated_tcp(server) {
            // As long as hickory's own waits.
            let connecting = tokio::time::timeout(timeout.unwrap_or(Duration::from_secs(5)), connecting);
            let connecting = connecting.map(|connected| connected.unwrap_or(Err(io::ErrorKind::TimedOut.into())));
            return connecting.map_ok(|stream| AsyncIoTokioAsStd(WatchedDnsStream { stream, watch })).boxed();
        }
        let connecting = self.tokio.connect_tcp(self.scoped(server), local, timeout);
        let watched = |stream| WatchedDnsStream { stream: Box::new(stream), watch };
        connecting.map_ok(|stream| AsyncIoTokioAsStd(watched(stream.0))).boxed()
    }

    fn bind_udp(&self, local: SocketAddr, server: SocketAddr) -> Opening<Self::Udp> {
        let scoped = self.scoped(server);
        Box::pin(async move {
            let socket = world::bind_udp(local, scoped).await?;
            Ok(ConnectedUdp { socket, server })
        })
    }
}

/// Spawns hickory's futures as tasks of one type, because tokio's code is compiled anew for each type.
#[derive(Clone)]
pub(in crate::dns::hickory) struct Tasks {
    tokio: TokioHandle,
    watch: Option<Watch>,
}

impl Spawn for Tasks {
    fn spawn_bg(&mut self, future: impl Future<Output = ()> + Send + 'static) {
        let task = future.boxed();
        self.tokio.spawn_bg(match self.watch.clone() {
            Some(watch) => watch.read_on(task),
            None => task,
        });
    }
}

/// A UDP socket that is connected to a server. The system passes on packets from there only, and the errors of a closed port.
pub(in crate::dns::hickory) struct ConnectedUdp {
    socket: Udp,
    /// The address without a network interface, with which hickory compares the sender of a packet.
    server: SocketAddr,
}

/// Receives a packet, or the error that came instead of one. tokio does not count an error as something to read.
///
/// A router or the server's machine may refuse the question by ICMP. That counts as a closed port, and not as a failure of this machine.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
    let received = match socket.try_recv(buffer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(socket.take_error()?.unwrap_or(error)),
        received => received,
    };
    received.map_err(|error| match error.kind() {
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::PermissionDenied => {
            io::Error::new(io::ErrorKind::ConnectionRefused, error.to_string())
        }
        _ => error,
    })
}

impl DnsUdpSocket for ConnectedUdp {
    type Time = TokioTime;

    // Written out as `async_trait` would do it, because this is the only such method.
    fn recv_from<'life0, 'life1, 'async_trait>(
        &'life0 self,
        buffer: &'life1 mut [u8],
    ) -> Pin<Box<dyn Future<Output = io::Result<(usize, SocketAddr)>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            // Without an interest in errors, the task would not be woken when the port turns out to be closed.
            let interest = Interest::READABLE | Interest::ERROR;
            let length = match &self.socket {
                Udp::Real(socket) => socket.async_io(interest, || receive(socket, buffer)).await?,
                #[cfg(feature = "__simulation")]
                Udp::Simulated(socket) => poll_fn(|cx| socket.poll_receive(cx, buffer)).await?,
            };
            Ok((length, self.server))
        })
    }

    fn poll_recv_from(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        match &self.socket {
            Udp::Real(socket) => DnsUdpSocket::poll_recv_from(socket, cx, buffer),
            #[cfg(feature = "__simulation")]
            Udp::Simulated(socket) => socket.poll_receive(cx, buffer).map_ok(|length| (length, self.server)),
        }
    }

    fn poll_send_to(&self, cx: &mut Context<'_>, packet: &[u8], _: SocketAddr) -> Poll<io::Result<usize>> {
        match &self.socket {
            Udp::Real(socket) => socket.poll_send(cx, packet),
            #[cfg(feature = "__simulation")]
            Udp::Simulated(socket) => Poll::Ready(socket.send(packet)),
        }
    }
}

/// The stream of a connection to one server. Over HTTPS no task acts on its watch.
pub(in crate::dns::hickory) struct WatchedDnsStream {
    pub(super) stream: Box<dyn ReadWrite>,
    pub(super) watch: Watch,
}

/// The state of a connection's reads and writes. Its stream sets it, and the task that reads the stream acts on it.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<WatchState>);

#[derive(Default)]
struct WatchState {
    /// True from a read of some bytes until a read that finds none: TLS may hold more of them than were taken.
    may_have_more: AtomicBool,
    /// True if the last write in this poll of the task waits.
    write_waits: AtomicBool,
}

impl Watch {
    /// Polls a connection's task again for as long as it stops with something left to read.
    ///
    /// hickory-net 0.26.3 takes at most 100 answers in a poll, and does not wake itself for the others, which TLS may hold
    /// decrypted. (Over TCP it never comes to 100: an answer takes two reads, and tokio allows 128 in a poll.) While a write
    /// waits, hickory reads nothing, and the write wakes the task.
    pub(super) fn read_on(self, mut task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let read_on = poll_fn(move |cx| {
            self.0.write_waits.store(false, Ordering::Relaxed);
            let polled = task.as_mut().poll(cx);
            let write_waits = self.0.write_waits.load(Ordering::Relaxed);
            if polled.is_pending() && !write_waits && self.0.may_have_more.load(Ordering::Relaxed) {
                cx.waker().wake_by_ref();
            }
            polled
        });
        read_on.boxed()
    }

    fn note_write<T>(&self, polled: Poll<T>) -> Poll<T> {
        self.0.write_waits.store(polled.is_pending(), Ordering::Relaxed);
        polled
    }
}

impl AsyncRead for WatchedDnsStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.watch.0.may_have_more.store(buf.filled().len() > before, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for WatchedDnsStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.watch.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_closed_port_is_noticed() {
        // A socket that is connected elsewhere keeps the port, and receives none of these packets.
        let closed = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        closed.connect((Ipv4Addr::LOCALHOST, 9)).unwrap();
        let server = closed.local_addr().unwrap();
        let socket = Sockets::new(server).bind_udp((Ipv4Addr::LOCALHOST, 0).into(), server).await.unwrap();
        socket.send_to(b"?", server).await.unwrap();
        let error = socket.recv_from(&mut [0; 16]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn only_packets_from_the_server_are_received() {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let server = bind().await.unwrap();
        let other = bind().await.unwrap();
        let address = server.local_addr().unwrap();
        let socket = Sockets::new(address).bind_udp((Ipv4Addr::LOCALHOST, 0).into(), address).await.unwrap();
        socket.send_to(b"?", address).await.unwrap();
        let (_, client) = server.recv_from(&mut [0; 16]).await.unwrap();
        other.send_to(b"lie", client).await.unwrap();
        server.send_to(b"truth", client).await.unwrap();
        let mut buffer = [0; 16];
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        assert_eq!((&buffer[..length], from), (&b"truth"[..], address));
    }

    #[test]
    fn the_scope_of_the_server_is_added_to_its_address() {
        let [server, scoped, v4]: [SocketAddr; 3] =
            ["[fe80::1]:53", "[fe80::1%7]:53", "192.0.2.1:53"].map(|address| address.parse().unwrap());
        assert_eq!(Sockets::new(scoped).scoped(server), scoped);
        assert_eq!(Sockets::new(server).scoped(server), server);
        assert_eq!(Sockets::new(scoped).scoped(v4), v4);
    }
}

#[cfg(test)]
mod watched_stream_tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::yield_now;

    use super::*;

    /// Returns a stream, its watch, and a peer that has sent 500 bytes and reads nothing.
    async fn stream() -> (WatchedDnsStream, Watch, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (stream, (mut peer, _)) = (stream.unwrap(), accepted.unwrap());
        peer.write_all(&[1; 500]).await.unwrap();
        let watch = Watch::default();
        (WatchedDnsStream { stream: Box::new(stream), watch: watch.clone() }, watch, peer)
    }

    #[tokio::test]
    async fn a_task_that_stops_after_each_read_reads_everything() {
        let (mut stream, watch, _peer) = stream().await;
        let read = Arc::new(AtomicUsize::new(0));
        let seen = read.clone();
        let task = poll_fn(move |cx| {
            if Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut [0])).is_ready() {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            Poll::Pending
        });
        tokio::spawn(watch.read_on(task.boxed()));
        let all = async {
            while read.load(Ordering::Relaxed) < 500 {
                yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
    }

    #[tokio::test]
    async fn a_task_that_waits_to_write_is_not_polled_in_vain() {
        let (mut stream, watch, _peer) = stream().await;
        let waits = Arc::new(AtomicUsize::new(0));
        let seen = waits.clone();
        let mut has_read = false;
        let task = poll_fn(move |cx| {
            has_read = has_read || Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut [0])).is_ready();
            if has_read {
                while Pin::new(&mut stream).poll_write(cx, &[0; 64 * 1024]).is_ready() {}
                seen.fetch_add(1, Ordering::Relaxed);
            }
            Poll::Pending
        });
        tokio::spawn(watch.read_on(task.boxed()));
        let waited = async {
            while waits.load(Ordering::Relaxed) == 0 {
                yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap();
        for _ in 0..1_000 {
            yield_now().await;
        }
        let waits = waits.load(Ordering::Relaxed);
        assert!(waits < 100, "it waited {waits} times");
    }
}
