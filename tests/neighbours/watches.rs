//! The client as the service under kube: a watch that outlives a change of its name's address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use speeddial::Client;
use speeddial::dns::{Answer, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};
use support::http_server::HttpServer;
use support::{ServerBody, full};

/// A name whose address changes.
#[derive(Clone)]
struct Moving(Arc<Mutex<Ipv4Addr>>);

impl Resolver for Moving {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            match family {
                Family::V4 => {
                    let address = IpAddr::from(*self.0.lock().unwrap());
                    Ok(Answer::new(vec![address], Duration::from_millis(10), Source::Miss))
                }
                Family::V6 => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)),
            }
        })
    }
}

/// Returns a config map in JSON.
fn config_map(name: &str, version: u32) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

/// Returns a body of one line, after which the server sends nothing more.
fn open_ended(line: String) -> ServerBody {
    let line = stream::once(async move { Ok(Frame::data(Bytes::from(line))) });
    BodyExt::boxed(StreamBody::new(line.chain(stream::pending())))
}

/// Starts an API server of which each watch begins with the config map `name`.
fn api_server(address: SocketAddr, name: &'static str, version: u32) -> HttpServer {
    let answer = move |request: &Request<Incoming>| {
        if !request.uri().path().ends_with("/namespaces/default/configmaps") {
            return Response::builder().status(404).body(full("")).unwrap();
        }
        if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            return Response::new(open_ended(format!(
                "{{\"type\":\"ADDED\",\"object\":{}}}\n",
                config_map(name, version + 1)
            )));
        }
        let items = config_map("listed", version);
        let list = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMapList","metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}"#
        );
        Response::new(full(list))
    };
    let server = HttpServer::start_at(address, move |request| {
        let response = answer(&request);
        async { response }
    });
    server.unwrap()
}

/// Waits for the next object that is not one of the first list. Errors of a watch that broke off are left out: the watcher begins
/// another one.
async fn next(events: &mut (impl Stream<Item = watcher::Result<Event<ConfigMap>>> + Unpin)) -> String {
    for _ in 0..10_000 {
        match events.next().await.expect("a watch has no end") {
            Ok(Event::Apply(object)) => return object.name_any(),
            Ok(_) => {}
            Err(_) => tokio::task::yield_now().await,
        }
    }
    panic!("there was no event");
}

#[tokio::test]
async fn a_watch_of_kube_goes_on_at_the_new_address_of_its_name() {
    let first = api_server((Ipv4Addr::LOCALHOST, 0).into(), "of-the-first", 10);
    let port = first.address().port();
    let address = Moving(Arc::new(Mutex::new(Ipv4Addr::LOCALHOST)));
    let service = Client::builder()
        .no_proxy()
        .dns_resolver(address.clone())
        .base_url(format!("http://kube.test:{port}/"))
        .build()
        .unwrap();
    let kube = kube::Client::new(service, "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(kube);
    let listed = maps.list(&kube::api::ListParams::default()).await.unwrap();
    assert_eq!(listed.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["listed"]);

    let mut events = pin!(watcher(maps, watcher::Config::default()));
    assert_eq!(next(&mut events).await, "of-the-first");
    let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
    let second = api_server((elsewhere, port).into(), "of-the-second", 20);
    *address.0.lock().unwrap() = elsewhere;
    drop(first);
    assert_eq!(next(&mut events).await, "of-the-second");
    assert!(second.connections() > 0);
}
