//! The connections to one DNS server. Over TCP, TLS or HTTPS all lookups share one, which remembers its last failure.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared, ready};
use futures_util::stream::{BoxStream, StreamExt, once};
use hickory_resolver::config::{ConnectionConfig, ProtocolConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::xfer::{DnsExchange, DnsHandle, FirstAnswer};
use hickory_resolver::proto::op::{DnsRequest, DnsResponse};
use hickory_resolver::{ConnectionProvider, PoolContext};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::sockets::Sockets;
use crate::clock::{before, now};
use crate::world;

/// The most questions at once that wait for a first answer over a connection; the others wait for their turn. hickory fails
/// the messages beyond 33 that it cannot write at once.
pub(in crate::dns::hickory) const MAX_UNANSWERED: usize = 32;

/// The time after which a question without an answer gives its turn to another one and goes on. Questions that go unanswered
/// then hold up no others: all 256 that are asked at once by default have their turn within a try.
const TURN_TIMEOUT: Duration = Duration::from_millis(200);

/// The most connections on which one question is asked.
const MAX_CONNECTIONS: usize = 64;

type Exchange = DnsExchange<Sockets>;

/// Opens the connections to one server. By itself, hickory would open a connection for each lookup that finds none, give up
/// one that is busy, and not say why one could not be opened.
#[derive(Clone)]
pub(in crate::dns::hickory) struct Connections {
    sockets: Sockets,
    context: Arc<PoolContext>,
    /// The connection for all protocols other than UDP; a server has at most one of these.
    shared: Arc<OnceLock<Arc<SharedConnection>>>,
}

/// A means of asking the server, as hickory uses it.
#[derive(Clone)]
pub(in crate::dns::hickory) enum ServerHandle {
    /// UDP, with a socket for each question.
    Udp(Exchange),
    /// The connection that all lookups share.
    Shared(Arc<SharedConnection>),
}

/// A connection that all lookups share. The first question opens it; after the server has closed it, the next one opens
/// another.
pub(in crate::dns::hickory) struct SharedConnection {
    sockets: Sockets,
    context: Arc<PoolContext>,
    ip: IpAddr,
    config: ConnectionConfig,
    turns: Semaphore,
    current: Mutex<Option<Arc<OpenExchange>>>,
    /// The reason why the last connection could not be opened, or was closed.
    failure: Mutex<Option<NetError>>,
    /// The number of answers so far, over all connections.
    answers: AtomicU64,
}

/// A connection that is open or being opened.
struct OpenExchange {
    exchange: Shared<BoxFuture<'static, Result<Exchange, NetError>>>,
    /// True from its first answer on.
    has_answered: AtomicBool,
}

impl Connections {
    pub(in crate::dns::hickory) fn new(sockets: Sockets, context: PoolContext) -> Self {
        Self { sockets, context: Arc::new(context), shared: Arc::default() }
    }

    /// Returns the reason why the shared connection could not be opened the last time, or was closed.
    pub(in crate::dns::hickory) fn failure(&self) -> Option<NetError> {
        self.shared.get()?.failure.lock().clone()
    }

    /// Returns the number of answers that came over the shared connection.
    pub(in crate::dns::hickory) fn answers(&self) -> u64 {
        self.shared.get().map_or(0, |connection| connection.answers.load(Ordering::Relaxed))
    }

    fn shared(&self, ip: IpAddr, config: &ConnectionConfig) -> Arc<SharedConnection> {
        let connection = || SharedConnection {
            sockets: self.sockets.clone(),
            context: self.context.clone(),
            ip,
            config: config.clone(),
            turns: Semaphore::new(MAX_UNANSWERED),
            current: Mutex::default(),
            failure: Mutex::default(),
            answers: AtomicU64::new(0),
        };
        self.shared.get_or_init(|| Arc::new(connection())).clone()
    }
}

impl ConnectionProvider for Connections {
    type Conn = ServerHandle;
    type FutureConn = BoxFuture<'static, Result<ServerHandle, NetError>>;
    type RuntimeProvider = Sockets;

    fn new_connection(
        &self,
        ip: IpAddr,
        config: &ConnectionConfig,
        context: &PoolContext,
    ) -> Result<Self::FutureConn, NetError> {
        if config.protocol == ProtocolConfig::Udp {
            let opening = self.sockets.new_connection(ip, config, context)?;
            return Ok(async move { opening.await.map(ServerHandle::Udp) }.boxed());
        }
        Ok(ready(Ok(ServerHandle::Shared(self.shared(ip, config)))).boxed())
    }

    fn runtime_provider(&self) -> &Sockets {
        &self.sockets
    }
}

impl DnsHandle for ServerHandle {
    type Response = BoxStream<'static, Result<DnsResponse, NetError>>;
    type Runtime = Sockets;

    fn send(&self, mut request: DnsRequest) -> Self::Response {
        match self {
            Self::Udp(exchange) => {
                // hickory measures round trips in real time, and asks again by what it has measured.
                if world::is_simulated() {
                    request.options_mut().retry_interval = Duration::ZERO;
                }
                exchange.send(request).boxed()
            }
            Self::Shared(connection) => once(connection.clone().ask(request)).boxed(),
        }
    }
}

impl SharedConnection {
    /// Asks once it is the question's turn. If the server closes a connection over which it has answered before, the question
    /// is asked again on the next one, on [`MAX_CONNECTIONS`] at most.
    ///
    /// # Errors
    /// If a connection cannot be opened, or closes without an answer.
    async fn ask(self: Arc<Self>, request: DnsRequest) -> Result<DnsResponse, NetError> {
        let mut turn = Some(self.turns.acquire().await.expect("the semaphore is never closed"));
        let mut connections = 0;
        loop {
            let open = self.open();
            let exchange = match open.exchange.clone().await {
                Ok(exchange) => exchange,
                Err(error) => return Err(self.record_closed(&open, error)),
            };
            let mut asking = exchange.send(request.clone()).first_answer();
            let result = match before(Some(now() + TURN_TIMEOUT), &mut asking).await {
                Some(result) => result,
                None => {
                    drop(turn.take());
                    asking.await
                }
            };
            let error = match result {
                Ok(response) => {
                    open.has_answered.store(true, Ordering::Relaxed);
                    self.answers.fetch_add(1, Ordering::Relaxed);
                    return Ok(response);
                }
                Err(error) => error,
            };
            let Some(reason) = close_reason(&error) else { return Err(error) };
            let reason = self.record_closed(&open, reason);
            connections += 1;
            // A server may close the connection after each answer, and the other questions under way are asked again. A server
            // that closes it because of this question never answers it, and each time other questions lose their connection.
            if connections == MAX_CONNECTIONS || !open.has_answered.load(Ordering::Relaxed) {
                return Err(reason);
            }
        }
    }

    /// Returns the connection that is open or being opened, or begins to open one.
    fn open(&self) -> Arc<OpenExchange> {
        let mut current = self.current.lock();
        current
            .get_or_insert_with(|| {
                let sockets = match self.config.protocol {
                    ProtocolConfig::Tcp => self.sockets.of_a_connection(),
                    #[cfg(feature = "dns-over-tls")]
                    ProtocolConfig::Tls { .. } => self.sockets.of_a_connection(),
                    // Over HTTPS, the task that reads the stream is another one than hickory's for the connection.
                    _ => self.sockets.clone(),
                };
                let opening = sockets.new_connection(self.ip, &self.config, &self.context);
                let exchange = async move { opening?.await }.boxed().shared();
                Arc::new(OpenExchange { exchange, has_answered: AtomicBool::new(false) })
            })
            .clone()
    }

    /// Forgets a connection that could not be opened or was closed, and keeps the reason. Returns the reason.
    fn record_closed(&self, closed: &Arc<OpenExchange>, reason: NetError) -> NetError {
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|open| Arc::ptr_eq(open, closed)) {
            *current = None;
        }
        drop(current);
        *self.failure.lock() = Some(reason.clone());
        reason
    }
}

/// Returns the reason why the connection is closed after this error, or `None` if it still works.
fn close_reason(error: &NetError) -> Option<NetError> {
    match error {
        // The connection's task ended before it took the question, or before it sent it.
        NetError::Busy | NetError::Message(_) => {
            let closed = io::Error::new(io::ErrorKind::ConnectionAborted, "the server closed the connection");
            Some(NetError::from(closed))
        }
        NetError::Io(_) => Some(error.clone()),
        error if error.is_connection_closed() => Some(error.clone()),
        _ => None,
    }
}
