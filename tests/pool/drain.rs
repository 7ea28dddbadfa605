//! Draining a client: requests in flight end, new ones are refused, dials are given up.

use speeddial::dns::FixedResolver;
use speeddial::{Client, ErrorKind, PoolConfig};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout};

use super::common::{URL, client, get, ms, request, serve};
use support::fake_net::{FakeNet, Host};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::v4;

#[tokio::test(start_paused = true)]
async fn drain_lets_five_hundred_requests_end_and_refuses_new_ones() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 50));
    let client = client(&net, PoolConfig::new().max_connections_per_host(100), &Recorder::default());
    let call = || {
        let client = client.clone();
        tokio::spawn(async move { get(&client, URL).await })
    };
    let calls: Vec<_> = (0..500).map(|_| call()).collect();
    sleep(ms(30)).await;
    assert!(timeout(ms(1), client.drain()).await.is_err(), "dropping the future of drain does not stop the drain");
    assert_eq!(get(&client, URL).await.unwrap_err().to_string(), "GET http://api.test/: the pool is being drained");
    client.drain().await;
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "ok");
    }
    sleep(ms(1)).await;
    assert_eq!((net.open(), client.pool_stats().closed), (0, 100));
}

#[tokio::test(start_paused = true)]
async fn drain_cancels_a_dial_that_no_request_waits_for() {
    let client = Client::builder().no_proxy().dns_resolver(FixedResolver::new().with("api.test", [v4(1)]));
    let client = client.transport(FakeNet::new([(v4(1), Host::Silent)])).build().unwrap();
    assert!(timeout(ms(100), get(&client, URL)).await.is_err());
    assert_eq!(client.pool_stats().dialling, 1);
    let start = Instant::now();
    client.drain().await;
    assert_eq!((start.elapsed(), client.pool_stats().dialling), (ms(0), 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_an_open_stream_as_long_as_its_caller_does() {
    // A stream of events, one every 10 s, without an end.
    let net = ScriptedNet::new(|_, mut stream| async move {
        request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        while stream.write_all(b"5\r\nevent\r\n").await.is_ok() {
            sleep(ms(10_000)).await;
        }
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let mut events = client.get(URL).send().await.unwrap();
    let start = Instant::now();
    assert!(timeout(ms(20_000), client.drain()).await.is_err(), "the stream is open");
    assert_eq!(start.elapsed(), ms(20_000));
    // Only the wait has ended: the stream goes on, and new calls are still refused.
    for _ in 0..5 {
        assert_eq!(events.chunk().await.unwrap().unwrap(), "event");
    }
    assert_eq!(get(&client, URL).await.unwrap_err().kind(), ErrorKind::Pool);
    assert_eq!((client.pool_stats().leased, client.host_stats().len()), (1, 1));
    let (drained, ()) = tokio::join!(timeout(ms(1_000), client.drain()), async { drop(events) });
    drained.expect("nothing is open any more");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_kept_and_not_read_holds_up_a_drain_beyond_its_deadline() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
        request(&mut stream).await;
    });
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    let kept = client.get(URL).timeout(ms(1_000)).send().await.unwrap();
    let read = client.get(URL).timeout(ms(1_000)).send().await.unwrap();
    let start = Instant::now();
    let (drained, late) = tokio::join!(timeout(ms(60_000), client.drain()), read.text());
    assert!(late.unwrap_err().is_timeout() && drained.is_err());
    assert_eq!((start.elapsed(), client.pool_stats().leased), (ms(60_000), 1));
    drop(kept);
    client.drain().await;
}
