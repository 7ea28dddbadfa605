//! The rules one by one: the suggestion and the reason for statistics that were made up.

use std::time::Duration;

use super::host_rules;
use super::item::{AdviceItem, Setting, SettingValue};
use super::load::Load;
use super::report::Advice;
use super::snapshot::StatsSnapshot;
use super::total_rules::{self, TotalLoad};
use crate::dns::{CachedResolver, FixedResolver};
use crate::latency::Latency;
use crate::origin::Origin;
use crate::pool::{ClosesByCause, HostFacts, Limits, PoolConfig, PoolStats};
use crate::trace::{CloseCause, Limit};

const SPAN: Duration = Duration::from_secs(1_000);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn latency(count: u64, each: Duration) -> Latency {
    let mut latency = Latency::default();
    (0..count).for_each(|_| latency.add(each.into()));
    latency
}

/// Returns the statistics of a thousand requests in a thousand seconds, each of which held its connection for 100 ms.
fn stats() -> PoolStats {
    PoolStats {
        opened: 1,
        queue_time: latency(1_000, Duration::ZERO),
        hold_time: latency(1_000, Duration::from_millis(100)),
        most_leased: 1,
        ..PoolStats::default()
    }
}

fn closed(cause: CloseCause, count: u64) -> ClosesByCause {
    let mut causes = ClosesByCause::default();
    causes.0[cause as usize] = count;
    causes
}

fn facts(stats: PoolStats) -> HostFacts {
    HostFacts { stats, busy_time: stats.hold_time.sum(), limits: Limits::default(), streams: None, keep_alive: None }
}

fn advise(facts: HostFacts) -> Vec<AdviceItem> {
    let origin = Origin::from_url(&"http://api.test/".parse().unwrap()).unwrap();
    host_rules::advise(&origin, &Load::new(&facts, SPAN))
}

fn of(items: &[AdviceItem], setting: Setting) -> Option<AdviceItem> {
    items.iter().find(|item| item.setting == setting).cloned()
}

/// Returns the suggested idle timeout in seconds, and the reason.
fn idle_timeout(facts: HostFacts) -> Option<(f64, String)> {
    let item = of(&advise(facts), Setting::IdleTimeout)?;
    assert_eq!(item.present, SettingValue::Time(facts.limits.idle_timeout));
    match item.suggested {
        SettingValue::Time(time) => Some((time.as_secs_f64(), item.reason)),
        other => panic!("a time: {other}"),
    }
}

#[test]
fn a_server_that_closes_idle_connections_sooner_shortens_the_idle_timeout() {
    let stats = PoolStats { closed_idle_by_peer: 7, ..stats() };
    let facts = HostFacts { keep_alive: Some(seconds(4)), ..facts(stats) };
    let (suggested, reason) = idle_timeout(facts).unwrap();
    assert_eq!(suggested, 4.0);
    assert!(
        reason.contains("the server closes idle connections a little after 4 s") && reason.contains(" 7 "),
        "{reason}"
    );
    let patient = HostFacts { keep_alive: Some(seconds(60)), ..facts };
    assert_eq!(idle_timeout(patient).unwrap().0, 50.0, "the server keeps them for longer");
}

#[test]
fn gaps_longer_than_the_idle_timeout_lengthen_it_as_far_as_the_server_keeps_connections() {
    // 1,000 requests, half of which found no connection, because the idle timeout had closed it.
    let stats = PoolStats { opened: 500, closed: 499, causes: closed(CloseCause::IdleTimeout, 499), ..stats() };
    let limits = Limits { idle_timeout: seconds(2), ..Limits::default() };
    let facts = HostFacts { limits, ..facts(stats) };
    assert_eq!(idle_timeout(facts).unwrap().0, 4.0);
    let for_hours = |facts| {
        let origin = Origin::from_url(&"http://api.test/".parse().unwrap()).unwrap();
        let items = host_rules::advise(&origin, &Load::new(&facts, seconds(40_000)));
        of(&items, Setting::IdleTimeout).unwrap().suggested
    };
    assert_eq!(for_hours(facts), SettingValue::Time(seconds(120)), "three times the 40 s between two requests");
    let kept = HostFacts { keep_alive: Some(seconds(59)), ..facts };
    assert_eq!(for_hours(kept), SettingValue::Time(seconds(59)), "the server does not keep them for longer");
    assert_eq!(idle_timeout(HostFacts { keep_alive: Some(seconds(2)), ..facts }), None, "it is as long as it can be");
}

#[test]
fn connections_that_the_server_ends_itself_change_no_setting() {
    let causes = closed(CloseCause::PeerAnnounced, 999);
    let stats = PoolStats { opened: 1_000, closed: 999, causes, ..stats() };
    let (suggested, reason) = idle_timeout(facts(stats)).unwrap();
    assert_eq!(suggested, 50.0);
    assert!(reason.contains("no setting here changes that"), "{reason}");
}

#[test]
fn connections_that_are_kept_open_without_requests_are_no_load() {
    let mut causes = closed(CloseCause::Replaced, 3_000);
    causes.0[CloseCause::IdleTimeout as usize] = 20;
    let stats = PoolStats { opened: 3_031, opened_ahead: 3_030, closed: 3_020, causes, ..stats() };
    let limits = Limits { min_idle: 10, ..Limits::default() };
    let facts = HostFacts { limits, ..facts(stats) };
    let (suggested, reason) = idle_timeout(facts).unwrap();
    assert_eq!((suggested, reason.as_str()), (50.0, "1 connections were opened for 1000 requests"));
    let connections = |min_idle| {
        let limits = Limits { max_connections: 100, min_idle, ..Limits::default() };
        of(&advise(HostFacts { limits, ..facts }), Setting::MaxConnectionsPerHost).unwrap().suggested
    };
    assert_eq!(connections(10), SettingValue::Count(10), "not fewer than are to be kept open");
    assert_eq!(connections(60), SettingValue::Count(100));
}

#[test]
fn an_idle_limit_that_closed_many_connections_is_raised() {
    let causes = closed(CloseCause::IdleLimit, 300);
    let stats = PoolStats { opened: 301, closed: 300, most_leased: 16, causes, ..stats() };
    let limits = Limits { max_idle: 2, ..Limits::default() };
    let raised = of(&advise(HostFacts { limits, ..facts(stats) }), Setting::MaxIdlePerHost).unwrap();
    assert_eq!((raised.present, raised.suggested), (SettingValue::Count(2), SettingValue::Count(20)));
    assert_eq!(of(&advise(facts(stats)), Setting::MaxIdlePerHost), None, "there is no limit");
    let few = PoolStats { causes: closed(CloseCause::IdleLimit, 5), ..stats };
    assert_eq!(of(&advise(HostFacts { limits, ..facts(few) }), Setting::MaxIdlePerHost), None, "5 of 1,000 are few");
}

#[test]
fn a_limit_that_is_not_reached_stays_unless_it_is_far_too_high() {
    let suggested = |limit| {
        let limits = Limits { max_connections: limit, ..Limits::default() };
        let stats = PoolStats { most_leased: 16, ..stats() };
        of(&advise(HostFacts { limits, ..facts(stats) }), Setting::MaxConnectionsPerHost).unwrap().suggested
    };
    // 16 and a margin of 4 are needed.
    assert_eq!([16, 20, 40].map(suggested), [16, 20, 40].map(SettingValue::Count));
    assert_eq!([41, 1_000, usize::MAX].map(suggested), [SettingValue::Count(20); 3]);
}

#[test]
fn requests_that_were_turned_away_count_as_requests_that_waited() {
    let limits = Limits { max_connections: 2, ..Limits::default() };
    let mut stats = PoolStats { most_leased: 2, ..stats() };
    stats.queue.refused = 200;
    let item = of(&advise(HostFacts { limits, ..facts(stats) }), Setting::MaxConnectionsPerHost).unwrap();
    assert!(item.suggested > item.present, "{item:?}");
    assert!(item.reason.contains("200 of them turned away because the queue was full"), "{}", item.reason);
}

#[test]
fn a_limit_is_raised_in_steps_and_the_reason_names_the_end() {
    // 1,000 requests in a second, each of which waits for 90 ms and holds one of 5 connections for 5 ms.
    let limits = Limits { max_connections: 5, ..Limits::default() };
    let mut stats = PoolStats { most_leased: 5, ..stats() };
    stats.queue_time = latency(1_000, Duration::from_millis(90));
    stats.hold_time = latency(1_000, Duration::from_millis(5));
    stats.queue.entered = 1_000;
    stats.queue.served = 1_000;
    stats.queued.0[Limit::ConnectionsPerHost as usize] = 1_000;
    let facts = HostFacts { limits, ..facts(stats) };
    let origin = Origin::from_url(&"http://api.test/".parse().unwrap()).unwrap();
    let items = host_rules::advise(&origin, &Load::new(&facts, seconds(1)));
    let item = of(&items, Setting::MaxConnectionsPerHost).unwrap();
    assert_eq!(item.suggested, SettingValue::Count(20), "four times as many");
    assert!(item.reason.contains("and wait for 90 ms are 95 at a time"), "{}", item.reason);
    let end = "; with 120, about 1 in 100 waits; 20 is a step towards that";
    assert!(item.reason.ends_with(end), "{}", item.reason);
}

#[test]
fn each_setting_of_a_host_has_figures() {
    let causes = closed(CloseCause::IdleLimit, 300);
    let stats = PoolStats { opened: 301, closed: 300, most_leased: 16, causes, ..stats() };
    let limits = Limits { max_idle: 1, ..Limits::default() };
    for streams in [None, Some(10)] {
        let items = advise(HostFacts { limits, streams, keep_alive: Some(seconds(4)), ..facts(stats) });
        assert_eq!(items.len(), 3);
        for item in items {
            assert!(item.figures.len() >= 3 && item.origin.is_some() && !item.reason.is_empty(), "{item:?}");
            assert!(!item.reason.ends_with('.'), "{}", item.reason);
        }
    }
}

/// A load of all hosts of 1,000 requests.
fn total<'a>(config: &'a PoolConfig, stats: PoolStats, needed: usize, descriptors: u64) -> TotalLoad<'a> {
    TotalLoad { stats, config, descriptors: Some(descriptors), needed, is_host_raised: false, arrivals: 1_000 }
}

fn total_item(load: &TotalLoad<'_>, setting: Setting) -> AdviceItem {
    of(&total_rules::advise(load), setting).unwrap()
}

#[test]
fn connections_need_70_percent_of_the_descriptors_at_most() {
    let config = PoolConfig::new().max_connections(4_000);
    let descriptors = |needed, limit| {
        let item = total_item(&total(&config, PoolStats::default(), needed, limit), Setting::Descriptors);
        assert_eq!(item.present, SettingValue::Count(limit as usize));
        (item.suggested, item.reason)
    };
    let (suggested, reason) = descriptors(1_400, 1_024);
    assert_eq!(suggested, SettingValue::Count(2_000));
    assert_eq!(reason, "1400 connections should take at most 70 % of the descriptors");
    let (suggested, reason) = descriptors(100, 1_000);
    assert_eq!(suggested, SettingValue::Count(1_000));
    assert_eq!(reason, "1000 are enough: 100 connections take 10 % of them");
    let none = TotalLoad { descriptors: None, ..total(&config, PoolStats::default(), 100, 1) };
    assert_eq!(of(&total_rules::advise(&none), Setting::Descriptors), None, "the system has no limit");
}

#[test]
fn a_host_that_other_limits_hold_back_keeps_its_limit() {
    let with = |limit: Limit| {
        let mut stats = PoolStats { most_leased: 3, ..stats() };
        stats.queued.0[limit as usize] = 400;
        let limits = Limits { max_connections: 100, ..Limits::default() };
        of(&advise(HostFacts { limits, ..facts(stats) }), Setting::MaxConnectionsPerHost).unwrap()
    };
    assert!(!with(Limit::Connections).is_change(), "{}", with(Limit::Connections).reason);
    assert!(with(Limit::Opening).is_change(), "its own connections were opened");
}

#[test]
fn refused_requests_count_for_the_limit_that_those_in_the_queue_wait_for() {
    let with = |limit: Limit| {
        let mut stats = PoolStats { most_leased: 10, ..stats() };
        stats.queued.0[limit as usize] = 500;
        stats.queue.refused = 500;
        let limits = Limits { max_connections: 10, ..Limits::default() };
        of(&advise(HostFacts { limits, ..facts(stats) }), Setting::MaxConnectionsPerHost).unwrap()
    };
    assert!(with(Limit::ConnectionsPerHost).is_change());
    assert!(!with(Limit::Connections).is_change(), "{}", with(Limit::Connections).reason);
}

#[test]
fn over_http2_the_limit_of_connections_is_raised_only_if_requests_waited() {
    let limits = Limits { max_connections: 1, ..Limits::default() };
    let items = advise(HostFacts { limits, streams: Some(100), ..facts(stats()) });
    assert_eq!(of(&items, Setting::MaxConnectionsPerHost), None);
}

#[test]
fn requests_that_waited_for_a_descriptor_double_their_number() {
    let config = PoolConfig::new().max_connections(4_000);
    let mut stats = PoolStats::default();
    stats.queued.0[Limit::Descriptors as usize] = 3;
    let item = total_item(&total(&config, stats, 100, 1_000), Setting::Descriptors);
    assert_eq!(item.suggested, SettingValue::Count(2_000));
    assert_eq!(item.reason, "3 requests waited because no socket could be opened");
}

#[test]
fn streams_need_no_descriptors() {
    let config = PoolConfig::new().max_connections(4_000);
    let stats = PoolStats { most_leased: 900, in_use: 9, ..PoolStats::default() };
    let item = total_item(&total(&config, stats, 10, 1_000), Setting::Descriptors);
    assert_eq!(item.suggested, SettingValue::Count(1_000), "900 requests over 9 connections: {}", item.reason);
}

#[test]
fn the_limit_of_all_connections_is_raised_to_what_the_hosts_need_and_never_lowered() {
    let suggested = |limit, needed, waited, is_host_raised| {
        let mut stats = PoolStats::default();
        stats.queued.0[Limit::Connections as usize] = waited;
        let config = PoolConfig::new().max_connections(limit);
        let load = TotalLoad { is_host_raised, ..total(&config, stats, needed, 1_000) };
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
    let stats = PoolStats { causes: closed(CloseCause::IdleLimit, 500), opened: 501, ..PoolStats::default() };
    let config = PoolConfig::new().max_idle(10);
    assert_eq!(total_item(&total(&config, stats, 64, 1_000), Setting::MaxIdle).suggested, SettingValue::Count(64));
    let enough = PoolConfig::new().max_idle(64);
    assert_eq!(of(&total_rules::advise(&total(&enough, stats, 64, 1_000)), Setting::MaxIdle), None);
}

/// Returns the text of the advice for one host with 1,000 requests, of `all` that the pool had.
fn text(all: u64) -> String {
    let origin = Origin::from_url(&"http://api.test/".parse().unwrap()).unwrap();
    let built = crate::clock::now();
    let now = StatsSnapshot {
        at: built + SPAN,
        built,
        pool: PoolStats { hold_time: latency(all, seconds(1)), ..PoolStats::default() },
        hosts: vec![(origin, facts(stats()))],
        dns: CachedResolver::new(FixedResolver::new()).stats(),
        config: PoolConfig::new(),
        descriptors: None,
    };
    Advice::since_built(&now).to_string()
}

#[test]
fn requests_to_hosts_that_are_forgotten_are_told() {
    let left_out = "\n200 requests to hosts that the pool has forgotten are left out";
    assert!(text(1_200).ends_with(left_out), "{}", text(1_200));
    assert!(!text(1_005).contains("left out"), "the figures are not read at the same moment: {}", text(1_005));
}

#[test]
fn many_small_hosts_need_connections_together() {
    let built = crate::clock::now();
    let host = |number: usize| {
        let origin = Origin::from_url(&format!("http://h{number}.test/").parse().unwrap()).unwrap();
        let mut stats = PoolStats { most_leased: 1, ..PoolStats::default() };
        stats.queue_time = latency(20, Duration::from_millis(450));
        stats.hold_time = latency(20, Duration::from_millis(50));
        stats.queue.entered = 20;
        stats.queue.served = 20;
        stats.queued.0[Limit::Connections as usize] = 20;
        (origin, facts(stats))
    };
    let hold_time = latency(1_000, Duration::from_millis(50));
    let mut pool = PoolStats { in_use: 5, hold_time, ..PoolStats::default() };
    pool.queued.0[Limit::Connections as usize] = 990;
    let now = StatsSnapshot {
        at: built + seconds(10),
        built,
        pool,
        hosts: (0..50).map(host).collect(),
        dns: CachedResolver::new(FixedResolver::new()).stats(),
        config: PoolConfig::new().max_connections(5),
        descriptors: None,
    };
    let advice = Advice::since_built(&now);
    let item = advice.items().find(|item| item.setting == Setting::MaxConnections).unwrap();
    // 50 requests at a time need 68.
    assert_eq!(item.suggested, SettingValue::Count(20), "{}", item.reason);
    assert!(item.reason.ends_with("and 20 is a step towards that"), "{}", item.reason);
}
