//! Socket options that are set when they begin to matter: a connection that is over before has not paid for them.

use std::num::NonZeroU32;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::runtime::Handle;
use tokio::task::coop::has_budget_remaining;

use crate::clock::{Instant, Timer, now};

const KEEPALIVE_PROBES: u32 = 3;

/// What a first write may have without waiting for anything: the size of segment that everybody takes (RFC 9293 §3.7.1).
/// Of a longer one, Nagle's algorithm might keep the end back.
const SHORT: usize = 536;

/// The most bytes that the kernel keeps unsent once a connection has sent more than a few. Left to itself it keeps four
/// times as many, for which a slow peer takes minutes in which no write makes progress; with fewer, uploads to fast peers
/// are slower.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MAX_UNSENT: u32 = 1024 * 1024;

/// So many bytes are sent before that is limited.
const FEW: u32 = 64 * 1024;

/// What is still to be set on a socket. An option that the system does not know is no reason to do without the connection.
pub(super) struct Pending {
    nodelay: bool,
    has_written: bool,
    /// How many bytes are left to be written before the kernel's buffer is limited; `None` once it is.
    unlimited: Option<u32>,
    for_silence: Option<ForSilence>,
}

/// Options about peers that fall silent.
struct ForSilence {
    keepalive: Option<Millis>,
    user_timeout: Option<Millis>,
    stage: Stage,
    /// When to look at the socket next; `None` where there is nothing to look at.
    at: Option<Instant>,
    timer: Timer,
    /// Whom the timer wakes.
    waker: Option<(Waits, Waker)>,
}

/// How far the options about silence are set.
#[derive(Clone, Copy)]
enum Stage {
    Unset,
    /// They are set, and what is written is followed.
    Set {
        /// True if something was written since the last look.
        written: bool,
        /// True while the user timeout is off, because the peer answers and takes nothing.
        lifted: bool,
    },
}

/// As much as an option can be, in half the room: every connection has it.
type Millis = NonZeroU32;

fn millis(time: Duration) -> Millis {
    Millis::new(time.as_millis().try_into().unwrap_or(u32::MAX)).unwrap_or(Millis::MIN)
}

fn duration(time: Millis) -> Duration {
    Duration::from_millis(time.get().into())
}

impl Pending {
    pub(super) fn new(nodelay: bool, keepalive: Option<Duration>, user_timeout: Option<Duration>) -> Self {
        // None at all is what the system takes it for.
        let user_timeout = user_timeout.filter(|timeout| cfg!(target_os = "linux") && timeout.as_millis() > 0);
        let (keepalive, user_timeout) = (keepalive.map(millis), user_timeout.map(millis));
        let for_silence = (keepalive.is_some() || user_timeout.is_some()).then(|| ForSilence {
            keepalive,
            user_timeout,
            stage: Stage::Unset,
            at: None,
            timer: Timer::default(),
            waker: None,
        });
        Self { nodelay, has_written: false, unlimited: Some(FEW), for_silence }
    }

    /// True if no timer runs and none will before the next write.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.for_silence.as_ref().is_none_or(ForSilence::is_at_rest)
    }

    /// Before so many bytes are written. Nagle's algorithm keeps back only what follows something unacknowledged.
    pub(super) fn before_write<'a>(&mut self, bytes: usize, socket: impl Fn() -> SockRef<'a>) {
        if self.nodelay && (self.has_written || bytes > SHORT) {
            self.nodelay = false;
            let _ = socket().set_tcp_nodelay(true);
        }
        self.has_written = true;
        if let Some(left) = self.unlimited {
            self.unlimited = left.checked_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
            #[cfg(any(target_os = "linux", target_os = "android"))]
            if self.unlimited.is_none() {
                let _ = socket().set_tcp_notsent_lowat(MAX_UNSENT);
            }
        }
        if let Some(ForSilence { stage: Stage::Set { written, .. }, .. }) = &mut self.for_silence {
            *written = true;
        }
    }

    /// After something was written: sees to it that it is followed. Its writer may wait for nothing more than an answer, and may
    /// have asked for that before it wrote.
    pub(super) fn after_write<'a>(&mut self, cx: &mut Context<'_>, socket: impl FnOnce() -> SockRef<'a>) {
        let is_rested = self
            .for_silence
            .as_ref()
            .is_some_and(|for_silence| for_silence.at.is_none() && matches!(for_silence.stage, Stage::Set { .. }));
        if is_rested {
            self.poll_silence(cx, Waits::ToWrite, socket);
        }
    }

    /// While there is something to be read or written that takes its time: sets what is about silence, once there may have
    /// been one, and looks after the user timeout from then on.
    pub(super) fn poll_silence<'a>(
        &mut self,
        cx: &mut Context<'_>,
        waits: Waits,
        socket: impl FnOnce() -> SockRef<'a>,
    ) {
        let Some(for_silence) = &mut self.for_silence else { return };
        if for_silence.poll(cx, waits).is_pending() {
            return;
        }
        if for_silence.look(&socket()) {
            // The timer is set to the next look.
            let _ = for_silence.poll(cx, waits);
        } else {
            self.for_silence = None;
        }
    }
}

/// What a task waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    ToRead,
    ToWrite,
}

impl ForSilence {
    /// Ready long before the first of them makes a difference: on Linux they all count from the last packet, not from when they are
    /// set. Elsewhere, and outside of a runtime, it is ready at once.
    fn poll(&mut self, cx: &mut Context<'_>, waits: Waits) -> Poll<()> {
        // Without a budget there is another turn soon, and no timer until then.
        if self.is_at_rest() || !has_budget_remaining() {
            return Poll::Pending;
        }
        match &self.waker {
            Some((_, waker)) if self.at.is_some() && waker.will_wake(cx.waker()) && !self.timer.is_elapsed() => {
                return Poll::Pending;
            }
            // A task that reads, another one that writes: whichever has the timer may go away with it.
            Some((others, waker))
                if matches!(self.stage, Stage::Unset) && *others != waits && !waker.will_wake(cx.waker()) =>
            {
                return Poll::Ready(());
            }
            _ => {}
        }
        if !cfg!(target_os = "linux") || Handle::try_current().is_err() {
            return Poll::Ready(());
        }
        let first = match self.stage {
            Stage::Unset => self.keepalive.into_iter().chain(self.user_timeout).min(),
            Stage::Set { .. } => self.user_timeout,
        };
        let period = first.map_or(Duration::ZERO, duration) / 2;
        let at = *self.at.get_or_insert_with(|| now() + period);
        self.waker = Some((waits, cx.waker().clone()));
        self.timer.poll_until(cx, at)
    }

    /// True if the options are set, and nothing that was written may be on its way.
    fn is_at_rest(&self) -> bool {
        self.at.is_none() && matches!(self.stage, Stage::Set { written: false, lifted: false })
    }

    /// Sets what is due. Returns false if that was all there will be to do.
    fn look(&mut self, socket: &SockRef<'_>) -> bool {
        self.at = None;
        if matches!(self.stage, Stage::Unset) {
            self.set(socket);
            self.stage = Stage::Set { written: true, lifted: false };
        }
        #[cfg(target_os = "linux")]
        if let Some(timeout) = self.user_timeout.map(duration)
            && Handle::try_current().is_ok()
        {
            self.follow(socket, timeout);
            return true;
        }
        false
    }

    /// Lifts the user timeout while the peer answers and takes nothing: Linux counts the time for which a window is closed,
    /// though the peer acknowledges each probe of it, and RFC 9293 §3.8.6.1 wants such a connection to stay open.
    #[cfg(target_os = "linux")]
    fn follow(&mut self, socket: &SockRef<'_>, timeout: Duration) {
        let Stage::Set { written, lifted: was_lifted } = self.stage else { return };
        let sending = sending::Sending::of(socket);
        let lifted = sending.as_ref().is_some_and(sending::Sending::is_held);
        if lifted != was_lifted {
            let _ = socket.set_tcp_user_timeout((!lifted).then_some(timeout));
        }
        let under_way = lifted || sending.is_some_and(|sending| sending.is_under_way());
        // A window that has just closed is not known to be closed before it was probed: one more look after the last write.
        self.stage = Stage::Set { written: false, lifted };
        self.at = (written || under_way).then(|| now() + timeout / 2);
    }

    fn set(&self, socket: &SockRef<'_>) {
        if let Some(every) = self.keepalive.map(duration) {
            let mut keepalive = TcpKeepalive::new().with_time(every).with_interval(every);
            // Where there is a user timeout, Linux goes by that and counts no probes (RFC 5482 §4.1).
            if self.user_timeout.is_none() {
                keepalive = keepalive.with_retries(KEEPALIVE_PROBES);
            }
            let _ = socket.set_tcp_keepalive(&keepalive);
        }
        #[cfg(target_os = "linux")]
        if let Some(timeout) = self.user_timeout.map(duration) {
            let _ = socket.set_tcp_user_timeout(Some(timeout));
        }
    }
}

/// Returns true if the peer is known to have acknowledged all that was written to a socket.
pub(super) fn is_acknowledged(socket: &SockRef<'_>) -> bool {
    #[cfg(target_os = "linux")]
    {
        sending::Sending::of(socket).is_some_and(|sending| !sending.is_under_way())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        false
    }
}

/// What Linux knows of the bytes that a socket has to send.
#[cfg(target_os = "linux")]
mod sending {
    use nix::libc;
    use nix::sys::socket::{getsockopt, sockopt};
    use socket2::{SockRef, Socket};

    /// The part of Linux's `struct tcp_info` that every kernel has, in words.
    type Info = [u32; 26];

    #[derive(Clone, Copy)]
    struct TcpInfo;

    nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, Info, sockopt::GetStruct<Info>);

    #[derive(Debug, Clone, Copy)]
    pub(super) struct Sending {
        /// Probes of a closed window that the peer has not acknowledged.
        pub(super) probes: u8,
        /// How often the time between retransmissions, or between probes, was doubled.
        pub(super) backoff: u8,
        /// Segments sent and not acknowledged.
        pub(super) unacked: u32,
        /// Milliseconds since data was last sent.
        pub(super) last_sent: u32,
        /// Milliseconds since the peer last acknowledged anything.
        pub(super) last_acked: u32,
    }

    /// So many probes may get lost on their way, or their answers.
    const LOST_PROBES: u8 = 3;

    impl Sending {
        /// Asks the kernel.
        pub(super) fn of(socket: &SockRef<'_>) -> Option<Self> {
            let socket: &Socket = socket;
            let info = getsockopt(socket, TcpInfo).ok()?;
            let [_, _, _, probes] = info[0].to_ne_bytes();
            let [backoff, ..] = info[1].to_ne_bytes();
            Some(Self { probes, backoff, unacked: info[6], last_sent: info[11], last_acked: info[14] })
        }

        /// True if the peer answers and takes nothing: it acknowledges the probes of its closed window, or what is sent
        /// again into a window that it has closed over it.
        pub(super) fn is_held(&self) -> bool {
            let answers = match self.unacked {
                0 => self.probes < LOST_PROBES,
                _ => self.last_acked <= self.last_sent,
            };
            self.backoff > 0 && answers
        }

        /// True if bytes are known to be on their way.
        pub(super) fn is_under_way(&self) -> bool {
            self.unacked > 0 || self.backoff > 0
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io;
    use std::pin::Pin;

    use socket2::Socket;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
    use tokio::net::TcpStream;

    use super::*;
    use crate::transport::{KEEPALIVE, Tcp, TcpTransport, USER_TIMEOUT};

    /// A stream, its peer, and what its socket's options are.
    async fn connected(transport: &TcpTransport) -> (Tcp, TcpStream, impl Fn() -> Set + use<>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = transport.dial(listener.local_addr().unwrap()).await.unwrap();
        let stream = Tcp::new(stream, transport.pending());
        let socket = Socket::from(std::os::fd::OwnedFd::from(SockRef::from(stream.read.as_ref()).try_clone().unwrap()));
        let set = move || Set {
            nodelay: socket.tcp_nodelay().unwrap(),
            keepalive: socket.keepalive().unwrap().then(|| {
                let times = (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
                assert_eq!(times.0, times.1);
                times.0
            }),
            user_timeout: socket.tcp_user_timeout().unwrap(),
            probes: socket.tcp_keepalive_retries().unwrap(),
        };
        (stream, listener.accept().await.unwrap().0, set)
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Set {
        nodelay: bool,
        keepalive: Option<Duration>,
        user_timeout: Option<Duration>,
        probes: u32,
    }

    async fn waits(stream: &mut Tcp, ms: u64) {
        let waited = tokio::time::timeout(Duration::from_millis(ms), stream.read_u8()).await;
        assert!(waited.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_has_its_options_before_they_are_due() {
        let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
        let unset = set();
        waits(&mut stream, 7_499).await;
        assert_eq!((set(), unset.keepalive, unset.user_timeout), (unset, None, None), "they cost nothing until then");
        // It is waited for anew, by somebody else.
        let mut stream = tokio::spawn(async move {
            waits(&mut stream, 2).await;
            stream
        })
        .await
        .unwrap();
        assert_eq!((set().keepalive, set().user_timeout), (Some(KEEPALIVE), Some(USER_TIMEOUT)));
        assert_eq!(set().probes, unset.probes, "the user timeout decides");
        waits(&mut stream, 60_000).await;
        assert!(stream.options.is_at_rest());

        // Nobody waits for a while, and then for no time at all.
        let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
        waits(&mut stream, 1).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(set().keepalive, None);
        waits(&mut stream, 0).await;
        assert_eq!((set().keepalive, set().user_timeout), (Some(KEEPALIVE), Some(USER_TIMEOUT)));

        // Each without the other.
        let second = Some(Duration::from_secs(1));
        let (mut stream, _peer, set) = connected(&TcpTransport::new().keepalive(second).user_timeout(None)).await;
        waits(&mut stream, 499).await;
        assert_eq!(set().keepalive, None);
        waits(&mut stream, 2).await;
        assert_eq!((set().keepalive, set().user_timeout, set().probes), (second, None, 3));
        let (mut stream, _peer, set) = connected(&TcpTransport::new().keepalive(None).user_timeout(second)).await;
        waits(&mut stream, 501).await;
        assert_eq!((set().keepalive, set().user_timeout), (None, second));
        let neither = TcpTransport::new().keepalive(None).user_timeout(None);
        let (mut stream, _peer, set) = connected(&neither).await;
        waits(&mut stream, 60_000).await;
        assert_eq!((set().keepalive, set().user_timeout), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_silent_too() {
        let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
        let stuck = tokio::time::timeout(Duration::from_millis(7_501), stream.write_all(&[0; 32 << 20])).await;
        assert!(stuck.is_err());
        assert_eq!((set().keepalive, set().user_timeout), (Some(KEEPALIVE), Some(USER_TIMEOUT)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_without_a_budget_sets_its_timer_later() {
        let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
        let waiting = tokio::spawn(async move {
            let mut exhausted = false;
            std::future::poll_fn(|cx| {
                if !std::mem::replace(&mut exhausted, true) {
                    while tokio::task::coop::has_budget_remaining() {
                        let _ = std::pin::pin!(tokio::task::coop::consume_budget()).poll(cx);
                    }
                }
                Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut [0]))
            })
            .await
        });
        tokio::time::sleep(Duration::from_millis(7_501)).await;
        assert_eq!(set().keepalive, Some(KEEPALIVE));
        waiting.abort();
    }

    #[tokio::test]
    async fn what_follows_a_first_short_write_goes_out_at_once() {
        let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
        stream.write_all(&[0; 536]).await.unwrap();
        assert!(!set().nodelay, "there is nothing it could be kept back for");
        stream.write_all(b"more").await.unwrap();
        assert!(set().nodelay);
        for pieces in [&[537][..], &[200, 337]] {
            let (mut stream, _peer, set) = connected(&TcpTransport::new()).await;
            let pieces: Vec<_> = pieces.iter().map(|length| io::IoSlice::new(&[0; 600][..*length])).collect();
            let written = stream.write_vectored(&pieces).await.unwrap();
            assert_eq!((written, set().nodelay), (537, true), "its end might be kept back");
        }
        let (mut stream, _peer, set) = connected(&TcpTransport::new().nodelay(false)).await;
        for _ in 0..2 {
            stream.write_all(&[0; 600]).await.unwrap();
        }
        assert!(!set().nodelay);
    }

    #[tokio::test(start_paused = true)]
    async fn where_one_task_reads_and_another_writes_nobody_waits_for_the_timer() {
        for reads_first in [true, false] {
            let (stream, _peer, set) = connected(&TcpTransport::new()).await;
            let (mut read, mut write) = tokio::io::split(stream);
            let (go, going) = tokio::sync::oneshot::channel();
            let reading = tokio::spawn(async move {
                let _ = going.await;
                read.read_u8().await
            });
            let mut go = Some(go);
            let mut start = || go.take().map(|go| go.send(()));
            if reads_first {
                start();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut writing = std::pin::pin!(write.write_all(&[0; 32 << 20]));
            assert!(tokio::time::timeout(Duration::from_millis(1), writing.as_mut()).await.is_err());
            start();
            tokio::time::sleep(Duration::from_millis(1)).await;
            let is_set = (set().keepalive, set().user_timeout) == (Some(KEEPALIVE), Some(USER_TIMEOUT));
            assert!(is_set, "either may go away now; reads first: {reads_first}");
            reading.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_whose_reader_is_gone_has_a_timer() {
        let (mut stream, mut peer, set) = connected(&TcpTransport::new()).await;
        waits(&mut stream, 1).await;
        peer.write_u8(1).await.unwrap();
        stream.read_u8().await.unwrap();
        let stuck = tokio::time::timeout(Duration::from_millis(7_501), stream.write_all(&[0; 32 << 20])).await;
        assert!(stuck.is_err());
        assert_eq!(set().keepalive, Some(KEEPALIVE));
    }

    #[tokio::test]
    async fn a_user_timeout_of_nothing_is_the_systems_own() {
        let (mut stream, _peer, set) =
            connected(&TcpTransport::new().keepalive(None).user_timeout(Some(Duration::ZERO))).await;
        waits(&mut stream, 1).await;
        assert_eq!(set().user_timeout, None);
        assert!(stream.options.is_at_rest());
    }

    #[test]
    fn outside_of_a_runtime_the_options_are_set_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (mut stream, _peer, set) = runtime.block_on(connected(&TcpTransport::new()));
        let mut bytes = [0];
        let polled = Pin::new(&mut stream)
            .poll_read(&mut Context::from_waker(std::task::Waker::noop()), &mut ReadBuf::new(&mut bytes));
        assert!(polled.is_pending());
        assert_eq!(set().keepalive, Some(KEEPALIVE));
    }

    #[test]
    fn a_peer_that_takes_nothing_is_told_from_one_that_is_gone() {
        let of = |probes, backoff, unacked, last_sent, last_acked| {
            let sending = sending::Sending { probes, backoff, unacked, last_sent, last_acked };
            (sending.is_held(), sending.is_under_way())
        };
        assert_eq!(of(0, 0, 0, 9_000, 9_000), (false, false), "nothing is to be sent");
        assert_eq!(of(0, 0, 20, 1, 40), (false, true), "it is on its way");
        assert_eq!(of(0, 5, 0, 30_000, 2_000), (true, true), "each probe was acknowledged");
        assert_eq!(of(2, 5, 0, 30_000, 9_000), (true, true), "the last ones may be lost");
        assert_eq!(of(3, 5, 0, 30_000, 40_000), (false, true), "three are too many");
        assert_eq!(of(0, 4, 20, 900, 899), (true, true), "what is sent again is answered");
        assert_eq!(of(0, 4, 20, 900, 9_000), (false, true), "and not");
    }

    #[tokio::test]
    async fn a_peer_that_acknowledges_and_takes_nothing_is_waited_for() {
        let timeout = Duration::from_secs(1);
        let transport = TcpTransport::new().keepalive(None).user_timeout(Some(timeout));
        let (mut stream, mut peer, set) = connected(&transport).await;
        let sending = tokio::spawn(async move { stream.write_all(&[0; 8 << 20]).await.map(|()| stream) });
        // Its window is closed for longer than a peer may be silent.
        tokio::time::sleep(3 * timeout).await;
        assert_eq!(set().user_timeout, None, "it is not silent");
        peer.read_exact(&mut vec![0; 8 << 20]).await.unwrap();
        let mut stream = sending.await.unwrap().unwrap();
        // Once everything was taken, the limit holds again.
        waits(&mut stream, 1_500).await;
        assert_eq!(set().user_timeout, Some(timeout));
        assert!(stream.options.is_at_rest());
    }

    #[tokio::test]
    async fn a_long_upload_leaves_little_unsent_in_the_kernel() {
        let (mut stream, _peer, _) = connected(&TcpTransport::new()).await;
        let limit = |stream: &Tcp| SockRef::from(stream.read.as_ref()).tcp_notsent_lowat().unwrap();
        let unlimited = limit(&stream);
        stream.write_all(&[0; 64 * 1024]).await.unwrap();
        assert_eq!(limit(&stream), unlimited, "most requests are short");
        stream.write_all(&[0; 1]).await.unwrap();
        assert_eq!(limit(&stream), MAX_UNSENT);
    }

    #[tokio::test]
    async fn what_is_written_at_once_on_a_connection_at_rest_is_followed() {
        let timeout = Duration::from_secs(1);
        let transport = TcpTransport::new().keepalive(None).user_timeout(Some(timeout));
        let (mut stream, _peer, set) = connected(&transport).await;
        waits(&mut stream, 1_600).await;
        assert!(stream.options.is_at_rest());
        let request = vec![0; 512 * 1024];
        let exchange = tokio::spawn(async move {
            let mut is_written = false;
            let mut answer = [0];
            std::future::poll_fn(|cx| {
                // As hyper does: it reads before it writes, and not again until it is woken.
                let read = Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut answer));
                if !std::mem::replace(&mut is_written, true) {
                    let written = tokio::io::AsyncWrite::poll_write(Pin::new(&mut stream), cx, &request);
                    assert!(matches!(written, Poll::Ready(Ok(1..))), "{written:?}");
                }
                read
            })
            .await
        });
        // The peer's window is closed for longer than a peer may be silent.
        tokio::time::sleep(3 * timeout).await;
        assert_eq!((set().user_timeout, exchange.is_finished()), (None, false), "it is not silent");
        exchange.abort();
    }
}
