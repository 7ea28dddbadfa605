//! What is said is true: calls of which the world delays one part, and the cause that `why()` names, the times of a HAR document and of
//! spans, and the figures of the queue.
//!
//! Time is paused, so the world knows to the millisecond what it did.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use opentelemetry::trace::{SpanKind, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde_json::Value;
use speeddial::dns::{Answer, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};
use speeddial::pool::PoolStats;
use speeddial::token::{Token, TokenSource};
use speeddial::trace::{Cause, Phase, Timings};
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Body, Client, ClientBuilder, PoolConfig, Proxy, RetryPolicy};
use speeddial_inspect::Har;
use speeddial_opentelemetry::{PhaseDetail, Spans};
use support::certs::Authority;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::factors::{self, factor};

factor! {
    /// A part of a call that may take its time.
    Place {
        Dns, Connect, Proxy, Tls, Layer, Upload, Send, Server, Body, Reader, Queue, Backoff, Token, Redirect,
    }
}

factor! { Way { Plain, Tls, Tunnel } }

/// The milliseconds that each part of a call takes.
#[derive(Debug, Clone, Copy, Default)]
struct Delays([u64; Place::ALL.len()]);

impl Delays {
    fn of(&self, place: Place) -> Duration {
        Duration::from_millis(self.0[place as usize])
    }

    async fn wait(&self, place: Place) {
        sleep(self.of(place)).await;
    }
}

/// A call: the part that takes most of its time, and for how long.
#[derive(Debug, Clone, Copy)]
struct Shape {
    way: Way,
    slow: Place,
    delays: Delays,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.way, self.slow, self.delays.0)
    }
}

impl Shape {
    fn random(random: &mut fastrand::Rng) -> Self {
        loop {
            let way = Way::ALL[random.usize(..Way::ALL.len())];
            let slow = Place::ALL[random.usize(..Place::ALL.len())];
            let exists = match slow {
                Place::Proxy => way == Way::Tunnel,
                Place::Tls => way != Way::Plain,
                _ => true,
            };
            if !exists {
                continue;
            }
            let mut delays = Delays::default();
            delays.0.iter_mut().for_each(|delay| *delay = random.u64(..5));
            // These take no time of their own elsewhere.
            for place in [Place::Queue, Place::Backoff, Place::Token, Place::Redirect] {
                delays.0[place as usize] = 0;
            }
            delays.0[slow as usize] = match slow {
                // `Retry-After` has seconds.
                Place::Backoff => random.u64(1..4) * 1_000,
                _ => random.u64(300..3_000),
            };
            // Otherwise all of the body has come, and the call is over, before the reader takes its time.
            delays.0[Place::Body as usize] += 1;
            return Self { way, slow, delays };
        }
    }

    /// Returns the time that the slow part takes.
    fn delay(self) -> Duration {
        let before = if self.slow == Place::Queue { FIRST_LEADS } else { Duration::ZERO };
        self.delays.of(self.slow) - before
    }

    /// Returns true if a time is that of the slow part.
    fn is_near(self, time: Duration) -> bool {
        let delay = self.delay();
        time >= delay.mul_f64(0.9) && time <= delay.mul_f64(1.1) + Duration::from_millis(30)
    }

    /// Returns the number of requests that the server gets of the call.
    fn requests(self) -> usize {
        if matches!(self.slow, Place::Backoff | Place::Redirect) { 2 } else { 1 }
    }

    /// Returns the member of the times of a HAR entry in which the slow part is, and whether the entry is that of the first request.
    fn har_member(self) -> Option<(&'static str, bool)> {
        Some(match self.slow {
            Place::Dns => ("dns", true),
            Place::Connect => ("connect", true),
            Place::Proxy => ("_proxy", true),
            Place::Tls => ("ssl", true),
            Place::Upload | Place::Send => ("send", true),
            Place::Server => ("wait", true),
            Place::Redirect => ("wait", true),
            Place::Body | Place::Reader => ("receive", true),
            Place::Queue => ("blocked", true),
            Place::Backoff => ("_backoff", false),
            // They are told beside the phases.
            Place::Layer | Place::Token => return None,
        })
    }

    /// Returns the phase in which the slow part is, if it is in one of them.
    fn phase(self) -> Option<Phase> {
        Some(match self.slow {
            Place::Dns => Phase::Dns,
            Place::Connect => Phase::Connect,
            Place::Proxy => Phase::Proxy,
            Place::Tls => Phase::Tls,
            Place::Upload | Place::Send => Phase::Send,
            Place::Server | Place::Redirect => Phase::Wait,
            Place::Body | Place::Reader => Phase::Receive,
            Place::Queue => Phase::Queue,
            Place::Backoff | Place::Layer | Place::Token => return None,
        })
    }

    /// Returns the causes that name the slow part.
    fn causes(self) -> &'static [Cause] {
        match self.slow {
            Place::Dns => &[Cause::DnsQueried],
            Place::Connect => &[Cause::ConnectSlow],
            Place::Proxy => &[Cause::ProxySlow],
            Place::Tls => &[Cause::TlsHandshake],
            Place::Layer => &[Cause::OwnCode],
            Place::Upload => &[Cause::RequestBodyLate],
            Place::Send => &[Cause::SendSlow],
            Place::Server => &[Cause::ServerSlow],
            Place::Body => &[Cause::BodySlow],
            Place::Reader => &[Cause::ReaderSlow],
            Place::Queue => &[Cause::HostConnectionsInUse],
            Place::Backoff => &[Cause::Backoff],
            Place::Token => &[Cause::TokenWait],
            Place::Redirect => &[Cause::Redirected],
        }
    }
}

/// A network and a DNS server that take their time.
#[derive(Clone)]
struct World {
    shape: Shape,
    acceptor: TlsAcceptor,
}

impl Transport for World {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            self.shape.delays.wait(Place::Connect).await;
            let (near, far) = tokio::io::duplex(16 * 1024);
            tokio::spawn(serve_connection(self.clone(), far));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

impl Resolver for World {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            self.shape.delays.wait(Place::Dns).await;
            match family {
                Family::V4 => Ok(Answer::new(vec![[192, 0, 2, 1].into()], Duration::from_secs(60), Source::Miss)),
                Family::V6 => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)),
            }
        })
    }
}

async fn serve_connection(world: World, mut stream: DuplexStream) {
    let delays = world.shape.delays;
    match world.shape.way {
        Way::Plain => return serve(world.shape, stream).await,
        Way::Tunnel => {
            if support::read_request_head(&mut stream).await.is_none() {
                return;
            }
            delays.wait(Place::Proxy).await;
            if stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.is_err() {
                return;
            }
        }
        Way::Tls => {}
    }
    delays.wait(Place::Tls).await;
    if let Ok(stream) = world.acceptor.accept(stream).await {
        serve(world.shape, stream).await;
    }
}

/// The bytes of an upload: more than the network holds.
const UPLOAD: usize = 200 * 1024;

async fn serve(shape: Shape, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let delays = shape.delays;
    let mut requests = 0;
    while let Some(head) = read_head(&mut stream).await {
        requests += 1;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        delays.wait(Place::Send).await;
        if stream.read_exact(&mut body).await.is_err() {
            return;
        }
        let (is_first, is_head) = (requests == 1, head.starts_with("HEAD "));
        let reply = match shape.slow {
            Place::Backoff if is_first => {
                let seconds = delays.of(Place::Backoff).as_secs();
                format!("HTTP/1.1 503 Busy\r\nretry-after: {seconds}\r\ncontent-length: 0\r\n\r\n")
            }
            Place::Redirect if is_first => {
                delays.wait(Place::Redirect).await;
                "HTTP/1.1 307 Elsewhere\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            _ => String::new(),
        };
        if !reply.is_empty() {
            support::send(&mut stream, reply.as_bytes()).await.unwrap();
            continue;
        }
        if head.contains("/first ") {
            delays.wait(Place::Queue).await;
        } else {
            delays.wait(Place::Server).await;
        }
        if is_head {
            support::send(&mut stream, b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n").await.unwrap();
            continue;
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhe";
        support::send(&mut stream, head.as_bytes()).await.unwrap();
        delays.wait(Place::Body).await;
        if support::send(&mut stream, b"re").await.is_err() {
            return;
        }
    }
}

/// Reads the head of a request byte by byte.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

#[tokio::test(start_paused = true)]
async fn why_names_the_part_that_was_slow_in_2_000_calls() {
    let seed = factors::number("SEED", 1);
    let mut random = fastrand::Rng::with_seed(seed);
    let authority = Authority::new();
    let acceptor = TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"]));
    let certificate = speeddial::tls::Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let mut failed = Vec::new();
    for _ in 0..factors::number("ROUNDS", 1) * 2_000 {
        let shape = Shape::random(&mut random);
        let world = World { shape, acceptor: acceptor.clone() };
        let builder = Client::builder().tls_certs_only([certificate.clone()]);
        let (har, spans) = (Har::last(9), InMemorySpanExporter::default());
        let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
        let observer = Spans::with_tracer(provider.tracer("client")).phases(PhaseDetail::Spans);
        let builder = builder.dns_resolver(world.clone()).transport(world).observer(har.clone()).observer(observer);
        let (timings, stats) = call(shape, builder).await;
        let document = serde_json::from_str(&har.to_json()).unwrap();
        let spans = spans.get_finished_spans().unwrap();
        let checked = [
            check(shape, &timings),
            check_har(shape, &document),
            check_spans(shape, &spans),
            check_queue(shape, &stats),
        ];
        for what in checked.into_iter().filter_map(Result::err) {
            failed.push(format!("{shape}: {what}\n{timings:#}"));
        }
    }
    assert!(failed.is_empty(), "SEED={seed}: {} calls\n{}", failed.len(), failed[..failed.len().min(10)].join("\n"));
}

/// The time by which a call that has the only connection begins before the other one.
const FIRST_LEADS: Duration = Duration::from_millis(60);

async fn call(shape: Shape, builder: ClientBuilder) -> (Timings, PoolStats) {
    let delays = shape.delays;
    let layer = tower::layer::layer_fn(move |inner: speeddial::layers::AttemptService| {
        tower::service_fn(move |request: speeddial::http::Request<Body>| {
            let inner = inner.clone();
            async move {
                delays.wait(Place::Layer).await;
                tower::ServiceExt::oneshot(inner, request).await
            }
        })
    });
    let most = if shape.slow == Place::Queue { 1 } else { 100 };
    let pool = PoolConfig::new().max_connections_per_host(most);
    let mut builder = builder.attempt_layer(layer).pool(pool).http1_only();
    builder = match shape.way {
        Way::Tunnel => builder.proxy(Proxy::all("http://proxy.test:3128").unwrap()),
        Way::Plain | Way::Tls => builder.no_proxy(),
    };
    if shape.slow == Place::Backoff {
        builder = builder.retry(RetryPolicy::new().no_budget());
    }
    if shape.slow == Place::Token {
        builder = builder.token_source(TokenSource::new(move || async move {
            delays.wait(Place::Token).await;
            Ok::<_, std::convert::Infallible>(Token::new("t"))
        }));
    }
    let client = builder.build().unwrap();
    let scheme = if shape.way == Way::Plain { "http" } else { "https" };
    let url = |path: &str| format!("{scheme}://api.test/{path}");
    if shape.slow == Place::Queue {
        let first = client.get(url("first"));
        tokio::spawn(async move { first.send().await?.bytes().await });
        // Its connection is open by then.
        sleep(FIRST_LEADS).await;
    }
    let request = match shape.slow {
        Place::Upload | Place::Send => {
            let half = Bytes::from(vec![0; UPLOAD / 2]);
            let pieces = stream::unfold(0, move |sent| {
                let half = half.clone();
                async move {
                    if sent == 1 {
                        delays.wait(Place::Upload).await;
                    }
                    (sent < 2).then_some((Ok::<_, std::io::Error>(half), sent + 1))
                }
            });
            client.put(url("x")).body(Body::sized(UPLOAD as u64, pieces))
        }
        _ => client.get(url("x")),
    };
    let mut response = request.send().await.unwrap();
    let handle = response.timings_handle();
    response.chunk().await.unwrap();
    delays.wait(Place::Reader).await;
    while response.chunk().await.unwrap().is_some() {}
    factors::settles(&client).await.unwrap();
    (handle.timings(), client.pool_stats())
}

fn check(shape: Shape, timings: &Timings) -> Result<(), String> {
    let sum: Duration = Phase::ALL.map(|phase| timings.spent(phase)).iter().sum();
    if sum != timings.total() {
        return Err(format!("the phases are {sum:?} of {:?}", timings.total()));
    }
    let why = timings.why();
    let Some(main) = why.main() else { return Err("no cause".to_owned()) };
    if !shape.causes().contains(&main.cause) {
        return Err(format!("it says: {why}"));
    }
    if shape.is_near(main.time) {
        Ok(())
    } else {
        Err(format!("{:?} in place of {:?}: {why}", main.time, shape.delay()))
    }
}

/// Checks that the times of each entry add up, that there is one for each request, and that the slow part is where the format has it.
fn check_har(shape: Shape, document: &Value) -> Result<(), String> {
    let entries = document["log"]["entries"].as_array().unwrap();
    let of_call = |entry: &&Value| !entry["request"]["url"].as_str().unwrap().ends_with("/first");
    let entries: Vec<_> = entries.iter().filter(of_call).collect();
    if entries.len() != shape.requests() {
        return Err(format!("{} HAR entries in place of {}", entries.len(), shape.requests()));
    }
    for entry in &entries {
        let time = |name: &str| entry["timings"][name].as_f64().filter(|time| *time >= 0.0).unwrap_or(0.0);
        // `ssl` is a part of `connect`.
        let sum: f64 = ["blocked", "dns", "connect", "send", "wait", "receive"].into_iter().map(time).sum();
        let total = entry["time"].as_f64().unwrap();
        if (sum - total).abs() > 1e-3 {
            return Err(format!("the times of a HAR entry are {sum} of {total} ms: {}", entry["timings"]));
        }
    }
    let Some((member, is_first)) = shape.har_member() else { return Ok(()) };
    let entry = if is_first { entries[0] } else { entries[entries.len() - 1] };
    let millis = entry["timings"][member].as_f64().or(entry[member].as_f64());
    let Some(millis) = millis else { return Err(format!("HAR has no {member}: {entry}")) };
    if shape.is_near(Duration::from_secs_f64(millis / 1e3)) {
        Ok(())
    } else {
        Err(format!("HAR has {member} of {millis} ms in place of {:?}: {}", shape.delay(), entry["timings"]))
    }
}

/// Checks that each request has a span, and that the span of the phase in which the slow part is takes its time.
fn check_spans(shape: Shape, spans: &[SpanData]) -> Result<(), String> {
    let lasts = |span: &SpanData| span.end_time.duration_since(span.start_time).unwrap_or_default();
    let requests = spans.iter().filter(|span| span.span_kind == SpanKind::Client).count();
    let others = usize::from(shape.slow == Place::Queue);
    if requests != shape.requests() + others {
        return Err(format!("{requests} spans of requests"));
    }
    let Some(phase) = shape.phase() else { return Ok(()) };
    let longest = spans.iter().filter(|span| span.name == phase.as_str()).map(lasts).max().unwrap_or_default();
    if shape.is_near(longest) {
        Ok(())
    } else {
        Err(format!("the span of {phase} lasts {longest:?} in place of {:?}", shape.delay()))
    }
}

/// Checks that each request that entered the queue left it with a connection, after the time that the world let it wait.
fn check_queue(shape: Shape, stats: &PoolStats) -> Result<(), String> {
    let queue = stats.queue;
    let is_clean = queue.failed + queue.timed_out + queue.cancelled + queue.refused == 0;
    // The first call waited for its dial alone.
    let waited = stats.queue_time.sum();
    let is_long = shape.slow != Place::Queue || shape.is_near(waited);
    if is_clean && queue.entered == queue.served && queue.entered >= 1 && is_long {
        return Ok(());
    }
    Err(format!("{queue:?}, they waited {waited:?} in place of {:?}", shape.delay()))
}

#[tokio::test(start_paused = true)]
async fn the_doctor_names_the_times_of_the_world() {
    let mut random = fastrand::Rng::with_seed(factors::number("SEED", 1));
    let authority = Authority::new();
    let acceptor = TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"]));
    let certificate = speeddial::tls::Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let mut tried = 0;
    while tried < 200 {
        let shape = Shape::random(&mut random);
        if shape.way == Way::Tunnel || !matches!(shape.slow, Place::Dns | Place::Connect | Place::Tls | Place::Server) {
            continue;
        }
        tried += 1;
        let world = World { shape, acceptor: acceptor.clone() };
        let builder = Client::builder().tls_certs_only([certificate.clone()]).http1_only().no_proxy();
        let client = builder.dns_resolver(world.clone()).transport(world).build().unwrap();
        let scheme = if shape.way == Way::Plain { "http" } else { "https" };
        let report = client.doctor(format!("{scheme}://api.test/")).await.unwrap();
        let (names, address) = (report.names().unwrap(), &report.addresses()[0]);
        let elapsed = match shape.slow {
            Place::Dns => names.lookups().iter().map(|lookup| lookup.elapsed()).max().unwrap(),
            Place::Connect => address.elapsed(),
            Place::Tls => address.tls().unwrap().elapsed(),
            _ => report.requests()[0].elapsed(),
        };
        assert!(shape.is_near(elapsed), "{shape}: {elapsed:?}\n{report}");
    }
}
