//! Many requests, limits, drains, and connections that end.

use super::*;
use crate::client::calls::block_on;

#[tokio::test]
async fn a_full_connection_is_not_shared() {
    let authority = Authority::new();
    let gate = Arc::new(Notify::new());
    let server = Server::new(Manner { max_streams: 1, gate: Some(gate.clone()), ..Manner::default() });
    let port = server.listen(&authority, &["a.test", "b.test"], &[HERE]).await;
    let client = builder(&authority, &two_names()).build().unwrap();
    gate.notify_one();
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    let busy = tokio::spawn({
        let client = client.clone();
        async move { got(&client, "a.test", port).await }
    });
    while server.seen().len() < 2 {
        tokio::task::yield_now().await;
    }
    let own = got(&client, "b.test", port);
    let open = async {
        while server.seen().len() < 3 {
            tokio::task::yield_now().await;
        }
        gate.notify_waiters();
    };
    assert_eq!(tokio::join!(own, open).0, (200, None));
    assert_eq!(busy.await.unwrap(), (200, None));
    assert_eq!(server.connections(), 2);
    // From now on it has a connection of its own.
    gate.notify_one();
    assert_eq!((got(&client, "b.test", port).await, server.connections()), ((200, None), 2));
}

#[tokio::test]
async fn a_thousand_requests_to_two_origins_are_all_answered() {
    let authority = Authority::new();
    for (max_streams, most) in [(1, 8), (100, 8), (1_000, 2)] {
        let server = Server::new(Manner { max_streams, ..Manner::default() });
        let port = server.listen(&authority, &["a.test", "b.test"], &[HERE]).await;
        let client = builder(&authority, &two_names()).build().unwrap();
        assert_eq!(got(&client, "a.test", port).await, (200, None));
        let hosts = ["a.test", "b.test"];
        let calls = (0..1_000).map(|number| {
            let client = client.clone();
            tokio::spawn(async move { got(&client, hosts[number % 2], port).await })
        });
        for call in join_all(calls).await {
            assert_eq!(call.unwrap().0, 200);
        }
        assert_eq!(server.seen().len(), 1_001);
        assert!(server.connections() <= most, "{} with {max_streams} streams", server.connections());
        support::settled(&client).await;
        tokio::time::timeout(Duration::from_secs(5), client.drain()).await.expect("no stream is left behind");
    }
}

#[tokio::test]
async fn a_drain_waits_for_the_shared_connection_and_lets_no_new_request_on_it() {
    let authority = Authority::new();
    let gate = Arc::new(Notify::new());
    let server = Server::new(Manner { gate: Some(gate.clone()), ..Manner::default() });
    let port = server.listen(&authority, &["a.test", "b.test"], &[HERE]).await;
    let client = builder(&authority, &two_names()).build().unwrap();
    gate.notify_one();
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    let shared = tokio::spawn({
        let client = client.clone();
        async move { got(&client, "b.test", port).await }
    });
    while server.seen().len() < 2 {
        tokio::task::yield_now().await;
    }
    let mut drain = std::pin::pin!(client.drain());
    assert!(futures_util::poll!(&mut drain).is_pending());
    let refused = client.get(format!("https://b.test:{port}/")).send().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Pool, "{refused}");
    gate.notify_one();
    assert_eq!(shared.await.unwrap(), (200, Some(format!("a.test:{port}"))));
    drain.await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_redirect_to_another_origin_stays_on_the_connection() {
    let authority = Authority::new();
    let server = Server::new(Manner { redirects: Some(("a.test", "https://b.test/")), ..Manner::default() });
    let net = net_of(&server, &authority, &["a.test", "b.test"]);
    let client = builder(&authority, &two_names()).transport(net.clone()).build().unwrap();
    let response = client.get("https://a.test/").send().await.unwrap();
    assert_eq!(response.timings().opened_for().map(ToString::to_string), Some("a.test:443".to_owned()));
    assert_eq!((response.text().await.unwrap(), net.connections()), ("b.test".to_owned(), 1));
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_of_a_hedge_has_a_connection_of_its_own() {
    let authority = Authority::new();
    let server = Server::new(Manner { stuck: 1, ..Manner::default() });
    let net = net_of(&server, &authority, &["a.test", "b.test"]);
    let hedging = speeddial::HedgePolicy::new().min_samples(1).floor(Duration::from_millis(50)).budget(1.0);
    let client = builder(&authority, &two_names()).transport(net.clone()).hedge(hedging).build().unwrap();
    assert_eq!(got(&client, "a.test", 443).await, (200, None));
    for _ in 0..20 {
        assert_eq!(got(&client, "b.test", 443).await.1, Some("a.test:443".to_owned()));
    }
    let response = client.get("https://b.test/late").send().await.unwrap();
    let timings = response.timings();
    assert_eq!((response.status().as_u16(), timings.opened_for(), timings.hedges().len()), (200, None, 1));
    assert_eq!(net.connections(), 2);
}

#[test]
fn a_shared_connection_of_a_runtime_that_ended_is_left() {
    let authority = Authority::new();
    let server = Server::default();
    let servers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let port = servers.block_on(server.listen(&authority, &["a.test", "b.test"], &[HERE]));
    let client = builder(&authority, &two_names()).build().unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    assert_eq!(first.block_on(got(&client, "a.test", port)), (200, None));
    assert_eq!(first.block_on(got(&client, "b.test", port)).1, Some(format!("a.test:{port}")));
    drop(first);
    assert_eq!(runtime().block_on(got(&client, "b.test", port)), (200, None));
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_a_shared_connection_refuses_goes_to_one_of_its_own() {
    use support::h2_peer::{H2Peer, HEADERS, NO_ERROR};
    let authority = Authority::new();
    let acceptor = TlsAcceptor::from(authority.server(&["a.test", "b.test"], &["h2"]));
    let net = ScriptedNet::new(move |number, stream| {
        let acceptor = acceptor.clone();
        async move {
            // The peer speaks over a pipe, whose other end is behind TLS.
            let mut secured = acceptor.accept(stream).await.unwrap();
            let (near, mut far) = tokio::io::duplex(1 << 16);
            let script = async move {
                let mut peer = H2Peer::accept(near, Some(10)).await.unwrap();
                let mut answered = 0;
                while let Ok(frame) = peer.next().await {
                    if frame.kind != HEADERS {
                        continue;
                    }
                    answered += 1;
                    if number == 0 && answered == 2 {
                        // The request to b.test is not among those that were processed.
                        peer.goaway(frame.stream - 2, NO_ERROR).await.unwrap();
                    } else {
                        peer.answer(frame.stream).await.unwrap();
                    }
                }
            };
            let piped = tokio::io::copy_bidirectional(&mut secured, &mut far);
            let _ = tokio::join!(script, piped);
        }
    });
    let recorder = Recorder::default();
    let client = builder(&authority, &two_names()).transport(net.clone()).observer(recorder.clone()).build().unwrap();
    assert_eq!(got(&client, "a.test", 443).await, (200, None));
    let post = client.post("https://b.test/").body("content").send().await.unwrap();
    assert_eq!((post.status().as_u16(), post.timings().opened_for()), (200, None));
    let refused = |event: &Event| matches!(event, Event::Repeated { cause: RepeatCause::Refused, .. });
    assert_eq!((recorder.count(refused), net.connections()), (1, 2));
    drop(post);
    assert_eq!(got(&client, "a.test", 443).await.1, Some("b.test:443".to_owned()), "now it is the other way round");
    assert_eq!(net.connections(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_is_made_twice_where_connections_end_all_the_time() {
    let authority = Authority::new();
    let server = Server::new(Manner { max_streams: 20, goaway_after: Some(7), ..Manner::default() });
    let port = server.listen(&authority, &["a.test", "b.test", "c.test"], &[HERE]).await;
    let recorder = Recorder::default();
    let client = builder(&authority, &two_names()).observer(recorder.clone()).build().unwrap();
    let hosts = ["a.test", "b.test", "c.test"];
    let mut tasks = Vec::new();
    for task in 0..30 {
        let client = client.clone();
        tasks.push(tokio::spawn(async move {
            let mut answered = 0;
            for turn in 0..40 {
                let number = task * 100 + turn;
                let url = format!("https://{}:{port}/", hosts[number % 3]);
                let response = client.post(url).body(number.to_string()).send().await.unwrap();
                assert_eq!(response.text().await.unwrap(), hosts[number % 3]);
                answered += 1;
            }
            answered
        }));
    }
    let mut answered = 0;
    for task in tasks {
        answered += task.await.unwrap();
    }
    assert_eq!(answered, 1_200);
    let mut seen: Vec<_> = server.seen().into_iter().map(|(_, line)| line).collect();
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert!(seen.len() == count && count >= answered, "{count} requests, {} different", seen.len());
    let shared = recorder.count(|event| matches!(event, Event::Leased { opened_for: Some(_), .. }));
    assert!(shared > 100, "{shared}");
    tokio::time::timeout(Duration::from_secs(5), client.drain()).await.expect("nothing is left behind");
}

#[test]
fn without_a_runtime_a_name_in_the_cache_shares_and_another_one_fails_clearly() {
    let authority = Authority::new();
    let server = Server::default();
    let servers = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let port = servers.block_on(server.listen(&authority, &["a.test", "b.test", "c.test"], &[HERE]));
    let client = builder(&authority, &two_names()).build().unwrap();
    let a = Some(format!("a.test:{port}"));
    assert_eq!(servers.block_on(got(&client, "a.test", port)), (200, None));
    assert_eq!(servers.block_on(got(&client, "b.test", port)).1, a);
    assert_eq!(block_on(got(&client, "b.test", port)).1, a);
    let error = block_on(client.get(format!("https://c.test:{port}/")).send()).unwrap_err();
    assert!(error.to_string().contains("runtime"), "{error}");
}
