//! Races in paused time, written as timelines.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::stream::{self, FuturesUnordered};

use super::scoreboard::DialStanding;
use super::*;
use crate::clock::before;
use crate::trace::Hooks;

/// The behaviour of an address: it connects or refuses after so many milliseconds, or never answers.
#[derive(Debug, Clone, Copy)]
enum Peer {
    Connects(u64),
    Refuses(u64),
    Silent,
}
use Peer::{Connects, Refuses, Silent};

impl Peer {
    /// An attempt to connect to it.
    async fn attempt(self) -> io::Result<()> {
        match self {
            Connects(after) => tokio::time::sleep(ms(after)).await,
            Refuses(after) => {
                tokio::time::sleep(ms(after)).await;
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Silent => std::future::pending().await,
        }
        Ok(())
    }
}

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

fn order<'a>(families: &'a [Family], scores: &'a Scores) -> AddressOrder<'a> {
    AddressOrder {
        families,
        port: 80,
        host: None,
        scores,
        reach: &|_: IpAddr| SourceAddress::Unknown,
        turn: None,
        avoid: None,
        first: None,
    }
}

/// Runs a race in paused time, and returns its timeline.
async fn timeline(answers: Vec<(u64, Vec<IpAddr>)>, network: Vec<(IpAddr, Peer)>) -> String {
    timeline_with_scores(&Scores::default(), None, answers, network).await
}

/// Like [`timeline`], with the scores of earlier races.
async fn timeline_with_scores(
    scores: &Scores,
    turn: Option<usize>,
    answers: Vec<(u64, Vec<IpAddr>)>,
    network: Vec<(IpAddr, Peer)>,
) -> String {
    timeline_within(None, scores, turn, answers, network).await
}

/// Like [`timeline_with_scores`], with a connect timeout in milliseconds.
async fn timeline_within(
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
        Box::pin(peer.attempt())
    };
    let trace = DialTrace::new(&Hooks::default(), 1);
    let host = "api.test".into();
    let order = AddressOrder { host: Some(&host), turn, ..order(&families, scores) };
    let until = limit.map(|limit| start + ms(limit));
    let mut race = Race::new(Config { deadline: until, ..Config::default() }, order, answers, dial, now(), &trace);
    let ended = before(until, std::pin::pin!(race.next())).await;
    match ended {
        Some(Some((address, (), _))) => note(format!("won {}", short(address.ip()))),
        Some(None) => note(format!("lost, {} failed", race.into_failed().len())),
        None => note("out of time".to_owned()),
    }
    log.lock().unwrap().join("; ")
}

#[tokio::test(start_paused = true)]
async fn a_silent_v6_address_costs_250_ms() {
    let log = timeline(vec![(0, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Silent), (v4(1), Connects(10))]);
    assert_eq!(log.await, "0 dial v6(1); 250 dial v4(1); 260 won v4(1)");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_costs_nothing_more() {
    let log = timeline(vec![(0, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Refuses(5)), (v4(1), Connects(10))]);
    assert_eq!(log.await, "0 dial v6(1); 5 dial v4(1); 15 won v4(1)");
}

#[tokio::test(start_paused = true)]
async fn a_slow_aaaa_answer_costs_50_ms() {
    let log = timeline(vec![(3_000, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Silent), (v4(1), Connects(10))]);
    assert_eq!(log.await, "50 dial v4(1); 60 won v4(1)");
}

#[tokio::test(start_paused = true)]
async fn a_slow_a_answer_costs_nothing() {
    let log = timeline(vec![(0, vec![v6(1)]), (3_000, vec![v4(1)])], vec![(v6(1), Connects(10)), (v4(1), Silent)]);
    assert_eq!(log.await, "0 dial v6(1); 10 won v6(1)");
}

#[tokio::test(start_paused = true)]
async fn dropping_a_race_cancels_its_attempts() {
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
    let mut race = Race::new(Config::default(), order(&[Family::V4], &scores), answers, dial, now(), &trace);
    assert!(tokio::time::timeout(ms(600), race.next()).await.is_err());
    assert_eq!(Arc::strong_count(&open), 4, "three attempts are under way");
    drop(race);
    assert_eq!(Arc::strong_count(&open), 1);
    let cancelled = |event: &Event| matches!(event, Event::AttemptCancelled { .. });
    assert_eq!(trace.events().iter().filter(|(_, event)| cancelled(event)).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_attempt_may_still_win() {
    let log = timeline(vec![(0, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Connects(300)), (v4(1), Connects(100))]);
    assert_eq!(log.await, "0 dial v6(1); 250 dial v4(1); 300 won v6(1)");
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_joins_the_race() {
    let log = timeline(vec![(400, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Connects(10)), (v4(1), Silent)]);
    assert_eq!(log.await, "50 dial v4(1); 400 dial v6(1); 410 won v6(1)");
}

#[tokio::test(start_paused = true)]
async fn every_address_is_dialled() {
    let mut network: Vec<_> = (1..10).map(|last| (v4(last), Refuses(1))).collect();
    network.push((v4(10), Connects(1)));
    let ips = network.iter().map(|(ip, _)| *ip).collect();
    let log = timeline(vec![(0, vec![]), (0, ips)], network).await;
    assert!(log.ends_with("9 dial v4(10); 10 won v4(10)"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn ten_silent_addresses_do_not_prevent_the_dial_of_the_next() {
    let mut network: Vec<_> = (1..=10).map(|last| (v4(last), Silent)).collect();
    network.push((v4(11), Connects(10)));
    let ips = network.iter().map(|(ip, _)| *ip).collect();
    let log = timeline(vec![(0, vec![]), (0, ips)], network).await;
    assert!(log.ends_with("2250 dial v4(10); 2500 dial v4(11); 2510 won v4(11)"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn when_all_addresses_fail_all_are_listed() {
    let log = timeline(vec![(0, vec![v6(1)]), (0, vec![v4(1)])], vec![(v6(1), Refuses(1)), (v4(1), Refuses(1))]);
    assert_eq!(log.await, "0 dial v6(1); 1 dial v4(1); 2 lost, 2 failed");
}

#[tokio::test(start_paused = true)]
async fn only_dropped_attempts_are_reported_as_cancelled() {
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
    let mut race = Race::new(Config::default(), order(&[Family::V4], &scores), answers, dial, now(), &trace);
    assert_eq!(race.next().await.unwrap().0.ip(), v4(2));
    drop(race);
    let events: Vec<_> = trace.events().into_iter().map(|(_, event)| event).collect();
    let [_, _, Event::AttemptEnd { address: won, error: None, .. }, Event::AttemptCancelled { address: given_up }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!([won.ip(), given_up.ip()], [v4(2), v4(1)]);
}

#[tokio::test(start_paused = true)]
async fn the_race_goes_on_after_a_winner() {
    let trace = DialTrace::new(&Hooks::default(), 1);
    let answers = stream::iter([(Family::V4, [v4(1), v4(2)].into(), now())]);
    let dial = |address: SocketAddr| std::future::ready(Ok(address));
    let scores = Scores::default();
    let mut race = Race::new(Config::default(), order(&[Family::V4], &scores), answers, dial, now(), &trace);
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
    let log = timeline_with_scores(&scores, None, answers(), network()).await;
    assert_eq!(log, "0 dial v6(1); 250 dial v4(1); 260 won v4(1)");
    assert_eq!(timeline_with_scores(&scores, None, answers(), network()).await, "0 dial v4(1); 10 won v4(1)");
    tokio::time::sleep(Duration::from_secs(11 * 60)).await;
    let log = timeline_with_scores(&scores, None, answers(), network()).await;
    assert_eq!(log, "0 dial v6(1); 250 dial v4(1); 260 won v4(1)", "forgotten after ten minutes");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_failed_is_dialled_last_for_a_while() {
    let scores = Scores::default();
    let answers = || vec![(0, vec![]), (0, vec![v4(1), v4(2)])];
    let network = || vec![(v4(1), Refuses(1)), (v4(2), Connects(10))];
    assert_eq!(
        timeline_with_scores(&scores, None, answers(), network()).await,
        "0 dial v4(1); 1 dial v4(2); 11 won v4(2)"
    );
    assert_eq!(timeline_with_scores(&scores, None, answers(), network()).await, "0 dial v4(2); 10 won v4(2)");
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(
        timeline_with_scores(&scores, None, answers(), network()).await,
        "0 dial v4(1); 1 dial v4(2); 11 won v4(2)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_short_time_is_shared_by_the_addresses() {
    let scores = Scores::default();
    let answers = || vec![(0, vec![]), (0, vec![v4(1), v4(2)])];
    let network = || vec![(v4(1), Silent), (v4(2), Connects(5))];
    let log = timeline_within(Some(200), &scores, None, answers(), network()).await;
    assert_eq!(log, "0 dial v4(1); 100 dial v4(2); 105 won v4(2)");
    let log = timeline_within(Some(200), &scores, None, answers(), network()).await;
    assert_eq!(log, "0 dial v4(2); 5 won v4(2)", "the first has failed: it had its part of the time");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_from_the_first_half_of_the_time_has_failed_when_it_runs_out() {
    let scores = Scores::default();
    let answers = || vec![(0, vec![]), (0, vec![v4(1), v4(2)])];
    let network = || vec![(v4(1), Silent), (v4(2), Connects(150))];
    let log = timeline_within(Some(200), &scores, None, answers(), network()).await;
    assert_eq!(log, "0 dial v4(1); 100 dial v4(2); 200 out of time");
    let log = timeline_within(Some(200), &scores, None, answers(), network()).await;
    assert_eq!(log, "0 dial v4(2); 100 dial v4(1); 150 won v4(2)", "the second had too little time to count as failed");
}

#[tokio::test(start_paused = true)]
async fn a_race_that_is_dropped_before_its_timeout_records_no_failure() {
    let scores = Scores::default();
    let answers = || vec![(0, vec![]), (0, vec![v4(1), v4(2)])];
    let network = || vec![(v4(1), Silent), (v4(2), Silent)];
    let race = timeline_within(Some(1_000), &scores, None, answers(), network());
    assert!(tokio::time::timeout(ms(900), race).await.is_err());
    assert!([1, 2].iter().all(|last| scores.lock().standing(now(), (v4(*last), 80).into()) == DialStanding::Fine));
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_connection_has_failed_when_the_time_runs_out() {
    for (is_confirmed, standing) in [(false, DialStanding::Failed), (true, DialStanding::Fine)] {
        let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
        let answers = stream::iter([(Family::V4, [v4(1)].into(), now())]);
        let dial = |address: SocketAddr| std::future::ready(Ok(address));
        let config = Config { deadline: Some(now() + ms(200)), ..Config::default() };
        let mut race = Race::new(config, order(&[Family::V4], &scores), answers, dial, now(), &trace);
        race.next().await.unwrap();
        if is_confirmed {
            race.confirm();
        }
        tokio::time::sleep(ms(200)).await;
        drop(race);
        assert_eq!(scores.lock().standing(now(), (v4(1), 80).into()), standing);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_this_process_does_not_count_against_the_address() {
    assert!(!is_fault_of_address(&io::Error::from_raw_os_error(24)), "too many open files");
    assert!(is_fault_of_address(&io::ErrorKind::ConnectionRefused.into()));
    for (kind, standing) in
        [(io::ErrorKind::InvalidInput, DialStanding::Fine), (io::ErrorKind::InvalidData, DialStanding::Failed)]
    {
        let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
        let answers = stream::iter([(Family::V4, [v4(1)].into(), now())]);
        let dial = |address: SocketAddr| std::future::ready(Ok(address));
        let mut race = Race::new(Config::default(), order(&[Family::V4], &scores), answers, dial, now(), &trace);
        let (address, ..) = race.next().await.unwrap();
        race.reject(address, Arc::new(kind.into()));
        assert_eq!(scores.lock().standing(now(), address), standing, "{kind}");
    }
}

/// A way that notes how many addresses had failed when a race ended without a connection.
#[derive(Default)]
struct Noted(Mutex<Vec<usize>>);

impl Reach for Noted {
    fn source_of(&self, _: IpAddr) -> SourceAddress {
        SourceAddress::Unknown
    }

    fn sockets(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    fn none_connects(&self, failed: &[FailedAddress]) {
        self.0.lock().unwrap().push(failed.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_race_says_that_none_connects_when_all_failed_or_the_connect_timeout_has_passed() {
    let cases: [(&[Peer], u64, &[usize]); 8] = [
        (&[Refuses(1), Refuses(1)], 1_000, &[2]),
        (&[Silent], 1_000, &[0]),
        (&[Refuses(1), Silent], 1_000, &[1]),
        (&[Refuses(1), Connects(1)], 1_000, &[]),
        // The race is dropped before its time is over.
        (&[Silent], 900, &[]),
        // The connection is not confirmed to work; its handshake may be slow.
        (&[Connects(1)], 1_000, &[]),
        // It works while another attempt is under way; the rest of the dial takes the time.
        (&[Connects(400), Silent], 1_000, &[]),
        (&[], 1_000, &[]),
    ];
    for (peers, dropped_after, noted) in cases {
        let (scores, trace, reach, start) =
            (Scores::default(), DialTrace::new(&Hooks::default(), 1), Noted::default(), now());
        let ips: Vec<IpAddr> = (1..).map(v4).take(peers.len()).collect();
        let answers = stream::iter([(Family::V4, ips.into(), start)]);
        let order = AddressOrder { reach: &reach, ..order(&[Family::V4], &scores) };
        let dial = |address: SocketAddr| {
            let IpAddr::V4(ip) = address.ip() else { unreachable!() };
            let peer = peers[usize::from(ip.octets()[3]) - 1];
            Box::pin(peer.attempt())
        };
        let config = Config { deadline: Some(start + ms(1_000)), ..Config::default() };
        let mut race = Race::new(config, order, answers, dial, start, &trace);
        let won = before(Some(start + ms(dropped_after)), Box::pin(race.next())).await.flatten();
        if won.is_some_and(|(_, (), at)| at - start >= ms(400)) {
            race.confirm();
        }
        crate::clock::sleep_until(Some(start + ms(dropped_after))).await;
        drop(race);
        assert_eq!(*reach.0.lock().unwrap(), noted, "{} peers, dropped after {dropped_after} ms", peers.len());
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_32_addresses_are_sorted() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let source_of = |_: IpAddr| {
        asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        SourceAddress::Known(v4(9))
    };
    let ips: Vec<_> = (0..2_500_u32).map(|number| IpAddr::from((0x0a00_0000 + number).to_be_bytes())).collect();
    let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
    let answers = stream::iter([(Family::V4, ips.into(), now())]);
    let order = AddressOrder { reach: &source_of, ..order(&[Family::V4], &scores) };
    let dial = |address: SocketAddr| std::future::ready(Ok(address));
    let mut race = Race::new(Config::default(), order, answers, dial, now(), &trace);
    race.next().await.unwrap();
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 32);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_avoided_comes_after_those_that_are_fine_and_before_those_that_failed() {
    let scores = Scores::default();
    scores.lock().record_failure(now(), SocketAddr::new(v4(3), 80));
    let order = AddressOrder { avoid: Some(v4(1)), ..order(&[Family::V4], &scores) };
    let standings = |ips: &[IpAddr]| {
        let with_standings = order.with_standings(now(), ips).map(|(_, standing)| standing);
        with_standings.collect::<Vec<_>>()
    };
    assert_eq!(standings(&[v4(1), v4(2), v4(3)]), [DialStanding::Slow, DialStanding::Fine, DialStanding::Failed]);
    scores.lock().record_failure(now(), SocketAddr::new(v4(1), 80));
    assert_eq!(standings(&[v4(1)]), [DialStanding::Failed]);
}

#[tokio::test(start_paused = true)]
async fn with_equal_shares_each_address_is_dialled_first_in_turn() {
    let scores = Scores::default();
    let mut first = Vec::new();
    for turn in 0..5 {
        let answers = vec![(0, vec![v6(1), v6(2)]), (0, vec![v4(1), v4(2), v4(3)])];
        let network = [v6(1), v6(2), v4(1), v4(2), v4(3)].map(|ip| (ip, Connects(10))).to_vec();
        let log = timeline_with_scores(&scores, Some(turn), answers, network).await;
        first.push(log.split(';').next().unwrap().trim_start_matches("0 dial ").to_owned());
    }
    assert_eq!(first, ["v4(1)", "v4(2)", "v4(3)", "v6(1)", "v6(2)"]);
}

#[tokio::test(start_paused = true)]
async fn a_dial_is_on_its_way_while_it_has_addresses_and_with_equal_shares_once_it_has_come_to_the_second() {
    // Each address refuses after 150 ms, or is left for the next one after 250 ms.
    let peers = [(Refuses(150), [100, 100, 150]), (Silent, [200, 100, 250])];
    let turns = [(None, [true, true, false]), (Some(2), [false, true, false])];
    for ((peer, times), (turn, on_their_way)) in peers.into_iter().flat_map(|peer| turns.map(|turn| (peer, turn))) {
        let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
        let answers = stream::iter([(Family::V4, [v4(1), v4(2), v4(3)].into(), now())]);
        let dial = |_| Box::pin(peer.attempt());
        let order = AddressOrder { turn, ..order(&[Family::V4], &scores) };
        let mut race = Race::new(Config::default(), order, answers, dial, now(), &trace);
        let mut racing = Box::pin(race.next());
        for (time, on_its_way) in times.into_iter().zip(on_their_way) {
            assert!(tokio::time::timeout(ms(time), &mut racing).await.is_err());
            assert_eq!(trace.is_on_its_way(), on_its_way, "{peer:?}, {turn:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn v4_goes_first_when_v6_packets_would_have_a_source_of_another_kind() {
    let private: IpAddr = "fd00::9".parse().unwrap();
    for (source, first) in [(private, v4(1)), (v6(9), v6(1))] {
        let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
        let answered = [(Family::V6, [v6(1)].into(), now()), (Family::V4, [v4(1)].into(), now())];
        let source_of =
            |ip: IpAddr| if ip.is_ipv6() { SourceAddress::Known(source) } else { SourceAddress::Known(v4(9)) };
        let order = AddressOrder { reach: &source_of, ..order(&Family::BOTH, &scores) };
        let dial = |address: SocketAddr| std::future::ready(Ok(address));
        let mut race = Race::new(Config::default(), order, stream::iter(answered), dial, now(), &trace);
        assert_eq!(race.next().await.unwrap().0.ip(), first, "from {source}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_addresses_come_last() {
    let (scores, trace) = (Scores::default(), DialTrace::new(&Hooks::default(), 1));
    let answers = stream::iter([(Family::V4, [v4(1), v4(2)].into(), now())]);
    let source_of = |ip: IpAddr| if ip == v4(1) { SourceAddress::Unreachable } else { SourceAddress::Known(v4(9)) };
    let order = AddressOrder { reach: &source_of, ..order(&[Family::V4], &scores) };
    let dial = |address: SocketAddr| std::future::ready(Ok(address));
    let mut race = Race::new(Config::default(), order, answers, dial, now(), &trace);
    assert_eq!(race.next().await.unwrap().0.ip(), v4(2));
}

/// Returns the standings of IPv4 addresses now.
fn standings<const N: usize>(scores: &Scores, addresses: [u8; N]) -> [DialStanding; N] {
    addresses.map(|last| scores.lock().standing(now(), (v4(last), 80).into()))
}

#[tokio::test(start_paused = true)]
async fn the_family_that_won_goes_first_also_where_the_other_one_has_not_failed() {
    let scores = Scores::default();
    let answers = || vec![(0, vec![v6(1)]), (0, vec![v4(1)])];
    // The IPv6 address has no result of an earlier race, so its standing is good.
    let network = || vec![(v6(1), Connects(500)), (v4(1), Connects(10))];
    scores.lock().record_connection(now(), Some(&"api.test".into()), (v4(1), 80).into(), ms(10));
    assert_eq!(timeline_with_scores(&scores, None, answers(), network()).await, "0 dial v4(1); 10 won v4(1)");
}

#[tokio::test(start_paused = true)]
async fn the_family_of_a_host_that_has_only_one_is_not_remembered() {
    let scores = Scores::default();
    let log = timeline_with_scores(&scores, None, vec![(0, vec![]), (0, vec![v4(1)])], vec![(v4(1), Connects(10))]);
    assert_eq!(log.await, "0 dial v4(1); 10 won v4(1)");
    assert_eq!(scores.lock().last_good(now(), "api.test"), None);
    let answers = vec![(0, vec![v6(1)]), (0, vec![v4(1)])];
    let network = vec![(v6(1), Refuses(5)), (v4(1), Connects(10))];
    timeline_with_scores(&scores, None, answers, network).await;
    assert_eq!(scores.lock().last_good(now(), "api.test"), Some(Family::V4));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_cancelled_for_the_next_one_is_dropped_and_has_failed() {
    let scores = Scores::default();
    let mut network: Vec<_> = (1..=6).map(|last| (v4(last), Silent)).collect();
    // It would win, but has had its time when the seventh attempt starts.
    network[0].1 = Connects(1_505);
    network.push((v4(7), Connects(20)));
    let ips = network.iter().map(|(ip, _)| *ip).collect();
    let log = timeline_with_scores(&scores, None, vec![(0, vec![]), (0, ips)], network).await;
    assert!(log.ends_with("1250 dial v4(6); 1500 dial v4(7); 1520 won v4(7)"), "{log}");
    assert_eq!(standings(&scores, [1]), [DialStanding::Failed]);
}

#[tokio::test(start_paused = true)]
async fn the_losers_that_had_a_whole_attempt_delay_have_failed() {
    let scores = Scores::default();
    let network = vec![(v4(1), Silent), (v4(2), Silent), (v4(3), Connects(249))];
    let ips = network.iter().map(|(ip, _)| *ip).collect();
    let log = timeline_with_scores(&scores, None, vec![(0, vec![]), (0, ips)], network).await;
    assert_eq!(log, "0 dial v4(1); 250 dial v4(2); 500 dial v4(3); 749 won v4(3)");
    assert_eq!(standings(&scores, [1, 2, 3]), [DialStanding::Failed, DialStanding::Failed, DialStanding::Fine]);
}

#[tokio::test(start_paused = true)]
async fn a_loser_that_started_after_the_winner_has_failed_only_after_a_whole_attempt_delay() {
    for (won_after, standing) in [(499, DialStanding::Fine), (500, DialStanding::Failed)] {
        let scores = Scores::default();
        let network = vec![(v4(1), Connects(won_after)), (v4(2), Silent)];
        timeline_with_scores(&scores, None, vec![(0, vec![]), (0, vec![v4(1), v4(2)])], network).await;
        assert_eq!(standings(&scores, [2]), [standing], "the other one won after {won_after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_short_race_a_loser_has_failed_after_the_shortest_attempt_delay_if_it_started_first() {
    // 40 ms between attempts.
    let scores = Scores::default();
    let network: Vec<_> = (1..=4).map(|last| (v4(last), if last == 3 { Connects(5) } else { Silent })).collect();
    let ips = network.iter().map(|(ip, _)| *ip).collect();
    let log = timeline_within(Some(200), &scores, None, vec![(0, vec![]), (0, ips)], network).await;
    assert!(log.ends_with("won v4(3)"), "{log}");
    assert_eq!(
        standings(&scores, [1, 2, 3]),
        [DialStanding::Failed, DialStanding::Failed, DialStanding::Fine],
        "{log}"
    );
}

#[tokio::test(start_paused = true)]
async fn in_a_short_race_a_loser_that_started_after_the_winner_has_not_failed() {
    // 50 ms between the first two attempts: a quarter of the time, because there are four addresses.
    let scores = Scores::default();
    let network: Vec<_> = (1..=4).map(|last| (v4(last), if last == 1 { Connects(104) } else { Silent })).collect();
    let ips = network.iter().map(|(ip, _)| *ip).collect();
    let log = timeline_within(Some(200), &scores, None, vec![(0, vec![]), (0, ips)], network).await;
    assert!(log.starts_with("0 dial v4(1); 50 dial v4(2)") && log.ends_with("104 won v4(1)"), "{log}");
    assert_eq!(standings(&scores, [1, 2]), [DialStanding::Fine, DialStanding::Fine], "{log}");
}
