//! One server, with a client for each runtime that runs.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};

use hickory_resolver::config::{ConnectionConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::xfer::{DnsHandle, FirstAnswer};
use hickory_resolver::proto::op::{DnsRequest, DnsRequestOptions, DnsResponse, Query};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{ConnectionProvider, PoolContext, TlsConfig};
use tokio::runtime;
use tokio::sync::oneshot;

use crate::dns::Family;
use crate::dns::hickory::servers::shared_connection::{MAX_UNANSWERED, SharedConnection};
use crate::dns::hickory::servers::sockets::Sockets;
use crate::dns::hickory::servers::{MAX_TIMEOUT, Server, ServerLimits, records};
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

/// The means of asking one server: by UDP, with a socket for each question, and over a connection that all questions share.
pub(in crate::dns::hickory) struct ServerClient {
    ip: IpAddr,
    sockets: Sockets,
    context: Arc<PoolContext>,
    udp: Option<ConnectionConfig>,
    connection: Option<SharedConnection>,
}

/// The most questions about a name, the one about itself among them.
const MAX_QUESTIONS: usize = 8;

/// Returns what hickory needs to open connections.
pub(in crate::dns::hickory) fn context(
    edns: bool,
    limits: ServerLimits,
    #[cfg(feature = "dns-over-tls")] tls: rustls::ClientConfig,
) -> Result<Arc<PoolContext>, NetError> {
    let mut options = ResolverOpts::default();
    options.edns0 = edns;
    // Each try has its own timeout; this is the latest time at which any of them ends.
    options.timeout = limits.try_timeout.saturating_mul(limits.tries as u32).min(MAX_TIMEOUT);
    // Never reached, because hickory gives up a connection at this limit. A question counts for a moment after its answer,
    // and those that go unanswered go on without a turn.
    options.max_active_requests = 2 * (MAX_UNANSWERED + limits.max_in_flight.min(1 << 14));
    #[cfg(feature = "dns-over-tls")]
    let tls = TlsConfig { config: tls };
    #[cfg(not(feature = "dns-over-tls"))]
    let tls = TlsConfig::new()?;
    Ok(Arc::new(PoolContext::new(options, tls)))
}

/// Returns the question for the addresses of a full name.
fn request(context: &PoolContext, full_name: Name, family: Family) -> DnsRequest {
    let records = match family {
        Family::V4 => RecordType::A,
        Family::V6 => RecordType::AAAA,
    };
    let mut options = DnsRequestOptions::default();
    options.use_edns = context.options.edns0;
    DnsRequest::from_query(Query::query(full_name, records), options)
}

impl ServerClient {
    /// Creates a client that asks by `udp` first, if that is one of its protocols.
    pub(in crate::dns::hickory) fn new(
        server: SocketAddr,
        udp: Option<ConnectionConfig>,
        connection: Option<ConnectionConfig>,
        context: &Arc<PoolContext>,
    ) -> Self {
        let (ip, sockets) = (server.ip(), Sockets::new(server));
        let connection = connection.map(|config| SharedConnection::new(sockets.clone(), context.clone(), ip, config));
        Self { ip, sockets, context: context.clone(), udp, connection }
    }

    /// Asks the server for the addresses of a full name, and for those of its alias where an answer ends with one.
    ///
    /// # Errors
    /// If no answer came.
    pub(in crate::dns::hickory) async fn ask(&self, full_name: Name, family: Family) -> Result<DnsResponse, NetError> {
        let mut response = self.ask_once(full_name.clone(), family).await?;
        for _ in 1..MAX_QUESTIONS {
            let Some(alias) = records::unanswered_alias(&response, &full_name) else { break };
            let aliases = std::mem::take(&mut response.answers);
            response = self.ask_once(alias, family).await?;
            response.answers.splice(..0, aliases);
        }
        Ok(response)
    }

    /// Asks by UDP, and by TCP after a truncated answer; otherwise by the one protocol that the server has.
    async fn ask_once(&self, full_name: Name, family: Family) -> Result<DnsResponse, NetError> {
        let request = request(&self.context, full_name, family);
        if let Some(udp) = &self.udp {
            let exchange = self.sockets.new_connection(self.ip, udp, &self.context)?.await?;
            let response = exchange.send(request.clone()).first_answer().await?;
            if !response.metadata.truncation || self.connection.is_none() {
                return Ok(response);
            }
        }
        match &self.connection {
            Some(connection) => connection.ask(request).await,
            None => Err(NetError::NoConnections),
        }
    }

    /// Returns the number of answers that came over the shared connection.
    pub(in crate::dns::hickory) fn answers(&self) -> u64 {
        self.connection.as_ref().map_or(0, SharedConnection::answers)
    }
}
