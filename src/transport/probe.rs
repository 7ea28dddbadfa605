//! A look at a connection's TCP socket from outside of the connection's task.

use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;

use super::Stream;
use super::late_options::{data_age, is_acknowledged, resent_packets};
use super::tcp_stream::ProbedTcpStream;

/// Looks at a TCP socket that the connection's task owns. It does not keep the socket open.
#[derive(Debug)]
pub(crate) struct Probe(Weak<OwnedWriteHalf>);

/// The state of a socket as a look from outside shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// There is nothing to read.
    Quiet,
    /// There are bytes that were not read yet.
    Unread,
    /// The peer has closed the connection, or it is broken, or its stream was dropped.
    Closed,
}

impl Probe {
    /// Returns a probe of the stream's socket; `None` for a stream that is not [`TcpTransport`](super::TcpTransport)'s.
    pub(crate) fn of(stream: &dyn Stream) -> Option<Self> {
        let tcp = (stream as &dyn Any).downcast_ref::<ProbedTcpStream>()?;
        tcp.write.as_ref().map(|write| Self(Arc::downgrade(write)))
    }

    /// Returns true if the peer is known to have acknowledged (TCP ACK) all that was written.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.0.upgrade().is_some_and(|socket| is_acknowledged(&SockRef::from(socket.as_ref().as_ref())))
    }

    /// Returns the number of times that the operating system sent packets again so far; 0 if it is not known.
    pub(crate) fn resent_packets(&self) -> u32 {
        self.0.upgrade().map_or(0, |socket| resent_packets(&SockRef::from(socket.as_ref().as_ref())))
    }

    /// Returns the time since data last came, if the operating system tells.
    pub(crate) fn data_age(&self) -> Option<Duration> {
        self.0.upgrade().and_then(|socket| data_age(&SockRef::from(socket.as_ref().as_ref())))
    }

    /// Looks at what there is to read.
    pub(crate) fn look(&self) -> Liveness {
        self.0.upgrade().map_or(Liveness::Closed, |socket| look_at(socket.as_ref().as_ref()))
    }
}

/// True if [`Liveness::Unread`] means that the peer has not closed the connection behind these bytes.
pub(crate) const SEES_CLOSE_BEHIND_BYTES: bool = cfg!(target_os = "linux");

#[cfg(target_os = "linux")]
fn look_at(socket: &TcpStream) -> Liveness {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut polled = [PollFd::new(socket, PollFlags::IN | ends)];
    match poll(&mut polled, Some(&Timespec::default())) {
        Ok(1..) if polled[0].revents().intersects(ends) => Liveness::Closed,
        Ok(1..) => Liveness::Unread,
        _ => Liveness::Quiet,
    }
}

#[cfg(not(target_os = "linux"))]
fn look_at(socket: &TcpStream) -> Liveness {
    match SockRef::from(socket).peek(&mut [std::mem::MaybeUninit::uninit()]) {
        Ok(0) => Liveness::Closed,
        Ok(_) => Liveness::Unread,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Liveness::Quiet,
        Err(_) => Liveness::Closed,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::super::{TcpTransport, Transport};
    use super::*;

    #[tokio::test]
    async fn a_probe_sees_unread_bytes_and_the_end() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpTransport::new().connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let probe = Probe::of(&*stream).unwrap();
        assert_eq!(probe.look(), Liveness::Quiet);
        peer.write_all(b"unasked").await.unwrap();
        assert_eq!(probe.look(), Liveness::Unread);
        peer.shutdown().await.unwrap();
        let behind_bytes = if SEES_CLOSE_BEHIND_BYTES { Liveness::Closed } else { Liveness::Unread };
        assert_eq!(probe.look(), behind_bytes);
        drop(stream);
        assert_eq!(probe.look(), Liveness::Closed, "a probe does not keep the socket open");
        let stream = TcpTransport::new().connect(listener.local_addr().unwrap()).await.unwrap();
        drop(listener.accept().await.unwrap());
        assert_eq!(Probe::of(&*stream).unwrap().look(), Liveness::Closed);
        let (other, _) = tokio::io::duplex(1);
        assert!(Probe::of(&other).is_none());
    }
}
