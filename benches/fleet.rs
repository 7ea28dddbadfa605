//! Measures many tasks, hosts, connections and threads, beside hyper's bare connection, hyper-util's legacy client and reqwest: the
//! claim of BENCHMARKS.md, section Fleet.
//!
//! The server runs in a process of its own, so that the measured descriptors and memory are the client's. `-- PART` runs one part:
//! `tasks`, `hosts`, `waiting`, `threads` or `memory`.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod peers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use peers::{Ask, CLIENTS, Clients, Server, Setup, Speeddial, Took, median, name, thread_time, with};
use speeddial::PoolConfig;
use speeddial::dns::FixedResolver;
use support::canned;
use support::process::{self, ServerProcess, serve_at};
use tokio::runtime::{Builder, Runtime};

const SERVE: &str = "serve";
const MEMORY_OF: &str = "memory-of";

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn serve() {
    process::set_descriptor_limit(1 << 16);
    serve_at(Server::start(Setup::default(), 0, 12).address());
}

/// A thread that records the highest number of open descriptors.
struct DescriptorWatch(Arc<(AtomicBool, AtomicUsize)>, Option<std::thread::JoinHandle<()>>);

impl DescriptorWatch {
    fn start() -> Self {
        let shared = Arc::new((AtomicBool::new(false), AtomicUsize::new(0)));
        let seen = shared.clone();
        let thread = std::thread::spawn(move || {
            while !seen.0.load(Ordering::Relaxed) {
                let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
                seen.1.fetch_max(open, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self(shared, Some(thread))
    }

    fn most(mut self) -> usize {
        self.0.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            let _ = thread.join();
        }
        self.0.1.load(Ordering::Relaxed)
    }
}

/// Measures tasks that each make requests one after the other, to one host, with 1,024 descriptors.
fn tasks(server: &Server, tasks: usize, requests: usize, rounds: usize) {
    process::set_descriptor_limit(1_024);
    println!("{tasks} tasks, {requests} requests each, 1,024 descriptors:");
    let mut all = [(); 4].map(|()| Vec::new());
    for number in (0..rounds).flat_map(|_| 0..CLIENTS.len()) {
        let runtime = runtime();
        let watched = DescriptorWatch::start();
        let (spent, failed) = runtime.block_on(async {
            let clients = Clients::new(server, Setup::default()).await;
            with!(number, clients, client => fleet(client, tasks, requests).await)
        });
        drop(runtime);
        all[number].push((spent, failed, watched.most()));
    }
    for (client, took) in CLIENTS.iter().zip(all) {
        let count = (tasks * requests) as u32;
        let cpu = median(took.iter().map(|took| took.0.cpu));
        let wall = median(took.iter().map(|took| took.0.wall));
        let (failed, most) = took.iter().fold((0, 0), |sum, took| (sum.0 + took.1, sum.1.max(took.2)));
        println!(
            "  {client:<12} {:>6.1} µs of CPU a request, {:>6.2} s in all, {failed} failed, {most} descriptors at most",
            micros(cpu / count),
            wall.as_secs_f64(),
        );
    }
}

async fn fleet(client: impl Ask, tasks: usize, requests: usize) -> (Took, usize) {
    let cpu = thread_time();
    let start = Instant::now();
    let failed = join_all((0..tasks).map(|_| {
        let mut client = client.clone();
        async move {
            let mut failed = 0;
            for _ in 0..requests {
                failed += usize::from(client.ask(&[], Bytes::new()).await.is_err());
            }
            failed
        }
    }));
    let failed = failed.await.into_iter().sum();
    (Took { cpu: thread_time() - cpu, wall: start.elapsed() }, failed)
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1_000.0
}

/// The requests in flight in the parts `hosts` and `threads`.
const IN_FLIGHT: usize = 64;

/// Measures the CPU time of a request with many hosts of ten connections each and with one host, and with as many of hyper's bare
/// connections.
fn hosts(server: &Server, hosts: usize, requests: usize, rounds: usize) {
    let connections = 10 * hosts;
    let descriptors = process::set_descriptor_limit(16_384);
    if descriptors < connections as u64 + 200 {
        return println!("!! SKIPPED: {hosts} hosts: {descriptors} descriptors are too few");
    }
    let runtime = runtime();
    println!("{hosts} hosts with 10 connections each, {IN_FLIGHT} requests in flight:");
    let pool = PoolConfig::new().max_connections(connections + 100).max_idle(connections + 100);
    let (few, many) = runtime.block_on(async {
        let few = Speeddial::new(server, Setup::default(), pool.clone());
        let client = Speeddial::new(server, Setup::default(), pool);
        let many: Vec<_> = (0..hosts).map(|host| client.named(&name(host))).collect();
        for host in &many {
            let opened = host.client.warm_up(host.url.clone(), 10).await.expect("connections");
            assert_eq!(opened, 10);
        }
        (vec![few; IN_FLIGHT], many)
    });
    let [few, many] = alternately(&runtime, few, many, requests, rounds);
    println!(
        "  speeddial    {many:>6.1} µs of CPU a request, {:.2} times as much as with one host ({few:.1})",
        many / few
    );
    let bare = runtime.block_on(Clients::new(server, Setup::default())).bare;
    let peers::Bare::One(bare) = bare else { unreachable!("HTTP/1.1 is spoken") };
    let few = vec_of(&bare, IN_FLIGHT);
    let many = vec_of(&bare, connections);
    let [few, many] = alternately(&runtime, few, many, requests.max(connections), rounds);
    println!(
        "  hyper        {many:>6.1} µs over as many connections, {:.2} times {few:.1} over {IN_FLIGHT}",
        many / few
    );
}

/// Returns the CPU time of a request with few and with many clients, in microseconds.
fn alternately<A: Ask>(
    runtime: &Runtime,
    mut few: Vec<A>,
    mut many: Vec<A>,
    requests: usize,
    rounds: usize,
) -> [f64; 2] {
    let mut took = [Vec::new(), Vec::new()];
    // The first round is not counted: it opens the connections that are not open yet.
    for round in 0..=rounds {
        let spent = [&mut few, &mut many].map(|clients| runtime.block_on(in_turn(clients, requests)));
        if round > 0 {
            took.iter_mut().zip(spent).for_each(|(took, spent)| took.push(spent));
        }
    }
    drop((few, many));
    let tasks = runtime.metrics();
    runtime.block_on(async {
        while tasks.num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    });
    took.map(|took| micros(median(took.into_iter())))
}

fn vec_of<A: Ask>(client: &A, count: usize) -> Vec<A> {
    (0..count).map(|_| client.clone()).collect()
}

/// Makes requests with one client after the other, `IN_FLIGHT` at a time, and returns the CPU time of one request.
async fn in_turn<A: Ask>(clients: &mut [A], requests: usize) -> Duration {
    let share = clients.len().div_ceil(IN_FLIGHT);
    let each = requests.div_ceil(clients.len().div_ceil(share));
    let cpu = thread_time();
    let made = join_all(clients.chunks_mut(share).map(|own| async move {
        for number in 0..each {
            let at = number % own.len();
            own[at].ask(&[], Bytes::new()).await.expect("a response");
        }
        each
    }));
    let made: usize = made.await.into_iter().sum();
    (thread_time() - cpu) / made as u32
}

/// Returns the time until one core reads what another one has written.
///
/// On virtual machines that time changes within minutes by a factor of ten, and the gain by a second thread changes with it.
fn core_to_core() -> Duration {
    const TURNS: u32 = 20_000;
    let ball = AtomicUsize::new(0);
    let play = |side: usize| {
        for turn in 0..TURNS as usize {
            let mut looked = 0;
            while ball.load(Ordering::Acquire) != 2 * turn + side {
                looked += 1;
                // If there is no spare core, the other side needs this one.
                if looked % 1_000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
            ball.store(2 * turn + side + 1, Ordering::Release);
        }
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| play(0));
        scope.spawn(|| play(1));
    });
    start.elapsed() / (2 * TURNS)
}

/// Measures requests per second on one worker thread and on two.
///
/// The connections answer by themselves, because a server would need a share of the processors.
fn threads(requests: usize, rounds: usize) {
    let mut rates = [Vec::new(), Vec::new()];
    let mut latencies = Vec::new();
    for threads in (0..rounds).flat_map(|_| [1, 2]) {
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime");
        let client = canned::builder().build().expect("a client");
        let start = Instant::now();
        runtime.block_on(async {
            let tasks = (0..IN_FLIGHT).map(|_| {
                let client = client.clone();
                let url = canned::url();
                tokio::spawn(async move {
                    for _ in 0..requests / IN_FLIGHT {
                        canned::get(&client, &url).await;
                    }
                })
            });
            join_all(tasks).await.into_iter().for_each(|task| task.expect("no panic"));
        });
        rates[threads - 1].push(start.elapsed());
        if threads == 2 {
            latencies.push(core_to_core());
        }
    }
    let [one, two] = rates.map(|times| median(times.into_iter()).as_secs_f64());
    println!("{requests} requests without a server, {IN_FLIGHT} in flight:");
    print!("  on two threads {:.2} times as many a second as on one", one / two);
    println!("; another core reads a written value {} ns later", median(latencies.into_iter()).as_nanos());
}

/// Measures the resident memory of idle connections that have each carried a request, in a process of its own.
fn memory(server: &Server, connections: usize) {
    let address = server.address().to_string();
    let resident = |client: &str| -> f64 {
        process::run(&[MEMORY_OF, client, &address, &connections.to_string()]).trim().parse().expect("a number")
    };
    println!("{connections} idle connections, resident memory:");
    let [bare, ours] = ["hyper", "speeddial"].map(resident);
    println!("  speeddial    {ours:>6.1} KB each, {:.2} times hyper's {bare:.1}", ours / bare);
}

/// Returns the resident memory of this process, in KB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(f64::NAN)
}

/// Opens the idle connections of one client and prints the memory of each.
fn print_memory(client: &str, address: SocketAddr, connections: usize) {
    process::set_descriptor_limit(16_384);
    let server = Server::at(address);
    let runtime = runtime();
    runtime.block_on(async {
        // The first request allocates what is needed once per process.
        let clients = Clients::new(&server, Setup::default()).await;
        let peers::Bare::One(bare) = &clients.bare else { unreachable!("HTTP/1.1 is spoken") };
        let pool = PoolConfig::new().max_connections(connections).max_idle(connections);
        let ours = Speeddial::new(&server, Setup::default(), pool);
        let mut kept = vec_of(bare, if client == "hyper" { connections } else { 0 });
        bare.clone().ask(&[], Bytes::new()).await.expect("a response");
        ours.clone().ask(&[], Bytes::new()).await.expect("a response");
        let before = resident();
        for kept in &mut kept {
            kept.warm_up().await.expect("a connection");
        }
        // All at once, so that each connection carries one request.
        if kept.is_empty() {
            ours.client.warm_up(ours.url.clone(), connections).await.expect("connections");
            ask_all(&mut vec![ours.clone(); connections]).await;
        } else {
            ask_all(&mut kept).await;
        }
        println!("{:.2}", (resident() - before) / connections as f64);
        drop(kept);
    });
}

async fn ask_all<A: Ask>(clients: &mut [A]) {
    join_all(clients.iter_mut().map(|client| async { client.ask(&[], Bytes::new()).await.expect("a response") })).await;
}

/// Measures the CPU time of a request where as many hosts have one at once, and wait for a few connections in all.
fn waiting(numbers: &[usize], rounds: usize) {
    const TOTAL: usize = 128;
    println!("one request to each host, all at once, {TOTAL} connections in all:");
    let mut of_fewest = None;
    for hosts in numbers.iter().copied() {
        let took = median((0..rounds).map(|_| {
            let pool =
                PoolConfig::new().max_connections(TOTAL).max_waiting(hosts).wait_timeout(Duration::from_secs(600));
            let name = |host: usize| format!("h{host}.test");
            let names =
                (0..hosts).fold(FixedResolver::new(), |names, host| names.with(name(host), [[192, 0, 2, 1].into()]));
            let client = canned::builder().dns_resolver(names).pool(pool).build().expect("a client");
            runtime().block_on(async {
                let cpu = thread_time();
                let calls = (0..hosts).map(|host| client.get(format!("http://{}/", name(host))));
                join_all(calls.map(canned::send)).await;
                thread_time() - cpu
            })
        }));
        let each = micros(took) / hosts as f64;
        let fewest = *of_fewest.get_or_insert(each);
        println!(
            "  {hosts:>6} hosts {each:>6.1} µs of CPU a request, {:.2} times as much as with the fewest",
            each / fewest
        );
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [SERVE] => return serve(),
        [MEMORY_OF, client, address, connections] => {
            let address = address.parse().expect("an address");
            return print_memory(client, address, connections.parse().expect("a number"));
        }
        _ => {}
    }
    let is_test = arguments.iter().any(|argument| argument == "--test");
    let words: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let wanted = |part: &str| words.is_empty() || words.iter().any(|word| *word == part);
    let process = ServerProcess::start(&[SERVE]);
    let server = &Server::at(process.address());
    if wanted("tasks") {
        if is_test { tasks(server, 50, 2, 1) } else { tasks(server, 1_000, 100, 3) }
    }
    if wanted("hosts") {
        if is_test { hosts(server, 20, 400, 1) } else { hosts(server, peers::NAMES, 40_000, 5) }
    }
    if wanted("waiting") {
        if is_test { waiting(&[200, 400], 1) } else { waiting(&[500, 2_000, 8_000, 20_000], 5) }
    }
    if wanted("threads") {
        if is_test { threads(640, 1) } else { threads(100_000, 5) }
    }
    if wanted("memory") {
        memory(server, if is_test { 50 } else { 2_000 });
    }
}
