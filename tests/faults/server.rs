//! The server: answers each request with what its path says, notes which uploads it has received whole, and can be told to lie.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use support::fault_script::{Tag, rng_of};
use support::fault_transport::{ScriptOf, Strikes, Struck};
use support::{ServerBody, full};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::pattern::{self, Part};
use crate::plan::Lane;

/// How late a late answer is.
const LATE: Duration = Duration::from_millis(300);
/// The length of the bodies of redirects and of responses with status 503.
pub(crate) const INTERIM_LENGTH: usize = 100;

/// A wrong that the server does to the requests of one call in ten, to test the judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Answers with the head of another call.
    ForeignHead,
    /// Answers with the body of another call.
    ForeignBody,
    /// Answers with a body that ends early, and says that it is whole.
    ShortBody,
    /// Processes uploads twice.
    Twice,
    /// Closes the connection in place of an answer.
    Hangup,
}

impl Lie {
    pub(crate) const ALL: [Self; 5] =
        [Self::ForeignHead, Self::ForeignBody, Self::ShortBody, Self::Twice, Self::Hangup];

    /// Returns the lie that a call is told.
    pub(crate) fn of(id: u64) -> Option<Self> {
        Self::ALL.get((id % 10) as usize).copied()
    }
}

/// The place of a request in its call, as far as the server tells: a POST before or behind a redirect, or another method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    pub(crate) id: u64,
    pub(crate) is_post: bool,
    /// True if the server answers with a redirect.
    pub(crate) is_redirected: bool,
}

/// The requests that the server has got.
#[derive(Default)]
pub(crate) struct Ledger {
    arrived: Mutex<HashMap<Step, u32>>,
    processed: Mutex<HashMap<Step, Vec<Tag>>>,
    complaints: Mutex<Vec<(u64, String)>>,
}

impl Ledger {
    /// Returns the requests that were received whole, each with the connections on which they were.
    pub(crate) fn processed(&self) -> HashMap<Step, Vec<Tag>> {
        self.processed.lock().unwrap().clone()
    }

    /// Returns what was wrong with requests, each with the call's id.
    pub(crate) fn complaints(&self) -> Vec<(u64, String)> {
        self.complaints.lock().unwrap().clone()
    }

    fn note_arrival(&self, step: Step) -> u32 {
        let mut arrived = self.arrived.lock().unwrap();
        let count = arrived.entry(step).or_default();
        *count += 1;
        *count
    }

    fn note_processed(&self, step: Step, on: Tag) {
        self.processed.lock().unwrap().entry(step).or_default().push(on);
    }

    fn complain(&self, id: u64, what: &str) {
        self.complaints.lock().unwrap().push((id, format!("the server got {what}")));
    }
}

/// What all connections of the server have in common.
pub(crate) struct Server {
    pub(crate) ledger: Ledger,
    /// The addresses of the lanes, once their proxies are there.
    pub(crate) proxies: Arc<OnceLock<Vec<SocketAddr>>>,
    pub(crate) strikes: Strikes,
    pub(crate) script_of: ScriptOf,
    /// True if the server lies: see [`Lie::of`].
    pub(crate) lies: bool,
}

impl Server {
    /// Returns the beginning of the URLs that lead to a lane.
    pub(crate) fn url(&self, lane: Lane) -> String {
        let port = self.proxies.get().expect("the proxies were started")[lane as usize].port();
        format!("{}://{}:{port}", if lane.is_tls() { "https" } else { "http" }, lane.host())
    }

    /// Listens for connections on a lane, the first bytes of which are a [`Tag`]. Returns the address.
    pub(crate) async fn listen(self: &Arc<Self>, lane: Lane, tls: Option<Arc<ServerConfig>>) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        let tls = tls.map(TlsAcceptor::from);
        tokio::spawn(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let (server, tls) = (server.clone(), tls.clone());
                tokio::spawn(async move { server.take(socket, lane, tls).await });
            }
        });
        address
    }

    async fn take(self: Arc<Self>, mut socket: TcpStream, lane: Lane, tls: Option<TlsAcceptor>) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let mut tag = [0; Tag::LENGTH];
        socket.read_exact(&mut tag).await?;
        let tag = Tag::from_bytes(tag);
        match tls {
            Some(tls) => self.serve(tls.accept(socket).await?, lane, tag).await,
            None => self.serve(socket, lane, tag).await,
        }
        Ok(())
    }

    /// Serves a connection. It ends in an orderly way after the number of requests that its script says.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        socket: S,
        lane: Lane,
        tag: Tag,
    ) {
        let address = self.proxies.get().expect("the proxies were started")[lane as usize];
        let script = (self.script_of)(address, tag);
        let requests = AtomicU32::new(0);
        let retire = Arc::new(Notify::new());
        let server = self.clone();
        let service = service_fn(|request| {
            if Some(requests.fetch_add(1, Ordering::Relaxed) + 1) == script.retire_after {
                server.strikes.record(address, tag, Struck::Retired);
                retire.notify_one();
            }
            let server = server.clone();
            async move { server.answer(request, tag).await }
        });
        let retired = retire.clone();
        let socket = TokioIo::new(socket);
        if lane.is_http2() {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            // A pause ends no connection: behind it come many requests at once that were cancelled meanwhile, and at more than
            // 20 of them hyper would take the client for an attacker.
            builder.max_pending_accept_reset_streams(usize::MAX);
            let mut connection = pin!(builder.serve_connection(socket, service));
            tokio::select! {
                _ = &mut connection => return,
                () = retired.notified() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        } else {
            let mut connection = pin!(http1::Builder::new().serve_connection(socket, service));
            tokio::select! {
                _ = &mut connection => return,
                () = retired.notified() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        }
    }

    /// Answers a request. An error closes the connection.
    async fn answer(&self, request: Request<Incoming>, tag: Tag) -> Result<Response<ServerBody>, io::Error> {
        let Some(asked) = Asked::read(&request) else {
            self.ledger.complain(0, &format!("no request of a call: {}", request.uri()));
            return Ok(reply(0, StatusCode::BAD_REQUEST, full("")));
        };
        let Asked { step, length, upload, .. } = asked;
        let is_head = request.method() == Method::HEAD;
        let arrival = self.ledger.note_arrival(step);
        let lie = Lie::of(step.id).filter(|_| self.lies);
        if !self.receive(request, step, upload, tag).await {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if lie == Some(Lie::Twice) {
            self.ledger.note_processed(step, tag);
        }
        let id = step.id;
        // hyper would send the body of a response to HEAD over HTTP/2.
        let length = if is_head { 0 } else { length };
        let interim = || full(pattern::body(Part::Interim, id, if is_head { 0 } else { INTERIM_LENGTH }));
        match asked.action.as_str() {
            "redirect" => return Ok(self.redirect(&asked, interim())),
            "busy" if arrival == 1 => return Ok(reply(id, StatusCode::SERVICE_UNAVAILABLE, interim())),
            "slow" if arrival == 1 => sleep(LATE).await,
            "never" => std::future::pending().await,
            _ => {}
        }
        let body = |id, length| match asked.action.as_str() {
            "pieces" => in_pieces(id, length),
            _ => full(pattern::body(Part::Response, id, length)),
        };
        Ok(match lie {
            Some(Lie::ForeignHead) => reply(id + 1, StatusCode::OK, body(id, length)),
            Some(Lie::ForeignBody) => reply(id, StatusCode::OK, body(id + 1, length)),
            Some(Lie::ShortBody) => reply(id, StatusCode::OK, body(id, length / 2)),
            Some(Lie::Hangup) => return Err(io::ErrorKind::Other.into()),
            Some(Lie::Twice) | None => reply(id, StatusCode::OK, body(id, length)),
        })
    }

    /// Reads the request's body. Returns false if it broke off, so that nothing is done about the request.
    async fn receive(&self, request: Request<Incoming>, step: Step, expected: usize, tag: Tag) -> bool {
        if let Some(id) = request.headers().get("x-id")
            && *id != step.id.to_string()
        {
            self.ledger.complain(step.id, &format!("the header of call {id:?}"));
        }
        let Ok(body) = request.into_body().collect().await else { return false };
        if let Err(wrong) = pattern::check(Part::Upload, step.id, expected, &body.to_bytes()) {
            self.ledger.complain(step.id, &wrong);
        }
        self.ledger.note_processed(step, tag);
        true
    }

    fn redirect(&self, asked: &Asked, body: ServerBody) -> Response<ServerBody> {
        let url = self.url(Lane::ALL[asked.lane]);
        let Asked { step, length, upload, .. } = asked;
        let mut response = reply(step.id, StatusCode::from_u16(asked.status).expect("a status"), body);
        let location = format!("{url}/whole/{}/{length}/{upload}", step.id);
        response.headers_mut().insert("location", location.parse().expect("a URL"));
        response
    }
}

/// A request, as its target has it.
struct Asked {
    step: Step,
    action: String,
    length: usize,
    upload: usize,
    /// The status and the lane of a redirect.
    status: u16,
    lane: usize,
}

impl Asked {
    fn read(request: &Request<Incoming>) -> Option<Self> {
        let mut parts = request.uri().path().split('/').skip(1);
        let action = parts.next()?.to_owned();
        let id = parts.next()?.parse().ok()?;
        let length = parts.next()?.parse().ok()?;
        let upload = parts.next()?.parse().ok()?;
        // A redirect may have made a GET of the request.
        let has_upload = request.method() == Method::POST || request.method() == Method::PUT;
        let upload_or_none = if has_upload { upload } else { 0 };
        let of_query = |name: &str| {
            let mut pairs = request.uri().query()?.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name)?.1.parse().ok()
        };
        let is_redirected = action == "redirect";
        let step = Step { id, is_post: request.method() == Method::POST, is_redirected };
        let (status, lane) = (of_query("status").unwrap_or(0), usize::from(of_query("lane").unwrap_or(0)));
        Some(Self { step, action, length, upload: upload_or_none, status, lane })
    }
}

fn reply(id: u64, status: StatusCode, body: ServerBody) -> Response<ServerBody> {
    Response::builder().status(status).header("x-id", id).body(body).expect("a valid response")
}

/// Returns the body as pieces of many sizes, with short waits, and without a length.
fn in_pieces(id: u64, length: usize) -> ServerBody {
    let mut rest = pattern::body(Part::Response, id, length);
    let mut rng = rng_of(&[id]);
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let parts = 1 + rng.usize(..4);
        let size = 1 + rng.usize(..rest.len().div_ceil(parts));
        let wait = if rng.u32(..4) == 0 { Duration::from_millis(rng.u64(..4)) } else { Duration::ZERO };
        pieces.push((wait, rest.split_to(size.min(rest.len()))));
    }
    let frames = futures_util::stream::iter(pieces).then(|(wait, piece): (_, Bytes)| async move {
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Ok::<_, Infallible>(Frame::data(piece))
    });
    BodyExt::boxed(StreamBody::new(frames))
}
