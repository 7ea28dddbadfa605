//! Dead and slow connections: when the client sends a PING, and which connections a timeout costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::{Client, ErrorKind, PoolConfig};
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};

use super::common::{URL, client, get, ms, service};
use support::h2_peer::{DATA, H2Peer};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::v4;

#[tokio::test(start_paused = true)]
async fn a_ping_finds_a_dead_connection() {
    let net = ScriptedNet::new(|number, stream| async move {
        if number == 0 {
            // The peer reads and answers nothing.
            let _peer = H2Peer::accept(stream, Some(100)).await;
            return std::future::pending().await;
        }
        service(stream, Some(100), Arc::default()).await;
    });
    let recorder = Recorder::default();
    let client = client(&net, PoolConfig::new(), &recorder);
    let start = Instant::now();
    let error = client.post(URL).body("x").send().await.unwrap_err();
    assert_eq!((start.elapsed().as_secs(), error.kind()), (25, ErrorKind::Exchange), "{error}");
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!(net.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_body_timeout_does_not_cost_the_connection() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        while let Ok(stream) = peer.request().await {
            let _ = peer.answer(stream).await;
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    for _ in 0..3 {
        let response = client.get(URL).timeout(ms(100)).send().await.unwrap();
        sleep(ms(150)).await;
        assert!(response.text().await.unwrap_err().is_timeout());
    }
    assert_eq!(net.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_call_that_times_out_beside_a_long_stream_leaves_its_host_reachable() {
    let net = ScriptedNet::new(|number, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        let mut requests = 0;
        while let Ok(stream) = peer.request().await {
            requests += 1;
            let _ = match requests {
                // A response that stays open, and a request without a response.
                1 if number == 0 => peer.head(stream).await,
                2 if number == 0 => Ok(()),
                _ => peer.answer(stream).await,
            };
        }
    });
    let pool = PoolConfig::new().max_connections_per_host(1).lifetime(ms(300));
    let client = client(&net, pool, &Recorder::default());
    let long = client.get(URL).send().await.unwrap();
    assert!(client.get(URL).timeout(ms(100)).send().await.unwrap_err().is_timeout());
    for _ in 0..10 {
        let answer = tokio::time::timeout(ms(50), get(&client)).await.expect("the host stays reachable");
        assert_eq!(answer.unwrap(), "ok");
        sleep(ms(100)).await;
    }
    assert_eq!((net.connections(), client.pool_stats().leased), (1, 1));
    drop(long);
    sleep(ms(1)).await;
    assert_eq!(get(&client).await.unwrap(), "ok");
    assert_eq!(net.connections(), 2, "the lifetime of the first connection had passed");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_does_not_cost_a_connection_on_which_another_response_arrives() {
    // Once while the other response is read, once without.
    for reads in [false, true] {
        let net = ScriptedNet::new(|_, stream| async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let Ok(long) = peer.request().await else { return };
            let _ = peer.head(long).await;
            let Ok(_slow) = peer.request().await else { return };
            loop {
                // At that time only whole frames are in the pipe, so cancelling the read loses nothing.
                tokio::select! {
                    biased;
                    request = peer.request() => match request {
                        Ok(stream) => drop(peer.answer(stream).await),
                        Err(_) => return,
                    },
                    () = sleep(ms(60)) => drop(peer.send(DATA, 0, long, b"more").await),
                }
            }
        });
        let client = client(&net, PoolConfig::new(), &Recorder::default());
        let mut long = client.get(URL).send().await.unwrap();
        let slow = async { client.get(URL).timeout(ms(100)).send().await.unwrap_err() };
        let (error, ()) = tokio::join!(slow, async {
            if reads {
                assert_eq!(long.chunk().await.unwrap().unwrap(), "more");
            }
        });
        assert!(error.is_timeout());
        assert_eq!(get(&client).await.unwrap(), "ok");
        assert_eq!(net.connections(), 1, "read: {reads}");
    }
}

/// grpc-go's count of pings, with its default settings (`handlePing` in internal/transport/http2_server.go).
#[derive(Default)]
struct PingStrikes {
    /// The time of the last ping.
    last: Option<Instant>,
    /// Pings that came too soon after the one before.
    strikes: u32,
    /// True if a piece of a response was sent since the last ping.
    has_answered: bool,
}

impl PingStrikes {
    /// Counts a ping and returns the number of strikes. grpc-go closes the connection after more than two.
    fn ping(&mut self, streams: usize) -> u32 {
        let apart = Duration::from_secs(if streams == 0 { 2 * 60 * 60 } else { 5 * 60 });
        if std::mem::take(&mut self.has_answered) {
            self.strikes = 0;
        } else if self.last.is_some_and(|last| last.elapsed() < apart) {
            self.strikes += 1;
        }
        self.last = Some(Instant::now());
        self.strikes
    }
}

/// Answers the first request with a head and no body, and each other one after some seconds. Logs the strikes at each ping.
async fn count_strikes(stream: DuplexStream, log: Arc<std::sync::Mutex<Vec<u32>>>) {
    let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
    let mut strikes = PingStrikes::default();
    let mut due = Vec::<(Instant, u32)>::new();
    loop {
        let first = due.iter().map(|(at, _)| *at).min();
        tokio::select! {
            biased;
            frame = peer.next_of_all() => {
                let Ok(frame) = frame else { return };
                if frame.is_ping() {
                    log.lock().unwrap().push(strikes.ping(due.len() + 1));
                } else if frame.ends() && frame.stream == 1 {
                    peer.head(1).await.unwrap();
                    strikes.has_answered = true;
                } else if frame.ends() {
                    let seconds = [1, 8, 12, 35, 90, 200][frame.stream as usize / 2 % 6];
                    due.push((Instant::now() + Duration::from_secs(seconds), frame.stream));
                }
            }
            () = tokio::time::sleep_until(first.unwrap_or_else(Instant::now)), if first.is_some() => {
                let at = due.iter().position(|(at, _)| Some(*at) == first).unwrap();
                let (_, stream) = due.swap_remove(at);
                peer.answer(stream).await.unwrap();
                strikes.has_answered = true;
            }
        }
    }
}

/// Returns a network whose peers run [`count_strikes`], and the log of strikes.
fn strike_counting_net() -> (ScriptedNet, Arc<std::sync::Mutex<Vec<u32>>>) {
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let shared = log.clone();
    (ScriptedNet::new(move |_, stream| count_strikes(stream, shared.clone())), log)
}

#[tokio::test(start_paused = true)]
async fn hazard_pings_of_a_quarter_of_an_hour_are_no_abuse_by_grpc_gos_count() {
    let (net, log) = strike_counting_net();
    let pool = PoolConfig::new().lifetime(Duration::from_secs(3_600));
    let client = client(&net, pool, &Recorder::default());
    let quiet = client.get(URL).body_idle_timeout(Duration::MAX).send().await.unwrap();
    let quiet = tokio::spawn(quiet.text());
    let start = Instant::now();
    let mut round = 0;
    while start.elapsed() < Duration::from_secs(900) {
        assert_eq!(get(&client).await.unwrap(), "ok");
        sleep(Duration::from_secs(round * 7 % 45)).await;
        round += 1;
    }
    let log = log.lock().unwrap();
    assert!(!log.is_empty() && log.iter().all(|strikes| *strikes <= 2), "{log:?}");
    assert_eq!((net.connections(), quiet.is_finished()), (1, false));
    quiet.abort();
}

#[tokio::test(start_paused = true)]
async fn hazard_a_single_quiet_stream_causes_one_ping() {
    let (net, log) = strike_counting_net();
    let pool = PoolConfig::new().lifetime(Duration::from_secs(3_600));
    let client = client(&net, pool, &Recorder::default());
    let quiet = client.get(URL).body_idle_timeout(Duration::MAX).send().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(900), quiet.text()).await.is_err(), "the response must stay open");
    assert_eq!(*log.lock().unwrap(), [0]);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_black_holed_connection_with_a_waiting_request_is_replaced_within_thirty_seconds() {
    for idle in [0, 9, 11, 40] {
        let net = ScriptedNet::new(|number, stream| async move {
            if number > 0 {
                return service(stream, Some(100), Arc::default()).await;
            }
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let Ok(first) = peer.request().await else { return };
            peer.answer(first).await.unwrap();
            // From now on the peer reads nothing, as if packets were lost.
            std::future::pending().await
        });
        let client = client(&net, PoolConfig::new(), &Recorder::default());
        assert_eq!(get(&client).await.unwrap(), "ok");
        sleep(Duration::from_secs(idle)).await;
        let start = Instant::now();
        assert_eq!(get(&client).await.unwrap(), "ok", "on another connection");
        assert!(start.elapsed() < Duration::from_secs(30), "{:?} after {idle} s", start.elapsed());
        assert_eq!(net.connections(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn pings_are_sent_by_a_timer_when_an_interval_is_set() {
    let (net, log) = strike_counting_net();
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().http2_prior_knowledge().dns_resolver(resolver).transport(net.clone());
    let client = builder.http2_keep_alive_interval(Duration::from_secs(30)).build().unwrap();
    let quiet = client.get(URL).body_idle_timeout(Duration::MAX).send().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(200), quiet.text()).await.is_err());
    assert_eq!(*log.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_ping_interval_of_zero_sends_no_pings_by_a_timer() {
    let pings = Arc::new(AtomicUsize::new(0));
    let seen = pings.clone();
    let net = ScriptedNet::new(move |_, stream| {
        let seen = seen.clone();
        async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            // A flood of pings ends the connection, so that the test ends.
            while seen.load(Ordering::SeqCst) < 100 {
                let Ok(frame) = peer.next_of_all().await else { return };
                if frame.is_ping() {
                    seen.fetch_add(1, Ordering::SeqCst);
                } else if frame.ends() {
                    let _ = peer.head(frame.stream).await;
                }
            }
        }
    });
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().http2_prior_knowledge().dns_resolver(resolver).transport(net.clone());
    let client = builder.http2_keep_alive_interval(Duration::ZERO).build().unwrap();
    let quiet = client.get(URL).body_idle_timeout(Duration::MAX).send().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(200), quiet.text()).await.is_err(), "the response must stay open");
    assert_eq!(pings.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_longest_ping_interval_and_timeout_are_accepted() {
    for (interval, timeout) in [(Duration::MAX, Duration::from_secs(20)), (Duration::from_secs(1), Duration::MAX)] {
        let net = ScriptedNet::new(|_, stream| async move {
            let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
            let Ok(request) = peer.request().await else { return };
            // Acknowledges pings for 5 s.
            let reading = async { while peer.next().await.is_ok() {} };
            let _ = tokio::time::timeout(Duration::from_secs(5), reading).await;
            let _ = peer.answer(request).await;
            let _ = peer.next().await;
        });
        let resolver = FixedResolver::new().with("api.test", [v4(1)]);
        let builder =
            Client::builder().no_proxy().http2_prior_knowledge().dns_resolver(resolver).transport(net.clone());
        let builder = builder.http2_keep_alive_interval(interval).http2_keep_alive_timeout(timeout);
        assert_eq!(get(&builder.build().unwrap()).await.unwrap(), "ok", "{interval:?}, {timeout:?}");
    }
}
