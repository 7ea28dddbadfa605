//! HTTP/2 servers that break the rules: a table of the frames a server sends and what the client has to make of them.

use std::time::Duration;

use speeddial::Client;
use speeddial::dns::FixedResolver;
use tokio::io::DuplexStream;

use super::common::After::{self, Close, Hold, Repeat, Serve};
use super::common::{BODY, EITHER, EXCHANGE, Expected, TIMEOUT, check_outcome, read};
use support::h2_peer::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, H2Peer, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use support::scripted_net::ScriptedNet;
use support::v4;

/// A frame to send: type, flags, stream and payload. Stream 1 stands for the request's own.
type Raw = (u8, u8, u32, Vec<u8>);

const PADDED: u8 = 8;
const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
/// `:status: 200` (RFC 7541, appendix A).
const STATUS_200: u8 = 0x88;

/// Returns the head of a response, 200.
fn ok_head() -> Raw {
    (HEADERS, END_HEADERS, 1, vec![STATUS_200])
}

/// Returns a body of one frame, which ends the response.
fn data(body: &[u8]) -> Raw {
    (DATA, END_STREAM, 1, body.to_vec())
}

/// Returns a header field as a literal that is not indexed (RFC 7541 §6.2.2).
fn literal(name: &str, value: &[u8]) -> Vec<u8> {
    let mut block = vec![0, name.len() as u8];
    block.extend_from_slice(name.as_bytes());
    block.push(value.len() as u8);
    block.extend_from_slice(value);
    block
}

/// Returns the head of a response with one more header field.
fn head_with(name: &str, value: &[u8]) -> Raw {
    (HEADERS, END_HEADERS, 1, [vec![STATUS_200], literal(name, value)].concat())
}

/// Returns SETTINGS with one setting.
fn setting(name: u16, value: u32) -> Raw {
    (SETTINGS, 0, 0, [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// Returns RST_STREAM for the request's stream.
fn reset(code: u32) -> Raw {
    (RST_STREAM, 0, 1, code.to_be_bytes().to_vec())
}

/// Returns GOAWAY.
fn goaway(last: u32, code: u32) -> Raw {
    (GOAWAY, 0, 0, [last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// Returns the table: the name of a case, its frames, what follows, and the outcome.
fn http2_cases() -> Vec<(String, Vec<Raw>, After, Expected)> {
    use Expected::{Body, Error};
    let reset_stream = Error(EXCHANGE, "reset the stream (RST_STREAM): stream error received");
    let not_http2 = Error(EITHER, "error detected");
    let mut cases: Vec<(String, Vec<Raw>, After, Expected)> = Vec::new();
    let mut add = |id: &str, sends: Vec<Raw>, after: After, expected: Expected| {
        cases.push((id.to_owned(), sends, after, expected))
    };
    // Every code (RFC 9113 §7) and one that is not defined. A refused stream is resent and then answered.
    for code in 0..=14 {
        let expected = if code == 7 { Body("plain") } else { reset_stream };
        add(&format!("reset-{code}"), vec![reset(code)], Serve, expected);
        let in_body = Error(EITHER, if code == 0 { "closed the stream before" } else { "stream error received" });
        add(&format!("reset-{code}-after-head"), vec![ok_head(), reset(code)], Serve, in_body);
        let cut = vec![ok_head(), (DATA, 0, 1, b"he".to_vec()), reset(code)];
        add(&format!("reset-{code}-in-body"), cut, Serve, in_body);
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
        vec![(HEADERS, END_HEADERS, 1, literal(":status", b"103")); 1_100],
        Serve,
        Error(EXCHANGE, "more than 1,000 interim responses"),
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
    // Header blocks that do not end.
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
        Repeat(1_000),
        Error(EITHER, ""),
    );
    add(
        "block-of-nothing-for-ever",
        vec![(HEADERS, 0, 1, vec![STATUS_200]), (CONTINUATION, 0, 1, vec![])],
        Repeat(1_000),
        Error(&["exchange", "timeout"], ""),
    );
    add("continuation-alone", vec![(CONTINUATION, END_HEADERS, 1, vec![STATUS_200])], Serve, not_http2);
    // Frames in wrong places and of wrong sizes.
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
        Repeat(1_000),
        Error(&["body", "timeout", "exchange"], ""),
    );
    // Floods.
    add("settings-flood", vec![setting(3, 100)], Repeat(50_000), Error(&["timeout", "exchange"], ""));
    add("ping-flood", vec![(PING, 0, 0, vec![0; 8])], Repeat(50_000), Error(&["timeout", "exchange"], ""));
    let flood = std::iter::once(ok_head()).chain((0..1_000).map(|_| reset(8))).collect();
    add("reset-flood", flood, Serve, Error(EITHER, ""));
    add(
        "window-flood",
        vec![(WINDOW_UPDATE, 0, 0, vec![0, 0, 0, 1])],
        Repeat(50_000),
        Error(&["timeout", "exchange"], ""),
    );
    cases
}

/// Sends the frames of a case on the first connection, in answer to its first request.
async fn misbehave(stream: DuplexStream, sends: Vec<Raw>, after: After) -> std::io::Result<()> {
    let mut peer = H2Peer::accept(stream, Some(100)).await?;
    let own_stream = peer.request().await?;
    let own = |stream: u32| if stream == 1 { own_stream } else { stream };
    for (kind, flags, stream, payload) in &sends {
        peer.send(*kind, *flags, own(*stream), payload).await?;
    }
    match after {
        Repeat(per_second) => {
            let (kind, flags, stream, payload) = sends.last().expect("a case that repeats has frames");
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
    if after == Serve { serve(peer).await } else { Ok(()) }
}

/// Answers every request with "plain".
async fn serve(mut peer: H2Peer) -> std::io::Result<()> {
    loop {
        let stream = peer.request().await?;
        peer.head(stream).await?;
        peer.send(DATA, END_STREAM, stream, b"plain").await?;
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_each_hostile_http2_response_is_handled_and_the_client_goes_on() {
    let mut wrong = Vec::new();
    let cases = http2_cases();
    let count = cases.len();
    for (id, sends, after, expected) in cases {
        let net = ScriptedNet::new(move |number, stream| {
            let sends = sends.clone();
            async move {
                let _ = match number {
                    0 => misbehave(stream, sends, after).await,
                    _ => match H2Peer::accept(stream, Some(100)).await {
                        Ok(peer) => serve(peer).await,
                        Err(error) => Err(error),
                    },
                };
            }
        });
        let resolver = FixedResolver::new().with("api.test", [v4(1)]);
        let builder =
            Client::builder().dns_resolver(resolver).transport(net.clone()).no_proxy().http2_prior_knowledge();
        let client = builder.timeout(Duration::from_millis(400)).build().unwrap();
        let start = tokio::time::Instant::now();
        if let Err(what) = check_outcome(read(client.get("http://api.test/")).await, expected) {
            wrong.push(format!("{id}: {what}"));
        }
        for _ in 0..3 {
            let after = read(client.get("http://api.test/")).await;
            if after.as_ref().ok().map(String::as_str) != Some("plain") {
                wrong.push(format!("after {id}: {after:?}"));
            }
        }
        if start.elapsed() > Duration::from_millis(900) || net.connections() > 3 {
            wrong.push(format!("{id}: {:?}, {} connections", start.elapsed(), net.connections()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 100, "{count}");
}
