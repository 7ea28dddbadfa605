//! One server, with a client for each runtime.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use hickory_resolver::config::ProtocolConfig;
use hickory_resolver::net::NetError;
use tokio::runtime;

use super::client::{ClientFactory, ServerClient, is_by_udp};
use super::server::Endpoint;
use crate::sync::lock;

/// The maximum number of runtimes whose clients are kept. Beyond that, the oldest client is dropped, and made anew when it
/// is needed again.
const MAX_KEPT_CLIENTS: usize = 8;

/// A server and its clients.
pub(in crate::dns::hickory) struct Upstream {
    endpoint: Endpoint,
    factory: Arc<ClientFactory>,
    clients: Mutex<KeptClients>,
}

#[derive(Default)]
struct KeptClients {
    kept: Vec<KeptClient>,
    last_serial: u64,
}

/// A client that is used for one lookup after the other. Its connection may have died without notice. The connection lives
/// on the runtime on which it was first used, so each runtime has its own client.
#[derive(Clone)]
pub(in crate::dns::hickory) struct KeptClient {
    serial: u64,
    runtime: runtime::Id,
    pub(in crate::dns::hickory) client: ServerClient,
}

impl Upstream {
    pub(in crate::dns::hickory) fn new(endpoint: Endpoint, factory: Arc<ClientFactory>) -> Self {
        Self { endpoint, factory, clients: Mutex::default() }
    }

    pub(in crate::dns::hickory) fn ip(&self) -> IpAddr {
        self.endpoint.config.ip
    }

    pub(in crate::dns::hickory) fn is_by_udp(&self) -> bool {
        is_by_udp(&self.endpoint.config)
    }

    /// Returns the client of the current runtime.
    pub(in crate::dns::hickory) fn client(&self) -> Result<KeptClient, NetError> {
        let runtime = runtime::Handle::current().id();
        let mut clients = self.lock();
        if let Some(client) = clients.kept.iter().find(|client| client.runtime == runtime) {
            return Ok(client.clone());
        }
        clients.last_serial += 1;
        let client = self.factory.client(self.endpoint.clone())?;
        let client = KeptClient { serial: clients.last_serial, runtime, client };
        if clients.kept.len() >= MAX_KEPT_CLIENTS {
            clients.kept.remove(0);
        }
        clients.kept.push(client.clone());
        Ok(client)
    }

    /// Drops a client that got no answer, with its connections.
    pub(in crate::dns::hickory) fn drop_client(&self, silent: &KeptClient) {
        self.lock().kept.retain(|client| client.serial != silent.serial);
    }

    /// Returns a client for one more try, with a connection of its own: by TCP, if the server can be asked that way.
    pub(in crate::dns::hickory) fn new_connection(&self) -> Result<ServerClient, NetError> {
        let mut endpoint = self.endpoint.clone();
        let connections = &mut endpoint.config.connections;
        if connections.iter().any(|connection| connection.protocol == ProtocolConfig::Tcp) {
            connections.retain(|connection| connection.protocol == ProtocolConfig::Tcp);
        }
        self.factory.client(endpoint)
    }

    // A panic under this lock leaves nothing half changed.
    fn lock(&self) -> MutexGuard<'_, KeptClients> {
        lock(&self.clients)
    }
}
