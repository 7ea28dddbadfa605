//! The connection to a DNS server by TCP, TLS or HTTPS: one for all lookups, with the reason of its last failure.

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

/// The most questions at once that wait for a first answer over a connection; the others wait for their turn. hickory fails
/// the messages beyond 33 that it cannot write at once, and is not woken up again after it has read 100 responses at once.
pub(super) const MOST_UNDER_WAY: usize = 32;
/// After how long without an answer a question goes on without a turn, so that those that go unanswered hold nobody up: all
/// that are asked by default, 256, have their turn within a try.
const PATIENCE: Duration = Duration::from_millis(200);

/// The most connections on which one question is asked.
const MOST_CONNECTIONS: usize = 64;

type Exchange = DnsExchange<Sockets>;

/// Opens the connections to one server. hickory would open one for each lookup that finds none, give one up that is busy,
/// and not say why one could not be opened.
#[derive(Clone)]
pub(super) struct Connections {
    sockets: Sockets,
    context: Arc<PoolContext>,
    /// The connection that is not UDP; a server has one kind at most.
    shared: Arc<OnceLock<Arc<Connection>>>,
}

/// A way to ask a server.
#[derive(Clone)]
pub(super) enum Handle {
    /// By UDP, with a socket for each question.
    Packets(Exchange),
    /// Over the connection that all lookups share.
    Stream(Arc<Connection>),
}

/// A connection that is opened by the first question, and again by the next one after the server has closed it.
pub(super) struct Connection {
    sockets: Sockets,
    context: Arc<PoolContext>,
    ip: IpAddr,
    config: ConnectionConfig,
    turns: Semaphore,
    open: Mutex<Option<Arc<Open>>>,
    /// The reason why the last one could not be opened, or was closed.
    failure: Mutex<Option<NetError>>,
    /// The number of answers so far.
    answers: AtomicU64,
}

/// A connection that is open or being opened.
struct Open {
    exchange: Shared<BoxFuture<'static, Result<Exchange, NetError>>>,
    /// True from its first answer on.
    has_answered: AtomicBool,
}

impl Connections {
    pub(super) fn new(sockets: Sockets, context: PoolContext) -> Self {
        Self { sockets, context: Arc::new(context), shared: Arc::default() }
    }

    /// The reason why the shared connection could not be opened the last time, or was closed.
    pub(super) fn failure(&self) -> Option<NetError> {
        self.shared.get()?.failure.lock().clone()
    }

    /// The number of answers that came over the shared connection.
    pub(super) fn answers(&self) -> u64 {
        self.shared.get().map_or(0, |connection| connection.answers.load(Ordering::Relaxed))
    }

    fn shared(&self, ip: IpAddr, config: &ConnectionConfig) -> Arc<Connection> {
        let connection = || Connection {
            sockets: self.sockets.clone(),
            context: self.context.clone(),
            ip,
            config: config.clone(),
            turns: Semaphore::new(MOST_UNDER_WAY),
            open: Mutex::default(),
            failure: Mutex::default(),
            answers: AtomicU64::new(0),
        };
        self.shared.get_or_init(|| Arc::new(connection())).clone()
    }
}

impl ConnectionProvider for Connections {
    type Conn = Handle;
    type FutureConn = BoxFuture<'static, Result<Handle, NetError>>;
    type RuntimeProvider = Sockets;

    fn new_connection(
        &self,
        ip: IpAddr,
        config: &ConnectionConfig,
        context: &PoolContext,
    ) -> Result<Self::FutureConn, NetError> {
        if config.protocol == ProtocolConfig::Udp {
            let opening = self.sockets.new_connection(ip, config, context)?;
            return Ok(async move { opening.await.map(Handle::Packets) }.boxed());
        }
        Ok(ready(Ok(Handle::Stream(self.shared(ip, config)))).boxed())
    }

    fn runtime_provider(&self) -> &Sockets {
        &self.sockets
    }
}

impl DnsHandle for Handle {
    type Response = BoxStream<'static, Result<DnsResponse, NetError>>;
    type Runtime = Sockets;

    fn send(&self, request: DnsRequest) -> Self::Response {
        match self {
            Self::Packets(exchange) => exchange.send(request).boxed(),
            Self::Stream(connection) => once(connection.clone().ask(request)).boxed(),
        }
    }
}

impl Connection {
    /// Asks once it is the question's turn, and again on the next connection where the server closed one that had answered
    /// before, on [`MOST_CONNECTIONS`] at most. A connection that closes without an answer is an error.
    async fn ask(self: Arc<Self>, request: DnsRequest) -> Result<DnsResponse, NetError> {
        let mut turn = Some(self.turns.acquire().await.expect("it is never closed"));
        let mut connections = 0;
        loop {
            let open = self.current();
            let exchange = match open.exchange.clone().await {
                Ok(exchange) => exchange,
                Err(error) => return Err(self.lost(&open, error)),
            };
            let mut asking = exchange.send(request.clone()).first_answer();
            let asked = match before(Some(now() + PATIENCE), &mut asking).await {
                Some(asked) => asked,
                None => {
                    drop(turn.take());
                    asking.await
                }
            };
            let error = match asked {
                Ok(response) => {
                    open.has_answered.store(true, Ordering::Relaxed);
                    self.answers.fetch_add(1, Ordering::Relaxed);
                    return Ok(response);
                }
                Err(error) => error,
            };
            let Some(reason) = closing(&error) else { return Err(error) };
            let reason = self.lost(&open, reason);
            connections += 1;
            // A server that closes after each answer serves those that ask at the same time; one that closes upon this question
            // never answers it, and others lose their connection.
            if connections == MOST_CONNECTIONS || !open.has_answered.load(Ordering::Relaxed) {
                return Err(reason);
            }
        }
    }

    /// The connection that is open or being opened; a new one where there is none.
    fn current(&self) -> Arc<Open> {
        let mut open = self.open.lock();
        open.get_or_insert_with(|| {
            let opening = self.sockets.new_connection(self.ip, &self.config, &self.context);
            let exchange = async move { opening?.await }.boxed().shared();
            Arc::new(Open { exchange, has_answered: AtomicBool::new(false) })
        })
        .clone()
    }

    /// Gives a connection up that could not be opened or was closed, and keeps the reason.
    fn lost(&self, lost: &Arc<Open>, reason: NetError) -> NetError {
        let mut open = self.open.lock();
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, lost)) {
            *open = None;
        }
        drop(open);
        *self.failure.lock() = Some(reason.clone());
        reason
    }
}

/// The reason why the connection is closed after this error; `None` where it still works.
fn closing(error: &NetError) -> Option<NetError> {
    match error {
        // The connection's task ended before it took the question, or before it sent it.
        NetError::Busy | NetError::Message(_) => {
            let closed = io::Error::new(io::ErrorKind::ConnectionAborted, "the server closed the connection");
            Some(NetError::from(closed))
        }
        NetError::Io(_) => Some(error.clone()),
        error => error.is_connection_closed().then(|| error.clone()),
    }
}
