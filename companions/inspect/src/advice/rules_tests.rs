//! The rules one by one: the suggestion and the reason for statistics that were made up.

use std::time::Duration;

use speeddial::PoolConfig;
use speeddial::origin::Origin;
use speeddial::trace::{CloseCause, Latency, Limit};

use super::item::{AdviceItem, Setting, SettingValue};
use super::load::{Limits, Load, Totals};
use super::rules::{self, TotalLoad};
use super::{Advice, DnsUse};

const SPAN: Duration = Duration::from_secs(1_000);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn latency(count: u64, each: Duration) -> Latency {
    let mut latency = Latency::default();
    (0..count).for_each(|_| latency.add(each));
    latency
}

/// Returns the statistics of a thousand requests in a thousand seconds, each of which held its connection for 100 ms.
fn stats() -> Totals {
    let mut stats = Totals::default();
    stats.pool.opened = 1;
    stats.pool.queue_time = latency(1_000, Duration::ZERO);
    stats.pool.hold_time = latency(1_000, Duration::from_millis(100));
    stats.pool.most_leased = 1;
    stats
}

/// Returns the same with this many connections opened and closed.
fn replaced(opened: u64, closed: u64) -> Totals {
    let mut stats = stats();
    stats.pool.opened = opened;
    stats.pool.closed = closed;
    stats
}

/// Returns the same with this many requests at the same time at most.
fn busy(most_leased: usize) -> Totals {
    let mut stats = stats();
    stats.pool.most_leased = most_leased;
    stats
}

/// The limits of a host by default.
const LIMITS: Limits = Limits {
    max_connections: usize::MAX,
    max_http2_connections: 4,
    max_idle: usize::MAX,
    min_idle: 0,
    idle_timeout: seconds(50),
};

fn load(stats: Totals) -> Load {
    let busy_time = stats.pool.hold_time.sum();
    Load { stats, busy_time, limits: LIMITS, streams: None, keep_alive: None, span: SPAN }
}

fn origin(host: &str) -> Origin {
    Origin::from_url(&format!("http://{host}/").parse().unwrap()).unwrap()
}

fn advise(load: Load) -> Vec<AdviceItem> {
    rules::of_host(&origin("api.test"), &load)
}

fn of(items: &[AdviceItem], setting: Setting) -> Option<AdviceItem> {
    items.iter().find(|item| item.setting == setting).cloned()
}

/// Returns the suggested idle timeout in seconds, and the reason.
fn idle_timeout(load: Load) -> Option<(f64, String)> {
    let item = of(&advise(load), Setting::IdleTimeout)?;
    assert_eq!(item.present, SettingValue::Time(load.limits.idle_timeout));
    match item.suggested {
        SettingValue::Time(time) => Some((time.as_secs_f64(), item.reason)),
        other => panic!("a time: {other}"),
    }
}

#[test]
fn a_server_that_closes_idle_connections_sooner_shortens_the_idle_timeout() {
    let mut stats = stats();
    stats.pool.closed_idle_by_peer = 7;
    let hasty = Load { keep_alive: Some(seconds(4)), ..load(stats) };
    let (suggested, reason) = idle_timeout(hasty).unwrap();
    assert_eq!(suggested, 4.0);
    assert!(
        reason.contains("the server closes idle connections a little after 4 s") && reason.contains(" 7 "),
        "{reason}"
    );
    let patient = Load { keep_alive: Some(seconds(60)), ..hasty };
    assert_eq!(idle_timeout(patient).unwrap().0, 50.0, "the server keeps them for longer");
}

#[test]
fn gaps_longer_than_the_idle_timeout_lengthen_it_as_far_as_the_server_keeps_connections() {
    // 1,000 requests, half of which found no connection, because the idle timeout had closed it.
    let stats = replaced(500, 499).closed(CloseCause::IdleTimeout, 499);
    let limits = Limits { idle_timeout: seconds(2), ..LIMITS };
    let gaps = Load { limits, ..load(stats) };
    assert_eq!(idle_timeout(gaps).unwrap().0, 4.0);
    let for_hours = |load: Load| {
        let items = advise(Load { span: seconds(40_000), ..load });
        of(&items, Setting::IdleTimeout).unwrap().suggested
    };
    assert_eq!(for_hours(gaps), SettingValue::Time(seconds(120)), "three times the 40 s between two requests");
    let kept = Load { keep_alive: Some(seconds(59)), ..gaps };
    assert_eq!(for_hours(kept), SettingValue::Time(seconds(59)), "the server does not keep them for longer");
    assert_eq!(idle_timeout(Load { keep_alive: Some(seconds(2)), ..gaps }), None, "it is as long as it can be");
}

#[test]
fn connections_that_the_server_ends_itself_change_no_setting() {
    let stats = replaced(1_000, 999).closed(CloseCause::PeerAnnounced, 999);
    let (suggested, reason) = idle_timeout(load(stats)).unwrap();
    assert_eq!(suggested, 50.0);
    assert!(reason.contains("no setting here changes that"), "{reason}");
}

#[test]
fn connections_that_are_kept_open_without_requests_are_no_load() {
    let mut stats = replaced(3_031, 3_020).closed(CloseCause::Replaced, 3_000).closed(CloseCause::IdleTimeout, 20);
    stats.pool.opened_ahead = 3_030;
    let limits = Limits { min_idle: 10, ..LIMITS };
    let warm = Load { limits, ..load(stats) };
    let (suggested, reason) = idle_timeout(warm).unwrap();
    assert_eq!((suggested, reason.as_str()), (50.0, "1 connections were opened for 1000 requests"));
    let connections = |min_idle| {
        let limits = Limits { max_connections: 100, min_idle, ..LIMITS };
        of(&advise(Load { limits, ..warm }), Setting::MaxConnectionsPerHost).unwrap().suggested
    };
    assert_eq!(connections(10), SettingValue::Count(10), "not fewer than are to be kept open");
    assert_eq!(connections(60), SettingValue::Count(100));
}

#[test]
fn an_idle_limit_that_closed_many_connections_is_raised() {
    let mut stats = replaced(301, 300).closed(CloseCause::IdleLimit, 300);
    stats.pool.most_leased = 16;
    let limits = Limits { max_idle: 2, ..LIMITS };
    let raised = of(&advise(Load { limits, ..load(stats) }), Setting::MaxIdlePerHost).unwrap();
    assert_eq!((raised.present, raised.suggested), (SettingValue::Count(2), SettingValue::Count(20)));
    assert_eq!(of(&advise(load(stats)), Setting::MaxIdlePerHost), None, "there is no limit");
    let few = stats.closed(CloseCause::IdleLimit, 5);
    assert_eq!(of(&advise(Load { limits, ..load(few) }), Setting::MaxIdlePerHost), None, "5 of 1,000 are few");
}

#[test]
fn a_limit_that_is_not_reached_stays_unless_it_is_far_too_high() {
    let suggested = |limit| {
        let limits = Limits { max_connections: limit, ..LIMITS };
        of(&advise(Load { limits, ..load(busy(16)) }), Setting::MaxConnectionsPerHost).unwrap().suggested
    };
    // 16 and a margin of 4 are needed.
    assert_eq!([16, 20, 40].map(suggested), [16, 20, 40].map(SettingValue::Count));
    assert_eq!([41, 1_000, usize::MAX].map(suggested), [SettingValue::Count(20); 3]);
}

#[test]
fn requests_that_were_turned_away_count_as_requests_that_waited() {
    let limits = Limits { max_connections: 2, ..LIMITS };
    let mut stats = busy(2);
    stats.pool.queue.refused = 200;
    let item = of(&advise(Load { limits, ..load(stats) }), Setting::MaxConnectionsPerHost).unwrap();
    assert!(item.suggested > item.present, "{item:?}");
    assert!(item.reason.contains("200 of them turned away because the queue was full"), "{}", item.reason);
}

#[test]
fn a_limit_is_raised_in_steps_and_the_reason_names_the_end() {
    // 1,000 requests in a second, each of which waits for 90 ms and holds one of 5 connections for 5 ms.
    let limits = Limits { max_connections: 5, ..LIMITS };
    let mut stats = busy(5).queued(Limit::ConnectionsPerHost, 1_000);
    stats.pool.queue_time = latency(1_000, Duration::from_millis(90));
    stats.pool.hold_time = latency(1_000, Duration::from_millis(5));
    stats.pool.queue.entered = 1_000;
    stats.pool.queue.served = 1_000;
    let items = advise(Load { limits, span: seconds(1), ..load(stats) });
    let item = of(&items, Setting::MaxConnectionsPerHost).unwrap();
    assert_eq!(item.suggested, SettingValue::Count(20), "four times as many");
    assert!(item.reason.contains("and wait for 90 ms are 95 at a time"), "{}", item.reason);
    let end = "; with 120, about 1 in 100 waits; 20 is a step towards that";
    assert!(item.reason.ends_with(end), "{}", item.reason);
}

#[test]
fn each_setting_of_a_host_has_figures() {
    let mut stats = replaced(301, 300).closed(CloseCause::IdleLimit, 300);
    stats.pool.most_leased = 16;
    let limits = Limits { max_idle: 1, ..LIMITS };
    for streams in [None, Some(10)] {
        let items = advise(Load { limits, streams, keep_alive: Some(seconds(4)), ..load(stats) });
        assert_eq!(items.len(), 3);
        for item in items {
            assert!(item.figures.len() >= 3 && item.origin.is_some() && !item.reason.is_empty(), "{item:?}");
            assert!(!item.reason.ends_with('.'), "{}", item.reason);
        }
    }
}

/// A load of all hosts of 1,000 requests.
fn total(stats: Totals, needed: usize) -> TotalLoad {
    TotalLoad {
        stats,
        max_connections: 4_000,
        max_idle: 1_024,
        descriptors: Some(1_000),
        needed,
        is_host_raised: false,
        arrivals: 1_000,
    }
}

fn total_item(load: &TotalLoad, setting: Setting) -> AdviceItem {
    of(&rules::of_all(load), setting).unwrap()
}

#[test]
fn connections_need_70_percent_of_the_descriptors_at_most() {
    let descriptors = |needed, limit| {
        let load = TotalLoad { descriptors: Some(limit), ..total(Totals::default(), needed) };
        let item = total_item(&load, Setting::Descriptors);
        assert_eq!(item.present, SettingValue::Count(limit as usize));
        (item.suggested, item.reason)
    };
    let (suggested, reason) = descriptors(1_400, 1_024);
    assert_eq!(suggested, SettingValue::Count(2_000));
    assert_eq!(reason, "1400 connections should take at most 70 % of the descriptors");
    let (suggested, reason) = descriptors(100, 1_000);
    assert_eq!(suggested, SettingValue::Count(1_000));
    assert_eq!(reason, "1000 are enough: 100 connections take 10 % of them");
    let none = TotalLoad { descriptors: None, ..total(Totals::default(), 100) };
    assert_eq!(of(&rules::of_all(&none), Setting::Descriptors), None, "the system has no limit");
}

#[test]
fn a_host_that_other_limits_hold_back_keeps_its_limit() {
    let with = |limit: Limit| {
        let stats = busy(3).queued(limit, 400);
        let limits = Limits { max_connections: 100, ..LIMITS };
        of(&advise(Load { limits, ..load(stats) }), Setting::MaxConnectionsPerHost).unwrap()
    };
    assert!(!with(Limit::Connections).is_change(), "{}", with(Limit::Connections).reason);
    assert!(with(Limit::Opening).is_change(), "its own connections were opened");
}

#[test]
fn refused_requests_count_for_the_limit_that_those_in_the_queue_wait_for() {
    let with = |limit: Limit| {
        let mut stats = busy(10).queued(limit, 500);
        stats.pool.queue.refused = 500;
        let limits = Limits { max_connections: 10, ..LIMITS };
        of(&advise(Load { limits, ..load(stats) }), Setting::MaxConnectionsPerHost).unwrap()
    };
    assert!(with(Limit::ConnectionsPerHost).is_change());
    assert!(!with(Limit::Connections).is_change(), "{}", with(Limit::Connections).reason);
}

#[test]
fn over_http2_the_limit_of_connections_is_raised_only_if_requests_waited() {
    let limits = Limits { max_connections: 1, ..LIMITS };
    let items = advise(Load { limits, streams: Some(100), ..load(stats()) });
    assert_eq!(of(&items, Setting::MaxConnectionsPerHost), None);
}

#[test]
fn requests_that_waited_for_a_descriptor_double_their_number() {
    let stats = Totals::default().queued(Limit::Descriptors, 3);
    let item = total_item(&total(stats, 100), Setting::Descriptors);
    assert_eq!(item.suggested, SettingValue::Count(2_000));
    assert_eq!(item.reason, "3 requests waited because no socket could be opened");
}

#[test]
fn streams_need_no_descriptors() {
    let mut stats = Totals::default();
    stats.pool.most_leased = 900;
    stats.pool.in_use = 9;
    let item = total_item(&total(stats, 10), Setting::Descriptors);
    assert_eq!(item.suggested, SettingValue::Count(1_000), "900 requests over 9 connections: {}", item.reason);
}

#[test]
fn the_limit_of_all_connections_is_raised_to_what_the_hosts_need_and_never_lowered() {
    let suggested = |limit, needed, waited, is_host_raised| {
        let stats = Totals::default().queued(Limit::Connections, waited);
        let load = TotalLoad { max_connections: limit, is_host_raised, ..total(stats, needed) };
        total_item(&load, Setting::MaxConnections).suggested
    };
    assert_eq!(suggested(100, 50, 0, true), SettingValue::Count(100));
    assert_eq!(suggested(100, 150, 0, true), SettingValue::Count(150));
    assert_eq!(suggested(100, 150, 0, false), SettingValue::Count(100), "nothing waited for it, or will");
    assert_eq!(suggested(100, 50, 5, false), SettingValue::Count(100), "5 of 1,000 are few");
    assert_eq!(suggested(100, 50, 500, false), SettingValue::Count(101));
}

#[test]
fn the_limit_of_all_idle_connections_is_raised_if_it_closed_many() {
    let mut stats = Totals::default().closed(CloseCause::IdleLimit, 500);
    stats.pool.opened = 501;
    let limited = |max_idle| TotalLoad { max_idle, ..total(stats, 64) };
    assert_eq!(total_item(&limited(10), Setting::MaxIdle).suggested, SettingValue::Count(64));
    assert_eq!(of(&rules::of_all(&limited(64)), Setting::MaxIdle), None);
}

/// Returns the advice for these hosts.
fn advice(hosts: Vec<(Origin, Load)>, all: TotalLoad) -> Advice {
    let total =
        |(needed, is_host_raised, arrivals)| TotalLoad { needed, is_host_raised, arrivals, descriptors: None, ..all };
    Advice::from_loads(hosts[0].1.span, hosts, total, PoolConfig::new(), DnsUse::default())
}

/// Returns the text of the advice for one host with 1,000 requests, of `all` that the pool had.
fn text(all: u64) -> String {
    let mut pool = Totals::default();
    pool.pool.hold_time = latency(all, seconds(1));
    advice(vec![(origin("api.test"), load(stats()))], total(pool, 0)).to_string()
}

#[test]
fn requests_to_hosts_that_are_forgotten_are_told() {
    let left_out = "\n200 requests to hosts that the pool has forgotten are left out";
    assert!(text(1_200).ends_with(left_out), "{}", text(1_200));
    assert!(!text(1_005).contains("left out"), "the figures are not read at the same moment: {}", text(1_005));
}

#[test]
fn many_small_hosts_need_connections_together() {
    let host = |number: usize| {
        let mut stats = Totals::default().queued(Limit::Connections, 20);
        stats.pool.most_leased = 1;
        stats.pool.queue_time = latency(20, Duration::from_millis(450));
        stats.pool.hold_time = latency(20, Duration::from_millis(50));
        stats.pool.queue.entered = 20;
        stats.pool.queue.served = 20;
        (origin(&format!("h{number}.test")), Load { span: seconds(10), ..load(stats) })
    };
    let mut pool = Totals::default().queued(Limit::Connections, 990);
    pool.pool.in_use = 5;
    pool.pool.hold_time = latency(1_000, Duration::from_millis(50));
    let all = TotalLoad { max_connections: 5, ..total(pool, 0) };
    let advice = advice((0..50).map(host).collect(), all);
    let item = advice.items().find(|item| item.setting == Setting::MaxConnections).unwrap();
    // 50 requests at a time need 68.
    assert_eq!(item.suggested, SettingValue::Count(20), "{}", item.reason);
    assert!(item.reason.ends_with("and 20 is a step towards that"), "{}", item.reason);
}
