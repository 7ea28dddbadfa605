//! Measures the first HTTPS request of a process beside reqwest: the claim of BENCHMARKS.md, section First request of a process.
//!
//! The request is made 100 ms after its client was built. A second client in the same process then makes the same request; by
//! then the random generator has its entropy. Each process makes these two requests; the server is in the process that starts
//! them. Fails if speeddial's first request takes more than half as long as reqwest's.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

mod peers;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use peers::{NAME, Server, Setup, Took, median};
use rustix::time::{ClockId, clock_gettime};
use speeddial::dns::FixedResolver;
use tokio::runtime::{Builder, Runtime};

const CLIENTS: [&str; 2] = ["speeddial", "reqwest"];

/// The time between the building of a client and its first request.
const PAUSE: Duration = Duration::from_millis(100);

/// The highest ratio of the time of speeddial's first request to that of reqwest's.
const MAX_RATIO: f64 = 0.5;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [first, client, url] = &arguments[..]
        && first == "run"
    {
        return run(client, url);
    }
    if !cfg!(target_os = "linux") {
        println!("!! SKIPPED: SSL_CERT_FILE does not set the trusted certificates on this platform");
        return;
    }
    let rounds = if arguments.iter().any(|argument| argument == "--test") { 5 } else { 25 };
    let server = Server::start(Setup { secure: true, ..Setup::default() }, 0, 2);
    let roots = roots(&server);
    // The first handshake of the server is slow too, so it is not counted.
    ask(CLIENTS[0], &server, &roots);
    let mut took = [(); 2].map(|()| Vec::new());
    for number in (0..rounds).flat_map(|_| 0..CLIENTS.len()) {
        took[number].push(ask(CLIENTS[number], &server, &roots));
    }
    std::fs::remove_file(roots).expect("the file is there");
    let [ours, theirs] = took.map(|rounds| {
        [0, 1].map(|request| Took {
            cpu: median(rounds.iter().map(|took| took[request].cpu)),
            wall: median(rounds.iter().map(|took| took[request].wall)),
        })
    });
    for (client, [first, second]) in CLIENTS.iter().zip([ours, theirs]) {
        let first = show(first);
        let second = show(second);
        println!("{client}: {first} for the first request of a process, {second} for that of its second client");
    }
    let ratio = ours[0].wall.as_secs_f64() / theirs[0].wall.as_secs_f64();
    println!("speeddial's first request to reqwest's: {ratio:.2} (at most {MAX_RATIO})");
    if theirs[0].wall < 2 * theirs[1].wall {
        println!("!! SKIPPED: entropy costs nothing on this machine, so there is nothing to prepare");
        return;
    }
    // The claim is about optimised code.
    assert!(cfg!(debug_assertions) || ratio <= MAX_RATIO, "the client did not prepare TLS before its first request");
}

fn show(took: Took) -> String {
    let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
    format!("{:.2} ms ({:.2} ms of processor time)", millis(took.wall), millis(took.cpu))
}

/// Writes the platform's certificates and that of the server's authority into one file.
fn roots(server: &Server) -> PathBuf {
    const PLACES: [&str; 3] =
        ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
    let set = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let mut found = set.into_iter().chain(PLACES.map(PathBuf::from)).filter_map(|place| std::fs::read(place).ok());
    let mut pem = found.next().unwrap_or_else(|| {
        eprintln!("the platform's certificates were not found: only the server's authority is trusted");
        Vec::new()
    });
    pem.push(b'\n');
    pem.extend(server.authority_pem().into_bytes());
    let path = std::env::temp_dir().join(format!("speeddial-first-request-{}.pem", std::process::id()));
    std::fs::write(&path, pem).expect("a temporary file");
    path
}

/// Makes the two requests in a new process and returns the time of each.
fn ask(client: &str, server: &Server, roots: &Path) -> [Took; 2] {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["run", client, &server.url(NAME)]).env("SSL_CERT_FILE", roots).env_remove("SSL_CERT_DIR");
    let output = command.output().expect("this program runs");
    assert!(output.status.success(), "{client}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().expect("microseconds"));
    let mut next = || Duration::from_micros(numbers.next().expect("four numbers"));
    [(); 2].map(|()| Took { cpu: next(), wall: next() })
}

fn run(client: &str, url: &str) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    for _ in 0..2 {
        let took = match client {
            "speeddial" => with_speeddial(&runtime, url),
            "reqwest" => with_reqwest(&runtime, url),
            other => panic!("no client is called {other}"),
        };
        println!("{} {}", took.cpu.as_micros(), took.wall.as_micros());
    }
}

fn with_speeddial(runtime: &Runtime, url: &str) -> Took {
    let names = FixedResolver::new().with(NAME, [Ipv4Addr::LOCALHOST.into()]);
    let client = speeddial::Client::builder().dns_resolver(names).no_proxy().build().expect("a client");
    measure(runtime, async {
        client.get(url).send().await.expect("a response").bytes().await.expect("a body");
    })
}

fn with_reqwest(runtime: &Runtime, url: &str) -> Took {
    let _entered = runtime.enter();
    let builder = reqwest::Client::builder().no_proxy().resolve(NAME, (Ipv4Addr::LOCALHOST, 0).into());
    let client = builder.build().expect("a client");
    measure(runtime, async {
        client.get(url).send().await.expect("a response").bytes().await.expect("a body");
    })
}

/// Measures a request that is made after [`PAUSE`].
fn measure(runtime: &Runtime, request: impl Future<Output = ()>) -> Took {
    std::thread::sleep(PAUSE);
    let cpu = processor_time();
    let start = Instant::now();
    runtime.block_on(request);
    Took { cpu: processor_time() - cpu, wall: start.elapsed() }
}

/// Returns the processor time that this process has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
