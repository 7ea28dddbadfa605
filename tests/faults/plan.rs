//! What each call does: a function of the seed and of the call's id.

use std::time::Duration;

use fastrand::Rng;
use speeddial::http::Method;
use support::fault_script::{Traffic, rng_of};

/// A way to the server, which is an origin of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// HTTP/1.1 without TLS.
    Http1,
    /// HTTP/2 without TLS.
    Http2,
    /// HTTP/1.1 over TLS; the faults are below TLS.
    Http1BelowTls,
    /// HTTP/2 over TLS; the faults are below TLS.
    Http2BelowTls,
    /// HTTP/1.1 over TLS; the faults are above TLS.
    Http1AboveTls,
    /// HTTP/2 over TLS; the faults are above TLS.
    Http2AboveTls,
}

impl Lane {
    pub(crate) const ALL: [Self; 6] =
        [Self::Http1, Self::Http2, Self::Http1BelowTls, Self::Http2BelowTls, Self::Http1AboveTls, Self::Http2AboveTls];

    /// Returns the host by which clients know the lane.
    pub(crate) fn host(self) -> &'static str {
        match self {
            Self::Http1 => "h1.test",
            Self::Http2 => "h2.test",
            Self::Http1BelowTls => "h1-below-tls.test",
            Self::Http2BelowTls => "h2-below-tls.test",
            Self::Http1AboveTls => "h1-above-tls.test",
            Self::Http2AboveTls => "h2-above-tls.test",
        }
    }

    pub(crate) fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2BelowTls | Self::Http2AboveTls)
    }

    /// Returns true if clients speak TLS.
    pub(crate) fn is_tls(self) -> bool {
        !matches!(self, Self::Http1 | Self::Http2)
    }

    /// Returns true if the proxy ends TLS, so that its faults are above it.
    pub(crate) fn is_above_tls(self) -> bool {
        matches!(self, Self::Http1AboveTls | Self::Http2AboveTls)
    }

    /// Returns the bytes that the proxy sees.
    pub(crate) fn traffic(self) -> Traffic {
        match self {
            Self::Http1BelowTls | Self::Http2BelowTls => Traffic::Ciphertext,
            Self::Http1 | Self::Http1AboveTls => Traffic::Http1,
            Self::Http2 | Self::Http2AboveTls => Traffic::Http2,
        }
    }
}

/// A client of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    /// No policies, and few connections, so that requests wait in the queue.
    Plain,
    /// Retries.
    Retrying,
    /// Retries and hedges.
    Hedging,
    /// All policies, and connections without faults: no call may fail.
    Control,
}

impl Caller {
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Retrying, Self::Hedging, Self::Control];
}

/// What the server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Answers with the whole body.
    Whole,
    /// Answers with a body in pieces, without a length.
    Pieces,
    /// Answers the first request with 503.
    Busy,
    /// Answers the first request late.
    Slow,
    /// Never answers.
    Never,
    /// Leads to the same path on a lane, with a status that keeps the method or makes it GET.
    Redirect(u16, Lane),
}

/// The body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upload {
    None,
    Bytes(usize),
    /// A body that cannot be sent again.
    Stream(usize),
}

impl Upload {
    pub(crate) fn length(self) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes(length) | Self::Stream(length) => length,
        }
    }
}

/// The way in which a call reads its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// All at once.
    Whole,
    /// Piece by piece.
    Pieces,
    /// Piece by piece, with waits in between.
    Slowly,
}

/// The moment at which a call is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancel {
    Never,
    /// At this await.
    AtAwait(usize),
    /// After this time.
    After(Duration),
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) id: u64,
    pub(crate) caller: Caller,
    pub(crate) lane: Lane,
    pub(crate) method: Method,
    /// True if the request has an idempotency key.
    pub(crate) keyed: bool,
    pub(crate) action: Action,
    pub(crate) upload: Upload,
    /// The length of the response's body.
    pub(crate) length: usize,
    pub(crate) reading: Reading,
    pub(crate) cancel: Cancel,
    pub(crate) deadline: Duration,
}

impl Plan {
    /// Draws the call with this id.
    pub(crate) fn draw(seed: u64, id: u64) -> Self {
        let mut rng = rng_of(&[seed, id]);
        let rng = &mut rng;
        let caller = match rng.u32(..100) {
            0..=29 => Caller::Plain,
            30..=59 => Caller::Retrying,
            60..=84 => Caller::Hedging,
            _ => Caller::Control,
        };
        let lane = Lane::ALL[rng.usize(..Lane::ALL.len())];
        let method = match rng.u32(..100) {
            0..=54 => Method::GET,
            55..=84 => Method::POST,
            85..=94 => Method::PUT,
            _ => Method::HEAD,
        };
        let action = action(rng, caller);
        let upload = upload(rng, &method, action);
        let keyed = method == Method::POST && rng.u32(..8) == 0;
        let length = length(rng, 1 << 18);
        let reading = [Reading::Whole, Reading::Pieces, Reading::Slowly][rng.usize(..3)];
        let cancel = match rng.u32(..100) {
            0..=7 => Cancel::AtAwait(rng.usize(..8)),
            8..=11 => Cancel::After(Duration::from_micros(rng.u64(..100_000))),
            _ => Cancel::Never,
        };
        let deadline = deadline(rng, caller);
        Self { id, caller, lane, method, keyed, action, upload, length, reading, cancel, deadline }
    }

    /// Returns the path and query of the request, which say all that the server has to know.
    pub(crate) fn target(&self) -> String {
        let Self { id, length, action, upload, .. } = self;
        let (action, to) = match action {
            Action::Whole => ("whole", String::new()),
            Action::Pieces => ("pieces", String::new()),
            Action::Busy => ("busy", String::new()),
            Action::Slow => ("slow", String::new()),
            Action::Never => ("never", String::new()),
            Action::Redirect(status, lane) => ("redirect", format!("?status={status}&lane={}", *lane as usize)),
        };
        format!("/{action}/{id}/{length}/{}{to}", upload.length())
    }

    /// Returns true if the server may process the request more than once.
    pub(crate) fn may_be_repeated(&self) -> bool {
        self.method != Method::POST || self.keyed
    }

    /// Returns true if the request's connections may have faults.
    pub(crate) fn may_fail(&self) -> bool {
        self.caller != Caller::Control
    }
}

fn action(rng: &mut Rng, caller: Caller) -> Action {
    match rng.u32(..200) {
        0..=89 => Action::Whole,
        90..=129 => Action::Pieces,
        130..=139 => Action::Busy,
        140..=151 => Action::Slow,
        152 if caller != Caller::Control => Action::Never,
        153..=184 => {
            let status = [301, 302, 303, 307, 308][rng.usize(..5)];
            Action::Redirect(status, Lane::ALL[rng.usize(..Lane::ALL.len())])
        }
        _ => Action::Whole,
    }
}

fn upload(rng: &mut Rng, method: &Method, action: Action) -> Upload {
    let has_body = *method == Method::POST || *method == Method::PUT;
    let length = length(rng, 1 << 17);
    match rng.u32(..3) {
        _ if !has_body => Upload::None,
        // A redirect would need the stream again.
        0 if !matches!(action, Action::Redirect(..)) => Upload::Stream(length),
        _ => Upload::Bytes(length),
    }
}

/// Draws a length whose number of digits is uniform, mostly below 2^13.
fn length(rng: &mut Rng, longest: usize) -> usize {
    let longest = if rng.u32(..10) == 0 { longest } else { 1 << 13 };
    let digits = rng.u32(..10);
    rng.usize(..=longest >> digits)
}

fn deadline(rng: &mut Rng, caller: Caller) -> Duration {
    if caller == Caller::Control {
        return Duration::from_secs(60);
    }
    match rng.u32(..100) {
        0..=3 => Duration::from_micros(rng.u64(1_000..50_000)),
        4..=14 => Duration::from_millis(rng.u64(50..1_000)),
        _ => Duration::from_secs(2),
    }
}

#[test]
fn a_seed_gives_the_same_calls_again() {
    let plans = |seed| (0..500).map(|id| Plan::draw(seed, id)).collect::<Vec<_>>();
    assert_eq!(plans(5), plans(5));
    assert_ne!(plans(5), plans(6));
}
