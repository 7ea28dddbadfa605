//! Draining a client: requests in flight end, new ones are refused, dials are given up.

use speeddial::dns::FixedResolver;
use speeddial::{Client, PoolConfig};
use tokio::time::{Instant, sleep, timeout};

use super::common::{URL, client, get, ms, serve};
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
    assert_eq!(get(&client, URL).await.unwrap_err().to_string(), "call api.test:80: the pool is being drained");
    client.drain().await;
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "ok");
    }
    sleep(ms(1)).await;
    assert_eq!((net.open(), client.pool_stats().closed), (0, 100));
}

#[tokio::test(start_paused = true)]
async fn drain_cancels_a_dial_that_no_request_waits_for() {
    let client = Client::builder().no_proxy().resolver(FixedResolver::new().with("api.test", [v4(1)]));
    let client = client.transport(FakeNet::new([(v4(1), Host::Silent)])).build().unwrap();
    assert!(timeout(ms(100), get(&client, URL)).await.is_err());
    assert_eq!(client.pool_stats().dialling, 1);
    let start = Instant::now();
    client.drain().await;
    assert_eq!((start.elapsed(), client.pool_stats().dialling), (ms(0), 0));
}
