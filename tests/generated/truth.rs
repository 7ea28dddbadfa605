//! What is said is true: calls of which the world delays one part, and the cause that `why()` names.
//!
//! Time is paused, so the world knows to the millisecond what it did.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use speeddial::dns::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};
use speeddial::token::{Token, TokenSource};
use speeddial::trace::{Cause, Phase, Timings};
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Body, Client, ClientBuilder, PoolConfig, Proxy, RetryPolicy};
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

impl Resolve for World {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
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
        let is_first = requests == 1;
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
            stream.write_all(reply.as_bytes()).await.unwrap();
            continue;
        }
        if head.contains("/first ") {
            delays.wait(Place::Queue).await;
        } else {
            delays.wait(Place::Server).await;
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhe";
        stream.write_all(head.as_bytes()).await.unwrap();
        delays.wait(Place::Body).await;
        if stream.write_all(b"re").await.is_err() {
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
        let timings = call(shape, builder.dns_resolver(world.clone()).transport(world)).await;
        if let Err(what) = check(shape, &timings) {
            failed.push(format!("{shape}: {what}\n{timings:#}"));
        }
    }
    assert!(failed.is_empty(), "SEED={seed}: {} calls\n{}", failed.len(), failed[..failed.len().min(10)].join("\n"));
}

/// The time by which a call that has the only connection begins before the other one.
const FIRST_LEADS: Duration = Duration::from_millis(60);

async fn call(shape: Shape, builder: ClientBuilder) -> Timings {
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
    handle.timings()
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
    let before = if shape.slow == Place::Queue { FIRST_LEADS } else { Duration::ZERO };
    let delay = shape.delays.of(shape.slow) - before;
    let is_near = main.time >= delay.mul_f64(0.9) && main.time <= delay.mul_f64(1.1) + Duration::from_millis(30);
    if is_near { Ok(()) } else { Err(format!("{:?} in place of {delay:?}: {why}", main.time)) }
}
