//! A runtime whose thread is blocked: the response is here, and the program reads it late. The servers have runtimes of their own.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::trace::{Cause, Phase, Timings};
use speeddial::{Client, ClientBuilder};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::yield_now;

use super::common::{causes, ms, timings_of};

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Makes the server's side of a TLS connection.
type Accept =
    Arc<dyn Fn(tokio::net::TcpStream) -> futures_util::future::BoxFuture<'static, Box<dyn Stream>> + Send + Sync>;

/// How far the server is, and may go.
#[derive(Default)]
struct Steps {
    asked: AtomicUsize,
    /// The number of answers that may be given.
    allowed: AtomicUsize,
    answered: AtomicUsize,
}

impl Steps {
    /// Waits until the server has another request, then blocks the thread until 300 ms after its answer.
    async fn block(&self, before: usize) {
        while self.asked.load(Ordering::SeqCst) == before {
            yield_now().await;
        }
        self.allowed.fetch_add(1, Ordering::SeqCst);
        while self.answered.load(Ordering::SeqCst) == before {
            thread::sleep(ms(1));
        }
        thread::sleep(ms(300));
    }
}

/// Starts a server that answers as it may.
fn server(accept: Accept, is_http2: bool, steps: Arc<Steps>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let (stream, steps) = (accept(socket), steps.clone());
                let service = service_fn(move |_: Request<Incoming>| {
                    let steps = steps.clone();
                    async move {
                        let nth = steps.asked.fetch_add(1, Ordering::SeqCst);
                        while steps.allowed.load(Ordering::SeqCst) <= nth {
                            tokio::time::sleep(ms(1)).await;
                        }
                        steps.answered.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, Infallible>(Response::new("here".to_owned()))
                    }
                });
                tokio::spawn(async move {
                    let stream = TokioIo::new(stream.await);
                    let _ = match is_http2 {
                        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
                        false => http1::Builder::new().serve_connection(stream, service).await,
                    };
                });
            }
        });
    });
    address
}

/// Makes a call on a kept connection, and blocks the only thread of its runtime from the time when the server has the request until
/// 300 ms after the answer.
async fn blocked_call(client: ClientBuilder, url: &str, steps: &Steps) -> Timings {
    let client = client.no_proxy().build().unwrap();
    steps.allowed.fetch_add(1, Ordering::SeqCst);
    timings_of(client.get(url)).await;
    let call = tokio::spawn(timings_of(client.get(url)));
    steps.block(1).await;
    call.await.unwrap()
}

/// Half of the time that the thread is blocked is for a server whose thread has to wait for a processor.
fn assert_busy(timings: &Timings) {
    let (why, main) = (timings.why(), timings.why().reasons()[0].clone());
    assert_eq!((main.cause, main.phase), (Cause::RuntimeBusy, Phase::Wait), "{why}");
    assert!(main.time >= ms(150) && timings.runtime_delay() >= main.time, "{why}");
    let text = why.to_string();
    assert!(text.starts_with("The response was here at least ") && text.contains("its runtime was busy"), "{text}");
    assert!(!causes(timings).contains(&Cause::ReaderSlow), "{why}");
}

fn plain() -> Accept {
    Arc::new(|socket| Box::pin(async { Box::new(socket) as Box<dyn Stream> }))
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_blocked_thread_is_named_over_both_versions_of_http() {
    for is_http2 in [false, true] {
        let steps = Arc::new(Steps::default());
        let address = server(plain(), is_http2, steps.clone());
        let client = if is_http2 { Client::builder().http2_prior_knowledge() } else { Client::builder() };
        assert_busy(&blocked_call(client, &format!("http://{address}/"), &steps).await);
    }
}

#[cfg(all(target_os = "linux", feature = "__tls"))]
#[tokio::test]
async fn a_blocked_thread_is_named_over_tls() {
    let authority = support::certs::Authority::new();
    let trust = speeddial::tls::TlsConfig::new().add_root_der(authority.certificate().to_vec()).only_added_roots();
    for alpn in ["http/1.1", "h2"] {
        let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["a.test"], &[alpn]));
        let accept: Accept = Arc::new(move |socket| {
            let accepted = acceptor.accept(socket);
            Box::pin(async { Box::new(accepted.await.unwrap()) as Box<dyn Stream> })
        });
        let steps = Arc::new(Steps::default());
        let address = server(accept, alpn == "h2", steps.clone());
        let client = Client::builder().tls(trust.clone()).resolve("a.test", ([127, 0, 0, 1], 0).into());
        assert_busy(&blocked_call(client, &format!("https://a.test:{}/", address.port()), &steps).await);
    }
}

/// The call's own thread is blocked, the connection's is not: this is known on every system.
#[test]
fn a_head_that_waits_for_its_call_is_named() {
    let steps = Arc::new(Steps::default());
    let url = format!("http://{}/", server(plain(), false, steps.clone()));
    let client = Client::builder().no_proxy().build().unwrap();
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    steps.allowed.fetch_add(1, Ordering::SeqCst);
    other.block_on(timings_of(client.get(&url)));
    while client.pool_stats().idle == 0 {
        thread::yield_now();
    }
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let timings = own.block_on(async {
        // The connection was opened on the other runtime, whose thread is free.
        let call = tokio::spawn(timings_of(client.get(&url)));
        steps.block(1).await;
        call.await.unwrap()
    });
    let (why, main) = (timings.why(), timings.why().reasons()[0].clone());
    assert!(timings.reused(), "{}", timings.waterfall());
    assert_eq!((main.cause, main.phase), (Cause::RuntimeBusy, Phase::Receive), "{why}");
    assert!(main.time >= ms(150) && timings.runtime_delay() >= main.time, "{why}");
}

/// With a slow server the runtime waits, and comes at once.
#[tokio::test]
async fn a_slow_server_is_not_a_busy_runtime() {
    let server = support::http_server::HttpServer::start(|_| async {
        tokio::time::sleep(ms(300)).await;
        Response::new(support::full("late"))
    });
    let server = server.unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    for _ in 0..2 {
        let timings = timings_of(client.get(format!("http://{}/", server.address()))).await;
        // The machine may be busy, and then its runtime is late as well: what is told of that is none of the server's time.
        assert!(causes(&timings).contains(&Cause::ServerSlow), "{}", timings.why());
        assert!(timings.total() - timings.runtime_delay() >= ms(280), "{}", timings.why());
    }
}
