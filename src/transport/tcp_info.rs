//! Linux's account of a TCP socket: the bytes that it has to send, and the packets that it sent again.

use std::time::Duration;

use nix::libc;
use nix::sys::socket::{getsockopt, sockopt};
use socket2::{SockRef, Socket};

/// The part of Linux's `struct tcp_info` that every kernel has, in 32-bit words.
type Info = [u32; 26];

#[derive(Clone, Copy)]
struct TcpInfo;

nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, Info, sockopt::GetStruct<Info>);

/// The state of a socket's unacknowledged bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendState {
    /// The probes of a closed window that the peer has not acknowledged.
    pub(super) probes: u8,
    /// The number of times that the time between retransmissions, or between probes, was doubled.
    pub(super) backoff: u8,
    /// The segments that were sent and not acknowledged.
    pub(super) unacked: u32,
    /// The milliseconds since data was last sent.
    pub(super) last_sent: u32,
    /// The milliseconds since the peer last acknowledged anything.
    pub(super) last_acked: u32,
}

/// The number of unanswered probes from which on a peer counts as silent. Fewer may have been lost.
const LOST_PROBES: u8 = 3;

/// Returns the number of packets that were sent again so far: after connecting, the first one (SYN). 0 if it is not known.
pub(super) fn resent_packets(socket: &SockRef<'_>) -> u32 {
    let socket: &Socket = socket;
    getsockopt(socket, TcpInfo).map_or(0, |info| info[TOTAL_RETRANS])
}

/// Returns the time since data last came; `None` if it is not known.
pub(super) fn data_age(socket: &SockRef<'_>) -> Option<Duration> {
    let socket: &Socket = socket;
    getsockopt(socket, TcpInfo).ok().map(|info| Duration::from_millis(info[LAST_DATA_RECV].into()))
}

/// The word of `tcpi_total_retrans`.
const TOTAL_RETRANS: usize = 25;
/// The word of `tcpi_last_data_recv`, in milliseconds.
const LAST_DATA_RECV: usize = 13;

impl SendState {
    /// Reads the state from the kernel; `None` if that fails.
    pub(super) fn of(socket: &SockRef<'_>) -> Option<Self> {
        let socket: &Socket = socket;
        let info = getsockopt(socket, TcpInfo).ok()?;
        let [_, _, _, probes] = info[0].to_ne_bytes();
        let [backoff, ..] = info[1].to_ne_bytes();
        Some(Self { probes, backoff, unacked: info[6], last_sent: info[11], last_acked: info[14] })
    }

    /// Returns true if the peer answers and takes nothing: it acknowledges the probes of its closed window, or the
    /// retransmissions of data that was under way when it closed the window.
    pub(super) fn is_window_closed(&self) -> bool {
        let answers = match self.unacked {
            0 => self.probes < LOST_PROBES,
            _ => self.last_acked <= self.last_sent,
        };
        self.backoff > 0 && answers
    }

    /// Returns true if bytes are known to be unacknowledged.
    pub(super) fn is_under_way(&self) -> bool {
        self.unacked > 0 || self.backoff > 0
    }
}
