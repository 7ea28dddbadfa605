//! speeddial beside hyper's bare connection, hyper-util's client and reqwest: the same requests to the same server, in turn, in one
//! run. Prints a table of CPU time and wall time a request; `-- --write` puts it into README.md, and a chart beside it.
//!
//! The client has one thread, and the server another one. Of each client the median round counts.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

#[allow(dead_code, reason = "others use the rest of it")]
#[path = "../tests/support/http_server.rs"]
mod http_server;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use http_server::HttpServer;
use hyper::client::conn::{http1, http2};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plotters::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

/// What is asked for, and how.
#[derive(Debug, Clone, Copy)]
struct Work {
    name: &'static str,
    http2: bool,
    in_flight: usize,
    /// Of the request's body, and of the response's.
    up: usize,
    down: usize,
    requests: usize,
}

const WORK: [Work; 8] = [
    Work { name: "HTTP/1.1, 1 in flight", http2: false, in_flight: 1, up: 0, down: 12, requests: 4_000 },
    Work { name: "HTTP/1.1, 64 in flight", http2: false, in_flight: 64, up: 0, down: 12, requests: 12_800 },
    Work { name: "HTTP/1.1, 1,000 in flight", http2: false, in_flight: 1_000, up: 0, down: 12, requests: 12_000 },
    Work {
        name: "HTTP/1.1, POST of 16 KiB, 64 in flight",
        http2: false,
        in_flight: 64,
        up: 16 << 10,
        down: 12,
        requests: 6_400,
    },
    Work { name: "HTTP/1.1, 1 MiB back, 4 in flight", http2: false, in_flight: 4, up: 0, down: 1 << 20, requests: 400 },
    Work { name: "HTTP/2, 1 in flight", http2: true, in_flight: 1, up: 0, down: 12, requests: 4_000 },
    Work { name: "HTTP/2, 64 in flight", http2: true, in_flight: 64, up: 0, down: 12, requests: 12_800 },
    Work { name: "HTTP/2, 1 MiB back, 4 in flight", http2: true, in_flight: 4, up: 0, down: 1 << 20, requests: 200 },
];
const CLIENTS: [&str; 4] = ["hyper", "speeddial", "hyper-util", "reqwest"];

/// A client under test; it counts the bytes of the response's body.
trait Ask: Clone {
    fn ask(&mut self, body: Bytes) -> impl Future<Output = usize>;
}

#[derive(Clone)]
struct Speeddial(speeddial::Client, speeddial::Url);

impl Ask for Speeddial {
    async fn ask(&mut self, body: Bytes) -> usize {
        let request = match body.is_empty() {
            true => self.0.get(&self.1),
            false => self.0.post(&self.1).body(body),
        };
        read(request.send().await.expect("a response")).await
    }
}

async fn read(mut response: speeddial::Response) -> usize {
    let mut length = 0;
    while let Some(chunk) = response.chunk().await.expect("a body") {
        length += chunk.len();
    }
    length
}

async fn drained(response: hyper::Response<hyper::body::Incoming>) -> usize {
    let (mut body, mut length) = (response.into_body(), 0);
    while let Some(frame) = body.frame().await {
        length += frame.expect("a body").data_ref().map_or(0, Bytes::len);
    }
    length
}

fn message(url: &hyper::Uri, body: Bytes) -> hyper::Request<Full<Bytes>> {
    let method = if body.is_empty() { "GET" } else { "POST" };
    hyper::Request::builder().method(method).uri(url.clone()).body(Full::new(body)).expect("a request")
}

#[derive(Clone)]
struct Legacy(legacy::Client<HttpConnector, Full<Bytes>>, hyper::Uri);

impl Ask for Legacy {
    async fn ask(&mut self, body: Bytes) -> usize {
        drained(self.0.request(message(&self.1, body)).await.expect("a response")).await
    }
}

#[derive(Clone)]
struct Reqwest(reqwest::Client, reqwest::Url);

impl Ask for Reqwest {
    async fn ask(&mut self, body: Bytes) -> usize {
        let request = match body.is_empty() {
            true => self.0.get(self.1.clone()),
            false => self.0.post(self.1.clone()).body(body),
        };
        let (mut response, mut length) = (request.send().await.expect("a response"), 0);
        while let Some(chunk) = response.chunk().await.expect("a body") {
            length += chunk.len();
        }
        length
    }
}

/// hyper's own connection, one a task: the limit for everybody who builds on it.
struct Bare1(SocketAddr, Option<http1::SendRequest<Full<Bytes>>>);

impl Clone for Bare1 {
    fn clone(&self) -> Self {
        Self(self.0, None)
    }
}

impl Ask for Bare1 {
    async fn ask(&mut self, body: Bytes) -> usize {
        let sender = match &mut self.1 {
            Some(sender) => sender,
            none => {
                let (sender, connection) = http1::handshake(TokioIo::new(connect(self.0).await)).await.expect("http");
                tokio::spawn(connection);
                none.insert(sender)
            }
        };
        sender.ready().await.expect("an open connection");
        let mut request = message(&hyper::Uri::from_static("/"), body);
        request.headers_mut().insert("host", hyper::header::HeaderValue::from_static("localhost"));
        drained(sender.send_request(request).await.expect("a response")).await
    }
}

/// The same over HTTP/2, one for all tasks, with the windows that speeddial has.
#[derive(Clone)]
struct Bare2(http2::SendRequest<Full<Bytes>>, hyper::Uri);

impl Bare2 {
    async fn new(address: SocketAddr) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(1 << 20).initial_connection_window_size(1 << 26);
        let (sender, connection) = builder.handshake(TokioIo::new(connect(address).await)).await.expect("http");
        tokio::spawn(connection);
        Self(sender, format!("http://{address}/").parse().expect("a URI"))
    }
}

impl Ask for Bare2 {
    async fn ask(&mut self, body: Bytes) -> usize {
        self.0.ready().await.expect("an open connection");
        let request = message(&self.1, body);
        drained(self.0.send_request(request).await.expect("a response")).await
    }
}

async fn connect(address: SocketAddr) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpStream::connect(address).await.expect("a connection");
    socket.set_nodelay(true).expect("nodelay");
    socket
}

/// What a request took: of the client's thread, and in all.
#[derive(Debug, Clone, Copy)]
struct Took {
    cpu: Duration,
    wall: Duration,
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// One round: its requests are shared among as many tasks as may be in flight, after one each to warm up.
async fn round(client: impl Ask, work: Work, requests: usize) -> Took {
    let body = Bytes::from(vec![b'x'; work.up]);
    let share = |mut client: _, count: usize| {
        let body = body.clone();
        async move {
            for _ in 0..count {
                assert_eq!(Ask::ask(&mut client, body.clone()).await, work.down);
            }
            client
        }
    };
    let clients = join_all((0..work.in_flight).map(|_| share(client.clone(), 1))).await;
    let each = (requests / work.in_flight).max(1);
    let (cpu, start) = (thread_time(), Instant::now());
    join_all(clients.into_iter().map(|client| share(client, each))).await;
    let count = (each * work.in_flight) as u32;
    Took { cpu: (thread_time() - cpu) / count, wall: start.elapsed() / count }
}

/// All clients in turn, so often; of each the median of its rounds.
fn compare(runtime: &Runtime, work: Work, rounds: usize, requests: usize) -> [Took; 4] {
    let server = HttpServer::start_as(work.http2, move |request: hyper::Request<hyper::body::Incoming>| async move {
        let up = request.into_body().collect().await.expect("a body").to_bytes().len();
        assert_eq!(up, work.up);
        static BODY: &[u8] = &[b'x'; 1 << 20];
        let body = Full::new(Bytes::from_static(&BODY[..work.down]));
        hyper::Response::new(body.map_err(|error| match error {}).boxed())
    })
    .expect("a port on loopback");
    let url = format!("http://{}/", server.address());
    runtime.block_on(async {
        let builder = speeddial::Client::builder().no_proxy();
        let builder = if work.http2 { builder.http2_prior_knowledge() } else { builder };
        let ours = Speeddial(builder.build().expect("a client"), url.parse().expect("a URL"));
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.http2_only(work.http2).http2_initial_stream_window_size(1 << 20);
        builder.http2_initial_connection_window_size(1 << 26);
        let legacy = Legacy(builder.build(connector), url.parse().expect("a URI"));
        let builder = reqwest::Client::builder().no_proxy().tcp_nodelay(true);
        let builder = match work.http2 {
            true => builder
                .http2_prior_knowledge()
                .http2_initial_stream_window_size(1 << 20)
                .http2_initial_connection_window_size(1 << 26),
            false => builder,
        };
        let reqwest = Reqwest(builder.build().expect("a client"), url.parse().expect("a URL"));
        let bare1 = Bare1(server.address(), None);
        let bare2 = if work.http2 { Some(Bare2::new(server.address()).await) } else { None };
        let mut took = [(); 4].map(|()| Vec::new());
        for _ in 0..rounds {
            took[0].push(match &bare2 {
                Some(bare) => round(bare.clone(), work, requests).await,
                None => round(bare1.clone(), work, requests).await,
            });
            took[1].push(round(ours.clone(), work, requests).await);
            took[2].push(round(legacy.clone(), work, requests).await);
            took[3].push(round(reqwest.clone(), work, requests).await);
        }
        took.map(|rounds| Took {
            cpu: median(rounds.iter().map(|took| took.cpu)),
            wall: median(rounds.iter().map(|took| took.wall)),
        })
    })
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<_> = times.collect();
    times.sort();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1_000.0
}

fn table(results: &[(Work, [Took; 4])]) -> String {
    let mut text = String::from(
        "| CPU time a request, µs (wall time) | hyper's bare connection | speeddial | hyper-util's client | reqwest | speeddial to hyper | to \
         hyper-util | to reqwest |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (work, took) in results {
        let cell = |took: &Took| format!("{:.1} ({:.1})", micros(took.cpu), micros(took.wall));
        let ratio = |other: usize| format!("{:.2}", micros(took[1].cpu) / micros(took[other].cpu));
        let cells: Vec<_> = took.iter().map(cell).chain([0, 2, 3].map(ratio)).collect();
        let _ = writeln!(text, "| {} | {} |", work.name, cells.join(" | "));
    }
    text
}

/// Bars of CPU time, as parts of hyper's.
fn chart(results: &[(Work, [Took; 4])], path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, (960, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = results
        .iter()
        .flat_map(|(_, took)| took.map(|each| micros(each.cpu) / micros(took[0].cpu)))
        .fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption("CPU time a request, hyper's bare connection = 1", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..results.len() as f64, 0.0..most * 1.1)?;
    let name =
        |at: &f64| results.get(*at as usize).map_or(String::new(), |(work, _)| work.name.replace(" in flight", ""));
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(results.len())
        .x_label_formatter(&name)
        .label_style(("sans-serif", 9))
        .draw()?;
    let colors = [RGBColor(150, 150, 150), RGBColor(200, 60, 40), RGBColor(70, 110, 170), RGBColor(90, 150, 90)];
    for (number, client) in CLIENTS.iter().enumerate() {
        let bars = results.iter().enumerate().map(|(at, (_, took))| {
            let left = at as f64 + 0.1 + number as f64 * 0.2;
            let height = micros(took[number].cpu) / micros(took[0].cpu);
            Rectangle::new([(left, 0.0), (left + 0.18, height)], colors[number].filled())
        });
        let color = colors[number];
        chart
            .draw_series(bars)?
            .label(*client)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

const START: &str = "<!-- compare -->\n";
const END: &str = "<!-- /compare -->\n";

fn write(text: &str, results: &[(Work, [Took; 4])]) -> Result<(), Box<dyn std::error::Error>> {
    let root = env!("CARGO_MANIFEST_DIR");
    let path = format!("{root}/README.md");
    let readme = std::fs::read_to_string(&path)?;
    let (before, rest) = readme.split_once(START).ok_or("README.md has no place for the table")?;
    let (_, after) = rest.split_once(END).ok_or("README.md has no end of the table")?;
    std::fs::write(path, format!("{before}{START}{text}{END}{after}"))?;
    chart(results, &format!("{root}/benches/compare.svg"))
}

/// A package and its version, as it was built.
fn version(package: &str) -> String {
    let locked = include_str!("../Cargo.lock").split("[[package]]");
    let mut versions =
        locked.filter_map(|entry| entry.split_once(&format!("name = \"{package}\"\nversion = \""))?.1.split_once('"'));
    format!("{package} {}", versions.next().map_or("?", |(version, _)| version))
}

/// The processor's name, as the system has it.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores of {}", name.map_or("an unknown processor", |(_, name)| name))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let is_test = has("--test");
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut results = Vec::new();
    for work in WORK {
        let (rounds, requests) = if is_test { (1, work.in_flight) } else { (9, work.requests) };
        results.push((work, compare(&runtime, work, rounds, requests)));
    }
    let versions = ["speeddial", "hyper", "hyper-util", "reqwest"].map(version).join(", ");
    let text = format!(
        "{}\n{}, {versions}; medians of nine alternating rounds (`cargo bench --bench compare`; `-- --write` writes this table and \
         `benches/compare.svg`).\n",
        table(&results),
        machine(),
    );
    println!("{text}");
    if has("--write") {
        write(&text, &results)?;
    }
    Ok(())
}
