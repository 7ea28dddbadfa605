//! Causes in the queue for a connection.

use std::sync::Arc;

use futures_util::future::join_all;
use speeddial::dns::FixedResolver;
use speeddial::trace::{Cause, Timings};
use speeddial::{Client, PoolConfig};
use tokio::time::sleep;

use super::common::{Act, URL, assert_why, causes, get, ms, over, server, timings_of};
use support::fake_net::{FakeNet, Host};
use support::h2_peer::{ENHANCE_YOUR_CALM, H2Peer};
use support::net_by_path::NetByPath;
use support::scripted_net::ScriptedNet;
use support::v4;

/// Makes calls at the same time, and returns the timings of the last one.
async fn last_of(client: &Client, calls: usize) -> Timings {
    join_all((0..calls).map(|_| get(client))).await.pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn host_connections_in_use() {
    let pool = PoolConfig::new().max_connections_per_host(2);
    let client = over(server(|_| Act::ok(100))).pool(pool).build().unwrap();
    assert_why(
        &last_of(&client, 5).await,
        &[Cause::HostConnectionsInUse, Cause::ServerSlow],
        "210 ms of 310 ms were spent in the queue: api.test:80 had 2 of 2 connections in use; raise \
         max_connections_per_host or lower concurrency. The server took 100 ms of 310 ms to answer.",
    );
}

#[tokio::test(start_paused = true)]
async fn pool_connections_in_use() {
    let client = over(server(|_| Act::ok(100))).pool(PoolConfig::new().max_connections(1)).build().unwrap();
    let (_, timings) = tokio::join!(timings_of(client.get("http://other.test/")), get(&client));
    assert_why(
        &timings,
        &[Cause::PoolConnectionsInUse, Cause::ServerSlow],
        "110 ms of 220 ms were spent in the queue: the pool had 1 of 1 connections in use; raise max_connections or \
         lower concurrency. The server took 100 ms of 220 ms to answer.",
    );
}

#[tokio::test(start_paused = true)]
async fn streams_in_use() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(1)).await else { return };
        while let Ok(stream) = peer.request().await {
            sleep(ms(100)).await;
            let _ = peer.answer(stream).await;
        }
    });
    let pool = PoolConfig::new().max_http2_connections_per_host(1);
    let client = over(net).http2_prior_knowledge().pool(pool).build().unwrap();
    get(&client).await;
    assert_why(
        &last_of(&client, 3).await,
        &[Cause::StreamsInUse, Cause::ServerSlow],
        "200 ms of 300 ms were spent in the queue: api.test:80 had 1 of 1 HTTP/2 streams in use; raise \
         max_http2_connections_per_host or lower concurrency. The server took 100 ms of 300 ms to answer.",
    );
}

#[tokio::test(start_paused = true)]
async fn dials_in_progress() {
    let net = FakeNet::new([(v4(1), Host::Serves { connect: 100, think: 600, body: 0 })]);
    let client = over(net).pool(PoolConfig::new().max_dials_per_host(1)).build().unwrap();
    assert_why(
        &last_of(&client, 7).await,
        &[Cause::DialsInProgress, Cause::ServerSlow, Cause::ConnectSlow, Cause::AllInUse],
        "600 ms of 1.30 s were spent in the queue: api.test:80 had 1 of 1 connections being opened; raise \
         max_dials_per_host, or open connections ahead with warm_up. The server took 600 ms of 1.30 s to answer.",
    );
}

#[tokio::test(start_paused = true)]
async fn no_descriptors() {
    let names = FixedResolver::new().with("api.test", [v4(5)]);
    let client = over(NetByPath::default()).dns_resolver(names).build().unwrap();
    assert_why(
        &get(&client).await,
        &[Cause::NoDescriptors, Cause::ConnectSlow, Cause::BodySlow, Cause::FirstConnection],
        "60.0 ms of 80.0 ms were spent in the queue: the process or the system had no file descriptor left (EMFILE); \
         raise the limit of descriptors (ulimit -n) or lower max_connections.",
    );
}

#[tokio::test(start_paused = true)]
async fn enhance_your_calm() {
    let net = ScriptedNet::new(|number, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        while let Ok(stream) = peer.request().await {
            let _ = match number {
                0 => peer.goaway(0, ENHANCE_YOUR_CALM).await,
                _ => peer.answer(stream).await,
            };
        }
    });
    let client = over(net).http2_prior_knowledge().build().unwrap();
    let timings = get(&client).await;
    // The pause is of 100 to 200 ms, by chance.
    assert_eq!(causes(&timings)[0], Cause::EnhanceYourCalm);
    let why = timings.why().to_string();
    assert!(
        why.contains(" were spent in the queue: api.test:80 asked for fewer requests (ENHANCE_YOUR_CALM)"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn awaited_release() {
    let net = FakeNet::new([(v4(1), Host::Serves { connect: 300, think: 100, body: 0 })]);
    let client = Arc::new(over(net).build().unwrap());
    get(&client).await;
    let first = async { timings_of(client.get(URL)).await };
    let (_, timings) = tokio::join!(first, get(&client));
    assert_why(
        &timings,
        &[Cause::AwaitedRelease, Cause::ServerSlow],
        "100 ms of 200 ms were spent in the queue, until another request released its connection to api.test:80; open \
         connections ahead with warm_up. The server took 100 ms of 200 ms to answer.",
    );
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_one_host_is_named_as_its_own() {
    let pool = PoolConfig::new().for_host("api.test", speeddial::pool::HostLimits::new().max_connections(2));
    let client = over(server(|_| Act::ok(100))).pool(pool).build().unwrap();
    let why = last_of(&client, 5).await.why().to_string();
    assert!(why.contains("raise max_connections of the host's own limits (PoolConfig::for_host) or lower"), "{why}");
}
