//! Peers that close connections while requests are on their way, over real sockets, plain and with TLS.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::SockRef;
use speeddial::trace::Event;
use speeddial::{Client, PoolConfig, Response};
use tokio::sync::Semaphore;

use super::common::{OK, get, ms};
use support::h2_server::{ConnectionEnd, H2Server};
use support::recorder::Recorder;
use support::scripted_peer::{ScriptedPeer, Socket, Stack, read_head};

/// Returns the number of requests for a stack: `plain`, or with TLS, whose handshakes take long, `tls`.
fn requests(over: Stack, plain: u64, tls: u64) -> u64 {
    if over == Stack::Tcp { plain } else { tls }
}

/// The way a peer ends an idle connection.
#[derive(Debug, Clone, Copy)]
enum IdleEnd {
    Reset,
    Fin,
    /// A FIN, after which the peer reads on for a while.
    HalfClose,
    /// An unrequested 408 (Request Timeout), then a FIN.
    Timeout408,
    /// Bytes that are no response, then a FIN.
    UnrequestedBytes,
}

/// Starts a peer that answers requests, counts each by its number, and ends 30 % of the connections after 0 to 3 ms of idle time.
fn idle_ending_peer(over: Stack, how: IdleEnd, counts: Arc<Mutex<HashMap<u64, usize>>>) -> ScriptedPeer {
    ScriptedPeer::start_over(over, move |number, mut socket| {
        let mut random = fastrand::Rng::with_seed(number as u64);
        for served in 0.. {
            let ends = served > 0 && random.u8(..10) < 3;
            // Some connections end directly after an answer.
            let idle_time = if ends { Duration::from_micros(random.u64(0..3_000)) } else { Duration::from_secs(60) };
            if idle_time.is_zero() || (ends && random.u8(..10) == 0) {
                return end_connection(how, socket);
            }
            let _ = socket.tcp().set_read_timeout(Some(idle_time));
            let Ok(request) = read_request(&mut socket) else { return };
            match request {
                Some(number) => {
                    *counts.lock().unwrap().entry(number).or_default() += 1;
                    let _ = socket.write_all(OK);
                }
                None => return end_connection(how, socket),
            }
        }
    })
}

/// Ends a connection in the given way.
fn end_connection(how: IdleEnd, mut socket: Socket) {
    match how {
        IdleEnd::Reset => drop(SockRef::from(socket.tcp()).set_linger(Some(Duration::ZERO))),
        IdleEnd::Fin => {}
        IdleEnd::HalfClose => {
            socket.half_close();
            let _ = socket.tcp().set_read_timeout(Some(ms(200)));
            let _ = read_request(&mut socket);
        }
        IdleEnd::Timeout408 => {
            let _ = socket.write_all(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        }
        IdleEnd::UnrequestedBytes => {
            let _ = socket.write_all(b"bytes without a request");
        }
    }
}

/// Reads a request and returns its number, which is its path. Returns `None` after the read timeout, and an error at the end.
///
/// A client sends nothing behind its request until it has the response, so what is read ends where the request does.
fn read_request(socket: &mut impl Read) -> std::io::Result<Option<u64>> {
    use std::io::ErrorKind::*;
    let mut head = Vec::new();
    let mut piece = [0; 1_024];
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read(&mut piece) {
            Ok(0) => return Err(UnexpectedEof.into()),
            Ok(read) => head.extend_from_slice(&piece[..read]),
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut) && head.is_empty() => return Ok(None),
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let number = head.split(['/', ' ']).find_map(|part| part.parse().ok());
    Ok(number)
}

/// The most connections that are opened for one call, whatever its server does.
const MOST_CONNECTIONS: usize = 12;

/// Returns true if a 408 answers a GET so late that the client takes it for the service's own: 100 ms after the request began. Only a
/// busy machine makes that of a 408 for an idle connection.
fn is_late_408(method: &http::Method, response: &Response) -> bool {
    let timings = response.timings();
    let is_408 = response.status() == http::StatusCode::REQUEST_TIMEOUT;
    is_408 && *method == http::Method::GET && timings.send() + timings.wait() >= ms(100)
}

/// Sends requests, 50 in flight, and returns the errors. A few may be answered by a late 408.
async fn load(client: Client, url: &str, requests: u64, method: http::Method) -> Vec<String> {
    let gate = Arc::new(Semaphore::new(50));
    let failed = Arc::new(Mutex::new(Vec::new()));
    let late = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for number in 0..requests {
        let permit = gate.clone().acquire_owned().await.unwrap();
        let call = client.request(method.clone(), format!("{url}{number}"));
        let (failed, late, method) = (failed.clone(), late.clone(), method.clone());
        tasks.push(tokio::spawn(async move {
            let answer = async {
                let response = call.send().await?;
                let opened = response.timings().dialled().len();
                if is_late_408(&method, &response) {
                    late.fetch_add(1, Ordering::SeqCst);
                    return Ok((opened, "ok".to_owned()));
                }
                Ok((opened, response.error_for_status()?.text().await?))
            };
            let opened = match answer.await {
                Ok((opened, text)) => {
                    assert_eq!(text, "ok");
                    opened
                }
                Err::<_, speeddial::Error>(error) => {
                    failed.lock().unwrap().push(error.to_string());
                    error.dialled().len()
                }
            };
            assert!(opened <= MOST_CONNECTIONS, "{opened} connections for one call");
            drop(permit);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let late = late.load(Ordering::SeqCst) as u64;
    assert!(late <= requests / 10, "{late} of {requests} were answered by a late 408");
    std::mem::take(&mut failed.lock().unwrap())
}

/// The parts of an answer that a peer sends before it closes.
const PARTIAL_ANSWERS: [&[u8]; 3] = [b"", b"HTTP/1.1 200 OK\r\ncont", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_a_peer_that_closes_in_the_middle_of_a_response_costs_only_that_request() {
    for over in Stack::ALL {
        assert_each_close_costs_one_request(over).await;
    }
}

/// Checks that each close costs one POST, and that no GET is sent more than three times.
async fn assert_each_close_costs_one_request(over: Stack) {
    let all = requests(over, 2_000, 200);
    let counts = Arc::new(Mutex::new(HashMap::new()));
    let closes = Arc::new(AtomicUsize::new(0));
    let seen = counts.clone();
    let closed = closes.clone();
    let peer = ScriptedPeer::start_over(over, move |number, mut socket| {
        let mut random = fastrand::Rng::with_seed(number as u64);
        while let Ok(Some(request)) = read_request(&mut socket) {
            *seen.lock().unwrap().entry(request).or_insert(0) += 1;
            if random.u8(..10) == 0 {
                closed.fetch_add(1, Ordering::SeqCst);
                let _ = socket.write_all(PARTIAL_ANSWERS[random.usize(..3)]);
                return;
            }
            let _ = socket.write_all(OK);
        }
    });
    let client = || peer.client().build().unwrap();
    let failed = load(client(), &peer.url(), all, http::Method::POST).await;
    let closes = closes.load(Ordering::SeqCst);
    assert_eq!(failed.len(), closes, "{over:?}: each close costs only the request under way");
    let sent = std::mem::take(&mut *counts.lock().unwrap());
    assert!(sent.values().all(|times| *times == 1) && sent.len() as u64 == all, "{over:?}");
    load(client(), &peer.url(), all, http::Method::GET).await;
    let most = counts.lock().unwrap().values().copied().max();
    assert!(most <= Some(3), "{over:?}: a GET was sent {most:?} times");
}

/// Checks requests to a peer that ends idle connections in this way, over every stack.
async fn assert_no_get_is_lost(how: IdleEnd) {
    for over in Stack::ALL {
        let counts = Arc::new(Mutex::new(HashMap::new()));
        let peer = idle_ending_peer(over, how, counts.clone());
        let client = || peer.client().build().unwrap();
        let all = requests(over, 10_000, 500);
        // After a few losses the client knows that the host closes idle connections.
        let most_lost = (all / 200).max(50);
        assert_no_get_is_lost_and_no_post_doubled(
            &format!("{how:?} over {over:?}"),
            client,
            &peer.url(),
            (all, most_lost),
            &counts,
        )
        .await;
    }
}

/// Sends GETs, of which none may be lost, and POSTs, of which at most `most_lost` may be lost and none may arrive twice.
async fn assert_no_get_is_lost_and_no_post_doubled(
    race: &str,
    client: impl Fn() -> Client,
    url: &str,
    (requests, most_lost): (u64, u64),
    counts: &Mutex<HashMap<u64, usize>>,
) {
    let failed = load(client(), url, requests, http::Method::GET).await;
    assert_eq!(failed.len(), 0, "{race}: GETs were lost: {:?}", failed[0]);
    counts.lock().unwrap().clear();
    let failed = load(client(), url, requests, http::Method::POST).await;
    let doubled = counts.lock().unwrap().values().filter(|count| **count > 1).count();
    assert_eq!(doubled, 0, "{race}: a POST was sent twice");
    eprintln!("{race}: {} of {requests} POSTs may or may not have arrived", failed.len());
    let unsent = failed.iter().filter(|error| error.contains("before the request was sent")).count();
    assert_eq!(unsent, 0, "{race}: a POST was lost of which no byte was written: {failed:?}");
    // If a close crosses a POST on its way, the client cannot know whether the server processed it, so it must not resend it.
    assert!(failed.len() as u64 <= most_lost, "{race}: {} POSTs were lost, {:?}", failed.len(), failed.first());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_no_get_is_lost_to_peers_that_end_http2_connections() {
    for over in Stack::ALL {
        for end in [ConnectionEnd::Reset, ConnectionEnd::Fin, ConnectionEnd::GoAway] {
            let counts = Arc::default();
            let server = H2Server::start(over, end, Arc::clone(&counts));
            let client = || server.client().build().unwrap();
            let all = requests(over, 5_000, 500);
            let race = format!("{end:?} over {over:?}");
            // Those in flight on one connection are lost together.
            let most_lost = (all / 20).max(50);
            assert_no_get_is_lost_and_no_post_doubled(&race, client, &server.url(), (all, most_lost), &counts).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_no_get_is_lost_to_peers_that_reset_idle_connections() {
    assert_no_get_is_lost(IdleEnd::Reset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_no_get_is_lost_to_peers_that_close_idle_connections() {
    assert_no_get_is_lost(IdleEnd::Fin).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_no_get_is_lost_to_a_peer_that_closes_right_behind_every_response() {
    for over in Stack::ALL {
        let peer = ScriptedPeer::start_over(over, |_, mut socket| {
            if let Ok(Some(_)) = read_request(&mut socket) {
                let _ = socket.write_all(OK);
                socket.half_close();
                // Until the client closes as well: a socket with unread bytes would send a reset.
                while read_request(&mut socket).is_ok() {}
            }
        });
        let all = requests(over, 5_000, 500);
        let failed = load(peer.client().build().unwrap(), &peer.url(), all, http::Method::GET).await;
        assert_eq!(failed, Vec::<String>::new(), "{over:?}");
        assert!(peer.connections() as u64 >= all, "{over:?}: {} connections", peer.connections());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_no_get_is_lost_to_peers_that_half_close_idle_connections() {
    assert_no_get_is_lost(IdleEnd::HalfClose).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_no_get_is_lost_to_peers_that_send_408_on_idle_connections() {
    assert_no_get_is_lost(IdleEnd::Timeout408).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_unrequested_bytes_on_an_idle_connection_are_never_taken_for_a_response() {
    // Even a GET may fail when such bytes cross it, but they must never be taken for its response.
    for over in Stack::ALL {
        let peer = idle_ending_peer(over, IdleEnd::UnrequestedBytes, Arc::default());
        let client = peer.client().build().unwrap();
        for error in load(client, &peer.url(), requests(over, 3_000, 300), http::Method::GET).await {
            let ends = ["not HTTP/1.1", "closed", "reset", "is gone"];
            assert!(ends.iter().any(|end| error.contains(end)), "{over:?}: {error}");
        }
    }
}

#[tokio::test]
async fn hazard_a_close_that_no_task_has_seen_is_noticed_before_the_next_request() {
    for over in Stack::ALL {
        for how in [IdleEnd::Reset, IdleEnd::Fin, IdleEnd::HalfClose, IdleEnd::Timeout408, IdleEnd::UnrequestedBytes] {
            assert_unseen_close_is_noticed(over, how).await;
        }
    }
}

/// Checks that a close is noticed. The runtime does not run while the peer closes, so the connection's task cannot have seen it.
async fn assert_unseen_close_is_noticed(over: Stack, how: IdleEnd) {
    let is_closed = Arc::new(AtomicBool::new(false));
    let has_ended = is_closed.clone();
    let peer = ScriptedPeer::start_over(over, move |number, mut socket| {
        if read_head(&mut socket) {
            let _ = socket.write_all(OK);
        }
        if number == 0 {
            std::thread::sleep(ms(20));
            end_connection(how, socket);
            has_ended.store(true, Ordering::SeqCst);
        } else {
            while read_head(&mut socket) {
                let _ = socket.write_all(OK);
            }
        }
    });
    let recorder = Recorder::default();
    // Beside a slow dial, no other one begins.
    let pool = PoolConfig::new().max_connections_per_host(1);
    let client = peer.client().observer(recorder.clone()).pool(pool).build().unwrap();
    assert_eq!(get(&client, &peer.url()).await.unwrap(), "ok");
    while !is_closed.load(Ordering::SeqCst) {
        std::thread::sleep(ms(5));
    }
    let post = client.post(peer.url()).body("once").send().await;
    let post = post.unwrap_or_else(|error| panic!("{how:?} over {over:?}: {error}"));
    assert_eq!(post.text().await.unwrap(), "ok");
    let retried = recorder.count(|event| matches!(event, Event::Repeated { .. }));
    assert_eq!((peer.connections(), retried), (2, 0), "{how:?} over {over:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posts_reuse_the_connections_of_a_host_that_keeps_them() {
    let peer = ScriptedPeer::start(|_, mut socket| {
        while let Ok(Some(_)) = read_request(&mut socket) {
            let _ = socket.write_all(OK);
        }
    });
    let failed = load(Client::new(), &peer.url(), 5_000, http::Method::POST).await;
    assert_eq!(failed, Vec::<String>::new());
    // A few more were dialled while others were freed, and are kept.
    assert!(peer.connections() <= 150, "{} connections for 50 at a time", peer.connections());
}
