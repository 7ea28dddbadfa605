//! The queue: its order, its limits, and requests that leave it.

use std::time::Duration;

use futures_util::future::join_all;
use speeddial::dns::FixedResolver;
use speeddial::trace::Phase;
use speeddial::{Client, ErrorKind, PoolConfig, RequestBuilder};
use tokio::time::{Instant, sleep, timeout};

use super::common::{URL, client, get, ms, serve};
use support::fake_net::{FakeNet, Host};
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::v4;

#[tokio::test(start_paused = true)]
async fn no_request_waits_much_longer_than_the_median() {
    let net = ScriptedNet::new(|number, stream| serve(stream, 5 + number as u64));
    let client = client(&net, PoolConfig::new().max_connections_per_host(8), &Recorder::default());
    let caller = || async {
        let mut waits = Vec::new();
        for _ in 0..40 {
            let start = Instant::now();
            get(&client, URL).await.unwrap();
            waits.push(start.elapsed());
        }
        waits
    };
    let mut waits: Vec<_> = join_all((0..200).map(|_| caller())).await.into_iter().flatten().collect();
    waits.sort();
    assert_eq!(waits.len(), 8_000);
    assert!(waits[7_999] <= waits[4_000] * 3, "longest {:?}, median {:?}", waits[7_999], waits[4_000]);
}

#[tokio::test(start_paused = true)]
async fn hazard_ten_thousand_requests_for_a_hundred_connections_are_served_in_order() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 10));
    let client = client(&net, PoolConfig::new().max_connections_per_host(100), &Recorder::default());
    let start = Instant::now();
    let call = || async {
        assert_eq!(get(&client, URL).await.unwrap(), "ok");
        start.elapsed()
    };
    let took = join_all((0..10_000).map(|_| call())).await;
    assert!(took.is_sorted());
    // At first 16 connections are dialled at a time; when these have served a request, after 25 ms, twice as many. From 50 ms on all 100
    // connections are open, and 9,824 requests are left.
    assert_eq!((took[9_999], net.connections()), (ms(5 * 10 + 99 * 10), 100));
    // The last request waits longest: at most 1.2 times the mean of the last tenth.
    let last: Duration = took[9_000..].iter().sum::<Duration>() / 1_000;
    assert!(took[9_999] <= last * 6 / 5);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_request_that_waits_too_long_or_finds_the_queue_full_names_the_limit() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 100_000));
    let pool = PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(500)).max_waiting(1);
    let client = client(&net, pool, &Recorder::default());
    let first = tokio::spawn({
        let client = client.clone();
        async move { get(&client, URL).await }
    });
    sleep(ms(20)).await;
    let second = async { client.get(URL).send().await.unwrap_err() };
    let third = async {
        sleep(ms(1)).await;
        client.get(URL).send().await.unwrap_err()
    };
    let (second, third) = tokio::join!(second, third);
    let message = "GET http://api.test/: the host has all the connections it may have, and no connection became free \
                   within 500 ms, in phase queue: all 500 ms were spent in the queue: api.test:80 had 1 of 1 connections in use; raise \
                   max_connections_per_host or lower concurrency (500 ms = queue 500 ms)";
    assert_eq!((second.kind(), second.to_string().as_str()), (ErrorKind::Timeout(Phase::Queue), message));
    assert!(second.is_timeout() && !second.is_connect());
    let message = "GET http://api.test/: the queue is full: the host has all the connections it may have";
    assert_eq!((third.kind(), third.is_timeout(), third.to_string().as_str()), (ErrorKind::Pool, false, message));
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn the_statistics_count_how_requests_left_the_queue() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 1_000));
    let pool = PoolConfig::new().max_connections_per_host(1).max_waiting(4).wait_timeout(ms(500));
    let client = client(&net, pool, &Recorder::default());
    let others = async {
        // The first request has the connection by then.
        sleep(ms(20)).await;
        let queue_timeout = client.get(URL).queue_timeout(ms(100)).send();
        let call_timeout = client.get(URL).timeout(ms(200)).send();
        let pool_timeout = client.get(URL).send();
        let cancelled = timeout(ms(50), client.get(URL).send());
        let refused = async {
            sleep(ms(1)).await;
            client.get(URL).send().await
        };
        tokio::join!(queue_timeout, call_timeout, pool_timeout, cancelled, refused)
    };
    let (first, (queue_timeout, call_timeout, pool_timeout, cancelled, refused)) =
        tokio::join!(get(&client, URL), others);
    for timed_out in [queue_timeout, call_timeout, pool_timeout] {
        assert!(timed_out.unwrap_err().is_timeout());
    }
    assert!(first.is_ok() && cancelled.is_err() && refused.is_err());
    let stats = client.pool_stats();
    let queue = stats.queue;
    assert_eq!((queue.entered, queue.served, queue.failed), (5, 1, 0));
    assert_eq!((queue.timed_out, queue.cancelled, queue.refused), (3, 1, 1));
    assert_eq!(stats.queue_time.count(), 1, "waits without a connection are not among the times");
    assert_eq!(client.host_stats()[0].1.queue, queue);
    client.get(URL).send().await.unwrap();
    assert_eq!((client.pool_stats().queue, client.pool_stats().queue_time.count()), (queue, 2), "nothing to wait for");
}

#[tokio::test(start_paused = true)]
async fn limits_of_the_wait_do_not_count_while_a_connection_is_being_opened_for_the_request() {
    let net = FakeNet::new([(v4(1), Host::Serves { connect: 900, think: 0, body: 0 })]);
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let pool = PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(200));
    let client = Client::builder().no_proxy().dns_resolver(resolver).transport(net).pool(pool).build().unwrap();
    let start = Instant::now();
    let call = |change: fn(RequestBuilder) -> RequestBuilder| {
        let request = change(client.get(URL));
        async move {
            let made = match request.send().await {
                Ok(response) => response.text().await,
                Err(error) => Err(error),
            };
            (made, start.elapsed())
        }
    };
    // The first request has the only dial. The others wait in the queue, each until its shortest limit.
    let (own_dial, waiting, impatient) =
        tokio::join!(call(|own| own.queue_timeout(ms(100))), call(|own| own), call(|own| own.queue_timeout(ms(100))));
    assert_eq!((own_dial.0.is_ok(), own_dial.1), (true, ms(900)), "neither limit counts");
    assert_eq!((waiting.0.is_err(), waiting.1), (true, ms(200)), "the pool's");
    assert_eq!((impatient.0.is_err(), impatient.1), (true, ms(100)), "the request's");
    client.close_idle();
    let start = Instant::now();
    let late = client.get(URL).connect_timeout(ms(300)).send().await;
    assert_eq!((late.is_err(), start.elapsed()), (true, ms(300)), "the connect timeout bounds its own dial");
}

#[tokio::test(start_paused = true)]
async fn hazard_cancelling_most_requests_does_not_disturb_the_rest() {
    // Half of 4,000 after 3 ms, some of them on their connections; 95 % of 2,000 in the queue.
    for (limit, at_once, goes_on, cancel_after) in [(8, 4_000, 2, 3), (4, 2_000, 20, 0)] {
        let net = ScriptedNet::new(|_, stream| serve(stream, 2));
        let client = client(&net, PoolConfig::new().max_connections_per_host(limit), &Recorder::default());
        let call = |number: usize| {
            let client = client.clone();
            async move {
                match number.is_multiple_of(goes_on) {
                    true => assert_eq!(get(&client, URL).await.unwrap(), "ok"),
                    false => drop(timeout(ms(cancel_after), get(&client, URL)).await),
                }
            }
        };
        join_all((0..at_once).map(call)).await;
        let call = || async {
            let start = Instant::now();
            assert_eq!(get(&client, URL).await.unwrap(), "ok");
            start.elapsed()
        };
        let took = join_all((0..100).map(|_| call())).await;
        assert!(took.iter().all(|took| *took < ms(200)), "{took:?}");
        assert!(net.open() <= limit);
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_waiting_requests_that_cancel_or_time_out_do_not_disturb_the_order_of_the_others() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 10));
    let pool = PoolConfig::new().max_connections_per_host(100).wait_timeout(ms(800));
    let client = client(&net, pool, &Recorder::default());
    let start = Instant::now();
    let call = |number: u64| {
        let client = &client;
        async move {
            let cancel_after = if number.is_multiple_of(4) { number % 700 } else { 100_000 };
            (timeout(ms(cancel_after), get(client, URL)).await, start.elapsed())
        }
    };
    let ended = join_all((0..10_000).map(call)).await;
    let mut served = Vec::new();
    let mut late = Vec::new();
    let mut cancelled = 0;
    for (answer, at) in ended {
        match answer {
            Ok(Ok(_)) => served.push(at),
            Ok(Err(error)) => late.push((error.to_string(), at)),
            Err(_) => cancelled += 1,
        }
    }
    assert!(served.is_sorted() && served.len() > 7_000, "{} served", served.len());
    assert!(cancelled > 1_000, "{cancelled} were cancelled");
    assert!(
        late.iter().all(|(error, at)| *at == ms(800) && error.contains("no connection became free within 800 ms")),
        "{late:?}"
    );
    assert!(!late.is_empty());
    let stats = client.pool_stats();
    assert_eq!((stats.waiting, stats.in_use, stats.dialling), (0, 0, 0));
    assert!(net.open() <= 100);
}
