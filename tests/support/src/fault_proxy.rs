//! A relay on loopback that delays, splits, cuts, resets, corrupts and stalls connections by a [script](crate::fault_script) for each,
//! below TLS or above it. Its clients connect by a [`fault_transport`](crate::fault_transport).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::fault_script::{Direction, Fault, Opening, Pace, Script, Strike, Tag};
use super::fault_transport::{ScriptOf, Strikes, Struck};
use super::process::accept;

/// The time after which a stalled connection is reset at last, so that a long run does not gather them. A call that waits for as long
/// as that hangs.
const LONGEST_STALL: Duration = Duration::from_secs(60);
/// The time for which the proxy reads on after its FIN, because closing a socket with unread bytes would be a RST.
const LINGER: Duration = Duration::from_millis(500);

/// The relay. It runs until its runtime ends.
pub struct FaultProxy {
    address: SocketAddr,
}

/// What all connections of a proxy have in common.
struct Shared {
    address: SocketAddr,
    server: SocketAddr,
    /// The TLS that the proxy speaks with clients. Its faults are then above TLS.
    tls: Option<TlsAcceptor>,
    script_of: ScriptOf,
    strikes: Strikes,
}

impl FaultProxy {
    /// Starts a relay to `server`, which gets the [`Tag`] of each connection as its first bytes. With `tls` the proxy speaks TLS with
    /// clients, and passes the plain text on.
    pub async fn start(
        server: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        script_of: ScriptOf,
        strikes: Strikes,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { address, server, tls: tls.map(TlsAcceptor::from), script_of, strikes });
        tokio::spawn(async move {
            loop {
                let socket = accept(&listener).await;
                let shared = shared.clone();
                tokio::spawn(async move { serve(socket, &shared).await });
            }
        });
        Self { address }
    }

    /// The address at which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(mut socket: TcpStream, shared: &Shared) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut tag = [0; Tag::LENGTH];
    socket.read_exact(&mut tag).await?;
    let (bytes, tag) = (tag, Tag::from_bytes(tag));
    let script = (shared.script_of)(shared.address, tag);
    if let Opening::SlowAccept(after) = script.opening {
        sleep(after).await;
    }
    let client = match &shared.tls {
        Some(tls) => Side::Tls(Box::new(tls.accept(socket).await?)),
        None => Side::Plain(socket),
    };
    let mut server = TcpStream::connect(shared.server).await?;
    server.set_nodelay(true)?;
    server.write_all(&bytes).await?;
    relay(client, server, &script, || shared.strikes.record(shared.address, tag, Struck::Fault)).await;
    Ok(())
}

/// The end of one direction.
enum End {
    /// The sender closed it, or the fault is its end.
    Closed,
    /// A side is gone.
    Broken,
    /// The fault ends the connection.
    Struck(Fault),
}

/// Passes bytes on in both directions until both are closed, or the script's fault ends the connection.
async fn relay(client: Side, server: TcpStream, script: &Script, on_strike: impl Fn()) {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(Side::Plain(server));
    let strike = |direction| script.strike.filter(|strike| strike.direction == direction);
    let (freeze, frozen) = watch::channel(None);
    let flow = |direction: Direction| Flow {
        pace: script.pace[direction as usize],
        strike: strike(direction),
        freeze: &freeze,
        frozen: frozen.clone(),
        on_strike: &on_strike,
        passed: 0,
    };
    let (mut up, mut down) = (flow(Direction::Up), flow(Direction::Down));
    let end = {
        let up = up.pass_on(&mut from_client, &mut to_server);
        let down = down.pass_on(&mut from_server, &mut to_client);
        tokio::pin!(up, down);
        match tokio::select! { end = &mut up => (end, true), end = &mut down => (end, false) } {
            (End::Closed, true) => down.await,
            (End::Closed, false) => up.await,
            (end, _) => end,
        }
    };
    let client = from_client.unsplit(to_client);
    let server = from_server.unsplit(to_server);
    match end {
        End::Struck(Fault::Reset) => [client, server].iter().for_each(Side::reset_when_dropped),
        End::Struck(Fault::Fin) => drop(tokio::join!(client.close(true), server.close(true))),
        End::Struck(_) => drop(tokio::join!(client.close(false), server.close(false))),
        End::Closed | End::Broken => {}
    }
}

/// One direction of a connection.
struct Flow<'a, F> {
    pace: Pace,
    strike: Option<Strike>,
    /// Stops both directions, for a while or forever.
    freeze: &'a watch::Sender<Option<Duration>>,
    frozen: watch::Receiver<Option<Duration>>,
    on_strike: &'a F,
    passed: u64,
}

impl<F: Fn()> Flow<'_, F> {
    async fn pass_on(&mut self, from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> End {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            if let Some(end) = self.strike_if_due(to).await {
                return end;
            }
            let room = self.next_piece().min(buffer.len());
            let read = loop {
                tokio::select! {
                    biased;
                    _ = self.frozen.changed() => self.wait_while_frozen().await,
                    read = from.read(&mut buffer[..room]) => break read,
                }
            };
            let Ok(length) = read else { return End::Broken };
            if length == 0 {
                // The other side may have more to say.
                return if to.shutdown().await.is_ok() { End::Closed } else { End::Broken };
            }
            let piece = &mut buffer[..length];
            if let Some(Strike { at, fault: Fault::Flip, .. }) = self.strike
                && at == self.passed
            {
                (self.on_strike)();
                piece[0] ^= 1 << (at % 7);
                self.strike = None;
            }
            if to.write_all(piece).await.is_err() || to.flush().await.is_err() {
                return End::Broken;
            }
            if self.passed < self.pace.first && !self.pace.wait.is_zero() {
                sleep(self.pace.wait).await;
            }
            self.passed += length as u64;
        }
    }

    /// Returns the most bytes that go together: not beyond the place of the fault.
    fn next_piece(&self) -> usize {
        let piece = if self.passed < self.pace.first { self.pace.piece } else { usize::MAX };
        match self.strike {
            Some(strike) if strike.at > self.passed => piece.min((strike.at - self.passed) as usize),
            _ => piece,
        }
    }

    /// Does what the fault is, if its place has come. A byte that is turned over waits for that byte.
    async fn strike_if_due(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> Option<End> {
        let strike = self.strike.filter(|strike| strike.at == self.passed && strike.fault != Fault::Flip)?;
        self.strike = None;
        (self.on_strike)();
        match strike.fault {
            Fault::HalfClose => {
                let _ = to.shutdown().await;
                return Some(End::Closed);
            }
            Fault::Stall => {
                sleep(LONGEST_STALL).await;
                return Some(End::Struck(Fault::Reset));
            }
            Fault::StallBoth => {
                self.freeze.send_replace(Some(LONGEST_STALL));
                self.wait_while_frozen().await;
                return Some(End::Struck(Fault::Reset));
            }
            Fault::Pause(length) => {
                self.freeze.send_replace(Some(length));
                self.wait_while_frozen().await;
                return None;
            }
            _ => {}
        }
        Some(End::Struck(strike.fault))
    }

    async fn wait_while_frozen(&mut self) {
        let length = *self.frozen.borrow_and_update();
        sleep(length.unwrap_or_default()).await;
    }
}

/// A connection to the client or to the server.
enum Side {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Side {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }

    fn reset_when_dropped(&self) {
        let _ = SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO));
    }

    /// Sends a FIN, after a close_notify if `politely`, and reads on for a moment.
    async fn close(mut self, politely: bool) {
        let closed = async {
            match &mut self {
                Self::Tls(tls) if politely => drop(tls.shutdown().await),
                side => drop(SockRef::from(side.tcp()).shutdown(std::net::Shutdown::Write)),
            }
            let mut rest = [0; 1024];
            loop {
                let read = match &mut self {
                    Self::Plain(tcp) => tcp.read(&mut rest).await,
                    Self::Tls(tls) => tls.get_mut().0.read(&mut rest).await,
                };
                if !matches!(read, Ok(1..)) {
                    return;
                }
            }
        };
        let _ = timeout(LINGER, closed).await;
    }
}

impl AsyncRead for Side {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Side {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
