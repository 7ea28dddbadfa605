//! Random walks over the pool's driver in paused time: requests, cancels, peers that close, dials that fail, time that
//! passes, limits that change, over HTTP/1 and HTTP/2.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

/// A network whose hosts are told apart by their first letter: `1` speaks HTTP/1, `2` HTTP/2, `?` one of the two.
#[derive(Clone)]
struct World {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    random: fastrand::Rng,
    sockets: HashMap<u64, Socket>,
    limits: Limits,
}

#[derive(Clone, Copy)]
struct Limits {
    total: usize,
    per_host: usize,
    http2: usize,
    streams: usize,
}

/// What is known of a connection, from outside.
struct Socket {
    key: &'static str,
    many: bool,
    seats: usize,
    /// The most seats it had since somebody took one.
    allowed: usize,
    taken: usize,
    task: AbortHandle,
    teller: Arc<Teller<World>>,
}

#[derive(Clone)]
struct Line {
    number: u64,
    world: World,
}

const KEYS: [&str; 5] = ["1a", "1b", "2a", "2b", "?"];

impl World {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.lock().random)
    }

    fn sit(&self, number: u64) {
        let mut shared = self.lock();
        // The socket may have closed while its lease was on the way.
        let Some(socket) = shared.sockets.get_mut(&number) else { return };
        socket.taken += 1;
        let (taken, allowed) = (socket.taken, socket.allowed);
        let (key, limits) = (socket.key, shared.limits);
        let of_host = shared.sockets.values().filter(|socket| socket.key == key).count();
        let in_total = shared.sockets.len();
        drop(shared);
        assert!(taken <= allowed, "{taken} on a connection of {allowed}");
        assert!(of_host <= limits.per_host && in_total <= limits.total, "over the limit");
    }

    fn stand_up(&self, number: u64) {
        if let Some(socket) = self.lock().sockets.get_mut(&number) {
            socket.taken -= 1;
        }
    }

    /// Any connection, and what tells the pool of it.
    fn pick(&self) -> Option<(u64, AbortHandle, Arc<Teller<World>>, bool)> {
        let mut shared = self.lock();
        let count = shared.sockets.len();
        let nth = (count > 0).then(|| shared.random.usize(..count))?;
        let mut numbers: Vec<_> = shared.sockets.keys().copied().collect();
        numbers.sort_unstable();
        let socket = &shared.sockets[&numbers[nth]];
        Some((numbers[nth], socket.task.clone(), socket.teller.clone(), socket.many))
    }

    async fn reseat(&self) {
        let Some((number, _, teller, true)) = self.pick() else { return };
        let seats = self.random(|random| random.usize(..4));
        {
            let mut shared = self.lock();
            let most = shared.limits.streams;
            let Some(socket) = shared.sockets.get_mut(&number) else { return };
            socket.seats = seats.min(most);
            socket.allowed = socket.allowed.max(socket.seats);
        }
        teller.seats(seats);
        // Those who were given a seat just now sit down.
        tokio::time::sleep(Duration::from_millis(1)).await;
        if let Some(socket) = self.lock().sockets.get_mut(&number) {
            socket.allowed = socket.seats.max(socket.taken);
        }
    }
}

impl Dial for World {
    type Key = &'static str;
    type Opened = &'static str;
    type Conn = Line;
    type Error = &'static str;

    async fn dial(&self, key: &Self::Key, _: &Arc<DialTrace>) -> Result<&'static str, &'static str> {
        let (delay, outcome) = self.random(|random| (random.u64(..40), random.u8(..20)));
        tokio::time::sleep(Duration::from_millis(if outcome == 0 { 1_500 } else { delay })).await;
        match outcome {
            1 | 2 => Err("refused"),
            3 => Err("exhausted"),
            4 if delay == 0 => panic!("as scripted"),
            _ => Ok(key),
        }
    }

    fn start(
        &self,
        key: &'static str,
        place: Place<Self>,
        task: AbortHandle,
    ) -> (Started<Line>, impl Future<Output = ()> + Send + Unpin + use<>) {
        let number = place.connection();
        let many = match key.as_bytes()[0] {
            b'1' => false,
            b'2' => true,
            _ => self.random(fastrand::Rng::bool),
        };
        let teller = Arc::new(place.teller());
        let world = self.clone();
        let gone = Gone { world, number };
        let serving = Box::pin(async move {
            std::future::pending::<()>().await;
            // The socket first, then its place.
            drop(gone);
            drop(place);
        });
        let socket = Socket { key, many, seats: 1, allowed: 1, taken: 0, task, teller };
        self.lock().sockets.insert(number, socket);
        let speaks = if many { Speaks::Many } else { Speaks::One };
        (Started { conn: Line { number, world: self.clone() }, speaks, location: None }, serving)
    }

    fn close(line: &Line) {
        let task = line.world.lock().sockets.get(&line.number).map(|socket| (socket.taken, socket.task.clone()));
        if let Some((taken, task)) = task {
            assert_eq!(taken, 0, "closed in use");
            task.abort();
        }
    }

    fn address(key: &&'static str) -> (String, u16) {
        ((*key).to_owned(), 80)
    }

    fn speaks(&self, key: &&'static str) -> Speaks {
        match key.as_bytes()[0] {
            b'1' => Speaks::One,
            b'2' => Speaks::Many,
            _ => Speaks::Unknown,
        }
    }

    fn is_exhausted(error: &&'static str) -> bool {
        *error == "exhausted"
    }

    fn answers(&self, _: &str) -> Vec<Addresses> {
        Vec::new()
    }
}

/// A socket that is closed when this is dropped.
struct Gone {
    world: World,
    number: u64,
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.world.lock().sockets.remove(&self.number);
    }
}

const WAIT: Duration = Duration::from_secs(3);

/// One request: it waits, holds its connection for a while, and ends as it may.
async fn request(pool: Pool<World>, world: World, key: &'static str) {
    let start = now();
    let again = world.random(|random| (random.u8(..10) == 0).then(|| random.u64(..30)));
    let once = world.random(fastrand::Rng::bool);
    let wish = Wish { failed_on: again, begun: again.is_some(), once, ..Wish::default() };
    let lease = match pool.checkout(&key, wish, now()) {
        Checkout::Ready(lease) => Ok(lease),
        Checkout::Wait(ticket, _) => ticket.await.lease,
        Checkout::Refused(error) => Err(error),
    };
    // A dial may take 1.5 s beyond the wait for it.
    assert!(now() - start <= WAIT * 2, "waited for {:?}", now() - start);
    let Ok(mut lease) = lease else { return };
    let number = lease.conn().number;
    world.sit(number);
    let seat = Seat { world: world.clone(), number };
    let (hold, end) = world.random(|random| (random.u64(..50), random.u8(..6)));
    if world.lock().sockets.get(&number).is_some_and(|socket| !socket.many) {
        lease.retire(CloseCause::Unfinished);
    }
    tokio::time::sleep(Duration::from_millis(hold)).await;
    drop(seat);
    match end {
        0 => lease.end(CloseCause::PeerAsked),
        1 => drop(lease),
        2 => lease.cut(),
        _ => lease.give_back(None),
    }
}

struct Seat {
    world: World,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.world.stand_up(self.number);
    }
}

async fn walk(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let limit = |random: &mut fastrand::Rng| if random.bool() { 1_000 } else { random.usize(1..6) };
    let limits = Limits {
        total: limit(&mut random),
        per_host: limit(&mut random),
        http2: random.usize(1..4),
        streams: random.usize(1..4),
    };
    let config = PoolConfig::new()
        .max_connections(limits.total)
        .max_connections_per_host(limits.per_host)
        .max_http2_connections_per_host(limits.http2)
        .max_streams_per_connection(limits.streams)
        .max_requests_per_connection(if random.bool() { u64::MAX } else { random.u64(1..6) })
        .max_waiting(if random.bool() { 10_000 } else { random.usize(..10) })
        .max_idle(random.usize(..6))
        .idle_timeout(Duration::from_millis(random.u64(..200)))
        .lifetime(Duration::from_millis(random.u64(1..2_000)))
        .wait_timeout(WAIT);
    let shared = Shared { random: fastrand::Rng::with_seed(seed), sockets: HashMap::new(), limits };
    let world = World { shared: Arc::new(Mutex::new(shared)) };
    let pool = Pool::new(config, world.clone(), Hooks::default());
    let mut requests = Vec::new();
    for _ in 0..random.usize(50..150) {
        match random.u8(..12) {
            0..=6 => {
                let key = KEYS[random.usize(..KEYS.len())];
                requests.push(tokio::spawn(request(pool.clone(), world.clone(), key)));
            }
            7 if !requests.is_empty() => requests[random.usize(..requests.len())].abort(),
            8 => {
                if let Some((_, task, _, _)) = world.pick() {
                    task.abort();
                }
            }
            9 => world.reseat().await,
            10 => {
                if let Some((.., teller, _)) = world.pick() {
                    teller.no_more();
                }
            }
            _ => tokio::time::sleep(Duration::from_millis(random.u64(..30))).await,
        }
        if random.u8(..60) == 0 {
            pool.close_idle();
        }
    }
    let draining = random.bool();
    if draining {
        let drained = tokio::time::timeout(Duration::from_secs(20), pool.drain()).await;
        assert!(drained.is_ok(), "seed {seed}: not drained: {:?}", pool.stats());
    }
    for request in requests {
        if let Err(error) = request.await {
            assert!(error.is_cancelled(), "seed {seed}: {error:?}");
        }
    }
    if !draining {
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.leased, stats.waiting, stats.dialling), (0, 0, 0, 0), "seed {seed}: {stats:?}");
    assert_eq!((stats.idle, stats.closing), (0, 0), "seed {seed}: {stats:?}");
    assert_eq!(stats.opened, stats.closed, "seed {seed}");
    assert!(world.lock().sockets.is_empty() && pool.driver.dials.is_empty(), "seed {seed}");
    drop(pool);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0, "seed {seed}: tasks");
}

#[test]
fn random_walks_leave_nothing_behind() {
    let seeds = std::env::var("WALKS").map_or(1_000, |walks| walks.parse().expect("a number"));
    for seed in 0..seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(walk(seed));
    }
}
