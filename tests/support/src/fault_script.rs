//! Scripts of faults: what happens to a connection that goes through a [`fault_proxy`](crate::fault_proxy), drawn from a seed.
//!
//! A script is a function of the seed, of the bytes that the proxy sees ([`Traffic`]) and of the connection's [`Tag`]. So a seed
//! gives the same scripts again. What a program has sent when a fault strikes depends on its threads, and may differ.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

/// The bytes that a proxy sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// HTTP/1.1 in plain text.
    Http1,
    /// Frames of HTTP/2 in plain text.
    Http2,
    /// Records of TLS.
    Ciphertext,
}

/// The name of a connection, which the client sends as its first bytes: see [`fault_transport`](crate::fault_transport).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    /// The number of the client.
    pub client: u64,
    /// The number that the client gave the connection, as in [`Subject::Connection`](speeddial::trace::Subject::Connection).
    pub connection: u64,
}

impl Tag {
    /// The length of a tag on the wire.
    pub const LENGTH: usize = 16;

    /// Returns the tag as it is sent.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        (u128::from(self.client) << 64 | u128::from(self.connection)).to_be_bytes()
    }

    /// Reads a tag as it is sent.
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self { client: (both >> 64) as u64, connection: both as u64 }
    }
}

/// The side that sends the bytes among which a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// A fault in the middle of a connection. It strikes after a number of bytes in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Both sides get a FIN; over TLS that the proxy speaks, after a close_notify.
    Fin,
    /// Both sides get a FIN. Over TLS that the proxy speaks there is no close_notify.
    Drop,
    /// Both sides get a RST.
    Reset,
    /// The receiver gets a FIN, and what is sent to it after that is lost. The other direction goes on.
    HalfClose,
    /// The direction stops forever, and the other one goes on.
    Stall,
    /// Both directions stop forever.
    StallBoth,
    /// A bit of the next byte is turned over.
    Flip,
    /// Both directions stop for a while, and go on.
    Pause(Duration),
}

/// The time and the kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Strike {
    /// The direction whose bytes are counted.
    pub direction: Direction,
    /// The bytes that pass before it. The tag is not counted.
    pub at: u64,
    /// What happens then.
    pub fault: Fault,
}

/// The beginning of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Opening {
    /// The proxy takes the connection at once.
    AtOnce,
    /// The connection is refused.
    Refused,
    /// The connection is never made.
    Silent,
    /// The connection is made after a while.
    SlowConnect(Duration),
    /// The connection is made at once, and the proxy goes on to the server after a while.
    SlowAccept(Duration),
}

/// The sizes in which a direction's first bytes are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pace {
    /// The most bytes of a piece.
    pub piece: usize,
    /// The bytes that go in such pieces. Later ones go as they come.
    pub first: u64,
    /// The wait after each of these pieces.
    pub wait: Duration,
}

impl Pace {
    /// Bytes that go as they come.
    pub const WHOLE: Self = Self { piece: usize::MAX, first: 0, wait: Duration::ZERO };
}

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Script {
    /// The beginning.
    pub opening: Opening,
    /// The pace from the client to the server, and that from the server to the client.
    pub pace: [Pace; 2],
    /// The fault, if there is one.
    pub strike: Option<Strike>,
    /// The number of requests after which the server ends the connection in an orderly way: by `Connection: close` or GOAWAY.
    pub retire_after: Option<u32>,
}

impl Script {
    /// A connection without faults.
    pub const CLEAN: Self = Self { opening: Opening::AtOnce, pace: [Pace::WHOLE; 2], strike: None, retire_after: None };

    /// Draws the script of a connection.
    pub fn draw(seed: u64, traffic: Traffic, tag: Tag) -> Self {
        let mut rng = rng_of(&[seed, traffic as u64, tag.client, tag.connection]);
        // The choices of each part are independent of those of the others.
        let opening = opening(&mut rng.fork());
        let pace = [pace(&mut rng.fork()), pace(&mut rng.fork())];
        let strike = strike(&mut rng.fork(), traffic);
        let retire_after = one_in(&mut rng, 6).then(|| rng.u32(1..40));
        Self { opening, pace, strike, retire_after }
    }

    /// Returns true if the script slows the connection down, even if its fault does not strike.
    pub fn is_slow(&self) -> bool {
        self.opening != Opening::AtOnce || self.pace != [Pace::WHOLE; 2]
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.opening)?;
        for (direction, pace) in [Direction::Up, Direction::Down].into_iter().zip(self.pace) {
            if pace != Pace::WHOLE {
                write!(f, ", {direction:?} {} bytes in pieces of {} every {:?}", pace.first, pace.piece, pace.wait)?;
            }
        }
        if let Some(Strike { direction, at, fault }) = self.strike {
            write!(f, ", {fault:?} after {at} bytes {direction:?}")?;
        }
        if let Some(requests) = self.retire_after {
            write!(f, ", retired by the server after {requests} requests")?;
        }
        Ok(())
    }
}

/// The time that no pause of a script reaches.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(1_200);

/// Returns a generator for these numbers, each of which changes all that it draws.
pub fn rng_of(numbers: &[u64]) -> Rng {
    let mut rng = Rng::with_seed(0);
    for number in numbers {
        rng = Rng::with_seed(rng.u64(..) ^ number);
    }
    rng.fork()
}

fn one_in(rng: &mut Rng, count: u32) -> bool {
    rng.u32(..count) == 0
}

fn milliseconds(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

/// Draws a number below 2^`bits` whose number of digits is uniform, so that small ones are as frequent as large ones.
fn up_to_bits(rng: &mut Rng, bits: u32) -> u64 {
    let digits = rng.u32(0..=bits);
    rng.u64(..) & ((1 << digits) - 1)
}

fn opening(rng: &mut Rng) -> Opening {
    match rng.u32(..100) {
        0..=2 => Opening::Refused,
        3 => Opening::Silent,
        4..=8 => Opening::SlowConnect(milliseconds(rng, 1..300)),
        9..=13 => Opening::SlowAccept(milliseconds(rng, 1..900)),
        _ => Opening::AtOnce,
    }
}

fn pace(rng: &mut Rng) -> Pace {
    if !one_in(rng, 8) {
        return Pace::WHOLE;
    }
    let piece = 1 + up_to_bits(rng, 7) as usize;
    let wait = if one_in(rng, 4) { milliseconds(rng, 1..4) } else { Duration::ZERO };
    // At most 64 pieces with a wait, and 512 without.
    let pieces = if wait.is_zero() { rng.u64(1..512) } else { rng.u64(1..64) };
    Pace { piece, first: pieces * piece as u64, wait }
}

fn strike(rng: &mut Rng, traffic: Traffic) -> Option<Strike> {
    if one_in(rng, 3) {
        return None;
    }
    let direction = if rng.bool() { Direction::Up } else { Direction::Down };
    let at = up_to_bits(rng, 20);
    let fault = match rng.u32(..100) {
        0..=15 => Fault::Fin,
        16..=25 => Fault::Drop,
        26..=43 => Fault::Reset,
        44..=53 => Fault::HalfClose,
        54..=59 => Fault::Stall,
        60..=65 => Fault::StallBoth,
        66..=79 => Fault::Pause(milliseconds(rng, 1..LONGEST_PAUSE.as_millis() as u64)),
        _ => return Some(flip(rng, traffic, direction, at)),
    };
    Some(Strike { direction, at, fault })
}

/// Draws a byte to corrupt. In plain text a client cannot tell a wrong byte of a body from a right one, nor one in the number of an
/// HTTP/2 stream. So only bytes are corrupted there without which there is no connection.
fn flip(rng: &mut Rng, traffic: Traffic, direction: Direction, at: u64) -> Strike {
    let (direction, at) = match traffic {
        // `HTTP/` at the beginning of the first response.
        Traffic::Http1 => (Direction::Down, rng.u64(..5)),
        // The client's preface, or the type of the server's first frame (RFC 9113 §3.4).
        Traffic::Http2 if direction == Direction::Up => (Direction::Up, rng.u64(..24)),
        Traffic::Http2 => (Direction::Down, 3),
        Traffic::Ciphertext => (direction, at),
    };
    Strike { direction, at, fault: Fault::Flip }
}
