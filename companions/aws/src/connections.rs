//! The connections that an attempt of the SDK has: the SDK is told of them, and can poison them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::connection::{ConnectionId, ConnectionMetadata};
use aws_smithy_runtime_api::client::http::telemetry::{
    CaptureHttpAttemptTelemetry, ConnectionAcquisitionTelemetry, ConnectionUsage,
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use speeddial::trace::{Event, Observer, Record, Wants};
use speeddial::{Client, Response, WeakClient};

/// The connections that an attempt had, in the order in which it got them. Clones share them. It learns of them as the observer of the
/// attempt.
#[derive(Clone)]
pub(crate) struct Connections {
    list: Arc<Mutex<Vec<Connection>>>,
    /// Weak, because the SDK keeps this longer than the attempt.
    client: WeakClient,
}

/// A connection that an attempt had.
#[derive(Clone, Copy)]
struct Connection {
    number: u64,
    remote: Option<SocketAddr>,
    is_forwarded: bool,
    /// The number of requests that the connection carried before.
    requests: u64,
    /// The time for which the attempt was queued.
    waited: Duration,
}

impl Observer for Connections {
    fn wants(&self) -> Wants {
        Wants::CALLS
    }

    fn observe(&self, record: &Record) {
        if let Event::Leased { connection: number, remote, requests, waited, forwarded: is_forwarded, .. } =
            record.event
        {
            self.list().push(Connection { number, remote, is_forwarded, requests, waited });
        }
    }
}

impl Connections {
    /// Creates the list for an attempt of a client.
    pub(crate) fn of(client: &Client) -> Self {
        Self { list: Arc::default(), client: client.downgrade() }
    }

    // Each step leaves a sound state behind, so a poisoned lock still guards one.
    fn list(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> Option<Connection> {
        self.list().last().copied()
    }

    /// Returns the last connection as the SDK knows it: it can poison the connection.
    pub(crate) fn metadata(&self) -> Option<ConnectionMetadata> {
        let Connection { number, remote, is_forwarded, .. } = self.last()?;
        let client = self.client.clone();
        let poison = move || {
            if let Some(client) = client.upgrade() {
                client.retire_connection(number);
            }
        };
        let mut metadata = ConnectionMetadata::builder()
            .connection_id(ConnectionId::new(number))
            .proxied(is_forwarded)
            .poison_fn(poison);
        metadata.set_remote_addr(remote);
        Some(metadata.build())
    }

    /// Notes which of two requests at a time was answered.
    pub(crate) fn answered(&self, response: &Response) {
        let has_several = self.list().len() > 1;
        if has_several && let Some(number) = response.timings().connection() {
            self.list().sort_by_key(|connection| connection.number == number);
        }
    }

    /// Gives the last connection no more requests.
    pub(crate) fn retire_last(&self) {
        if let (Some(connection), Some(client)) = (self.last(), self.client.upgrade()) {
            client.retire_connection(connection.number);
        }
    }

    /// Tells the SDK how it came to its connection.
    pub(crate) fn record(&self, telemetry: &CaptureHttpAttemptTelemetry) {
        if let (Some(connection), Some(metadata)) = (self.last(), self.metadata()) {
            let usage = if connection.requests == 0 { ConnectionUsage::Fresh } else { ConnectionUsage::Reused };
            let acquisition = ConnectionAcquisitionTelemetry::new(connection.waited, usage);
            telemetry.record_connection_selection(acquisition, metadata);
        }
    }

    /// Adds the connection on which an attempt failed to its error.
    pub(crate) fn add_to(&self, error: ConnectorError) -> ConnectorError {
        match self.metadata() {
            Some(metadata) => error.with_connection(metadata),
            None => error.never_connected(),
        }
    }
}
