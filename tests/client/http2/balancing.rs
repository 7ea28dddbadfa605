//! Balancing over the addresses of a name: which limits share calls out, and that the default keeps to one server.

use std::collections::HashMap;

use futures_util::future::join_all;
use speeddial::dns::FixedResolver;
use speeddial::settings::Addresses;
use speeddial::{Client, PoolConfig, Response};

use super::common::URL;
use support::h2_peer::H2Peer;
use support::scripted_net::ScriptedNet;
use support::v4;

/// Returns the number of responses from each address, the most first.
fn shares(responses: &[Response]) -> Vec<usize> {
    let mut counts = HashMap::new();
    for response in responses {
        *counts.entry(response.remote_addr().unwrap().ip()).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts
}

#[tokio::test(start_paused = true)]
async fn limits_of_streams_and_of_requests_spread_http2_calls_over_all_addresses() {
    let net = ScriptedNet::new(|_, stream| async move {
        let Ok(mut peer) = H2Peer::accept(stream, Some(100)).await else { return };
        while let Ok(request) = peer.request().await {
            let _ = peer.head(request).await;
        }
    });
    let names = FixedResolver::new().with("api.test", [1, 2, 3, 4].map(v4));
    let client = |pool: PoolConfig| {
        let builder = Client::builder().no_proxy().http2_prior_knowledge().transport(net.clone());
        builder.dns_resolver(names.clone()).addresses(Addresses::Spread).pool(pool).build().unwrap()
    };
    let at_once = async |client: &Client, calls: usize| {
        let calls = (0..calls).map(|_| async { client.get(URL).send().await.unwrap() });
        join_all(calls).await
    };
    // By default one connection has room for all, so one server has the load.
    assert_eq!(shares(&at_once(&client(PoolConfig::new()), 40).await), [40]);
    // With a limit of streams, the calls at a time are shared out.
    let few_streams = client(PoolConfig::new().max_streams_per_connection(10));
    assert_eq!(shares(&at_once(&few_streams, 40).await), [10, 10, 10, 10]);
    // Calls that follow each other are shared out by the balance, which chooses between two addresses at random.
    let few_requests = client(PoolConfig::new().max_requests_per_connection(10));
    let mut servers = HashMap::new();
    for _ in 0..400 {
        let response = few_requests.get(URL).send().await.unwrap();
        *servers.entry(response.remote_addr().unwrap()).or_insert(0) += 1;
    }
    assert!(servers.len() == 4 && servers.values().all(|calls| (60..=140).contains(calls)), "{servers:?}");
}
