//! The conditions under which a connection is shared.

use super::*;

#[tokio::test]
async fn an_origin_with_the_same_certificate_and_address_shares_an_open_connection() {
    let authority = Authority::new();
    let server = Server::new(Manner::default());
    let port = server.listen(&authority, &["a.test", "b.test"], &[HERE]).await;
    let names = two_names();
    let recorder = Recorder::default();
    let client = builder(&authority, &names).observer(recorder.clone()).build().unwrap();
    let first = get(&client, "a.test", port).await;
    let connection = first.timings().connection();
    assert_eq!((first.timings().opened_for(), first.text().await.unwrap()), (None, "a.test".to_owned()));
    let response = get(&client, "b.test", port).await;
    assert_eq!(response.url().host_str(), Some("b.test"));
    let timings = response.timings();
    assert!(timings.reused() && timings.connection() == connection && timings.remote_addr().unwrap().port() == port);
    assert_eq!(timings.lookups().len(), 1, "the addresses of b.test were waited for: {timings:#}");
    let a = format!("a.test:{port}");
    let line = timings.to_string();
    assert!(line.contains("reused 127.0.0.1") && line.ends_with(&format!(", opened for {a}")), "{line}");
    let waterfall = format!("{timings:#}");
    assert!(waterfall.contains(&format!("connection of {a}")), "{waterfall}");
    assert_eq!(response.text().await.unwrap(), "b.test", "the name in the request is its own");
    assert_eq!(got(&client, "b.test", port).await, (200, Some(a.clone())));
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    assert_eq!(server.connections(), 1);
    let leased = recorder.pick(|event| match event {
        Event::Leased { opened_for, .. } => Some(opened_for.as_ref().map(ToString::to_string)),
        _ => None,
    });
    assert_eq!(leased, [None, Some(a.clone()), Some(a), None]);
    assert!(recorder.is_in_order());
    let hosts = client.host_stats();
    assert_eq!(hosts.len(), 1, "all streams count for the connection's own origin");
}

#[tokio::test]
async fn without_the_setting_each_origin_has_a_connection_of_its_own() {
    let authority = Authority::new();
    let server = Server::new(Manner::default());
    let port = server.listen(&authority, &["a.test", "b.test"], &[HERE]).await;
    let client = builder(&authority, &two_names()).http2_coalesce_origins(false).build().unwrap();
    for host in ["a.test", "b.test", "b.test"] {
        assert_eq!(got(&client, host, port).await, (200, None));
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn names_with_a_star_cover_one_label() {
    let authority = Authority::new();
    let server = Server::new(Manner::default());
    let port = server.listen(&authority, &["*.w.test"], &[HERE]).await;
    let names = Names::new(&[("x.w.test", HERE), ("y.w.test", HERE)]);
    let client = builder(&authority, &names).build().unwrap();
    assert_eq!(got(&client, "x.w.test", port).await, (200, None));
    assert_eq!(got(&client, "y.w.test", port).await, (200, Some(format!("x.w.test:{port}"))));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_origin_at_another_address_or_port_or_outside_of_the_certificate_has_its_own_connection() {
    let authority = Authority::new();
    let server = Server::new(Manner::default());
    let port = server.listen(&authority, &["a.test", "b.test"], &[HERE, BESIDE]).await;
    let names = two_names();
    names.set("b.test", &[BESIDE]);
    let client = builder(&authority, &names).build().unwrap();
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    assert_eq!(got(&client, "b.test", port).await, (200, None));
    assert_eq!(server.connections(), 2);

    let other_port = server.listen(&authority, &["a.test", "b.test"], &[BESIDE]).await;
    assert_ne!(other_port, port);
    assert_eq!(got(&client, "b.test", other_port).await, (200, None));
    assert_eq!(server.connections(), 3);

    // The server has one certificate, which c.test is not in.
    let error = client.get(format!("https://c.test:{port}/")).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls);
    assert_eq!(server.connections(), 4, "it was dialled");
}

#[tokio::test]
async fn without_verification_by_name_no_connection_is_shared() {
    let authority = Authority::new();
    let server = Server::new(Manner::default());
    let port = server.listen(&authority, &["a.test", "b.test"], &[HERE]).await;
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = authority.sign_pem(rcgen::CertificateParams::new(["me".to_owned()]).unwrap(), &key);
    let identity = Identity::from_pem(format!("{certificate}{}", key.serialize_pem()).as_bytes()).unwrap();
    let mut whole = authority.client();
    whole.alpn_protocols = vec![b"h2".to_vec()];
    let configs: [TlsConfig; 5] = [
        TlsConfig::new().danger_accept_invalid_certs(true),
        trusting(&authority).danger_accept_invalid_hostnames(true),
        trusting(&authority).identity(identity),
        trusting(&authority).server_name("a.test").unwrap(),
        whole.into(),
    ];
    let names = two_names();
    for (index, tls) in configs.into_iter().enumerate() {
        let client = builder(&authority, &names).tls(tls).build().unwrap();
        assert_eq!(got(&client, "a.test", port).await, (200, None));
        assert_eq!(got(&client, "b.test", port).await, (200, None));
        assert_eq!(server.connections(), 2 * (index + 1), "{index}");
    }
    let client = builder(&authority, &names).addresses(speeddial::Addresses::Spread).build().unwrap();
    assert_eq!((got(&client, "a.test", port).await, got(&client, "b.test", port).await), ((200, None), (200, None)));
    assert_eq!(server.connections(), 12);
}

#[tokio::test]
async fn a_request_through_a_proxy_and_one_with_its_own_choice_do_not_share() {
    let authority = Authority::new();
    let server = Server::new(Manner::default());
    let port = server.listen(&authority, &["a.test", "b.test"], &[HERE]).await;
    let client = builder(&authority, &two_names()).build().unwrap();
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    let url = format!("https://b.test:{port}/");
    assert!(client.get(&url).no_proxy().send().await.unwrap().status().is_success());
    assert_eq!(server.connections(), 2, "a choice of a proxy is a part of the key");
    let refusing = format!("http://127.0.0.1:{}", support::free_port());
    let proxy = speeddial::Proxy::all(refusing).unwrap();
    assert!(client.get(&url).proxy(proxy).send().await.is_err());
    // No proxy is used for a.test, and one for b.test.
    let proxy = speeddial::Proxy::all(format!("http://127.0.0.1:{}", support::free_port())).unwrap();
    let proxy = proxy.no_proxy(speeddial::NoProxy::from_string("a.test"));
    let client = builder(&authority, &two_names()).proxy(proxy).build().unwrap();
    assert_eq!(got(&client, "a.test", port).await, (200, None));
    assert_eq!(client.get(&url).send().await.unwrap_err().kind(), ErrorKind::Connect);
    assert_eq!(server.connections(), 3);
}
