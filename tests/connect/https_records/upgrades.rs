//! Requests to `http` URLs of names that have HTTPS records, in paused time.

use speeddial::ErrorKind;
use speeddial::dns::HttpsRecord;
use speeddial::trace::Event;

use super::common::{Names, Peer, World, ip};

const SERVED: [(&str, Peer); 3] =
    [("192.0.2.1:443", Peer::Serves(10)), ("192.0.2.1:8443", Peer::Serves(10)), ("192.0.2.2:443", Peer::Serves(10))];

fn names() -> Names {
    Names::new().host("api.test", 20, &[ip(1)]).host("svc.test", 0, &[ip(2)])
}

fn world(names: Names) -> World {
    World::with(names, &SERVED, |builder| builder.http1_only().https_records_upgrade_http(true))
}

/// The ports that were dialled.
fn dialled(world: &World) -> Vec<String> {
    world.net.dials().iter().map(|dial| dial.rsplit(' ').next().unwrap().to_owned()).collect()
}

fn redirects(world: &World) -> Vec<String> {
    world.recorder.pick(|event| match event {
        Event::Redirected { status, to, .. } => Some(format!("{status} {} {}", to.origin, to.target)),
        _ => None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_name_with_records_is_reached_by_https() {
    let world = world(names().records("api.test", 10, &[HttpsRecord::service(1, "svc.test")]));
    let request = world.client.post("http://api.test/a?b=c").header("authorization", "secret").body("text");
    let response = request.send().await.unwrap();
    assert_eq!(response.url().as_str(), "https://api.test/a?b=c");
    assert_eq!(response.remote_addr().unwrap().to_string(), "192.0.2.2:443");
    let timings = response.timings();
    assert_eq!(timings.hops()[0].end, speeddial::trace::HopEnd::Secured);
    assert!(!format!("{timings} {timings:#} {}", timings.why()).contains("redirected"), "{timings:#}");
    assert_eq!(response.text().await.unwrap(), "HTTP/1.1 POST /a?b=c api.test");
    assert_eq!(redirects(&world), ["307 Temporary Redirect api.test:443 /a?b=c"]);
    assert_eq!(world.names.https_queries(), ["api.test"]);
    // The connection is the one of the `https` origin.
    world.get("https://api.test/").await.unwrap();
    world.get("http://api.test/").await.unwrap();
    assert_eq!(world.client.pool_stats().opened, 1);
}

#[tokio::test(start_paused = true)]
async fn a_port_other_than_80_stays() {
    let record = [HttpsRecord::service(1, ".")];
    let world = world(names().records("_8443._https.api.test", 0, &record).host("_8443._https.api.test", 0, &[ip(1)]));
    assert_eq!(world.get("http://api.test:8443/").await.unwrap(), "192.0.2.1:8443");
}

#[tokio::test(start_paused = true)]
async fn without_usable_records_it_stays_http() {
    let h3 = HttpsRecord::service(1, ".").with_alpn(["h3"]).without_default_alpn();
    for (what, names) in [
        ("absent", names()),
        ("only HTTP/3", names().records("api.test", 0, &[h3])),
        ("late", names().records("api.test", 71, &[HttpsRecord::service(1, ".")])),
    ] {
        let world = world(names);
        // There is no `http` server.
        assert_eq!(world.get("http://api.test/").await.unwrap_err().kind(), ErrorKind::Connect, "{what}");
        assert_eq!(dialled(&world), ["192.0.2.1:80"], "{what}");
        assert!(redirects(&world).is_empty(), "{what}");
    }
    // A dial to an `https` origin asks no more than it would without the setting.
    let off = World::new(names().records("api.test", 0, &[HttpsRecord::service(1, ".")]), &SERVED);
    assert!(off.get("http://api.test/").await.is_err());
    assert!(off.names.https_queries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_is_waited_for_as_long_as_by_a_dial() {
    let world = world(names().records("api.test", 500, &[]));
    let start = tokio::time::Instant::now();
    let _ = world.get("http://api.test/").await;
    assert_eq!(world.net.dials(), ["70 192.0.2.1:80"]);
    assert_eq!(start.elapsed().as_millis(), 70);
}

#[tokio::test(start_paused = true)]
async fn requests_through_proxies_and_to_addresses_stay_http() {
    let names = || names().records("api.test", 0, &[HttpsRecord::service(1, ".")]);
    let world = World::with(names(), &SERVED, |builder| {
        builder.https_records_upgrade_http(true).proxy(speeddial::Proxy::all("http://192.0.2.7:8080").unwrap())
    });
    assert!(world.get("http://api.test/").await.is_err());
    assert_eq!(dialled(&world), ["192.0.2.7:8080"]);
    assert!(world.names.https_queries().is_empty());
    let world = self::world(names());
    assert!(world.get("http://192.0.2.1/").await.is_err());
    assert!(world.names.https_queries().is_empty());
}

#[test]
fn settings_without_effect_are_refused() {
    let refused = |builder: speeddial::ClientBuilder| builder.build().unwrap_err().to_string();
    let builder = speeddial::Client::builder;
    assert!(refused(builder().https_records_upgrade_http(true)).contains("without https_records"));
    assert!(refused(builder().https_records(true).hickory_dns(false)).contains("beside hickory_dns(false)"));
    #[cfg(unix)]
    assert!(refused(builder().https_records(true).unix_socket("/x")).contains("https_records has no effect"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_upgraded_has_the_token_of_its_origin() {
    use std::convert::Infallible;

    use speeddial::token::{Token, TokenSource};

    for (named, expected) in [
        (None, true),
        (Some("https://api.test"), true),
        (Some("http://api.test"), true),
        (Some("https://svc.test"), false),
    ] {
        let sent = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = sent.clone();
        let source = TokenSource::new(|| async { Ok::<_, Infallible>(Token::new("x")) });
        let source = match named {
            Some(url) => source.for_origin(url).unwrap(),
            None => source,
        };
        let names = names().records("api.test", 0, &[HttpsRecord::service(1, ".")]);
        let world = World::with(names, &SERVED, |builder| {
            let builder = builder.http1_only().https_records_upgrade_http(true).token_source(source);
            builder.before_attempt(move |head| {
                noted.lock().unwrap().push(head.headers().contains_key("authorization"));
                Ok::<_, Infallible>(())
            })
        });
        world.get("http://api.test/").await.unwrap();
        assert_eq!(*sent.lock().unwrap(), [expected], "{named:?}");
    }
}
