//! The pool's core, by arithmetic on a time.

mod balance;
mod balance_addresses;
mod balance_requests;
mod balance_steps;
mod choices;
mod closing;
mod conduct;
mod costs;
mod dials;
mod drain;
mod figures;
mod hedges;
mod http2;
mod limits;
mod queue;
mod renewal;
mod resends;
mod reuse;
mod small_worlds;
mod turns;
mod walks;
mod warm;
mod warm_steps;
mod worlds;

#[cfg(fuzzing)]
pub(crate) use walks::walk_by_bytes;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::pool::config::PoolConfig;
use crate::trace::{CloseCause, Family, HostAtDial, Limit};

/// Hosts, connections and requests that are numbers.
#[derive(Debug)]
pub(super) struct TestTypes;

impl PoolTypes for TestTypes {
    type Key = u8;
    type Conn = u64;
    type Waiter = u32;
    type Error = &'static str;
    type Runtime = u64;
}

pub(super) type Pool = State<TestTypes>;

/// A pool whose hosts speak HTTP/1 up to 99, HTTP/2 from 100 on, and from 200 on what is not known beforehand.
fn pool(config: PoolConfig) -> (Pool, Instant) {
    let speaks = |host: &u8| match host {
        ..100 => Speaks::Http1,
        100..200 => Speaks::Http2,
        200.. => Speaks::Unknown,
    };
    let limits = config.limits_for("", 0);
    (State::new(&config, move |host| Profile { limits, speaks: speaks(host), balanced: None }), crate::clock::now())
}

fn http1(conn: u64) -> Opened<TestTypes> {
    Opened { fresh: conn, conn, speaks: Speaks::Http1, location: None, remote: None, runtime: 0 }
}

fn http2(conn: u64) -> Opened<TestTypes> {
    Opened { speaks: Speaks::Http2, ..http1(conn) }
}

/// The limits of a request that has none of its own.
pub(super) const LIMITS: WaitLimits = WaitLimits { connect: Duration::from_secs(10), ends_dials: true, queue: None };
const KEPT: LeaseEnd = LeaseEnd::Kept { keep_alive: None };
const BROKEN: LeaseEnd = LeaseEnd::Retire(CloseCause::Unfinished);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Pool {
    /// Asks for a connection for a request that may be sent twice.
    pub(super) fn acquire(
        &mut self,
        now: Instant,
        host: &u8,
        failed_on: Option<u64>,
        despite_drain: bool,
        waiter: impl FnOnce() -> u32,
    ) -> Acquired<u64> {
        let failed = failed_on.map(|number| EarlierConn { number, ip: None });
        self.checkout(now, host, &Wish { failed, despite_drain, ..Wish::default() }, 0, || (waiter(), LIMITS))
    }

    fn wait(&mut self, now: Instant, host: u8, waiter: u32) -> WaiterId {
        match self.acquire(now, &host, None, false, || waiter) {
            Acquired::Wait(id, _) => id,
            other => panic!("expected to wait: {other:?}"),
        }
    }

    fn ready(&mut self, now: Instant, host: u8) -> (LeaseToken, u64) {
        match self.acquire(now, &host, None, false, || 0) {
            Acquired::Ready(Grant { token, conn, .. }) => (token, conn),
            other => panic!("expected an idle connection: {other:?}"),
        }
    }

    fn permit(&mut self) -> Permit {
        match self.next_effect() {
            Some(Effect::Dial(permit, ..)) => permit,
            other => panic!("expected a dial: {other:?}"),
        }
    }

    fn delivered(&mut self) -> (u32, LeaseToken, u64) {
        match self.next_effect() {
            Some(Effect::Deliver { waiter, grant: Grant { token, conn, .. }, .. }) => (waiter, token, conn),
            other => panic!("expected a delivery: {other:?}"),
        }
    }

    /// An HTTP/2 connection, number 7, whose peer says how many streams it takes.
    fn dialed_http2(&mut self, now: Instant, permit: Permit, streams: usize) {
        let id = permit.id();
        self.dial_succeeded(now, permit, http2(7));
        self.announce_streams(now, id, streams);
    }

    fn closes(&mut self) -> u64 {
        match self.next_effect() {
            Some(Effect::Close(conn)) => conn,
            other => panic!("expected a close: {other:?}"),
        }
    }

    fn limit(&mut self, now: Instant, host: u8, waiter: u32) -> Limit {
        match self.acquire(now, &host, None, false, || waiter) {
            Acquired::Wait(_, Queued { limit, .. }) | Acquired::Refused(limit) => limit,
            other => panic!("expected to wait: {other:?}"),
        }
    }

    fn failed(&mut self) -> (u32, WaitFailure<&'static str>) {
        match self.next_effect() {
            Some(Effect::Fail { waiter, why }) => (waiter, why),
            other => panic!("expected a failure: {other:?}"),
        }
    }

    /// Opens `count` connections to `host` and leaves them idle.
    fn open_idle(&mut self, now: Instant, host: u8, count: u64) -> Vec<ConnId> {
        for waiter in 0..count {
            self.wait(now, host, waiter as u32);
        }
        let permits: Vec<_> = (0..count).map(|_| self.permit()).collect();
        let ids = permits.iter().map(Permit::id).collect();
        for permit in permits {
            let conn = permit.id().serial;
            self.dial_succeeded(now, permit, http1(conn));
        }
        let held: Vec<_> = (0..count).map(|_| self.delivered().1).collect();
        for held in held {
            self.release(now, held, KEPT);
        }
        ids
    }
}

/// A host that speaks HTTP/2.
const MANY: u8 = 100;
/// A host whose protocol is not known beforehand.
const UNKNOWN: u8 = 200;
/// The demands of a request that must not be sent twice.
const ONCE: Wish = Wish { failed: None, despite_drain: false, send_once: true, own_dial: false, avoid: None };
