//! The timings of calls, exact in paused time over a network in memory.

use std::time::Duration;

use speeddial::dns::{FixedResolver, Source};
use speeddial::trace::{Phase, Timings};
use speeddial::{Client, ClientBuilder, ErrorKind, PoolConfig};

use support::fake_dns::FakeDns;
use support::fake_net::{FakeNet, Host};
use support::recorder::Recorder;
use support::v4;

const URL: &str = "http://api.test/";

fn builder(dns: FakeDns, host: Host) -> ClientBuilder {
    Client::builder().dns_resolver(dns).transport(FakeNet::new([(v4(1), host)]))
}

async fn call(client: &Client) -> Timings {
    let response = client.get(URL).send().await.unwrap();
    let handle = response.timings_handle();
    assert_eq!(response.text().await.unwrap(), "hello");
    handle.timings()
}

/// Returns queue, DNS, connect, TLS, send, wait, receive and total in milliseconds, and checks the sum of all phases.
fn in_ms(timings: &Timings) -> [u128; 8] {
    assert_eq!(Phase::ALL.map(|phase| timings.spent(phase)).iter().sum::<Duration>(), timings.total());
    let [_, queue, dns, connect, _, tls, send, wait, receive] =
        Phase::ALL.map(|phase| timings.spent(phase).as_millis());
    [queue, dns, connect, tls, send, wait, receive, timings.total().as_millis()]
}

#[tokio::test(start_paused = true)]
async fn the_phases_of_a_cold_a_reused_and_an_expired_request_are_exact() {
    let dns = FakeDns::v4(30, v4(1), 2);
    let pool = PoolConfig::new().idle_timeout(Duration::from_secs(1));
    let client = builder(dns.clone(), Host::Serves { connect: 20, think: 50, body: 10 }).pool(pool).build().unwrap();

    let cold = call(&client).await;
    assert_eq!(in_ms(&cold), [0, 30, 20, 0, 0, 50, 10, 110]);
    assert_eq!((cold.reused(), cold.dns_source()), (false, Some(Source::Miss)));
    assert_eq!(cold.dialled().len(), 1);

    let warm = call(&client).await;
    assert_eq!(in_ms(&warm), [0, 0, 0, 0, 0, 50, 10, 60]);
    assert_eq!((warm.reused(), warm.dns_source()), (true, None));

    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let within_ttl = call(&client).await;
    assert_eq!(in_ms(&within_ttl), [0, 0, 20, 0, 0, 50, 10, 80]);
    assert_eq!((within_ttl.reused(), within_ttl.dns_source()), (false, Some(Source::Hit)));
    assert_eq!(dns.queries(), 2, "one query per family");

    tokio::time::sleep(Duration::from_millis(3_000)).await;
    let cold_again = call(&client).await;
    assert_eq!(in_ms(&cold_again), [0, 30, 20, 0, 0, 50, 10, 110]);
    assert_eq!(dns.queries(), 5, "the answer in use was refreshed before it expired");
}

#[tokio::test(start_paused = true)]
async fn the_timings_of_a_response_end_at_its_headers() {
    let client = builder(FakeDns::v4(0, v4(1), 60), Host::Serves { connect: 20, think: 50, body: 10 }).build().unwrap();
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.timings().total().as_millis(), 70);
    assert!(!response.timings().is_complete());
    response.bytes().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_name_with_a_connection_in_steady_use_is_refreshed() {
    let dns = FakeDns::v4(5, v4(1), 10);
    let client = builder(dns.clone(), Host::Serves { connect: 1, think: 0, body: 0 }).build().unwrap();
    for _ in 0..100 {
        call(&client).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(client.pool_stats().opened, 1);
    assert!((12..=13).contains(&dns.queries()), "1 for IPv6, 11 or 12 for IPv4 in 100 s: {}", dns.queries());
    let before = dns.queries();
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(dns.queries() <= before + 1, "an unused name is not refreshed");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_slot_is_queue_time() {
    let pool = PoolConfig::new().max_connections_per_host(1);
    let host = Host::Serves { connect: 20, think: 50, body: 10 };
    let client = builder(FakeDns::v4(30, v4(1), 60), host).pool(pool).build().unwrap();
    let (first, second) = tokio::join!(call(&client), call(&client));
    assert_eq!(in_ms(&first), [0, 30, 20, 0, 0, 50, 10, 110]);
    assert_eq!(in_ms(&second), [110, 0, 0, 0, 0, 50, 10, 170]);
    assert!(second.reused() && second.dialled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_names_the_phase_it_was_in() {
    let serves = Host::Serves { connect: 20, think: 50, body: 10 };
    for (limit, phase) in [(10, Phase::Dns), (40, Phase::Connect), (80, Phase::Wait), (105, Phase::Receive)] {
        let limit = Duration::from_millis(limit);
        let client = builder(FakeDns::v4(30, v4(1), 60), serves).timeout(limit).build().unwrap();
        let error = match client.get(URL).send().await {
            Ok(response) => response.bytes().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), ErrorKind::Timeout(phase), "{error}");
        assert_eq!(error.timings().unwrap().total(), limit);
        in_ms(error.timings().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_connect_timeout_has_an_error_message_of_its_own() {
    let client = builder(FakeDns::v4(30, v4(1), 60), Host::Silent).build().unwrap();
    let error = client.get(URL).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connect));
    assert_eq!(
        error.to_string(),
        "GET http://api.test/: no connection within 10 s, in phase connect: 9.97 s of 10.0 s were spent dialling \
         192.0.2.1:80, which did not connect (10.0 s = dns 30.0 ms (miss) + connect 9.97 s)"
    );
    assert_eq!(error.timings().unwrap().total(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_connect_timeout_names_the_phase_and_the_addresses_that_failed_before() {
    let limit = Duration::from_millis(20);
    let serves = Host::Serves { connect: 20, think: 50, body: 10 };
    let client = builder(FakeDns::v4(300, v4(1), 60), serves).connect_timeout(limit).build().unwrap();
    let error = client.get(URL).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Dns), "{error}");

    let names = FixedResolver::new().with("api.test", [v4(1), v4(2)]);
    let net = FakeNet::new([(v4(1), Host::Refuses(5)), (v4(2), Host::Silent)]);
    let client = Client::builder().dns_resolver(names).transport(net).connect_timeout(limit).build().unwrap();
    let error = client.get(URL).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connect), "{error}");
    assert!(
        error.to_string().contains("no connection within 20 ms, after 192.0.2.1 failed, in phase connect"),
        "{error}"
    );
    assert!(format!("{error:#}").ends_with("): connection refused"), "{error:#}");
    let ips: Vec<_> = error.dialled().iter().map(|attempt| attempt.address.ip()).collect();
    assert_eq!(ips, [v4(1), v4(2)]);
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_in_the_timings() {
    let mut dns = FakeDns::v4(5, v4(1), 60);
    dns.v4.1 = Ok(vec![v4(9), v4(1)]);
    let net = FakeNet::new([(v4(9), Host::Silent), (v4(1), Host::Serves { connect: 20, think: 0, body: 0 })]);
    let client = Client::builder().dns_resolver(dns).transport(net).build().unwrap();
    let timings = call(&client).await;
    assert_eq!(in_ms(&timings), [0, 5, 270, 0, 0, 0, 0, 275]);
    let attempts: Vec<_> = timings.dialled().iter().map(|attempt| format!("{attempt:?}")).collect();
    assert!(attempts[0].contains("192.0.2.9:80") && attempts[0].contains("Cancelled"), "{attempts:?}");
    assert!(attempts[1].contains("192.0.2.1:80") && attempts[1].contains("Connected"), "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_observer_receives_every_event_in_order() {
    let recorder = Recorder::default();
    let host = Host::Serves { connect: 20, think: 50, body: 10 };
    let client = builder(FakeDns::v4(30, v4(1), 60), host).observer(recorder.clone()).build().unwrap();
    call(&client).await;
    call(&client).await;
    drop(client);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(
        recorder.timeline(),
        [
            "0 call 1 CallStart",
            "0 call 1 Queued",
            "0 dial DialStart",
            "0 dial DnsStart",
            "0 dial DnsStart",
            "30 dial DnsEnd",
            "30 dial DnsEnd",
            "30 dial AttemptStart",
            "50 dial AttemptEnd",
            "50 dial HandshakeStart",
            "50 dial Opened",
            "50 call 1 Leased",
            "50 call 1 HeadersSent",
            "50 call 1 RequestSent",
            "100 call 1 FirstByte",
            "100 call 1 Headers",
            "100 call 1 BodyChunk",
            "110 call 1 BodyChunk",
            "110 call 1 BodyEnd",
            "110 dial Released",
            "110 call 2 CallStart",
            "110 call 2 Leased",
            "110 call 2 HeadersSent",
            "110 call 2 RequestSent",
            "160 call 2 FirstByte",
            "160 call 2 Headers",
            "160 call 2 BodyChunk",
            "170 call 2 BodyChunk",
            "170 call 2 BodyEnd",
            "170 dial Released",
            "170 dial Closed",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_ends_in_the_trace_and_leaks_nothing() {
    let recorder = Recorder::default();
    let net = FakeNet::new([(v4(1), Host::Serves { connect: 20, think: 50, body: 10 })]);
    let dns = FakeDns::v4(30, v4(1), 60);
    let client = Client::builder().dns_resolver(dns).transport(net.clone()).observer(recorder.clone()).build().unwrap();
    for dropped_after in (0..170).step_by(5) {
        let call = async { client.get(URL).send().await?.bytes().await };
        let _ = tokio::time::timeout(Duration::from_millis(dropped_after), call).await;
    }
    let ended = |event: &speeddial::trace::Event| {
        use speeddial::trace::Event::{BodyDropped, BodyEnd, CallFailed};
        matches!(event, BodyEnd { .. } | BodyDropped { .. } | CallFailed { .. })
    };
    assert_eq!(recorder.count(ended), 34);
    drop(client);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(net.open(), 0);
    let opened = recorder.count(|event| matches!(event, speeddial::trace::Event::Opened { .. }));
    assert_eq!(recorder.count(|event| matches!(event, speeddial::trace::Event::Closed { .. })), opened);
}
