//! Random walks over the pool's driver in paused time: requests, cancels, closes by peers, dials that fail, time that passes and
//! announcements that change, over HTTP/1 and HTTP/2.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

/// A network. The first letter of a host's name is its protocol: `1` for HTTP/1, `2` for HTTP/2, `?` for either.
#[derive(Clone)]
struct World {
    network: Arc<Mutex<Network>>,
}

struct Network {
    random: fastrand::Rng,
    sockets: HashMap<u64, Socket>,
    limits: NetworkLimits,
}

#[derive(Clone, Copy)]
struct NetworkLimits {
    total: usize,
    per_host: usize,
    http2: usize,
    streams: usize,
}

/// An open socket.
struct Socket {
    key: &'static str,
    is_http2: bool,
    streams: usize,
    /// The most streams it was allowed since the requests in progress took theirs.
    allowed: usize,
    taken: usize,
    task: AbortHandle,
    reporter: Arc<CapacityReporter>,
}

#[derive(Clone)]
struct Conn {
    number: u64,
    world: World,
}

const KEYS: [&str; 5] = ["1a", "1b", "2a", "2b", "?"];

impl World {
    fn lock(&self) -> MutexGuard<'_, Network> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.lock().random)
    }

    fn take_stream(&self, number: u64) {
        let mut network = self.lock();
        // The socket may have closed while its lease was on the way.
        let Some(socket) = network.sockets.get_mut(&number) else { return };
        socket.taken += 1;
        let (taken, allowed) = (socket.taken, socket.allowed);
        let (key, limits) = (socket.key, network.limits);
        let of_host = network.sockets.values().filter(|socket| socket.key == key).count();
        let in_total = network.sockets.len();
        drop(network);
        assert!(taken <= allowed, "{taken} on a connection of {allowed}");
        assert!(of_host <= limits.per_host && in_total <= limits.total, "over the limit");
    }

    fn give_back_stream(&self, number: u64) {
        if let Some(socket) = self.lock().sockets.get_mut(&number) {
            socket.taken -= 1;
        }
    }

    /// Returns any connection, and what reports its capacity to the pool.
    fn pick(&self) -> Option<(u64, AbortHandle, Arc<CapacityReporter>, bool)> {
        let mut network = self.lock();
        let count = network.sockets.len();
        let nth = (count > 0).then(|| network.random.usize(..count))?;
        let mut numbers: Vec<_> = network.sockets.keys().copied().collect();
        numbers.sort_unstable();
        let socket = &network.sockets[&numbers[nth]];
        Some((numbers[nth], socket.task.clone(), socket.reporter.clone(), socket.is_http2))
    }

    async fn announce_streams(&self) {
        let Some((number, _, reporter, true)) = self.pick() else { return };
        let streams = self.random(|random| random.usize(..4));
        {
            let mut network = self.lock();
            let most = network.limits.streams;
            let Some(socket) = network.sockets.get_mut(&number) else { return };
            socket.streams = streams.min(most);
            socket.allowed = socket.allowed.max(socket.streams);
        }
        reporter.announce_streams(streams);
        // Requests that were given a stream just now take it.
        tokio::time::sleep(Duration::from_millis(1)).await;
        if let Some(socket) = self.lock().sockets.get_mut(&number) {
            socket.allowed = socket.streams.max(socket.taken);
        }
    }
}

impl Dial for World {
    type Key = &'static str;
    type Opened = &'static str;
    type Conn = Conn;
    type Error = &'static str;

    async fn dial(&self, key: &Self::Key, _: AddressWish, _: &Arc<DialTrace>) -> Result<&'static str, &'static str> {
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
        slot: Slot,
        task: AbortHandle,
    ) -> (Started<Conn>, impl Future<Output = ()> + Send + Unpin + use<>) {
        let number = slot.connection();
        let is_http2 = match key.as_bytes()[0] {
            b'1' => false,
            b'2' => true,
            _ => self.random(fastrand::Rng::bool),
        };
        let reporter = Arc::new(slot.capacity_reporter());
        let world = self.clone();
        let open_socket = OpenSocket { world, number };
        let serving = Box::pin(async move {
            std::future::pending::<()>().await;
            // The socket first, then its slot.
            drop(open_socket);
            drop(slot);
        });
        let socket = Socket { key, is_http2, streams: 1, allowed: 1, taken: 0, task, reporter };
        self.lock().sockets.insert(number, socket);
        let speaks = if is_http2 { Speaks::Http2 } else { Speaks::Http1 };
        (Started { conn: Conn { number, world: self.clone() }, speaks, location: None, remote: None }, serving)
    }

    fn close(conn: &Conn) {
        let task = conn.world.lock().sockets.get(&conn.number).map(|socket| (socket.taken, socket.task.clone()));
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
            b'1' => Speaks::Http1,
            b'2' => Speaks::Http2,
            _ => Speaks::Unknown,
        }
    }

    fn balanced(&self, _: &Self::Key) -> Option<BalancedHost> {
        None
    }

    fn lacking(error: &&'static str) -> Option<Limit> {
        (*error == "exhausted").then_some(Limit::Descriptors)
    }

    fn answers(&self, _: Instant, _: &str) -> SmallVec<[Addresses; 2]> {
        SmallVec::new()
    }
}

/// An open socket, which closes when this is dropped.
struct OpenSocket {
    world: World,
    number: u64,
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.world.lock().sockets.remove(&self.number);
    }
}

const WAIT: Duration = Duration::from_secs(3);

/// Makes a request: it waits, holds its connection for a while, and ends one way or another.
async fn request(pool: Pool<World>, world: World, key: &'static str) {
    let start = now();
    let failed_on = world.random(|random| (random.u8(..10) == 0).then(|| random.u64(..30)));
    let send_once = world.random(fastrand::Rng::bool);
    let failed = failed_on.map(|number| EarlierConn { number, ip: None });
    let wish = Wish { failed, despite_drain: failed_on.is_some(), send_once, ..Wish::default() };
    let lease = match pool.checkout(&key, &wish, now(), limits) {
        Checkout::Ready(lease) => Ok(lease),
        Checkout::Wait(waiter, _) => waiter.await.lease,
        Checkout::Refused(error) => Err(error),
    };
    // A dial may take 1.5 s beyond the wait for it. If it comes to nothing, the request waits again.
    assert!(now() - start <= WAIT * 4, "waited for {:?}", now() - start);
    let Ok(mut lease) = lease else { return };
    let number = lease.conn().number;
    world.take_stream(number);
    let stream = StreamInUse { world: world.clone(), number };
    let (hold, end) = world.random(|random| (random.u64(..50), random.u8(..6)));
    if world.lock().sockets.get(&number).is_some_and(|socket| !socket.is_http2) {
        lease.retire(CloseCause::Unfinished);
    }
    tokio::time::sleep(Duration::from_millis(hold)).await;
    drop(stream);
    match end {
        0 => lease.end(CloseCause::PeerAnnounced),
        1 => drop(lease),
        2 => lease.mark_cut(),
        _ => lease.give_back(None),
    }
}

struct StreamInUse {
    world: World,
    number: u64,
}

impl Drop for StreamInUse {
    fn drop(&mut self) {
        self.world.give_back_stream(self.number);
    }
}

async fn walk(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let limit = |random: &mut fastrand::Rng| if random.bool() { 1_000 } else { random.usize(1..6) };
    let limits = NetworkLimits {
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
        .min_idle_per_host(if random.bool() { 0 } else { random.usize(..5) })
        .idle_timeout(Duration::from_millis(random.u64(..200) * if random.bool() { 1 } else { 20 }))
        .lifetime(Duration::from_millis(random.u64(1..4_000)))
        .wait_timeout(WAIT);
    let keeps_warm = config.per_host.min_idle > 0;
    let network = Network { random: fastrand::Rng::with_seed(seed), sockets: HashMap::new(), limits };
    let world = World { network: Arc::new(Mutex::new(network)) };
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
            9 => world.announce_streams().await,
            10 => {
                if let Some((.., reporter, _)) = world.pick() {
                    reporter.take_no_more();
                }
            }
            _ => tokio::time::sleep(Duration::from_millis(random.u64(..30))).await,
        }
        if random.u8(..60) == 0 {
            pool.close_idle();
        }
    }
    // Hosts that are kept warm are forgotten after an hour, which takes long to walk through.
    let draining = if keeps_warm { random.u8(..16) > 0 } else { random.bool() };
    let until_closed = Duration::from_secs(if keeps_warm { 4_000 } else { 9 });
    if draining && random.bool() {
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
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
        tokio::time::sleep(until_closed).await;
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
    let seeds = std::env::var("WALKS").map_or(400, |walks| walks.parse().expect("a number"));
    for seed in 0..seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(walk(seed));
    }
}
