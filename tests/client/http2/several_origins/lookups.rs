//! Addresses of the second origin: from DNS, its cache, and the user.

use super::*;

#[tokio::test]
async fn addresses_that_were_set_count_as_answers() {
    let authority = Authority::new();
    let server = Server::new(Manner::default());
    let port = server.listen(&authority, &["a.test", "b.test", "c.test"], &[HERE, BESIDE]).await;
    let names = Names::new(&[("a.test", HERE)]);
    let builder = builder(&authority, &names).resolve("b.test", (HERE, 0).into()).resolve("c.test", (BESIDE, 0).into());
    let client = builder.build().unwrap();
    for host in ["a.test", "b.test", "c.test"] {
        got(&client, host, port).await;
    }
    assert_eq!(got(&client, "b.test", port).await.1, Some(format!("a.test:{port}")));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_name_that_moves_leaves_the_shared_connection() {
    let authority = Authority::new();
    let server = Server::new(Manner::default());
    let port = server.listen(&authority, &["a.test", "b.test"], &[HERE, BESIDE]).await;
    let names = two_names();
    let cache = CachedResolver::new(names.clone());
    let client = builder(&authority, &names).dns_cache(cache.clone()).build().unwrap();
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    assert_eq!(got(&client, "b.test", port).await.1, Some(format!("a.test:{port}")));
    names.set("b.test", &[BESIDE]);
    assert_eq!(got(&client, "b.test", port).await.1, Some(format!("a.test:{port}")), "as long as its answer is fresh");
    cache.invalidate("b.test");
    assert_eq!(got(&client, "b.test", port).await, (200, None));
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_looks_a_name_up_leaves_nothing_behind() {
    let authority = Authority::new();
    let net = net_of(&Server::default(), &authority, &["a.test", "b.test"]);
    let names = Names { delay: Duration::from_millis(20), ..two_names() };
    let recorder = Recorder::default();
    let client = builder(&authority, &names).transport(net.clone()).observer(recorder.clone()).build().unwrap();
    assert_eq!(got(&client, "a.test", 443).await, (200, None));
    let cancelled = tokio::time::timeout(Duration::from_millis(1), got(&client, "b.test", 443)).await;
    assert!(cancelled.is_err());
    assert_eq!(recorder.count(|event| matches!(event, Event::DnsCancelled { family: Family::V4, .. })), 1);
    let error = client.get("https://b.test/").connect_timeout(Duration::from_millis(1)).send().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(error.to_string().contains("no connection"), "{error}");
    assert_eq!(got(&client, "b.test", 443).await.1, Some("a.test:443".to_owned()));
    tokio::time::timeout(Duration::from_secs(5), client.drain()).await.expect("no hold is left behind");
    assert_eq!(net.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_family_is_not_waited_for_longer_than_a_dial_would() {
    let authority = Authority::new();
    let net = net_of(&Server::default(), &authority, &["a.test", "b.test"]);
    let names = Names { delay: Duration::from_secs(3), v6: Some("2001:db8::9".parse().unwrap()), ..two_names() };
    let cache = CachedResolver::new(names.clone());
    cache.pin("a.test", [HERE]);
    let client = builder(&authority, &names).dns_cache(cache).transport(net.clone()).build().unwrap();
    assert_eq!(got(&client, "a.test", 443).await, (200, None));
    let start = tokio::time::Instant::now();
    assert_eq!(got(&client, "b.test", 443).await, (200, None));
    assert!(start.elapsed() < Duration::from_millis(200), "{:?}", start.elapsed());
    assert_eq!(net.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_address_is_checked_again_when_the_answer_of_dns_has_expired() {
    let authority = Authority::new();
    let net = net_of(&Server::default(), &authority, &["a.test", "b.test"]);
    let names = two_names();
    let pool = PoolConfig::new().idle_timeout(Duration::from_secs(3_600));
    let client = builder(&authority, &names).transport(net.clone()).pool(pool).build().unwrap();
    let a = Some("a.test:443".to_owned());
    assert_eq!(got(&client, "a.test", 443).await, (200, None));
    for _ in 0..100 {
        assert_eq!(got(&client, "b.test", 443).await.1, a);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let queries = names.queries.load(Ordering::SeqCst);
    assert!((18..=60).contains(&queries), "{queries} queries in ten times the TTL, for two families and two names");
    names.set("b.test", &[BESIDE]);
    let mut left_after = 0;
    while got(&client, "b.test", 443).await.1 == a {
        tokio::time::sleep(Duration::from_secs(1)).await;
        left_after += 1;
    }
    assert!(left_after <= 11, "{left_after} s, more than the TTL");
    assert_eq!(net.connections(), 2);
}
