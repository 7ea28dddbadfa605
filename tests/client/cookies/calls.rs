//! The client's cookie store on real connections: every hop, every attempt, every origin; hostile servers; many calls at once.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::cookie::{CookieStore, Jar};
use speeddial::dns::FixedResolver;
use speeddial::http::{HeaderMap, HeaderValue, header};
use speeddial::{Client, ClientBuilder, RetryPolicy, Url};

use super::header;
use support::full;
use support::http_server::HttpServer;
use support::scripted_peer::{ScriptedPeer, read_head_text};

/// A request, as a server received it: host, path, and `Cookie` headers.
type Seen = (String, String, String);

/// A server that answers as the query says, and records its requests: `status=503`, `set=a%3D1` as often as wanted, `to=URL`.
struct Server {
    server: HttpServer,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    fn start(http2: bool) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = seen.clone();
        let server = HttpServer::start_as(http2, move |request| {
            let response = answer(&request, &record);
            async move { response }
        });
        Self { server: server.unwrap(), seen }
    }

    fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// Returns a URL of the server with a query of these parts.
    fn url(&self, host: &str, path: &str, query: &[(&str, &str)]) -> String {
        let url = format!("http://{host}:{}{path}", self.port());
        if query.is_empty() { url } else { Url::parse_with_params(&url, query).unwrap().into() }
    }

    /// Returns the paths and cookies of the requests so far, and forgets them.
    fn take(&self) -> Vec<String> {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        seen.into_iter().map(|(host, path, cookie)| format!("{host}{path} {cookie}")).collect()
    }
}

fn answer(
    request: &hyper::Request<hyper::body::Incoming>,
    seen: &Mutex<Vec<Seen>>,
) -> hyper::Response<support::ServerBody> {
    let uri = request.uri();
    let host = request.headers().get("host").map(|host| host.to_str().unwrap());
    let host = host.or(uri.authority().map(|authority| authority.as_str())).unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default().to_owned();
    let cookies = request.headers().get_all("cookie").iter().map(|value| value.to_str().unwrap());
    let cookies = cookies.collect::<Vec<_>>().join(" + ");
    seen.lock().unwrap().push((host, uri.path().to_owned(), cookies.clone()));
    let url = Url::parse(&format!("http://x{}", uri.path_and_query().unwrap())).unwrap();
    let mut response = hyper::Response::new(full("done"));
    for (name, value) in url.query_pairs() {
        match &*name {
            "set" => drop(response.headers_mut().append("set-cookie", value.parse().unwrap())),
            "to" => {
                *response.status_mut() = hyper::StatusCode::FOUND;
                response.headers_mut().insert("location", value.parse().unwrap());
            }
            // Only until the cookie that goes with it arrives.
            "status" if cookies.is_empty() => {
                *response.status_mut() = value.parse::<u16>().unwrap().try_into().unwrap()
            }
            _ => {}
        }
    }
    response
}

fn builder() -> ClientBuilder {
    let names = ["a.test", "b.test", "sub.a.test"];
    let resolver = names.iter().fold(FixedResolver::new(), |all, name| all.with(name, [[127, 0, 0, 1].into()]));
    Client::builder().dns_resolver(resolver).no_proxy()
}

async fn get(client: &Client, url: &str) -> String {
    client.get(url).send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn a_login_that_redirects_is_remembered_by_the_next_request_and_the_next_call() {
    for http2 in [false, true] {
        let server = Server::start(http2);
        let builder = if http2 { builder().http2_prior_knowledge() } else { builder() };
        let client = builder.cookie_store(true).build().unwrap();
        let home = server.url("a.test", "/home", &[]);
        let set = [("set", "session=1; Path=/; HttpOnly"), ("set", "seen=1"), ("to", home.as_str())];
        assert_eq!(get(&client, &server.url("a.test", "/x/login", &set)).await, "done");
        assert_eq!(get(&client, &server.url("a.test", "/x/y", &[])).await, "done");
        let expected = ["a.test/x/login ", "a.test/home session=1", "a.test/x/y seen=1; session=1"];
        assert_eq!(server.take(), expected, "http2: {http2}");
    }
}

#[tokio::test]
async fn a_retry_sends_the_cookie_that_the_refusal_set() {
    let server = Server::start(false);
    let retry = RetryPolicy::new().backoff(Duration::ZERO, Duration::ZERO);
    let client = builder().cookie_store(true).retry(retry).build().unwrap();
    let url = server.url("a.test", "/", &[("status", "503"), ("set", "ticket=7")]);
    assert_eq!(client.get(&url).send().await.unwrap().status().as_u16(), 200);
    assert_eq!(server.take(), ["a.test/ ", "a.test/ ticket=7"]);
}

#[tokio::test]
async fn a_resend_sends_the_cookies_of_its_own_time() {
    let jar = Arc::new(Jar::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (late, record) = (jar.clone(), seen.clone());
    let peer = ScriptedPeer::start(move |number, mut socket| {
        for request in 0.. {
            let Some(head) = read_head_text(&mut socket) else { return };
            record.lock().unwrap().push(cookie_of(&head));
            if (number, request) == (0, 1) {
                late.add_cookie_str("late=1", &"http://127.0.0.1/".parse().unwrap());
                return; // closes the kept connection under the second request
            }
            let answer = b"HTTP/1.1 200 OK\r\nset-cookie: early=1\r\ncontent-length: 0\r\n\r\n";
            socket.write_all(answer).unwrap();
        }
    });
    let client = peer.client().cookie_provider(jar).build().unwrap();
    for _ in 0..2 {
        client.get(peer.url()).send().await.unwrap().bytes().await.unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), ["", "early=1", "early=1; late=1"]);
}

#[tokio::test]
async fn responses_of_every_status_set_cookies() {
    let server = Server::start(false);
    for status in ["200", "204", "304", "400", "401", "404", "418", "429", "500", "503"] {
        let client = builder().cookie_store(true).build().unwrap();
        let url = server.url("a.test", "/", &[("status", status), ("set", "a=1")]);
        let first = client.get(&url).send().await.unwrap();
        assert_eq!(first.status().as_str(), status);
        client.get(&url).send().await.unwrap();
        assert_eq!(server.take(), ["a.test/ ", "a.test/ a=1"], "{status}");
    }
}

#[tokio::test]
async fn hazard_each_origin_of_a_chain_gets_its_own_cookies_only() {
    let server = Server::start(false);
    let client = builder().cookie_store(true).build().unwrap();
    // From the last URL to the first: each sets cookies and redirects to the one before.
    let mut url = server.url("a.test", "/4", &[]);
    for (host, path, cookies) in [
        ("sub.a.test", "/3", ["sub=1", "forged=1; Domain=www.a.test"]),
        ("b.test", "/2", ["b=1", "stolen=1; Domain=a.test"]),
        ("a.test", "/1", ["a=1", "wide=1; Domain=a.test"]),
        ("b.test", "/0", ["b=0", "all=1; Domain=test"]),
    ] {
        url = server.url(host, path, &[("set", cookies[0]), ("set", cookies[1]), ("to", &url)]);
    }
    get(&client, &url).await;
    let expected = ["b.test/0 ", "a.test/1 ", "b.test/2 b=0", "sub.a.test/3 wide=1", "a.test/4 a=1; wide=1"];
    assert_eq!(server.take(), expected);
    for (host, cookies) in [("a.test", "a=1; wide=1"), ("b.test", "b=1"), ("sub.a.test", "wide=1; sub=1")] {
        get(&client, &server.url(host, "/", &[])).await;
        assert_eq!(server.take(), [format!("{host}/ {cookies}")]);
    }
}

#[tokio::test]
async fn a_cookie_header_of_the_user_takes_the_place_of_the_store_for_its_origin() {
    let server = Server::start(false);
    let client = builder().cookie_store(true).build().unwrap();
    let port = server.port();
    let set = |host: &str, cookie: &str| server.url(host, "/", &[("set", cookie)]);
    get(&client, &set("a.test", "a=stored")).await;
    get(&client, &set("b.test", "b=stored")).await;
    server.take();
    let away = server.url("b.test", "/", &[]);
    let own = |url: String| client.get(url).header(header::COOKIE, "own=1").send();
    own(server.url("a.test", "/", &[("set", "new=1"), ("to", &format!("http://a.test:{port}/x?to={away}"))]))
        .await
        .unwrap();
    assert_eq!(server.take(), ["a.test/ own=1", "a.test/x own=1", "b.test/ b=stored"]);
    get(&client, &server.url("a.test", "/", &[])).await;
    assert_eq!(server.take(), ["a.test/ a=stored; new=1"], "what its response set is kept");

    let defaults = HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static("default=1"))]);
    let client = builder().cookie_store(true).default_headers(defaults).build().unwrap();
    get(&client, &set("a.test", "a=1")).await;
    get(&client, &set("a.test", "a=1")).await;
    assert_eq!(server.take(), ["a.test/ default=1", "a.test/ default=1"]);
}

#[tokio::test]
async fn a_store_belongs_to_the_clients_that_were_given_it() {
    let server = Server::start(false);
    let jar = Arc::new(Jar::default());
    let with_jar = || builder().cookie_provider(jar.clone());
    let first = with_jar().build().unwrap();
    get(&first, &server.url("a.test", "/", &[("set", "a=1")])).await;
    server.take();
    let url = server.url("a.test", "/", &[]);
    for (builder, cookies) in [
        (with_jar(), "a=1"),
        (with_jar().cookie_store(true), ""),
        (with_jar().cookie_store(false), ""),
        (builder().cookie_store(true).cookie_provider(jar.clone()), "a=1"),
        (builder(), ""),
    ] {
        get(&builder.build().unwrap(), &url).await;
        assert_eq!(server.take(), [format!("a.test/ {cookies}")]);
    }
    get(&first.clone(), &url).await;
    assert_eq!(server.take(), ["a.test/ a=1"]);
}

#[tokio::test]
async fn the_cookies_of_a_response_are_those_of_its_headers() {
    let server = Server::start(false);
    let client = builder().build().unwrap();
    let set = [
        ("set", "a=\"1\"; Domain=.a.test; Path=/x; Max-Age=60; Secure; HttpOnly; SameSite=Lax"),
        ("set", "no pair"),
        ("set", "b=2; Expires=Thu, 01 Jan 1970 00:01:00 GMT; SameSite=strict"),
        ("set", "=nameless"),
    ];
    let response = client.get(server.url("a.test", "/", &set)).send().await.unwrap();
    let cookies: Vec<_> = response.cookies().collect();
    let [a, b] = &cookies[..] else { panic!("{cookies:?}") };
    assert_eq!((a.name(), a.value(), a.domain(), a.path()), ("a", "\"1\"", Some("a.test"), Some("/x")));
    assert_eq!((a.max_age(), a.expires()), (Some(Duration::from_secs(60)), None));
    assert!(a.secure() && a.http_only() && a.same_site_lax() && !a.same_site_strict());
    assert_eq!((b.name(), b.value(), b.domain(), b.path()), ("b", "2", None, None));
    assert_eq!((b.max_age(), b.expires()), (None, Some(std::time::UNIX_EPOCH + Duration::from_secs(60))));
    assert!(!b.secure() && !b.http_only() && !b.same_site_lax() && b.same_site_strict());
    assert!(!format!("{a:?}").contains('1'), "no value: {a:?}");
}

/// Returns the `Cookie` header of a request's head.
fn cookie_of(head: &str) -> String {
    let header = head.lines().find_map(|line| line.strip_prefix("cookie: "));
    header.unwrap_or_default().to_owned()
}

/// A peer that answers each request with the next of these responses, the last one again and again, and records the cookies.
fn peer(responses: Vec<Vec<u8>>) -> (ScriptedPeer, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    let peer = ScriptedPeer::start(move |_, mut socket| {
        while let Some(head) = read_head_text(&mut socket) {
            let number = {
                let mut seen = record.lock().unwrap();
                seen.push(cookie_of(&head));
                seen.len() - 1
            };
            let response = responses.get(number).or(responses.last()).unwrap();
            if socket.write_all(response).is_err() {
                return;
            }
        }
    });
    (peer, seen)
}

#[tokio::test]
async fn a_408_that_answers_no_request_sets_no_cookies() {
    let answer = b"HTTP/1.1 200 OK\r\nset-cookie: a=1\r\ncontent-length: 0\r\n\r\n";
    let head = "HTTP/1.1 408 Request Timeout\r\nset-cookie: late=1\r\ncontent-length: 0\r\n";
    // The server closes the kept connection, and the request is sent again.
    let idle = format!("{head}connection: close\r\n\r\n").into_bytes();
    // The connection stays open, so this is an answer.
    let of_service = format!("{head}\r\n").into_bytes();
    let (peer, seen) = peer(vec![answer.to_vec(), idle, of_service, answer.to_vec()]);
    let client = peer.client().cookie_store(true).build().unwrap();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let response = client.get(peer.url()).send().await.unwrap();
        statuses.push(response.status().as_u16());
        response.bytes().await.unwrap();
    }
    assert_eq!(statuses, [200, 408, 200]);
    assert_eq!(*seen.lock().unwrap(), ["", "a=1", "a=1", "a=1; late=1"]);
}

#[tokio::test]
async fn a_full_jar_is_not_too_much_for_a_server() {
    for http2 in [false, true] {
        let server = Server::start(http2);
        let builder = if http2 { builder().http2_prior_knowledge() } else { builder() };
        let jar = Arc::new(Jar::default());
        let url = server.url("a.test", "/", &[]);
        for index in 0..180 {
            jar.add_cookie_str(&format!("a{index}={}", "v".repeat(4_000)), &url.parse().unwrap());
            jar.add_cookie_str(&format!("b{index}={}", "v".repeat(50)), &url.parse().unwrap());
        }
        let client = builder.cookie_provider(jar).build().unwrap();
        let response = client.get(&url).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "http2: {http2}");
        let sent = server.take().concat();
        assert!((7_900..8_050).contains(&sent.len()), "http2: {http2}, {} bytes", sent.len());
    }
}

#[tokio::test]
async fn an_interim_response_sets_no_cookies() {
    let early = b"HTTP/1.1 103 Early Hints\r\nset-cookie: early=1\r\n\r\n";
    let answer = b"HTTP/1.1 200 OK\r\nset-cookie: a=1\r\ncontent-length: 0\r\n\r\n";
    let (peer, seen) = peer(vec![[&early[..], answer].concat()]);
    let client = peer.client().cookie_store(true).build().unwrap();
    for _ in 0..2 {
        client.get(peer.url()).send().await.unwrap().bytes().await.unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), ["", "a=1"]);
}

/// `Set-Cookie` headers with a place for a byte.
const WITH_A_BYTE: [&str; 5] = ["bad=x?y", "ba?d=1", "bad=1; Path=/?", "bad=1; Domain=?", "bad=1; ?=?"];

/// Returns a response that sets a good cookie, and the one of `/set/TEMPLATE/BYTE`; without cookies for another path.
fn response_with_byte(head: &str) -> Vec<u8> {
    let mut response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n".to_vec();
    let path = head.split(' ').nth(1).unwrap();
    if let Some(cell) = path.strip_prefix("/set/") {
        let (template, byte) = cell.split_once('/').unwrap();
        let byte: u8 = byte.parse().unwrap();
        let template = WITH_A_BYTE[template.parse::<usize>().unwrap()];
        response.extend(b"set-cookie: good=1; Path=/\r\nset-cookie: ");
        response.extend(template.bytes().map(|b| if b == b'?' { byte } else { b }));
        response.extend(b"\r\n");
    }
    response.extend(b"\r\n");
    response
}

#[tokio::test]
async fn hazard_no_byte_in_a_set_cookie_spoils_the_next_request() {
    let sent = Arc::new(Mutex::new(String::new()));
    let record = sent.clone();
    let peer = ScriptedPeer::start(move |_, mut socket| {
        while let Some(head) = read_head_text(&mut socket) {
            *record.lock().unwrap() = cookie_of(&head);
            if socket.write_all(&response_with_byte(&head)).is_err() {
                return;
            }
        }
    });
    let jar = Arc::new(Jar::default());
    let client = peer.client().cookie_provider(jar.clone()).build().unwrap();
    let mut refused = Vec::new();
    for (template, text) in WITH_A_BYTE.iter().enumerate() {
        for byte in 0..=255_u8 {
            jar.clear();
            let cell = format!("{text:?} with byte {byte}");
            if client.get(format!("{}set/{template}/{byte}", peer.url())).send().await.is_err() {
                assert!(jar.is_empty(), "{cell}: nothing is stored of a head that is no HTTP");
                refused.push(byte);
                continue;
            }
            client.get(peer.url()).send().await.unwrap();
            let sent = sent.lock().unwrap().clone();
            assert!(sent.split("; ").any(|pair| pair == "good=1"), "{cell}: {sent:?}");
            assert!(!sent.chars().any(|c| c.is_control() && c != '\t'), "{cell}: {sent:?}");
            assert_eq!(sent, header(&jar, &peer.url()), "{cell}");
        }
    }
    refused.sort_unstable();
    refused.dedup();
    let control: Vec<_> = (0..=255_u8).filter(|byte| byte.is_ascii_control() && !b"\t\n\r".contains(byte)).collect();
    assert!(control.iter().all(|byte| refused.contains(byte)), "{refused:?}");
    assert!(refused.iter().all(u8::is_ascii_control), "{refused:?}");
}

#[tokio::test]
async fn hazard_thousands_of_cookies_in_one_response_are_bounded() {
    let fine = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec();
    for (count, is_response) in [(3_000, true), (10_000, false)] {
        let cookies: String = (0..count).map(|index| format!("set-cookie:a{index}=\r\n")).collect();
        let response = format!("HTTP/1.1 200 OK\r\n{cookies}content-length: 0\r\n\r\n").into_bytes();
        let (peer, _) = peer(vec![response, fine.clone()]);
        let jar = Arc::new(Jar::default());
        let client = peer.client().http1_max_headers(20_000).cookie_provider(jar.clone()).build().unwrap();
        assert_eq!(client.get(peer.url()).send().await.is_ok(), is_response, "{count}");
        assert_eq!(jar.len(), if is_response { 180 } else { 0 }, "{count}");
        assert_eq!(client.get(peer.url()).send().await.unwrap().status().as_u16(), 200, "{count}");
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_has_stored_all_cookies_of_a_response_or_none() {
    let head = "HTTP/1.1 200 OK\r\nset-cookie: a=1\r\nset-cookie: b=1\r\ncontent-length: 5\r\n\r\n";
    for length in 0..=head.len() {
        let start = head.as_bytes()[..length].to_vec();
        let (sent, heard) = std::sync::mpsc::channel();
        let peer = ScriptedPeer::start(move |_, mut socket| {
            read_head_text(&mut socket);
            socket.write_all(&start).unwrap();
            sent.send(()).unwrap();
            let _ = socket.read(&mut [0]); // until the client closes
        });
        let jar = Arc::new(Jar::default());
        let client = peer.client().cookie_provider(jar.clone()).build().unwrap();
        let call = client.get(peer.url()).send();
        let heard = tokio::task::spawn_blocking(move || heard.recv().unwrap());
        if length == head.len() {
            call.await.unwrap();
            heard.await.unwrap();
            assert_eq!(header(&jar, &peer.url()), "a=1; b=1", "stored before the body has arrived");
            continue;
        }
        tokio::select! {
            biased;
            response = call => panic!("{response:?} after {length} bytes"),
            heard = heard => heard.unwrap(),
        }
        assert_eq!(header(&jar, &peer.url()), "-", "{length} bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_calls_at_once_lose_no_cookie() {
    const TASKS: usize = 50;
    let server = Server::start(false);
    let jar = Arc::new(Jar::default());
    let client = builder().cookie_provider(jar.clone()).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let urls = (0..20).map(|round| server.url("a.test", "/", &[("set", &format!("t{task}={round}"))]));
        let urls: Vec<_> = urls.collect();
        let client = client.clone();
        tasks.spawn(async move {
            for url in urls {
                get(&client, &url).await;
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    let sent = header(&jar, &server.url("a.test", "/", &[]));
    let mut cookies: Vec<_> = sent.split("; ").map(str::to_owned).collect();
    cookies.sort();
    let mut expected: Vec<_> = (0..TASKS).map(|task| format!("t{task}=19")).collect();
    expected.sort();
    assert_eq!(cookies, expected);
    assert_eq!(jar.len(), TASKS);
    for line in server.take() {
        let cookies = line.split_once(' ').unwrap().1;
        let mut names: Vec<_> =
            cookies.split("; ").filter_map(|pair| pair.split_once('=')).map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "each cookie once: {line}");
    }
}

/// A store of the user that answers with what it was told of last.
#[derive(Default)]
struct Last(Mutex<Option<(HeaderValue, Url)>>);

impl CookieStore for Last {
    fn set_cookies(&self, cookie_headers: &mut dyn Iterator<Item = &HeaderValue>, url: &Url) {
        *self.0.lock().unwrap() = cookie_headers.last().map(|last| (last.clone(), url.clone()));
    }

    fn cookies(&self, url: &Url) -> Option<HeaderValue> {
        let last = self.0.lock().unwrap();
        last.as_ref().filter(|(_, from)| from.host() == url.host()).map(|(header, _)| header.clone())
    }
}

#[tokio::test]
async fn a_store_of_the_user_is_asked_and_told() {
    let server = Server::start(false);
    let store = Arc::new(Last::default());
    let client = builder().cookie_provider(store.clone()).build().unwrap();
    let url = server.url("a.test", "/", &[("set", "a=1"), ("set", "b=2")]);
    get(&client, &url).await;
    get(&client, &server.url("a.test", "/x", &[])).await;
    get(&client, &server.url("b.test", "/x", &[])).await;
    assert_eq!(server.take(), ["a.test/ ", "a.test/x b=2", "b.test/x "]);
    assert_eq!(
        store.0.lock().unwrap().as_ref().unwrap().1.as_str(),
        url,
        "the URL of the response, and no other told since"
    );
}

#[tokio::test]
async fn the_cookies_of_the_store_are_marked_as_sensitive() {
    let server = Server::start(false);
    let marks = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = marks.clone();
    let client = builder().cookie_store(true).before_attempt(move |head| {
        noted.lock().unwrap().push(head.headers().get("cookie").map(|value| value.is_sensitive()));
        Ok::<_, std::convert::Infallible>(())
    });
    let client = client.build().unwrap();
    get(&client, &server.url("a.test", "/", &[("set", "session=1")])).await;
    get(&client, &server.url("a.test", "/", &[])).await;
    assert_eq!(*marks.lock().unwrap(), [None, Some(true)]);
}
