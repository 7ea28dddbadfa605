//! The whole client in a simulated world: virtual time, no socket, and a seed from which all follows.
//!
//! | file | what it is |
//! |---|---|
//! | `plan.rs` | a world as data, drawn from a seed: hosts, names, clients, calls, faults |
//! | `outside.rs` | the world while it runs: its truth, and what it has seen |
//! | `net.rs`, `dns.rs`, `servers/` | networks, DNS servers, HTTP servers |
//! | `program.rs`, `gateway.rs` | the clients and their calls, and what goes wrong meanwhile |
//! | `beside.rs` | a plain client, whose calls in the same world ours are compared with |
//! | `judge.rs` | the rules, and who broke them |
//! | `names.rs` | worlds of one name whose DNS servers are in trouble, beside getaddrinfo |
//! | `fleet.rs` | worlds of many clients whose one server or whose DNS is in trouble |
//! | `shrink.rs` | smaller worlds in which the same rule is broken |
//!
//! `cargo test --all-features --test simulation` runs the same worlds each time. `-- --hours 1 --seed 7` runs an hour of others, and
//! stops at the first rule that is broken: it prints the seed, and makes the world smaller, unless it is to be `--brief`. With `--count` it goes on.
//! `-- --world 7` prints one world's timeline; with `PRINT=1` as it goes, for a world that does not end. `-- --name 7` prints one of `names.rs`, and
//! `--fleet 4` runs one of `fleet.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "it is a program")]

mod beside;
mod dns;
mod fleet;
mod gateway;
mod judge;
mod names;
mod net;
mod outside;
mod plan;
mod program;
mod servers;
mod shrink;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use judge::Broken;
use outside::{Outside, Seams};
use plan::Plan;
use program::Program;
use servers::tls::Certificates;

/// The result of a world.
struct Run {
    timeline: String,
    calls: u64,
    broken: Vec<Broken>,
}

/// The longest time, in real time, that a world takes. One that takes longer goes round in circles, or waits for something real.
const LONGEST_RUN: Duration = Duration::from_secs(300);

/// One world in so many is run again by the plain client.
const BESIDE: u64 = 10;

/// Runs a world in a thread of its own, which remembers nothing of others.
fn run(plan: Plan, tls: &Arc<Certificates>) -> Run {
    let tls = tls.clone();
    let (send, receive) = mpsc::channel();
    let world = move || {
        let (outside, program) = enact(plan.clone(), &tls, false);
        let diary = program.diary.lock().unwrap();
        let mut broken = judge::judge(&outside, &diary);
        if plan.seed.is_multiple_of(BESIDE) {
            let (_, beside) = enact(plan, &tls, true);
            broken.extend(judge::compare(&outside, &diary, &beside.diary.lock().unwrap()));
        }
        let timeline = std::mem::take(&mut outside.state().timeline);
        let _ = send.send(Run { timeline, calls: diary.calls.len() as u64, broken });
    };
    std::thread::Builder::new().stack_size(8 << 20).spawn(world).unwrap();
    receive.recv_timeout(LONGEST_RUN).unwrap_or_else(|error| {
        let rule = if error == mpsc::RecvTimeoutError::Timeout { "endless" } else { "panic" };
        let broken = Broken { at: Duration::ZERO, rule, host: None, what: "the whole world".to_owned() };
        Run { timeline: String::new(), calls: 0, broken: vec![broken] }
    })
}

/// Lets a world happen, with our client or the plain one.
fn enact(plan: Plan, tls: &Arc<Certificates>, is_beside: bool) -> (Arc<Outside>, Arc<Program>) {
    fastrand::seed(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let outside = Outside::new(plan, tls.clone());
        speeddial::simulation::enter(Some(Rc::new(Seams(outside.clone()))));
        let program = Program::run(outside.clone(), is_beside).await;
        (outside, program)
    })
}

/// The options of the command line.
struct Options {
    seed: u64,
    /// The time to run, in real time.
    time: Duration,
    worlds: u64,
    /// One world alone.
    world: Option<u64>,
    /// One world of names alone.
    name: Option<usize>,
    /// One world of fleets alone.
    fleet: Option<usize>,
    /// Goes on after broken rules, and counts them.
    counts: bool,
    /// Makes no world smaller.
    is_brief: bool,
    shows_times: bool,
}

impl Options {
    fn read() -> Self {
        let mut options = Self {
            seed: 1,
            time: Duration::from_secs(3_600),
            worlds: WORLDS_OF_A_TEST,
            world: None,
            name: None,
            fleet: None,
            counts: false,
            is_brief: false,
            shows_times: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|word| word.parse::<f64>().ok()).expect("a number");
            match word.as_str() {
                "--hours" => {
                    options.time = Duration::from_secs_f64(number() * 3_600.0);
                    options.worlds = u64::MAX;
                }
                "--seed" => options.seed = number() as u64 * 1_000_000,
                "--worlds" => options.worlds = number() as u64,
                "--world" => options.world = Some(number() as u64),
                "--name" => options.name = Some(number() as usize),
                "--fleet" => options.fleet = Some(number() as usize),
                "--count" => options.counts = true,
                "--brief" => options.is_brief = true,
                "--times" => options.shows_times = true,
                // Those of the harness of other tests.
                _ => {}
            }
        }
        options
    }
}

/// The most lines of a timeline that are printed for a broken rule.
const MOST_LINES: usize = 200;

/// The worlds of a test, which are the same each time.
const WORLDS_OF_A_TEST: u64 = 50;

/// The results of all worlds so far.
#[derive(Default)]
struct Sums {
    worlds: u64,
    time: Duration,
    calls: u64,
    /// The number of times that each rule was broken, and the first world in which it was.
    rules: BTreeMap<&'static str, (u64, u64)>,
    /// The first rule that was broken.
    first: Option<(u64, Broken)>,
}

fn main() {
    let options = Options::read();
    let tls = Arc::new(Certificates::new(16));
    if let Some(world) = options.world {
        show(Plan::draw(world), &tls, None);
        return;
    }
    if let Some(number) = options.name {
        let scenario = names::scenarios()[number];
        let (ours, theirs, timeline) = names::run_alone(scenario, options.seed + number as u64, &tls);
        println!("{timeline}{scenario}\n  the client: {ours}\n  getaddrinfo: {theirs}");
        return;
    }
    if let Some(number) = options.fleet {
        fleet::run_alone(fleet::scenarios()[number], options.seed, &tls).iter().for_each(|broken| println!("{broken}"));
        return;
    }
    let next = AtomicU64::new(options.seed);
    let sums = Mutex::new(Sums::default());
    let began = Instant::now();
    let work = || {
        while began.elapsed() < options.time {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed - options.seed >= options.worlds || (sums.lock().unwrap().first.is_some() && !options.counts) {
                return;
            }
            let plan = Plan::draw(seed);
            let length = plan.length;
            let started = Instant::now();
            let run = run(plan, &tls);
            if options.shows_times {
                println!("world {seed}: {} calls in {:.1?}", run.calls, started.elapsed());
            }
            sums.lock().unwrap().add(seed, length, run);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    let sums = sums.into_inner().unwrap();
    let hours = sums.time.as_secs_f64() / 3_600.0;
    println!("{} worlds, {hours:.1} hours, {} calls in {:.1?}", sums.worlds, sums.calls, began.elapsed());
    for (rule, (times, first)) in &sums.rules {
        println!("  {rule}: {times} times, first in world {first}");
    }
    let mut failed = 0;
    if !is_the_same_again(options.seed, &tls) {
        println!("world {} went another way when it was run again", options.seed);
        failed += 1;
    }
    if let Some((world, broken)) = sums.first {
        failed += 1;
        println!("world {world}: {broken:?}");
        if !options.counts && !options.is_brief {
            println!("the same in a smaller world:");
            show(shrink::shrink(Plan::draw(world), broken.rule, &tls), &tls, Some(broken.rule));
        }
    }
    let began = Instant::now();
    let (count, worse, ours, theirs) = names::suite(options.seed, &tls);
    println!("{count} worlds of names in {:.1?}: the client {ours}; getaddrinfo {theirs}", began.elapsed());
    if !worse.is_empty() {
        failed += 1;
        println!("in {} of them the client did worse:\n{}", worse.len(), worse.join("\n"));
    }
    let began = Instant::now();
    let (count, worse) = fleet::suite(options.seed, &tls);
    println!("{count} worlds of fleets in {:.1?}", began.elapsed());
    if !worse.is_empty() {
        failed += 1;
        println!("in {} of them the clients made it worse:\n{}", worse.len(), worse.join("\n"));
    }
    println!("{} passed, {failed} failed", 4 - failed);
    std::process::exit(i32::from(failed > 0));
}

/// Prints a world, its timeline, and the rules that were broken. With a `rule`, its first breach alone, and what came before it at the
/// host concerned.
fn show(plan: Plan, tls: &Arc<Certificates>, rule: Option<&str>) {
    println!("{plan}");
    let run = run(plan, tls);
    let Some(first) = run.broken.iter().find(|broken| Some(broken.rule) == rule) else {
        println!("{}", run.timeline);
        run.broken.iter().for_each(|broken| println!("{broken:?}"));
        return;
    };
    let host = first.host.map_or("-".to_owned(), |host| format!("h{host}"));
    let time = |line: &str| line.split_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or(0.0_f64);
    let concerns = |line: &&str| line.split_whitespace().nth(1).is_some_and(|tag| tag == "-" || tag == host);
    let before = run.timeline.lines().filter(concerns).take_while(|line| time(line) <= first.at.as_secs_f64() + 1.0);
    let before: Vec<_> = before.collect();
    before.iter().skip(before.len().saturating_sub(MOST_LINES)).for_each(|line| println!("{line}"));
    println!("{first:?}");
}

/// Returns true if a world has the same timeline when it is run again.
fn is_the_same_again(seed: u64, tls: &Arc<Certificates>) -> bool {
    let timelines = [(); 2].map(|()| run(Plan::draw(seed), tls).timeline);
    timelines[0] == timelines[1]
}

impl Sums {
    fn add(&mut self, seed: u64, length: Duration, run: Run) {
        self.worlds += 1;
        self.time += length;
        self.calls += run.calls;
        for broken in &run.broken {
            let (times, first) = self.rules.entry(broken.rule).or_insert((0, seed));
            *times += 1;
            *first = seed.min(*first);
        }
        // The first world of all, whichever thread was faster.
        if let Some(broken) = run.broken.into_iter().next()
            && self.first.as_ref().is_none_or(|(other, _)| seed < *other)
        {
            self.first = Some((seed, broken));
        }
    }
}
