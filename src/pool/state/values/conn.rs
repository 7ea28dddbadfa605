//! The record of a connection: its dial, its streams, its age. A core.

use std::time::Duration;

use crate::clock::Instant;
use crate::list::{Linked, Links, List};
use crate::pool::state::values::{ConnId, Location, Opened, PoolTypes, Speaks, WaiterId};
use crate::trace::CloseCause;

/// The number of the lists of a host's connections: the idle ones, and those with a free stream.
pub(in crate::pool::state) const BY_HOST: usize = 0;
/// The number of the lists by age: the idle connections of all hosts, a host's dials, and its slow dials.
pub(in crate::pool::state) const BY_AGE: usize = 1;
/// The number of the lists of an address's connections, as those of a host.
pub(in crate::pool::state) const BY_ADDRESS: usize = 2;

/// The connections to an address of a balanced host that have a free stream.
#[derive(Debug, Default)]
pub(in crate::pool::state) struct FreeConns {
    /// Those that carry requests.
    pub(in crate::pool::state) shared: List<BY_ADDRESS>,
    /// Those that are idle, the most recently used in front.
    pub(in crate::pool::state) idle: List<BY_ADDRESS>,
}

/// A connection, from the start of its dial until its socket is closed and its last lease has ended.
pub(in crate::pool::state) struct Conn<T: PoolTypes> {
    pub(in crate::pool::state) host: usize,
    pub(in crate::pool::state) serial: u64,
    /// True while the socket may be open.
    pub(in crate::pool::state) holds_slot: bool,
    /// The reason why the connection takes no new requests; `None` while it takes them.
    pub(in crate::pool::state) end_cause: Option<CloseCause>,
    /// The key of the connection's address, once it is open, or of the one that is dialled first, if its host is balanced.
    pub(in crate::pool::state) address: Option<usize>,
    pub(in crate::pool::state) stage: Stage<T>,
    links: [Links; 3],
}

/// The stage of a connection's life.
pub(in crate::pool::state) enum Stage<T: PoolTypes> {
    Dialling(Dialling),
    Open(OpenConn<T>),
    Closing,
}

/// A connection that is being dialled.
#[derive(Debug)]
pub(in crate::pool::state) struct Dialling {
    pub(in crate::pool::state) since: Instant,
    /// The request that the dial was begun for. It may have left the queue since.
    pub(in crate::pool::state) owner: Option<WaiterId>,
    pub(in crate::pool::state) pace: Pace,
    /// The time from which on the dial is slow, unless it waits for DNS or has addresses left then.
    pub(in crate::pool::state) slow_at: Instant,
    /// True if the dial ends when no request needs it, while others become idle connections.
    pub(in crate::pool::state) is_extra: bool,
    /// The reason why the dial began before a request needed it, if it did.
    pub(in crate::pool::state) ahead: Option<Ahead>,
    /// If the settings that the dial began with have changed since: the number of the last request that came before.
    pub(in crate::pool::state) outdated_after: Option<u64>,
    /// The number of streams the peer announced before the pool learned that the connection is open.
    pub(in crate::pool::state) announced: Option<usize>,
}

/// The pool's trust in a dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool::state) enum Pace {
    /// The dial will serve requests, as far as is known.
    Young,
    /// The dial takes too long to be relied on.
    Slow,
    /// The dial is being aborted. It counts against the limits until that is done.
    GivenUp,
}

/// The reason why a dial begins before a request needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool::state) enum Ahead {
    /// The program asked for it.
    WarmUp,
    /// The host is kept warm and lacks a connection.
    Lacking,
    /// The host is kept warm, and one of its connections is about to reach its end.
    Replacement,
}

/// An open connection.
pub(in crate::pool::state) struct OpenConn<T: PoolTypes> {
    pub(in crate::pool::state) conn: T::Conn,
    /// The handle for requests that waited for the dial, until the first request is over.
    pub(in crate::pool::state) fresh: Option<T::Conn>,
    pub(in crate::pool::state) is_http2: bool,
    pub(in crate::pool::state) streams: Streams,
    /// The number of requests that the connection has carried, those in progress included.
    pub(in crate::pool::state) requests: u64,
    /// True if the connection's last lease ended without being used.
    pub(in crate::pool::state) was_unused: bool,
    /// The time at which the connection was opened, or released last.
    pub(in crate::pool::state) used_at: Instant,
    /// The end of the connection's lifetime.
    pub(in crate::pool::state) expires: Option<Instant>,
    /// The last `Keep-Alive: timeout` that the server sent on the connection.
    pub(in crate::pool::state) keep_alive: Option<Duration>,
    /// The time of the connection's timer, if it is set.
    pub(in crate::pool::state) timer: Option<Instant>,
    /// The reason why the connection ends once there is room for another one.
    pub(in crate::pool::state) due: Option<CloseCause>,
    /// The cause for which the connection's request is about to close it. It counts if the socket is closed before the lease ends.
    pub(in crate::pool::state) foreseen: Option<CloseCause>,
    pub(in crate::pool::state) listed: Listed,
    pub(in crate::pool::state) location: Option<Location>,
    /// The runtime that serves the connection.
    pub(in crate::pool::state) runtime: T::Runtime,
}

/// The concurrent requests of a connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::pool::state) struct Streams {
    pub(in crate::pool::state) allowed: usize,
    pub(in crate::pool::state) taken: usize,
    /// True if the peer speaks HTTP/2 and has not announced yet how many it allows.
    pub(in crate::pool::state) is_unannounced: bool,
}

/// The list of its host in which an open connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool::state) enum Listed {
    No,
    Idle,
    Shared,
}

impl<T: PoolTypes> Linked for Conn<T> {
    fn links(&self, list: usize) -> &Links {
        &self.links[list]
    }

    fn links_mut(&mut self, list: usize) -> &mut Links {
        &mut self.links[list]
    }
}

impl<T: PoolTypes> Conn<T> {
    /// Creates the record of a connection whose dial begins now. It holds a slot.
    pub(in crate::pool::state) fn new(dialling: Dialling, host: usize, serial: u64) -> Self {
        let stage = Stage::Dialling(dialling);
        Self { host, serial, holds_slot: true, end_cause: None, address: None, stage, links: Default::default() }
    }

    /// Returns the connection's id, given its index.
    #[inline]
    pub(in crate::pool::state) fn id(&self, index: usize) -> ConnId {
        ConnId { index, serial: self.serial }
    }

    /// Returns the open connection. Panics in any other stage.
    #[inline]
    pub(in crate::pool::state) fn open(&self) -> &OpenConn<T> {
        match &self.stage {
            Stage::Open(open) => open,
            _ => unreachable!("the connection is open"),
        }
    }

    /// Returns the open connection. Panics in any other stage.
    #[inline]
    pub(in crate::pool::state) fn open_mut(&mut self) -> &mut OpenConn<T> {
        match &mut self.stage {
            Stage::Open(open) => open,
            _ => unreachable!("the connection is open"),
        }
    }

    /// Returns the dial in flight. Panics in any other stage.
    pub(in crate::pool::state) fn dialling(&self) -> &Dialling {
        match &self.stage {
            Stage::Dialling(dialling) => dialling,
            _ => unreachable!("the connection is being dialled"),
        }
    }

    /// Returns the dial in flight. Panics in any other stage.
    pub(in crate::pool::state) fn dialling_mut(&mut self) -> &mut Dialling {
        match &mut self.stage {
            Stage::Dialling(dialling) => dialling,
            _ => unreachable!("the connection is being dialled"),
        }
    }

    /// Returns the cause of the close, if the socket is closed now: the peer, unless the client ends the connection.
    pub(in crate::pool::state) fn close_cause(&self) -> CloseCause {
        let foreseen = match &self.stage {
            Stage::Open(open) => open.foreseen,
            _ => None,
        };
        self.end_cause.or(foreseen).unwrap_or(CloseCause::Peer)
    }

    /// Returns true if a dial is in flight that was given up.
    pub(in crate::pool::state) fn is_given_up(&self) -> bool {
        matches!(self.stage, Stage::Dialling(Dialling { pace: Pace::GivenUp, .. }))
    }

    /// Returns true if another request can use the open connection.
    #[inline]
    pub(in crate::pool::state) fn has_free_stream(&self) -> bool {
        let streams = self.open().streams;
        self.end_cause.is_none() && streams.taken < streams.allowed
    }
}

impl<T: PoolTypes> OpenConn<T> {
    /// Returns the time at which the connection closes if it carries no request until then: at the end of its lifetime, or of the time
    /// for which its server says that it keeps it.
    pub(in crate::pool::state) fn ends_at(&self) -> Option<Instant> {
        let kept_until =
            self.keep_alive.filter(|_| self.streams.taken == 0).and_then(|time| self.used_at.checked_add(time));
        self.expires.into_iter().chain(kept_until).min()
    }
}

impl Dialling {
    /// Creates the record of a dial that begins now, and is slow from `slow_at` on.
    pub(in crate::pool::state) fn new(now: Instant, slow_at: Instant) -> Self {
        Self {
            since: now,
            owner: None,
            pace: Pace::Young,
            slow_at,
            is_extra: false,
            ahead: None,
            outdated_after: None,
            announced: None,
        }
    }
}

impl<T: PoolTypes> OpenConn<T> {
    /// Creates the record of a connection that opens now, without requests. `announced` is the number of streams its peer
    /// allows, if that is known.
    pub(in crate::pool::state) fn new(
        now: Instant,
        opened: Opened<T>,
        announced: Option<usize>,
        expires: Option<Instant>,
    ) -> Self {
        let Opened { fresh, conn, speaks, location, remote: _, runtime } = opened;
        let is_http2 = speaks == Speaks::Http2;
        let announced = announced.filter(|_| is_http2);
        let streams =
            Streams { allowed: announced.unwrap_or(1), taken: 0, is_unannounced: is_http2 && announced.is_none() };
        Self {
            conn,
            fresh: Some(fresh),
            is_http2,
            streams,
            requests: 0,
            was_unused: false,
            used_at: now,
            expires,
            keep_alive: None,
            timer: None,
            due: None,
            foreseen: None,
            listed: Listed::No,
            location,
            runtime,
        }
    }
}

/// Returns `time` give or take a tenth, which depends on the connection's number alone.
pub(in crate::pool::state) fn jittered(time: Duration, serial: u64) -> Duration {
    let tenth = time / 10;
    time.saturating_sub(tenth).saturating_add(tenth / 512 * spread(serial))
}

/// Returns the time before the end of `time` at which a connection that is idle, or lives, for so long is replaced: between
/// one and two tenths of it, but 10 s at most, and up to a quarter of a short time. It depends on the connection's number as well.
pub(in crate::pool::state) fn replacement_lead(time: Duration, serial: u64) -> Duration {
    let least = least_lead(time);
    least + least / 1_024 * spread(serial)
}

/// Returns the shortest time after which a connection that may be idle, or live, for `time` is replaced.
pub(in crate::pool::state) fn least_stay(time: Duration) -> Duration {
    time.saturating_sub(least_lead(time) * 2)
}

fn least_lead(time: Duration) -> Duration {
    (time / 10).max((time / 8).min(MIN_LEAD)).min(MAX_LEAD)
}

/// The least lead of a replacement for which a tenth of the time is too short: a connection may take as long to open.
const MIN_LEAD: Duration = Duration::from_millis(500);
/// The greatest lead, before it is jittered.
const MAX_LEAD: Duration = Duration::from_secs(5);

/// Returns a number below 1,024 for a connection's number.
fn spread(serial: u64) -> u32 {
    // The golden ratio's multiples are spread evenly (Knuth, TAOCP vol. 3, §6.4).
    (serial.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_spread_evenly_over_a_tenth_more_or_less() {
        let second = Duration::from_secs(1);
        let jittered: Vec<_> = (1..1_000).map(|serial| jittered(second, serial).as_millis()).collect();
        assert!(jittered.iter().all(|time| (900..=1_100).contains(time)));
        let is_hit = |from: u128| jittered.iter().any(|time| (from..from + 50).contains(time));
        assert!([900, 950, 1_000, 1_050].into_iter().all(is_hit));
    }

    #[test]
    fn a_connection_is_replaced_between_a_tenth_and_a_quarter_before_its_end_but_at_most_10_s() {
        let cases = [(1, 125, 250), (4, 500, 1_000), (50, 5_000, 10_000), (900, 5_000, 10_000), (20, 2_000, 4_000)];
        for (seconds, least, most) in cases {
            let leads = (1..1_000).map(|serial| replacement_lead(Duration::from_secs(seconds), serial).as_millis());
            let (min, max) = (leads.clone().min(), leads.max());
            assert!(min.is_some_and(|min| (least..least + least / 50).contains(&min)), "{seconds} s: {min:?}");
            assert!(max.is_some_and(|max| (most - most / 50..=most).contains(&max)), "{seconds} s: {max:?}");
        }
        assert_eq!(replacement_lead(Duration::MAX, 1).as_secs(), 8, "a time without end has a lead as well");
    }

    #[test]
    fn the_shortest_stay_is_the_time_less_twice_the_least_lead() {
        let stay = |seconds| least_stay(Duration::from_secs(seconds)).as_millis();
        assert_eq!([1, 20, 900].map(stay), [750, 16_000, 890_000]);
    }
}
