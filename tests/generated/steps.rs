//! Steps, not bytes: a peer that sends a megabyte of the smallest things there are holds no thread for long, and meets no deadline late.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::StreamExt;
use hickory_proto::op::{Message, Query};
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record};
use rustix::time::{ClockId, clock_gettime};
use speeddial::dns::{Family, HickoryResolver, Resolver};
use speeddial::{Client, ClientBuilder};
use support::dns_server::DnsServer;

/// The bytes that a peer sends.
const MEGABYTE: usize = 1 << 20;
/// The longest time for which a thread serves the tasks of a call without a turn for others: those of the connection and of the reader.
const LONGEST_TURN: Duration = Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 4 });
/// The limit of a call.
const LIMIT: Duration = Duration::from_millis(400);
/// The longest processor time by which a call outlasts its limit. Without optimisation, tokio looks at its timers after 61 turns of h2's,
/// of 10 ms each.
const LATE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 3_000 } else { 150 });

/// What reads the answer.
#[derive(Clone, Copy)]
enum Reader {
    Bytes,
    Text,
    Json,
    Events,
}

struct Hostile {
    name: &'static str,
    answer: fn() -> Vec<u8>,
    reader: Reader,
    client: fn() -> ClientBuilder,
}

fn plain() -> ClientBuilder {
    Client::builder()
}

/// Returns an answer with these headers, and `body` as its content up to the end of the connection.
fn closed_by_the_end(headers: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes(), body].concat()
}

fn repeated(unit: &[u8]) -> Vec<u8> {
    unit.repeat(MEGABYTE / unit.len())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const EVENTS: &str = "content-type: text/event-stream\r\n";

fn hostiles() -> Vec<Hostile> {
    let bytes = |name, answer| Hostile { name, answer, reader: Reader::Bytes, client: plain };
    let events = |name, answer| Hostile { name, answer, reader: Reader::Events, client: plain };
    let http2 = |name, answer| Hostile {
        name,
        answer,
        reader: Reader::Bytes,
        client: || Client::builder().http2_prior_knowledge(),
    };
    vec![
        bytes("interim responses", || repeated(b"HTTP/1.1 103 Hint\r\n\r\n")),
        bytes("header lines", || [b"HTTP/1.1 200 OK\r\n".to_vec(), repeated(b"a: b\r\n")].concat()),
        bytes("a long header line", || [b"HTTP/1.1 200 OK\r\na: ".to_vec(), repeated(b"b")].concat()),
        bytes("chunks of a byte", || closed_by_the_end("transfer-encoding: chunked\r\n", &repeated(b"1\r\nx\r\n"))),
        bytes("an extension of a chunk", || {
            closed_by_the_end("transfer-encoding: chunked\r\n", &[b"1;".to_vec(), repeated(b"x")].concat())
        }),
        bytes("trailers", || {
            closed_by_the_end("transfer-encoding: chunked\r\n", &[b"0\r\n".to_vec(), repeated(b"a: b\r\n")].concat())
        }),
        bytes("empty gzip members", || closed_by_the_end("content-encoding: gzip\r\n", &repeated(&gzip(b"")))),
        bytes("gzip members of a byte", || closed_by_the_end("content-encoding: gzip\r\n", &repeated(&gzip(b"x")))),
        bytes("a bomb", || closed_by_the_end("content-encoding: gzip\r\n", &gzip(&vec![0; 64 * MEGABYTE]))),
        bytes("empty members in a bomb", || {
            let members = gzip(b"").repeat(800_000);
            closed_by_the_end("content-encoding: gzip, gzip\r\n", &gzip(&members))
        }),
        bytes("a bomb in a bomb", || {
            closed_by_the_end("content-encoding: gzip, gzip\r\n", &gzip(&gzip(&vec![0; 64 * MEGABYTE])))
        }),
        Hostile {
            reader: Reader::Text,
            ..bytes("text in UTF-16", || {
                closed_by_the_end("content-type: text/plain; charset=utf-16\r\n", &repeated(b"\xd8\x00"))
            })
        },
        Hostile { reader: Reader::Json, ..bytes("nested JSON", || closed_by_the_end("", &repeated(b"["))) },
        Hostile { reader: Reader::Json, ..bytes("JSON of small values", || closed_by_the_end("", &repeated(b"[0,"))) },
        Hostile {
            client: || Client::builder().cookie_store(true).http1_max_headers(5_000),
            ..bytes("cookies", || {
                let cookies: String = (0..2_500).map(|number| format!("set-cookie: c{number}=1\r\n")).collect();
                closed_by_the_end(&(cookies + "content-length: 0\r\n"), b"")
            })
        },
        events("empty lines", || closed_by_the_end(EVENTS, &repeated(b"\n"))),
        events("comments", || closed_by_the_end(EVENTS, &repeated(b":\n"))),
        events("lines of data", || closed_by_the_end(EVENTS, &repeated(b"data\n"))),
        events("small events", || closed_by_the_end(EVENTS, &repeated(b"data\n\n"))),
        events("a long line", || closed_by_the_end(EVENTS, &repeated(b"x"))),
        events("ids", || closed_by_the_end(EVENTS, &repeated(b"id:1\n\n"))),
        http2("DATA of a byte", || frames(&[&head(), &repeated_frame(0, 0, 1, b"x")])),
        http2("empty DATA", || frames(&[&head(), &repeated_frame(0, 0, 1, b"")])),
        http2("PINGs", || frames(&[&head(), &repeated_frame(6, 0, 0, &[0; 8])])),
        http2("SETTINGS", || frames(&[&head(), &repeated_frame(4, 0, 0, b"")])),
        http2("WINDOW_UPDATEs", || frames(&[&head(), &repeated_frame(8, 0, 1, &[0, 0, 0, 1])])),
        http2("frames of an unknown type", || frames(&[&head(), &repeated_frame(99, 0, 1, b"")])),
        http2("a header block in pieces", || {
            frames(&[&frame(1, 0, 1, &[0x88]), &repeated_frame(9, 0, 1, &[0x0f, 1, 0])])
        }),
        http2("headers by reference", || {
            // A header of 4,000 bytes enters the table of headers, and a byte each refers to it.
            let long = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e][..], &[b'b'; 4_000]].concat();
            let block = [&[0x88][..], &long, &vec![0xbe; 12_000]].concat();
            frames(&[&frame(1, 5, 1, &block)])
        }),
    ]
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn repeated_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    repeated(&frame(kind, flags, stream, payload))
}

/// The head of a response, `:status: 200` (RFC 7541, appendix A).
fn head() -> Vec<u8> {
    frame(1, 4, 1, &[0x88])
}

fn frames(parts: &[&[u8]]) -> Vec<u8> {
    [&frame(4, 0, 0, b"")[..], &parts.concat()].concat()
}

/// Starts a peer that sends `bytes` to each client that has sent something, and then closes.
fn peer(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let _ = socket.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = socket.set_write_timeout(Some(Duration::from_secs(5)));
            read_some(&mut socket);
            let _ = socket.write_all(&bytes);
            read_some(&mut socket);
        }
    });
    address
}

/// Reads until the client has been quiet for a moment.
fn read_some(socket: &mut TcpStream) {
    let _ = socket.read(&mut [0; 4_096]);
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().unwrap_or(0))
}

/// Makes a call, and measures it.
fn try_one(hostile: &Hostile) -> (Duration, Duration) {
    let address = peer((hostile.answer)());
    let client = (hostile.client)().no_proxy().timeout(LIMIT).build().unwrap();
    let reader = hostile.reader;
    measured(async move {
        let response = client.get(format!("http://{address}/")).send().await?;
        match reader {
            Reader::Bytes => drop(response.bytes().await?),
            Reader::Text => drop(response.text().await?),
            Reader::Json => drop(response.json::<serde_json::Value>().await?),
            Reader::Events => {
                let mut events = response.events();
                while let Some(event) = events.next().await {
                    event?;
                }
            }
        }
        Ok::<_, speeddial::Error>(())
    })
}

/// Runs what calls do, and returns the longest processor time between two turns of another task, and that which the thread had in all.
///
/// The other task is always ready, so that on an idle machine the thread's processor time is the time that passes. On a busy one it is
/// less: what other programs had is not the client's.
fn measured<T: Send + 'static>(calls: impl Future<Output = T> + Send + 'static) -> (Duration, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let is_over = Arc::new(AtomicBool::new(false));
        let longest = Arc::new(AtomicU64::new(0));
        let (over, gaps) = (is_over.clone(), longest.clone());
        let mut last = processor_time();
        let ticker = tokio::spawn(poll_fn(move |cx| {
            let now = processor_time();
            gaps.fetch_max((now - last).as_nanos() as u64, Ordering::Relaxed);
            last = now;
            if over.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        let start = processor_time();
        tokio::spawn(calls).await.unwrap();
        let took = processor_time() - start;
        is_over.store(true, Ordering::Relaxed);
        ticker.await.unwrap();
        (Duration::from_nanos(longest.load(Ordering::Relaxed)), took)
    })
}

#[test]
fn a_megabyte_of_the_smallest_things_holds_no_thread_and_no_deadline() {
    let mut failed = Vec::new();
    for hostile in hostiles() {
        let (turn, took) = try_one(&hostile);
        // h2 takes all that has come in one turn.
        let longest = if hostile.name == "DATA of a byte" { LONGEST_TURN * 3 } else { LONGEST_TURN };
        if turn > longest || took > LIMIT + LATE {
            failed.push(format!("{}: a turn of {turn:?}, and {took:?} in all", hostile.name));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The most records of a kind that fit into a response of 64 KiB.
const RECORDS: usize = 3_500;

/// Fills in the response to a question.
type Answering = fn(&Query, &mut Message);

/// The answers of a DNS server: to each question as many records as fit.
fn hostile_answers() -> [(&'static str, Answering); 5] {
    [
        ("addresses", |question, response| {
            for number in 0..RECORDS as u32 {
                let address = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + number));
                support::dns_server::add_address(response, question, question.name(), address, 60);
            }
        }),
        ("addresses of others", |question, response| {
            let other = Name::from_ascii("other.test.").unwrap();
            (0..RECORDS)
                .for_each(|_| support::dns_server::add_address(response, question, &other, [10, 0, 0, 1].into(), 60));
        }),
        ("a long chain of aliases", |question, response| chain(question, response, RECORDS / 2)),
        ("aliases that lead to themselves", |question, response| {
            (0..RECORDS).for_each(|_| alias(response, question.name(), question.name()));
        }),
        ("aliases in the wrong order", |question, response| {
            chain(question, response, RECORDS / 2);
            response.answers.reverse();
        }),
    ]
}

fn alias(response: &mut Message, from: &Name, to: &Name) {
    response.add_answer(Record::from_rdata(from.clone(), 60, RData::CNAME(CNAME(to.clone()))));
}

fn chain(question: &Query, response: &mut Message, length: usize) {
    let mut owner = question.name().clone();
    for number in 0..length {
        let next = Name::from_ascii(format!("x{number}.test.")).unwrap();
        alias(response, &owner, &next);
        owner = next;
    }
}

#[test]
fn the_largest_answers_of_dns_hold_no_thread() {
    let mut failed = Vec::new();
    for (name, answer) in hostile_answers() {
        // Over UDP it is told to ask by TCP.
        let truncated = |_: &Query, response: &mut Message| response.metadata.truncation = true;
        let (udp, tcp) = support::dns_tcp::udp_and_tcp(
            || DnsServer::start_over_udp(truncated).unwrap(),
            |server: &DnsServer| server.address(),
        );
        support::dns_tcp::serve(tcp, answer);
        let resolver = HickoryResolver::with_servers([udp.address()]);
        let (turn, _) = measured(async move {
            // A megabyte.
            for number in 0..16 {
                let name = format!("n{number}.test");
                let _ = resolver.resolve(&name, Family::V4).await;
            }
        });
        if turn > LONGEST_TURN {
            failed.push(format!("{name}: a turn of {turn:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
