//! One connection that speaks HTTP/1.1: a sender for the request that holds it, and a task that serves its socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;

use super::io::{Marked, Marks};
use crate::clock::{self, Instant};
use crate::dns::CachedResolver;
use crate::transport::Stream;

/// A connection after its handshake that nobody serves yet.
pub(crate) struct Opened<B: Body + 'static> {
    sender: http1::SendRequest<B>,
    connection: http1::Connection<TokioIo<Marked>, B>,
    marks: Arc<Marks>,
    remote: Option<SocketAddr>,
    interest: Option<Interest>,
}

/// A connection. Dropping it closes its socket.
pub(crate) struct Conn<B> {
    sender: http1::SendRequest<B>,
    marks: Arc<Marks>,
    remote: Option<SocketAddr>,
    number: u64,
    requests: u64,
    interest: Option<Interest>,
    task: AbortHandle,
}

/// The name a connection was opened for: it stays in use while requests are sent, though nobody looks it up.
pub(crate) struct Interest {
    resolver: CachedResolver,
    name: Box<str>,
    next: Instant,
}

/// How often the DNS cache is told that a name is in use: more often than any TTL ends.
const TOLD_EVERY: Duration = Duration::from_millis(250);

impl Interest {
    pub(crate) fn new(resolver: &CachedResolver, name: &str) -> Self {
        Self { resolver: resolver.clone(), name: name.into(), next: clock::now() + TOLD_EVERY }
    }

    fn tell(&mut self) {
        let now = clock::now();
        if self.next <= now {
            self.resolver.touch(&self.name);
            self.next = now + TOLD_EVERY;
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
    /// Shakes hands over a connected stream; HTTP/1.1 sends nothing for it.
    pub(crate) async fn handshake(stream: Box<dyn Stream>, remote: Option<SocketAddr>) -> hyper::Result<Self> {
        let (stream, marks) = Marked::new(stream);
        let (sender, connection) = http1::Builder::new().handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, connection, marks, remote, interest: None })
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// The same with the name it was opened for.
    pub(crate) fn in_the_name_of(self, interest: Option<Interest>) -> Self {
        Self { interest, ..self }
    }

    /// Serves the connection in a task, which drops `place` once the socket is closed.
    pub(crate) fn start(self, number: u64, place: impl Send + 'static) -> Conn<B> {
        let Self { sender, connection, marks, remote, interest } = self;
        let task = tokio::spawn(async move {
            // How it ended is told to the request it ended for.
            let _ = connection.await;
            drop(place);
        });
        Conn { sender, marks, remote, number, requests: 0, interest, task: task.abort_handle() }
    }
}

impl<B: Body + 'static> Conn<B> {
    /// Sends one request and waits for the head of its response. Dropping the future closes the connection.
    pub(crate) async fn send(&mut self, request: Request<B>) -> Result<Response<Incoming>, SendError<B>> {
        self.marks.reset();
        self.requests += 1;
        if let Some(interest) = &mut self.interest {
            interest.tell();
        }
        self.sender
            .try_send_request(request)
            .await
            .map_err(|mut failed| SendError { unsent: failed.take_message(), error: failed.into_error() })
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
        self.remote
    }

    /// When the last byte of the current request was written, so far.
    pub(crate) fn sent_at(&self) -> Option<Instant> {
        self.marks.last_write()
    }

    /// When the first byte of the current response was read.
    pub(crate) fn answered_at(&self) -> Option<Instant> {
        self.marks.first_read()
    }

    /// Whether another request may be sent at once.
    pub(crate) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// Waits until another request may be sent; `false` when none ever will.
    pub(crate) async fn ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }
}

impl<B> Drop for Conn<B> {
    fn drop(&mut self) {
        // A sender that is dropped ends an idle connection; this also ends one whose peer does not read.
        self.task.abort();
    }
}
