//! Servers that do what no server should. For each: a clear error or a right answer, in time, and the next request on the same
//! client is answered as if nothing had been.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::SockRef;
use speeddial::dns::FixedResolver;
use speeddial::{Client, PoolConfig};
use tokio::io::DuplexStream;

use support::h2_peer::{DATA, GOAWAY, H2Peer, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire};
use support::peer::Peer;
use support::v4;

/// What a server does when it has said its piece.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// It closes.
    Close,
    /// It resets the connection.
    Reset,
    /// It says no more, and reads on.
    Hold,
    /// It answers what comes next.
    Serve,
    /// It says the same again, for ever, so often a second.
    Again(u32),
}

use Then::{Again, Close, Hold, Reset, Serve};

/// What a client makes of it: a body, or an error of one of these kinds with these words in it.
#[derive(Debug, Clone, Copy)]
enum Made {
    Body(&'static str),
    Error(&'static [&'static str], &'static str),
}

const EXCHANGE: &[&str] = &["exchange"];
const BODY: &[&str] = &["body"];
const TIMEOUT: &[&str] = &["timeout"];
/// Which of them it is, is a matter of who is faster.
const EITHER: &[&str] = &["exchange", "body"];

struct Case {
    id: &'static str,
    says: Vec<u8>,
    then: Then,
    made: Made,
}

fn case(id: &'static str, says: impl AsRef<[u8]>, then: Then, made: Made) -> Case {
    Case { id, says: says.as_ref().to_vec(), then, made }
}

/// A head that begins well, and goes on with this.
fn head(rest: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes()
}

fn chunked(rest: &str) -> Vec<u8> {
    head(&format!("transfer-encoding: chunked\r\n\r\n{rest}"))
}

fn http1_cases() -> Vec<Case> {
    use Made::{Body, Error};
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
        case("header-huge", head(&format!("x: {}\r\n\r\n", "a".repeat(1 << 20))), Close, Error(EXCHANGE, "too large")),
        case("headers-many", head(&format!("{many}content-length: 2\r\n\r\nok")), Close, Error(EXCHANGE, "too large")),
        case("headers-endless", "HTTP/1.1 200 OK\r\nx: y\r\n", Again(100_000), Error(EXCHANGE, "too large")),
        case("head-cut", "HTTP/1.1 200 OK\r\ncontent-le", Close, Error(EXCHANGE, "closed the connection")),
        case("head-reset", "HTTP/1.1 200 OK\r\ncontent-le", Reset, Error(EXCHANGE, "reset")),
        // Lengths.
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
        case("length-not-reached", head("content-length: 5\r\n\r\nok"), Close, Error(BODY, "after 2 bytes")),
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
        // What has no body.
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
            Again(1_000),
            Error(EXCHANGE, "more than 20 interim responses"),
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
        case("nothing-closed", "", Close, Error(EXCHANGE, "closed the connection")),
        case("nothing-reset", "", Reset, Error(EXCHANGE, "")),
        case("nothing-held", "", Hold, Error(TIMEOUT, "in phase wait")),
        case("head-held", "HTTP/1.1 200 OK\r\n", Hold, Error(TIMEOUT, "timed out")),
        case("body-held", head("content-length: 5\r\n\r\nok"), Hold, Error(TIMEOUT, "in phase receive")),
        case("body-without-length-held", head("\r\nok"), Hold, Error(TIMEOUT, "in phase receive")),
        case("head-dripping", "HTTP/1.1 200 OK\r\nx: y", Again(20), Error(TIMEOUT, "timed out")),
        case("body-without-length", head("\r\nuntil the end"), Close, Body("until the end")),
        case("body-without-length-reset", head("\r\nuntil the end"), Reset, Error(EITHER, "")),
        case(
            "body-endless",
            head(&format!("\r\n{}", "x".repeat(4_096))),
            Again(10_000),
            Error(BODY, "longer than 65536 bytes"),
        ),
        case("408-fresh", "HTTP/1.1 408 Slow\r\ncontent-length: 2\r\n\r\nno", Close, Body("no")),
        case("connection-close", head("connection: close\r\ncontent-length: 2\r\n\r\nok"), Close, Body("ok")),
    ]
}

/// Reads the head of a request, and says what it asks for.
fn asked(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    let head = String::from_utf8(head).ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    socket.read_exact(&mut vec![0; length]).ok()?;
    Some(head.split(' ').nth(1)?.to_owned())
}

fn play(socket: &mut TcpStream, case: &Case) -> bool {
    let _ = socket.write_all(&case.says);
    match case.then {
        Serve => return true,
        Close => {}
        Reset => {
            // What was said is to be read before it is lost.
            std::thread::sleep(Duration::from_millis(20));
            let _ = SockRef::from(&*socket).set_linger(Some(Duration::ZERO));
        }
        Hold => while socket.read(&mut [0; 1_024]).is_ok_and(|read| read > 0) {},
        Again(per_second) => {
            let end = Instant::now() + Duration::from_secs(10);
            // However the pieces are read, there is one status line.
            let again = case.says.strip_prefix(b"HTTP/1.1 200 OK\r\n").unwrap_or(&case.says);
            let many = again.repeat((per_second as usize / 1_000).max(1));
            let pause = Duration::from_secs(1) / per_second.min(1_000);
            while Instant::now() < end && socket.write_all(&many).is_ok() {
                std::thread::sleep(pause);
            }
        }
    }
    false
}

/// What became of a request, in one line, and whether that is what it had to.
fn judge(made: Result<String, speeddial::Error>, expected: Made) -> Result<(), String> {
    match (made, expected) {
        (Ok(body), Made::Body(expected)) if body == expected => Ok(()),
        (Err(error), Made::Error(kinds, words))
            if kinds.contains(&error.kind().as_str()) && error.to_string().contains(words) =>
        {
            Ok(())
        }
        (made, expected) => Err(format!("{made:?}, where {expected:?} was to be")),
    }
}

async fn read(request: speeddial::RequestBuilder) -> Result<String, speeddial::Error> {
    let bytes = request.send().await?.bytes_with_limit(1 << 16).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn hazard_evil_servers_over_http1() {
    let cases = http1_cases();
    let count = cases.len();
    let ids: Vec<_> = cases.iter().map(|case| (case.id, case.made)).collect();
    let peer = Peer::start(move |_, mut socket| {
        while let Some(path) = asked(&mut socket) {
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
        let client = Client::builder().no_proxy().pool(pool).timeout(Duration::from_millis(400)).build().unwrap();
        for (id, expected) in &ids {
            let start = Instant::now();
            // Once as a GET, once as a POST, which nobody may send twice.
            for (name, request) in [
                ("GET", client.get(format!("{}{id}", peer.url()))),
                ("POST", client.post(format!("{}{id}", peer.url())).body("x")),
            ] {
                if let Err(what) = judge(read(request).await, *expected) {
                    wrong.push(format!("{id} {name}: {what}"));
                }
                for plain in ["plain", "simple"] {
                    let after = read(client.get(format!("{}{plain}", peer.url()))).await;
                    if after.as_ref().ok() != Some(&format!("/{plain}")) {
                        wrong.push(format!("after {id} {name}: {after:?}"));
                    }
                }
            }
            if start.elapsed() > Duration::from_secs(3) {
                wrong.push(format!("{id}: {:?}", start.elapsed()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 70, "{count}");
}

/// One frame: kind, flags, stream (0 for the connection, 1 for the request's own, else itself), payload.
type Raw = (u8, u8, u32, Vec<u8>);

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
/// `:status: 200` (RFC 7541, appendix A).
const STATUS_200: u8 = 0x88;

fn ok_head() -> Raw {
    (HEADERS, END_HEADERS, 1, vec![STATUS_200])
}

fn data(body: &[u8]) -> Raw {
    (DATA, END_STREAM, 1, body.to_vec())
}

/// A header as a literal that is not indexed.
fn literal(name: &str, value: &[u8]) -> Vec<u8> {
    let mut block = vec![0, name.len() as u8];
    block.extend_from_slice(name.as_bytes());
    block.push(value.len() as u8);
    block.extend_from_slice(value);
    block
}

fn head_with(name: &str, value: &[u8]) -> Raw {
    (HEADERS, END_HEADERS, 1, [vec![STATUS_200], literal(name, value)].concat())
}

fn setting(name: u16, value: u32) -> Raw {
    (SETTINGS, 0, 0, [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

fn reset(code: u32) -> Raw {
    (RST_STREAM, 0, 1, code.to_be_bytes().to_vec())
}

fn goaway(last: u32, code: u32) -> Raw {
    (GOAWAY, 0, 0, [last.to_be_bytes(), code.to_be_bytes()].concat())
}

fn http2_cases() -> Vec<(String, Vec<Raw>, Then, Made)> {
    use Made::{Body, Error};
    let reset_stream = Error(EXCHANGE, "reset the stream");
    let not_http2 = Error(EITHER, "not HTTP/2");
    let mut cases: Vec<(String, Vec<Raw>, Then, Made)> = Vec::new();
    let mut add = |id: &str, says: Vec<Raw>, then: Then, made: Made| cases.push((id.to_owned(), says, then, made));
    // Every code there is (RFC 9113 §7), and one there is not; what was refused is sent again, and answered.
    for code in 0..=14 {
        let made = if code == 7 { Body("plain") } else { reset_stream };
        add(&format!("reset-{code}"), vec![reset(code)], Serve, made);
        add(
            &format!("reset-{code}-after-head"),
            vec![ok_head(), reset(code)],
            Serve,
            Error(EITHER, "reset the stream"),
        );
        let cut = vec![ok_head(), (DATA, 0, 1, b"he".to_vec()), reset(code)];
        add(&format!("reset-{code}-in-body"), cut, Serve, Error(EITHER, "reset the stream"));
    }
    add("goaway-before-the-request", vec![goaway(0, 0)], Serve, Body("plain"));
    add("goaway-with-error", vec![goaway(0, 11)], Serve, Body("plain"));
    add("goaway-then-answer", vec![goaway(1, 0), ok_head(), data(b"ok")], Serve, Body("ok"));
    add("goaway-then-close", vec![goaway(1, 0)], Close, Error(EXCHANGE, ""));
    add("goaway-in-body", vec![ok_head(), goaway(1, 2)], Close, Error(EITHER, ""));
    add("closed", vec![], Close, Error(EXCHANGE, ""));
    add("closed-after-head", vec![ok_head()], Close, Error(BODY, ""));
    add("closed-in-body", vec![ok_head(), (DATA, 0, 1, b"he".to_vec())], Close, Error(BODY, "after 2 bytes"));
    add("held", vec![], Hold, Error(TIMEOUT, "in phase wait"));
    add("held-after-head", vec![ok_head()], Hold, Error(TIMEOUT, "in phase receive"));
    // Heads.
    add("head-ends", vec![(HEADERS, END_HEADERS | END_STREAM, 1, vec![STATUS_200])], Serve, Body(""));
    add("head-without-status", vec![(HEADERS, END_HEADERS, 1, literal("x", b"y")), data(b"ok")], Serve, not_http2);
    add("head-with-status-twice", vec![(HEADERS, END_HEADERS, 1, vec![STATUS_200; 2]), data(b"ok")], Serve, not_http2);
    add(
        "head-with-bad-status",
        vec![(HEADERS, END_HEADERS, 1, literal(":status", b"2x0")), data(b"ok")],
        Serve,
        not_http2,
    );
    add(
        "head-with-late-status",
        vec![(HEADERS, END_HEADERS, 1, [literal("x", b"y"), vec![STATUS_200]].concat()), data(b"ok")],
        Serve,
        not_http2,
    );
    add("head-with-unknown-pseudo", vec![head_with(":odd", b"y"), data(b"ok")], Serve, not_http2);
    add("head-with-request-pseudo", vec![head_with(":path", b"/"), data(b"ok")], Serve, Body("ok"));
    add("head-in-upper-case", vec![head_with("X-Upper", b"y"), data(b"ok")], Serve, not_http2);
    add("head-with-connection", vec![head_with("connection", b"close"), data(b"ok")], Serve, not_http2);
    add("head-with-transfer-encoding", vec![head_with("transfer-encoding", b"chunked"), data(b"ok")], Serve, not_http2);
    add("head-with-line-break", vec![head_with("x", b"a\r\nb: c"), data(b"ok")], Serve, not_http2);
    add("head-with-nul", vec![head_with("x", b"a\0b"), data(b"ok")], Serve, not_http2);
    add("head-nameless", vec![head_with("", b"y"), data(b"ok")], Serve, not_http2);
    add(
        "head-100-then-200",
        vec![(HEADERS, END_HEADERS, 1, literal(":status", b"103")), ok_head(), data(b"ok")],
        Serve,
        Body("ok"),
    );
    add(
        "head-100-ends",
        vec![(HEADERS, END_HEADERS | END_STREAM, 1, literal(":status", b"103"))],
        Serve,
        Error(EITHER, ""),
    );
    add(
        "head-100-for-ever",
        vec![(HEADERS, END_HEADERS, 1, literal(":status", b"103"))],
        Again(1_000),
        Error(EXCHANGE, "more than 20 interim responses"),
    );
    add("head-101", vec![(HEADERS, END_HEADERS, 1, literal(":status", b"101")), data(b"ok")], Serve, Error(EITHER, ""));
    add(
        "trailers",
        vec![ok_head(), (DATA, 0, 1, b"ok".to_vec()), (HEADERS, END_HEADERS | END_STREAM, 1, literal("x", b"y"))],
        Serve,
        Body("ok"),
    );
    add(
        "trailers-with-pseudo",
        vec![ok_head(), (DATA, 0, 1, b"ok".to_vec()), (HEADERS, END_HEADERS | END_STREAM, 1, vec![STATUS_200])],
        Serve,
        Body("ok"),
    );
    add(
        "trailers-without-end",
        vec![ok_head(), (DATA, 0, 1, b"ok".to_vec()), (HEADERS, END_HEADERS, 1, literal("x", b"y"))],
        Serve,
        Error(BODY, ""),
    );
    // Lengths.
    add("length-short", vec![head_with("content-length", b"5"), data(b"ok")], Serve, Error(EITHER, ""));
    add("length-long", vec![head_with("content-length", b"1"), data(b"ok")], Serve, Error(EITHER, ""));
    add("length-garbage", vec![head_with("content-length", b"x"), data(b"ok")], Serve, Error(EITHER, ""));
    add(
        "length-and-no-body",
        vec![(HEADERS, END_HEADERS | END_STREAM, 1, [vec![STATUS_200], literal("content-length", b"5")].concat())],
        Serve,
        Error(EITHER, ""),
    );
    // Compression of headers.
    add("hpack-bad-index", vec![(HEADERS, END_HEADERS, 1, vec![0xff, 0xff, 0xff, 0x7f])], Serve, not_http2);
    add("hpack-index-0", vec![(HEADERS, END_HEADERS, 1, vec![0x80])], Serve, not_http2);
    add("hpack-cut", vec![(HEADERS, END_HEADERS, 1, vec![STATUS_200, 0, 5, b'x'])], Serve, not_http2);
    add(
        "hpack-bad-huffman",
        vec![(HEADERS, END_HEADERS, 1, vec![STATUS_200, 0, 0x84, 0xff, 0xff, 0xff, 0xff, 1, b'x'])],
        Serve,
        not_http2,
    );
    add(
        "hpack-table-too-large",
        vec![(HEADERS, END_HEADERS, 1, vec![0x3f, 0xff, 0xff, 0xff, 0x0f, STATUS_200])],
        Serve,
        not_http2,
    );
    let mut bomb =
        vec![STATUS_200, 0x40, 1, b'x', 0x7f, 0x80 | ((3_900_u32 - 127) & 0x7f) as u8, ((3_900 - 127) >> 7) as u8];
    bomb.extend(vec![b'a'; 3_900]);
    bomb.extend(vec![0xbe; 12_000]);
    add("hpack-bomb", vec![(HEADERS, END_HEADERS, 1, bomb), data(b"ok")], Serve, Error(EITHER, ""));
    // Header blocks without end.
    add("block-interrupted", vec![(HEADERS, 0, 1, vec![STATUS_200]), data(b"ok")], Serve, not_http2);
    add(
        "block-continued",
        vec![(HEADERS, 0, 1, vec![STATUS_200]), (CONTINUATION, END_HEADERS, 1, literal("x", b"y")), data(b"ok")],
        Serve,
        Body("ok"),
    );
    add(
        "block-for-ever",
        vec![(HEADERS, 0, 1, vec![STATUS_200]), (CONTINUATION, 0, 1, literal("x", &[b'y'; 100]).repeat(100))],
        Again(1_000),
        Error(EITHER, ""),
    );
    add(
        "block-of-nothing-for-ever",
        vec![(HEADERS, 0, 1, vec![STATUS_200]), (CONTINUATION, 0, 1, vec![])],
        Again(1_000),
        Error(&["exchange", "timeout"], ""),
    );
    add("continuation-alone", vec![(CONTINUATION, END_HEADERS, 1, vec![STATUS_200])], Serve, not_http2);
    // Frames where they do not belong, and of sizes they cannot have.
    add("data-first", vec![data(b"ok")], Serve, not_http2);
    add("data-on-0", vec![(DATA, 0, 0, b"ok".to_vec())], Serve, not_http2);
    add("head-on-0", vec![(HEADERS, END_HEADERS, 0, vec![STATUS_200])], Serve, not_http2);
    add("head-on-2", vec![(HEADERS, END_HEADERS, 2, vec![STATUS_200])], Serve, not_http2);
    add("head-on-idle", vec![(HEADERS, END_HEADERS, 99, vec![STATUS_200])], Serve, not_http2);
    add("data-on-idle", vec![(DATA, 0, 99, b"ok".to_vec())], Serve, not_http2);
    add("reset-on-0", vec![(RST_STREAM, 0, 0, vec![0; 4])], Serve, not_http2);
    add("reset-on-idle", vec![(RST_STREAM, 0, 99, vec![0; 4])], Serve, not_http2);
    add("data-after-end", vec![ok_head(), data(b"ok"), data(b"evil")], Serve, Body("ok"));
    add("head-after-end", vec![ok_head(), data(b"ok"), ok_head()], Serve, Body("ok"));
    add("push", vec![(PUSH_PROMISE, END_HEADERS, 1, vec![0, 0, 0, 2, 0x82])], Serve, not_http2);
    add("ping-of-7-bytes", vec![(PING, 0, 0, vec![0; 7])], Serve, not_http2);
    add("ping-on-stream", vec![(PING, 0, 1, vec![0; 8])], Serve, not_http2);
    add("ping-acknowledged-unasked", vec![(PING, 1, 0, vec![7; 8]), ok_head(), data(b"ok")], Serve, Body("ok"));
    add("settings-of-5-bytes", vec![(SETTINGS, 0, 0, vec![0; 5])], Serve, not_http2);
    add("settings-on-stream", vec![(SETTINGS, 0, 1, vec![])], Serve, not_http2);
    add("settings-acknowledged-with-payload", vec![(SETTINGS, 1, 0, vec![0; 6])], Serve, not_http2);
    add("settings-window-too-large", vec![setting(4, 1 << 31)], Serve, not_http2);
    add("settings-frame-size-too-small", vec![setting(5, 1)], Serve, not_http2);
    add("settings-frame-size-too-large", vec![setting(5, 1 << 24)], Serve, not_http2);
    add("settings-push-2", vec![setting(2, 2)], Serve, not_http2);
    add("settings-unknown", vec![setting(99, 7), ok_head(), data(b"ok")], Serve, Body("ok"));
    add("window-of-3-bytes", vec![(WINDOW_UPDATE, 0, 0, vec![0; 3])], Serve, not_http2);
    add("window-by-0", vec![(WINDOW_UPDATE, 0, 0, vec![0; 4])], Serve, not_http2);
    add("window-by-0-on-stream", vec![(WINDOW_UPDATE, 0, 1, vec![0; 4])], Serve, Error(EITHER, ""));
    add("window-overflows", vec![(WINDOW_UPDATE, 0, 0, vec![0x7f, 0xff, 0xff, 0xff]); 2], Serve, not_http2);
    add(
        "window-overflows-on-stream",
        vec![(WINDOW_UPDATE, 0, 1, vec![0x7f, 0xff, 0xff, 0xff]); 2],
        Serve,
        Error(&["timeout", "exchange"], ""),
    );
    add("reset-of-3-bytes", vec![(RST_STREAM, 0, 1, vec![0; 3])], Serve, not_http2);
    add("goaway-of-3-bytes", vec![(GOAWAY, 0, 0, vec![0; 3])], Serve, not_http2);
    add("padding-too-long", vec![(HEADERS, END_HEADERS | PADDED, 1, vec![9, STATUS_200])], Serve, not_http2);
    add("data-padding-too-long", vec![ok_head(), (DATA, PADDED | END_STREAM, 1, vec![9, b'x'])], Serve, not_http2);
    add(
        "priority-on-itself",
        vec![(PRIORITY, 0, 1, vec![0, 0, 0, 1, 0]), ok_head(), data(b"ok")],
        Serve,
        Error(EITHER, ""),
    );
    add("frame-too-large", vec![ok_head(), (DATA, END_STREAM, 1, vec![0; (1 << 14) + 1])], Serve, not_http2);
    add("frame-unknown", vec![(0xbe, 0xff, 1, vec![1, 2, 3]), ok_head(), data(b"ok")], Serve, Body("ok"));
    add(
        "data-empty-for-ever",
        vec![ok_head(), (DATA, 0, 1, vec![])],
        Again(1_000),
        Error(&["body", "timeout", "exchange"], ""),
    );
    // Floods.
    add("settings-flood", vec![setting(3, 100)], Again(50_000), Error(&["timeout", "exchange"], ""));
    add("ping-flood", vec![(PING, 0, 0, vec![0; 8])], Again(50_000), Error(&["timeout", "exchange"], ""));
    let flood = std::iter::once(ok_head()).chain((0..1_000).map(|_| reset(8))).collect();
    add("reset-flood", flood, Serve, Error(EITHER, ""));
    add(
        "window-flood",
        vec![(WINDOW_UPDATE, 0, 0, vec![0, 0, 0, 1])],
        Again(50_000),
        Error(&["timeout", "exchange"], ""),
    );
    cases
}

/// What the first connection says to its first request; what comes after is answered.
async fn misbehave(stream: DuplexStream, says: Vec<Raw>, then: Then) -> std::io::Result<()> {
    let mut peer = H2Peer::accept(stream, Some(100)).await?;
    let asked = peer.request().await?;
    let own = |stream: u32| if stream == 1 { asked } else { stream };
    for (kind, flags, stream, payload) in &says {
        peer.send(*kind, *flags, own(*stream), payload).await?;
    }
    match then {
        Again(per_second) => {
            let (kind, flags, stream, payload) = says.last().expect("something is said");
            for _ in 0..10_000 {
                for _ in 0..per_second / 1_000 {
                    peer.send(*kind, *flags, own(*stream), payload).await?;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Hold => while peer.next().await.is_ok() {},
        _ => {}
    }
    if then == Serve { serve(peer).await } else { Ok(()) }
}

async fn serve(mut peer: H2Peer) -> std::io::Result<()> {
    loop {
        let stream = peer.request().await?;
        peer.head(stream).await?;
        peer.send(DATA, END_STREAM, stream, b"plain").await?;
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_evil_servers_over_http2() {
    let (mut wrong, cases) = (Vec::new(), http2_cases());
    let count = cases.len();
    for (id, says, then, expected) in cases {
        let wire = Wire::new(move |number, stream| {
            let says = says.clone();
            async move {
                let _ = match number {
                    0 => misbehave(stream, says, then).await,
                    _ => match H2Peer::accept(stream, Some(100)).await {
                        Ok(peer) => serve(peer).await,
                        Err(error) => Err(error),
                    },
                };
            }
        });
        let resolver = FixedResolver::new().with("api.test", [v4(1)]);
        let builder = Client::builder().resolver(resolver).transport(wire.clone()).no_proxy().http2_prior_knowledge();
        let client = builder.timeout(Duration::from_millis(400)).build().unwrap();
        let start = tokio::time::Instant::now();
        if let Err(what) = judge(read(client.get("http://api.test/")).await, expected) {
            wrong.push(format!("{id}: {what}"));
        }
        for _ in 0..3 {
            let after = read(client.get("http://api.test/")).await;
            if after.as_ref().ok().map(String::as_str) != Some("plain") {
                wrong.push(format!("after {id}: {after:?}"));
            }
        }
        if start.elapsed() > Duration::from_millis(900) || wire.connections() > 3 {
            wrong.push(format!("{id}: {:?}, {} connections", start.elapsed(), wire.connections()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 100, "{count}");
}
