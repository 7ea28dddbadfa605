//! Causes for which a connection was opened rather than used again.

use futures_util::future::join_all;
use speeddial::{Client, PoolConfig};
use tokio::time::sleep;

use super::common::{Act, assert_why, get, ms, over, server};
use speeddial::trace::Cause;
use support::fake_net::{FakeNet, Host};
use support::v4;

fn client(act: Act, pool: PoolConfig) -> Client {
    over(server(move |_| act)).pool(pool).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn first_connection() {
    let client = client(Act::ok(10), PoolConfig::new());
    assert_why(
        &get(&client).await,
        &[Cause::ConnectSlow, Cause::ServerSlow, Cause::FirstConnection],
        "The connection to 192.0.2.1:80 took 10.0 ms of 20.0 ms. The connection to api.test:80 was new because no \
         other one was open; open connections ahead with warm_up.",
    );
    assert_why(&get(&client).await, &[Cause::ServerSlow], "The server took all 10.0 ms to answer.");
}

#[tokio::test(start_paused = true)]
async fn server_closes_each() {
    let client = client(Act::ok(10).closing(), PoolConfig::new());
    for _ in 0..3 {
        get(&client).await;
        sleep(ms(1)).await;
    }
    assert_why(
        &get(&client).await,
        &[Cause::ConnectSlow, Cause::ServerSlow, Cause::ServerClosesEach],
        "The connection to 192.0.2.1:80 took 10.0 ms of 20.0 ms. The connection to api.test:80 was new although 3 were \
         opened in the last second: the server closes after each answer; turn keep-alive on at the server.",
    );
}

const OK_AND_CLOSE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test(start_paused = true)]
async fn server_closes_each_and_announces_it() {
    let client = client(Act::new(10, OK_AND_CLOSE).closing(), PoolConfig::new());
    get(&client).await;
    sleep(ms(5_000)).await;
    assert_why(
        &get(&client).await,
        &[Cause::ConnectSlow, Cause::ServerSlow, Cause::ServerClosesEach],
        "The connection to 192.0.2.1:80 took 10.0 ms of 20.0 ms. The connection to api.test:80 was new because the \
         server had closed the last one after one request; turn keep-alive on at the server.",
    );
}

#[tokio::test(start_paused = true)]
async fn server_closed() {
    let act = |before| if before == 1 { Act::new(10, OK_AND_CLOSE).closing() } else { Act::ok(10) };
    let client = over(server(act)).build().unwrap();
    for _ in 0..2 {
        get(&client).await;
    }
    sleep(ms(5_000)).await;
    assert_why(
        &get(&client).await,
        &[Cause::ConnectSlow, Cause::ServerSlow, Cause::ServerClosed],
        "The connection to 192.0.2.1:80 took 10.0 ms of 20.0 ms. The connection to api.test:80 was new because the \
         server had closed the last one.",
    );
}

#[tokio::test(start_paused = true)]
async fn dials_that_fail_do_not_count_as_opened() {
    let net = FakeNet::new([(v4(1), Host::Refuses(20))]);
    let client = over(net).build().unwrap();
    for _ in 0..4 {
        get(&client).await;
    }
    assert_why(
        &get(&client).await,
        &[Cause::NoAddressConnected],
        "All 20.0 ms were spent dialling 192.0.2.1:80, which did not connect.",
    );
}

#[tokio::test(start_paused = true)]
async fn server_closed_idle() {
    let net = super::common::server(|before| if before == 1 { Act::ok(10).closing_after(1_000) } else { Act::ok(10) });
    let client = over(net).build().unwrap();
    for _ in 0..2 {
        get(&client).await;
    }
    sleep(ms(5_000)).await;
    assert_why(
        &get(&client).await,
        &[Cause::ConnectSlow, Cause::ServerSlow, Cause::ServerClosedIdle],
        "The connection to 192.0.2.1:80 took 10.0 ms of 20.0 ms. The connection to api.test:80 was new because the \
         server had closed the last one, which was idle; set idle_timeout below the server's.",
    );
}

#[tokio::test(start_paused = true)]
async fn idle_timeout() {
    let client = client(Act::ok(10), PoolConfig::new().idle_timeout(ms(1_000)));
    get(&client).await;
    sleep(ms(5_000)).await;
    assert_why(
        &get(&client).await,
        &[Cause::ConnectSlow, Cause::ServerSlow, Cause::IdleTimeout],
        "The connection to 192.0.2.1:80 took 10.0 ms of 20.0 ms. The connection to api.test:80 was new because the \
         idle timeout had closed the last one; raise idle_timeout.",
    );
}

#[tokio::test(start_paused = true)]
async fn client_closed() {
    let client = client(Act::ok(10), PoolConfig::new().max_requests_per_connection(2));
    for _ in 0..2 {
        get(&client).await;
    }
    sleep(ms(1)).await;
    assert_why(
        &get(&client).await,
        &[Cause::ConnectSlow, Cause::ServerSlow, Cause::ClientClosed],
        "The connection to 192.0.2.1:80 took 10.0 ms of 20.0 ms. The connection to api.test:80 was new because the \
         last one was closed (request limit).",
    );
}

#[tokio::test(start_paused = true)]
async fn all_in_use() {
    let net = FakeNet::new([(v4(1), Host::Serves { connect: 30, think: 100, body: 0 })]);
    let client = over(net).build().unwrap();
    get(&client).await;
    let timings = join_all([get(&client), get(&client)]).await;
    assert_why(
        &timings[1],
        &[Cause::ServerSlow, Cause::ConnectSlow, Cause::AllInUse],
        "The server took 100 ms of 130 ms to answer. The connection to 192.0.2.1:80 took 30.0 ms of 130 ms.",
    );
}
