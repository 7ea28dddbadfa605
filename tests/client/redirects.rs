//! Redirects: which headers and bodies are sent again, for every combination of status, method and origin; and hostile locations.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::http::{HeaderMap, HeaderValue, Method};
use speeddial::{Body, Client, ClientBuilder, ErrorKind, PoolConfig, redirect};

use support::full;
use support::http_server::HttpServer;

/// A request, as the server received it.
#[derive(Debug, Clone)]
struct Seen {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: String,
}

/// Servers that redirect as the query says (`/?status=307&to=URL`) and record their requests.
struct Servers {
    servers: Vec<HttpServer>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Servers {
    fn start(count: usize) -> Self {
        use http_body_util::BodyExt;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let server = |_| {
            let seen: Arc<Mutex<Vec<Seen>>> = seen.clone();
            HttpServer::start(move |request: hyper::Request<hyper::body::Incoming>| {
                let seen = seen.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
                    let method = head.method;
                    let headers = head.headers;
                    let path = head.uri.path().to_owned();
                    let query = head.uri.query().unwrap_or_default().to_owned();
                    seen.lock().unwrap().push(Seen { method, path, headers, body });
                    let mut response = hyper::Response::new(full("done"));
                    if let Some((status, to)) = query.split_once('&').filter(|_| query.starts_with("status=")) {
                        *response.status_mut() = status["status=".len()..].parse().unwrap();
                        let to = to["to=".len()..].replace("%26", "&").replace("%25", "%");
                        response.headers_mut().insert("location", to.parse().unwrap());
                    }
                    response
                }
            })
            .unwrap()
        };
        Self { servers: (0..count).map(server).collect(), seen }
    }

    fn url(&self, host: &str, server: usize) -> String {
        format!("http://{host}:{}/", self.servers[server].address().port())
    }

    fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

/// Returns the first of these URLs, whose response redirects to the next one, and so on.
fn chain(status: u16, urls: &[String]) -> String {
    let [rest @ .., last] = urls else { return String::new() };
    rest.iter().rev().fold(last.clone(), |next, url| {
        format!("{url}?status={status}&to={}", next.replace('%', "%25").replace('&', "%26"))
    })
}

fn builder() -> ClientBuilder {
    let names = ["a.test", "b.test", "sub.a.test"];
    let resolver = names.iter().fold(FixedResolver::new(), |all, name| all.with(name, [[127, 0, 0, 1].into()]));
    Client::builder().dns_resolver(resolver).no_proxy()
}

const SECRETS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];

#[tokio::test]
async fn hazard_secrets_stay_with_their_origin_in_every_cell_of_the_table() {
    let servers = Servers::start(2);
    let client = builder().build().unwrap();
    // The hosts of a chain after `a.test` on the first port, and true if all of them are the same origin.
    let ways = [
        (vec![("a.test", 0)], true),
        (vec![("A.TEST", 0)], true),
        (vec![("b.test", 0)], false),
        (vec![("a.test", 1)], false),
        (vec![("sub.a.test", 0)], false),
        (vec![("b.test", 0), ("a.test", 0)], false),
        (vec![("a.test", 1), ("a.test", 0)], false),
        (vec![("a.test", 0), ("b.test", 1), ("b.test", 1), ("a.test", 0)], false),
    ];
    let mut cells = 0;
    for (way, same) in &ways {
        for status in [301, 302, 303, 307, 308] {
            for (method, body, streamed) in
                [("GET", "", false), ("POST", "payload", false), ("PUT", "payload", false), ("POST", "payload", true)]
            {
                let urls: Vec<_> =
                    std::iter::once(&("a.test", 0)).chain(way).map(|(host, at)| servers.url(host, *at)).collect();
                let method: Method = method.parse().unwrap();
                let mut request = client.request(method.clone(), chain(status, &urls)).header("x-plain", "1");
                for name in SECRETS {
                    let mut value = HeaderValue::from_static("secret");
                    value.set_sensitive(name == "x-api-key");
                    request = request.header(name, value);
                }
                if !body.is_empty() {
                    let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>(body)]);
                    let carried = if streamed { Body::sized(7, pieces) } else { body.into() };
                    request = request.body(carried).header("content-type", "text/x-test");
                }
                let cell = format!("{method} {status} {way:?}, streamed: {streamed}");
                cells += 1;
                if streamed && status > 303 {
                    let error = request.send().await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Redirect, "{cell}");
                    assert!(
                        error.to_string().ends_with("the request's body must be sent again, and was a stream"),
                        "{error}"
                    );
                    assert_eq!(servers.take().len(), 1, "{cell}");
                    continue;
                }
                let response = request.send().await.unwrap();
                assert_eq!((response.status().as_u16(), response.redirects().len()), (200, way.len()), "{cell}");
                let last = way.last().unwrap();
                let url = servers.url(&last.0.to_lowercase(), last.1);
                assert_eq!(response.url().as_str(), url, "{cell}");
                assert_eq!(response.text().await.unwrap(), "done");
                let seen = servers.take();
                assert_eq!(seen.len(), way.len() + 1, "{cell}");
                let first = &seen[0];
                let last = &seen[way.len()];
                assert!(SECRETS.iter().all(|name| first.headers.contains_key(*name)), "{cell}");
                for name in SECRETS {
                    assert_eq!(last.headers.contains_key(name), *same, "{cell}: {name}");
                }
                assert_eq!(format!("http://{}/", last.headers["host"].to_str().unwrap()), url, "{cell}");
                assert!(last.headers.contains_key("x-plain"));
                let becomes_get = status == 303 || (status < 303 && method == Method::POST);
                let expected = if becomes_get { Method::GET } else { method.clone() };
                assert_eq!(last.method, expected, "{cell}");
                let body = if becomes_get { "" } else { body };
                assert_eq!((last.body.as_str(), last.path.as_str()), (body, "/"), "{cell}");
                assert_eq!(last.headers.contains_key("content-type"), !body.is_empty(), "{cell}");
                let length = last.headers.get("content-length").map(|value| value.to_str().unwrap().to_owned());
                assert_eq!(length.unwrap_or_default(), if body.is_empty() { "" } else { "7" }, "{cell}");
            }
        }
    }
    assert_eq!(cells, 8 * 5 * 4);
}

#[tokio::test]
async fn hazard_hostile_locations_are_refused_with_their_reason_and_the_client_goes_on() {
    let servers = Servers::start(1);
    let client = builder().build().unwrap();
    let home = servers.url("a.test", 0);
    for (location, reason) in [
        ("javascript:alert(1)", "unknown scheme `javascript`"),
        ("file:///etc/passwd", "unknown scheme `file`"),
        ("ftp://a.test/", "unknown scheme `ftp`"),
        ("http://", "empty host"),
        ("http://a.test:0/", "port 0"),
        ("http://a.test:99999/", "invalid port"),
        ("http://[::1/", "invalid IPv6"),
    ] {
        let error = client.get(chain(302, &[home.clone(), location.to_owned()])).send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Redirect, "{location}");
        assert!(error.is_redirect() && format!("{error:#}").contains(reason), "{location}: {error:#}");
        assert!(!format!("{error:#}").contains("secret"), "{error:#}");
        assert_eq!(client.get(&home).send().await.unwrap().text().await.unwrap(), "done");
    }
    let response = client.get(format!("{home}?status=302&to=")).send().await.unwrap_err();
    assert!(response.to_string().contains("loop"), "an empty location is the same URL: {response}");
}

#[tokio::test]
async fn hazard_redirect_loops_end_and_are_named() {
    let servers = Servers::start(1);
    let client = builder().build().unwrap();
    let home = servers.url("a.test", 0);
    let again = format!("{home}?status=301&to={home}");
    // Each step redirects to the same URL.
    let error = client.get(format!("{home}?status=302&to=")).send().await.unwrap_err();
    assert!(error.to_string().ends_with("a redirect loop, after 10 redirects"), "{error}");
    assert_eq!(servers.take().len(), 11);
    assert_eq!(client.get(again).send().await.unwrap().redirects().len(), 1);
}

#[tokio::test]
async fn redirect_policies_decide() {
    let servers = Servers::start(2);
    let here = servers.url("a.test", 0);
    let there = servers.url("b.test", 1);
    let away = chain(302, &[here.clone(), there.clone()]);
    let status = async |policy: redirect::Policy, url: &str| {
        let client = builder().redirect(policy).build().unwrap();
        client.get(url).send().await.map(|response| response.status().as_u16()).map_err(|error| format!("{error:#}"))
    };
    assert_eq!(status(redirect::Policy::none(), &away).await, Ok(302));
    assert_eq!(status(redirect::Policy::same_origin(), &away).await, Ok(302));
    assert_eq!(status(redirect::Policy::same_origin(), &chain(302, &[here.clone(), here.clone()])).await, Ok(200));
    assert_eq!(status(redirect::Policy::limited(1), &away).await, Ok(200));
    let refuses = redirect::Policy::custom(|attempt| {
        let why = format!("not {}", attempt.url().path());
        attempt.error(why)
    });
    assert_eq!(
        status(refuses, &away).await,
        Err(format!("GET {away}: the redirect (302) is refused by the redirect policy: not /"))
    );
}

#[tokio::test]
async fn redirects_with_one_connection_do_not_deadlock_on_unread_bodies() {
    for (length, content) in [0, 4, 100_000, 10_000_000].into_iter().flat_map(|length| [(length, ""), (length, "x")]) {
        let server = HttpServer::start(move |request| async move {
            let to = request.uri().path().trim_start_matches('/').parse::<u32>().unwrap_or(0);
            let mut response = hyper::Response::new(full(vec![b'x'; length]));
            if to > 0 {
                *response.status_mut() = hyper::StatusCode::TEMPORARY_REDIRECT;
                response.headers_mut().insert("location", format!("/{}", to - 1).parse().unwrap());
            }
            response
        })
        .unwrap();
        let pool = PoolConfig::new().max_connections(1).wait_timeout(Duration::from_secs(5));
        let client = Client::builder().pool(pool).no_proxy().build().unwrap();
        let response = client.post(format!("http://{}/5", server.address())).body(content).send().await.unwrap();
        assert_eq!(response.redirects().len(), 5);
        assert_eq!(response.bytes().await.unwrap().len(), length);
        // A request with content is repeated over another connection, because the server may not have read it.
        let is_reused = length <= 64 * 1024 && content.is_empty();
        assert_eq!(server.connections(), if is_reused { 1 } else { 6 }, "{length}");
    }
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn secrets_do_not_follow_from_https_to_http_nor_back() {
    use support::certs::Authority;
    use support::tls_server::TlsServer;
    let authority = Authority::new();
    let servers = Servers::start(1);
    let plain = servers.url("a.test", 0);
    let secure = TlsServer::start(authority.server(&["a.test"], &["http/1.1"])).await;
    let tls = speeddial::tls::TlsConfig::new().add_roots([authority.root()]).only_added_roots();
    let client = builder().tls(tls).build().unwrap();
    let with_secrets = |url: String| {
        SECRETS.iter().fold(client.get(url), |request, name| {
            let mut value = HeaderValue::from_static("secret");
            value.set_sensitive(true);
            request.header(*name, value)
        })
    };
    let url = format!("https://a.test:{}/?to={plain}", secure.address().port());
    let response = with_secrets(url.clone()).send().await.unwrap();
    assert_eq!((response.url().as_str(), response.redirects().len()), (plain.as_str(), 1));
    assert_eq!(response.text().await.unwrap(), "done");
    let seen = servers.take();
    assert!(SECRETS.iter().all(|name| !seen[0].headers.contains_key(*name)), "{seen:?}");
    // From http to https and back to http: once removed, the secrets are not added again.
    with_secrets(chain(302, &[plain.clone(), url])).send().await.unwrap();
    let seen = servers.take();
    assert!(SECRETS.iter().all(|name| seen[0].headers.contains_key(*name)));
    assert!(SECRETS.iter().all(|name| !seen[1].headers.contains_key(*name)), "{seen:?}");
}

#[tokio::test]
async fn hazard_credentials_in_a_location_are_not_sent_and_those_of_a_url_stay_with_their_origin() {
    let servers = Servers::start(1);
    let client = builder().build().unwrap();
    let here = servers.url("a.test", 0);
    let there = servers.url("b.test", 0);
    let with = |credentials: &str, url: &str| url.replacen("http://", &format!("http://{credentials}@"), 1);
    let sent = |seen: &[Seen]| -> Vec<Option<String>> {
        let value = |seen: &Seen| Some(seen.headers.get("authorization")?.to_str().unwrap().to_owned());
        seen.iter().map(value).collect()
    };
    let own = Some("Basic bWU6c2VjcmV0".to_owned());
    for (first, location, expected) in [
        (here.clone(), with("you:wrong", &here), vec![None, None]),
        (here.clone(), with("you:wrong", &there), vec![None, None]),
        (with("me:secret", &here), with("you:wrong", &here), vec![own.clone(), own.clone()]),
        (with("me:secret", &here), with("you:wrong", &there), vec![own.clone(), None]),
        (with("me:secret", &here), with("me:secret", &there), vec![own.clone(), None]),
    ] {
        let response = client.get(chain(302, &[first.clone(), location.clone()])).send().await.unwrap();
        let shown = format!("{} {:?}", response.url(), response.redirects());
        assert_eq!(response.status(), 200, "{first} {location}");
        // The query of the first URL contains the location as it was given.
        assert!(!response.url().as_str().contains('@') && !shown.contains("//me:secret@a.test"), "{shown}");
        assert_eq!(sent(&servers.take()), expected, "{first} {location}");
    }
}

#[tokio::test]
async fn a_stream_that_expect_continue_held_back_is_sent_to_the_redirects_target() {
    use std::io::{Read, Write};

    use support::scripted_peer::{ScriptedPeer, read_head};
    let there = ScriptedPeer::start(|_, mut socket| {
        read_head(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
        let mut body = [0; 7];
        if socket.read_exact(&mut body).is_ok() {
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n");
            let _ = socket.write_all(&body);
        }
    });
    let to = there.url();
    let here = ScriptedPeer::start(move |_, mut socket| {
        read_head(&mut socket);
        let _ = write!(socket, "HTTP/1.1 307 There\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        // The client closes without sending any of the body.
        assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
    });
    let client = builder().build().unwrap();
    let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>("payload")]);
    let response = client.put(here.url()).expect_continue().body(Body::sized(7, pieces)).send().await.unwrap();
    assert_eq!((response.url().as_str(), response.redirects().len()), (there.url().as_str(), 1));
    assert_eq!(response.text().await.unwrap(), "payload");
}
