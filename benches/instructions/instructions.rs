//! Counts the instructions of the warm paths, beside hyper's bare connection: the claim of BENCHMARKS.md, section Instructions.
//!
//! valgrind counts them. Unlike times, the counts do not depend on the machine's load. They are checked against
//! `instructions.txt` with a margin of 3 %; `-- --write` writes that file again.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderName, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use speeddial::benched::{BenchedHooks, BenchedPool, time_warm_request};
use speeddial::dns::{CachedResolver, Family, FixedResolver};
use speeddial::origin::Origin;
use speeddial::trace::{EndedCall, Observer, Record, Wants};
use speeddial::{Client, ClientBuilder, PoolConfig, RequestBuilder, Url};
use speeddial_inspect::Recorder;
use support::process::{ServerProcess, count_instructions, has_valgrind};
use support::{canned, page};

mod server;

/// An observer that receives every event and ignores it.
struct Ignores;

impl Observer for Ignores {
    fn observe(&self, _: &Record) {}
    fn ended(&self, _: &EndedCall<'_>) {}
}

/// An observer that asks for no events.
struct WantsNothing;

impl Observer for WantsNothing {
    fn wants(&self) -> Wants {
        Wants::NOTHING
    }
}

/// An observer of the ends of calls, which ignores them.
struct IgnoresEnds;

impl Observer for IgnoresEnds {
    fn wants(&self) -> Wants {
        Wants::ENDS
    }
}

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");
const SUBJECTS: [&str; 14] = [
    "warm GET",
    "warm GET, observer that wants nothing",
    "warm GET, observer told of everything",
    "timings of a warm GET",
    "dns hit",
    "acquire and release",
    "warm GET, hyper's bare connection",
    "warm GET, observer of the ends of calls",
    "warm GET, recorder",
    "warm GET, the URL given as text",
    "warm GET, another URL each time",
    "warm GET with eight headers",
    "warm GET with eight default headers",
    "GET on a new connection",
];
/// The rounds of the two runs of a subject. Their difference leaves out what is done once.
const FEW: u64 = 200;
const MANY: u64 = 1_200;
/// The highest ratio of a call with an observer that wants nothing to a call without an observer.
const MAX_IGNORED: f64 = 1.01;
/// The highest ratio of a call with a recorder to a call without an observer. It grows as the rest gets shorter. A call over a
/// socket takes several times as long as one over the connection in memory, so that this is less than 3 % of it: the bench `observer`
/// measures that.
const MAX_RECORDED: f64 = 1.10;
/// The highest share of the timings, which are always on, in a warm GET. It grows as the rest gets shorter.
const MAX_TIMED: f64 = 0.07;
/// The share by which a count may exceed the one in `instructions.txt`.
const MARGIN: f64 = 0.03;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [first, subject, rounds] = &arguments[..]
        && first == "run"
    {
        return run(subject, rounds.parse().expect("a number"));
    }
    if arguments == ["serve"] {
        return server::serve();
    }
    if cfg!(debug_assertions) {
        println!(
            "!! SKIPPED: this code is not optimised; `cargo bench --features __bench --bench instructions` counts"
        );
        return;
    }
    if !has_valgrind() {
        return;
    }
    let counted: BTreeMap<_, _> = SUBJECTS.iter().map(|subject| (*subject, count(subject))).collect();
    for (subject, count) in &counted {
        println!("{count:>10.0} instructions: {subject}");
    }
    let share = |subject| counted[subject] / counted[SUBJECTS[0]];
    let ignored = share(SUBJECTS[1]);
    println!("of a warm GET's: {ignored:.4} (at most {MAX_IGNORED}) with an observer that wants nothing, ");
    println!("{:.4} with one that is told of everything", share(SUBJECTS[2]));
    let recorded = share(SUBJECTS[8]);
    println!("{:.4} with one that is told of the ends of calls, ", share(SUBJECTS[7]));
    println!("{recorded:.4} (at most {MAX_RECORDED}) with a recorder, which is one of these");
    println!("of one through hyper's bare connection: {:.4}", 1.0 / share(SUBJECTS[6]));
    let timed = share(SUBJECTS[3]);
    println!("of which its timings are {timed:.4} (at most {MAX_TIMED})");
    if arguments.iter().any(|argument| argument == "--write") {
        let lines = counted.iter().map(|(subject, count)| format!("{count:.0} {subject}\n"));
        std::fs::write(FILE, lines.collect::<String>()).expect("the file can be written");
        return page::write("instructions", &table(&counted)).expect("BENCHMARKS.md can be written");
    }
    assert!(timed <= MAX_TIMED, "the timings cost too much");
    assert!(recorded <= MAX_RECORDED, "a recorder costs too much");
    assert!(ignored <= MAX_IGNORED, "an observer that wants nothing costs too much");
    let text = std::fs::read_to_string(FILE).expect("the file is there");
    for line in text.lines() {
        let (before, subject) = line.split_once(' ').expect("a count and its subject");
        let before: f64 = before.parse().expect("a count");
        let now = counted[subject];
        assert!(now <= before * (1.0 + MARGIN), "{subject}: {now:.0} instructions, instructions.txt has {before}");
    }
}

/// Returns the table for BENCHMARKS.md.
fn table(counted: &BTreeMap<&str, f64>) -> String {
    let mut text = "| | instructions | of a warm GET |\n|---|---|---|\n".to_owned();
    for subject in SUBJECTS {
        let share = 100.0 * counted[subject] / counted[SUBJECTS[0]];
        text.push_str(&format!("| {subject} | {:.0} | {share:.1} % |\n", counted[subject]));
    }
    text
}

/// Returns the instructions of one round: the difference between many rounds and few, per round.
fn count(subject: &str) -> f64 {
    let counted = |rounds: u64| count_instructions("instructions::run", &["run", subject, &rounds.to_string()]);
    (counted(MANY) - counted(FEW)) as f64 / (MANY - FEW) as f64
}

#[inline(never)]
fn run(subject: &str, rounds: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let url = canned::url();
    let get = |client: &Client, _| client.get(&url);
    runtime.block_on(async {
        match subject {
            "warm GET" => gets(canned::builder(), rounds, &get).await,
            "dns hit" => {
                let names = FixedResolver::new().with("api.test", [[192, 0, 2, 1].into()]);
                let cache = CachedResolver::new(names);
                for _ in 0..rounds {
                    cache.lookup("api.test", Family::V4).await.expect("an answer");
                }
            }
            "acquire and release" => {
                let origin = Origin::from_url(&canned::url()).expect("an origin");
                let pool = BenchedPool::new(10);
                let now = std::time::Instant::now();
                pool.wait(&origin).await.give_back(now);
                for _ in 0..rounds {
                    pool.take(&origin, now).give_back(now);
                }
            }
            "warm GET, the URL given as text" => {
                gets(canned::builder(), rounds, &|client, _| client.get(canned::URL)).await;
            }
            "warm GET, another URL each time" => {
                // As many for few rounds as for many, so that making them is not counted.
                let mut url = canned::url();
                let urls: Vec<_> = (0..MANY)
                    .map(|number| {
                        url.set_path(&format!("/v1/items/{number:04}"));
                        url.clone()
                    })
                    .collect();
                gets(canned::builder(), rounds, &|client, round| client.get(&urls[round])).await;
            }
            "warm GET with eight headers" => {
                let add = |request: RequestBuilder, (name, value)| request.header(name, value);
                gets(canned::builder(), rounds, &|client, _| canned::HEADERS.into_iter().fold(client.get(&url), add))
                    .await;
            }
            "warm GET with eight default headers" => {
                let header = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
                let builder = canned::builder().default_headers(canned::HEADERS.map(header).into_iter().collect());
                gets(builder, rounds, &get).await;
            }
            "warm GET, hyper's bare connection" => bare_gets(rounds).await,
            "GET on a new connection" => cold_gets(rounds).await,
            "timings of a warm GET" => {
                let hooks = BenchedHooks::default();
                for _ in 0..rounds {
                    time_warm_request(&hooks);
                }
            }
            "warm GET, observer that wants nothing" => {
                gets(canned::builder().observer(WantsNothing), rounds, &get).await
            }
            "warm GET, observer of the ends of calls" => {
                gets(canned::builder().observer(IgnoresEnds), rounds, &get).await
            }
            "warm GET, recorder" => gets(canned::builder().observer(Recorder::new()), rounds, &get).await,
            "warm GET, observer told of everything" => gets(canned::builder().observer(Ignores), rounds, &get).await,
            other => panic!("there is no subject {other}"),
        }
    });
}

/// Sends the request that `request` makes for each round. It is not generic, so that all subjects run the same code.
async fn gets(builder: ClientBuilder, rounds: u64, request: &dyn Fn(&Client, usize) -> RequestBuilder) {
    let client = builder.build().expect("the defaults are valid");
    for round in 0..rounds as usize {
        canned::send(request(&client, round)).await;
    }
}

async fn bare_gets(rounds: u64) {
    let stream = TokioIo::new(canned::Canned::default());
    let (mut sender, connection) = http1::handshake(stream).await.expect("nothing is exchanged");
    tokio::spawn(connection);
    let url = Uri::from_static("/v1/items");
    for _ in 0..rounds {
        sender.ready().await.expect("an open connection");
        let request = Request::get(url.clone()).header(HOST, "api.test").body(Empty::<Bytes>::new());
        let response = sender.send_request(request.expect("a request")).await.expect("a response");
        assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "ok");
    }
}

/// Sends each request over TCP on a connection of its own.
async fn cold_gets(rounds: u64) {
    let server = ServerProcess::start(&["serve"]);
    let names = FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]);
    let pool = PoolConfig::new().max_requests_per_connection(1);
    let client =
        canned::plain().dns_cache(CachedResolver::new(names)).pool(pool).build().expect("the settings are valid");
    let url = Url::parse(&format!("http://api.test:{}/v1/items", server.address().port())).expect("a URL");
    for _ in 0..rounds {
        canned::send(client.get(&url)).await;
    }
}
