//! HTTP/1.1 servers that break the rules: a table of what a server sends and what the client has to make of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use socket2::SockRef;
use speeddial::{Client, PoolConfig};

use super::common::After::{self, Close, Hold, Repeat, Reset, Serve};
use super::common::{BODY, EITHER, EXCHANGE, Expected, TIMEOUT, check_outcome, read};
use support::LONG;
use support::scripted_peer::{ScriptedPeer, read_head_text};

/// A row of the table.
struct Case {
    /// The path of the request that gets this answer.
    id: &'static str,
    /// The bytes of the answer.
    sends: Vec<u8>,
    after: After,
    expected: Expected,
}

/// Returns a row of the table.
fn case(id: &'static str, sends: impl AsRef<[u8]>, after: After, expected: Expected) -> Case {
    Case { id, sends: sends.as_ref().to_vec(), after, expected }
}

/// Returns a response that begins with a correct status line.
fn head(rest: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes()
}

/// Returns a response with a chunked body that begins with these bytes.
fn chunked(rest: &str) -> Vec<u8> {
    head(&format!("transfer-encoding: chunked\r\n\r\n{rest}"))
}

/// Returns the table.
fn http1_cases() -> Vec<Case> {
    use Expected::{Body, Error};
    let not_http = Error(EXCHANGE, "not HTTP/1.1");
    let headers = |count: usize| (0..count).map(|number| format!("x-{number}: 1\r\n")).collect::<String>();
    let many = headers(200);
    vec![
        // Status lines and versions.
        case("status-garbage", "hello\r\n\r\n", Close, not_http),
        case("status-no-version", "200 OK\r\ncontent-length: 2\r\n\r\nok", Close, not_http),
        case("version-2", "HTTP/2.0 200 OK\r\ncontent-length: 2\r\n\r\nok", Close, not_http),
        case("version-9", "HTTP/9.9 200 OK\r\ncontent-length: 2\r\n\r\nok", Close, not_http),
        case("version-lower-case", "http/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", Close, not_http),
        case("status-2-digits", "HTTP/1.1 20 OK\r\ncontent-length: 2\r\n\r\nok", Close, not_http),
        case("status-4-digits", "HTTP/1.1 2000 OK\r\ncontent-length: 2\r\n\r\nok", Close, not_http),
        case("status-letters", "HTTP/1.1 2x0 OK\r\ncontent-length: 2\r\n\r\nok", Close, not_http),
        case("status-000", "HTTP/1.1 000 OK\r\ncontent-length: 2\r\n\r\nok", Close, not_http),
        case("status-999", "HTTP/1.1 999 Odd\r\ncontent-length: 2\r\n\r\nok", Serve, Body("ok")),
        case("status-no-reason", "HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok", Serve, Body("ok")),
        case("status-empty-reason", "HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\nok", Serve, Body("ok")),
        case("status-reason-latin-1", b"HTTP/1.1 200 \xe9\r\ncontent-length: 2\r\n\r\nok", Serve, Body("ok")),
        case("status-endless", vec![b'H'; 1 << 20], Close, not_http),
        case("empty-lines-first", "\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", Serve, Body("ok")),
        case("tls-alert", b"\x15\x03\x01\x00\x02\x02\x28", Close, not_http),
        case("http-2-preface", b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", Close, not_http),
        case("http-1.0", "HTTP/1.0 200 OK\r\n\r\nuntil the end", Close, Body("until the end")),
        case(
            "http-1.0-keep-alive",
            "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
            Serve,
            Body("ok"),
        ),
        // Header fields.
        case("header-nul", head("x: a\0b\r\ncontent-length: 2\r\n\r\nok"), Close, not_http),
        case("header-bare-cr", head("x: a\rb\r\ncontent-length: 2\r\n\r\nok"), Close, not_http),
        case("header-nameless", head(": x\r\ncontent-length: 2\r\n\r\nok"), Close, not_http),
        case("header-without-colon", head("nonsense\r\ncontent-length: 2\r\n\r\nok"), Close, not_http),
        case("header-space-in-name", head("a b: c\r\ncontent-length: 2\r\n\r\nok"), Close, not_http),
        case("header-space-before-colon", head("content-length : 2\r\n\r\nok"), Close, not_http),
        case("header-folded", head("x: a\r\n b\r\ncontent-length: 2\r\n\r\nok"), Close, not_http),
        case("header-latin-1", b"HTTP/1.1 200 OK\r\nx: \xe9\r\ncontent-length: 2\r\n\r\nok", Serve, Body("ok")),
        case("header-bare-lf", "HTTP/1.1 200 OK\ncontent-length: 2\n\nok", Serve, Body("ok")),
        case(
            "header-huge",
            head(&format!("x: {}\r\n\r\n", "a".repeat(1 << 20))),
            Close,
            Error(EXCHANGE, "longer than 64 KiB, or has too many headers"),
        ),
        case(
            "headers-many",
            head(&format!("{many}content-length: 2\r\n\r\nok")),
            Close,
            Error(EXCHANGE, "longer than 64 KiB, or has too many headers"),
        ),
        case(
            "headers-endless",
            "HTTP/1.1 200 OK\r\nx: y\r\n",
            Repeat(100_000),
            Error(EXCHANGE, "longer than 64 KiB, or has too many headers"),
        ),
        case("head-cut", "HTTP/1.1 200 OK\r\ncontent-le", Close, Error(EXCHANGE, "the connection closed")),
        case("head-reset", "HTTP/1.1 200 OK\r\ncontent-le", Reset, Error(EXCHANGE, "reset")),
        // Lengths.
        case("identity-held", head("transfer-encoding: identity\r\ncontent-length: 2\r\n\r\nok"), Hold, Body("ok")),
        case("identity-and-nothing", head("transfer-encoding: identity\r\ncontent-length: 0\r\n\r\n"), Hold, Body("")),
        case(
            "identity-overshot",
            head("Transfer-Encoding: Identity\r\ncontent-length: 2\r\n\r\nokevil"),
            Hold,
            Body("ok"),
        ),
        case(
            "identity-not-reached",
            head("transfer-encoding: identity\r\ncontent-length: 5\r\n\r\nok"),
            Close,
            Error(BODY, "the server closed the connection before the body's end, after 2 of 5 bytes"),
        ),
        case("length-twice", head("content-length: 2\r\ncontent-length: 2\r\n\r\nok"), Serve, Body("ok")),
        case("length-twice-differs", head("content-length: 2\r\ncontent-length: 3\r\n\r\nok!"), Close, not_http),
        case("length-list-differs", head("content-length: 2, 3\r\n\r\nok!"), Close, not_http),
        case("length-negative", head("content-length: -2\r\n\r\nok"), Close, not_http),
        case("length-plus", head("content-length: +2\r\n\r\nok"), Close, not_http),
        case("length-hex", head("content-length: 0x2\r\n\r\nok"), Close, not_http),
        case("length-empty", head("content-length:\r\n\r\nok"), Close, not_http),
        case("length-overflows", head("content-length: 18446744073709551616\r\n\r\nok"), Close, not_http),
        case("length-largest", head("content-length: 18446744073709551615\r\n\r\nok"), Close, Error(EITHER, "")),
        case(
            "length-and-chunks",
            head("content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
            Close,
            Body("ok"),
        ),
        case("length-not-reached", head("content-length: 5\r\n\r\nok"), Close, Error(BODY, "after 2 of 5 bytes")),
        case("length-not-reached-reset", head("content-length: 5\r\n\r\nok"), Reset, Error(EITHER, "")),
        case(
            "length-overshot",
            head("content-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"),
            Serve,
            Body("ok"),
        ),
        // Chunks.
        case("chunks", chunked("2;a=b\r\nok\r\n0\r\nx: y\r\n\r\n"), Serve, Body("ok")),
        case(
            "chunks-overshot",
            chunked("2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"),
            Serve,
            Body("ok"),
        ),
        case("chunk-size-overflows", chunked("fffffffffffffffff\r\nok\r\n0\r\n\r\n"), Close, Error(BODY, "")),
        case("chunk-size-garbage", chunked("xyz\r\nok\r\n0\r\n\r\n"), Close, Error(BODY, "")),
        case("chunk-size-negative", chunked("-2\r\nok\r\n0\r\n\r\n"), Close, Error(BODY, "")),
        case("chunk-size-empty", chunked("\r\nok\r\n0\r\n\r\n"), Close, Error(BODY, "")),
        case("chunk-size-bare-lf", chunked("2\nok\r\n0\r\n\r\n"), Close, Error(BODY, "")),
        case(
            "chunk-extension-huge",
            chunked(&format!("2;{}\r\nok\r\n0\r\n\r\n", "a".repeat(1 << 20))),
            Close,
            Error(BODY, ""),
        ),
        case("chunk-longer-than-said", chunked("2\r\nokay\r\n0\r\n\r\n"), Close, Error(BODY, "")),
        case("chunk-cut", chunked("5\r\nok"), Close, Error(BODY, "after 2 bytes")),
        case("chunks-without-end", chunked("2\r\nok\r\n"), Close, Error(BODY, "after 2 bytes")),
        case(
            "chunk-trailer-huge",
            chunked(&format!("2\r\nok\r\n0\r\nx: {}\r\n\r\n", "a".repeat(1 << 20))),
            Close,
            Error(BODY, ""),
        ),
        case(
            "chunked-twice",
            head("transfer-encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
            Close,
            Body("ok"),
        ),
        // Codings that are not taken off.
        case(
            "coding-before-chunks",
            head("transfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
            Serve,
            Error(EXCHANGE, "transfer coding"),
        ),
        case("coding-alone", head("transfer-encoding: gzip\r\n\r\nok"), Close, Error(EXCHANGE, "transfer coding")),
        case(
            "coding-in-two-fields",
            head("transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
            Serve,
            Error(EXCHANGE, "transfer coding"),
        ),
        case("coding-of-nothing", "HTTP/1.1 204 No\r\ntransfer-encoding: gzip, chunked\r\n\r\n", Serve, Body("")),
        // Responses without a body.
        case("204-with-body", "HTTP/1.1 204 No\r\ncontent-length: 4\r\n\r\nevil", Serve, Body("")),
        case("304-with-body", "HTTP/1.1 304 Not\r\ncontent-length: 4\r\n\r\nevil", Serve, Body("")),
        // Interim responses.
        case(
            "103-then-200",
            "HTTP/1.1 103 Early\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            Serve,
            Body("ok"),
        ),
        case("100-unasked", "HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", Serve, Body("ok")),
        case(
            "100-for-ever",
            "HTTP/1.1 100 Go\r\n\r\n",
            Repeat(3_000),
            Error(EXCHANGE, "more than 1000 interim responses"),
        ),
        case(
            "100-twenty-times",
            format!("{}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "HTTP/1.1 100 Go\r\n\r\n".repeat(20)),
            Serve,
            Body("ok"),
        ),
        case(
            "101-unasked",
            "HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nevil",
            Hold,
            Error(EXCHANGE, "(101), which the request did not ask for"),
        ),
        // Silence and slowness.
        case("nothing-closed", "", Close, Error(EXCHANGE, "the connection closed")),
        case("nothing-reset", "", Reset, Error(EXCHANGE, "")),
        case("nothing-held", "", Hold, Error(TIMEOUT, "in phase wait")),
        case("head-held", "HTTP/1.1 200 OK\r\n", Hold, Error(TIMEOUT, "timed out")),
        case("body-held", head("content-length: 5\r\n\r\nok"), Hold, Error(TIMEOUT, "in phase receive")),
        case("body-without-length-held", head("\r\nok"), Hold, Error(TIMEOUT, "in phase receive")),
        case("head-dripping", "HTTP/1.1 200 OK\r\nx: y", Repeat(20), Error(TIMEOUT, "timed out")),
        case("body-dripping", head("content-length: 60000\r\n\r\nx"), Repeat(20), Error(TIMEOUT, "timed out")),
        case("body-without-length", head("\r\nuntil the end"), Close, Body("until the end")),
        case("body-without-length-reset", head("\r\nuntil the end"), Reset, Error(EITHER, "")),
        case(
            "body-endless",
            head(&format!("\r\n{}", "x".repeat(4_096))),
            Repeat(10_000),
            Error(BODY, "longer than 65536 bytes"),
        ),
        case("408-fresh", "HTTP/1.1 408 Slow\r\ncontent-length: 2\r\n\r\nno", Close, Body("no")),
        case("connection-close", head("connection: close\r\ncontent-length: 2\r\n\r\nok"), Close, Body("ok")),
    ]
}

/// Reads a request and returns its target.
fn read_target(socket: &mut TcpStream) -> Option<String> {
    let head = read_head_text(socket)?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    socket.read_exact(&mut vec![0; length]).ok()?;
    Some(head.split(' ').nth(1)?.to_owned())
}

/// Sends the answer of a case. Returns true if the connection goes on.
fn play(socket: &mut TcpStream, case: &Case) -> bool {
    let _ = socket.write_all(&case.sends);
    match case.after {
        Serve => return true,
        Close => {}
        Reset => {
            // The client must have read the bytes before the reset discards them.
            std::thread::sleep(Duration::from_millis(20));
            let _ = SockRef::from(&*socket).set_linger(Some(Duration::ZERO));
        }
        Hold => while socket.read(&mut [0; 1_024]).is_ok_and(|read| read > 0) {},
        Repeat(per_second) => {
            // The status line is sent only once, however the client reads the pieces.
            let again = case.sends.strip_prefix(b"HTTP/1.1 200 OK\r\n").unwrap_or(&case.sends);
            let many = again.repeat((per_second as usize / 1_000).max(1));
            let pause = Duration::from_secs(1) / per_second.min(1_000);
            while socket.write_all(&many).is_ok() {
                std::thread::sleep(pause);
            }
        }
    }
    false
}

#[tokio::test]
async fn hazard_each_hostile_http1_response_is_handled_and_the_client_goes_on() {
    let cases = http1_cases();
    let count = cases.len();
    let ids: Vec<_> = cases.iter().map(|case| (case.id, case.expected)).collect();
    let peer = ScriptedPeer::start(move |_, mut socket| {
        while let Some(path) = read_target(&mut socket) {
            match cases.iter().find(|case| path == format!("/{}", case.id)) {
                Some(case) if !play(&mut socket, case) => return,
                Some(_) => {}
                None => {
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len());
                    let _ = socket.write_all(answer.as_bytes());
                }
            }
        }
    });
    let mut wrong = Vec::new();
    for pooled in [true, false] {
        let pool = PoolConfig::new().max_connections_per_host(if pooled { 1 } else { 100 });
        let client = Client::builder().no_proxy().pool(pool).timeout(LONG).build().unwrap();
        for (id, expected) in &ids {
            let limit = match expected {
                Expected::Error(kind, _) if *kind == TIMEOUT => Duration::from_millis(800),
                _ => LONG,
            };
            // Once as a GET, once as a POST, which must not be sent twice.
            for (name, request) in [
                ("GET", client.get(format!("{}{id}", peer.url()))),
                ("POST", client.post(format!("{}{id}", peer.url())).body("x")),
            ] {
                if let Err(what) = check_outcome(read(request.timeout(limit)).await, *expected) {
                    wrong.push(format!("{id} {name}: {what}"));
                }
                for plain in ["plain", "simple"] {
                    let after = read(client.get(format!("{}{plain}", peer.url()))).await;
                    if after.as_ref().ok() != Some(&format!("/{plain}")) {
                        wrong.push(format!("after {id} {name}: {after:?}"));
                    }
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 70, "{count}");
}

#[tokio::test]
async fn hazard_a_body_after_the_response_to_a_head_request_is_never_taken_for_another_response() {
    for rest in ["evil", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", "\r\n\r\n"] {
        let peer = ScriptedPeer::start(move |_, mut socket| {
            while let Some(head) = read_head_text(&mut socket) {
                let body = if head.starts_with("HEAD ") { rest } else { "good" };
                // In one piece: bytes that come after the next request was sent are its response, as far as a client can know.
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{body}");
                let _ = socket.write_all(answer.as_bytes());
            }
        });
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
        let mut answered = 0;
        for _ in 0..50 {
            let head = client.head(peer.url()).send().await.unwrap();
            assert_eq!((head.content_length(), head.text().await.unwrap().as_str()), (Some(4), ""), "{rest:?}");
            // The bytes behind the response may arrive with the next request: then that fails, and is never answered by them.
            match client.get(peer.url()).send().await {
                Ok(response) => {
                    assert_eq!(response.text().await.unwrap(), "good", "{rest:?}");
                    answered += 1;
                }
                Err(error) => assert_eq!(error.kind(), speeddial::ErrorKind::Exchange, "{error}"),
            }
        }
        assert!(answered > 0, "{rest:?}");
    }
}
