//! The pool's driver in paused time, over dials that are scripted by the name of the host.

mod schedules;
mod walks;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::state::AbandonCause;
use super::*;
use crate::clock::Instant;
use crate::trace::{CloseCause, DialTrace, Limit};

/// Opens connections: "slow" takes 100 ms, "soon" 1 ms, names with "never" an hour, "refused" fails after 10 ms, "panic" panics, anything else takes 10 ms.
#[derive(Clone, Default)]
struct Script {
    /// The number of open sockets.
    open: Arc<AtomicUsize>,
    /// The number of the settings by which dials begin.
    settings: Arc<AtomicUsize>,
}

/// The limits of a request that has none of its own. The longest dial takes an hour.
fn limits() -> WaitLimits {
    WaitLimits { connect: Duration::from_secs(7_200), ends_dials: true, queue: None }
}

/// An open socket, which a task serves until it is aborted.
struct Socket(Arc<AtomicUsize>, usize);

impl Drop for Socket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Clone)]
struct Conn {
    number: u64,
    settings: usize,
    task: Arc<Task>,
}

#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Dial for Script {
    type Key = &'static str;
    type Opened = Socket;
    type Conn = Conn;
    type Error = &'static str;

    async fn dial(&self, key: &Self::Key, _: AddressWish, _: &Arc<DialTrace>) -> Result<Socket, &'static str> {
        let settings = self.settings.load(Ordering::SeqCst);
        let delay = match *key {
            "slow" => 100,
            key if key.contains("never") => 60 * 60 * 1_000,
            "soon" => 1,
            _ => 10,
        };
        tokio::time::sleep(Duration::from_millis(delay)).await;
        assert_ne!(*key, "panic", "as scripted");
        if *key == "refused" {
            return Err("refused");
        }
        self.open.fetch_add(1, Ordering::SeqCst);
        Ok(Socket(self.open.clone(), settings))
    }

    fn start(
        &self,
        socket: Socket,
        slot: Slot,
        task: AbortHandle,
    ) -> (Started<Conn>, impl Future<Output = ()> + Send + Unpin + use<>) {
        let conn = Conn { number: slot.connection(), settings: socket.1, task: Arc::new(Task(task)) };
        let serving = Box::pin(async move {
            std::future::pending::<()>().await;
            drop(socket);
            drop(slot);
        });
        (Started { conn, speaks: Speaks::Http1, location: None, remote: None }, serving)
    }

    fn close(conn: &Conn) {
        conn.task.0.abort();
    }

    fn address(key: &&'static str) -> (String, u16) {
        ((*key).to_owned(), 80)
    }

    fn speaks(&self, _: &&'static str) -> Speaks {
        Speaks::Http1
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

fn pool(config: PoolConfig) -> (Pool<Script>, Script) {
    let script = Script::default();
    (Pool::new(config, script.clone(), Hooks::default()), script)
}

fn limited(limit: usize) -> (Pool<Script>, Script) {
    pool(PoolConfig::new().max_connections_per_host(limit))
}

async fn lease(pool: &Pool<Script>, key: &'static str) -> Result<Lease<Script>, LeaseError<&'static str>> {
    match pool.checkout(&key, &Wish::default(), now(), limits) {
        Checkout::Ready(lease) => Ok(lease),
        Checkout::Wait(waiter, _) => waiter.await.lease,
        Checkout::Refused(error) => Err(error),
    }
}

/// Begins an exchange, and returns the connection's number.
fn use_conn(lease: &mut Lease<Script>) -> u64 {
    lease.retire(CloseCause::Unfinished);
    lease.conn().number
}

fn waiter(pool: &Pool<Script>, key: &'static str) -> Waiter<Script> {
    match pool.checkout(&key, &Wish::default(), now(), limits) {
        Checkout::Wait(waiter, _) => waiter,
        _ => panic!("expected to wait"),
    }
}

/// Runs `step` within a runtime.
fn on<T>(runtime: &tokio::runtime::Runtime, step: impl FnOnce() -> T) -> T {
    let _entered = runtime.enter();
    step()
}

fn is_empty(pool: &Pool<Script>) -> bool {
    let stats = pool.stats();
    (stats.idle, stats.in_use, stats.dialling, stats.closing, stats.waiting) == (0, 0, 0, 0, 0)
}

/// Lets all tasks run.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn settled(pool: &Pool<Script>) -> PoolStats {
    settle().await;
    pool.stats()
}

#[tokio::test(start_paused = true)]
async fn a_connection_given_back_is_reused_and_one_dropped_in_use_is_not() {
    let (pool, script) = pool(PoolConfig::new());
    let mut first = lease(&pool, "a").await.unwrap_or_else(|error| panic!("{error:?}"));
    let number = use_conn(&mut first);
    first.give_back(None);
    let mut again = lease(&pool, "a").await.unwrap();
    assert_eq!(use_conn(&mut again), number);
    drop(again);
    let stats = settled(&pool).await;
    assert_eq!((stats.idle, stats.in_use, stats.closing, stats.closed), (0, 0, 0, 1));
    assert_eq!(script.open.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_dropped_before_it_was_used_goes_back() {
    let (pool, _) = pool(PoolConfig::new());
    drop(lease(&pool, "a").await.unwrap());
    assert_eq!(settled(&pool).await.idle, 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_while_dialling_leaves_its_connection_to_the_next() {
    let (pool, _) = limited(1);
    drop(waiter(&pool, "slow"));
    assert_eq!((pool.stats().waiting, pool.stats().dialling), (0, 1));
    let start = now();
    lease(&pool, "slow").await.unwrap().give_back(None);
    assert_eq!((now() - start).as_millis(), 100);
    assert_eq!(pool.stats().opened, 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_delivered_to_a_waiter_that_is_dropped_goes_to_the_next() {
    let (pool, _) = limited(1);
    let held = lease(&pool, "a").await.unwrap();
    let (first, second) = (waiter(&pool, "a"), waiter(&pool, "a"));
    held.give_back(None);
    drop(first);
    let delivery = second.await;
    assert!(delivery.lease.is_ok());
    assert_eq!(pool.stats().opened, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_dial_fails_its_request_and_the_next_one_is_dialled_for() {
    let (pool, _) = limited(1);
    let (first, second) = (waiter(&pool, "refused"), waiter(&pool, "refused"));
    for waiter in [first, second] {
        assert!(matches!(waiter.await.lease, Err(LeaseError::Dial("refused"))));
    }
    assert!(is_empty(&pool));
}

#[tokio::test(start_paused = true)]
async fn a_dial_that_panics_is_lost_and_frees_its_slot() {
    let (pool, _) = limited(1);
    assert!(matches!(lease(&pool, "panic").await, Err(LeaseError::Lost)));
    assert!(is_empty(&pool));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ages_while_the_machine_is_suspended() {
    for (suspended, is_reused) in [(40, true), (60, false)] {
        let (pool, _) = pool(PoolConfig::new());
        let first = lease(&pool, "a").await.unwrap();
        let number = first.conn().number;
        first.give_back(None);
        crate::clock::suspend(Duration::from_secs(suspended));
        let second = lease(&pool, "a").await.unwrap();
        assert_eq!(second.conn().number == number, is_reused, "{suspended} s");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connections_close_by_themselves() {
    let (pool, script) = pool(PoolConfig::new().idle_timeout(Duration::from_millis(500)));
    lease(&pool, "a").await.unwrap().give_back(None);
    tokio::time::sleep(Duration::from_millis(499)).await;
    assert_eq!(pool.stats().idle, 1);
    settle().await;
    assert_eq!(settled(&pool).await.idle, 0);
    assert_eq!((pool.stats().closed, script.open.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_no_longer_than_the_timeout() {
    let config = PoolConfig::new().max_connections_per_host(1).wait_timeout(Duration::from_millis(300));
    let (pool, _) = pool(config);
    let _held = lease(&pool, "a").await.unwrap();
    let start = now();
    assert!(
        matches!(lease(&pool, "a").await, Err(LeaseError::WaitTimeout(expired)) if expired.timeout.as_millis() == 300)
    );
    assert_eq!((now() - start).as_millis(), 300);
    assert_eq!(pool.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_pool_closes_its_connections_and_aborts_its_dials() {
    let (pool, script) = pool(PoolConfig::new());
    lease(&pool, "a").await.unwrap().give_back(None);
    drop(waiter(&pool, "slow"));
    settle().await;
    drop(pool);
    settle().await;
    assert_eq!(script.open.load(Ordering::SeqCst), 0);
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_wait_for_one_connection_in_order() {
    let (pool, _) = limited(1);
    let waiters: Vec<_> = (0..10_000).map(|_| waiter(&pool, "a")).collect();
    for waiter in waiters {
        let mut lease = waiter.await.lease.unwrap();
        lease.retire(CloseCause::Unfinished);
        lease.give_back(None);
    }
    assert_eq!((pool.stats().opened, pool.stats().idle), (1, 1));
}

#[test]
fn requests_on_another_runtime_go_on_when_the_first_runtime_is_gone() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (pool, _) = limited(1);
    let first = runtime();
    let (lost, second) = (on(&first, || waiter(&pool, "slow")), runtime());
    let waiting = on(&second, || waiter(&pool, "a"));
    drop(first);
    second.block_on(async {
        assert!(matches!(lost.await.lease, Err(LeaseError::Lost)));
        assert!(waiting.await.lease.is_ok());
        assert!(lease(&pool, "slow").await.is_ok());
    });
}

#[test]
fn a_wait_timeout_survives_the_runtime_that_kept_the_time() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = PoolConfig::new().max_connections_per_host(1).wait_timeout(Duration::from_millis(50));
    let (pool, _) = pool(config);
    let (first, second) = (runtime(), runtime());
    let held = second.block_on(lease(&pool, "a")).unwrap();
    let _early = on(&first, || waiter(&pool, "a"));
    let late = on(&second, || waiter(&pool, "a"));
    drop(first);
    second.block_on(async { assert!(matches!(late.await.lease, Err(LeaseError::WaitTimeout(..)))) });
    drop(held);
}

#[test]
fn a_dial_begun_outside_of_a_runtime_is_lost() {
    let (pool, _) = limited(1);
    let lost = waiter(&pool, "a");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(matches!(runtime.block_on(lost).lease, Err(LeaseError::Lost)));
    assert!(is_empty(&pool));
}

#[test]
fn a_shutdown_with_ten_thousand_waiting_does_not_overflow_the_stack() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (pool, _) = limited(1);
    let waiters: Vec<_> = runtime.block_on(async { (0..10_000).map(|_| waiter(&pool, "slow")).collect() });
    drop(runtime);
    drop(waiters);
    assert!(is_empty(&pool));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancels_on_every_side_leave_the_counters_at_zero() {
    let (pool, script) = limited(3);
    let pool = Arc::new(pool);
    let tasks: Vec<_> = (0..2_000)
        .map(|seed| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(seed);
                let timeout = Duration::from_micros(random.u64(..30_000));
                let Ok(Ok(mut lease)) = tokio::time::timeout(timeout, lease(&pool, "a")).await else { return };
                lease.retire(CloseCause::Unfinished);
                tokio::task::yield_now().await;
                if random.u8(..4) > 0 {
                    lease.give_back(None);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let pool = Arc::into_inner(pool).expect("every task is over");
    assert_eq!((pool.stats().waiting, pool.stats().in_use), (0, 0));
    drop(pool);
    let metrics = Handle::current().metrics();
    while metrics.num_alive_tasks() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(script.open.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dial_that_is_aborted_before_it_has_begun_keeps_no_drain_waiting() {
    let (pool, script) = pool(PoolConfig::new());
    let driver = pool.driver.clone();
    let (handle, _answer) = WaiterHandle::new(None);
    let acquired = driver.lock().checkout(now(), &"slow", &Wish::default(), current_runtime(), || (handle, limits()));
    let Acquired::Wait(request, _) = acquired else { panic!("expected to wait") };
    // One thread takes the dial from the core, and is stopped before it performs it.
    let (dial, wish) = driver.take_effect_for_test().expect("a dial");
    // Another thread abandons the request, and drains the pool.
    drop(driver.step(|state| state.abandon(now(), request, AbandonCause::Cancelled)));
    let start = now();
    let mut draining = Box::pin(pool.drain());
    assert!((&mut draining).now_or_never().is_none(), "the dial has not ended");
    // The first thread goes on.
    driver.perform(dial, wish);
    draining.await;
    assert_eq!((now() - start, script.open.load(Ordering::SeqCst)), (Duration::ZERO, 0));
    assert!(is_empty(&pool));
}
