//! The shapes of answers over HTTP/1: statuses, framings, codings, trailers and ends, any three together, and cuts at each byte.

mod h2;
mod oracle;
mod server;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use speeddial::trace::Phase;
use speeddial::{Body, Client};
use tokio::time::timeout;
use tower::ServiceBuilder;

use self::oracle::{Coding, Expected};
use self::server::{Reply, Server};
use crate::covering::{self, Row};
use crate::factors::{self, factor};

/// A shape of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    way: Way,
    method: Method,
    status: Status,
    version: Version,
    framing: Framing,
    coding: Coding,
    trailers: Trailers,
    end: End,
    reader: Reader,
}

factor! { Way { Plain, Tls } }

factor! { Method { Get, Head, Post } }

factor! { Status { Ok, NoContent, Partial, NotModified, NotFound, Broken, AfterHints } }

factor! { Version { Http10, Http11 } }

factor! {
    Framing { Length, Chunked, Both, Neither, Identity, TwoEqualLengths, TwoLengths, NoContent }
}

factor! { Trailers { None, Some } }

factor! {
    /// The way in which the connection ends behind the answer: over TLS with a close_notify, but for the last one.
    End { Stays, Closes, HalfCloses, Resets, ExtraBytes, Cut, NoNotice }
}

factor! {
    /// What reads the body.
    Reader { Plain, Layer, AttemptLayer, PassedOn }
}

impl Shape {
    const SIZES: [usize; 9] = [
        Method::ALL.len(),
        Status::ALL.len(),
        Version::ALL.len(),
        Framing::ALL.len(),
        Coding::ALL.len(),
        Trailers::ALL.len(),
        End::ALL.len(),
        Reader::ALL.len(),
        Way::ALL.len(),
    ];

    fn of(row: &Row) -> Self {
        Self {
            method: Method::ALL[row[0]],
            status: Status::ALL[row[1]],
            version: Version::ALL[row[2]],
            framing: Framing::ALL[row[3]],
            coding: Coding::ALL[row[4]],
            trailers: Trailers::ALL[row[5]],
            end: End::ALL[row[6]],
            reader: Reader::ALL[row[7]],
            way: Way::ALL[row[8]],
        }
    }

    /// Returns false for what does not exist: trailers without chunks, content without an end, hints in HTTP/1.0.
    fn makes_sense(self) -> bool {
        let is_chunked = matches!(self.framing, Framing::Chunked | Framing::Both);
        let has_end = !(self.framing == Framing::Neither && matches!(self.end, End::Stays | End::ExtraBytes));
        let is_cut = self.end == End::Cut && (self.framing == Framing::NoContent || self.has_no_content());
        let hints = self.status == Status::AfterHints && self.version == Version::Http10;
        let has_notices = self.end != End::NoNotice || self.way == Way::Tls;
        (self.trailers == Trailers::None || is_chunked) && has_end && !is_cut && !hints && has_notices
    }

    /// Returns true if there is no content whatever the headers say (RFC 9112 §6.3).
    fn has_no_content(self) -> bool {
        self.method == Method::Head || matches!(self.status, Status::NoContent | Status::NotModified)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, method, status, version, framing, coding, trailers, end, reader } = self;
        write!(f, "{way:?} {method:?} {status:?} {version:?} {framing:?} {coding:?} {trailers:?} {end:?} {reader:?}")
    }
}

const AT_ONCE: usize = 16;
const TOO_LONG: Duration = Duration::from_secs(20);

#[test]
fn each_shape_of_an_answer_is_read_as_the_rfcs_say() {
    let (seed, rounds) = (factors::number("SEED", 1), factors::number("ROUNDS", 1));
    for seed in seed..seed + rounds {
        let rows = covering::rows(&Shape::SIZES, 3, seed, |row| Shape::of(row).makes_sense());
        let shapes: Vec<_> = rows.iter().map(Shape::of).filter(factors::is_chosen).collect();
        let replies = shapes.iter().map(|shape| (shape.to_string(), *shape, oracle::reply(*shape)));
        let failed = try_all(replies.collect());
        assert!(failed.is_empty(), "SEED={seed}: {} of {} failed\n{}", failed.len(), shapes.len(), failed.join("\n"));
    }
}

#[test]
fn an_answer_that_is_cut_at_any_byte_is_never_taken_for_a_whole_one() {
    let framings = [Framing::Length, Framing::Chunked, Framing::Neither];
    let mut replies = Vec::new();
    for (framing, coding) in
        framings.into_iter().flat_map(|framing| Coding::ALL.iter().map(move |coding| (framing, *coding)))
    {
        let shape = Shape {
            way: Way::Plain,
            method: Method::Get,
            status: Status::Ok,
            version: Version::Http11,
            framing,
            coding,
            trailers: Trailers::None,
            end: End::Closes,
            reader: Reader::Plain,
        };
        let (whole, expected) = oracle::reply(shape);
        for cut in 0..whole.bytes.len() {
            let bytes = whole.bytes[..cut].to_vec();
            let head = whole.bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let expected = match framing {
                // What is closed by the end of the connection is whole at each byte, unless a coding says otherwise.
                Framing::Neither if cut >= head && coding == Coding::Plain => Expected::Content(bytes[head..].to_vec()),
                // An empty body has no coding.
                Framing::Neither if cut == head => Expected::Content(Vec::new()),
                _ => Expected::Error,
            };
            replies.push((format!("{shape}, cut at {cut}"), shape, (Reply { bytes, ..whole.clone() }, expected)));
        }
        replies.push((shape.to_string(), shape, (whole, expected)));
    }
    let failed = try_all(replies);
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
}

/// Tries answers, and returns what is wrong with each that fails.
fn try_all(replies: Vec<(String, Shape, (Reply, Expected))>) -> Vec<String> {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = &server;
        let calls = replies.into_iter().map(|(name, shape, (reply, expected))| async move {
            let result = timeout(TOO_LONG, try_one(shape, reply, &expected, server)).await;
            let result = result.unwrap_or_else(|_| Err("it hangs".to_owned()));
            result.err().map(|what| format!("{name}: {what}, in place of {expected:?}"))
        });
        let results: Vec<_> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
        results.into_iter().flatten().collect()
    })
}

async fn try_one(shape: Shape, reply: Reply, expected: &Expected, server: &Server) -> Result<(), String> {
    let wait = || ServiceBuilder::new().timeout(Duration::from_secs(60)).into_inner();
    let builder = Client::builder().no_proxy().tls_certs_only([server.trusted()]).http1_only();
    let client = match shape.reader {
        Reader::Plain | Reader::PassedOn => builder,
        Reader::Layer => builder.layer(wait()),
        Reader::AttemptLayer => builder.attempt_layer(wait()),
    };
    let client = client.build().unwrap();
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    server.add(id, reply);
    let origin = server.origin(shape.way);
    let url = format!("{origin}/{id}");
    let method = shape.method.name().parse().unwrap();
    let result = read(&client, client.request(method, &url), shape, server).await;
    check(shape, result, expected)?;
    let next = client.get(format!("{origin}/next")).send().await;
    let next = next.map_err(|error| format!("the next call: {error:?}"))?.text().await;
    if next.as_deref().ok() != Some("ok") {
        return Err(format!("the next response: {next:?}"));
    }
    factors::settles(&client).await
}

/// Reads a response to its end, or has it sent on. Returns its status and content.
async fn read(
    client: &Client,
    request: speeddial::RequestBuilder,
    shape: Shape,
    server: &Server,
) -> Result<(u16, Vec<u8>), Arc<speeddial::Error>> {
    let response = request.send().await.map_err(Arc::new)?;
    let (status, timings) = (response.status().as_u16(), response.timings());
    if shape.reader == Reader::PassedOn {
        let url = format!("{}/echo", server.echo(shape.way));
        let echoed = client.post(url).body(Body::from(response)).send().await.map_err(Arc::new)?;
        return Ok((status, echoed.bytes().await.map_err(Arc::new)?.to_vec()));
    }
    let body = response.bytes().await.map_err(Arc::new)?;
    let sum: Duration = Phase::ALL.map(|phase| timings.spent(phase)).iter().sum();
    assert_eq!(sum, timings.total(), "{shape}");
    Ok((status, body.to_vec()))
}

fn check(
    shape: Shape,
    result: Result<(u16, Vec<u8>), Arc<speeddial::Error>>,
    expected: &Expected,
) -> Result<(), String> {
    let fits = match (&result, expected) {
        (Ok((status, body)), Expected::Content(content) | Expected::ContentOrError(content)) => {
            *status == shape.status.code() && body == content
        }
        (Err(_), Expected::Error | Expected::ContentOrError(_)) => true,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let told = result.map(|(status, body)| format!("{status} {:?}", String::from_utf8_lossy(&body)));
    Err(format!("{told:?}"))
}
