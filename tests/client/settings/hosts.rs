//! The settings of some hosts, in place of those of the client.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::http::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION};
use speeddial::pool::HostLimits;
use speeddial::settings::{Addresses, HostConfig};
use speeddial::trace::Event;
use speeddial::{Client, ClientBuilder, ErrorKind, PoolConfig, Proxy, RequestBuilder, RetryPolicy, redirect};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::assert_refused;
use support::headers;
use support::http_server::{HttpServer, describe};
use support::recorder::Recorder;

/// Returns the builder of a client that resolves names of `.test` to 127.0.0.1.
fn builder() -> ClientBuilder {
    let names = ["a.test", "b.test", "x.b.test", "proxied.test", "socket.test"];
    let localhost: IpAddr = Ipv4Addr::LOCALHOST.into();
    let resolver = names.iter().fold(FixedResolver::new(), |fixed, name| fixed.with(name, [localhost]));
    Client::builder().no_proxy().dns_resolver(resolver)
}

/// Starts a server that reports the headers of each request, and redirects those with a query to the URL in it.
fn reporting() -> (HttpServer, Receiver<HeaderMap>) {
    let (report, reported) = channel();
    let server = HttpServer::start(move |request| {
        let report = report.clone();
        async move {
            let _ = report.send(request.headers().clone());
            let mut response = hyper::Response::new(support::full("ok"));
            if let Some(to) = request.uri().query() {
                *response.status_mut() = hyper::StatusCode::TEMPORARY_REDIRECT;
                response.headers_mut().insert(LOCATION, to.parse().unwrap());
            }
            response
        }
    });
    (server.unwrap(), reported)
}

#[tokio::test]
async fn a_host_has_its_own_default_headers() {
    let (server, seen) = reporting();
    let port = server.address().port();
    let general = headers(&[("x-general", "1"), ("x-both", "1")]);
    let own = HostConfig::new().default_headers(headers(&[("x-both", "2"), ("x-own", "2")]));
    let client = builder().default_headers(general).for_host(".b.test", own.clone()).for_host("b.test", own);
    let client = client.build().unwrap();
    let values = async |host: &str, user: &str| {
        client.get(format!("http://{host}:{port}/")).header("x-user", user).send().await.unwrap();
        let headers = seen.recv().unwrap();
        ["x-general", "x-both", "x-own", "x-user"].map(|name| match headers.get(name) {
            Some(value) => value.to_str().unwrap().to_owned(),
            None => "-".to_owned(),
        })
    };
    assert_eq!(values("a.test", "3").await, ["1", "1", "-", "3"]);
    assert_eq!(values("b.test", "3").await, ["1", "2", "2", "3"]);
    assert_eq!(values("x.b.test", "3").await, ["1", "2", "2", "3"]);
}

#[tokio::test]
async fn the_headers_of_a_host_stay_with_it_when_a_redirect_leads_away_and_back() {
    let (server, seen) = reporting();
    let port = server.address().port();
    let mut own = headers(&[("x-own", "2")]);
    let mut secret = HeaderValue::from_static("Bearer secret");
    secret.set_sensitive(true);
    own.insert(AUTHORIZATION, secret);
    let client = builder().for_host("b.test", HostConfig::new().default_headers(own)).build().unwrap();
    let away = format!("http://a.test:{port}/?http://b.test:{port}/");
    client.get(format!("http://b.test:{port}/?{away}")).send().await.unwrap();
    let has = |headers: &HeaderMap| [headers.contains_key("x-own"), headers.contains_key(AUTHORIZATION)];
    let requests: Vec<_> = seen.try_iter().collect();
    assert_eq!(requests.iter().map(has).collect::<Vec<_>>(), [[true, true], [false, false], [true, false]]);
}

#[tokio::test]
async fn a_host_has_its_own_time_limits() {
    let server = HttpServer::start(|_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        hyper::Response::new(support::full("ok"))
    });
    let server = server.unwrap();
    let url = |host: &str| format!("http://{host}:{}/", server.address().port());
    let short = Duration::from_millis(20);
    for own in [HostConfig::new().headers_timeout(short), HostConfig::new().timeout(short)] {
        let client = builder().for_host("b.test", own).build().unwrap();
        assert!(client.get(url("b.test")).send().await.unwrap_err().is_timeout());
        assert!(client.get(url("a.test")).send().await.is_ok());
    }
    let own = HostConfig::new().timeout(short);
    let client = builder().for_host("b.test", own).build().unwrap();
    let longer = client.get(url("b.test")).timeout(Duration::from_secs(9));
    assert!(longer.send().await.is_ok(), "the request's own limit counts");
    let long = HostConfig::new().read_timeout(Duration::from_secs(9));
    let client = builder().read_timeout(short).for_host("b.test", long).build().unwrap();
    assert!(client.get(url("a.test")).send().await.unwrap_err().is_timeout());
    assert!(client.get(url("b.test")).send().await.is_ok());
}

#[tokio::test]
async fn a_host_has_its_own_limits_and_queue_timeout() {
    let server = support::ok_server();
    let url = |host: &str| format!("http://{host}:{}/", server.address().port());
    let own = HostConfig::new().queue_timeout(Duration::from_millis(5));
    let limits = PoolConfig::new().for_host("b.test", HostLimits::new().max_connections(1));
    let client = builder().pool(limits).for_host("b.test", own).build().unwrap();
    let _held = [client.get(url("a.test")).send().await.unwrap(), client.get(url("b.test")).send().await.unwrap()];
    assert!(client.get(url("a.test")).send().await.is_ok());
    let error = client.get(url("b.test")).send().await.unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("no connection"), "{error}");
}

#[tokio::test]
async fn a_host_has_its_own_proxy_or_none() {
    let (proxy, direct) = (HttpServer::start(describe).unwrap(), HttpServer::start(describe).unwrap());
    let url = |host: &str| format!("http://{host}:{}/", direct.address().port());
    let through = || Proxy::all(format!("http://{}", proxy.address())).unwrap();
    let client = builder().for_host("b.test", HostConfig::new().proxy(through())).build().unwrap();
    client.get(url("a.test")).send().await.unwrap();
    client.get(url("b.test")).send().await.unwrap();
    assert_eq!((proxy.connections(), direct.connections()), (1, 1));
    let client = builder().proxy(through()).for_host("b.test", HostConfig::new().no_proxy()).build().unwrap();
    client.get(url("a.test")).send().await.unwrap();
    client.get(url("b.test")).send().await.unwrap();
    assert_eq!((proxy.connections(), direct.connections()), (2, 2));
}

#[cfg(unix)]
#[tokio::test]
async fn a_host_is_reached_by_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("speeddial-hosts-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        support::read_request_head(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nunix").await.unwrap();
    };
    let server = support::ok_server();
    let port = server.address().port();
    // Settings of the client that only concern other ways do not contradict it.
    let client = builder().tcp_nodelay(true).addresses(Addresses::V4Only);
    let client = client.for_host("socket.test", HostConfig::new().unix_socket(&path)).build().unwrap();
    let by_socket = async { client.get("http://socket.test/").send().await.unwrap().text().await.unwrap() };
    assert_eq!(tokio::join!(serve, by_socket).1, "unix");
    assert_eq!(client.get(format!("http://a.test:{port}/")).send().await.unwrap().text().await.unwrap(), "ok");
    std::fs::remove_file(&path).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_proxy_beside_a_unix_socket_is_ignored_and_observers_are_told() {
    let path = std::env::temp_dir().join(format!("speeddial-ignored-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = support::read_request_head(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nunix").await.unwrap();
        head
    };
    let recorder = Recorder::default();
    let ignored =
        |event: &Event| matches!(event, Event::SettingIgnored { setting: "proxy", beside: "unix_socket", .. });
    let socket = || Client::builder().observer(recorder.clone()).unix_socket(&path);
    for quiet in [socket(), socket().no_proxy()] {
        quiet.build().unwrap();
    }
    assert_eq!(recorder.count(ignored), 0);
    let client = socket().proxy(Proxy::all("http://127.0.0.1:9").unwrap()).build().unwrap();
    assert_eq!(recorder.count(ignored), 1);
    let call = async { client.get("http://a.test/").send().await.unwrap().text().await.unwrap() };
    let (head, text) = tokio::join!(serve, call);
    assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
    assert_eq!(text, "unix");
    std::fs::remove_file(&path).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_host_is_reached_from_its_own_local_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let local = IpAddr::from([127, 0, 0, 2]);
    let client = builder().for_host("b.test", HostConfig::new().local_address(local)).build().unwrap();
    for (host, expected) in [("a.test", Ipv4Addr::LOCALHOST.into()), ("b.test", local)] {
        let sending = client.get(format!("http://{host}:{port}/")).send();
        let source = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().1.ip(),
            failed = sending => panic!("{failed:?}"),
        };
        assert_eq!(source, expected, "{host}");
    }
}

#[tokio::test]
async fn a_host_has_its_own_version_of_http() {
    let old = HttpServer::start_as(false, describe).unwrap();
    let new = HttpServer::start_as(true, describe).unwrap();
    let own = HostConfig::new().http2_prior_knowledge();
    let client = builder().for_host(&format!("b.test:{}", new.address().port()), own).build().unwrap();
    let get = async |host: &str, server: &HttpServer| {
        let response = client.get(format!("http://{host}:{}/", server.address().port())).send().await.unwrap();
        response.text().await.unwrap()
    };
    assert!(get("b.test", &new).await.starts_with("HTTP/2.0 "));
    assert!(get("b.test", &old).await.starts_with("HTTP/1.1 "), "another port");
    let own = HostConfig::new().negotiate_http_version();
    let client = builder().http2_prior_knowledge().for_host("b.test", own).build().unwrap();
    let response = client.get(format!("http://b.test:{}/", old.address().port())).send().await.unwrap();
    assert!(response.text().await.unwrap().starts_with("HTTP/1.1 "));
}

#[test]
fn settings_of_hosts_that_cannot_be_used_are_refused_with_the_hosts() {
    let with = |config| Client::builder().for_host(".internal", config);
    let config = HostConfig::new;
    assert_refused(Client::builder().for_host("*.internal", config()), "`*.internal` is not a host");
    assert_refused(
        with(config().http1_only().http2_prior_knowledge()),
        "settings of `.internal`: two versions of HTTP",
    );
    assert_refused(with(config().connect_timeout(Duration::ZERO)), "settings of `.internal`: connect_timeout must not");
    let none = PoolConfig::new().for_host(".internal", HostLimits::new().max_connections(0));
    assert_refused(Client::builder().pool(none), "max_connections_per_host must not be 0");
    let socks = Proxy::all("socks5h://proxy.test").unwrap().headers(headers(&[("x-a", "1")]));
    assert_refused(with(config().proxy(socks)), "settings of `.internal`: ");
    let transport = speeddial::transport::TcpTransport::new();
    let local = config().local_address(Ipv4Addr::LOCALHOST.into());
    assert_refused(
        with(local.clone()).transport(transport.clone()),
        "settings of TCP have no effect beside a transport",
    );
    assert!(with(config().transport(transport)).tcp_nodelay(true).build().is_ok());
    #[cfg(unix)]
    {
        let socket = || config().unix_socket("/tmp/x");
        let proxy = || Proxy::all("http://proxy.test").unwrap();
        assert_refused(with(socket().proxy(proxy())), "settings of `.internal`: a proxy has no effect beside a Unix");
        assert!(with(socket()).proxy(proxy()).build().is_ok());
        assert_refused(with(config().proxy(proxy())).unix_socket("/tmp/x"), "a proxy has no effect beside a Unix");
    }
}

#[tokio::test]
async fn a_hosts_own_accept_applies_after_a_redirect_to_it_and_not_after_one_away() {
    let (server, seen) = reporting();
    let port = server.address().port();
    let own = headers(&[("accept", "application/json"), ("accept-encoding", "identity")]);
    let client = builder().for_host("b.test", HostConfig::new().default_headers(own)).build().unwrap();
    let there = format!("http://b.test:{port}/?http://a.test:{port}/");
    client.get(format!("http://a.test:{port}/?{there}")).send().await.unwrap();
    let requests: Vec<_> = seen.try_iter().collect();
    let accepted: Vec<_> = requests.iter().map(|headers| headers["accept"].to_str().unwrap()).collect();
    assert_eq!(accepted, ["*/*", "application/json", "*/*"]);
    assert_eq!(requests[1]["accept-encoding"], "identity");
    assert_eq!(requests[2].get("accept-encoding"), requests[0].get("accept-encoding"));
    let own = client.get(format!("http://a.test:{port}/?http://b.test:{port}/")).header("accept", "text/csv");
    own.send().await.unwrap();
    assert!(seen.try_iter().all(|headers| headers["accept"] == "text/csv"), "the request's own stays");
}

#[tokio::test]
async fn a_host_has_its_own_policies_and_a_request_may_differ_from_them() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let server = HttpServer::start(move |request| {
        let is_late = count.fetch_add(1, Ordering::SeqCst) > 0;
        async move {
            let mut response = hyper::Response::new(support::full("four"));
            let accepts = request.headers().contains_key("accept-encoding");
            match request.uri().path() {
                "/busy" if !is_late => *response.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE,
                "/moved" => {
                    *response.status_mut() = hyper::StatusCode::TEMPORARY_REDIRECT;
                    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
                }
                "/codings" if accepts => *response.status_mut() = hyper::StatusCode::ACCEPTED,
                _ => {}
            }
            response
        }
    });
    let port = server.as_ref().unwrap().address().port();
    let retry = RetryPolicy::new().backoff(Duration::ZERO, Duration::ZERO).no_budget();
    let own = HostConfig::new().retry(retry.clone()).redirect(redirect::Policy::none()).decompress(false);
    let client = builder().for_host("b.test", own.max_body_size(3)).build().unwrap();
    let send = async |host: &str, path: &str, change: &dyn Fn(RequestBuilder) -> RequestBuilder| {
        asked.store(0, Ordering::SeqCst);
        let request = change(client.get(format!("http://{host}:{port}/{path}")));
        let status = match request.send().await {
            Ok(response) => response.status().as_u16(),
            Err(error) => return (format!("{:?}", error.kind()), asked.load(Ordering::SeqCst)),
        };
        (status.to_string(), asked.load(Ordering::SeqCst))
    };
    let is = |status: &str, asked| (status.to_owned(), asked);
    let same = |request: RequestBuilder| request;
    assert_eq!(send("a.test", "busy", &same).await, is("503", 1));
    assert_eq!(send("a.test", "moved", &same).await, is("200", 2));
    assert_eq!(send("a.test", "", &same).await, is("200", 1));
    let long = |request: RequestBuilder| request.max_body_size(4);
    assert_eq!(send("b.test", "", &same).await, is("Body", 1));
    assert_eq!(send("b.test", "", &long).await, is("200", 1));
    assert_eq!(send("b.test", "busy", &long).await, is("200", 2));
    assert_eq!(send("b.test", "busy", &|request| long(request).retry(RetryPolicy::none())).await, is("503", 1));
    assert_eq!(send("b.test", "moved", &long).await, is("307", 1));
    let follows = |request| long(request).redirect(redirect::Policy::default());
    assert_eq!(send("b.test", "moved", &follows).await, is("200", 2));
    assert_eq!(send("b.test", "codings", &long).await, is("200", 1));
    #[cfg(feature = "gzip")]
    {
        assert_eq!(send("a.test", "codings", &same).await, is("202", 1));
        assert_eq!(send("b.test", "codings", &|request| long(request).decompress(true)).await, is("202", 1));
    }
}

#[tokio::test]
async fn the_policies_of_the_host_to_which_a_redirect_leads_are_those_of_that_request() {
    let (server, _seen) = reporting();
    let port = server.address().port();
    let own = HostConfig::new().redirect(redirect::Policy::none()).max_body_size(1);
    let client = builder().for_host("b.test", own).build().unwrap();
    let there = format!("http://b.test:{port}/");
    let error = client.get(format!("http://a.test:{port}/?{there}")).send().await.unwrap_err();
    assert_eq!((error.kind(), error.url().unwrap().as_str()), (ErrorKind::Body, &*there));
    let stays = client.get(format!("http://a.test:{port}/?{there}?http://a.test:{port}/"));
    let response = stays.max_body_size(9).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.url().host_str()), (307, Some("b.test")));
}

#[tokio::test]
async fn the_retries_of_a_host_have_their_budget_also_where_a_redirect_leads_to_it() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let http = HttpServer::start(move |request| {
        let counted = counted.clone();
        async move {
            let mut response = hyper::Response::new(support::full(""));
            *response.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
            match request.uri().query() {
                Some(to) => {
                    *response.status_mut() = hyper::StatusCode::TEMPORARY_REDIRECT;
                    response.headers_mut().insert(LOCATION, to.parse().unwrap());
                }
                None => drop(counted.fetch_add(1, Ordering::SeqCst)),
            }
            response
        }
    });
    let port = http.as_ref().unwrap().address().port();
    let policy = RetryPolicy::new().attempts(2).budget(1.0, 0.0).backoff(Duration::ZERO, Duration::ZERO);
    let client = builder().for_host("b.test", HostConfig::new().retry(policy)).build().unwrap();
    for _ in 0..20 {
        client.get(format!("http://a.test:{port}/?http://b.test:{port}/")).send().await.unwrap();
    }
    assert_eq!(count.load(Ordering::SeqCst), 40);
}

#[tokio::test]
async fn the_policies_of_a_host_can_be_replaced() {
    let (server, _seen) = reporting();
    let port = server.address().port();
    let client = builder().build().unwrap();
    let url = format!("http://b.test:{port}/?http://a.test:{port}/");
    let status = async || client.get(&url).send().await.map(|response| response.status().as_u16());
    assert_eq!(status().await.unwrap(), 200);
    client.reconfigure(|to| to.for_host("b.test", HostConfig::new().redirect(redirect::Policy::none()))).unwrap();
    assert_eq!(status().await.unwrap(), 307);
    client.reconfigure(|to| to.for_host("b.test", HostConfig::new().max_body_size(0))).unwrap();
    assert_eq!(status().await.unwrap(), 200, "the body of the redirect is not read, and that of a.test is not limited");
    client.reconfigure(|to| to.for_host("a.test", HostConfig::new().max_body_size(0))).unwrap();
    assert_eq!(status().await.unwrap_err().kind(), ErrorKind::Body);
    client.reconfigure(|to| to.for_host("a.test", HostConfig::new()).for_host("b.test", HostConfig::new())).unwrap();
    assert_eq!(status().await.unwrap(), 200);
}

#[cfg(all(feature = "sse", feature = "gzip"))]
#[tokio::test]
async fn an_event_source_asks_each_host_for_the_codings_of_its_own_settings() {
    let (server, seen) = reporting();
    let port = server.address().port();
    let client = builder().for_host("b.test", HostConfig::new().decompress(false)).build().unwrap();
    let away = client.get(format!("http://a.test:{port}/?http://b.test:{port}/"));
    let mut events = away.event_source().unwrap();
    // The answer is no event stream.
    assert!(futures_util::StreamExt::next(&mut events).await.unwrap().is_err());
    let offered: Vec<_> = seen.try_iter().map(|headers| headers.contains_key("accept-encoding")).collect();
    assert_eq!(offered[..2], [true, false]);
}
