//! One connection that speaks HTTP/1.1 or HTTP/2: a sender for the request that holds it, and a task that serves its socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::task::AbortHandle;

use super::io::{Marked, Marks};
use super::{Forwarding, Line};
use crate::clock::{self, Instant};
use crate::dns::CachedResolver;
use crate::trace::TlsFacts;

/// A connection after its handshake that nobody serves yet.
pub(crate) struct Opened<B: Body + 'static> {
    sender: Sender<B>,
    serving: BoxFuture<'static, ()>,
    marks: Arc<Marks>,
    facts: Facts,
}

/// What is known of a connection.
struct Facts {
    remote: Option<SocketAddr>,
    tls: Option<Arc<TlsFacts>>,
    forwarding: Option<Forwarding>,
    interest: Option<Interest>,
}

/// A connection. Dropping it closes its socket.
pub(crate) struct Conn<B> {
    sender: Sender<B>,
    marks: Arc<Marks>,
    /// When the head of the last response came, of a connection whose bytes are not those of one exchange.
    answered: Option<Instant>,
    facts: Facts,
    number: u64,
    requests: u64,
    task: AbortHandle,
}

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

enum Sender<B> {
    Http1(http1::SendRequest<B>),
    Http2(http2::SendRequest<B>),
}

/// How often a silent HTTP/2 connection is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The name a connection was opened for: it stays in use while requests are sent, though nobody looks it up.
pub(crate) struct Interest {
    resolver: CachedResolver,
    name: Box<str>,
    next: Instant,
}

/// How often the DNS cache is told that a name is in use: more often than any TTL ends.
const TOLD_EVERY: Duration = Duration::from_millis(250);

/// The same for a name that has no addresses, or none that may be kept.
const LOST_EVERY: Duration = Duration::from_secs(30);

impl Interest {
    pub(crate) fn new(resolver: &CachedResolver, name: &str) -> Self {
        Self { resolver: resolver.clone(), name: name.into(), next: clock::now() + TOLD_EVERY }
    }

    pub(crate) fn tell(&mut self) {
        let now = clock::now();
        if self.next <= now {
            let known = self.resolver.touch(&self.name);
            self.next = now + if known { TOLD_EVERY } else { LOST_EVERY };
        }
    }
}

/// A request that got no response.
pub(crate) struct SendError<B> {
    pub(crate) error: hyper::Error,
    /// The request, where none of it was sent.
    pub(crate) unsent: Option<Request<B>>,
}

impl<B> Opened<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Shakes hands over a line: HTTP/1.1 sends nothing for it, HTTP/2 its preface and settings (RFC 9113 §3.4).
    pub(crate) async fn handshake(line: Line, protocol: Protocol) -> hyper::Result<Self> {
        let Line { stream, facts: tls, remote, forwarding, interest } = line;
        let (stream, marks) = Marked::new(stream);
        let stream = TokioIo::new(stream);
        // How a connection ended is told to the request it ended for.
        let (sender, serving) = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::Builder::new().handshake(stream).await?;
                (Sender::Http1(sender), connection.map(drop).boxed())
            }
            Protocol::Http2 => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_TIMEOUT);
                let (sender, connection) = builder.keep_alive_while_idle(true).handshake(stream).await?;
                (Sender::Http2(sender), connection.map(drop).boxed())
            }
        };
        Ok(Self { sender, serving, marks, facts: Facts { remote, tls, forwarding, interest } })
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.facts.remote
    }

    /// Serves the connection in a task, which drops `place` once the socket is closed.
    pub(crate) fn start(self, number: u64, place: impl Send + 'static) -> Conn<B> {
        let Self { sender, serving, marks, facts } = self;
        let task = tokio::spawn(async move {
            serving.await;
            drop(place);
        });
        let task = task.abort_handle();
        Conn { sender, marks, answered: None, facts, number, requests: 0, task }
    }
}

impl<B: Body + 'static> Conn<B> {
    /// Sends one request and waits for the head of its response. Dropping the future gives the exchange up, and with
    /// HTTP/1.1 the connection.
    pub(crate) async fn send(&mut self, request: Request<B>) -> Result<Response<Incoming>, SendError<B>> {
        self.marks.reset();
        self.answered = None;
        self.requests += 1;
        if let Some(interest) = &mut self.facts.interest {
            interest.tell();
        }
        let sent = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => {
                let sent = sender.try_send_request(request).await;
                self.answered = sent.is_ok().then(clock::now);
                sent
            }
        };
        sent.map_err(|mut failed| SendError { unsent: failed.take_message(), error: failed.into_error() })
    }

    /// What it speaks.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.sender {
            Sender::Http1(_) => Protocol::Http1,
            Sender::Http2(_) => Protocol::Http2,
        }
    }

    /// What requests need where it is a proxy's that forwards them.
    pub(crate) fn forwards(&self) -> Option<&Forwarding> {
        self.facts.forwarding.as_ref()
    }

    /// What its TLS handshake came to.
    pub(crate) fn tls(&self) -> Option<&Arc<TlsFacts>> {
        self.facts.tls.as_ref()
    }

    /// The connection's number, unique in its client.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How many requests were sent on it.
    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    /// The peer's address.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.facts.remote
    }

    /// When the last byte of the current request was written, so far.
    pub(crate) fn sent_at(&self) -> Option<Instant> {
        self.marks.last_write()
    }

    /// When the first byte of the current response was read.
    pub(crate) fn answered_at(&self) -> Option<Instant> {
        match self.protocol() {
            Protocol::Http1 => self.marks.first_read(),
            Protocol::Http2 => self.answered,
        }
    }

    /// Whether another request may be sent at once.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_ready(),
            Sender::Http2(sender) => sender.is_ready(),
        }
    }

    /// Waits until another request may be sent; `false` when none ever will.
    pub(crate) async fn ready(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }
}

impl<B> Drop for Conn<B> {
    fn drop(&mut self) {
        // A sender that is dropped ends an idle connection; this also ends one whose peer does not read.
        self.task.abort();
    }
}
