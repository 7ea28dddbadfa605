//! The gateway of the guide beside Go's `httputil.ReverseProxy` and nginx: all get the same messages over HTTP/1.0, 1.1 and 2 and pass them on to
//! an upstream of HTTP/1.1 or 2, and each difference of what the upstream and the client see is listed. One that is not installed is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use h2::server::SendResponse;
use http::HeaderValue;
use speeddial::Client;
use tokio::net::TcpListener;

use super::web::{Server, folder};
use crate::client::gateways::gateway_of;
use support::free_port;
use support::scripted_peer::{ScriptedPeer, read_head_text};

/// The messages of a run.
const MESSAGES: u64 = 500;

/// The reason of differences that depend on whether nginx breaks off before or after the content has come.
const BREAKS_OFF: &str = "it takes no trailers over HTTP/2 (RFC 9113 §8.1)";

/// The differences from the others: the gateway, what is different, and why ours is right. `+` is what ours alone has, and `-` what the
/// other one alone has.
const LISTED: &[(&str, &str, &str)] = &[
    ("Go", "request +forwarded", "it is end-to-end, and appended to (RFC 7239 §4)"),
    ("Go", "request +line", "the target stays byte for byte (RFC 9110 §7.7)"),
    ("Go", "request -line", "the target stays byte for byte (RFC 9110 §7.7)"),
    ("Go", "request +max-forwards", "it is counted for OPTIONS (RFC 9110 §7.6.2)"),
    ("Go", "request -max-forwards", "it is counted for OPTIONS (RFC 9110 §7.6.2)"),
    ("Go", "request +trailers", "they are passed on (RFC 9110 §6.5)"),
    ("Go", "request +via", "the gateway of the guide adds it (RFC 9110 §7.6.3)"),
    ("Go", "response +content-type", "that of a 304 stays"),
    ("Go", "response -content-type", "none is guessed (RFC 9110 §8.3)"),
    ("Go", "response -trailer", "a response without content announces none (RFC 9110 §6.6.2)"),
    ("Go", "response -trailers", "hyper sends them to those alone who asked for them with TE (RFC 9110 §6.5.1)"),
    ("Go to HTTP/2", "request +content-length", "an OPTIONS without content may say so (RFC 9110 §8.6)"),
    ("Go to HTTP/2", "request +cookie", "several fields are joined, as they may be (RFC 9113 §8.2.3)"),
    ("Go to HTTP/2", "request -cookie", "several fields are joined, as they may be (RFC 9113 §8.2.3)"),
    ("Go to HTTP/2", "request +forwarded", "it is end-to-end, and appended to (RFC 7239 §4)"),
    ("Go to HTTP/2", "request +line", "the target stays byte for byte (RFC 9110 §7.7)"),
    ("Go to HTTP/2", "request -line", "the target stays byte for byte (RFC 9110 §7.7)"),
    ("Go to HTTP/2", "request +max-forwards", "it is counted for OPTIONS (RFC 9110 §7.6.2)"),
    ("Go to HTTP/2", "request -max-forwards", "it is counted for OPTIONS (RFC 9110 §7.6.2)"),
    ("Go to HTTP/2", "request +trailers", "they are passed on (RFC 9110 §6.5)"),
    ("Go to HTTP/2", "request +via", "the gateway of the guide adds it (RFC 9110 §7.6.3)"),
    (
        "Go to HTTP/2",
        "response +content-length",
        "the length is known where the end came with the content (RFC 9110 §8.6)",
    ),
    ("Go to HTTP/2", "response -transfer-encoding", "the length is known where the end came with the content"),
    ("Go to HTTP/2", "response +content-type", "that of a 304 stays"),
    ("Go to HTTP/2", "response -content-type", "none is guessed (RFC 9110 §8.3)"),
    (
        "Go to HTTP/2",
        "response -trailers",
        "hyper sends them to those alone who asked for them with TE (RFC 9110 §6.5.1)",
    ),
    ("nginx", "request +transfer-encoding", "content of unknown length is passed on as it comes (RFC 9112 §7.1)"),
    ("nginx", "request -content-length", "content of unknown length is passed on as it comes (RFC 9112 §7.1)"),
    ("nginx", "response -trailer", "a response without content announces none (RFC 9110 §6.6.2)"),
    ("nginx", "request +message", "a path that leads above the root is the upstream's to refuse (RFC 9110 §7.7)"),
    ("nginx", "request +max-forwards", "it is counted for OPTIONS (RFC 9110 §7.6.2)"),
    ("nginx", "request -max-forwards", "it is counted for OPTIONS (RFC 9110 §7.6.2)"),
    ("nginx", "request -proxy-authorization", "it was for this gateway (RFC 9110 §11.7.2)"),
    ("nginx", "request -proxy-connection", "it is about the connection (RFC 9110 §7.6.1)"),
    ("nginx", "request -x-hop", "`Connection` names it (RFC 9110 §7.6.1)"),
    ("nginx", "request +te", "trailers can be taken (RFC 9110 §10.1.4)"),
    ("nginx", "request +trailers", "they are passed on (RFC 9110 §6.5)"),
    ("nginx", "request +via", "the gateway of the guide adds it (RFC 9110 §7.6.3)"),
    ("nginx", "request +content", BREAKS_OFF),
    ("nginx", "request -content", BREAKS_OFF),
    ("nginx", "response +message", BREAKS_OFF),
    ("nginx", "response +content-type", "that of a 204 stays"),
    ("nginx", "response -proxy-authenticate", "it was for this gateway (RFC 9110 §11.7.1)"),
    ("nginx", "response +trailers", "they are passed on (RFC 9110 §6.5)"),
];

/// A message as it was seen: its first line, its fields in order of their names, its content, and its trailers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    line: String,
    fields: Vec<String>,
    content: Vec<u8>,
    trailers: Vec<String>,
}

/// Fields that are about a connection, that a server adds to its own responses, or that the gateways are set up for.
const APART: [&str; 6] = ["connection", "date", "host", "keep-alive", "server", "x-case"];

fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let field = |line: &'a str| line.split_once(':').filter(|(other, _)| other.eq_ignore_ascii_case(name));
    head.lines().find_map(field).map(|(_, value)| value.trim())
}

fn fields(lines: &str) -> Vec<String> {
    let lines = lines.lines().filter_map(|line| line.split_once(':'));
    let lines = lines.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    // The value of `Trailer` is a list of field names, whose case means nothing.
    let lines = lines.map(|(name, value)| if name == "trailer" { (name, value.to_lowercase()) } else { (name, value) });
    let mut fields: Vec<_> =
        lines.filter(|(name, _)| !APART.contains(&&**name)).map(|(name, value)| format!("{name}: {value}")).collect();
    fields.sort();
    fields
}

/// Reads a message whose head has been read. `is_ended_by_close` is true for a response without a length.
fn message(head: &str, socket: &mut impl Read, has_no_content: bool, is_ended_by_close: bool) -> Message {
    let (line, rest) = head.split_once("\r\n").unwrap();
    let (mut content, mut trailers) = (Vec::new(), String::new());
    let is_chunked = value(head, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    let line_of = |socket: &mut dyn Read| {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") && matches!(socket.read(&mut byte), Ok(1)) {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    };
    if has_no_content {
    } else if is_chunked {
        loop {
            let size = usize::from_str_radix(line_of(socket).trim(), 16).unwrap_or(0);
            if size == 0 {
                break;
            }
            let mut chunk = vec![0; size + 2];
            socket.read_exact(&mut chunk).unwrap();
            content.extend_from_slice(&chunk[..size]);
        }
        loop {
            let line = line_of(socket);
            if line.trim().is_empty() {
                break;
            }
            trailers.push_str(&line);
        }
    } else if let Some(length) = value(head, "content-length") {
        content = vec![0; length.parse().unwrap()];
        let _ = socket.read_exact(&mut content);
    } else if is_ended_by_close {
        let _ = socket.read_to_end(&mut content);
    }
    Message { line: line.to_owned(), fields: fields(rest), content, trailers: fields(&trailers) }
}

/// A request, and the response of the upstream.
struct Case {
    request: String,
    response: String,
    is_head: bool,
}

const TARGETS: [&str; 12] = [
    "/a",
    "/a/../b",
    "/%2e%2e/x",
    "/a'b",
    "/a{b}|c",
    "//x/y",
    "/a?b='{c}",
    "/a%2Fb",
    "/?",
    "/a;b=c",
    "/a\\..\\b",
    "/a/./b//c?d?e",
];
const REQUEST_FIELDS: [&str; 18] = [
    "accept: text/x",
    "accept-encoding: gzip",
    "te: trailers",
    "keep-alive: timeout=5",
    "proxy-connection: keep-alive",
    "proxy-authorization: Basic eA==",
    "cookie: a=1",
    "authorization: Basic eA==",
    "forwarded: for=192.0.2.1",
    "if-none-match: \"x\"",
    "range: bytes=0-1",
    "user-agent: x",
    "x-dup: 1\r\nx-dup: 2",
    "x-empty:",
    "max-forwards: 5",
    "cache-control: no-cache",
    "content-type: text/x",
    "x-bytes: \u{e9}",
];
const RESPONSE_FIELDS: [&str; 10] = [
    "set-cookie: a=1\r\nset-cookie: b=2",
    "keep-alive: timeout=5",
    "content-encoding: gzip",
    "etag: \"x\"",
    "vary: accept",
    "x-dup: 1\r\nx-dup: 2",
    "x-empty:",
    "proxy-authenticate: Basic",
    "content-type: text/x",
    "age: 5",
];

impl Case {
    fn draw(number: u64) -> Self {
        let mut rng = Rng::with_seed(number);
        let method = *rng.choice(&["GET", "GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]).unwrap();
        let is_old = rng.u8(..8) == 0;
        let version = if is_old { "HTTP/1.0" } else { "HTTP/1.1" };
        let mut request = format!(
            "{method} {} {version}\r\nhost: public.test\r\nx-case: {number}\r\n",
            rng.choice(&TARGETS).unwrap()
        );
        let connection = *rng.choice(&["close", "close", "close, X-Hop", "close, x-hop,, \u{e9}"]).unwrap();
        request.push_str(&format!("connection: {connection}\r\nx-hop: 1\r\n"));
        for field in rng.choose_multiple(&REQUEST_FIELDS, 5) {
            request.push_str(&format!("{field}\r\n"));
        }
        let may_have_content = matches!(method, "POST" | "PUT" | "PATCH");
        match rng.u8(..3) {
            0 if may_have_content && !is_old => {
                request.push_str("trailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfour\r\n3\r\nand\r\n0\r\nx-sum: 7\r\n\r\n");
            }
            1 if may_have_content && !is_old => {
                request.push_str("transfer-encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\n\r\n")
            }
            _ if may_have_content => request.push_str("content-length: 4\r\n\r\nfour"),
            _ => request.push_str("\r\n"),
        }
        let status =
            *rng.choice(&["200 OK", "200 OK", "404 Gone", "302 Found", "204 No Content", "304 Not Modified"]).unwrap();
        let mut response = format!("HTTP/1.1 {status}\r\n");
        if status.starts_with("302") {
            response.push_str("location: http://other.test/x\r\n");
        }
        for field in rng.choose_multiple(&RESPONSE_FIELDS, 4) {
            response.push_str(&format!("{field}\r\n"));
        }
        let is_head = method == "HEAD";
        let (framing, content) = match rng.u8(..4) {
            _ if status.starts_with("204") || status.starts_with("304") => ("\r\n", ""),
            0 => ("content-length: 5\r\n\r\n", "hello"),
            1 => ("transfer-encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
            2 => ("trailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n"),
            _ => ("connection: close\r\n\r\n", "hello to the end"),
        };
        response.push_str(framing);
        response.push_str(if is_head { "" } else { content });
        Self { request, response, is_head }
    }
}

/// A field's byte of Latin-1, which is no UTF-8.
fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|char| char as u8).collect()
}

/// Starts the upstream, which reports each request with its number and answers it.
fn upstream(cases: Arc<Vec<Case>>) -> (ScriptedPeer, Receiver<(usize, Message)>) {
    let (report, reported) = channel();
    let peer = ScriptedPeer::start(move |_, mut socket| {
        while let Some(head) = read_head_text(&mut socket) {
            let number = value(&head, "x-case").map(|number| number.parse::<usize>().unwrap());
            let Some((number, case)) = number.and_then(|number| Some((number, cases.get(number)?))) else {
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                continue;
            };
            if value(&head, "expect").is_some() {
                let _ = socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            let seen = message(&head, &mut socket, false, false);
            let is_last = case.response.contains("connection: close");
            if report.send((number, seen)).is_err() || socket.write_all(&bytes(&case.response)).is_err() || is_last {
                return;
            }
        }
    });
    (peer, reported)
}

/// Sends a request to a gateway, and returns what the client sees of the response.
fn ask(gateway: SocketAddr, case: &Case) -> Option<Message> {
    let mut socket = TcpStream::connect(gateway).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(&bytes(&case.request)).unwrap();
    let head = read_head_text(&mut socket)?;
    let status = head.split(' ').nth(1).unwrap();
    let has_no_content = case.is_head || matches!(status, "204" | "304");
    let mut seen = message(&head, &mut socket, has_no_content, true);
    seen.line = status.to_owned();
    Some(seen)
}

/// Sends a request to a gateway over HTTP/2, with its cookies in fields of their own, and returns what the client sees of the response.
async fn ask_over_http2(gateway: SocketAddr, case: &Case) -> Option<Message> {
    let socket = tokio::net::TcpStream::connect(gateway).await.unwrap();
    let (sender, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let (head, content) = case.request.split_once("\r\n\r\n").unwrap();
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let mut request = http::Request::builder().method(method).uri(format!("http://public.test{target}"));
    let of_connection = ["connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "x-hop"];
    for (name, value) in head.lines().filter_map(|line| line.split_once(':')) {
        if !of_connection.contains(&name) {
            let value = HeaderValue::from_bytes(&bytes(value.trim())).unwrap();
            request = request.header(name, value);
        }
    }
    if head.contains("cookie: ") {
        request = request.header("cookie", "b=2").header("cookie", "c=3");
    }
    let mut sender = sender.ready().await.ok()?;
    let (response, mut stream) = sender.send_request(request.body(()).unwrap(), content.is_empty()).ok()?;
    if !content.is_empty() {
        let has_trailers = head.contains("trailer: ");
        stream.send_data("four".into(), !has_trailers).ok()?;
        if has_trailers {
            stream.send_trailers([("x-sum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect()).ok()?;
        }
    }
    let (head, body) = response.await.ok()?.into_parts();
    message_of_http2(head.status.as_str().to_owned(), &head.headers, body).await
}

/// Reads a message of HTTP/2 to its end.
async fn message_of_http2(line: String, head: &http::HeaderMap, mut body: h2::RecvStream) -> Option<Message> {
    let lines = |fields: &http::HeaderMap| -> Vec<String> {
        let text = |value: &http::HeaderValue| value.as_bytes().iter().map(|byte| *byte as char).collect::<String>();
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {}\r\n", text(value))).collect();
        self::fields(&lines)
    };
    let mut content = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.ok()?;
        let _ = body.flow_control().release_capacity(piece.len());
        content.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await.ok()?.as_ref().map(lines).unwrap_or_default();
    Some(Message { line, fields: lines(head), content, trailers })
}

/// Starts an upstream of HTTP/2, which reports each request with its number and answers it.
async fn http2_upstream(cases: Arc<Vec<Case>>) -> (SocketAddr, Receiver<(usize, Message)>) {
    let (report, reported) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (cases, report) = (cases.clone(), report.clone());
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.ok()?;
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer_over_http2(cases.clone(), report.clone(), request, respond));
                }
                Some(())
            });
        }
    });
    (address, reported)
}

async fn answer_over_http2(
    cases: Arc<Vec<Case>>,
    report: Sender<(usize, Message)>,
    request: http::Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Option<()> {
    let (head, body) = request.into_parts();
    let line = format!("{} {} HTTP/2", head.method, head.uri.path_and_query().unwrap());
    let number: usize = head.headers.get("x-case")?.to_str().ok()?.parse().ok()?;
    let seen = message_of_http2(line, &head.headers, body).await?;
    report.send((number, seen)).ok()?;
    let case = &cases[number];
    let (head, content) = case.response.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?;
    let mut response = http::Response::builder().status(status);
    let of_connection = ["connection", "keep-alive", "trailer", "transfer-encoding"];
    for (name, value) in head.lines().filter_map(|line| line.split_once(':')) {
        if !of_connection.contains(&name) {
            response = response.header(name, HeaderValue::from_bytes(&bytes(value.trim())).unwrap());
        }
    }
    let mut stream = respond.send_response(response.body(()).unwrap(), content.is_empty()).ok()?;
    if !content.is_empty() {
        let text = if content.contains("to the end") { "hello to the end" } else { "hello" };
        let has_trailers = content.contains("x-sum");
        stream.send_data(text.into(), !has_trailers).ok()?;
        if has_trailers {
            stream.send_trailers([("x-sum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect()).ok()?;
        }
    }
    Some(())
}

/// Returns the names of what differs between two messages.
fn differences(side: &str, ours: Option<&Message>, theirs: Option<&Message>) -> BTreeSet<String> {
    let parts = |message: &Message| {
        let mut parts = message.fields.clone();
        parts.push(format!("line: {}", message.line));
        parts.extend(message.trailers.iter().map(|field| format!("trailers: {field}")));
        parts.push(format!("content: {:?}", message.content));
        parts
    };
    let of = |message: Option<&Message>| message.map_or_else(Vec::new, parts);
    let only = |sign, one: Option<&Message>, other: Option<&Message>| {
        if one.is_some() && other.is_none() {
            return vec![format!("{side} {sign}message")];
        }
        let others = of(other);
        let only = of(one).into_iter().filter(|part| other.is_some() && !others.contains(part));
        only.map(|part| format!("{side} {sign}{}", part.split(':').next().unwrap())).collect::<Vec<_>>()
    };
    only('+', ours, theirs).into_iter().chain(only('-', theirs, ours)).collect()
}

/// A gateway, and its addresses for HTTP/1 and HTTP/2.
type Gateway = (Server, [SocketAddr; 2]);

fn go(folder: &Path, upstream: SocketAddr, protocol: &str) -> Option<Gateway> {
    let go = ["go", "/usr/local/go/bin/go"].into_iter().find(|go| Command::new(go).arg("version").output().is_ok());
    let Some(go) = go else {
        eprintln!("SKIPPED: go is not installed (Debian: golang-go)");
        return None;
    };
    let program = folder.join("gateway");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers/gateway.go");
    let mut build = Command::new(go);
    let built = build.arg("build").arg("-o").arg(&program).arg(source).env("GOTOOLCHAIN", "local").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let port = free_port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut command = Command::new(program);
    command.arg(address.to_string()).arg(upstream.to_string()).arg(protocol);
    Server::start("go", "golang-go", folder.to_owned(), &mut command, port).map(|server| (server, [address; 2]))
}

fn nginx(folder: &Path, upstream: SocketAddr) -> Option<Gateway> {
    let (port, http2) = (free_port(), free_port());
    let config = format!(
        "worker_processes 1; daemon off; pid {at}/pid; error_log stderr error; events {{ worker_connections 512; }}\n\
         http {{ access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
         uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi; server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{http2} http2; merge_slashes off;\n\
         location / {{ proxy_pass http://{upstream}; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_buffering off; proxy_request_buffering off; }} }} }}\n",
        at = folder.display(),
    );
    std::fs::write(folder.join("config"), config).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(folder.join("config")).args(["-e", "stderr"]);
    let server = Server::start("nginx", "nginx-light", folder.to_owned(), &mut command, port)?;
    Some((server, [port, http2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)))))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_differs_from_those_of_go_and_nginx_as_listed() {
    let cases: Arc<Vec<_>> = Arc::new((0..MESSAGES).map(Case::draw).collect());
    let (peer, seen) = upstream(cases.clone());
    let address: SocketAddr = peer.url().trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    let client = Client::builder().no_proxy().base_url(peer.url()).build().unwrap();
    let ours = [gateway_of(client).await; 2];
    let others = [
        ("Go", go(&folder("go", "gateway"), address, "http1")),
        ("nginx", nginx(&folder("nginx", "gateway"), address)),
    ];
    compare(&cases, &seen, "HTTP/1.1", ours, &others).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_before_an_upstream_of_http2_differs_from_that_of_go_as_listed() {
    let cases: Arc<Vec<_>> = Arc::new((0..MESSAGES).map(Case::draw).collect());
    let (address, seen) = http2_upstream(cases.clone()).await;
    let client = Client::builder().no_proxy().base_url(format!("http://{address}/")).http2_prior_knowledge().build();
    let ours = [gateway_of(client.unwrap()).await; 2];
    let others = [("Go to HTTP/2", go(&folder("go", "gateway-http2"), address, "http2"))];
    compare(&cases, &seen, "HTTP/2", ours, &others).await;
}

/// Sends all messages through our gateway and the others, and fails for each difference that is not listed, or no longer there.
async fn compare(
    cases: &[Case],
    seen: &Receiver<(usize, Message)>,
    version: &str,
    ours: [SocketAddr; 2],
    others: &[(&'static str, Option<Gateway>)],
) {
    // A third of the messages goes over HTTP/2.
    let pass = async |[http1, http2]: [SocketAddr; 2], number: usize| {
        let case = &cases[number];
        let answer = match number % 3 == 2 && case.request.contains("HTTP/1.1") {
            true => ask_over_http2(http2, case).await,
            false => ask(http1, case),
        };
        // A gateway that breaks off leaves its request behind, which may be seen beside the next message.
        let of_this = seen.try_iter().filter(|(of, _)| *of == number).last();
        (of_this.map(|(_, request)| request), answer)
    };
    let mut found: BTreeMap<(&str, String), String> = BTreeMap::new();
    for (number, case) in cases.iter().enumerate() {
        let (our_request, our_response) = pass(ours, number).await;
        let (line, _) = case.request.lines().next().unwrap().rsplit_once(' ').unwrap();
        let line = format!("{line} {version}");
        assert_eq!(our_request.as_ref().map(|request| &request.line), Some(&line));
        for (name, gateway) in others.iter().filter_map(|(name, other)| Some((*name, other.as_ref()?.1))) {
            let (request, response) = pass(gateway, number).await;
            let mut differing = differences("request", our_request.as_ref(), request.as_ref());
            if our_request.is_some() && request.is_some() {
                differing.extend(differences("response", our_response.as_ref(), response.as_ref()));
            }
            for what in differing {
                let shown = format!(
                    "{name}, {what} in message {number}: {:?} {:?}:\n{our_request:?}\n{request:?}\n{our_response:?}\n{response:?}",
                    case.request, case.response
                );
                found.entry((name, what)).or_insert(shown);
            }
        }
    }
    let is_listed =
        |what: &(&str, String)| LISTED.iter().any(|(name, listed, _)| (*name, *listed) == (what.0, &*what.1));
    let unlisted = found.iter().filter(|(what, _)| !is_listed(what)).map(|(_, shown)| format!("{shown}\n\n"));
    let unlisted: String = unlisted.collect();
    assert!(unlisted.is_empty(), "{unlisted}");
    for (name, what, _) in LISTED.iter().filter(|(.., why)| *why != BREAKS_OFF) {
        let is_there = others.iter().any(|(other, server)| other == name && server.is_some());
        assert!(!is_there || found.contains_key(&(*name, (*what).to_owned())), "{name}, {what}: they are the same now");
    }
}
