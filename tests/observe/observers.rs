//! Observers: every event arrives once, in order, and the phases of a call add up to its total.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::trace::{EndedCall, Event, HopEnd, Observer, Phase, Record, RepeatCause, Subject, Timings};
use speeddial::{Client, ClientBuilder, PoolConfig, RetryPolicy};

use support::fake_dns::FakeDns;
use support::h2_peer::{H2Peer, NO_ERROR};
use support::net_by_path::NetByPath;
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::v4;

/// Names by behaviour: `a.test` and `b.test` serve; `c.test` serves behind an address that refuses and `d.test` behind a silent one;
/// `e.test` refuses; `f.test` fails without descriptors at first; `g.test` is silent.
fn names() -> FixedResolver {
    let names = [("a", vec![1]), ("b", vec![2]), ("c", vec![3, 1]), ("d", vec![4, 1])];
    let more = [("e", vec![3]), ("f", vec![5]), ("g", vec![4])];
    names
        .into_iter()
        .chain(more)
        .fold(FixedResolver::new(), |names, (name, last)| names.with(format!("{name}.test"), last.into_iter().map(v4)))
}

fn builder(net: &NetByPath) -> ClientBuilder {
    Client::builder().dns_resolver(names()).transport(net.clone()).no_proxy()
}

async fn get(client: &Client, url: &str) -> speeddial::Result<Timings> {
    let response = client.get(url).send().await?;
    let handle = response.timings_handle();
    response.bytes().await?;
    Ok(handle.timings())
}

fn assert_sum(timings: &Timings) {
    let sum: Duration = Phase::ALL.iter().map(|phase| timings.spent(*phase)).sum();
    assert_eq!(sum, timings.total(), "{timings:?}");
    for hop in timings.hops() {
        assert_eq!(Phase::ALL.iter().map(|phase| hop.spent(*phase)).sum::<Duration>(), hop.elapsed, "{timings:?}");
    }
}

/// Returns the name of an event.
fn name(event: &Event) -> String {
    format!("{event:?}").split([' ', '(', '{']).next().unwrap().to_owned()
}

/// An observer that keeps the names of events.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeSet<String>>>);

impl Observer for Seen {
    fn observe(&self, record: &Record) {
        self.0.lock().unwrap().insert(name(&record.event));
    }
}

/// Causes every event that a network in memory can cause.
async fn in_memory(seen: &Seen) {
    let net = NetByPath::default();
    let pool = || PoolConfig::new().max_connections_per_host(1);
    let client = builder(&net).observer(seen.clone()).pool(pool()).build().unwrap();
    for path in ["ok", "to/2", "away", "early", "stale"] {
        get(&client, &format!("http://a.test/{path}")).await.unwrap();
    }
    let both = tokio::join!(get(&client, "http://a.test/ok"), get(&client, "http://a.test/ok"));
    assert!(both.0.is_ok() && both.1.is_ok());
    for url in ["http://c.test/ok", "http://d.test/ok", "http://f.test/ok"] {
        get(&client, url).await.unwrap();
    }
    assert!(get(&client, "http://e.test/ok").await.is_err());
    assert!(get(&client, "http://a.test/die").await.is_err());
    drop(client.get("http://a.test/ok").send().await.unwrap());
    // A call that is retried, after a backoff.
    let retrying = builder(&net).observer(seen.clone()).retry(RetryPolicy::new()).build().unwrap();
    assert!(get(&retrying, "http://e.test/ok").await.is_err());
    // A call that is dropped while its name is looked up.
    let dns = FakeDns::v4(30, v4(1), 60);
    let slow =
        Client::builder().dns_resolver(dns).transport(net.clone()).no_proxy().observer(seen.clone()).build().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(10), get(&slow, "http://a.test/ok")).await.is_err());
    // A dial that ends with its client.
    let silent = builder(&net).observer(seen.clone()).build().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), get(&silent, "http://g.test/ok")).await.is_err());
    drop(silent);
    // The answer for IPv6 comes after the dial has used the one for IPv4.
    let mut dns = FakeDns::v4(0, v4(1), 60);
    dns.v6 = (5_000, dns.v6.1);
    let late =
        Client::builder().dns_resolver(dns).transport(net.clone()).no_proxy().observer(seen.clone()).build().unwrap();
    get(&late, "http://a.test/ok").await.unwrap();
    // The peer sends GOAWAY in the middle of a request.
    let wire = ScriptedNet::new(|_, stream| async move {
        let mut peer = H2Peer::accept(stream, Some(100)).await.unwrap();
        let stream = peer.request().await.unwrap();
        peer.goaway(stream, NO_ERROR).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        peer.answer(stream).await.unwrap();
    });
    let multiplexed = Client::builder().dns_resolver(names()).transport(wire).no_proxy().http2_prior_knowledge();
    get(&multiplexed.observer(seen.clone()).build().unwrap(), "http://a.test/").await.unwrap();
}

/// Causes the events that need real sockets: a Unix domain socket, a proxy, TLS.
async fn on_sockets(seen: &Seen) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    async fn answer(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
        stream.read_buf(&mut Vec::new()).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    }
    let path = std::env::temp_dir().join(format!("speeddial-observers-{}", std::process::id()));
    // A process that failed may have left one behind, and this one may have its number.
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move { answer(listener.accept().await.unwrap().0).await });
    let client = Client::builder().unix_socket(&path).observer(seen.clone()).build().unwrap();
    get(&client, "http://a.test/").await.unwrap();
    std::fs::remove_file(&path).unwrap();

    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { answer(listener.accept().await.unwrap().0).await });
    let client = Client::builder().proxy(speeddial::Proxy::http(&proxy).unwrap()).observer(seen.clone()).build();
    get(&client.unwrap(), "http://a.test/").await.unwrap();

    #[cfg(feature = "__tls")]
    {
        use support::{certs::Authority, tls_server::TlsServer};
        let authority = Authority::new();
        let server = TlsServer::start(authority.server(&["a.test"], &["http/1.1"])).await;
        let names = FixedResolver::new()
            .with("a.test", [Ipv4Addr::LOCALHOST.into()])
            .with("other.test", [Ipv4Addr::LOCALHOST.into()]);
        let trust = speeddial::tls::TlsConfig::new().add_roots([authority.root()]).only_added_roots();
        let client =
            Client::builder().dns_resolver(names).tls(trust).no_proxy().observer(seen.clone()).build().unwrap();
        let port = server.address().port();
        get(&client, &format!("https://a.test:{port}/")).await.unwrap();
        assert!(get(&client, &format!("https://other.test:{port}/")).await.is_err());
    }
}

/// The table in the documentation has a row for each hook of three other clients, and each event that it names was observed.
#[test]
fn every_hook_of_other_clients_has_an_event_and_every_event_is_emitted() {
    let runtime =
        |paused| tokio::runtime::Builder::new_current_thread().enable_all().start_paused(paused).build().unwrap();
    let seen = Seen::default();
    runtime(true).block_on(in_memory(&seen));
    runtime(false).block_on(on_sockets(&seen));
    let seen = seen.0.lock().unwrap().clone();

    let table = include_str!("../../src/trace/hooks.md");
    let mut rows = [0; 4];
    for section in table.split("\n## ").enumerate() {
        let (number, text) = section;
        for row in text.lines().filter(|line| line.starts_with("| `")) {
            rows[number] += 1;
            let answer = row.split('|').nth(2).unwrap().trim();
            let named = answer
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|word| word.chars().all(char::is_alphanumeric) && word.starts_with(char::is_uppercase));
            let events: Vec<_> = named.collect();
            assert!(!events.is_empty() || answer.starts_with("none: ") || answer.contains("Observer::ended"), "{row}");
            for event in events.into_iter().filter(|event| cfg!(feature = "__tls") || !event.starts_with("Tls")) {
                assert!(seen.contains(event), "{event} was not observed: {row}\n{seen:?}");
            }
        }
    }
    assert_eq!(rows, [0, 16, 33, 16]);
    let others = ["HandshakeStart", "DialPostponed", "UnixStart", "ProxyEnd", "Retired", "Closed", "DnsCancelled"];
    for event in others.into_iter().chain(["BackoffStart", "BackoffEnd"]) {
        assert!(seen.contains(event), "{event} was not observed: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_of_one_call_receives_its_events_and_those_of_its_dial() {
    let all = Recorder::default();
    let own = Recorder::default();
    let net = NetByPath::default();
    let client = builder(&net).observer(all.clone()).build().unwrap();
    get(&client, "http://b.test/ok").await.unwrap();
    let before = all.timeline().len();
    let response = client.get("http://a.test/ok").observer(own.clone()).send().await.unwrap();
    response.bytes().await.unwrap();
    let events = |recorder: &Recorder| {
        recorder.timeline().iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let mut received = events(&own);
    let mut expected = events(&all).split_off(before);
    assert_eq!(received.first().unwrap(), "call 2 CallStart");
    assert_eq!(received.last().unwrap(), "dial Released");
    received.sort();
    expected.sort();
    assert_eq!(received, expected, "the same events, in another order");
    // A warm call has no dial.
    let own = Recorder::default();
    client.get("http://a.test/ok").observer(own.clone()).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(own.count(|event| matches!(event, Event::DialStart { .. })), 0);
    assert_eq!(own.count(|event| matches!(event, Event::Leased { requests: 1, .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_observer_does_not_keep_events_from_the_others() {
    struct Panics;
    impl Observer for Panics {
        fn observe(&self, record: &Record) {
            assert!(matches!(record.subject, Subject::Call(0)), "a bug in an observer");
        }
        fn ended(&self, _: &EndedCall<'_>) {
            panic!("another bug in an observer");
        }
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let recorder = Recorder::default();
    let net = NetByPath::default();
    let ended = Arc::new(Checks::default());
    let client = builder(&net).observer(Panics).observer(recorder.clone()).observer(ended.clone()).build().unwrap();
    let request = client.get("http://a.test/ok").observer(Panics);
    let answer = async { request.send().await?.bytes().await }.await;
    std::panic::set_hook(hook);
    assert_eq!(answer.unwrap(), "hello");
    assert_eq!(recorder.count(|event| matches!(event, Event::BodyEnd { bytes: 5, .. })), 1);
    assert_eq!(ended.ended.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_queued_call_reports_its_position_its_limit_and_its_wait() {
    let recorder = Recorder::default();
    let net = NetByPath::default();
    let client =
        builder(&net).observer(recorder.clone()).pool(PoolConfig::new().max_connections_per_host(1)).build().unwrap();
    let calls = futures_util::future::join_all((0..4).map(|_| get(&client, "http://a.test/slow"))).await;
    let places = recorder.pick(|event| match event {
        Event::Queued { position, .. } => Some(*position),
        _ => None,
    });
    let waits = recorder.pick(|event| match event {
        Event::Leased { waited, .. } => Some(waited.as_millis()),
        _ => None,
    });
    assert_eq!((places, waits), (vec![0, 1, 2, 3], vec![10, 70, 130, 190]));
    let last = calls[3].as_ref().unwrap();
    assert_eq!(last.queued_by(), Some(speeddial::trace::Limit::ConnectionsPerHost));
    assert_eq!(last.queue(), Duration::from_millis(190));
}

#[tokio::test(start_paused = true)]
async fn a_call_reports_that_it_got_a_connection_that_another_call_had_freed() {
    let net = NetByPath::default();
    let client = builder(&net).build().unwrap();
    get(&client, "http://a.test/ok").await.unwrap();
    // A new connection takes 10 ms, and so does the call that holds the idle one, which started a little earlier.
    let (first, second) = tokio::join!(get(&client, "http://a.test/ok"), async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        get(&client, "http://a.test/ok").await
    });
    let first = first.unwrap();
    let second = second.unwrap();
    assert!(first.reused() && !first.freed());
    assert!(second.reused() && second.freed() && second.dialled().is_empty(), "{second:?}");
    assert_eq!(second.queue(), Duration::from_millis(5));
}

/// Uses the real clock, which advances between any two readings.
#[tokio::test]
async fn events_arrive_in_the_order_of_their_times() {
    let net = NetByPath::default();
    let recorder = Recorder::default();
    let client = builder(&net).observer(recorder.clone()).timeout(Duration::from_secs(60)).build().unwrap();
    for url in ["http://a.test/ok", "http://c.test/ok", "http://a.test/away", "http://a.test/stale"] {
        get(&client, url).await.unwrap();
    }
    assert!(recorder.is_in_order(), "{:#?}", recorder.timeline());
    let names = recorder.pick(|event| match event {
        Event::Released { .. } => Some("released"),
        Event::Repeated { .. } => Some("retried"),
        Event::Leased { .. } => Some("leased"),
        _ => None,
    });
    let retried = names.iter().position(|name| *name == "retried").unwrap();
    assert_eq!(names[retried - 1..=retried + 1], ["released", "retried", "leased"], "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn redirects_and_retries_are_hops_of_one_call() {
    let net = NetByPath::default();
    let client = builder(&net).build().unwrap();
    let timings = get(&client, "http://a.test/away").await.unwrap();
    assert_sum(&timings);
    let [first] = timings.hops() else { panic!("{timings:?}") };
    assert_eq!((first.end, first.elapsed.as_millis()), (HopEnd::Redirected(307.try_into().unwrap()), 10));
    assert_eq!(timings.time_redirect(), Duration::from_millis(10));
    assert_eq!(timings.connect(), Duration::from_millis(20));
    assert_eq!((timings.wait().as_millis(), timings.receive().as_millis()), (50, 10));
    assert_eq!(timings.remote_addr().unwrap().ip(), v4(2));
    let timings = get(&client, "http://a.test/stale").await.unwrap();
    assert_eq!(timings.hops()[0].end, HopEnd::Repeated(RepeatCause::Closed));
    assert!(timings.hops()[0].reused && !timings.reused());
    assert_sum(&timings);
}

#[tokio::test(start_paused = true)]
async fn a_redirected_call_has_a_queue_timeout_of_its_own_and_ends_while_the_pool_is_drained() {
    let recorder = Recorder::default();
    let net = NetByPath::default();
    let pool = PoolConfig::new().max_connections_per_host(1).wait_timeout(Duration::from_millis(80));
    let client = builder(&net).observer(recorder.clone()).pool(pool).build().unwrap();
    // The first call is redirected after 60 ms and then waits for the second one, which takes 60 ms.
    let (first, second) = tokio::join!(get(&client, "http://a.test/later"), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        get(&client, "http://a.test/slow").await
    });
    let first = first.unwrap();
    let second = second.unwrap();
    assert_sum(&first);
    assert_eq!((first.queue().as_millis(), second.queue().as_millis()), (60, 40));
    let figures = [first.time_redirect(), first.time_queue(), first.time_pretransfer(), first.total()];
    assert_eq!(figures.map(|figure| figure.as_millis()), [60, 120, 120, 130]);
    let call = recorder.timeline();
    let place = |what: &str| call.iter().rposition(|line| line.ends_with(what)).unwrap();
    assert!(place("call 1 Redirected") < place("call 1 Leased"), "{call:?}");
    // A call under way is served to its end, with its redirects.
    let (under_way, ()) = tokio::join!(get(&client, "http://b.test/away"), async {
        tokio::task::yield_now().await;
        client.drain().await;
    });
    assert!(under_way.is_ok(), "{under_way:?}");
}

/// An observer that checks the sums of each call when it ends.
#[derive(Default)]
struct Checks {
    ended: AtomicUsize,
    /// The number of calls with: an earlier hop, a wait in the queue, a dial, a failure, a cancellation, a reused connection, a freed one.
    kinds: [AtomicUsize; 7],
    wrong: Mutex<Vec<String>>,
}

impl Observer for Checks {
    fn ended(&self, call: &EndedCall<'_>) {
        self.ended.fetch_add(1, Ordering::SeqCst);
        let timings = call.timings;
        let sum: Duration = Phase::ALL.iter().map(|phase| timings.spent(*phase)).sum();
        let hops = timings
            .hops()
            .iter()
            .all(|hop| Phase::ALL.iter().map(|phase| hop.spent(*phase)).sum::<Duration>() == hop.elapsed);
        if sum != timings.total() || !hops || !timings.is_complete() {
            self.wrong.lock().unwrap().push(format!("{timings:?}"));
        }
        let kinds = [
            !timings.hops().is_empty(),
            !timings.queue().is_zero(),
            !timings.dialled().is_empty(),
            timings.failure().is_some(),
            timings.failure() == Some("cancelled"),
            timings.reused(),
            timings.freed(),
        ];
        for (kind, seen) in kinds.into_iter().zip(&self.kinds) {
            seen.fetch_add(usize::from(kind), Ordering::SeqCst);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_phases_add_up_exactly_in_10_000_random_calls() {
    const CALLS: usize = 10_000;
    let checks = Arc::new(Checks::default());
    let net = NetByPath::default();
    let pool = PoolConfig::new().max_connections_per_host(6).max_connections(16).max_idle(12);
    let pool = pool.idle_timeout(Duration::from_millis(300)).wait_timeout(Duration::from_millis(400));
    let client = builder(&net).observer(checks.clone()).pool(pool).build().unwrap();
    let random = Mutex::new(fastrand::Rng::with_seed(6));
    let one = || async {
        let (host, path, dropped_after, pause, limit) = {
            let mut random = random.lock().unwrap();
            let host = *random.choice(&["a", "a", "a", "b", "b", "c", "d", "e", "f", "g"]).unwrap();
            let paths = ["ok", "ok", "slow", "slow", "to/0", "to/3", "away", "early", "stale", "die", "never"];
            let path = *random.choice(&paths).unwrap();
            let dropped_after = if random.u8(..4) == 0 { random.u64(..150) } else { 60_000 };
            (host, path, dropped_after, random.u64(..40), random.u64(1..2_000))
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let limit = Duration::from_millis(limit);
        let call = async {
            let request = client.get(format!("http://{host}.test/{path}")).timeout(limit);
            let response = request.send().await?;
            let handle = response.timings_handle();
            response.bytes().await?;
            Ok::<_, speeddial::Error>(handle.timings())
        };
        match tokio::time::timeout(Duration::from_millis(dropped_after), call).await {
            Ok(Ok(timings)) => assert_sum(&timings),
            Ok(Err(error)) => assert_sum(error.timings().unwrap()),
            Err(_) => {}
        }
    };
    let worker = || async {
        for _ in 0..CALLS / 50 {
            one().await;
        }
    };
    futures_util::future::join_all((0..50).map(|_| worker())).await;
    assert_eq!(*checks.wrong.lock().unwrap(), Vec::<String>::new());
    let kinds = checks.kinds.each_ref().map(|seen| seen.load(Ordering::SeqCst));
    assert!(kinds.iter().all(|seen| *seen > 50), "too few of a kind: {kinds:?}");
    // A call that is dropped before its first poll has no end.
    let ended = checks.ended.load(Ordering::SeqCst);
    assert!((CALLS - 200..=CALLS).contains(&ended), "{ended}");
    client.close_idle();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(net.open(), 0);
}

#[cfg(feature = "serde")]
#[tokio::test(start_paused = true)]
async fn timings_can_be_serialized() {
    let client = builder(&NetByPath::default()).build().unwrap();
    let timings = get(&client, "http://c.test/away").await.unwrap();
    let value = serde_json::to_value(&timings).unwrap();
    assert_eq!(value["total_ns"], 90_000_000_u64);
    let spent = value["spent_ns"].as_object().unwrap();
    assert_eq!((spent.len(), &spent["backoff"]), (Phase::ALL.len(), &0.into()));
    assert_eq!(spent.values().map(|nanos| nanos.as_u64().unwrap()).sum::<u64>(), 90_000_000);
    assert_eq!((&value["status"], &value["received_bytes"]), (&200.into(), &5.into()));
    assert_eq!((&value["hops"][0]["redirected"], &value["hops"][0]["elapsed_ns"]), (&307.into(), &20_000_000.into()));
    assert_eq!((&value["hops"][0]["hedged"], &value["hedges"]), (&false.into(), &serde_json::json!([])));
    assert_eq!((&value["attempts"], &value["dialled"][0]["outcome"]), (&1.into(), &"failed".into()));
    assert_eq!(value["dialled"][0]["error"], "connection refused");
    assert_eq!(value["lookups"][0]["name"], "c.test");
    assert_eq!((&value["time_redirect_ns"], &value["time_appconnect_ns"]), (&20_000_000.into(), &0.into()));
    assert_eq!((&value["complete"], &value["failure"], &value["tls"]), (&true.into(), &().into(), &().into()));
    // Here a wrong number of members would be noticed.
    let mut bytes = Vec::new();
    ciborium::into_writer(&timings, &mut bytes).unwrap();
    let read: serde_json::Value = ciborium::from_reader(&bytes[..]).unwrap();
    assert!(read.as_object().unwrap().keys().eq(value.as_object().unwrap().keys()), "{read}");
}

#[test]
fn a_dial_whose_runtime_ended_before_it_began_is_told_to_nobody() {
    let recorder = Recorder::default();
    let client = builder(&NetByPath::default()).observer(recorder.clone()).build().unwrap();
    for _ in 0..9 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let call = std::pin::pin!(client.get("http://a.test/ok").send());
            // It begins a dial in a task of its own, which the runtime has no time to poll.
            assert!(futures_util::poll!(call).is_pending());
        });
    }
    let begun = recorder.count(|event| matches!(event, Event::DialStart { .. }));
    let ended = recorder.count(|event| matches!(event, Event::DialFailed | Event::DialCancelled));
    assert_eq!((begun, ended), (0, 0), "{:?}", recorder.timeline());
}

#[tokio::test(start_paused = true)]
async fn a_dial_that_is_given_up_has_not_failed() {
    let recorder = Recorder::default();
    let client = builder(&NetByPath::default()).observer(recorder.clone()).build().unwrap();
    // It is silent.
    assert!(tokio::time::timeout(Duration::from_millis(100), get(&client, "http://g.test/ok")).await.is_err());
    drop(client);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let count = |is_it: fn(&Event) -> bool| recorder.count(is_it);
    let begun = count(|event| matches!(event, Event::DialStart { .. }));
    let cancelled = count(|event| matches!(event, Event::DialCancelled));
    let failed = count(|event| matches!(event, Event::DialFailed));
    assert_eq!((begun, cancelled, failed), (1, 1, 0), "{:?}", recorder.timeline());
}
