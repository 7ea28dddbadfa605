//! The connection to a DNS server over TCP, TLS or HTTPS, which all lookups share.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
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
/// the messages beyond 33 that it cannot write at once.
pub(in crate::dns::hickory) const MAX_UNANSWERED: usize = 32;

/// The time after which a question without an answer gives its turn to another one and goes on. Questions that go unanswered
/// then hold up no others: all 256 that are asked at once by default have their turn within a try.
const TURN_TIMEOUT: Duration = Duration::from_millis(200);

/// The most connections on which one question is asked.
const MAX_CONNECTIONS: usize = 64;

type Exchange = DnsExchange<Sockets>;

/// A connection that all lookups share. The first question opens it; after the server has closed it, the next one opens
/// another.
pub(super) struct SharedConnection {
    sockets: Sockets,
    context: Arc<PoolContext>,
    ip: IpAddr,
    config: ConnectionConfig,
    turns: Semaphore,
    current: Mutex<Option<Arc<OpenExchange>>>,
    /// The number of answers so far, over all connections.
    answers: AtomicU64,
}

/// A connection that is open or being opened.
struct OpenExchange {
    exchange: Shared<BoxFuture<'static, Result<Exchange, NetError>>>,
    /// True from its first answer on.
    has_answered: AtomicBool,
}

impl SharedConnection {
    pub(super) fn new(sockets: Sockets, context: Arc<PoolContext>, ip: IpAddr, config: ConnectionConfig) -> Self {
        Self {
            sockets,
            context,
            ip,
            config,
            turns: Semaphore::new(MAX_UNANSWERED),
            current: Mutex::default(),
            answers: AtomicU64::new(0),
        }
    }

    /// Returns the number of answers so far, over all connections.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Asks once it is the question's turn. If the server closes the first connection, or one over which it has answered before, the question
    /// is asked again on the next one, on [`MAX_CONNECTIONS`] at most.
    ///
    /// # Errors
    /// If a connection cannot be opened, or closes without an answer.
    pub(super) async fn ask(&self, request: DnsRequest) -> Result<DnsResponse, NetError> {
        let mut turn = Some(self.turns.acquire().await.expect("the semaphore is never closed"));
        let mut connections = 0;
        loop {
            let open = self.open();
            let exchange = match open.exchange.clone().await {
                Ok(exchange) => exchange,
                Err(error) => {
                    self.forget(&open);
                    return Err(error);
                }
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
            self.forget(&open);
            connections += 1;
            // A server may close the connection after each answer, and the other questions under way are asked again. A server
            // that closes it because of this question never answers it, and each time other questions lose their connection.
            let is_useless = connections > 1 && !open.has_answered.load(Ordering::Relaxed);
            if connections == MAX_CONNECTIONS || is_useless {
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

    /// Forgets a connection that could not be opened or was closed.
    fn forget(&self, closed: &Arc<OpenExchange>) {
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|open| Arc::ptr_eq(open, closed)) {
            *current = None;
        }
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
