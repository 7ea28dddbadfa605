//! Settings that are replaced while a client is in use.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use speeddial::dns::{Family, FixedResolver};
use speeddial::http::header::{HeaderMap, USER_AGENT};
use speeddial::pool::{FollowDns, HostLimits};
use speeddial::settings::HostConfig;
use speeddial::trace::{CloseCause, Event, Observer, Record, Wants};
use speeddial::{Client, ClientBuilder, PoolConfig, Proxy};
use support::http_server::{HttpServer, describe};
use support::{headers, settled};

fn resolver() -> FixedResolver {
    let localhost: IpAddr = Ipv4Addr::LOCALHOST.into();
    FixedResolver::new().with("a.test", [localhost]).with("b.test", [localhost])
}

fn builder() -> ClientBuilder {
    Client::builder().no_proxy().dns_resolver(resolver())
}

fn reporting() -> (HttpServer, Receiver<HeaderMap>) {
    let (report, reported) = channel();
    let server = HttpServer::start(move |request| {
        report.send(request.headers().clone()).unwrap();
        async { hyper::Response::new(support::full("ok")) }
    });
    (server.unwrap(), reported)
}

#[tokio::test]
async fn calls_that_begin_later_have_the_new_default_headers() {
    let (server, seen) = reporting();
    let client = builder().default_headers(headers(&[("x-old", "1")])).user_agent("old").build().unwrap();
    let url = |host: &str| format!("http://{host}:{}/", server.address().port());
    let prepared = client.get(url("a.test"));
    client.reconfigure(|to| to.default_headers(headers(&[("x-new", "2")]))).unwrap();
    prepared.send().await.unwrap();
    let first = seen.recv().unwrap();
    assert_eq!((first.get("x-old"), first.get(USER_AGENT), &first["x-new"]), (None, None, &"2".parse().unwrap()));
    let own = HostConfig::new().default_headers(headers(&[("x-new", "3")]));
    client.clone().reconfigure(|to| to.for_host("b.test", own)).unwrap();
    for (host, expected) in [("a.test", "2"), ("b.test", "3")] {
        client.get(url(host)).send().await.unwrap();
        assert_eq!(seen.recv().unwrap()["x-new"], expected);
    }
    client.reconfigure(|to| to.for_host("b.test", HostConfig::new())).unwrap();
    client.get(url("b.test")).send().await.unwrap();
    assert_eq!(seen.recv().unwrap()["x-new"], "2");
}

#[tokio::test]
async fn a_new_proxy_is_used_by_the_next_request_and_connections_by_the_old_way_close() {
    let (proxy, direct) = (HttpServer::start(describe).unwrap(), HttpServer::start(describe).unwrap());
    let client = builder().build().unwrap();
    let url = format!("http://a.test:{}/", direct.address().port());
    let held = client.get(&url).send().await.unwrap();
    client.get(&url).send().await.unwrap().text().await.unwrap();
    let through = Proxy::all(format!("http://{}", proxy.address())).unwrap();
    client.reconfigure(|to| to.proxy(through)).unwrap();
    for _ in 0..2 {
        client.get(&url).send().await.unwrap().text().await.unwrap();
    }
    assert_eq!((proxy.connections(), direct.connections()), (1, 2));
    assert!(held.text().await.unwrap().starts_with("HTTP/1.1 GET"), "a response that is being read is not disturbed");
    client.reconfigure(|to| to.no_proxy()).unwrap();
    client.get(&url).send().await.unwrap().text().await.unwrap();
    assert_eq!((proxy.connections(), direct.connections()), (1, 3));
    client.drain().await;
    assert_eq!(client.pool_stats().closed_by(CloseCause::Reconfigured), 3);
}

#[tokio::test]
async fn limits_of_the_pool_and_of_hosts_are_replaced() {
    let server = support::ok_server();
    let url = |host: &str| format!("http://{host}:{}/", server.address().port());
    let wait = Duration::from_millis(5);
    let one = PoolConfig::new().max_connections_per_host(1).wait_timeout(wait);
    let own = |limit| HostLimits::new().max_connections(limit).wait_timeout(wait);
    let client = builder().pool(one.for_host("b.test", own(1))).build().unwrap();
    let _held = [client.get(url("a.test")).send().await.unwrap(), client.get(url("b.test")).send().await.unwrap()];
    assert!(client.get(url("a.test")).send().await.unwrap_err().is_timeout());
    let two = PoolConfig::new().max_connections_per_host(2);
    client.reconfigure(|to| to.pool(two.clone().for_host("b.test", own(1)))).unwrap();
    assert!(client.get(url("a.test")).send().await.is_ok());
    assert!(client.get(url("b.test")).send().await.unwrap_err().is_timeout());
    client.reconfigure(|to| to.pool(two.for_host("b.test", own(2)))).unwrap();
    assert!(client.get(url("b.test")).send().await.is_ok());
}

#[tokio::test]
async fn a_request_in_the_queue_gets_a_connection_by_a_higher_limit() {
    let server = support::ok_server();
    let client = builder().pool(PoolConfig::new().max_connections_per_host(1)).build().unwrap();
    let url = format!("http://a.test:{}/", server.address().port());
    let _held = client.get(&url).send().await.unwrap();
    let mut waiting = Box::pin(client.get(&url).send());
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("there is no connection"),
        () = async { while client.pool_stats().waiting == 0 { tokio::task::yield_now().await } } => {}
    }
    client.reconfigure(|to| to.pool(PoolConfig::new())).unwrap();
    assert!(waiting.await.is_ok());
}

#[tokio::test]
async fn a_new_resolver_is_asked_from_now_on_also_about_what_the_old_one_did_not_know() {
    let server = support::ok_server();
    let client = builder().build().unwrap();
    let url = format!("http://new.test:{}/", server.address().port());
    assert!(client.get(&url).send().await.unwrap_err().is_dns());
    let new = resolver().with("new.test", [IpAddr::from(Ipv4Addr::LOCALHOST)]);
    client.reconfigure(|to| to.dns_resolver(new)).unwrap();
    assert!(client.get(&url).send().await.is_ok());
}

#[tokio::test]
async fn a_cache_asks_its_new_resolver_about_the_names_that_the_old_one_knew() {
    let cache = speeddial::dns::CachedResolver::new(resolver());
    cache.lookup("a.test", Family::V4).await.unwrap();
    cache.lookup("new.test", Family::V4).await.unwrap_err();
    cache.set_resolver(FixedResolver::new().with("new.test", [IpAddr::from([127, 0, 0, 2])]));
    assert!(cache.lookup("a.test", Family::V4).await.is_err());
    assert_eq!(cache.lookup("new.test", Family::V4).await.unwrap().addresses()[..], [IpAddr::from([127, 0, 0, 2])]);
    assert!(cache.lookup("b.test", Family::V4).await.is_err());
}

#[tokio::test]
async fn a_reconfiguration_that_is_refused_changes_nothing() {
    let (server, seen) = reporting();
    let client = builder().default_headers(headers(&[("x-old", "1")])).build().unwrap();
    let url = format!("http://a.test:{}/", server.address().port());
    client.get(&url).send().await.unwrap().text().await.unwrap();
    seen.recv().unwrap();
    let new = || headers(&[("x-new", "2")]);
    let socks = || Proxy::all("socks5h://proxy.test").unwrap().headers(new());
    let refused = [
        client.reconfigure(|to| to.default_headers(new()).pool(PoolConfig::new().max_connections(0))),
        client.reconfigure(|to| to.default_headers(new()).pool(PoolConfig::new().follow_dns(FollowDns::Off))),
        client.reconfigure(|to| to.default_headers(new()).for_host("*", HostConfig::new())),
        client.reconfigure(|to| to.default_headers(new()).proxy(socks())),
        client.reconfigure(|to| {
            to.default_headers(new()).for_host("a.test", HostConfig::new().connect_timeout(Duration::ZERO))
        }),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(error.is_builder() && error.to_string().starts_with("reconfigure the client: "), "{error}");
    }
    client.get(&url).send().await.unwrap();
    assert_eq!(seen.recv().unwrap().get("x-old").unwrap(), "1");
    assert_eq!(server.connections(), 1);
}

/// Reconfigures its client whenever a connection closes.
struct Meddler(Arc<OnceLock<Client>>);

impl Observer for Meddler {
    fn wants(&self) -> Wants {
        Wants::CONNECTIONS
    }

    fn observe(&self, record: &Record) {
        if let (Event::Closed { .. }, Some(client)) = (&record.event, self.0.get()) {
            client.reconfigure(|to| to.no_proxy().pool(PoolConfig::new()).default_headers(HeaderMap::new())).unwrap();
        }
    }
}

#[tokio::test]
async fn an_observer_may_reconfigure_its_client() {
    let server = support::ok_server();
    let shared = Arc::new(OnceLock::new());
    let client = builder().observer(Meddler(shared.clone())).build().unwrap();
    shared.set(client.clone()).unwrap();
    let url = format!("http://a.test:{}/", server.address().port());
    let proxy = HttpServer::start(describe).unwrap();
    for _ in 0..3 {
        client.get(&url).send().await.unwrap().text().await.unwrap();
        let through = Proxy::all(format!("http://{}", proxy.address())).unwrap();
        client.reconfigure(|to| to.proxy(through)).unwrap();
    }
    while client.pool_stats().closed_by(CloseCause::Reconfigured) < 3 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_reconfigured_from_many_tasks_under_load() {
    let server = HttpServer::start(describe).unwrap();
    let client = builder().build().unwrap();
    let url = format!("http://a.test:{}/", server.address().port());
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..4 {
        let (client, url) = (client.clone(), url.clone());
        tasks.spawn(async move {
            for round in 0..100 {
                let limits = PoolConfig::new().max_connections(1 + (number + round) % 5);
                client.reconfigure(|to| to.pool(limits).for_host("a.test", HostConfig::new())).unwrap();
                client.get(&url).send().await.unwrap().text().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    client.reconfigure(|to| to.pool(PoolConfig::new().max_connections(1))).unwrap();
    client.get(&url).send().await.unwrap().text().await.unwrap();
    // A body may be read before the task of its connection has returned the connection to the pool.
    settled(&client).await;
    let stats = client.pool_stats();
    assert_eq!(stats.waiting, 0, "{stats:?}");
    assert!(stats.idle <= 1, "{stats:?}");
}
