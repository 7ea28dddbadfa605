//! Measures speeddial under the AWS SDK beside the SDK's own client: the claim of BENCHMARKS.md, section The AWS SDK.
//!
//! A fake DynamoDB runs in a process of its own and answers each request after 4 ms. Each client runs in a process of its own,
//! which may have 1,024 descriptors: 1,000 tasks update 100 items each, one after the other, with the SDK's retries as they are
//! by default. A client is stopped after 5 minutes. The clients take turns, and a row is the client's turn with the median CPU time.
//!
//! Prints a table. `-- --write` writes it into BENCHMARKS.md. `-- --test` runs 50 tasks with 2 updates each, once.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "printing is what it is for, and it panics where it fails"
)]

#[path = "../../benches/machine.rs"]
mod machine;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::pool::{Client as PoolClient, ConnectionPool};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use speeddial::PoolConfig;
use speeddial_aws::Http;
use support::{full, page};
use tokio::net::TcpListener;

/// The time that the fake takes for a request.
const THINK: Duration = Duration::from_millis(4);
/// The longest that a client may take for all of its work.
const LIMIT: Duration = Duration::from_secs(300);
/// The limit of descriptors of a client's process.
const DESCRIPTORS: u64 = 1_024;
/// The limit of connections of the clients that have one.
const CONNECTIONS: usize = 128;

/// The turns of each client.
const ROUNDS: usize = 5;

const CLIENTS: [&str; 4] = [
    "speeddial, at most 128 connections to a host",
    "speeddial, as it is by default",
    "the SDK's own client, as it is by default",
    "the SDK's own client, its `ConnectionPool` with at most 128",
];

/// Returns the HTTP client with this number in [`CLIENTS`].
fn http_client(number: usize) -> SharedHttpClient {
    let tls = Provider::Rustls(CryptoMode::AwsLc);
    match number {
        0 => {
            let pool = PoolConfig::new().max_connections_per_host(CONNECTIONS);
            SharedHttpClient::new(Http::new(speeddial::Client::builder().pool(pool).build().unwrap()))
        }
        1 => SharedHttpClient::new(Http::new(speeddial::Client::new())),
        2 => Builder::new().tls_provider(tls).build_https(),
        _ => {
            let pool = ConnectionPool::builder().max_connections_per_host(CONNECTIONS).tls_provider(tls);
            SharedHttpClient::new(PoolClient::new(&pool.build_https().unwrap()).unwrap())
        }
    }
}

fn limit_descriptors(soft: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let soft = maximum.map_or(soft, |maximum| soft.min(maximum));
    setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum }).unwrap();
}

/// What the fake counts.
#[derive(Default)]
struct Counts {
    opened: AtomicUsize,
    open: AtomicUsize,
    most: AtomicUsize,
    requests: AtomicUsize,
}

/// Serves as DynamoDB. Prints its port, and for each line of its input the counts so far: connections opened, the highest
/// number open at once, and requests.
async fn serve() {
    limit_descriptors(1 << 16);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let counts = Arc::new(Counts::default());
    let counting = counts.clone();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            let read = |count: &AtomicUsize| count.load(Ordering::SeqCst);
            println!("{} {} {}", read(&counting.opened), read(&counting.most), read(&counting.requests));
        }
        std::process::exit(0);
    });
    while let Ok((socket, _)) = listener.accept().await {
        counts.opened.fetch_add(1, Ordering::SeqCst);
        let open = counts.open.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most.fetch_max(open, Ordering::SeqCst);
        let _ = socket.set_nodelay(true);
        let counts = counts.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| async {
                counts.requests.fetch_add(1, Ordering::SeqCst);
                let _ = request.into_body().collect().await;
                tokio::time::sleep(THINK).await;
                let response = Response::builder().header("content-type", "application/x-amz-json-1.0");
                Ok::<_, Infallible>(response.body(full("{}")).unwrap())
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
            counts.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Returns the time for which this process has used the processors, in steps of 10 ms. Unlike a clock of the process, valgrind has it.
fn process_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name in brackets: the state is the third field, the ticks in user space and in the kernel are the 14th and 15th.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks: u64 = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

/// Does the work of one client. Prints the failed updates, those that were not made, and the wall time and the CPU time in
/// milliseconds; and in a second line the first failure, if there is one.
async fn update_all(number: usize, port: &str, tasks: usize, each: usize) {
    limit_descriptors(DESCRIPTORS);
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("id", "secret", None, None, "bench"))
        .endpoint_url(format!("http://127.0.0.1:{port}"))
        .http_client(http_client(number));
    let client = Client::from_conf(config.build());
    let (failed, made) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let first_failure = Arc::new(OnceLock::new());
    let (start, cpu) = (Instant::now(), process_time());
    let tasks_running = join_all((0..tasks).map(|task| {
        let (client, failed, made, first_failure) =
            (client.clone(), failed.clone(), made.clone(), first_failure.clone());
        tokio::spawn(async move {
            for item in 0..each {
                let key = AttributeValue::S(format!("{task}-{item}"));
                let update = client.update_item().table_name("counters").key("id", key);
                let update = update.update_expression("ADD hits :one");
                let update = update.expression_attribute_values(":one", AttributeValue::N("1".to_owned()));
                if let Err(error) = update.send().await {
                    failed.fetch_add(1, Ordering::SeqCst);
                    first_failure.get_or_init(|| chain(&error));
                }
                made.fetch_add(1, Ordering::SeqCst);
            }
        })
    }));
    let _ = tokio::time::timeout(LIMIT, tasks_running).await;
    let (wall, cpu) = (start.elapsed(), process_time() - cpu);
    let [failed, made] = [failed, made].map(|count| count.load(Ordering::SeqCst));
    println!("{failed} {} {} {}", tasks * each - made, wall.as_millis(), cpu.as_millis());
    println!("{}", first_failure.get().map_or("", String::as_str));
    // Tasks that still wait are not waited for.
    std::process::exit(0);
}

/// Returns an error and its sources in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |source| source.source());
    sources.fold(error.to_string(), |chain, source| format!("{chain}: {source}"))
}

/// The fake, in a process that ends with this value.
struct Fake {
    process: Child,
    answers: Lines<BufReader<ChildStdout>>,
    port: String,
}

impl Fake {
    fn start() -> Self {
        let mut process = this_program(&["serve"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = answers.next().unwrap().unwrap();
        Self { process, answers, port }
    }

    /// Returns the connections opened, the most open at once and the requests so far.
    fn counts(&mut self) -> [usize; 3] {
        writeln!(self.process.stdin.as_ref().unwrap()).unwrap();
        numbers(&self.answers.next().unwrap().unwrap())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn this_program(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments).stdout(Stdio::piped());
    command
}

fn numbers<const N: usize>(line: &str) -> [usize; N] {
    let numbers: Vec<_> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

/// A client's turn.
struct Turn {
    cpu: usize,
    /// The row of the table.
    row: String,
    first_failure: Option<String>,
}

/// Runs a client.
fn run(number: usize, tasks: usize, each: usize) -> Turn {
    // One for each client, so that the last one's connections are gone.
    let mut fake = Fake::start();
    let arguments = ["client", &number.to_string(), &fake.port, &tasks.to_string(), &each.to_string()];
    let output = this_program(&arguments).output().unwrap();
    assert!(output.status.success(), "{}: {}", CLIENTS[number], String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout);
    let (figures, first_failure) = printed.trim_end().split_once('\n').unwrap_or((printed.trim_end(), ""));
    let [failed, not_made, wall, cpu] = numbers(figures);
    let [opened, most, requests] = fake.counts();
    assert!(requests + failed + not_made >= tasks * each, "each update that did not fail is a request");
    let stopped = if not_made > 0 { format!(", stopped with {not_made} not made") } else { String::new() };
    let row = format!(
        "| {} | {failed}{stopped} | {requests} | {:.1} s | {opened} | {most} | {:.1} s |",
        CLIENTS[number],
        wall as f64 / 1e3,
        cpu as f64 / 1e3,
    );
    let failure = format!("The first failure of {}: `{}`.", CLIENTS[number], first_failure.trim());
    Turn { cpu, row, first_failure: Some(failure).filter(|_| failed > 0) }
}

/// Returns the package and the version of it that Cargo.lock names.
fn version(package: &str) -> String {
    let (_, rest) =
        include_str!("../../Cargo.lock").split_once(&format!("name = \"{package}\"\nversion = \"")).unwrap();
    format!("{package} {}", rest.split('"').next().unwrap_or_default())
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => return runtime().block_on(serve()),
        ["client", number, port, tasks, each] => {
            let [number, tasks, each] = [number, tasks, each].map(|text| text.parse().unwrap());
            return runtime().block_on(update_all(number, port, tasks, each));
        }
        _ => {}
    }
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (tasks, each, rounds) = if has("--test") { (50, 2, 1) } else { (1_000, 100, ROUNDS) };
    let mut table = String::from(
        "| HTTP client | failed updates | requests at the server | wall time | connections opened | most open at once | CPU time of \
         the client |\n|---|---|---|---|---|---|---|\n",
    );
    let mut turns = CLIENTS.map(|_| Vec::new());
    for _ in 0..rounds {
        for (number, turns) in turns.iter_mut().enumerate() {
            let turn = run(number, tasks, each);
            println!("{}", turn.row);
            turns.push(turn);
        }
    }
    let mut failures = Vec::new();
    for mut turns in turns {
        turns.sort_unstable_by_key(|turn| turn.cpu);
        let median = turns.swap_remove(turns.len() / 2);
        let _ = writeln!(table, "{}", median.row);
        failures.extend(median.first_failure);
    }
    if !failures.is_empty() {
        let _ = writeln!(table, "\n{}", failures.join(" "));
    }
    let versions = ["aws-sdk-dynamodb", "aws-smithy-runtime", "aws-smithy-http-client"].map(version).join(", ");
    let text = format!(
        "{table}\n{}, {}; {tasks} tasks with {each} updates each, {DESCRIPTORS} descriptors; each row is the one of {rounds} turns with the median CPU time; {versions} (`cargo bench -p speeddial-neighbour-tests --bench dynamodb`; `-- --write` writes this table).\n",
        machine::name(),
        machine::today(),
    );
    println!("{text}");
    if has("--write") {
        page::write("dynamodb", &text).unwrap();
    }
}
