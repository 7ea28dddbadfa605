//! One server, with a client for each runtime that runs.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};

use hickory_resolver::PoolContext;
use hickory_resolver::config::ConnectionConfig;
use tokio::runtime;
use tokio::sync::oneshot;

use super::client::ServerClient;
use super::server::Server;
use crate::sync::lock;

/// A server and its clients.
pub(in crate::dns::hickory) struct Upstream {
    server: Server,
    context: Arc<PoolContext>,
    clients: Arc<Mutex<Vec<OfRuntime>>>,
}

/// The client of one runtime, which is kept until the runtime ends: its connection lives there. `None` if that may have died without notice.
struct OfRuntime {
    runtime: runtime::Id,
    kept: Option<Arc<ServerClient>>,
    /// Ends the runtime's [`RuntimeEnd`] when the server is gone.
    _is_needed: oneshot::Sender<()>,
}

/// Forgets the client of a runtime when it is dropped, which is when the runtime ends.
struct RuntimeEnd {
    clients: Weak<Mutex<Vec<OfRuntime>>>,
    runtime: runtime::Id,
}

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        if let Some(clients) = self.clients.upgrade() {
            let mut clients = lock(&clients);
            let index = clients.iter().position(|of| of.runtime == self.runtime);
            let ended = index.map(|index| clients.swap_remove(index));
            drop(clients);
            drop(ended);
        }
    }
}

impl Upstream {
    pub(in crate::dns::hickory) fn new(server: Server, context: Arc<PoolContext>) -> Self {
        Self { server, context, clients: Arc::default() }
    }

    pub(in crate::dns::hickory) fn ip(&self) -> IpAddr {
        self.server.address().ip()
    }

    pub(in crate::dns::hickory) fn is_by_udp(&self) -> bool {
        self.server.udp().is_some()
    }

    /// Returns the client of the current runtime, which is used for one lookup after the other.
    pub(in crate::dns::hickory) fn client(&self) -> Arc<ServerClient> {
        let handle = runtime::Handle::current();
        let runtime = handle.id();
        let new = || Arc::new(self.new_client(self.server.udp()));
        let mut clients = lock(&self.clients);
        if let Some(of) = clients.iter_mut().find(|of| of.runtime == runtime) {
            return of.kept.get_or_insert_with(new).clone();
        }
        let (is_needed, gone) = oneshot::channel();
        let client = new();
        clients.push(OfRuntime { runtime, kept: Some(client.clone()), _is_needed: is_needed });
        drop(clients);
        let end = RuntimeEnd { clients: Arc::downgrade(&self.clients), runtime };
        handle.spawn(async move {
            let _end = end;
            let _ = gone.await;
        });
        client
    }

    /// Drops a client that got no answer, with its connection.
    pub(in crate::dns::hickory) fn drop_client(&self, silent: &Arc<ServerClient>) {
        let mut clients = lock(&self.clients);
        let is_silent = |of: &&mut OfRuntime| of.kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, silent));
        let dropped = clients.iter_mut().find(is_silent).and_then(|of| of.kept.take());
        drop(clients);
        drop(dropped);
    }

    /// Returns a client for one more try, with a connection of its own.
    pub(in crate::dns::hickory) fn new_connection(&self) -> ServerClient {
        self.new_client(None)
    }

    fn new_client(&self, udp: Option<ConnectionConfig>) -> ServerClient {
        ServerClient::new(self.server.address(), udp, Some(self.server.connection()), &self.context)
    }
}
