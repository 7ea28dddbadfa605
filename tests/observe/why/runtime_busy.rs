//! A runtime whose thread is blocked: the response is here, and the program reads it late, or a timer fires late. The servers on sockets
//! have runtimes of their own; in paused time, a clock that is put forward is a thread that was blocked meanwhile.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::trace::{Cause, Phase, Timings};
use speeddial::transport::{Connecting, Transport};
use speeddial::{Client, ClientBuilder, HedgePolicy, PoolConfig, RetryPolicy};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;
use tokio::time::advance;

use super::common::{Act, URL, assert_why, causes, ms, over, server as paused_server, timings_of};

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
    let trust = speeddial::tls::TlsConfig::new().add_roots([authority.root()]).only_added_roots();
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

/// A runtime of four threads, as that of most services.
fn runtime_of_four() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

/// The task of the call blocks its thread with other work, and the three other threads read the response, or do not come to it because
/// none of them waits for sockets.
#[cfg(target_os = "linux")]
#[test]
fn a_task_that_blocks_one_thread_of_four_is_named() {
    let steps = Arc::new(Steps::default());
    let url = format!("http://{}/", server(plain(), false, steps.clone()));
    let client = Client::builder().no_proxy().build().unwrap();
    let timings = runtime_of_four().block_on(async {
        steps.allowed.fetch_add(1, Ordering::SeqCst);
        timings_of(client.get(&url)).await;
        let call = async move { tokio::join!(timings_of(client.get(&url)), steps.block(1)).0 };
        tokio::spawn(call).await.unwrap()
    });
    let (why, main) = (timings.why(), timings.why().reasons()[0].clone());
    assert_eq!(main.cause, Cause::RuntimeBusy, "{why}");
    assert!(main.time >= ms(150) && timings.runtime_delay() >= main.time, "{why}");
}

/// A network over TCP that blocks the thread which reads on behind the response to a connection's second request.
#[derive(Default)]
struct Blocking(Arc<AtomicUsize>);

struct BlockingStream {
    stream: tokio::net::TcpStream,
    /// The reads that brought something, over all connections.
    reads: Arc<AtomicUsize>,
}

impl Transport for Blocking {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        let reads = self.0.clone();
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            Ok(Box::new(BlockingStream { stream, reads }) as Box<dyn speeddial::transport::Stream>)
        })
    }
}

impl AsyncRead for BlockingStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        match buffer.filled().len() > before {
            true => drop(self.reads.fetch_add(1, Ordering::SeqCst)),
            // The call was woken by the head, and waits on this thread for its turn: no other thread takes it from there.
            false if self.reads.load(Ordering::SeqCst) == 2 => {
                self.reads.fetch_add(1, Ordering::SeqCst);
                thread::sleep(ms(300));
            }
            false => {}
        }
        polled
    }
}

impl AsyncWrite for BlockingStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The task of the connection blocks its thread after it has woken the call, which three free threads do not help.
#[test]
fn a_call_that_waits_behind_its_blocked_connection_is_named() {
    let steps = Arc::new(Steps::default());
    steps.allowed.store(2, Ordering::SeqCst);
    let url = format!("http://{}/", server(plain(), false, steps));
    let client = Client::builder().no_proxy().transport(Blocking::default()).build().unwrap();
    let timings = runtime_of_four().block_on(async {
        tokio::spawn(async move {
            timings_of(client.get(&url)).await;
            timings_of(client.get(&url)).await
        })
        .await
        .unwrap()
    });
    let (why, main) = (timings.why(), timings.why().reasons()[0].clone());
    assert_eq!((main.cause, main.phase), (Cause::RuntimeBusy, Phase::Receive), "{why}");
    assert!(main.time >= ms(150), "{why}");
}

/// Of a server that is slow beside a blocked thread, no time is the runtime's but that by which it was late.
#[test]
fn a_slow_server_is_not_a_busy_runtime_beside_a_blocked_thread_of_four() {
    let steps = Arc::new(Steps::default());
    let url = format!("http://{}/", server(plain(), false, steps.clone()));
    let client = Client::builder().no_proxy().build().unwrap();
    let timings = runtime_of_four().block_on(async {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let blocked = tokio::spawn(async move { ended.recv() });
        let call = tokio::spawn(timings_of(client.get(url)));
        while steps.asked.load(Ordering::SeqCst) == 0 {
            yield_now().await;
        }
        tokio::time::sleep(ms(300)).await;
        steps.allowed.fetch_add(1, Ordering::SeqCst);
        let timings = call.await.unwrap();
        drop(end);
        assert!(blocked.await.unwrap().is_err());
        timings
    });
    assert!(causes(&timings).contains(&Cause::ServerSlow), "{}", timings.why());
    assert!(timings.total() - timings.runtime_delay() >= ms(280), "{}", timings.why());
}

/// Makes a call, blocks its runtime for a second as soon as the call waits for its timer, and returns the call's timings.
async fn blocked_at_timer(client: Client, waits: Phase) -> Timings {
    let (waiting, mut is_waiting) = tokio::sync::mpsc::unbounded_channel();
    let call = tokio::spawn(async move {
        let call = client.get(URL).observer(Waits(waits, waiting));
        timings_of(call).await
    });
    is_waiting.recv().await.unwrap();
    // The connection writes the request meanwhile.
    for _ in 0..10 {
        yield_now().await;
    }
    advance(ms(1_000)).await;
    call.await.unwrap()
}

/// Tells when a call, or its dial, begins to wait.
struct Waits(Phase, tokio::sync::mpsc::UnboundedSender<()>);

impl speeddial::trace::Observer for Waits {
    fn observe(&self, record: &speeddial::trace::Record) {
        let waits = match &record.event {
            speeddial::trace::Event::BackoffStart { .. } => Phase::Backoff,
            speeddial::trace::Event::Queued { .. } => Phase::Queue,
            speeddial::trace::Event::AttemptStart { .. } => Phase::Connect,
            speeddial::trace::Event::TlsStart { .. } => Phase::Tls,
            speeddial::trace::Event::Leased { .. } => Phase::Wait,
            speeddial::trace::Event::Headers { .. } => Phase::Receive,
            _ => return,
        };
        if waits == self.0 {
            let _ = self.1.send(());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn timers_that_fire_late_are_named() {
    const BUSY: &str = "; look for code that blocks the runtime's threads, and at the limit of processor time.";
    let late = "passed after a timer of the call was due: the program's runtime was busy";

    let net = paused_server(|before| if before == 0 { Act::busy(20) } else { Act::ok(20) });
    // The pause is of some length up to this.
    let retries = RetryPolicy::new().backoff(ms(300), ms(300));
    let timings = blocked_at_timer(over(net).retry(retries).build().unwrap(), Phase::Backoff).await;
    let backoff = timings.backoff();
    assert!(backoff >= ms(1_000), "{}", timings.waterfall());
    let why = timings.why();
    assert_eq!(why.reasons()[0].phase, Phase::Backoff, "{why}");
    assert!(timings.runtime_delay() >= ms(700) && why.to_string().contains(late), "{why}");

    let silent = || over(paused_server(|_| Act::ok(90_000)));
    let timings = blocked_at_timer(silent().timeout(ms(400)).build().unwrap(), Phase::Wait).await;
    assert_why(
        &timings,
        &[Cause::RuntimeBusy, Cause::NoAnswer],
        &format!("610 ms of 1.01 s {late}{BUSY} 390 ms of 1.01 s were spent waiting for an answer that had not come."),
    );
    let timings = blocked_at_timer(silent().headers_timeout(ms(400)).build().unwrap(), Phase::Wait).await;
    assert_why(
        &timings,
        &[Cause::RuntimeBusy, Cause::NoAnswer],
        &format!("600 ms of 1.01 s {late}{BUSY} 400 ms of 1.01 s were spent waiting for an answer that had not come."),
    );

    let part = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
    let net = paused_server(move |_| Act::new(20, part).closing_after(90_000));
    let timings = blocked_at_timer(over(net).read_timeout(ms(400)).build().unwrap(), Phase::Receive).await;
    let why = timings.why();
    assert_eq!((why.reasons()[0].cause, why.reasons()[0].phase), (Cause::RuntimeBusy, Phase::Receive), "{why}");
    assert_eq!(timings.runtime_delay(), ms(600), "{why}");
}

/// A network on which nothing answers.
struct Silent;

impl Transport for Silent {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn limits_of_the_wait_for_a_connection_that_fire_late_are_named() {
    let late = "600 ms of 1.00 s passed after a timer of the call was due: the program's runtime was busy";
    let client = over(paused_server(|_| Act::ok(90_000))).queue_timeout(ms(400));
    let client = client.pool(PoolConfig::new().max_connections_per_host(1)).build().unwrap();
    let holder = tokio::spawn(timings_of(client.get(URL)));
    while client.pool_stats().in_use == 0 {
        tokio::time::sleep(ms(1)).await;
    }
    let timings = blocked_at_timer(client, Phase::Queue).await;
    let text = timings.why().to_string();
    assert!(text.starts_with(late) && text.contains("400 ms of 1.00 s were spent in the queue"), "{text}");
    assert_eq!(timings.runtime_delay(), ms(600), "{text}");
    holder.abort();

    let timings = blocked_at_timer(over(Silent).connect_timeout(ms(400)).build().unwrap(), Phase::Queue).await;
    let text = timings.why().to_string();
    assert!(text.starts_with(late) && text.contains("400 ms of 1.00 s were spent dialling 192.0.2.1:80"), "{text}");
    assert_eq!(timings.runtime_delay(), ms(600), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_begins_late_and_counts_is_named() {
    let net = paused_server(|before| Act::ok(if before == 0 { 90_000 } else { 20 }));
    let client = over(net).hedge(HedgePolicy::after(ms(400))).build().unwrap();
    let timings = blocked_at_timer(client, Phase::Wait).await;
    let why = timings.why().to_string();
    let late = "600 ms of 1.04 s passed after the request was due to be sent once more: the program's runtime was busy";
    assert!(why.starts_with(late) && why.contains("410 ms of 1.04 s went to a request that was not answered"), "{why}");
    assert_eq!(timings.runtime_delay(), ms(600), "{why}");

    // The first attempt counts in the end: what was late changed nothing.
    let net = paused_server(|before| Act::ok(if before == 0 { 1_200 } else { 90_000 }));
    let client = over(net).hedge(HedgePolicy::after(ms(400))).build().unwrap();
    let timings = blocked_at_timer(client, Phase::Wait).await;
    assert_eq!((causes(&timings)[0], timings.runtime_delay()), (Cause::ServerSlow, ms(0)), "{}", timings.why());
}

/// Makes a call on a new connection, and blocks the only thread of its runtime for 300 ms from the time when its dial waits for `phase`.
#[cfg(target_os = "linux")]
async fn blocked_dial(client: ClientBuilder, url: &str, phase: Phase) -> Timings {
    let (begins, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let client = client.no_proxy().observer(Waits(phase, begins)).build().unwrap();
    let call = tokio::spawn(timings_of(client.get(url)));
    has_begun.recv().await.unwrap();
    thread::sleep(ms(300));
    call.await.unwrap()
}

#[cfg(target_os = "linux")]
fn assert_late(timings: &Timings, phase: Phase, beginning: &str) {
    let (why, main) = (timings.why(), timings.why().reasons()[0].clone());
    assert_eq!((main.cause, main.phase), (Cause::RuntimeBusy, phase), "{why}");
    assert!(main.time >= ms(150) && timings.runtime_delay() >= main.time, "{why}");
    assert!(why.to_string().starts_with(beginning), "{why}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_connection_that_was_open_before_the_program_came_to_it_is_named() {
    let steps = Arc::new(Steps::default());
    steps.allowed.store(1, Ordering::SeqCst);
    let url = format!("http://{}/", server(plain(), false, steps));
    let timings = blocked_dial(Client::builder(), &url, Phase::Connect).await;
    assert_late(&timings, Phase::Connect, "The connection was there at least ");
}

#[cfg(all(target_os = "linux", feature = "__tls"))]
#[tokio::test]
async fn a_handshake_that_is_read_late_is_named() {
    let authority = support::certs::Authority::new();
    let trust = speeddial::tls::TlsConfig::new().add_roots([authority.root()]).only_added_roots();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["a.test"], &["http/1.1"]));
    let accept: Accept = Arc::new(move |socket| {
        let accepted = acceptor.accept(socket);
        Box::pin(async { Box::new(accepted.await.unwrap()) as Box<dyn Stream> })
    });
    let steps = Arc::new(Steps::default());
    steps.allowed.store(1, Ordering::SeqCst);
    let address = server(accept, false, steps);
    let client = Client::builder().tls(trust).resolve("a.test", ([127, 0, 0, 1], 0).into());
    let timings = blocked_dial(client, &format!("https://a.test:{}/", address.port()), Phase::Tls).await;
    assert_late(&timings, Phase::Tls, "The server's part of the handshake was here at least ");
}

/// The pool gives the connection to a request whose own thread is blocked.
#[test]
fn a_connection_that_waits_for_its_request_is_named() {
    let steps = Arc::new(Steps::default());
    let url = format!("http://{}/", server(plain(), false, steps.clone()));
    let pool = PoolConfig::new().max_connections_per_host(1);
    let client = Client::builder().no_proxy().pool(pool).build().unwrap();
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let holder = other.spawn(timings_of(client.get(&url)));
    while steps.asked.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let timings = own.block_on(async {
        let call = tokio::spawn(timings_of(client.get(&url)));
        while client.pool_stats().waiting == 0 {
            yield_now().await;
        }
        steps.allowed.store(2, Ordering::SeqCst);
        while client.pool_stats().waiting > 0 {
            thread::sleep(ms(1));
        }
        thread::sleep(ms(300));
        call.await.unwrap()
    });
    other.block_on(holder).unwrap();
    let (why, main) = (timings.why(), timings.why().reasons()[0].clone());
    assert_eq!((main.cause, main.phase), (Cause::RuntimeBusy, Phase::Queue), "{why}");
    assert!(main.time >= ms(150) && why.to_string().starts_with("The connection was there at least "), "{why}");
}

/// A reader that comes when the time is over has waited for no timer.
#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_late_by_itself_is_no_busy_runtime() {
    let part = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
    let net = paused_server(move |_| Act::new(20, part).closing_after(90_000));
    let response = over(net).timeout(ms(400)).build().unwrap().get(URL).send().await.unwrap();
    let handle = response.timings_handle();
    tokio::time::sleep(ms(1_000)).await;
    assert!(response.bytes().await.unwrap_err().is_timeout());
    assert!(!causes(&handle.timings()).contains(&Cause::RuntimeBusy), "{}", handle.timings().why());
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
