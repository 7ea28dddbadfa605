//! A 421 on a shared connection, and on one of the origin's own.

use super::*;

#[tokio::test]
async fn a_misdirected_request_is_sent_again_on_a_connection_of_its_own() {
    let authority = Authority::new();
    let manner = Manner { misdirected: Some(("b.test", 1)), ..Manner::default() };
    let server = Server::new(manner);
    let port = server.listen(&authority, &["a.test", "b.test"], &[HERE]).await;
    let recorder = Recorder::default();
    let builder = builder(&authority, &two_names()).observer(recorder.clone());
    #[cfg(feature = "cookies")]
    let builder = builder.cookie_store(true);
    let client = builder.build().unwrap();
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    let post = client.post(format!("https://b.test:{port}/")).body("content").send().await.unwrap();
    assert_eq!((post.status().as_u16(), post.timings().opened_for()), (200, None));
    let causes = recorder.pick(|event| match event {
        Event::Repeated { cause, .. } => Some(*cause),
        _ => None,
    });
    assert_eq!(causes, [RepeatCause::Misdirected]);
    assert_eq!(post.timings().hops().len(), 1);
    let expected =
        [(0, "GET a.test".to_owned()), (0, "POST b.test content".to_owned()), (1, "POST b.test content".to_owned())];
    assert_eq!(server.seen(), expected);
    // Not even when its own connection is gone.
    drop(post);
    client.close_idle();
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    let shared = got(&client, "b.test", port).await;
    assert_eq!((shared, server.connections()), ((200, Some(format!("a.test:{port}"))), 3), "a new one of a.test");
}

#[tokio::test]
async fn a_connection_on_which_an_origin_was_misdirected_is_not_used_for_it_again() {
    let authority = Authority::new();
    let server = Server::new(Manner { misdirected: Some(("b.test", usize::MAX)), ..Manner::default() });
    let port = server.listen(&authority, &["a.test", "b.test", "c.test"], &[HERE]).await;
    let client = builder(&authority, &two_names()).build().unwrap();
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    assert_eq!(got(&client, "b.test", port).await, (421, None), "on its own connection it is the answer");
    assert_eq!(got(&client, "b.test", port).await, (421, None));
    let expected = [(0, "GET a.test"), (0, "GET b.test"), (1, "GET b.test"), (1, "GET b.test")];
    assert_eq!(server.seen(), expected.map(|(number, line)| (number, line.to_owned())));
    assert_eq!(got(&client, "c.test", port).await.1, Some(format!("b.test:{port}")), "others still share");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_misdirected_stream_is_not_sent_again() {
    let authority = Authority::new();
    let server = Server::new(Manner { misdirected: Some(("b.test", 1)), ..Manner::default() });
    let port = server.listen(&authority, &["a.test", "b.test"], &[HERE]).await;
    let client = builder(&authority, &two_names()).build().unwrap();
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    let stream = || Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("piece")]));
    let url = format!("https://b.test:{port}/");
    let response = client.post(&url).body(stream()).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.timings().hops().len()), (421, 0));
    response.bytes().await.unwrap();
    let response = client.post(&url).body(stream()).send().await.unwrap();
    assert_eq!((response.status().as_u16(), server.connections()), (200, 2), "but it is remembered");
}

#[cfg(feature = "tower")]
#[tokio::test(start_paused = true)]
async fn a_misdirected_request_is_sent_again_within_layers_too() {
    let authority = Authority::new();
    let server = Server::new(Manner { misdirected: Some(("b.test", 1)), ..Manner::default() });
    let net = net_of(&server, &authority, &["a.test", "b.test"]);
    let layered = builder(&authority, &two_names()).attempt_layer(tower::layer::util::Identity::new());
    let client = layered.transport(net.clone()).build().unwrap();
    assert_eq!(got(&client, "a.test", 443).await, (200, None));
    let response = client.put("https://b.test/").body("content").send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.timings().hops().len(), net.connections()), (200, 1, 2));
    response.bytes().await.unwrap();
    assert_eq!(got(&client, "b.test", 443).await, (200, None));
}
