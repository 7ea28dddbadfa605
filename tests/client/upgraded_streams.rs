//! Upgraded streams: how they end, what of the written bytes arrives, and what the pool does with their connections meanwhile.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use speeddial::dns::{Answer, Family, FixedResolver, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};
use speeddial::pool::FollowDns;
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Client, ClientBuilder, Method, PoolConfig, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};

use super::upgrades::{SWITCH, client, emptied, upgraded, upgrading, url};
use support::h2_peer::{
    CANCEL, DATA, END_STREAM, H2Peer, HEADERS, INTERNAL_ERROR, NO_ERROR, REFUSED_STREAM, RST_STREAM, SETTINGS,
};
use support::scripted_net::ScriptedNet;
use support::scripted_peer::{ScriptedPeer, read_head};
use support::upgrade_server::{Over, ServerStream, UpgradeServer, agree};
use support::{read_request_head, settled, v4};

const URL: &str = "http://a.test/";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Starts an HTTP/2 server that agrees to each CONNECT, waits until it may read, and reports all that came before the end.
async fn reading_server(may_read: Arc<Notify>) -> (UpgradeServer, mpsc::UnboundedReceiver<io::Result<Vec<u8>>>) {
    let (sent, arrived) = mpsc::unbounded_channel();
    let serve = move |mut stream: ServerStream| {
        let (sent, may_read) = (sent.clone(), may_read.clone());
        async move {
            may_read.notified().await;
            let mut all = Vec::new();
            let read = stream.read_to_end(&mut all).await;
            sent.send(read.map(|_| all)).unwrap();
        }
    };
    (UpgradeServer::start(Over::Http2, agree, serve).await, arrived)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_words_arrive_from_a_runtime_of_several_threads() {
    let may_read = Arc::new(Notify::new());
    let (server, mut arrived) = reading_server(may_read.clone()).await;
    let client = client().http2_prior_knowledge().pool(support::one_connection()).build().unwrap();
    for number in 0..300 {
        let mut stream = upgraded(client.request(Method::CONNECT, url(server.address(), "/"))).await;
        may_read.notify_one();
        tokio::spawn(async move {
            stream.write_all(b"the last words").await.unwrap();
            if number % 2 == 0 {
                stream.shutdown().await.unwrap();
            }
        });
        assert_eq!(arrived.recv().await.unwrap().unwrap(), b"the last words", "{number}");
    }
    settled(&client).await;
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn what_did_not_fit_into_the_servers_window_arrives_after_a_drop() {
    let may_read = Arc::new(Notify::new());
    let (server, mut arrived) = reading_server(may_read.clone()).await;
    let client = client().http2_prior_knowledge().pool(support::one_connection()).build().unwrap();
    let mut stream = upgraded(client.request(Method::CONNECT, url(server.address(), "/"))).await;
    // The window is 1 MiB. The last byte has to wait in the client.
    stream.write_all(b"1").await.unwrap();
    stream.write_all(&[b'x'; 1 << 20]).await.unwrap();
    drop(stream);
    // Frames behind those of the stream arrive.
    for _ in 0..20 {
        assert_eq!(client.get(url(server.address(), "/")).send().await.unwrap().status(), StatusCode::OK);
    }
    may_read.notify_one();
    assert_eq!(arrived.recv().await.unwrap().unwrap().len(), (1 << 20) + 1);
    settled(&client).await;
    assert_eq!(server.accepted(), 1, "the connection goes on");
}

fn in_memory(net: impl Transport, http2: bool) -> ClientBuilder {
    let builder = Client::builder().no_proxy().transport(net);
    let builder = builder.dns_resolver(FixedResolver::new().with("a.test", [v4(1)]));
    if http2 { builder.http2_prior_knowledge() } else { builder }
}

/// Returns the stream of the next request that does not end with its head.
async fn next_connect(peer: &mut H2Peer) -> io::Result<u32> {
    loop {
        let frame = peer.next().await?;
        if frame.kind == HEADERS && !frame.ends() {
            return Ok(frame.stream);
        }
    }
}

/// The frames by which a server ends an upgraded stream.
#[derive(Debug, Clone, Copy)]
enum End {
    Reset(u32),
    /// A GOAWAY for streams above this one, with this code.
    GoAway(u32, u32),
    /// A GOAWAY for later streams, then the rest of this one.
    LaterGoAway,
    Closed,
}

async fn end(mut peer: H2Peer, end: End) -> io::Result<()> {
    let stream = next_connect(&mut peer).await?;
    peer.head(stream).await?;
    peer.send(DATA, 0, stream, b"hello").await?;
    match end {
        End::Reset(code) => peer.reset(stream, code).await?,
        End::GoAway(last, code) => peer.goaway(last, code).await?,
        End::LaterGoAway => {
            peer.goaway(stream, NO_ERROR).await?;
            peer.send(DATA, END_STREAM, stream, b" and goodbye").await?;
        }
        End::Closed => return Ok(()),
    }
    while peer.next().await.is_ok() {}
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_the_server_gives_up_fails_or_looks_ended() {
    for (ended, expected) in [
        // hyper takes these for an end: RFC 9113 has no other way to stop a tunnel half way.
        (End::Reset(CANCEL), Some("hello")),
        (End::Reset(NO_ERROR), Some("hello")),
        (End::Reset(INTERNAL_ERROR), None),
        (End::Reset(REFUSED_STREAM), None),
        (End::GoAway(0, INTERNAL_ERROR), None),
        (End::LaterGoAway, Some("hello and goodbye")),
        (End::Closed, None),
    ] {
        let net = ScriptedNet::new(move |_, stream| async move {
            if let Ok(peer) = H2Peer::accept(stream, Some(100)).await {
                let _ = end(peer, ended).await;
            }
        });
        let client = in_memory(net.clone(), true).build().unwrap();
        let mut stream = upgraded(client.request(Method::CONNECT, URL)).await;
        let mut text = String::new();
        let read = stream.read_to_string(&mut text).await;
        assert_eq!(read.ok().map(|_| text.as_str()), expected, "{ended:?}");
        drop(stream);
        settled(&client).await;
        drop(client);
        sleep(seconds(60)).await;
        assert_eq!(net.open(), 0, "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_the_server_has_ended_takes_no_more_and_is_shut_down_without_an_error() {
    for (code, is_end) in [(NO_ERROR, true), (CANCEL, true), (INTERNAL_ERROR, false)] {
        for step in ["write", "flush", "shutdown"] {
            let net = ScriptedNet::new(move |_, stream| async move {
                if let Ok(peer) = H2Peer::accept(stream, Some(100)).await {
                    let _ = end(peer, End::Reset(code)).await;
                }
            });
            let client = in_memory(net, true).build().unwrap();
            let mut stream = upgraded(client.request(Method::CONNECT, URL)).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
            match step {
                "write" => {
                    let error = stream.write_all(b"more").await.unwrap_err();
                    assert_eq!(error.kind() == io::ErrorKind::BrokenPipe, is_end, "{code}: {error:?}");
                }
                "flush" => assert_eq!(stream.flush().await.is_ok(), is_end, "{code}"),
                _ => assert_eq!(stream.shutdown().await.is_ok(), is_end, "{code}"),
            }
            drop(stream);
            settled(&client).await;
        }
    }
}

/// Serves a connection in memory: echoes what comes on upgraded streams, and answers other requests with "ok".
async fn serve(stream: DuplexStream, http2: bool) -> io::Result<()> {
    if http2 { serve_http2(stream).await } else { serve_http1(stream).await }
}

async fn serve_http1(mut stream: DuplexStream) -> io::Result<()> {
    while let Some(head) = read_request_head(&mut stream).await {
        if !head.contains("upgrade:") {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await?;
            continue;
        }
        stream.write_all(SWITCH).await?;
        let (mut reader, mut writer) = tokio::io::split(stream);
        tokio::io::copy(&mut reader, &mut writer).await?;
        return Ok(());
    }
    Ok(())
}

async fn serve_http2(stream: DuplexStream) -> io::Result<()> {
    let mut peer = H2Peer::accept(stream, Some(100)).await?;
    loop {
        let frame = peer.next().await?;
        match frame.kind {
            HEADERS if frame.ends() => peer.answer(frame.stream).await?,
            HEADERS => peer.head(frame.stream).await?,
            DATA => peer.send(DATA, frame.flags & END_STREAM, frame.stream, &frame.payload).await?,
            _ => {}
        }
    }
}

/// A resolver whose first answer is another one than all later ones.
#[derive(Default)]
struct MovingResolver {
    queries: AtomicUsize,
}

impl Resolver for MovingResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            if family == Family::V6 {
                return Err(ResolveError::new(ResolveErrorKind::NoData, name, family));
            }
            let last = if self.queries.fetch_add(1, Ordering::SeqCst) == 0 { 1 } else { 2 };
            Ok(Answer::new([v4(last)], seconds(2), Source::Miss))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgraded_connection_outlives_its_lifetime_and_its_address_and_leaves_nothing_behind() {
    for (http2, moves) in [(false, false), (false, true), (true, false), (true, true)] {
        let net = ScriptedNet::new(move |_, stream| async move {
            let _ = serve(stream, http2).await;
        });
        let builder = in_memory(net.clone(), http2);
        let client = if moves {
            let pool = PoolConfig::new().lifetime(Duration::MAX).follow_dns(FollowDns::AtOnce);
            builder.dns_resolver(MovingResolver::default()).pool(pool)
        } else {
            builder.pool(PoolConfig::new().lifetime(seconds(60)))
        };
        let client = client.build().unwrap();
        let request = if http2 { client.request(Method::CONNECT, URL) } else { upgrading(&client, URL) };
        let mut stream = upgraded(request).await;
        sleep(seconds(3_600)).await;
        stream.write_all(b"hello").await.unwrap();
        let mut echo = [0; 5];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!((&echo, net.connections()), (b"hello", 1), "HTTP/2: {http2}, moves: {moves}");
        // Requests renew the name, and the connection takes no more of them. It counts all the same.
        for _ in 0..30 {
            assert_eq!(client.get(URL).send().await.unwrap().text().await.unwrap(), "ok");
            sleep(seconds(1)).await;
        }
        assert_eq!((net.connections(), net.open()), (2, 2), "HTTP/2: {http2}, moves: {moves}");
        let stats = client.pool_stats();
        assert_eq!(stats.idle + stats.in_use, 2, "HTTP/2: {http2}, moves: {moves}: {stats:?}");
        let mut drained = Box::pin(client.drain());
        assert!(timeout(seconds(60), &mut drained).await.is_err(), "a drain waits");
        drop(stream);
        timeout(seconds(10), drained).await.expect("the drain ends with the stream");
        sleep(seconds(1)).await;
        assert_eq!(net.open(), 0, "HTTP/2: {http2}, moves: {moves}");
    }
}

#[tokio::test(start_paused = true)]
async fn extended_connect_can_be_allowed_later() {
    const ENABLE_CONNECT_PROTOCOL: [u8; 6] = [0, 8, 0, 0, 0, 1];
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        while let Ok(frame) = peer.next().await {
            let answered = match frame.kind {
                HEADERS if frame.ends() => {
                    let _ = peer.send(SETTINGS, 0, 0, &ENABLE_CONNECT_PROTOCOL).await;
                    peer.answer(frame.stream).await
                }
                HEADERS => peer.head(frame.stream).await,
                _ => Ok(()),
            };
            if answered.is_err() {
                return;
            }
        }
    });
    let client = in_memory(net.clone(), true).build().unwrap();
    let chat = || client.request(Method::CONNECT, URL).protocol("websocket").send();
    assert!(chat().await.unwrap_err().is_upgrade(), "not allowed yet");
    assert_eq!(client.get(URL).send().await.unwrap().text().await.unwrap(), "ok");
    assert_eq!(chat().await.unwrap().status(), StatusCode::OK);
    assert_eq!(net.connections(), 1);
}

#[tokio::test]
async fn hazard_a_switch_in_place_of_a_100_is_an_error_at_once() {
    let (done, end) = std::sync::mpsc::channel::<()>();
    let end = std::sync::Mutex::new(end);
    let peer = ScriptedPeer::start(move |_, mut socket| {
        read_head(&mut socket);
        io::Write::write_all(&mut socket, SWITCH).unwrap();
        let _ = end.lock().unwrap().recv();
    });
    let client = client().build().unwrap();
    let request = client.post(peer.url()).header("connection", "upgrade").header("upgrade", "echo").expect_continue();
    let response = request.body("never sent").send().await.unwrap();
    let upgrade = timeout(seconds(20), response.upgrade()).await.expect("nothing is waited for");
    let error = upgrade.unwrap_err();
    assert!(error.is_upgrade() && error.to_string().contains("before the request was written to its end"), "{error}");
    emptied(&client).await;
    drop(done);
}

/// A network whose connections take nothing, and agree to an upgrade all the same.
struct StuckNet;

/// Its stream. The answer comes when the first byte is to be written.
#[derive(Default)]
struct StuckStream {
    is_asked: bool,
    is_answered: bool,
    reader: Option<Waker>,
}

impl Transport for StuckNet {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(async { Ok(Box::new(StuckStream::default()) as Box<dyn Stream>) })
    }
}

impl AsyncRead for StuckStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_asked && !std::mem::replace(&mut self.is_answered, true) {
            buf.put_slice(SWITCH);
            return Poll::Ready(Ok(()));
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for StuckStream {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_switch_before_the_first_byte_was_written_is_an_error() {
    let client = in_memory(StuckNet, false).build().unwrap();
    let error = upgrading(&client, URL).send().await.unwrap().upgrade().await.unwrap_err();
    assert!(error.is_upgrade() && error.to_string().contains("before the request was written to its end"), "{error}");
    emptied(&client).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_whose_server_does_not_end_it_is_reset_after_5_s() {
    let (sent, mut frames) = mpsc::unbounded_channel();
    let net = ScriptedNet::new(move |_, stream| {
        let sent = sent.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let Ok(connect) = next_connect(&mut peer).await else { return };
            let _ = peer.head(connect).await;
            while let Ok(frame) = peer.next().await {
                if frame.stream == connect {
                    let _ = sent.send((frame.kind, frame.ends(), Instant::now()));
                }
            }
        }
    });
    let client = in_memory(net, true).build().unwrap();
    let mut stream = upgraded(client.request(Method::CONNECT, URL)).await;
    stream.write_all(b"x").await.unwrap();
    drop(stream);
    let mut ended_at = None;
    while let Some((kind, ends, at)) = frames.recv().await {
        if ends {
            ended_at = Some(at);
        }
        if kind == RST_STREAM {
            let waited = at - ended_at.expect("the end of what is sent comes first");
            assert_eq!(waited.as_secs_f64().round(), 5.0);
            break;
        }
    }
    settled(&client).await;
    assert_eq!(client.pool_stats().idle, 1, "the connection is kept");
}

#[tokio::test]
async fn a_dropped_stream_whose_server_goes_on_sending_is_reset() {
    async fn send_forever(mut stream: ServerStream) {
        while stream.write_all(&[0; 64 * 1024]).await.is_ok() {}
    }
    let server = UpgradeServer::start(Over::Http2, agree, send_forever).await;
    let client = client().http2_prior_knowledge().pool(support::one_connection()).build().unwrap();
    for _ in 0..10 {
        let mut stream = upgraded(client.request(Method::CONNECT, url(server.address(), "/"))).await;
        stream.read_u8().await.unwrap();
        drop(stream);
        settled(&client).await;
    }
    assert_eq!(server.accepted(), 1, "the connection is kept");
}
