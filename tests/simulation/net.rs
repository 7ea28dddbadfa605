//! A network in virtual time: streams with delays, that are cut, stalled and throttled; addresses that refuse, drop or serve.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use speeddial::transport::{Connecting, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::outside::Outside;

/// The bytes that a direction of a stream holds at most: sent, and not yet read.
const WINDOW: usize = 64 * 1024;

/// One direction of a stream.
#[derive(Default)]
struct Direction {
    pieces: VecDeque<(Instant, Bytes)>,
    held: usize,
    /// The time at which the end of the stream arrives.
    fin: Option<Instant>,
    /// The time at which a reset arrives at the reader.
    reset: Option<Instant>,
    reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The part of a stream that both ends share.
struct Wire {
    directions: [Direction; 2],
    delay: Duration,
    /// Nothing arrives before.
    stalled_until: Option<Instant>,
    /// The time that a kibibyte takes beside the delay.
    per_kib: Duration,
    /// The last piece arrives then: none overtakes another.
    last_arrival: [Option<Instant>; 2],
}

/// One end of a stream. Dropping it closes it.
pub(crate) struct End {
    wire: Arc<Mutex<Wire>>,
    side: usize,
    timer: Option<Pin<Box<Sleep>>>,
    is_shut: bool,
    /// The world, which is told when this end closes, and the number of the connection.
    noted: Option<(Arc<Outside>, usize)>,
}

/// A stream as seen by the network, to disturb it.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Mutex<Wire>>);

/// Makes a stream of two ends.
pub(crate) fn stream(delay: Duration, per_kib: Duration) -> (End, End, Handle) {
    let wire = Wire { directions: Default::default(), delay, stalled_until: None, per_kib, last_arrival: [None; 2] };
    let wire = Arc::new(Mutex::new(wire));
    let end = |side| End { wire: wire.clone(), side, timer: None, is_shut: false, noted: None };
    (end(0), end(1), Handle(wire.clone()))
}

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap()
}

impl Wire {
    fn wake_all(&mut self) {
        for direction in &mut self.directions {
            direction.reader.take().into_iter().chain(direction.writer.take()).for_each(Waker::wake);
        }
    }

    /// Returns the time at which something sent now on a side arrives, behind all that was sent before.
    fn arrival(&mut self, side: usize, length: usize) -> Instant {
        let length = u32::try_from(length).unwrap();
        let now = Instant::now();
        let begin = self.last_arrival[side].map_or(now + self.delay, |last| last.max(now + self.delay));
        let at = begin + self.per_kib * length / 1024;
        self.last_arrival[side] = Some(at);
        at
    }
}

impl Handle {
    /// Resets the stream at both ends at once.
    pub(crate) fn reset(&self) {
        let mut wire = lock(&self.0);
        let now = Instant::now();
        for direction in &mut wire.directions {
            direction.reset = Some(now);
        }
        wire.wake_all();
    }

    /// Nothing arrives for some time.
    pub(crate) fn stall(&self, time: Duration) {
        let mut wire = lock(&self.0);
        wire.stalled_until = Some(Instant::now() + time);
        wire.wake_all();
    }
}

impl End {
    fn note_end(&mut self, outside: Arc<Outside>, conn: usize) {
        self.noted = Some((outside, conn));
    }

    fn wait(&mut self, until: Instant, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(cx).is_ready()
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let until = {
                let mut wire = lock(&self.wire);
                let now = Instant::now();
                let stalled = wire.stalled_until.filter(|until| *until > now);
                let direction = &mut wire.directions[1 - self.side];
                direction.reader = Some(cx.waker().clone());
                if direction.reset.is_some_and(|at| at <= now) {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                let next = direction.pieces.front().map(|(at, _)| *at).or(direction.fin);
                match next {
                    Some(at) if at <= now && stalled.is_none() => {
                        let mut left = buf.remaining();
                        while let Some((at, piece)) = direction.pieces.front_mut()
                            && *at <= now
                            && left > 0
                        {
                            let taken = piece.split_to(piece.len().min(left));
                            let is_empty = piece.is_empty();
                            buf.put_slice(&taken);
                            left -= taken.len();
                            direction.held -= taken.len();
                            if is_empty {
                                direction.pieces.pop_front();
                            }
                        }
                        if let Some(writer) = direction.writer.take() {
                            writer.wake();
                        }
                        return Poll::Ready(Ok(()));
                    }
                    next => match (next.max(stalled), direction.reset) {
                        (Some(one), Some(other)) => Some(one.min(other)),
                        (one, other) => one.or(other),
                    },
                }
            };
            match until {
                None => return Poll::Pending,
                Some(until) if !self.wait(until, cx) => return Poll::Pending,
                Some(_) => {}
            }
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut wire = lock(&self.wire);
        let side = self.side;
        let now = Instant::now();
        if self.is_shut || wire.directions[1 - side].reset.is_some_and(|at| at <= now) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let delay = wire.delay;
        if wire.directions[side].reader_gone {
            // The peer's system answers with a reset.
            let back = &mut wire.directions[1 - side];
            back.reset = back.reset.or(Some(now + 2 * delay));
            back.reader.take().into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(bytes.len()));
        }
        let room = WINDOW - wire.directions[side].held;
        if room == 0 {
            wire.directions[side].writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let length = bytes.len().min(room);
        let at = wire.arrival(side, length);
        let direction = &mut wire.directions[side];
        direction.held += length;
        direction.pieces.push_back((at, Bytes::copy_from_slice(&bytes[..length])));
        direction.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            self.is_shut = true;
            let mut wire = lock(&self.wire);
            let at = wire.arrival(self.side, 0);
            let direction = &mut wire.directions[self.side];
            direction.fin = Some(at);
            direction.reader.take().into_iter().for_each(Waker::wake);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some((outside, conn)) = self.noted.take() {
            let now = outside.now();
            outside.state().conns[conn].left = Some(now);
        }
        let mut wire = lock(&self.wire);
        let at = wire.arrival(self.side, 0);
        let incoming = &mut wire.directions[1 - self.side];
        incoming.reader_gone = true;
        incoming.writer.take().into_iter().for_each(Waker::wake);
        let had_unread = !incoming.pieces.is_empty();
        let outgoing = &mut wire.directions[self.side];
        // A close with something unread resets the connection, which destroys what the peer has not read.
        match had_unread {
            true => outgoing.reset = outgoing.reset.or(Some(at)),
            false => outgoing.fin = outgoing.fin.or(Some(at)),
        }
        outgoing.reader.take().into_iter().for_each(Waker::wake);
    }
}

/// The behaviour of an address towards a client that connects to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reachability {
    #[default]
    Serves,
    /// The port is closed.
    Refuses,
    /// Nothing comes back.
    Drops,
}

/// The network as one client sees it.
pub(crate) struct Net {
    pub(crate) outside: Arc<Outside>,
    pub(crate) client: usize,
}

impl Transport for Net {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            let stream = connect(&self.outside, Some(self.client), address).await?;
            Ok(Box::new(stream) as Box<dyn speeddial::transport::Stream>)
        })
    }
}

/// Connects to an address, for a client or for something beside them.
pub(crate) async fn connect(outside: &Arc<Outside>, client: Option<usize>, address: SocketAddr) -> io::Result<End> {
    let (reachability, delay, per_kib) = outside.way_to(address.ip());
    outside.note_dial(client, address);
    match reachability {
        Reachability::Drops => std::future::pending().await,
        Reachability::Refuses => {
            sleep(2 * delay).await;
            Err(io::ErrorKind::ConnectionRefused.into())
        }
        Reachability::Serves => {
            sleep(2 * delay).await;
            // It may have gone meanwhile.
            if outside.way_to(address.ip()).0 != Reachability::Serves {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (mut near, far, handle) = stream(delay, per_kib);
            let id = outside.accept(client, address, far, handle);
            near.note_end(outside.clone(), id);
            Ok(near)
        }
    }
}
