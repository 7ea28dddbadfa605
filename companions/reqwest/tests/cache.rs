//! The DNS cache under reqwest.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::Ipv4Addr;

use speeddial::dns::{CachedResolver, FixedResolver};
use speeddial_reqwest::Dns;
use support::ok_server;

#[tokio::test]
async fn reqwest_can_use_the_cache() {
    let server = ok_server();
    let cache = CachedResolver::new(FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]));
    let client = reqwest::Client::builder().no_proxy().dns_resolver(Dns(cache.clone())).build().unwrap();
    let url = format!("http://api.test:{}/", server.address().port());
    assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "ok");
    assert_eq!(cache.stats().misses, 2, "one query per family");
    assert!(client.get("http://unknown.test/").send().await.unwrap_err().is_connect());
}
