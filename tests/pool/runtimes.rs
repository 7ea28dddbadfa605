//! One client on several tokio runtimes, of which some end before the client does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use speeddial::trace::CloseCause;
use speeddial::{Client, PoolConfig};

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
        // Beside a slow dial, as on a busy machine, there would be another one.
        let builder = Client::builder().no_proxy().pool(PoolConfig::new().max_connections_per_host(1));
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
        assert_eq!(server.connections(), 2, "HTTP/2: {http2}");
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

/// A thread of a runtime that a task blocks until this is dropped.
struct Blocked {
    _release: std::sync::mpsc::Sender<()>,
}

/// Blocks the only thread of a runtime, after `task` was polled once there.
fn block<F: Future + Send + 'static>(runtime: &tokio::runtime::Runtime, task: F) -> Blocked {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (block, blocked) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        let mut task = std::pin::pin!(task);
        std::future::poll_fn(|cx| {
            let _ = task.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
        block.send(()).unwrap();
        let _ = released.recv();
    });
    blocked.recv().unwrap();
    Blocked { _release: release }
}

/// Runs a task on a thread of a runtime. Returns `None` if it does not end soon.
fn on<T: Send + 'static>(
    runtime: &tokio::runtime::Runtime,
    task: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let task = runtime.spawn(async { tokio::time::timeout(SOON, task).await.ok() });
    runtime.block_on(task).unwrap()
}

fn single() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn client_for(http2: bool, pool: speeddial::PoolConfig) -> Client {
    let builder = Client::builder().no_proxy().pool(pool);
    let builder = if http2 { builder.http2_prior_knowledge() } else { builder };
    builder.build().unwrap()
}

const SOON: std::time::Duration = std::time::Duration::from_secs(5);

#[test]
fn hazard_a_connection_whose_runtime_is_blocked_or_not_driven_keeps_no_request_of_another_one() {
    for http2 in [false, true] {
        for is_blocked in [true, false] {
            let server = HttpServer::start_as(http2, |_| async { hyper::Response::new(full("ok")) }).unwrap();
            let url = format!("http://{}/", server.address());
            let client = client_for(http2, speeddial::PoolConfig::new());
            let undriven = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (first, second) = (single(), single());
            let _blocked = if is_blocked {
                on(&first, get_owned(client.clone(), url.clone())).unwrap().unwrap();
                Some(block(&first, std::future::ready(())))
            } else {
                assert_eq!(undriven.block_on(get(&client, &url)).unwrap(), "ok");
                None
            };
            for _ in 0..3 {
                let answer = on(&second, get_owned(client.clone(), url.clone()));
                assert_eq!(answer.expect("it is answered").unwrap(), "ok", "HTTP/2: {http2}, blocked: {is_blocked}");
            }
            assert_eq!(server.connections(), 2, "HTTP/2: {http2}, blocked: {is_blocked}");
        }
    }
}

async fn get_owned(client: Client, url: String) -> speeddial::Result<String> {
    get(&client, &url).await
}

#[test]
fn hazard_a_dial_whose_runtime_is_blocked_keeps_no_request_of_another_one() {
    for http2 in [false, true] {
        let server = HttpServer::start_as(http2, |_| async { hyper::Response::new(full("ok")) }).unwrap();
        let url = format!("http://{}/", server.address());
        let client = client_for(http2, speeddial::PoolConfig::new());
        let (first, second) = (single(), single());
        let _blocked = block(&first, get_owned(client.clone(), url.clone()));
        let answer = on(&second, get_owned(client.clone(), url.clone()));
        assert_eq!(answer.expect("it is answered").unwrap(), "ok", "HTTP/2: {http2}");
    }
}

#[test]
fn hazard_the_limits_of_a_call_hold_while_the_runtime_of_all_connections_and_of_the_timer_is_blocked() {
    for http2 in [false, true] {
        let server = HttpServer::start_as(http2, |_| async { hyper::Response::new(full("ok")) }).unwrap();
        let url = format!("http://{}/", server.address());
        let pool = speeddial::PoolConfig::new().max_connections_per_host(1);
        for is_idle in [true, false] {
            let client = client_for(http2, pool.clone());
            let (first, second) = (single(), single());
            let before = if is_idle {
                on(&first, get_owned(client.clone(), url.clone())).unwrap().unwrap();
                block(&first, std::future::ready(()))
            } else {
                block(&first, get_owned(client.clone(), url.clone()))
            };
            let limit = std::time::Duration::from_millis(200);
            let call = client.get(&url).queue_timeout(limit).connect_timeout(limit).send();
            let answer = on(&second, call);
            let error = answer.expect("it ends at its limit").unwrap_err();
            assert!(error.is_timeout(), "HTTP/2: {http2}, idle: {is_idle}: {error}");
            drop(before);
        }
    }
}
