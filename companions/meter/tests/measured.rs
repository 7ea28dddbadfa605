//! What a meter tells its sink. The measurements of whole calls are tested with the metrics libraries, in `tests/observe/`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use speeddial::dns::FixedResolver;
use speeddial::interop::Connector;
use speeddial::trace::Observer;
use speeddial::{Client, HedgePolicy, http};
use speeddial_meter::{Attributes, Instrument, InstrumentKind, Meter, Sink, Value};
use support::http_server::HttpServer;
use support::ok_server;
use tokio::sync::Semaphore;

/// A sink that adds values up, by instrument and attributes.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<HashMap<(Instrument, String), f64>>>);

impl Sums {
    fn take(&self, instrument: Instrument, value: f64, attributes: &Attributes) {
        let shown = |value: &Value| match value {
            Value::Text(text) => text.to_string(),
            Value::Number(number) => number.to_string(),
        };
        let about: Vec<_> = attributes.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
        *self.0.lock().unwrap().entry((instrument, about.join(" "))).or_default() += value;
    }

    fn sum(&self, instrument: Instrument, about: &str) -> f64 {
        let sums = self.0.lock().unwrap();
        let fitting = sums.iter().filter(|((other, text), _)| *other == instrument && text.contains(about));
        fitting.map(|(_, sum)| sum).sum()
    }

    /// Returns the number of open connections that are idle, and that are active.
    fn open(&self) -> (f64, f64) {
        let open = |state| self.sum(Instrument::OpenConnections, &format!("http.connection.state={state}"));
        (open("idle"), open("active"))
    }
}

impl Sink for Sums {
    fn record(&self, instrument: Instrument, value: f64, attributes: Attributes) {
        assert!(matches!(instrument.kind(), InstrumentKind::Histogram(_)));
        self.take(instrument, value, &attributes);
    }

    fn add(&self, instrument: Instrument, by: i64, attributes: Attributes) {
        assert!(!matches!(instrument.kind(), InstrumentKind::Histogram(_)));
        self.take(instrument, by as f64, &attributes);
    }
}

#[tokio::test]
async fn a_connection_is_active_while_it_carries_requests_and_not_counted_once_closed() {
    let permits = Arc::new(Semaphore::new(0));
    let gate = permits.clone();
    let server = HttpServer::start_as(true, move |_| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            http::Response::new(support::full("ok"))
        }
    });
    let (server, sums) = (server.unwrap(), Sums::default());
    let client =
        Client::builder().no_proxy().http2_prior_knowledge().observer(Meter::new(sums.clone())).build().unwrap();
    let call = || {
        let request = client.get(format!("http://{}/", server.address()));
        tokio::spawn(async move { request.send().await.unwrap().bytes().await.unwrap() })
    };
    let calls = [call(), call()];
    support::until("both requests are on the connection", || client.pool_stats().leased == 2).await;
    support::until("the connection is active", || sums.open() == (0.0, 1.0)).await;
    permits.add_permits(1);
    support::until("one of them is over", || client.pool_stats().leased == 1).await;
    assert_eq!(sums.open(), (0.0, 1.0), "it carries another request");
    permits.add_permits(1);
    for call in calls {
        call.await.unwrap();
    }
    support::until("the connection is idle", || sums.open() == (1.0, 0.0)).await;
    client.close_idle();
    support::until("the connection is closed", || sums.open() == (0.0, 0.0)).await;
    assert_eq!(sums.sum(Instrument::ActiveRequests, ""), 0.0);
    assert!(sums.sum(Instrument::ConnectionDuration, "network.protocol.version=2") > 0.0);
    let port = server.address().port();
    let closed = format!("server.port={port} url.scheme=http speeddial.close.cause=");
    assert_eq!(sums.sum(Instrument::ClosedConnections, &closed), 1.0);
}

#[tokio::test]
async fn the_connection_of_another_crates_client_is_idle_and_active() {
    let (server, sums) = (ok_server(), Sums::default());
    let connector = Connector::new(Client::builder().no_proxy().observer(Meter::new(sums.clone()))).unwrap();
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Empty<speeddial::bytes::Bytes>>(connector);
    let url: http::Uri = format!("http://{}/", server.address()).parse().unwrap();
    client.get(url).await.unwrap().into_body().collect().await.unwrap();
    support::until("the connection is idle", || sums.open() == (1.0, 0.0)).await;
    drop(client);
    support::until("the connection is closed", || sums.open() == (0.0, 0.0)).await;
}

#[tokio::test]
async fn a_family_without_records_is_no_error() {
    let (server, sums) = (ok_server(), Sums::default());
    let names = FixedResolver::new().with("a.test", [Ipv4Addr::LOCALHOST.into()]);
    let client = Client::builder().no_proxy().dns_resolver(names).observer(Meter::new(sums.clone())).build().unwrap();
    let port = server.address().port();
    client.get(format!("http://a.test:{port}/")).send().await.unwrap().bytes().await.unwrap();
    assert!(client.get("http://unknown.test/").send().await.is_err());
    let text = format!("{:?}", sums.0.lock().unwrap().keys().collect::<Vec<_>>());
    let has = |about: &str| text.contains(&format!("(DnsLookupDuration, \"dns.question.name={about}"));
    assert!(has("a.test dns.question.type=AAAA speeddial.dns.source=miss\""), "{text}");
    assert!(has("unknown.test dns.question.type=A speeddial.dns.source=miss error.type=resolve\""), "{text}");
}

#[tokio::test]
async fn a_hedge_is_counted_by_its_outcome() {
    let requests = Arc::new(AtomicUsize::new(0));
    let server = HttpServer::start(move |_| {
        let is_first = requests.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if is_first {
                std::future::pending::<()>().await;
            }
            http::Response::new(support::full("ok"))
        }
    });
    let (server, sums) = (server.unwrap(), Sums::default());
    let hedges = HedgePolicy::after(Duration::from_millis(5)).budget(1.0);
    let client = Client::builder().no_proxy().hedge(hedges).observer(Meter::new(sums.clone())).build().unwrap();
    client.get(format!("http://{}/", server.address())).send().await.unwrap().bytes().await.unwrap();
    let port = server.address().port();
    let won = format!("server.port={port} url.scheme=http speeddial.hedge.outcome=won");
    assert_eq!((sums.sum(Instrument::Hedges, &won), sums.sum(Instrument::Hedges, "")), (1.0, 1.0));
}

#[test]
fn what_is_left_out_is_not_asked_for() {
    let meter = |wanted: &'static str| Meter::new(Sums::default()).only(move |name| name == wanted);
    let calls = meter("speeddial.call.duration");
    assert_eq!(calls.wants(), calls.wants_of_call());
    let open = meter("http.client.open_connections");
    assert_ne!(open.wants(), open.wants_of_call());
}
