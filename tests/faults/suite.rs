//! The servers, the proxies and the clients, many calls at once, and what must hold after them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use speeddial::Client;
use speeddial::http::Method;
use support::fault_script::{LONGEST_PAUSE, Tag};
use tokio::runtime::Handle;

use crate::calls;
use crate::far::Far;
use crate::judge::{Connection, End, Evidence};
use crate::lateness::Lateness;
use crate::plan::{Caller, Plan};
use crate::server::{Ledger, Step};

/// The calls that are under way at the same time.
const IN_FLIGHT: usize = 96;

/// What is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) requests: u64,
    pub(crate) time: Duration,
    /// False for connections without faults.
    pub(crate) faults: bool,
    /// True if the server lies.
    pub(crate) lies: bool,
}

/// Something that must not happen, and the call to which it did.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) call: Option<u64>,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.call {
            Some(call) => write!(f, "call {call}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// The result of a run.
pub(crate) struct Report {
    pub(crate) violations: Vec<Violation>,
    pub(crate) table: String,
    pub(crate) calls: u64,
}

/// What the calls share.
struct Suite {
    options: Options,
    far: Far,
    clients: Vec<Client>,
    lateness: Lateness,
    next: AtomicU64,
    findings: Mutex<Findings>,
}

#[derive(Default)]
struct Findings {
    violations: Vec<Violation>,
    /// The number of calls with each outcome, by lane.
    outcomes: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// The number of errors with each text, without the request and what is behind the first clause.
    errors: BTreeMap<String, u64>,
    /// The longest time after its deadline at which a call ended.
    latest: Duration,
    /// The same, on top of what a busy machine adds.
    latest_beyond_timers: Duration,
    /// The calls whose requests are POSTs, without the bodies of their answers.
    posts: HashMap<u64, Evidence>,
}

/// Makes the calls, and checks the state of the clients after them.
pub(crate) async fn run(options: Options) -> Report {
    let metrics = Handle::current().metrics();
    let tasks_before = metrics.num_alive_tasks();
    let descriptors_before = descriptors();
    let far = tokio::task::spawn_blocking(move || Far::start(options)).await.expect("the servers start");
    let clients = Caller::ALL.iter().map(|caller| far.client(*caller)).collect();
    let suite = Arc::new(Suite {
        options,
        far,
        clients,
        lateness: Lateness::measure(),
        next: AtomicU64::new(0),
        findings: Mutex::default(),
    });
    let end = Instant::now() + options.time;
    let workers: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let suite = suite.clone();
            tokio::spawn(async move {
                while Instant::now() < end {
                    let id = suite.next.fetch_add(1, Ordering::Relaxed);
                    if id >= suite.options.requests {
                        return;
                    }
                    suite.call(id).await;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("a worker does not panic");
    }
    let suite = Arc::into_inner(suite).expect("the workers have ended");
    suite.end(tasks_before, descriptors_before).await
}

impl Suite {
    async fn call(&self, id: u64) {
        let plan = Plan::draw(self.options.seed, id);
        let client = &self.clients[plan.caller as usize];
        let url = self.far.server.url(plan.lane);
        let start = Instant::now();
        let (end, elapsed, used) = calls::make(&plan, client, &url).await;
        let worst_since = |since| self.lateness.worst_since(since).max(self.far.lateness.worst_since(since));
        let lateness = worst_since(start + plan.deadline.min(elapsed));
        let lateness_before = worst_since(start);
        let connections = used.all().into_iter().map(|(connection, address)| {
            let tag = Tag { client: plan.caller as u64, connection };
            let server = &self.far.server;
            let (script, struck) = ((server.script_of)(address, tag), server.strikes.of(tag));
            Connection { tag, lane: self.far.lane(address), script, struck }
        });
        let evidence = Evidence { connections: connections.collect(), plan, end, elapsed, lateness, lateness_before };
        self.findings.lock().unwrap().take(&evidence);
    }

    /// Ends all clients and servers, and checks that nothing of them is left.
    async fn end(self, tasks_before: usize, descriptors_before: Option<usize>) -> Report {
        let Self { options, far, clients, lateness, next, findings } = self;
        let mut findings = findings.into_inner().unwrap();
        drop(lateness);
        for (caller, client) in Caller::ALL.into_iter().zip(&clients) {
            support::settled(client).await;
            if tokio::time::timeout(Duration::from_secs(10), client.drain()).await.is_err() {
                findings.violation(format!("{caller:?} does not drain: {:?}", client.pool_stats()));
            }
            let is_empty = || {
                let stats = client.pool_stats();
                let held = stats.leased + stats.waiting + stats.dialling + stats.in_use + stats.idle + stats.closing;
                held == 0 && stats.opened == stats.closed
            };
            if !eventually(is_empty).await {
                findings.violation(format!("{caller:?} holds connections after the drain: {:?}", client.pool_stats()));
            }
        }
        // What a pause of a proxy holds back may still reach the server.
        tokio::time::sleep(LONGEST_PAUSE).await;
        findings.check_ledger(&far.server.ledger);
        let table = findings.table(&far, &clients);
        drop(clients);
        let metrics = Handle::current().metrics();
        if !eventually(|| metrics.num_alive_tasks() == tasks_before).await {
            findings.violation(format!("{} tasks, not {tasks_before}", metrics.num_alive_tasks()));
        }
        tokio::task::spawn_blocking(move || far.stop()).await.expect("the servers stop");
        // What a test before this one left to be closed may have closed meanwhile.
        if !eventually(|| descriptors() <= descriptors_before).await {
            findings.violation(format!("{:?} descriptors, not {descriptors_before:?}", descriptors()));
        }
        let calls = next.into_inner().min(options.requests);
        Report { violations: findings.violations, table, calls }
    }
}

impl Findings {
    fn take(&mut self, evidence: &Evidence) {
        let Evidence { plan, elapsed, .. } = evidence;
        let word = match evidence.judge() {
            Ok(word) => word,
            Err(wrong) => {
                self.violation_of(plan.id, format!("{wrong}\n{evidence}"));
                "VIOLATION"
            }
        };
        *self.outcomes.entry(plan.lane.host()).or_default().entry(word).or_default() += 1;
        if let End::Failed(failure) = &evidence.end {
            *self.errors.entry(failure.clause().to_owned()).or_default() += 1;
        }
        self.latest = self.latest.max(elapsed.saturating_sub(plan.deadline));
        self.latest_beyond_timers =
            self.latest_beyond_timers.max(elapsed.saturating_sub(plan.deadline + evidence.allowance()));
        if plan.method == Method::POST {
            let mut evidence = evidence.clone();
            if let End::Answered { body, .. } = &mut evidence.end {
                *body = Vec::new();
            }
            self.posts.insert(plan.id, evidence);
        }
    }

    /// Checks how often the server has processed each POST.
    fn check_ledger(&mut self, ledger: &Ledger) {
        for (id, complaint) in ledger.complaints() {
            self.violation_of(id, complaint);
        }
        let processed = ledger.processed();
        for evidence in std::mem::take(&mut self.posts).into_values() {
            let Plan { id, .. } = evidence.plan;
            let on = |is_redirected| {
                processed.get(&Step { id, is_post: true, is_redirected }).map_or(&[][..], Vec::as_slice)
            };
            for wrong in [evidence.judge_first_post(on(true)), evidence.judge_last_post(on(false))] {
                if let Err(wrong) = wrong {
                    self.violation_of(id, format!("{wrong}\n{evidence}"));
                }
            }
        }
    }

    fn violation(&mut self, text: String) {
        self.violations.push(Violation { call: None, text });
    }

    fn violation_of(&mut self, call: u64, text: String) {
        self.violations.push(Violation { call: Some(call), text });
    }

    fn table(&self, far: &Far, clients: &[Client]) -> String {
        let mut text = String::new();
        for (lane, outcomes) in &self.outcomes {
            let counts = outcomes.iter().map(|(word, count)| format!("{word} {count}"));
            let _ = writeln!(text, "{lane:20} {}", counts.collect::<Vec<_>>().join(", "));
        }
        let faults = far.faults().into_iter().map(|(fault, count)| format!("{fault} {count}"));
        let _ = writeln!(text, "{:20} {}", "connections struck", faults.collect::<Vec<_>>().join(", "));
        for (clause, count) in &self.errors {
            let _ = writeln!(text, "{count:>20} {clause}");
        }
        let opened = clients.iter().map(|client| client.pool_stats().opened).collect::<Vec<_>>();
        let _ = writeln!(text, "{:20} {opened:?} by {:?}", "connections opened", Caller::ALL);
        let Self { latest, latest_beyond_timers, .. } = self;
        let _ =
            write!(text, "latest after its deadline {latest:?}, beyond what the machine adds {latest_beyond_timers:?}");
        text
    }
}

fn descriptors() -> Option<usize> {
    std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count)
}

/// Waits until `done` returns true, for up to 30 s on a busy machine.
async fn eventually(done: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}
