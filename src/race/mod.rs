//! The race between a host's addresses: the first to connect wins, the others are given up (RFC 8305).

mod preference;
mod schedule;
mod scoreboard;

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt};

pub(crate) use preference::Way;
pub(crate) use schedule::Config;
use schedule::{Schedule, Step};
use scoreboard::Scoreboard;
use smallvec::SmallVec;

use crate::clock::{Instant, now, sleep_until};
use crate::sync::lock;
use crate::trace::{DialTrace, Event, Family};

/// An address that could not be connected to, and why.
pub(crate) type Failed = (SocketAddr, Arc<io::Error>);

/// What is remembered of addresses from one race to the next.
pub(crate) struct Scores(Mutex<Scoreboard>);

impl Default for Scores {
    fn default() -> Self {
        Self(Mutex::new(Scoreboard::new()))
    }
}

impl Scores {
    // The board's steps leave nothing half done.
    fn lock(&self) -> MutexGuard<'_, Scoreboard> {
        lock(&self.0)
    }

    /// Counts the races for a host's addresses.
    pub(crate) fn turn(&self, now: Instant, host: &Arc<str>, port: u16) -> usize {
        self.lock().turn(now, host, port)
    }
}

/// Whose addresses race, and what their order depends on.
pub(crate) struct Field<'a> {
    pub(crate) families: &'a [Family],
    pub(crate) port: u16,
    /// The name that has these addresses.
    pub(crate) host: Option<&'a Arc<str>>,
    pub(crate) scores: &'a Scores,
    /// Where packets to an address would come from.
    pub(crate) way: &'a (dyn Fn(IpAddr) -> Way + Sync),
    /// The how many-th race for these addresses it is, where all of them are to have equal shares.
    pub(crate) turn: Option<usize>,
}

impl Field<'_> {
    /// The family that did well last.
    fn remembered(&self, now: Instant) -> Option<Family> {
        self.host.and_then(|host| self.scores.lock().last_good(now, host))
    }

    fn ways(&self, now: Instant, addresses: &[IpAddr]) -> Vec<(IpAddr, Way)> {
        let known: Vec<_> = {
            let scores = self.scores.lock();
            addresses.iter().map(|ip| (*ip, scores.way(now, *ip))).collect()
        };
        let found_out = |(ip, way): (IpAddr, Option<Way>)| {
            let way = way.unwrap_or_else(|| {
                let way = (self.way)(ip);
                self.scores.lock().learn_way(now, ip, way);
                way
            });
            (ip, way)
        };
        known.into_iter().map(found_out).collect()
    }
}

/// One race: answers come in, attempts go out. Dropping it gives up what is under way.
pub(crate) struct Race<'a, A, D, F> {
    field: Field<'a>,
    schedule: Schedule,
    timeout: Option<Timeout>,
    /// The connection that it won last, and the start of its attempt, until it is known whether it will do.
    unproven: Option<(SocketAddr, Instant)>,
    /// Whether it is the addresses' to say which family goes first.
    is_open: bool,
    answers: A,
    dial: D,
    /// In the order they began. They are few, so each is asked whenever one may be over.
    running: SmallVec<[Attempt<'a, F>; 1]>,
    failed: Vec<Failed>,
    trace: &'a DialTrace,
    /// What time it is, as long as it has waited for nothing.
    begun: Option<Instant>,
}

impl<'a, A, D, F, T> Race<'a, A, D, F>
where
    A: Stream<Item = (Family, Arc<[IpAddr]>, Instant)> + Unpin,
    D: Fn(SocketAddr) -> F,
    F: Future<Output = io::Result<T>> + Unpin,
{
    /// A race over the `answers` of the field's families, each of which answers once and says when; `dial` makes an attempt.
    pub(crate) fn new(
        config: Config,
        field: Field<'a>,
        answers: A,
        dial: D,
        now: Instant,
        trace: &'a DialTrace,
    ) -> Self {
        let remembered = field.remembered(now);
        let timeout = config.until.map(|end| Timeout { end, half: now + end.saturating_duration_since(now) / 2 });
        let schedule = match field.turn {
            Some(turn) => Schedule::sharing(config, field.families, turn),
            None => Schedule::new(config, field.families, remembered.unwrap_or(Family::V6)),
        };
        Self {
            field,
            schedule,
            timeout,
            unproven: None,
            is_open: remembered.is_none(),
            answers,
            dial,
            running: SmallVec::new(),
            failed: Vec::new(),
            trace,
            begun: Some(now),
        }
    }

    /// The next connection; `None` when no address is left. Asked again, the race goes on with the other addresses.
    pub(crate) async fn next(&mut self) -> Option<(SocketAddr, T)> {
        let mut at = self.begun.take().unwrap_or_else(now);
        loop {
            let wake = match self.schedule.poll(at) {
                Step::Dial(address) => {
                    self.start(at, address);
                    continue;
                }
                Step::GiveUp(address) => {
                    self.give_up(at, address);
                    continue;
                }
                Step::Wait(until) => until,
                Step::Exhausted => return None,
            };
            let happened = self.wait(wake).await;
            match happened {
                Happened::Answered(family, addresses, known) => {
                    at = at.max(known);
                    self.answered(at, family, &addresses);
                }
                Happened::Ended(attempt, result) => {
                    at = now();
                    if let Some(won) = self.ended(at, attempt.address, attempt.since, result) {
                        self.unproven = Some((attempt.address, attempt.since));
                        return Some(won);
                    }
                }
                Happened::Nothing => at = now(),
            }
        }
    }

    /// A connection the race has won was of no use after all.
    pub(crate) fn spoiled(&mut self, address: SocketAddr, error: Arc<io::Error>) {
        self.unproven = None;
        // What the client itself lacks is not held against the address.
        if error.kind() != io::ErrorKind::InvalidInput {
            self.field.scores.lock().failed(now(), address);
        }
        self.failed.push((address, error));
    }

    /// The connection that the race won last does what it is to do; what becomes of it later is not the address's fault.
    pub(crate) fn proved(&mut self) {
        self.unproven = None;
    }

    /// Returns the longest the handshake over the connection may take, where other addresses are to have their turn after it.
    pub(crate) fn part_of_time(&self, now: Instant) -> Option<Duration> {
        self.schedule.part_of_time(now)
    }

    /// The addresses that failed so far.
    pub(crate) fn into_failed(mut self) -> Vec<Failed> {
        std::mem::take(&mut self.failed)
    }

    fn start(&mut self, since: Instant, address: SocketAddr) {
        self.trace.emit_at(since, Event::AttemptStart { address });
        let dialled = (self.dial)(address);
        self.running.push(Attempt { dialled, address, since, trace: self.trace, over: false });
    }

    fn give_up(&mut self, now: Instant, address: SocketAddr) {
        self.running.retain(|attempt| attempt.address != address);
        self.field.scores.lock().failed(now, address);
        self.failed.push((address, Arc::new(io::Error::new(io::ErrorKind::TimedOut, "given up for the next address"))));
    }

    async fn wait(&mut self, until: Option<Instant>) -> Happened<'a, F, T> {
        tokio::select! {
            biased;
            Some((family, addresses, known)) = self.answers.next() => Happened::Answered(family, addresses, known),
            (attempt, result) = std::future::poll_fn(|cx| poll_ended(&mut self.running, cx)) => {
                Happened::Ended(attempt, result)
            }
            () = sleep_until(until) => Happened::Nothing,
        }
    }

    fn answered(&mut self, now: Instant, family: Family, addresses: &[IpAddr]) {
        let mut ordered = Cow::Borrowed(addresses);
        // Of one IPv4 address there is nothing to find out.
        if self.field.turn.is_none() && addresses.len() > usize::from(family == Family::V4) {
            let (sorted, rest) = addresses.split_at(addresses.len().min(MOST_SORTED));
            let mut ways = self.field.ways(now, sorted);
            preference::sort(&mut ways);
            if self.is_open && family == Family::V6 && preference::yields_to_v4(ways[0]) {
                self.schedule.prefer(Family::V4);
            }
            ordered = Cow::Owned(ways.into_iter().map(|(ip, _)| ip).chain(rest.iter().copied()).collect());
        }
        let (port, scores) = (self.field.port, self.field.scores.lock());
        let standing = |ip: IpAddr| {
            let address = SocketAddr::new(ip, port);
            (address, scores.standing(now, address))
        };
        self.schedule.answered(now, family, ordered.iter().copied().map(standing));
    }

    /// Notes the winner, and the attempts that had the time to win and did not: a whole attempt delay, or a shorter one that began
    /// before the winner.
    fn won(&self, now: Instant, address: SocketAddr, since: Instant) {
        let mut scores = self.field.scores.lock();
        let host = self.field.host.filter(|_| self.schedule.has_both_families());
        scores.connected(now, host, address, now - since);
        let (whole, shortest) = self.schedule.attempt_delays();
        let is_beaten = |running: &&Attempt<'a, F>| {
            let had = now - running.since;
            had >= whole || (had >= shortest && running.since < since)
        };
        for beaten in self.running.iter().filter(is_beaten) {
            scores.failed(now, beaten.address);
        }
    }

    fn ended(
        &mut self,
        now: Instant,
        address: SocketAddr,
        since: Instant,
        result: io::Result<T>,
    ) -> Option<(SocketAddr, T)> {
        self.schedule.ended(address);
        match result {
            Ok(connected) => {
                self.trace.emit_at(now, Event::AttemptEnd { address, error: None });
                self.won(now, address, since);
                Some((address, connected))
            }
            Err(error) => {
                if is_the_peers(&error) {
                    self.field.scores.lock().failed(now, address);
                }
                let error = Arc::new(error);
                self.trace.emit_at(now, Event::AttemptEnd { address, error: Some(error.clone()) });
                self.failed.push((address, error));
                None
            }
        }
    }
}

/// An attempt that is under way when the connect timeout ends the race has failed, and so has the connection that was won and did
/// nothing since; but not one that began in the second half of the time, because it may have had too little of it.
impl<A, D, F> Drop for Race<'_, A, D, F> {
    fn drop(&mut self) {
        let Some(timeout) = &self.timeout else { return };
        let now = now();
        if now < timeout.end {
            return;
        }
        let mut scores = self.field.scores.lock();
        let running = self.running.iter().map(|attempt| (attempt.address, attempt.since));
        for (address, since) in running.chain(self.unproven) {
            if since < timeout.half {
                scores.failed(now, address);
            }
        }
    }
}

/// The end of the connect timeout, and the middle of what there was of it when the race began.
struct Timeout {
    end: Instant,
    half: Instant,
}

/// The most addresses of a family that are sorted. For each of them the system is asked where its packets would come from, which
/// takes five calls; the others follow in the order they were answered.
const MOST_SORTED: usize = 32;

/// Whether an error says something about the address, rather than about this process.
fn is_the_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
    };
    let kinds = [ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut];
    kinds.contains(&error.kind())
}

/// An attempt under way; dropped before it is over, it was given up.
struct Attempt<'a, F> {
    dialled: F,
    address: SocketAddr,
    since: Instant,
    trace: &'a DialTrace,
    over: bool,
}

/// What a race waits for.
enum Happened<'a, F, T> {
    Answered(Family, Arc<[IpAddr]>, Instant),
    Ended(Attempt<'a, F>, io::Result<T>),
    /// It is time for the next step.
    Nothing,
}

/// The first of the attempts that is over, which is none of them any more.
fn poll_ended<'a, F: Future + Unpin>(
    running: &mut SmallVec<[Attempt<'a, F>; 1]>,
    cx: &mut Context<'_>,
) -> Poll<(Attempt<'a, F>, F::Output)> {
    for (place, attempt) in running.iter_mut().enumerate() {
        if let Poll::Ready(output) = Pin::new(&mut attempt.dialled).poll(cx) {
            attempt.over = true;
            return Poll::Ready((running.remove(place), output));
        }
    }
    Poll::Pending
}

impl<F> Drop for Attempt<'_, F> {
    fn drop(&mut self) {
        if !self.over {
            self.trace.emit(Event::AttemptCancelled { address: self.address });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use futures_util::stream::{self, FuturesUnordered};

    use super::scoreboard::Standing;
    use super::*;
    use crate::clock::before;
    use crate::trace::Hooks;

    /// What an address does: connects or refuses after so many milliseconds, or never answers.
    #[derive(Clone, Copy)]
    enum Peer {
        Connects(u64),
        Refuses(u64),
        Silent,
    }
    use Peer::{Connects, Refuses, Silent};

    const V6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0];

    fn v4(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn v6(last: u16) -> IpAddr {
        let mut groups = V6;
        groups[7] = last;
        groups.into()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn short(ip: IpAddr) -> String {
        match ip {
            IpAddr::V4(ip) => format!("v4({})", ip.octets()[3]),
            IpAddr::V6(ip) => format!("v6({})", ip.segments()[7]),
        }
    }

    fn field<'a>(families: &'a [Family], scores: &'a Scores) -> Field<'a> {
        Field { families, port: 80, host: None, scores, way: &|_| Way::Unknown, turn: None }
    }

    /// Runs a race in paused time and tells it as a timeline.
    async fn timeline(answers: Vec<(u64, Vec<IpAddr>)>, network: Vec<(IpAddr, Peer)>) -> String {
        again(&Scores::default(), None, answers, network).await
    }

    /// The same with what earlier races left behind.
    async fn again(
        scores: &Scores,
        turn: Option<usize>,
        answers: Vec<(u64, Vec<IpAddr>)>,
        network: Vec<(IpAddr, Peer)>,
    ) -> String {
        within(None, scores, turn, answers, network).await
    }

    /// The same with a limit in milliseconds.
    async fn within(
        limit: Option<u64>,
        scores: &Scores,
        turn: Option<usize>,
        answers: Vec<(u64, Vec<IpAddr>)>,
        network: Vec<(IpAddr, Peer)>,
    ) -> String {
        let start = now();
        let log = Arc::new(Mutex::new(Vec::new()));
        let note = {
            let log = log.clone();
            move |what: String| log.lock().unwrap().push(format!("{} {what}", (now() - start).as_millis()))
        };
        let families = [Family::V6, Family::V4];
        let answers: FuturesUnordered<_> = families
            .into_iter()
            .zip(answers)
            .map(|(family, (delay, ips))| async move {
                tokio::time::sleep(ms(delay)).await;
                (family, ips.into(), now())
            })
            .collect();
        let dial = |address: SocketAddr| {
            note(format!("dial {}", short(address.ip())));
            let (_, peer) = *network.iter().find(|(ip, _)| *ip == address.ip()).unwrap();
            Box::pin(async move {
                match peer {
                    Connects(after) => tokio::time::sleep(ms(after)).await,
                    Refuses(after) => {
                        tokio::time::sleep(ms(after)).await;
                        return Err(io::ErrorKind::ConnectionRefused.into());
                    }
                    Silent => std::future::pending().await,
                }
                Ok(())
            })
        };
        let trace = DialTrace::new(&Hooks::default(), 1);
        let host = "api.test".into();
        let field = Field { host: Some(&host), turn, ..field(&families, scores) };
        let until = limit.map(|limit| start + ms(limit));
        let mut race = Race::new(Config { until, ..Config::default() }, field, answers, dial, now(), &trace);
        let ended = before(until, std::pin::pin!(race.next())).await;
        match ended {
            Some(Some((address, ()))) => note(format!("won {}", short(address.ip()))),
            Some(None) => note(format!("lost, {} failed", race.into_failed().len())),
            None => note("out of time".to_owned()),
        }
        log.lock().unwrap().join("; ")
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_v6_address_costs_250_ms() {
        let told = timeline(vec![(0, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Silent), (v4(1), Connects(10))]);
        assert_eq!(told.await, "0 dial v6(1); 250 dial v4(1); 260 won v4(1)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_costs_nothing_more() {
        let told = timeline(vec![(0, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Refuses(5)), (v4(1), Connects(10))]);
        assert_eq!(told.await, "0 dial v6(1); 5 dial v4(1); 15 won v4(1)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_aaaa_answer_costs_50_ms() {
        let told = timeline(vec![(3_000, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Silent), (v4(1), Connects(10))]);
        assert_eq!(told.await, "50 dial v4(1); 60 won v4(1)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_a_answer_costs_nothing() {
        let told = timeline(vec![(0, vec![v6(1)]), (3_000, vec![v4(1)])], vec![(v6(1), Connects(10)), (v4(1), Silent)]);
        assert_eq!(told.await, "0 dial v6(1); 10 won v6(1)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_race_that_is_dropped_leaves_nothing_open() {
        let open = Arc::new(());
        let answers = stream::iter([(Family::V4, [v4(1), v4(2), v4(3)].into(), now())]);
        let dial = |_| {
            let held = open.clone();
            Box::pin(async move {
                std::future::pending::<()>().await;
                Ok(held)
            })
        };
        let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
        let mut race = Race::new(Config::default(), field(&[Family::V4], &scores), answers, dial, now(), &trace);
        assert!(tokio::time::timeout(ms(600), race.next()).await.is_err());
        assert_eq!(Arc::strong_count(&open), 4, "three attempts are under way");
        drop(race);
        assert_eq!(Arc::strong_count(&open), 1);
        let cancelled = |event: &Event| matches!(event, Event::AttemptCancelled { .. });
        assert_eq!(trace.events().iter().filter(|(_, event)| cancelled(event)).count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_attempt_may_still_win() {
        let told =
            timeline(vec![(0, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Connects(300)), (v4(1), Connects(100))]);
        assert_eq!(told.await, "0 dial v6(1); 250 dial v4(1); 300 won v6(1)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_joins_the_race() {
        let told = timeline(vec![(400, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Connects(10)), (v4(1), Silent)]);
        assert_eq!(told.await, "50 dial v4(1); 400 dial v6(1); 410 won v6(1)");
    }

    #[tokio::test(start_paused = true)]
    async fn every_address_gets_its_chance() {
        let mut network: Vec<_> = (1..10).map(|last| (v4(last), Refuses(1))).collect();
        network.push((v4(10), Connects(1)));
        let ips = network.iter().map(|(ip, _)| *ip).collect();
        let told = timeline(vec![(0, vec![]), (0, ips)], network).await;
        assert!(told.ends_with("9 dial v4(10); 10 won v4(10)"), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn ten_silent_addresses_do_not_keep_the_next_from_its_turn() {
        let mut network: Vec<_> = (1..=10).map(|last| (v4(last), Silent)).collect();
        network.push((v4(11), Connects(10)));
        let ips = network.iter().map(|(ip, _)| *ip).collect();
        let told = timeline(vec![(0, vec![]), (0, ips)], network).await;
        assert!(told.ends_with("2250 dial v4(10); 2500 dial v4(11); 2510 won v4(11)"), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_fail_all_are_listed() {
        let told = timeline(vec![(0, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Refuses(1)), (v4(1), Refuses(1))]);
        assert_eq!(told.await, "0 dial v6(1); 1 dial v4(1); 2 lost, 2 failed");
    }

    #[tokio::test(start_paused = true)]
    async fn only_attempts_that_were_given_up_are_told_as_cancelled() {
        let trace = DialTrace::new(&Hooks::default(), 1);
        let answers = stream::iter([(Family::V4, [v4(1), v4(2)].into(), now())]);
        let dial = |address: SocketAddr| {
            Box::pin(async move {
                let delay = if address.ip() == v4(1) { 1_000 } else { 5 };
                tokio::time::sleep(ms(delay)).await;
                Ok(())
            })
        };
        let scores = Scores::default();
        let mut race = Race::new(Config::default(), field(&[Family::V4], &scores), answers, dial, now(), &trace);
        assert_eq!(race.next().await.unwrap().0.ip(), v4(2));
        drop(race);
        let told: Vec<_> = trace.events().into_iter().map(|(_, event)| event).collect();
        let [_, _, Event::AttemptEnd { address: won, error: None }, Event::AttemptCancelled { address: given_up }] =
            &told[..]
        else {
            panic!("{told:?}")
        };
        assert_eq!([won.ip(), given_up.ip()], [v4(2), v4(1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_race_goes_on_when_the_winner_will_not_do() {
        let trace = DialTrace::new(&Hooks::default(), 1);
        let answers = stream::iter([(Family::V4, [v4(1), v4(2)].into(), now())]);
        let dial = |address: SocketAddr| std::future::ready(Ok(address));
        let scores = Scores::default();
        let mut race = Race::new(Config::default(), field(&[Family::V4], &scores), answers, dial, now(), &trace);
        let first = race.next().await.unwrap().0;
        let second = race.next().await.unwrap().0;
        assert_eq!([first.ip(), second.ip()], [v4(1), v4(2)]);
        assert!(race.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_race_begins_with_the_family_that_won_the_last_one() {
        let scores = Scores::default();
        let answers = || vec![(0, vec![v6(1)]), (0, vec![v4(1)])];
        let network = || vec![(v6(1), Silent), (v4(1), Connects(10))];
        let told = again(&scores, None, answers(), network()).await;
        assert_eq!(told, "0 dial v6(1); 250 dial v4(1); 260 won v4(1)");
        assert_eq!(again(&scores, None, answers(), network()).await, "0 dial v4(1); 10 won v4(1)");
        tokio::time::sleep(Duration::from_secs(11 * 60)).await;
        let told = again(&scores, None, answers(), network()).await;
        assert_eq!(told, "0 dial v6(1); 250 dial v4(1); 260 won v4(1)", "ten minutes later it is tried again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_failed_is_dialled_last_for_a_while() {
        let scores = Scores::default();
        let answers = || vec![(0, vec![]), (0, vec![v4(1), v4(2)])];
        let network = || vec![(v4(1), Refuses(1)), (v4(2), Connects(10))];
        assert_eq!(again(&scores, None, answers(), network()).await, "0 dial v4(1); 1 dial v4(2); 11 won v4(2)");
        assert_eq!(again(&scores, None, answers(), network()).await, "0 dial v4(2); 10 won v4(2)");
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(again(&scores, None, answers(), network()).await, "0 dial v4(1); 1 dial v4(2); 11 won v4(2)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_time_is_shared_by_the_addresses() {
        let scores = Scores::default();
        let answers = || vec![(0, vec![]), (0, vec![v4(1), v4(2)])];
        let network = || vec![(v4(1), Silent), (v4(2), Connects(5))];
        let told = within(Some(200), &scores, None, answers(), network()).await;
        assert_eq!(told, "0 dial v4(1); 100 dial v4(2); 105 won v4(2)");
        let told = within(Some(200), &scores, None, answers(), network()).await;
        assert_eq!(told, "0 dial v4(2); 5 won v4(2)", "beaten after its part of the time, the first has failed");
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_had_most_of_the_time_when_it_ran_out_has_failed() {
        let scores = Scores::default();
        let answers = || vec![(0, vec![]), (0, vec![v4(1), v4(2)])];
        let network = || vec![(v4(1), Silent), (v4(2), Connects(150))];
        let told = within(Some(200), &scores, None, answers(), network()).await;
        assert_eq!(told, "0 dial v4(1); 100 dial v4(2); 200 out of time");
        let told = within(Some(200), &scores, None, answers(), network()).await;
        assert_eq!(told, "0 dial v4(2); 100 dial v4(1); 150 won v4(2)", "the second had too little time to tell");
    }

    #[tokio::test(start_paused = true)]
    async fn a_race_that_is_given_up_before_its_time_blames_no_address() {
        let scores = Scores::default();
        let answers = || vec![(0, vec![]), (0, vec![v4(1), v4(2)])];
        let network = || vec![(v4(1), Silent), (v4(2), Silent)];
        let race = within(Some(1_000), &scores, None, answers(), network());
        assert!(tokio::time::timeout(ms(900), race).await.is_err());
        assert!([1, 2].iter().all(|last| scores.lock().standing(now(), (v4(*last), 80).into()) == Standing::Fine));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_does_nothing_until_time_runs_out_has_failed() {
        for (is_proved, standing) in [(false, Standing::Failed), (true, Standing::Fine)] {
            let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
            let answers = stream::iter([(Family::V4, [v4(1)].into(), now())]);
            let dial = |address: SocketAddr| std::future::ready(Ok(address));
            let config = Config { until: Some(now() + ms(200)), ..Config::default() };
            let mut race = Race::new(config, field(&[Family::V4], &scores), answers, dial, now(), &trace);
            race.next().await.unwrap();
            if is_proved {
                race.proved();
            }
            tokio::time::sleep(ms(200)).await;
            drop(race);
            assert_eq!(scores.lock().standing(now(), (v4(1), 80).into()), standing);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_this_process_is_not_held_against_the_address() {
        assert!(!is_the_peers(&io::Error::from_raw_os_error(24)), "too many open files");
        assert!(is_the_peers(&io::ErrorKind::ConnectionRefused.into()));
        for (kind, standing) in
            [(io::ErrorKind::InvalidInput, Standing::Fine), (io::ErrorKind::InvalidData, Standing::Failed)]
        {
            let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
            let answers = stream::iter([(Family::V4, [v4(1)].into(), now())]);
            let dial = |address: SocketAddr| std::future::ready(Ok(address));
            let mut race = Race::new(Config::default(), field(&[Family::V4], &scores), answers, dial, now(), &trace);
            let (address, _) = race.next().await.unwrap();
            race.spoiled(address, Arc::new(kind.into()));
            assert_eq!(scores.lock().standing(now(), address), standing, "{kind}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_addresses_few_are_asked_about() {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let way = |_: IpAddr| {
            asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Way::From(v4(9))
        };
        let ips: Vec<_> = (0..2_500_u32).map(|number| IpAddr::from((0x0a00_0000 + number).to_be_bytes())).collect();
        let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
        let answers = stream::iter([(Family::V4, ips.into(), now())]);
        let field = Field { way: &way, ..field(&[Family::V4], &scores) };
        let dial = |address: SocketAddr| std::future::ready(Ok(address));
        let mut race = Race::new(Config::default(), field, answers, dial, now(), &trace);
        race.next().await.unwrap();
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn all_addresses_have_their_share_where_they_are_to() {
        let scores = Scores::default();
        let mut first = Vec::new();
        for turn in 0..5 {
            let answers = vec![(0, vec![v6(1), v6(2)]), (0, vec![v4(1), v4(2), v4(3)])];
            let network = [v6(1), v6(2), v4(1), v4(2), v4(3)].map(|ip| (ip, Connects(10))).to_vec();
            let told = again(&scores, Some(turn), answers, network).await;
            first.push(told.split(';').next().unwrap().trim_start_matches("0 dial ").to_owned());
        }
        assert_eq!(first, ["v4(1)", "v4(2)", "v4(3)", "v6(1)", "v6(2)"]);
    }

    #[tokio::test(start_paused = true)]
    async fn v4_goes_first_where_v6_packets_would_come_from_elsewhere() {
        let private: IpAddr = "fd00::9".parse().unwrap();
        for (source, first) in [(private, v4(1)), (v6(9), v6(1))] {
            let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
            let answered = [(Family::V6, [v6(1)].into(), now()), (Family::V4, [v4(1)].into(), now())];
            let way = |ip: IpAddr| if ip.is_ipv6() { Way::From(source) } else { Way::From(v4(9)) };
            let field = Field { way: &way, ..field(&Family::BOTH, &scores) };
            let dial = |address: SocketAddr| std::future::ready(Ok(address));
            let mut race = Race::new(Config::default(), field, stream::iter(answered), dial, now(), &trace);
            assert_eq!(race.next().await.unwrap().0.ip(), first, "from {source}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_without_a_way_to_them_come_last() {
        let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
        let answers = stream::iter([(Family::V4, [v4(1), v4(2)].into(), now())]);
        let way = |ip: IpAddr| if ip == v4(1) { Way::Unreachable } else { Way::From(v4(9)) };
        let field = Field { way: &way, ..field(&[Family::V4], &scores) };
        let dial = |address: SocketAddr| std::future::ready(Ok(address));
        let mut race = Race::new(Config::default(), field, answers, dial, now(), &trace);
        assert_eq!(race.next().await.unwrap().0.ip(), v4(2));
    }
}
