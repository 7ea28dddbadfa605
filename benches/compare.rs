//! speeddial beside hyper's bare connection, hyper-util's client and reqwest: the same requests to the same server, in turn, in one
//! run. Prints a table of CPU time and wall time a request; `-- --write` puts it into README.md, and a chart beside it;
//! `-- WORDS` runs the rows whose names have these words.
//!
//! The client has one thread, and the server another one. Of each client the median round counts.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod peers;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use peers::{Ask, CLIENTS, Clients, HAS_TLS, Server, Setup, Took, median, name, thread_time, with};
use plotters::prelude::*;
use tokio::runtime::{Builder, Runtime};

/// What is asked for, and how.
#[derive(Debug, Clone, Copy)]
struct Work {
    name: &'static str,
    setup: Setup,
    kind: Kind,
    in_flight: usize,
    /// Of the request's body, and of the response's.
    up: usize,
    down: usize,
    requests: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// By a client that has made requests before.
    Warm,
    /// All at once by a new client.
    ColdBurst,
    /// All at once by a client that has done that before.
    WarmBurst,
    /// By a new client, to as many names as are in flight.
    Names,
}

const ONE: Setup = Setup { http2: false, secure: false, cold: false, no_tickets: false };
const TWO: Setup = Setup { http2: true, ..ONE };
const TLS: Setup = Setup { secure: true, ..ONE };
const TLS_TWO: Setup = Setup { secure: true, ..TWO };
const COLD: Setup = Setup { cold: true, ..ONE };
const COLD_TLS: Setup = Setup { cold: true, ..TLS };
const WHOLE_TLS: Setup = Setup { no_tickets: true, ..COLD_TLS };

const fn gets(name: &'static str, setup: Setup, in_flight: usize, requests: usize) -> Work {
    Work { name, setup, kind: Kind::Warm, in_flight, up: 0, down: 12, requests }
}

const fn megabytes(name: &'static str, setup: Setup) -> Work {
    Work { down: 1 << 20, ..gets(name, setup, 4, 300) }
}

const fn posts(name: &'static str, setup: Setup) -> Work {
    Work { up: 16 << 10, ..gets(name, setup, 64, 6_400) }
}

const WORK: [Work; 19] = [
    gets("HTTP/1.1, 1 in flight", ONE, 1, 4_000),
    gets("HTTP/1.1, 64 in flight", ONE, 64, 12_800),
    gets("HTTP/1.1, 1,000 in flight", ONE, 1_000, 12_000),
    posts("HTTP/1.1, POST of 16 KiB, 64 in flight", ONE),
    megabytes("HTTP/1.1, 1 MiB back, 4 in flight", ONE),
    gets("HTTP/1.1, TLS, 64 in flight", TLS, 64, 12_800),
    megabytes("HTTP/1.1, TLS, 1 MiB back, 4 in flight", TLS),
    gets("HTTP/2, 1 in flight", TWO, 1, 4_000),
    gets("HTTP/2, 64 in flight", TWO, 64, 12_800),
    gets("HTTP/2, 1,000 in flight", TWO, 1_000, 12_000),
    posts("HTTP/2, POST of 16 KiB, 64 in flight", TWO),
    megabytes("HTTP/2, 1 MiB back, 4 in flight", TWO),
    gets("HTTP/2, TLS, 64 in flight", TLS_TWO, 64, 12_800),
    gets("a connection each, 16 in flight", COLD, 16, 3_200),
    gets("a connection each, TLS resumed, 16 in flight", COLD_TLS, 16, 800),
    gets("a connection each, whole TLS handshakes, 16 in flight", WHOLE_TLS, 16, 480),
    Work { kind: Kind::ColdBurst, ..gets("3,000 at once, cold", ONE, 3_000, 3_000) },
    Work { kind: Kind::WarmBurst, ..gets("3,000 at once, warm", ONE, 3_000, 3_000) },
    Work { kind: Kind::Names, ..gets("200 names, 5 requests each", ONE, 200, 1_000) },
];

/// One round: its requests are shared among as many tasks as may be in flight. What has to be warm has made one each before.
async fn round(client: impl Ask, work: Work, requests: usize) -> Took {
    let body = Bytes::from(vec![b'x'; work.up]);
    let share = |client, count| share(client, count, body.clone(), work.down);
    let clients: Vec<_> = match work.kind {
        Kind::Names => (0..work.in_flight).map(|number| client.named(&name(number))).collect(),
        _ => vec![client; work.in_flight],
    };
    let clients = match work.kind {
        Kind::Warm | Kind::WarmBurst => join_all(clients.into_iter().map(|client| share(client, 1))).await,
        Kind::ColdBurst | Kind::Names => clients,
    };
    let each = (requests / work.in_flight).max(1);
    let (cpu, start) = (thread_time(), Instant::now());
    join_all(clients.into_iter().map(|client| share(client, each))).await;
    let count = (each * work.in_flight) as u32;
    Took { cpu: (thread_time() - cpu) / count, wall: start.elapsed() / count }
}

/// One task's requests; gives the client back.
async fn share<A: Ask>(mut client: A, count: usize, body: Bytes, down: usize) -> A {
    for _ in 0..count {
        assert_eq!(client.ask(body.clone()).await.expect("a response"), down);
    }
    client
}

/// All clients in turn, so often; of each the median of its rounds.
fn compare(runtime: &Runtime, work: Work, rounds: usize, requests: usize) -> [Took; 4] {
    let server = Server::start(work.setup, work.up, work.down);
    let tasks = runtime.metrics();
    runtime.block_on(async {
        let mut clients = Clients::new(&server, work.setup).await;
        let mut took = [(); 4].map(|()| Vec::new());
        for number in (0..rounds).flat_map(|_| 0..CLIENTS.len()) {
            took[number].push(with!(number, clients, client => round(client, work, requests).await));
            if work.kind != Kind::Warm {
                // All are new then; what the last one leaves behind is not the next one's to clear away.
                drop(clients);
                while tasks.num_alive_tasks() > 0 {
                    tokio::task::yield_now().await;
                }
                clients = Clients::new(&server, work.setup).await;
            }
        }
        took.map(|rounds| Took {
            cpu: median(rounds.iter().map(|took| took.cpu)),
            wall: median(rounds.iter().map(|took| took.wall)),
        })
    })
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
    let (row, left, right, top) = (56, 360, 60, 60);
    let height = top + row * results.len() as i32 + 20;
    let area = SVGBackend::new(path, (1_000, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let part = |took: &[Took; 4], number: usize| micros(took[number].cpu) / micros(took[0].cpu);
    let most = results.iter().flat_map(|(_, took)| (0..4).map(|number| part(took, number))).fold(1.0, f64::max);
    let scale = f64::from(1_000 - left - right) / most;
    let colors = [RGBColor(150, 150, 150), RGBColor(200, 60, 40), RGBColor(70, 110, 170), RGBColor(90, 150, 90)];
    let text = |size: i32| ("sans-serif", size).into_font();
    area.draw(&Text::new("CPU time a request; hyper's bare connection = 1", (20, 14), text(18)))?;
    for (number, client) in CLIENTS.iter().enumerate() {
        let x = left + 140 * number as i32;
        area.draw(&Rectangle::new([(x, 38), (x + 12, 50)], colors[number].filled()))?;
        area.draw(&Text::new(*client, (x + 18, 38), text(13)))?;
    }
    for (at, (work, took)) in results.iter().enumerate() {
        let y = top + row * at as i32;
        area.draw(&Text::new(work.name, (20, y + 18), text(13)))?;
        for (number, color) in colors.iter().enumerate() {
            let (part, y) = (part(took, number), y + 4 + 12 * number as i32);
            let end = left + (part * scale) as i32;
            area.draw(&Rectangle::new([(left, y), (end, y + 10)], color.filled()))?;
            area.draw(&Text::new(format!("{part:.2}"), (end + 4, y), text(10)))?;
        }
    }
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

/// The month, by the system's clock.
fn today() -> String {
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    date.split(' ').skip(1).take(3).collect::<Vec<_>>().join(" ")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let words: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let is_test = has("--test");
    peers::raise_descriptor_limit(16_384);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut results = Vec::new();
    let wanted = |work: &Work| words.iter().all(|word| work.name.contains(*word)) && (HAS_TLS || !work.setup.secure);
    for work in WORK.into_iter().filter(wanted) {
        let (rounds, requests) = if is_test { (1, work.in_flight) } else { (9, work.requests) };
        let took = compare(&runtime, work, rounds, requests);
        results.push((work, took));
        println!("{}", table(&results).lines().last().unwrap_or_default());
    }
    let versions = ["speeddial", "hyper", "hyper-util", "reqwest", "rustls", "tokio"].map(version).join(", ");
    let text = format!(
        "{}\n{}, {}; {versions}; medians of nine alternating rounds (`cargo bench --bench compare`; `-- --write` writes this table \
         and `benches/compare.svg`).\n",
        table(&results),
        machine(),
        today(),
    );
    println!("{text}");
    if has("--write") {
        write(&text, &results)?;
    }
    Ok(())
}
