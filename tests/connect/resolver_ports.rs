//! Ports that a resolver answers with, where the URL names none.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::dns::{Addrs, Name, Resolve, Resolving};
use speeddial::settings::Addresses;
use speeddial::transport::{Connecting, Transport};
use speeddial::{Client, ClientBuilder, PoolConfig};
use support::scripted_net::ScriptedNet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A network that keeps the addresses which are dialled.
#[derive(Clone)]
struct Net(ScriptedNet, Arc<Mutex<Vec<String>>>);

impl Net {
    fn new() -> Self {
        let net = ScriptedNet::new(|_, mut stream| async move {
            while stream.read(&mut [0; 4_096]).await.is_ok_and(|read| read > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
        });
        Self(net, Arc::default())
    }

    fn dialled(&self) -> Vec<String> {
        std::mem::take(&mut self.1.lock().unwrap())
    }
}

impl Transport for Net {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        self.1.lock().unwrap().push(address.to_string());
        self.0.connect(address)
    }
}

/// Answers with another of these sets of addresses each time.
struct Turning(Vec<&'static [&'static str]>, AtomicUsize);

impl Resolve for Turning {
    fn resolve(&self, _: Name) -> Resolving {
        let turn = self.1.fetch_add(1, Ordering::Relaxed);
        let all = self.0[turn % self.0.len()].iter().map(|address| address.parse().unwrap());
        let all: Vec<SocketAddr> = all.collect();
        Box::pin(async move { Ok(Box::new(all.into_iter()) as Addrs) })
    }
}

fn turning(sets: &[&'static [&'static str]]) -> Arc<Turning> {
    Arc::new(Turning(sets.to_vec(), AtomicUsize::new(0)))
}

/// Returns the builder of a client that opens a connection for each request.
fn builder(net: &Net) -> ClientBuilder {
    Client::builder().transport(net.clone()).no_proxy().pool(PoolConfig::new().max_requests_per_connection(1))
}

async fn get(client: &Client, url: &str) {
    client.get(url).send().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_port_of_a_url_goes_before_that_of_a_resolver() {
    let net = Net::new();
    let resolver = turning(&[&["192.0.2.1:8080", "[2001:db8::1]:0"]]);
    let client = builder(&net).dns_resolver(resolver).addresses(Addresses::V4Only).build().unwrap();
    for url in ["http://a.test/", "https://a.test:81/", "http://a.test:80/"] {
        let _ = client.get(url).timeout(Duration::from_secs(1)).send().await;
    }
    assert_eq!(net.dialled(), ["192.0.2.1:8080", "192.0.2.1:81", "192.0.2.1:8080"], "a URL shows no port 80");
    let client = builder(&net).dns_resolver(turning(&[&["[2001:db8::1]:0"]])).build().unwrap();
    get(&client, "http://a.test/").await;
    assert_eq!(net.dialled(), ["[2001:db8::1]:80"]);
}

#[tokio::test(start_paused = true)]
async fn each_address_keeps_its_port_while_the_answers_change() {
    let net = Net::new();
    let resolver = turning(&[&["192.0.2.1:8081"], &["192.0.2.2:8082"], &["192.0.2.3:8083", "192.0.2.3:8084"]]);
    let client = builder(&net).dns_resolver(resolver).build().unwrap();
    for _ in 0..300 {
        get(&client, "http://a.test/").await;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    let dialled = net.dialled();
    let known = ["192.0.2.1:8081", "192.0.2.2:8082", "192.0.2.3:8083", "192.0.2.3:8084"];
    assert!(dialled.iter().all(|address| known.contains(&&**address)), "{dialled:?}");
    assert!(known[..3].iter().all(|address| dialled.iter().any(|dialled| dialled == address)), "{dialled:?}");
}

#[tokio::test(start_paused = true)]
async fn another_resolver_is_asked_for_its_own_ports_and_no_answer_is_learned_without_them() {
    let net = Net::new();
    let client = builder(&net).dns_resolver(turning(&[&["192.0.2.1:8081"]])).build().unwrap();
    get(&client, "http://a.test/").await;
    let learned = client.learned();
    client.reconfigure(|to| to.dns_resolver(turning(&[&["192.0.2.1:8083"]]))).unwrap();
    get(&client, "http://a.test/").await;
    assert_eq!(net.dialled(), ["192.0.2.1:8081", "192.0.2.1:8083"]);
    let next = builder(&net).dns_resolver(turning(&[&["192.0.2.2:8082"]])).build().unwrap();
    next.restore(&learned).unwrap();
    get(&next, "http://a.test/").await;
    assert_eq!(net.dialled(), ["192.0.2.2:8082"], "an address without its port would lead elsewhere");
}

#[cfg(feature = "doctor")]
#[tokio::test]
async fn the_doctor_dials_the_ports_of_the_resolver() {
    let server = support::ok_server();
    let address = server.address();
    let resolve = NamesOne(address);
    let client = Client::builder().dns_resolver(resolve).no_proxy().build().unwrap();
    let report = client.doctor("http://a.test/").await.unwrap();
    let dialled: Vec<_> = report.addresses().iter().map(|report| report.address()).collect();
    assert_eq!(dialled, [address], "{report}");
}

#[cfg(feature = "doctor")]
struct NamesOne(SocketAddr);

#[cfg(feature = "doctor")]
impl Resolve for NamesOne {
    fn resolve(&self, _: Name) -> Resolving {
        let address = self.0;
        Box::pin(async move { Ok(Box::new([address].into_iter()) as Addrs) })
    }
}
