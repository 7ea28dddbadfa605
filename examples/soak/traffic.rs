//! Calls at a steady rate, with pauses in which none is under way.

use std::time::{Duration, Instant};

use speeddial::Client;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::calls::{Call, Failure, Kind};
use crate::tally::Tally;
use crate::world::Places;
use crate::{Options, Result, sample};

/// The most calls under way.
const MOST: usize = 256;
/// The time between two looks at how many calls are due.
const TICK: Duration = Duration::from_millis(5);
/// The hosts that are called before the clock starts, so that all that is kept of hosts has reached its limits.
const FILLED: u64 = 6_000;
/// The calls under way at that time.
const FILLED_AT_ONCE: usize = 64;
/// The hosts among which calls choose at a time.
const HOSTS: u64 = 300;
/// The hosts that come, and go, each second.
const NEW_HOSTS: f64 = 20.0;
/// The time in which all calls, and what they leave behind, must have ended.
const PATIENCE: Duration = Duration::from_secs(40);

/// The end of a call.
type Outcome = (Kind, Result<(), Failure>);

/// The traffic of one client.
pub(crate) struct Traffic {
    client: Client,
    places: Places,
    rate: f64,
    random: fastrand::Rng,
    calls: JoinSet<Outcome>,
    tally: Tally,
    start: Instant,
}

impl Traffic {
    pub(crate) fn new(client: Client, places: Places, options: &Options) -> Self {
        Self {
            client,
            places,
            rate: f64::from(options.rate),
            random: fastrand::Rng::with_seed(options.seed),
            calls: JoinSet::new(),
            tally: Tally::default(),
            start: Instant::now(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Calls many hosts once. What is kept of hosts has limits; they are reached here, and not while memory is watched. After that, calls
    /// the services that are always there, until each has answered: DNS may fail at the moment, and once their addresses are known, that
    /// must not be noticed.
    pub(crate) async fn fill(&mut self) -> Result<()> {
        for host in 0..FILLED {
            while self.calls.len() >= FILLED_AT_ONCE {
                self.reap().await;
            }
            self.begin(Call { kind: Kind::Host, host, dice: 0 });
        }
        self.settle().await?;
        for kind in [Kind::Get, Kind::GetHttp2, Kind::GetTlsHttp1] {
            let answered = async { while self.call(kind).await.is_err() {} };
            timeout(PATIENCE, answered).await.map_err(|_| format!("no answer: {}", kind.name()))?;
        }
        self.settle().await
    }

    /// Makes a call beside the others, after a moment.
    async fn call(&self, kind: Kind) -> Result<(), Failure> {
        sleep(TICK).await;
        Call { kind, host: 0, dice: 0 }.make(&self.client, &self.places).await
    }

    /// Starts the clock, and counts from here.
    pub(crate) fn start(&mut self) -> Instant {
        self.tally = Tally::default();
        self.start = Instant::now();
        self.start
    }

    /// Makes calls until the clock shows `end`.
    pub(crate) async fn run_until(&mut self, end: Duration) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begun = self.start.elapsed();
        let mut made = 0;
        while self.start.elapsed() < end {
            ticks.tick().await;
            let due = ((self.start.elapsed() - begun).as_secs_f64() * self.rate) as u64;
            while made < due {
                made += 1;
                if self.calls.len() < MOST {
                    let call = self.choose();
                    self.begin(call);
                }
            }
            while let Some(ended) = self.calls.try_join_next() {
                self.note(ended);
            }
        }
    }

    /// Waits until no call is under way, and the client holds no connection for one.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        let settled = async {
            while !self.calls.is_empty() {
                self.reap().await;
            }
            while self.is_busy() {
                sleep(TICK).await;
            }
        };
        if timeout(PATIENCE, settled).await.is_ok() {
            return Ok(());
        }
        let (left, pool) = (self.calls.len(), self.client.pool_stats());
        Err(format!("{left} calls have not ended {PATIENCE:?} after the last one began: {pool:?}").into())
    }

    /// Waits until the idle timeout has ended each connection.
    pub(crate) async fn cool(&self) -> Result<()> {
        let is_open = || sample::take(&self.client).connections() > 0;
        let cooled = async {
            while is_open() {
                sleep(TICK).await;
            }
        };
        let cooled = timeout(PATIENCE, cooled).await;
        cooled.map_err(|_| {
            format!("connections stay open after their idle timeout: {:?}", self.client.pool_stats()).into()
        })
    }

    fn is_busy(&self) -> bool {
        let pool = self.client.pool_stats();
        pool.leased + pool.dialling + pool.waiting + pool.in_use + pool.closing > 0
    }

    fn choose(&mut self) -> Call {
        let kind = Kind::choose(&mut self.random);
        let first = FILLED + (self.start.elapsed().as_secs_f64() * NEW_HOSTS) as u64;
        Call { kind, host: first + self.random.u64(..HOSTS), dice: self.random.u64(..) }
    }

    fn begin(&mut self, call: Call) {
        let (client, places) = (self.client.clone(), self.places.clone());
        self.calls.spawn(async move { (call.kind, call.make(&client, &places).await) });
    }

    /// Waits for the end of a call.
    async fn reap(&mut self) {
        if let Some(ended) = self.calls.join_next().await {
            self.note(ended);
        }
    }

    fn note(&mut self, ended: Result<Outcome, JoinError>) {
        let (kind, outcome) = ended.expect("calls do not panic");
        self.tally.add(kind, outcome);
    }
}
