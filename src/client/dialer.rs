//! The pool's `Dial` trait, implemented by the client's connector.

use std::net::IpAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::task::AbortHandle;

use super::body::OutgoingBody;
use super::pool_key::PoolKey;
use crate::connect::{Capacity, Conn, ConnectError, Connector, Opened, Protocol};
use crate::pool::{Addresses, Dial, Lease, Location, Slot, Speaks, Started};
use crate::trace::{CloseCause, DialTrace, Family};

/// Opens the pool's connections.
pub(crate) struct Dialer(pub(super) Arc<Connector>);

impl Dial for Dialer {
    type Key = PoolKey;
    type Opened = Opened<OutgoingBody>;
    type Conn = Conn<OutgoingBody>;
    type Error = ConnectError;

    async fn dial(
        &self,
        key: &PoolKey,
        avoid: Option<IpAddr>,
        trace: &Arc<DialTrace>,
    ) -> Result<Opened<OutgoingBody>, ConnectError> {
        // Boxed: the code that drops this future takes 5 kB, and would be repeated in each place where it may be dropped.
        self.0.open(&key.origin, key.proxy.as_ref(), avoid, trace).boxed().await
    }

    fn start(
        &self,
        opened: Opened<OutgoingBody>,
        slot: Slot,
        task: AbortHandle,
    ) -> (Started<Conn<OutgoingBody>>, impl Future<Output = ()> + Send + Unpin + use<>) {
        let location = opened.name().zip(opened.remote());
        let location = location.map(|(name, remote)| Location { name, ip: remote.ip() });
        let number = slot.connection();
        let reporter = slot.capacity_reporter();
        let (conn, serving) = opened.start(number, slot, task, move |capacity| match capacity {
            Capacity::Streams(count) => reporter.announce_streams(count),
            Capacity::NoMore => reporter.take_no_more(),
            Capacity::EnhanceYourCalm => reporter.back_off(),
            Capacity::Abandoned => reporter.abandon(),
        });
        let speaks = speaks(Some(conn.protocol()));
        (Started { conn, speaks, location }, serving)
    }

    fn close(conn: &Conn<OutgoingBody>) {
        conn.close();
    }

    fn address(key: &PoolKey) -> (String, u16) {
        let origin = &key.origin;
        // Only DNS knows the dot at the end of a fully qualified name.
        (origin.host().to_string().trim_end_matches('.').to_owned(), origin.port())
    }

    fn speaks(&self, key: &PoolKey) -> Speaks {
        speaks(self.0.known_protocol(&key.origin))
    }

    fn is_exhausted(error: &ConnectError) -> bool {
        error.is_exhausted()
    }

    fn answers(&self, name: &str) -> Vec<Addresses> {
        let known = |family| self.0.resolver.peek(name, family);
        let answers =
            Family::BOTH.map(|family| known(family).map(|(ips, ttl)| Addresses { family, ips, ttl, serial: None }));
        answers.into_iter().flatten().collect()
    }
}

fn speaks(protocol: Option<Protocol>) -> Speaks {
    match protocol {
        Some(Protocol::Http1) => Speaks::Http1,
        Some(Protocol::Http2) => Speaks::Http2,
        None => Speaks::Unknown,
    }
}

impl Lease<Dialer> {
    /// Retires the connection if it may be dead: nothing has come on it since its count of frames was `progress`, and
    /// the peer's system is not known to have acknowledged what was written. Called when a time limit of the request
    /// passes.
    pub(super) fn retire_if_silent(&mut self, progress: u64) {
        if self.conn().progress() == progress && !self.conn().is_acknowledged() {
            self.retire(CloseCause::Unfinished);
        }
    }
}
