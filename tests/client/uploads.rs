//! Uploads: the timeouts that apply while a body is being sent, in paused time over a network in memory.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::dns::FixedResolver;
use speeddial::trace::Phase;
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Body, Client, ClientBuilder, ErrorKind};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use support::h2_peer::{DATA, H2Peer, SETTINGS, WINDOW_UPDATE};
use support::scripted_net::ScriptedNet;
use support::{read_request_head, v4};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const PIECE: usize = 16 * 1024;

/// The way a server reads an upload.
#[derive(Clone, Copy)]
struct UploadServer {
    http2: bool,
    /// The time it takes to read each 16 KiB.
    pause: Duration,
    /// The pause between the last piece and the response.
    think: Duration,
    /// True if the response's head comes before the upload is read.
    early: bool,
}

fn server(reads: UploadServer) -> ScriptedNet {
    ScriptedNet::new(move |_, stream| async move {
        let service = service_fn(move |request: hyper::Request<Incoming>| async move {
            let mut body = request.into_body();
            let read = async move {
                let mut bytes = 0;
                while let Some(Ok(frame)) = body.frame().await {
                    let before = bytes / PIECE;
                    bytes += frame.data_ref().map_or(0, Bytes::len);
                    tokio::time::sleep(reads.pause * (bytes / PIECE - before) as u32).await;
                }
                tokio::time::sleep(reads.think).await;
                Ok::<_, Infallible>(Frame::data(Bytes::from(bytes.to_string())))
            };
            let body = match reads.early {
                true => http_body_util::StreamBody::new(stream::once(read)).boxed_unsync(),
                false => {
                    let frame = read.await;
                    http_body_util::StreamBody::new(stream::iter([frame])).boxed_unsync()
                }
            };
            Ok::<_, Infallible>(hyper::Response::new(body))
        });
        let stream = TokioIo::new(stream);
        let _ = match reads.http2 {
            true => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.initial_stream_window_size(64 * 1024).serve_connection(stream, service).await
            }
            false => http1::Builder::new().max_buf_size(PIECE).serve_connection(stream, service).await,
        };
    })
}

fn builder(transport: &ScriptedNet, http2: bool) -> ClientBuilder {
    let builder = Client::builder().no_proxy().transport(transport.clone());
    let builder = builder.dns_resolver(FixedResolver::new().with("a.test", [v4(1)]));
    if http2 { builder.http2_prior_knowledge() } else { builder }
}

const LENGTH: usize = 2 << 20;
const URL: &str = "http://a.test/";

/// Returns the same body as bytes, as a stream of short pieces and as a stream of one piece.
fn bodies() -> [Body; 3] {
    let short = (0..LENGTH / 4_096).map(|_| Ok::<_, Infallible>(Bytes::from_static(&[0; 4_096])));
    let long = [Ok::<_, Infallible>(Bytes::from(vec![0; LENGTH]))];
    [vec![0; LENGTH].into(), Body::wrap_stream(stream::iter(short)), Body::wrap_stream(stream::iter(long))]
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_may_take_longer_than_every_default_timeout() {
    for (http2, early) in [(false, false), (false, true), (true, false), (true, true)] {
        let net = server(UploadServer { http2, pause: seconds(10), think: seconds(100), early });
        for body in bodies() {
            let start = Instant::now();
            let client = builder(&net, http2).build().unwrap();
            let response = client.put(URL).body(body).send().await.unwrap();
            assert_eq!(response.text().await.unwrap(), LENGTH.to_string(), "http2: {http2}, early: {early}");
            assert!(start.elapsed() > seconds(900), "{:?}", start.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_headers_timeout_starts_with_the_last_byte_sent() {
    for http2 in [false, true] {
        // After the last byte was sent, the server reads for 2 s more; the whole upload takes more than 9 s.
        for (think, is_answered) in [(1, true), (8, false)] {
            let net = server(UploadServer { http2, pause: seconds(1) / 10, think: seconds(think), early: false });
            for body in bodies() {
                let client = builder(&net, http2).headers_timeout(seconds(5)).build().unwrap();
                let start = Instant::now();
                let sent = client.put(URL).body(body).send().await;
                assert!(start.elapsed() > seconds(9), "{:?}", start.elapsed());
                match sent {
                    Ok(_) => assert!(is_answered, "http2: {http2}"),
                    Err(error) => {
                        assert!(!is_answered, "http2: {http2}: {error}");
                        assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Wait), "{error}");
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_the_body_idle_timeout_ends_an_upload_that_the_peer_never_reads() {
    for http2 in [false, true] {
        let net = ScriptedNet::new(move |_, stream| async move {
            let mut stream = match http2 {
                true => {
                    let mut peer = H2Peer::accept(stream, Some(10)).await.unwrap();
                    while peer.next().await.is_ok() {}
                    return;
                }
                false => stream,
            };
            let _ = stream.read_u8().await;
            std::future::pending().await
        });
        for body in bodies() {
            let start = Instant::now();
            let client = builder(&net, http2).body_idle_timeout(seconds(40)).build().unwrap();
            let error = client.put(URL).body(body).send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Send), "{error}");
            assert!(error.to_string().contains("nothing more of the request was sent within 40 s"), "{error}");
            assert!((seconds(40)..seconds(41)).contains(&start.elapsed()), "{:?}", start.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lowest_speed_ends_an_upload_that_makes_too_little_progress() {
    for http2 in [false, true] {
        // 96 KiB in a minute.
        let net = server(UploadServer { http2, pause: seconds(10), think: seconds(1), early: false });
        for body in bodies() {
            let client = builder(&net, http2).min_speed(64 << 10, seconds(60)).build().unwrap();
            let response = client.put(URL).body(body).send().await.unwrap();
            assert_eq!(response.text().await.unwrap(), LENGTH.to_string(), "HTTP/2: {http2}");
        }
        for body in bodies() {
            let start = Instant::now();
            let client = builder(&net, http2).min_speed(256 << 10, seconds(60)).build().unwrap();
            let error = client.put(URL).body(body).send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Send), "{error}");
            let expected = "too little of the request was sent: fewer than 262144 bytes within 60 s";
            assert!(error.to_string().contains(expected), "{error}");
            // What the buffers take at first is quick.
            assert!((seconds(60)..seconds(190)).contains(&start.elapsed()), "{:?}", start.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_body_idle_timeout_ends_a_stalled_response_body() {
    let net = server(UploadServer { http2: false, pause: seconds(1), think: seconds(1_000), early: true });
    let client = builder(&net, false).build().unwrap();
    let start = Instant::now();
    let response = client.put(URL).body("x").send().await.unwrap();
    let error = response.text().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Receive), "{error}");
    assert!((seconds(300)..seconds(302)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

/// A network whose peers never read, with pipes of 16 bytes.
struct NetThatNeverReads;

impl Transport for NetThatNeverReads {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(async {
            let (near, far) = tokio::io::duplex(16);
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(far);
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_the_headers_timeout_ends_a_request_whose_head_the_peer_does_not_read() {
    let resolver = FixedResolver::new().with("a.test", [v4(1)]);
    let client = Client::builder().no_proxy().transport(NetThatNeverReads).dns_resolver(resolver).build().unwrap();
    let start = Instant::now();
    let sent = tokio::time::timeout(seconds(1_000), client.get(URL).send()).await.expect("it ends");
    let error = sent.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Send), "{error}");
    assert!((seconds(300)..seconds(301)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_right_length_need_not_end() {
    for http2 in [false, true] {
        let reads = UploadServer { http2, pause: Duration::ZERO, think: Duration::ZERO, early: false };
        let client = builder(&server(reads), http2).build().unwrap();
        let pieces = stream::iter(["hel", "lo"].map(Ok::<_, Infallible>));
        let body = Body::sized(5, futures_util::StreamExt::chain(pieces, stream::pending()));
        let sent = tokio::time::timeout(seconds(1), client.post(URL).body(body).send());
        let response = sent.await.expect("the end of the stream is not awaited").unwrap();
        assert_eq!(response.text().await.unwrap(), "5", "HTTP/2: {http2}");
    }
}

#[tokio::test(start_paused = true)]
async fn empty_pieces_are_not_sent() {
    let empty = Arc::new(AtomicUsize::new(0));
    let seen = empty.clone();
    let net = ScriptedNet::new(move |_, stream| {
        let seen = seen.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            while let Ok(frame) = peer.next().await {
                if frame.ends() {
                    peer.answer(frame.stream).await.unwrap();
                } else if frame.kind == DATA && frame.payload.is_empty() {
                    seen.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    });
    let client = builder(&net, true).build().unwrap();
    let pieces = ["first"].into_iter().chain(std::iter::repeat_n("", 1_000)).chain(["last"]);
    let body = Body::wrap_stream(stream::iter(pieces.map(Ok::<_, Infallible>)));
    let response = client.post(URL).body(body).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ok");
    assert_eq!(empty.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_of_known_length_counts_as_sent_with_its_last_byte() {
    let net = server(UploadServer { http2: false, pause: Duration::ZERO, think: seconds(1_000), early: false });
    let client = builder(&net, false).headers_timeout(seconds(5)).build().unwrap();
    let never = std::future::pending::<Option<Result<speeddial::http::HeaderMap, Infallible>>>();
    let body = Body::wrap(http_body_util::Full::new(Bytes::from("piece")).with_trailers(never));
    let start = Instant::now();
    let error = client.put(URL).body(body).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Wait), "{error}");
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_that_sends_no_window_updates_is_not_taken_for_dead() {
    let net = ScriptedNet::new(|_, stream| async move {
        let mut peer = H2Peer::accept(stream, Some(10)).await.unwrap();
        // Windows of the stream and of the connection that are never used up.
        peer.send(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]).await.unwrap();
        peer.send(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()).await.unwrap();
        while let Ok(frame) = peer.next_of_all().await {
            if frame.kind == DATA {
                // 14 kB/s, behind a pipe of 256 KiB.
                tokio::time::sleep(Duration::from_millis(1_170)).await;
            }
            if frame.ends() {
                peer.answer(frame.stream).await.unwrap();
            }
        }
    });
    let client = builder(&net, true).build().unwrap();
    let start = Instant::now();
    let response = client.put(URL).body(vec![0; 1 << 20]).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ok");
    assert!(start.elapsed() > seconds(60), "{:?}", start.elapsed());
    assert_eq!(net.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn expect_continue_waits_a_second_even_with_a_shorter_idle_timeout() {
    use tokio::io::AsyncWriteExt;
    // The 100 (Continue) comes after 700 ms, or not at all.
    for continues in [true, false] {
        let net = ScriptedNet::new(move |_, mut stream| async move {
            read_request_head(&mut stream).await;
            tokio::time::sleep(Duration::from_millis(700)).await;
            if continues && stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
                return;
            }
            if stream.read_exact(&mut [0; 7]).await.is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
            let _ = stream.read_u8().await;
        });
        let client = builder(&net, false).body_idle_timeout(Duration::from_millis(500)).build().unwrap();
        let response = client.put(URL).expect_continue().body("payload").send().await;
        assert_eq!(response.unwrap().text().await.unwrap(), "ok", "sends 100 (Continue): {continues}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_after_100_continue_counts_as_send_time_until_its_last_byte() {
    let net = server(UploadServer { http2: false, pause: seconds(10), think: seconds(100), early: false });
    let client = builder(&net, false).build().unwrap();
    let response = client.put(URL).expect_continue().body(vec![0; LENGTH]).send().await.unwrap();
    let timings = response.timings();
    assert!(timings.send() > seconds(900) && timings.wait() >= seconds(100), "{timings}");
    // The server asks for the body and then reads no more of it than fits into the pipe.
    let net = ScriptedNet::new(|_, mut stream| async move {
        read_request_head(&mut stream).await;
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 100 Continue\r\n\r\n").await;
        std::future::pending::<()>().await
    });
    let client = builder(&net, false).body_idle_timeout(seconds(40)).build().unwrap();
    let error = client.put(URL).expect_continue().body(vec![0; LENGTH]).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Send), "{error}");
}
