//! An HTTP server on loopback that answers by a handler, in a thread with a runtime of its own.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::full;
use super::process::accept;

/// The body of a response.
pub type ServerBody = BoxBody<Bytes, Infallible>;

/// A handler of any type: the code of the server is compiled once, and not for each handler.
type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<ServerBody>> + Send + Sync>;

/// The numbers of connections.
#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    /// Those on which a request came.
    used: AtomicUsize,
}

/// The server. It stops and closes its connections when it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    counts: Arc<Counts>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts an HTTP/1.1 server that answers every request with the response of `handler`.
    pub fn start<H, F>(handler: H) -> io::Result<Self>
    where
        H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<ServerBody>> + Send + 'static,
    {
        Self::start_as(false, handler)
    }

    /// Like [`Self::start`], over HTTP/2 with prior knowledge if `http2` is true.
    pub fn start_as<H, F>(http2: bool, handler: H) -> io::Result<Self>
    where
        H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<ServerBody>> + Send + 'static,
    {
        Self::serve(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, http2, of_any_type(handler))
    }

    /// Like [`Self::start`], at an address that the caller chooses: that of a server which stopped, or a second one of a name.
    pub fn start_at<H, F>(address: SocketAddr, handler: H) -> io::Result<Self>
    where
        H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<ServerBody>> + Send + 'static,
    {
        Self::serve(std::net::TcpListener::bind(address)?, false, of_any_type(handler))
    }

    fn serve(listener: std::net::TcpListener, http2: bool, handler: Handler) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let counts = Arc::new(Counts::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let counter = counts.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = serve(listener, http2, handler, counter) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, counts, stop: Some(stop), thread: Some(thread) })
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connections on which a request came. On a busy machine a client opens another one beside a slow dial, which may
    /// carry none.
    pub fn connections(&self) -> usize {
        self.counts.used.load(Ordering::SeqCst)
    }

    /// The number of connections that the server accepted.
    pub fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers with the request's version, method, target and Host header, or with a redirect (302) if the target's query is `to=URL`.
pub async fn describe(request: Request<Incoming>) -> Response<ServerBody> {
    if let Some(to) = request.uri().query().and_then(|query| query.strip_prefix("to=")) {
        return Response::builder().status(302).header("location", to).body(full("")).expect("a valid location");
    }
    let host = request.headers().get("host").and_then(|host| host.to_str().ok()).unwrap_or("none");
    let text = format!("{:?} {} {} {host}", request.version(), request.method(), request.uri());
    Response::new(full(text))
}

fn of_any_type<H, F>(handler: H) -> Handler
where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ServerBody>> + Send + 'static,
{
    Arc::new(move |request| Box::pin(handler(request)))
}

async fn serve(listener: TcpListener, http2: bool, handler: Handler, counts: Arc<Counts>) {
    loop {
        let socket = accept(&listener).await;
        counts.accepted.fetch_add(1, Ordering::SeqCst);
        let _ = socket.set_nodelay(true);
        let (handler, counts, is_used) = (handler.clone(), counts.clone(), AtomicBool::new(false));
        let service = service_fn(move |request| {
            if !is_used.swap(true, Ordering::SeqCst) {
                counts.used.fetch_add(1, Ordering::SeqCst);
            }
            let response = handler(request);
            async move { Ok::<_, Infallible>(response.await) }
        });
        let socket = TokioIo::new(socket);
        match http2 {
            true => drop(tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(socket, service))),
            false => drop(tokio::spawn(http1::Builder::new().serve_connection(socket, service).with_upgrades())),
        }
    }
}
