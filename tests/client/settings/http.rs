//! The settings of HTTP: header bytes, tolerance for wrong responses, SETTINGS frames, `https_only`, `referer`.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::Duration;

use speeddial::http::{Version, header};
use speeddial::{Client, ClientBuilder, ErrorKind};

use super::assert_refused;
use support::full;
use support::http_server::{HttpServer, describe};
use support::scripted_peer::{ScriptedPeer, read_head};

/// Returns the first bytes that a client sends for a GET, up to the end of a head or of the first frames.
async fn sent(builder: ClientBuilder, length: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Vec<u8> {
    let (report, seen) = mpsc::channel();
    let peer = ScriptedPeer::start(move |_, mut socket| {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !length(&bytes) && socket.read(&mut byte).is_ok_and(|read| read == 1) {
            bytes.push(byte[0]);
        }
        report.send(bytes).unwrap();
    });
    let client = builder.no_proxy().build().unwrap();
    let _ = client.get(peer.url()).header("x-my-header", "1").send().await;
    seen.recv().unwrap()
}

#[tokio::test]
async fn names_of_headers_are_sent_in_title_case() {
    let is_head = |bytes: &[u8]| bytes.ends_with(b"\r\n\r\n");
    let plain = String::from_utf8(sent(Client::builder(), is_head).await).unwrap();
    assert!(plain.contains("\r\nx-my-header: 1\r\n") && plain.contains("\r\nhost: "), "{plain}");
    let titled = String::from_utf8(sent(Client::builder().http1_title_case_headers(), is_head).await).unwrap();
    assert!(titled.contains("\r\nX-My-Header: 1\r\n") && titled.contains("\r\nHost: "), "{titled}");
}

/// Makes a GET to a server that answers every request with these bytes and closes.
async fn get(
    response: &'static str,
    set: fn(ClientBuilder) -> ClientBuilder,
) -> speeddial::Result<speeddial::Response> {
    let peer = ScriptedPeer::start(move |_, mut socket| {
        if read_head(&mut socket) {
            let _ = socket.write_all(response.as_bytes());
        }
    });
    set(Client::builder().no_proxy()).build().unwrap().get(peer.url()).send().await
}

#[tokio::test]
async fn wrong_heads_are_errors_unless_the_client_allows_them() {
    type Set = fn(ClientBuilder) -> ClientBuilder;
    let cases: [(&str, Set, Option<&str>); 3] = [
        (
            "HTTP/1.1 200 OK\r\nx-a: one\r\n two\r\ncontent-length: 2\r\n\r\nok",
            |builder| builder.http1_allow_obsolete_multiline_headers_in_responses(true),
            Some("one two"),
        ),
        (
            "HTTP/1.1 200 OK\r\nno header\r\nx-a: 1\r\ncontent-length: 2\r\n\r\nok",
            |builder| builder.http1_ignore_invalid_headers_in_responses(true),
            Some("1"),
        ),
        (
            "HTTP/1.1 200 OK\r\nx-a : 1\r\ncontent-length: 2\r\n\r\nok",
            |builder| builder.http1_allow_spaces_after_header_name_in_responses(true),
            Some("1"),
        ),
    ];
    for (response, allow, value) in cases {
        let error = get(response, |builder| builder).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exchange, "{response}: {error}");
        let allowed = get(response, allow).await.unwrap();
        assert_eq!(allowed.headers().get("x-a").map(|value| value.to_str().unwrap()), value, "{response}");
        assert_eq!(allowed.text().await.unwrap(), "ok");
    }
}

#[tokio::test]
async fn http09_responses_are_read_to_the_end_of_the_connection() {
    let response = "just text\r\n\r\nwithout a head";
    assert_eq!(get(response, |builder| builder).await.unwrap_err().kind(), ErrorKind::Exchange);
    let old = get(response, ClientBuilder::http09_responses).await.unwrap();
    assert!(old.version() == Version::HTTP_09 && old.headers().is_empty(), "{old:?}");
    assert_eq!(old.text().await.unwrap(), response);
}

/// Reads the client's SETTINGS and the growth of the connection's window from the first bytes that it sends.
async fn settings(builder: ClientBuilder) -> (Vec<(u16, u32)>, Option<u32>) {
    let bytes =
        sent(builder.http2_prior_knowledge(), |bytes| bytes.len() > 24 && frames(&bytes[24..]).len() >= 2).await;
    let frames = frames(&bytes[24..]);
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    assert_eq!(frames[0].0, 4, "SETTINGS come first");
    let settings = frames[0].1.chunks(6).map(|pair| (u16::from_be_bytes([pair[0], pair[1]]), number(&pair[2..])));
    let growth = frames.iter().find(|(kind, _)| *kind == 8).map(|(_, payload)| number(payload));
    (settings.collect(), growth)
}

/// Returns the types and payloads of the whole frames in `bytes`.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while bytes.len() >= 9 {
        let end = 9 + u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let Some(payload) = bytes.get(9..end) else { break };
        frames.push((bytes[3], payload.to_vec()));
        bytes = &bytes[end..];
    }
    frames
}

const HEADER_TABLE_SIZE: u16 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;

#[tokio::test]
async fn the_windows_and_sizes_of_http2_are_announced() {
    let value = |settings: &[(u16, u32)], id| settings.iter().find(|(known, _)| *known == id).map(|(_, value)| *value);
    let (usual, growth) = settings(Client::builder()).await;
    assert_eq!(value(&usual, INITIAL_WINDOW_SIZE), Some(1 << 20));
    assert_eq!(value(&usual, MAX_FRAME_SIZE), None);
    assert_eq!(value(&usual, HEADER_TABLE_SIZE), None);
    assert_eq!(value(&usual, MAX_HEADER_LIST_SIZE), Some(64 << 10));
    assert_eq!(growth, Some((1 << 30) - 65_535));

    let builder = Client::builder()
        .http2_initial_stream_window_size(70_000)
        .http2_initial_connection_window_size(100_000)
        .http2_max_frame_size(20_000)
        .http2_max_header_list_size(5_000)
        .http2_header_table_size(65_536);
    let (set, growth) = settings(builder).await;
    assert_eq!(value(&set, INITIAL_WINDOW_SIZE), Some(70_000));
    assert_eq!(value(&set, MAX_FRAME_SIZE), Some(20_000));
    assert_eq!(value(&set, MAX_HEADER_LIST_SIZE), Some(5_000));
    assert_eq!(value(&set, HEADER_TABLE_SIZE), Some(65_536));
    assert_eq!(growth, Some(100_000 - 65_535));
    let (none, _) = settings(Client::builder().http2_header_table_size(0)).await;
    assert_eq!(value(&none, HEADER_TABLE_SIZE), Some(0));
    let (unset, growth) = settings(Client::builder().http2_initial_stream_window_size(None)).await;
    assert_eq!((value(&unset, INITIAL_WINDOW_SIZE), growth), (Some(1 << 20), Some((1 << 30) - 65_535)));
}

#[tokio::test]
async fn an_adaptive_window_begins_small_and_grows_with_the_body() {
    const LENGTH: usize = 8 << 20;
    let server = HttpServer::start_as(true, |_| async { hyper::Response::new(full(vec![7; LENGTH])) }).unwrap();
    let client = Client::builder().no_proxy().http2_prior_knowledge().http2_adaptive_window(true).build().unwrap();
    for _ in 0..3 {
        let body = client.get(format!("http://{}/", server.address())).send().await.unwrap().bytes().await.unwrap();
        assert_eq!(body.len(), LENGTH);
    }
    assert_eq!(server.connections(), 1, "the pings that measure do not end the connection");

    // The stream's window is the protocol's own, so hyper announces 65,535 or nothing, and no growth of the connection's.
    let is_enough = |bytes: &[u8]| bytes.len() > 24 && frames(&bytes[24..]).len() >= 2;
    let bytes = sent(Client::builder().http2_prior_knowledge().http2_adaptive_window(true), is_enough).await;
    let frames = frames(&bytes[24..]);
    assert!(frames.iter().all(|(kind, _)| *kind != 8), "{frames:?}");
    assert_refused(
        Client::builder().http2_adaptive_window(true).http2_initial_stream_window_size(1 << 20),
        "http2_adaptive_window chooses the windows",
    );
    assert_refused(Client::builder().http2_max_frame_size(1), "http2_max_frame_size must be 16,384");
}

#[tokio::test]
async fn a_client_for_https_alone_sends_no_http_request_and_follows_no_redirect_to_one() {
    let server = HttpServer::start(describe).unwrap();
    let url = format!("http://{}/", server.address());
    let client = Client::builder().no_proxy().https_only(true).build().unwrap();
    let error = client.get(&url).send().await.unwrap_err();
    assert!(error.is_builder() && error.to_string().contains("https URLs only"), "{error}");
    assert_eq!(server.accepted(), 0);
    let client = Client::builder().no_proxy().https_only(true).https_only(false).build().unwrap();
    assert!(client.get(&url).send().await.is_ok());
}

#[test]
fn settings_of_http_that_cannot_be_meant_together_are_refused() {
    let new = Client::builder;
    let both = "http1_only contradicts http2_prior_knowledge";
    assert_refused(new().http1_only().http2_prior_knowledge(), both);
    assert_refused(new().http2_prior_knowledge().http1_only(), both);
    assert!(new().http1_only().http1_only().build().is_ok());
    let second = Duration::from_secs(1);
    assert_refused(new().http2_keep_alive_timeout(second), "http2_keep_alive_timeout has no effect without");
    assert_refused(new().http2_keep_alive_while_idle(true), "http2_keep_alive_while_idle has no effect without");
    let pings = new().http2_keep_alive_timeout(second).http2_keep_alive_while_idle(true);
    assert!(pings.http2_keep_alive_interval(second).build().is_ok());
    assert!(new().http2_keep_alive_while_idle(false).build().is_ok());
    let base = "base_url is an http URL, to which https_only lets no request go";
    assert_refused(new().base_url("http://api.test").https_only(true), base);
    assert!(new().base_url("http://api.test").https_only(true).https_only(false).build().is_ok());

    // A program may set what one version alone needs, and choose the version elsewhere.
    assert!(new().http1_only().http2_adaptive_window(true).build().is_ok());
    assert!(new().http2_prior_knowledge().http1_title_case_headers().http09_responses().build().is_ok());
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_client_for_https_alone_refuses_a_redirect_to_http() {
    use support::certs::Authority;
    use support::tls_server::TlsServer;

    let plain = HttpServer::start(describe).unwrap();
    let authority = Authority::new();
    let secure = TlsServer::start(authority.server(&["127.0.0.1"], &[])).await;
    let client = Client::builder().no_proxy().tls(authority.client()).https_only(true).build().unwrap();
    let url = format!("https://{}/", secure.address());
    assert!(client.get(&url).send().await.is_ok());
    let error = client.get(format!("{url}?to=http://{}/", plain.address())).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Redirect);
    assert!(format!("{error:#}").contains("leads to an http URL"), "{error:#}");
    assert_eq!(plain.accepted(), 0);
}

#[tokio::test]
async fn a_redirected_request_names_the_url_that_redirected_it_if_that_is_wanted() {
    let server = HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        let referer = request.headers().get(header::REFERER).map_or("none", |value| value.to_str().unwrap()).to_owned();
        match request.uri().path() {
            "/a" => hyper::Response::builder().status(302).header("location", "/b").body(full("")).unwrap(),
            "/b" => hyper::Response::builder().status(302).header("location", "/c").body(full("")).unwrap(),
            _ => hyper::Response::new(full(referer)),
        }
    })
    .unwrap();
    let url = |path| format!("http://{}{path}", server.address());
    let with_credentials = format!("http://me:secret@{}/b?q=1#part", server.address());
    let get = async |referer: bool, url: &str| {
        let client = Client::builder().no_proxy().referer(referer).build().unwrap();
        client.get(url).send().await.unwrap().text().await.unwrap()
    };
    assert_eq!(get(false, &url("/a")).await, "none");
    assert_eq!(get(true, &url("/a")).await, url("/b"), "the last URL, not the first");
    assert_eq!(get(true, &with_credentials).await, url("/b?q=1"));
    assert_eq!(get(true, &url("/c")).await, "none", "there was no redirect");
}
