//! Server-sent events: the events of one response, and event sources that open their connection again.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use speeddial::dns::FixedResolver;
use speeddial::sse::{Event, EventSource, ReadyState};
use speeddial::trace::Phase;
use speeddial::{Body, Client, ClientBuilder, Error, ErrorKind, RequestBuilder};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout};

use support::http_server::{HttpServer, ServerBody};
use support::scripted_net::ScriptedNet;
use support::scripted_peer::{ScriptedPeer, Socket, Stack};
use support::{full, read_request_head, v4};

pub(super) const URL: &str = "http://a.test/events";
pub(super) const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn builder(net: &ScriptedNet) -> ClientBuilder {
    Client::builder().no_proxy().transport(net.clone()).dns_resolver(FixedResolver::new().with("a.test", [v4(1)]))
}

pub(super) fn source(net: &ScriptedNet) -> EventSource {
    builder(net).build().unwrap().get(URL).event_source().unwrap()
}

/// The requests of a server: the time of each in milliseconds, and its head.
pub(super) type Seen = Arc<Mutex<Vec<(u64, String)>>>;

/// Returns a server that gives the n-th connection the n-th answer and closes it, and later ones the last answer.
pub(super) fn server(answers: Vec<String>) -> (ScriptedNet, Seen) {
    let seen = Seen::default();
    let log = seen.clone();
    let start = Instant::now();
    let answers = Arc::new(answers);
    let net = ScriptedNet::new(move |number, mut stream| {
        let answers = answers.clone();
        let log = log.clone();
        async move {
            let Some(head) = read_request_head(&mut stream).await else { return };
            log.lock().unwrap().push((start.elapsed().as_millis() as u64, head));
            let _ = stream.write_all(answers[number.min(answers.len() - 1)].as_bytes()).await;
        }
    });
    (net, seen)
}

pub(super) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Returns a response whose body ends with its connection.
pub(super) fn events(body: &str) -> String {
    format!("{HEAD}\r\n{body}")
}

fn shown(event: &Event) -> String {
    format!("{} {}", event.id, event.data)
}

#[tokio::test(start_paused = true)]
async fn an_event_source_resumes_behind_the_last_event() {
    let piece = "id:3\ndata:c\n\n";
    let answers = vec![
        events("retry:1000\nid:1\ndata:a\n\nid:2\ndata:b\n\nid:3\ndata:not complete\n"),
        format!("{HEAD}transfer-encoding: chunked\r\n\r\n{:x}\r\n{piece}\r\n", piece.len()),
        String::new(),
        "HTTP/1.1 503 Busy\r\nretry-after: 20\r\ncontent-length: 0\r\n\r\n".to_owned(),
        events(":hello\n"),
        events("data:d\n\nid\ndata:e\n\n"),
        "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
    ];
    for _ in 0..20 {
        let (net, seen) = server(answers.clone());
        let mut source = source(&net);
        assert_eq!((source.ready_state(), net.connections()), (ReadyState::Connecting, 0));
        let mut all = Vec::new();
        while let Some(event) = source.try_next().await.unwrap() {
            assert_eq!(source.ready_state(), ReadyState::Open);
            assert_eq!(source.last_event_id(), event.id);
            all.push(shown(&event));
        }
        assert_eq!(all, ["1 a", "2 b", "3 c", "3 d", " e"]);
        assert_eq!(source.ready_state(), ReadyState::Closed);
        assert!(source.next().await.is_none() && source.last_error().is_none());
        let seen = seen.lock().unwrap();
        let ids: Vec<_> = seen.iter().map(|(_, head)| header(head, "last-event-id")).collect();
        assert_eq!(ids, [None, Some("2"), Some("3"), Some("3"), Some("3"), Some("3"), None]);
        for (_, head) in seen.iter() {
            assert_eq!(header(head, "accept"), Some("text/event-stream"));
            assert_eq!(header(head, "cache-control"), Some("no-store"));
        }
        let waits: Vec<_> = seen.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        // 10 ms for the connection, and 1 ms for the grain of the timer.
        let expected = [1_010..=1_512, 1_010..=1_512, 1_010..=2_012, 20_010..=20_012, 1_010..=1_512, 1_010..=1_512];
        for (wait, expected) in waits.iter().zip(expected) {
            assert!(expected.contains(wait), "{waits:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_source_begins_where_its_request_says() {
    let (net, seen) = server(vec![events("data:a\n\n")]);
    let request = builder(&net).build().unwrap().get(URL).header("last-event-id", "seven").header("accept", "text/*");
    let mut source = request.event_source().unwrap();
    assert_eq!(source.last_event_id(), "seven");
    assert_eq!(shown(&source.try_next().await.unwrap().unwrap()), "seven a");
    assert_eq!(header(&seen.lock().unwrap()[0].1, "last-event-id"), Some("seven"));
    assert_eq!(header(&seen.lock().unwrap()[0].1, "accept"), Some("text/*"));
}

#[tokio::test(start_paused = true)]
async fn failures_are_repeated_with_a_growing_wait_for_ever_or_until_a_limit() {
    let (net, _) = server(vec![String::new()]);
    let mut source = source(&net);
    assert!(timeout(seconds(3_600), source.next()).await.is_err());
    assert!((60..130).contains(&net.connections()), "{} in an hour", net.connections());
    assert_eq!(source.last_error().unwrap().kind(), ErrorKind::Exchange);
    for empty in [events(""), String::new()] {
        let is_error = empty.is_empty();
        let (net, _) = server(vec![empty]);
        let mut source = self::source(&net).retry(seconds(1)).max_backoff(seconds(10)).max_failures(3);
        let error = source.try_next().await.unwrap_err();
        assert_eq!((error.kind() == ErrorKind::Exchange, net.connections()), (is_error, 4), "{error}");
        assert!(source.next().await.is_none());
    }
    // A connection that is quiet and ends after a while is no failure.
    let net = ScriptedNet::new(|_, mut stream| async move {
        read_request_head(&mut stream).await;
        let _ = stream.write_all(events("").as_bytes()).await;
        sleep(seconds(60)).await;
    });
    let mut source = self::source(&net).max_failures(0);
    assert!(timeout(seconds(3_600), source.next()).await.is_err());
    assert!((55..60).contains(&net.connections()), "{}", net.connections());
}

#[tokio::test(start_paused = true)]
async fn what_the_next_connection_would_meet_again_ends_an_event_source() {
    let answer = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\n\r\ndata:x\n\n");
    let typed = |header: &str| format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\ndata:x\n\n");
    let long_id = format!("id:{}\ndata:x\n\n", "1".repeat(2_000));
    let loops = "HTTP/1.1 302 Found\r\nlocation: /events\r\ncontent-length: 0\r\n\r\n";
    for (answer, expected) in [
        (answer("404 Not Found"), "status 404 Not Found"),
        (answer("206 Partial Content"), "status 206 Partial Content"),
        (answer("410 Gone"), "status 410 Gone"),
        (typed("content-type: text/html"), "the body is not an event stream: the content type is `text/html`"),
        (typed("x: y"), "the body is not an event stream: there is no content type"),
        (events(&long_id), "a line of the event stream is longer than 1000 bytes"),
        (events(&"data:12345678\n".repeat(10)), "the data of an event is longer than 50 bytes"),
        (typed("content-type: text/event-stream\r\ncontent-encoding: gzip, gzip, gzip"), "cannot be decompressed"),
        (loops.to_owned(), "the redirect (302) is not followed"),
    ] {
        if expected.contains("decompressed") && !cfg!(feature = "gzip") {
            continue;
        }
        let (net, _) = server(vec![answer]);
        let mut source = source(&net).max_line(1_000).max_event(50);
        let error = source.try_next().await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(source.ready_state(), ReadyState::Closed);
        assert!(source.next().await.is_none(), "{error}");
        assert!(net.connections() == 1 || error.is_redirect(), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_source_of_a_drained_client_ends() {
    let (net, _) = server(vec![events("data:x\n\n")]);
    let client = builder(&net).build().unwrap();
    let mut source = client.get(URL).event_source().unwrap();
    assert_eq!(source.try_next().await.unwrap().unwrap().data, "x");
    // The stream ends, and the wait begins.
    assert!(timeout(Duration::from_millis(100), source.next()).await.is_err());
    client.drain().await;
    assert_eq!(source.try_next().await.unwrap_err().kind(), ErrorKind::Pool);
    assert_eq!(net.connections(), 1);
}

#[test]
fn a_request_that_cannot_be_sent_again_is_refused() {
    let client = Client::new();
    let pieces = stream::iter(["a"].map(Ok::<_, std::io::Error>));
    let error = client.post(URL).body(Body::wrap_stream(pieces)).event_source().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    assert!(error.to_string().ends_with("an event source cannot send a body again that is a stream"), "{error}");
    assert!(client.get("no url").event_source().is_err());
    assert!(client.post(URL).body("bytes").event_source().is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_id_is_sent_as_utf_8_and_one_that_no_header_can_have_is_left_out() {
    let (net, seen) = server(vec![events("id:ä\ndata:x\n\nid:\u{1}\ndata:y\n\n"), NO_CONTENT.to_owned()]);
    let ended = source(&net).try_collect::<Vec<_>>().await.unwrap();
    assert!(ended.iter().map(|event| event.id.as_str()).eq(["ä", "ä"]));
    assert_eq!(header(&seen.lock().unwrap()[1].1, "last-event-id"), Some("ä"));
}

const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_post_is_sent_once_unless_it_is_asked_for_or_the_server_knows_it_again() {
    let broken = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99\r\n\r\ndata:x\n\n";
    let busy = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
    for (answer, fails) in [(events("data:x\n\n").as_str(), false), (broken, true), (busy, true), ("", true)] {
        let post = |net: &ScriptedNet| builder(net).build().unwrap().post(URL).body("{}");
        let of = |source: EventSource| async { source.try_collect::<Vec<_>>().await.is_err() };
        let (net, seen) = server(vec![answer.to_owned(), NO_CONTENT.to_owned()]);
        assert_eq!(of(post(&net).event_source().unwrap()).await, fails, "{answer}");
        assert_eq!(seen.lock().unwrap().len(), 1, "{answer}");
        let (net, seen) = server(vec![answer.to_owned(), NO_CONTENT.to_owned()]);
        assert!(!of(post(&net).event_source().unwrap().repeat_always()).await, "{answer}");
        assert_eq!(seen.lock().unwrap().len(), 2, "{answer}");
        let (net, seen) = server(vec![answer.to_owned(), NO_CONTENT.to_owned()]);
        assert!(!of(post(&net).header("idempotency-key", "1").event_source().unwrap()).await, "{answer}");
        assert_eq!(seen.lock().unwrap().len(), 2, "{answer}");
    }
}

/// Returns a network whose peers send the head at once, and one event after some seconds.
fn quiet_net(after: u64) -> ScriptedNet {
    ScriptedNet::new(move |_, mut stream| async move {
        read_request_head(&mut stream).await;
        let _ = stream.write_all(events("").as_bytes()).await;
        sleep(seconds(after)).await;
        let _ = stream.write_all(b"data:late\n\n").await;
    })
}

fn builders(net: &ScriptedNet) -> Vec<ClientBuilder> {
    vec![builder(net), builder(net).layer(::tower::layer::util::Identity::new())]
}

#[tokio::test(start_paused = true)]
async fn a_quiet_event_source_outlives_the_time_limits_of_its_client() {
    let net = quiet_net(3_600);
    for builder in builders(&net) {
        let before = net.connections();
        let client = builder.timeout(seconds(5)).body_idle_timeout(seconds(5)).build().unwrap();
        let mut source = client.get(URL).event_source().unwrap();
        assert_eq!(source.try_next().await.unwrap().unwrap().data, "late");
        assert_eq!(net.connections(), before + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_of_events_has_the_limits_that_are_set_and_no_limit_of_silence_by_default() {
    let net = quiet_net(3_600);
    let call = || builder(&net).build().unwrap().get(URL);
    let read = async |request: RequestBuilder| request.send().await?.events().try_next().await;
    assert_eq!(read(call()).await.unwrap().unwrap().data, "late");
    let mut by_hand = call().send().await.unwrap();
    assert_eq!(by_hand.chunk().await.unwrap().unwrap(), "data:late\n\n");
    let of_client = builder(&net).body_idle_timeout(seconds(300)).build().unwrap().get(URL);
    let of_request = call().body_idle_timeout(seconds(300));
    let by_read_timeout = builder(&net).read_timeout(seconds(300)).build().unwrap().get(URL);
    let of_call = call().timeout(seconds(300));
    for limited in [of_client, of_request, by_read_timeout, of_call] {
        let start = Instant::now();
        let error = read(limited).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed().as_secs()), (ErrorKind::Timeout(Phase::Receive), 300));
    }
}

#[tokio::test(start_paused = true)]
async fn the_requests_own_idle_limit_and_the_timeout_until_the_head_apply_to_each_connection() {
    let net = quiet_net(3_600);
    for builder in builders(&net) {
        let before = net.connections();
        let request = builder.build().unwrap().get(URL).body_idle_timeout(seconds(10));
        let mut source = request.event_source().unwrap();
        assert!(timeout(seconds(100), source.next()).await.is_err());
        assert!((3..=9).contains(&(net.connections() - before)), "{} in 100 s", net.connections() - before);
        let error = source.last_error().map(Error::kind);
        assert!(error.is_none() || error == Some(ErrorKind::Timeout(Phase::Receive)), "{error:?}");
    }
    let silent = ScriptedNet::new(|_, mut stream| async move {
        read_request_head(&mut stream).await;
        sleep(seconds(3_600)).await;
    });
    let client = builder(&silent).timeout(seconds(5)).build().unwrap();
    let mut source = client.get(URL).event_source().unwrap().max_failures(1);
    assert_eq!(source.try_next().await.unwrap_err().kind(), ErrorKind::Timeout(Phase::Wait));
    assert_eq!(silent.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_event_source_closes_its_connection() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        read_request_head(&mut stream).await;
        sleep(Duration::from_millis(20)).await;
        let _ = stream.write_all(events(":open\n").as_bytes()).await;
        assert!(read_request_head(&mut stream).await.is_none(), "the client closes");
    });
    // Dropped unopened, connecting, after the request, and open.
    for after in [0, 5, 10, 11, 50, 1_000] {
        let mut source = source(&net);
        assert!(timeout(Duration::from_millis(after), source.next()).await.is_err());
        drop(source);
        // A dial goes on for a later request, and its connection is kept.
        sleep(seconds(120)).await;
        assert_eq!(net.open(), 0, "dropped after {after} ms");
    }
}

/// Compressed events are handed out as they come: the stream does not have to end.
#[cfg(feature = "gzip")]
#[tokio::test(start_paused = true)]
async fn compressed_events_arrive_one_by_one() {
    let stored = |text: &str| {
        let length = text.len() as u16;
        [&[0][..], &length.to_le_bytes(), &(!length).to_le_bytes(), text.as_bytes()].concat()
    };
    let net = ScriptedNet::new(move |_, mut stream| async move {
        let Some(head) = read_request_head(&mut stream).await else { return };
        assert!(header(&head, "accept-encoding").unwrap().contains("gzip"));
        let head = format!("{HEAD}content-encoding: gzip\r\n\r\n");
        let start = [head.as_bytes(), b"\x1f\x8b\x08\0\0\0\0\0\0\xff"].concat();
        let _ = stream.write_all(&start).await;
        for text in ["data:a\n\n", "data:b\n\ndata:c", "\n\n"] {
            let _ = stream.write_all(&stored(text)).await;
            sleep(seconds(1_000)).await;
        }
        sleep(seconds(1_000_000)).await;
    });
    let mut source = source(&net);
    let start = Instant::now();
    let mut next = async || {
        let event = source.try_next().await.unwrap().unwrap();
        (event.data, start.elapsed().as_secs())
    };
    assert_eq!(
        [next().await, next().await, next().await].map(|(data, at)| format!("{data} {at}")),
        ["a 0", "b 1000", "c 2000"]
    );
}

/// Reads a request's head from a socket, and returns its `Last-Event-ID` as a number; `None` if the client has closed.
fn read_last_id(socket: &mut Socket) -> Option<u64> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    Some(header(&head, "last-event-id").map_or(0, |id| id.parse().unwrap()))
}

/// Returns a server that sends events numbered from the last event ID on, and cuts each connection after `every` of them,
/// somewhere in the next one. Returns the number of requests as well: on a busy machine there are connections without one.
fn cutting_peer(over: Stack, every: u64) -> (ScriptedPeer, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = requests.clone();
    let peer = ScriptedPeer::start_over(over, move |number, mut socket| {
        let Some(last) = read_last_id(&mut socket) else { return };
        counter.fetch_add(1, Ordering::SeqCst);
        let mut random = fastrand::Rng::with_seed(number as u64);
        let mut answer = format!("{HEAD}\r\nretry: 0\r\n").into_bytes();
        let end = ["\n", "\r", "\r\n"][number % 3];
        for id in last + 1..=last + every {
            answer.extend(format!("data: {id}{end}:{end}id: {id}{end}{end}").into_bytes());
        }
        let next = format!("id: {0}{end}data: {0}{end}", last + every + 1).into_bytes();
        answer.extend(&next[..random.usize(..=next.len())]);
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(random.usize(1..=rest.len()));
            if socket.write_all(piece).and_then(|()| socket.flush()).is_err() {
                return;
            }
            rest = after;
        }
    });
    (peer, requests)
}

/// Reads `count` events, and returns the data of each.
async fn read(source: EventSource, count: usize) -> Vec<String> {
    let source = source.retry_limits(Duration::ZERO, seconds(1)).take(count);
    source.map(|event| event.unwrap().data).collect().await
}

#[tokio::test]
async fn no_event_is_lost_and_none_is_doubled_while_the_server_cuts_every_connection() {
    for over in Stack::ALL {
        let count = if over == Stack::Tcp { 2_000 } else { 140 };
        let (peer, requests) = cutting_peer(over, 7);
        let source = peer.client().build().unwrap().get(peer.url()).event_source().unwrap();
        let expected: Vec<_> = (1..=count).map(|id| id.to_string()).collect();
        assert_eq!(read(source, count).await, expected, "{over:?}");
        assert_eq!(requests.load(Ordering::SeqCst), count.div_ceil(7), "{over:?}");
    }
}

#[tokio::test]
async fn the_same_over_http2_where_the_stream_ends_and_the_connection_stays() {
    let server = HttpServer::start_as(true, |request| async move {
        let last = request.headers().get("last-event-id").map_or(0, |id| id.to_str().unwrap().parse::<u64>().unwrap());
        let events = (last + 1..last + 8).map(|id| format!("retry:0\nid:{id}\ndata:{id}\n\n"));
        let frames = events.map(|event| Ok::<_, std::convert::Infallible>(hyper::body::Frame::data(event.into())));
        let body: ServerBody = BodyExt::boxed(StreamBody::new(stream::iter(frames.collect::<Vec<_>>())));
        hyper::Response::builder().header("content-type", "text/event-stream;charset=UTF-8").body(body).unwrap()
    })
    .unwrap();
    let client = Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let source = client.get(format!("http://{}/", server.address())).event_source().unwrap();
    let expected: Vec<_> = (1..=300).map(|id: u64| id.to_string()).collect();
    assert_eq!(read(source, 300).await, expected);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn credentials_stay_with_their_origin_when_an_event_source_is_redirected() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let target = HttpServer::start(move |request| {
        let log = log.clone();
        async move {
            let has = |name: &str| request.headers().contains_key(name);
            log.lock().unwrap().push((has("authorization"), has("last-event-id"), has("accept")));
            let status = if has("last-event-id") { 204 } else { 200 };
            let response = hyper::Response::builder().status(status).header("content-type", "text/event-stream");
            response.body(full(if status == 200 { "retry:0\nid:1\ndata:x\n\n" } else { "" })).unwrap()
        }
    })
    .unwrap();
    let to = format!("http://{}/", target.address());
    let door = HttpServer::start(move |_| {
        let to = to.clone();
        async move { hyper::Response::builder().status(307).header("location", to).body(full("")).unwrap() }
    })
    .unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    let request = client.get(format!("http://{}/", door.address())).bearer_auth("secret");
    assert_eq!(request.event_source().unwrap().try_collect::<Vec<_>>().await.unwrap().len(), 1);
    assert_eq!(*seen.lock().unwrap(), [(false, false, true), (false, true, true)]);
}

#[tokio::test]
async fn hazard_a_line_without_end_is_an_error_with_bounded_memory() {
    for piece in [&[b'x'; 64 * 1024][..], &b"data:x\n".repeat(9_000)] {
        let piece = piece.to_vec();
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = sent.clone();
        let peer = ScriptedPeer::start(move |_, socket| {
            let mut socket = Socket::Tcp(socket);
            if read_last_id(&mut socket).is_none() || socket.write_all(format!("{HEAD}\r\n").as_bytes()).is_err() {
                return;
            }
            while socket.write_all(&piece).is_ok() {
                counter.fetch_add(piece.len(), Ordering::SeqCst);
            }
        });
        let client = peer.client().build().unwrap();
        let response = client.get(peer.url()).send().await.unwrap();
        let mut events = response.events().max_event(4 * 1024 * 1024);
        let error = events.try_next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert!(error.to_string().contains(" is longer than "), "{error}");
        assert!(events.next().await.is_none());
        // What is not read stays in the buffers of the sockets, and the peer is held up.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 64 * 1024 * 1024, "{sent} bytes");
        let mut source = client.get(peer.url()).event_source().unwrap().max_event(4 * 1024 * 1024);
        assert_eq!(source.try_next().await.unwrap_err().kind(), ErrorKind::Decode);
        assert!(source.next().await.is_none(), "the next connection would bring the same");
    }
}

#[tokio::test]
async fn hazard_endless_comments_leave_other_tasks_their_turn() {
    let peer = ScriptedPeer::start(move |_, socket| {
        let mut socket = Socket::Tcp(socket);
        if read_last_id(&mut socket).is_none() || socket.write_all(format!("{HEAD}\r\n").as_bytes()).is_err() {
            return;
        }
        let comments = b":comment\n".repeat(10_000);
        while socket.write_all(&comments).is_ok() {}
    });
    let mut source = peer.client().build().unwrap().get(peer.url()).event_source().unwrap();
    let opened = async {
        while source.ready_state() != ReadyState::Open {
            assert!(timeout(Duration::from_millis(50), source.next()).await.is_err());
        }
    };
    timeout(support::LONG, opened).await.expect("the answer arrives");
    assert!(timeout(Duration::from_millis(50), source.next()).await.is_err());
    assert_eq!(source.ready_state(), ReadyState::Open);
}

#[tokio::test(start_paused = true)]
async fn an_event_source_outlives_a_token_source_that_fails() {
    use speeddial::token::{Token, TokenSource};

    let (net, seen) = server(vec![events("data:a\n\n")]);
    let fetches = AtomicUsize::new(0);
    let tokens = TokenSource::new(move || {
        let is_down = fetches.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if is_down { Err("the login is down") } else { Ok(Token::new("t1")) } }
    });
    let client = builder(&net).token_source(tokens).build().unwrap();
    let mut source = client.get(URL).event_source().unwrap();
    assert!(timeout(seconds(2), source.next()).await.is_err(), "it waits");
    let failed = source.last_error().unwrap();
    assert_eq!((source.ready_state(), failed.kind()), (ReadyState::Connecting, ErrorKind::Layer));
    assert!(!failed.may_have_been_processed());
    assert_eq!(source.try_next().await.unwrap().unwrap().data, "a");
    assert_eq!(header(&seen.lock().unwrap()[0].1, "authorization"), Some("Bearer t1"));
}
