//! One client on several tokio runtimes, of which some end before the client does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use speeddial::Client;
use speeddial::trace::CloseCause;

use super::common::get;
use support::full;
use support::http_server::HttpServer;

/// Eight threads make requests with one client, each request on a runtime of its own.
#[test]
fn hazard_requests_on_many_short_runtimes_all_succeed() {
    for http2 in [false, true] {
        let server = HttpServer::start_as(http2, |_| async { hyper::Response::new(full("ok")) }).unwrap();
        let url = format!("http://{}/", server.address());
        let builder = Client::builder().no_proxy();
        let builder = if http2 { builder.http2_prior_knowledge() } else { builder };
        let client = builder.build().unwrap();
        let gets = || {
            let get = |_| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(get(&client, &url)).err()
            };
            (0..50).filter_map(get).collect::<Vec<_>>()
        };
        let failed: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(gets)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(failed.is_empty(), "HTTP/2: {http2}: {} of 400 failed, the first: {:?}", failed.len(), failed[0]);
    }
}

/// A connection ends with the runtime that opened it, even while a request of another runtime uses it.
#[test]
fn hazard_a_request_is_resent_when_the_runtime_of_its_connection_ends() {
    for http2 in [false, true] {
        let (arrival, arrived) = std::sync::mpsc::channel();
        let held = Arc::new(AtomicUsize::new(0));
        let server = HttpServer::start_as(http2, move |request| {
            let is_first = request.uri().path() == "/held" && held.fetch_add(1, Ordering::SeqCst) == 0;
            let arrival = arrival.clone();
            async move {
                if is_first {
                    arrival.send(()).unwrap();
                    std::future::pending::<()>().await;
                }
                hyper::Response::new(full("ok"))
            }
        });
        let server = server.unwrap();
        let url = format!("http://{}", server.address());
        let builder = Client::builder().no_proxy();
        let builder = if http2 { builder.http2_prior_knowledge() } else { builder };
        let client = builder.build().unwrap();
        let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let first = runtime();
        let second = runtime();
        assert_eq!(first.block_on(get(&client, &format!("{url}/"))).unwrap(), "ok");
        while client.pool_stats().idle == 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let other = client.clone();
        let getting = second.spawn(async move { get(&other, &format!("{url}/held")).await });
        arrived.recv().unwrap();
        drop(first);
        assert_eq!(second.block_on(getting).unwrap().unwrap(), "ok");
        assert_eq!(server.connections(), 2);
        assert_eq!(client.pool_stats().closed_by(CloseCause::Program), 1, "the server is not blamed for the close");
    }
}

#[test]
fn hazard_a_client_works_after_the_runtime_of_its_first_request_has_ended() {
    let server = HttpServer::start(|_| async { hyper::Response::new(full("ok")) }).unwrap();
    let url = format!("http://{}/", server.address());
    let client = Client::builder().no_proxy().build().unwrap();
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for _ in 0..3 {
            assert_eq!(runtime.block_on(get(&client, &url)).unwrap(), "ok");
        }
    }
    assert_eq!(server.connections(), 3, "a connection ends with its runtime");
}

/// The client of a whole test binary, as an application's tests would declare it.
static CLIENT: LazyLock<Client> =
    LazyLock::new(|| Client::builder().no_proxy().build().expect("the defaults are valid"));

/// Makes three requests with [`CLIENT`] on a current-thread runtime of its own, as a `#[tokio::test]` has.
fn three_requests_on_a_new_runtime(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for _ in 0..3 {
            assert_eq!(get(&CLIENT, url).await.unwrap(), "ok");
        }
    });
}

#[test]
fn a_static_client_works_in_tests_with_a_runtime_each() {
    const TESTS: usize = 12;
    let server = support::ok_server();
    let url = format!("http://{}/", server.address());
    for finished in 1..=TESTS {
        three_requests_on_a_new_runtime(&url);
        assert_eq!(server.connections(), finished, "a runtime reuses its connection, and none of an ended runtime");
    }
    std::thread::scope(|scope| {
        for _ in 0..TESTS {
            scope.spawn(|| three_requests_on_a_new_runtime(&url));
        }
    });
    let opened = server.connections() - TESTS;
    assert!(opened < 3 * TESTS, "{opened} connections for {} requests at the same time", 3 * TESTS);
}
