//! Reuse of connections: which serve another request, and when an idle one is closed.

use speeddial::PoolConfig;
use speeddial::trace::{CloseCause, Event};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use super::common::{OK, URL, client, get, ms, request, serve};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;

#[tokio::test(start_paused = true)]
async fn the_pool_learns_when_a_server_closes_idle_connections() {
    // The server closes after 5 s of idle time, and 10,000 requests come 4.95 to 5.05 s apart.
    let net = ScriptedNet::new(|_, mut stream| async move {
        while timeout(ms(5_000), request(&mut stream)).await == Ok(true) {
            stream.write_all(OK).await.unwrap();
        }
    });
    let recorder = Recorder::default();
    let client = client(&net, PoolConfig::new(), &recorder);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..10_000 {
        assert_eq!(get(&client, URL).await.unwrap(), "ok");
        sleep(ms(random.u64(4_950..=5_050))).await;
    }
    let retried = recorder.count(|event| matches!(event, Event::Repeated { .. }));
    assert!(retried <= 2, "{retried} requests had to be resent");
    assert!(
        client.pool_stats().closed_by(CloseCause::IdleTimeout) > 9_900,
        "the pool closes connections a second before the server does"
    );
}

#[tokio::test(start_paused = true)]
async fn hazard_connections_are_closed_before_the_keep_alive_timeout_of_the_server() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        let kept = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nkeep-alive: timeout=5, max=2\r\n\r\nok";
        let last = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nkeep-alive: timeout=5, max=0\r\n\r\nok";
        for answer in [kept, last] {
            if timeout(ms(5_000), request(&mut stream)).await != Ok(true) {
                return;
            }
            stream.write_all(answer).await.unwrap();
        }
        assert!(!request(&mut stream).await, "the server announced that this was the last request");
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let post = async || client.post(URL).body("x").send().await.unwrap().text().await.unwrap();
    for (pause, connections) in [(0, 1), (0, 1), (0, 2), (3_999, 2), (0, 3), (4_001, 4), (4_999, 5)] {
        sleep(ms(pause)).await;
        assert_eq!((post().await.as_str(), net.connections()), ("ok", connections), "after {pause} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_an_unread_body_costs_the_connection_only_if_it_is_long_or_late() {
    // The length of the body, the delay of its second half, and the connections that two requests take.
    for (length, late, connections) in [(2, 0, 1), (60_000, 0, 1), (60_000, 40, 1), (60_000, 60, 2), (70_000, 0, 2)] {
        let net = ScriptedNet::new(move |_, mut stream| async move {
            while request(&mut stream).await {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                let half = vec![0; length / 2];
                let rest = vec![0; length - length / 2];
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&half).await;
                sleep(ms(late)).await;
                let _ = stream.write_all(&rest).await;
            }
        });
        let client = client(&net, PoolConfig::new().max_connections_per_host(1), &Recorder::default());
        for _ in 0..2 {
            drop(client.get(URL).send().await.unwrap());
        }
        assert_eq!(net.connections(), connections, "{length} bytes, the half after {late} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_an_idle_connection_that_the_peer_closes_leaves_the_counters_without_a_request() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        sleep(ms(100)).await;
    });
    let recorder = Recorder::default();
    let client = client(&net, PoolConfig::new(), &recorder);
    get(&client, URL).await.unwrap();
    assert_eq!(client.pool_stats().idle, 1);
    sleep(ms(101)).await;
    assert_eq!((client.pool_stats().idle, client.pool_stats().closed_by(CloseCause::Peer)), (0, 1));
    assert_eq!(recorder.count(|event| matches!(event, Event::Closed { cause: CloseCause::Peer, .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_dropped_body_that_is_chunked_or_partly_read_costs_the_connection_only_if_it_is_long() {
    // The length of the body, true if it is chunked, true if a part is read, and the connections that two requests take.
    for (length, chunked, read, connections) in
        [(1_000, true, false, 1), (100_000, true, false, 2), (60_000, false, true, 1), (600_000, false, true, 2)]
    {
        let net = ScriptedNet::new(move |_, mut stream| async move {
            while request(&mut stream).await {
                let body = vec![b'x'; length];
                let (head, tail) = match chunked {
                    true => (format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n"), "\r\n0\r\n\r\n"),
                    false => (format!("content-length: {length}\r\n\r\n"), ""),
                };
                for part in [b"HTTP/1.1 200 OK\r\n", head.as_bytes(), &body, tail.as_bytes()] {
                    let _ = stream.write_all(part).await;
                }
            }
        });
        let client = client(&net, PoolConfig::new().max_connections_per_host(1), &Recorder::default());
        for _ in 0..2 {
            let mut response = client.get(URL).send().await.unwrap();
            if read {
                response.chunk().await.unwrap();
            }
        }
        assert_eq!(net.connections(), connections, "{length} bytes, in chunks: {chunked}, read in part: {read}");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_connection_is_reused_only_if_both_sides_keep_it() {
    let cases: [(&'static [u8], usize); 5] = [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 1),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", 3),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 3),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", 1),
        (b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=9, max=0\r\ncontent-length: 2\r\n\r\nok", 3),
    ];
    for (answer, connections) in cases {
        let net = ScriptedNet::new(move |_, mut stream| async move {
            while request(&mut stream).await && stream.write_all(answer).await.is_ok() {}
        });
        let client = client(&net, PoolConfig::new(), &Recorder::default());
        for _ in 0..3 {
            assert_eq!(get(&client, URL).await.unwrap(), "ok");
            sleep(ms(1)).await;
        }
        assert_eq!(net.connections(), connections, "{}", String::from_utf8_lossy(answer));
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_fails_in_the_client_does_not_discredit_the_server() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 1));
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    assert_eq!(get(&client, URL).await.unwrap(), "ok");
    let pieces = [Ok("piece"), Err(std::io::Error::other("the disk is gone"))];
    let body = speeddial::Body::wrap_stream(futures_util::stream::iter(pieces));
    let error = client.post(URL).body(body).send().await.unwrap_err();
    assert!(format!("{error:#}").ends_with(": the disk is gone"), "{error:#}");
    assert_eq!((get(&client, URL).await.unwrap().as_str(), net.connections()), ("ok", 2));
    client.post(URL).send().await.unwrap().text().await.unwrap();
    assert_eq!(net.connections(), 2, "the idle connection is reused");
}
