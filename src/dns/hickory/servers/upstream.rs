//! One server, with a client for each runtime that runs.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use hickory_resolver::config::ProtocolConfig;
use hickory_resolver::net::NetError;
use tokio::runtime;
use tokio::sync::oneshot;

use super::client::{ClientFactory, ServerClient, is_by_udp};
use super::server::Endpoint;
use crate::sync::lock;

/// A server and its clients.
pub(in crate::dns::hickory) struct Upstream {
    endpoint: Endpoint,
    factory: Arc<ClientFactory>,
    clients: Arc<Mutex<KeptClients>>,
}

/// The clients of the runtimes that run.
#[derive(Default)]
struct KeptClients {
    of_runtimes: Vec<OfRuntime>,
    last_serial: u64,
}

/// The client of one runtime, which is kept until the runtime ends.
struct OfRuntime {
    runtime: runtime::Id,
    kept: Option<KeptClient>,
    /// Ends the runtime's [`RuntimeEnd`] when the server is gone.
    _is_needed: oneshot::Sender<()>,
}

/// A client that is used for one lookup after the other. Its connection may have died without notice. The connection lives
/// on the runtime on which it was first used, so each runtime has its own client.
#[derive(Clone)]
pub(in crate::dns::hickory) struct KeptClient {
    serial: u64,
    pub(in crate::dns::hickory) client: ServerClient,
}

/// Forgets the client of a runtime when it is dropped, which is when the runtime ends.
struct RuntimeEnd {
    clients: Weak<Mutex<KeptClients>>,
    runtime: runtime::Id,
}

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        if let Some(clients) = self.clients.upgrade() {
            let mut clients = lock(&clients);
            let index = clients.of_runtimes.iter().position(|of| of.runtime == self.runtime);
            let ended = index.map(|index| clients.of_runtimes.swap_remove(index));
            drop(clients);
            drop(ended);
        }
    }
}

impl Upstream {
    pub(in crate::dns::hickory) fn new(endpoint: Endpoint, factory: Arc<ClientFactory>) -> Self {
        Self { endpoint, factory, clients: Arc::default() }
    }

    pub(in crate::dns::hickory) fn ip(&self) -> IpAddr {
        self.endpoint.config.ip
    }

    pub(in crate::dns::hickory) fn is_by_udp(&self) -> bool {
        is_by_udp(&self.endpoint.config)
    }

    /// Returns the client of the current runtime.
    pub(in crate::dns::hickory) fn client(&self) -> Result<KeptClient, NetError> {
        let handle = runtime::Handle::current();
        let runtime = handle.id();
        let mut clients = self.lock();
        let known = clients.of_runtimes.iter().position(|of| of.runtime == runtime);
        if let Some(kept) = known.and_then(|index| clients.of_runtimes[index].kept.clone()) {
            return Ok(kept);
        }
        clients.last_serial += 1;
        let kept = KeptClient { serial: clients.last_serial, client: self.factory.client(self.endpoint.clone())? };
        match known {
            Some(index) => clients.of_runtimes[index].kept = Some(kept.clone()),
            None => {
                let (is_needed, gone) = oneshot::channel();
                clients.of_runtimes.push(OfRuntime { runtime, kept: Some(kept.clone()), _is_needed: is_needed });
                drop(clients);
                let end = RuntimeEnd { clients: Arc::downgrade(&self.clients), runtime };
                handle.spawn(async move {
                    let _end = end;
                    let _ = gone.await;
                });
            }
        }
        Ok(kept)
    }

    /// Drops a client that got no answer, with its connections.
    pub(in crate::dns::hickory) fn drop_client(&self, silent: &KeptClient) {
        let mut clients = self.lock();
        let is_silent = |of: &&mut OfRuntime| of.kept.as_ref().is_some_and(|kept| kept.serial == silent.serial);
        let dropped = clients.of_runtimes.iter_mut().find(is_silent).and_then(|of| of.kept.take());
        drop(clients);
        drop(dropped);
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
