//! speeddial as the service under kube: lists the config maps of a namespace, and watches them.
//!
//! `cargo run -p speeddial-neighbour-tests --example under_kube http://localhost:8001/`; `kubectl proxy` serves an API server
//! there. Without a URL it asks a small API server of its own.
//!
//! For a server with `https` and tokens, give the client `tls_certs_only` and a `TokenSource`, or put the layers of
//! `kube::client::ConfigExt` around it.

#![allow(clippy::print_stdout, reason = "an example prints")]

use futures_util::{StreamExt, TryStreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use support::http_server::HttpServer;
use support::{ServerBody, full};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = HttpServer::start(async |request| answer(&request))?;
    let url = std::env::args().nth(1).unwrap_or(format!("http://{}/", server.address()));

    // Paths are resolved against the base. kube's buffer adds no connections: the pool is the client's.
    let service = speeddial::Client::builder().base_url(url).build()?;
    let maps: Api<ConfigMap> = Api::default_namespaced(kube::Client::new(service.clone(), "default"));
    for map in maps.list(&ListParams::default()).await? {
        println!("listed {}", map.name_any());
    }
    let events = watcher::watcher(maps, watcher::Config::default()).default_backoff().applied_objects();
    let mut some = std::pin::pin!(events.take(2));
    while let Some(map) = some.try_next().await? {
        println!("watched {}", map.name_any());
    }
    println!("{} connections", service.pool_stats().opened);
    Ok(())
}

/// Answers as an API server with one config map, to which a watch adds another one.
fn answer(request: &Request<Incoming>) -> Response<ServerBody> {
    let map = |name: &str| {
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","resourceVersion":"1"}}}}"#)
    };
    if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
        let event = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", map("second"));
        let event = futures_util::stream::once(async move { Ok(Frame::data(event.into())) });
        return Response::new(BodyExt::boxed(StreamBody::new(event.chain(futures_util::stream::pending()))));
    }
    let metadata = r#""metadata":{"resourceVersion":"1"}"#;
    let items = map("first");
    Response::new(full(format!(r#"{{"apiVersion":"v1","kind":"ConfigMapList",{metadata},"items":[{items}]}}"#)))
}
