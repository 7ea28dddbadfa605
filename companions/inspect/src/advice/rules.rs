//! The advice on the settings of one host, and on those of all hosts together: a function for each setting. A core.

use std::time::Duration;

use speeddial::origin::Origin;
use speeddial::trace::{CloseCause, Limit};

use super::item::{AdviceItem, Figure, Setting, SettingValue, number_text, time_text};
use super::load::{BIGGEST_STEP, Load, MAY_WAIT, Totals, fewest_connections, share, with_margin};

/// The fewest requests from which advice is given: their rate is known to about a tenth (one standard deviation).
pub(super) const ENOUGH_REQUESTS: u64 = 100;
/// The share of requests with a new connection above which the idle timeout is looked at.
const MANY_OPENED: f64 = 0.05;
/// The longest idle timeout that is suggested. NAT gateways and load balancers forget idle connections after 350 s (AWS) or 240 s
/// (Azure).
const LONGEST_IDLE: Duration = Duration::from_secs(230);
/// The share of the descriptors of a process that connections should take, in percent. It is that of the default of
/// [`PoolConfig::max_connections`](speeddial::PoolConfig::max_connections).
const OF_DESCRIPTORS: usize = 70;

/// Returns the advice for one host.
pub(super) fn of_host(origin: &Origin, load: &Load) -> Vec<AdviceItem> {
    let limits = if load.streams.is_some() { http2_connections(load) } else { vec![connections(load)] };
    let rules = limits.into_iter().chain(idle_timeout(load)).chain(max_idle(load));
    rules.map(|item| AdviceItem { origin: Some(origin.clone()), ..item }).collect()
}

/// Returns the connections that the load needs over HTTP/1, each of which carries one request at a time. Over HTTP/2, the streams.
pub(super) fn needed(load: &Load) -> usize {
    let present = capacity(load);
    if load.limited_share() > MAY_WAIT {
        return raised(load, present);
    }
    fewest_connections(load.concurrency()).max(with_margin(load.stats.pool.most_leased))
}

/// Returns the number of requests that may have a connection at the same time.
fn capacity(load: &Load) -> usize {
    let limits = &load.limits;
    match load.streams {
        None => limits.max_connections,
        Some(streams) => limits.max_connections.min(limits.max_http2_connections).saturating_mul(streams.max(1)),
    }
}

/// Returns the next number to try where requests waited for a limit.
fn raised(load: &Load, present: usize) -> usize {
    wanted(load, present).min(present.saturating_mul(BIGGEST_STEP))
}

/// Returns the number with which at most one request in a hundred should wait, where more waited for a limit.
fn wanted(load: &Load, present: usize) -> usize {
    let steady = fewest_connections(load.concurrency());
    let with_backlog = if steady <= present { present.saturating_add(backlog(load)) } else { present };
    with_backlog.max(fewest_connections(load.demand())).max(present.saturating_add(1))
}

/// Returns the requests in the queue when it is longest, where they come in bursts: those that waited did so for half as long as
/// the last one of a burst, and `most_leased` of them are served in the time for which one is held.
fn backlog(load: &Load) -> usize {
    let turns = 2.0 * load.wait_of_queued().as_secs_f64() / load.hold().as_secs_f64().max(1e-6);
    (turns * load.stats.pool.most_leased as f64).ceil() as usize
}

/// Returns the figures behind a limit on connections.
fn figures(load: &Load) -> Vec<Figure> {
    vec![
        Figure::rate("arrivals", load.rate()),
        Figure::millis("held", load.hold()),
        Figure::millis("queued", load.wait()),
        Figure::number("in use on average", load.concurrency()),
        Figure::count("most in use", load.stats.pool.most_leased as u64),
        Figure::percent("waited for a limit", load.limited_share()),
    ]
}

/// Advises on the limit of connections to a host that speaks HTTP/1.
fn connections(load: &Load) -> AdviceItem {
    let present = load.limits.max_connections;
    // A lower limit would contradict the number of connections that are to be kept open.
    let needed = needed(load).max(load.limits.min_idle);
    let (suggested, reason) = if load.limited_share() > MAY_WAIT {
        (needed, why_more(load, needed))
    } else if load.throttled_share() <= MAY_WAIT && (present == usize::MAX || present > needed.saturating_mul(2)) {
        (needed, why_less(load))
    } else {
        (present, why_as_it_is(load))
    };
    AdviceItem {
        origin: None,
        setting: Setting::MaxConnectionsPerHost,
        present: SettingValue::limit(present),
        suggested: SettingValue::limit(suggested),
        figures: figures(load),
        reason,
    }
}

fn why_more(load: &Load, needed: usize) -> String {
    let (waited, wait) = (percent(load.limited_share()), time_text(load.wait()));
    let refused = match load.stats.pool.queue.refused {
        0 => String::new(),
        refused => format!(", {refused} of them turned away because the queue was full"),
    };
    let bursts = fewest_connections(load.concurrency()) <= capacity(load);
    let cause = if bursts {
        let mean = number_text(load.concurrency());
        format!("only {mean} hold a connection on average, so they come in bursts")
    } else {
        let rate = number_text(load.rate());
        let hold = time_text(load.hold());
        let concurrency = number_text(load.demand());
        format!("{rate} requests/s that hold a connection for {hold} and wait for {wait} are {concurrency} at a time")
    };
    let wanted = wanted(load, capacity(load));
    let step = if needed < wanted { format!("; {needed} is a step towards that") } else { String::new() };
    format!(
        "{waited} of the requests waited for the limit{refused}: {cause}; with {wanted}, about 1 in 100 waits{step}"
    )
}

fn why_less(load: &Load) -> String {
    let (rate, mean) = (number_text(load.rate()), number_text(load.concurrency()));
    let most = load.stats.pool.most_leased;
    format!(
        "{rate} requests/s used {mean} connections on average and {most} at most; a lower limit keeps a slow server from \
         taking more"
    )
}

fn why_as_it_is(load: &Load) -> String {
    let waited = load.limited_share();
    if load.throttled_share() > MAY_WAIT {
        let throttled = percent(load.throttled_share());
        return format!(
            "{throttled} of the requests waited for a limit of all hosts, so that the need of this one is not known"
        );
    }
    if waited == 0.0 {
        return "no request waited for the limit, so that a higher one changes nothing".to_owned();
    }
    format!("only {} of the requests waited for the limit", percent(waited))
}

/// Advises on the limits of connections to a host that speaks HTTP/2, where a request needs a stream.
fn http2_connections(load: &Load) -> Vec<AdviceItem> {
    let streams = load.streams.unwrap_or(1).max(1);
    let present = load.limits.max_http2_connections;
    let connections = needed(load).div_ceil(streams);
    let is_limited = load.limited_share() > MAY_WAIT;
    let suggested = if is_limited { present.max(connections) } else { present };
    let mut figures = figures(load);
    figures.push(Figure::count("streams of a connection", streams as u64));
    let reason = if is_limited {
        let waited = percent(load.limited_share());
        let concurrency = number_text(load.demand());
        format!(
            "{waited} of the requests waited for a stream: {concurrency} at a time on average, and a connection has {streams}"
        )
    } else {
        let mean = number_text(load.concurrency());
        format!(
            "{mean} streams are in use on average, and a connection has {streams}; another one opens only when all are taken"
        )
    };
    let item = |setting, present, suggested| AdviceItem {
        origin: None,
        setting,
        present: SettingValue::limit(present),
        suggested: SettingValue::limit(suggested),
        figures: figures.clone(),
        reason: reason.clone(),
    };
    let mut items = vec![item(Setting::MaxHttp2ConnectionsPerHost, present, suggested)];
    if is_limited && connections > load.limits.max_connections {
        items.push(item(Setting::MaxConnectionsPerHost, load.limits.max_connections, connections));
    }
    items
}

/// Advises on the idle timeout, if there is something to say about it.
fn idle_timeout(load: &Load) -> Option<AdviceItem> {
    let present = load.limits.idle_timeout;
    let (suggested, reason) = match load.keep_alive {
        Some(kept) if kept < present => (kept, why_shorter(load, kept)),
        _ if load.opened_share() <= MANY_OPENED => (present, why_enough(load)),
        _ if is_closed_by_server(load) => (present, why_closed(load)),
        kept if opens_after_timeouts(load) => longer(load, kept)?,
        _ => return None,
    };
    Some(AdviceItem {
        origin: None,
        setting: Setting::IdleTimeout,
        present: SettingValue::Time(present),
        suggested: SettingValue::Time(suggested),
        figures: idle_figures(load),
        reason,
    })
}

fn idle_figures(load: &Load) -> Vec<Figure> {
    let mut figures = vec![
        Figure::time("between requests", load.gap()),
        Figure::count("opened", load.opened()),
        Figure::percent("with a new connection", load.opened_share()),
        Figure::count("closed by the idle timeout", load.timed_out_idle()),
        Figure::count("closed idle by the server", load.stats.pool.closed_idle_by_peer),
        Figure::count("closed after an announcement", load.stats.closed_by(CloseCause::PeerAnnounced)),
    ];
    figures.extend(load.keep_alive.map(|kept| Figure::time("the server keeps for", kept)));
    figures
}

fn why_shorter(load: &Load, kept: Duration) -> String {
    let kept = time_text(kept);
    let seen = match load.stats.pool.closed_idle_by_peer {
        0 => "it announced that".to_owned(),
        closed => format!("it closed {closed} before this client did"),
    };
    format!(
        "the server closes idle connections a little after {kept}: {seen}; the pool has learned it, and with this setting the \
         next client need not"
    )
}

fn why_enough(load: &Load) -> String {
    let (opened, arrivals) = (load.opened(), load.arrivals());
    format!("{opened} connections were opened for {arrivals} requests")
}

/// Returns true if the server ends most connections itself, however long they are kept here.
fn is_closed_by_server(load: &Load) -> bool {
    let stats = &load.stats;
    let by_server = stats.closed_by(CloseCause::PeerAnnounced) + stats.closed_by(CloseCause::Peer);
    by_server * 2 > stats.pool.closed.saturating_sub(stats.closed_by(CloseCause::Replaced)).max(1)
}

fn why_closed(load: &Load) -> String {
    let (opened, arrivals, stats) = (load.opened(), load.arrivals(), &load.stats);
    let announced = stats.closed_by(CloseCause::PeerAnnounced);
    let by_server = stats.closed_by(CloseCause::Peer) + announced;
    format!(
        "{opened} connections were opened for {arrivals} requests, because the server closed {by_server} ({announced} with an \
         announcement such as `Connection: close`); no setting here changes that"
    )
}

/// Returns true if most new connections replace one that the idle timeout closed.
fn opens_after_timeouts(load: &Load) -> bool {
    share(load.timed_out_idle(), load.opened()) > 0.5
}

/// Returns a longer idle timeout, within what the server keeps, and the reason. `None` if the present one is the longest that is
/// sensible.
fn longer(load: &Load, kept: Option<Duration>) -> Option<(Duration, String)> {
    let present = load.limits.idle_timeout;
    // With random arrivals, 5 % of the gaps are longer than three times the mean.
    let seconds = load.gap().saturating_mul(3).as_secs_f64().ceil().max(present.as_secs_f64() * 2.0);
    let longest = kept.unwrap_or(LONGEST_IDLE).min(LONGEST_IDLE);
    let suggested = Duration::from_secs_f64(seconds.min(longest.as_secs_f64()));
    if suggested <= present {
        return None;
    }
    let (closed, opened) = (load.timed_out_idle(), load.opened());
    let gap = time_text(load.gap());
    let reason = format!(
        "the idle timeout closed {closed} connections, and {opened} were opened: requests come {gap} apart on average"
    );
    Some((suggested, reason))
}

/// Advises on the limit of idle connections of the host, if it closed many.
fn max_idle(load: &Load) -> Option<AdviceItem> {
    let present = load.limits.max_idle;
    let closed = load.stats.closed_by(CloseCause::IdleLimit);
    let needed = needed(load).div_ceil(load.streams.unwrap_or(1).max(1));
    if present >= needed || share(closed, load.arrivals()) <= MAY_WAIT {
        return None;
    }
    Some(AdviceItem {
        origin: None,
        setting: Setting::MaxIdlePerHost,
        present: SettingValue::limit(present),
        suggested: SettingValue::Count(needed),
        figures: vec![
            Figure::count("closed by the idle limit", closed),
            Figure::count("opened", load.opened()),
            Figure::count("most in use", load.stats.pool.most_leased as u64),
        ],
        reason: format!(
            "{closed} connections were closed because more than {present} were idle, and others opened instead"
        ),
    })
}

fn percent(share: f64) -> String {
    format!("{} %", number_text(share * 100.0))
}

/// The load of all hosts together over a span of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct TotalLoad {
    /// The totals of the span.
    pub(super) stats: Totals,
    /// The limits on connections and on idle ones.
    pub(super) max_connections: usize,
    pub(super) max_idle: usize,
    /// The descriptors that the process may open, if that is limited.
    pub(super) descriptors: Option<u64>,
    /// The sum of the connections that the hosts need.
    pub(super) needed: usize,
    /// True if a host is to have more connections.
    pub(super) is_host_raised: bool,
    /// The requests that asked for a connection.
    pub(super) arrivals: u64,
}

/// Returns the advice for all hosts together.
pub(super) fn of_all(load: &TotalLoad) -> Vec<AdviceItem> {
    let connections = all_connections(load);
    let total = match connections.suggested {
        SettingValue::Count(total) => total,
        _ => usize::MAX,
    };
    let descriptors = descriptors(load, total.min(load.needed.max(open(&load.stats))));
    [Some(connections), max_idle_of_all(load), descriptors].into_iter().flatten().collect()
}

/// Returns the connections that are open at the moment or about to be.
fn open(stats: &Totals) -> usize {
    stats.pool.idle + stats.pool.in_use + stats.pool.dialling + stats.pool.closing
}

/// Returns the share of the requests that waited because the pool had all its connections.
fn limited_share(load: &TotalLoad) -> f64 {
    share(load.stats.queued_by(Limit::Connections), load.arrivals)
}

/// Advises on the limit of connections in total.
fn all_connections(load: &TotalLoad) -> AdviceItem {
    let present = load.max_connections;
    let limited = limited_share(load);
    let made_room = load.stats.closed_by(CloseCause::MadeRoom);
    let most = present.saturating_mul(BIGGEST_STEP);
    let suggested = match limited > MAY_WAIT {
        true => load.needed.max(present.saturating_add(1)).min(most),
        false if load.is_host_raised => load.needed.max(present).min(most),
        false => present,
    };
    let needed = load.needed;
    let reason = if limited > MAY_WAIT {
        let waited = load.stats.queued_by(Limit::Connections);
        let step = match suggested < needed {
            true => format!("; the hosts need {needed} together, and {suggested} is a step towards that"),
            false => String::new(),
        };
        format!(
            "{waited} requests waited for this limit, and {made_room} connections were closed to make room for others{step}"
        )
    } else if suggested > present {
        format!("the hosts need {needed} connections together")
    } else if needed > present {
        format!("the hosts need {needed} connections if all are at their most, and no request waited for the limit")
    } else {
        format!("the hosts need {needed} connections together, which is within the limit")
    };
    AdviceItem {
        origin: None,
        setting: Setting::MaxConnections,
        present: SettingValue::limit(present),
        suggested: SettingValue::limit(suggested),
        figures: vec![
            Figure::count("needed by all hosts", needed as u64),
            Figure::count("most requests at a time", load.stats.pool.most_leased as u64),
            Figure::percent("waited for the limit", limited),
            Figure::count("closed to make room", made_room),
        ],
        reason,
    }
}

/// Advises on the limit of idle connections in total, if it closed many.
fn max_idle_of_all(load: &TotalLoad) -> Option<AdviceItem> {
    let present = load.max_idle;
    let closed = load.stats.closed_by(CloseCause::IdleLimit);
    if present >= load.needed || share(closed, load.arrivals) <= MAY_WAIT {
        return None;
    }
    Some(AdviceItem {
        origin: None,
        setting: Setting::MaxIdle,
        present: SettingValue::limit(present),
        suggested: SettingValue::Count(load.needed),
        figures: vec![
            Figure::count("closed by the idle limit", closed),
            Figure::count("opened", load.stats.pool.opened),
            Figure::count("needed by all hosts", load.needed as u64),
        ],
        reason: format!(
            "{closed} connections were closed because more than {present} were idle, and others opened instead"
        ),
    })
}

/// Advises on the descriptors of the process, which `connections` take a share of.
fn descriptors(load: &TotalLoad, connections: usize) -> Option<AdviceItem> {
    let present = usize::try_from(load.descriptors?).unwrap_or(usize::MAX);
    let wanted = connections.saturating_mul(100).div_ceil(OF_DESCRIPTORS);
    let waited = load.stats.queued_by(Limit::Descriptors);
    let suggested = if waited > 0 { wanted.max(present.saturating_mul(2)) } else { wanted.max(present) };
    let reason = if waited > 0 {
        format!("{waited} requests waited because no socket could be opened")
    } else if suggested > present {
        format!("{connections} connections should take at most {OF_DESCRIPTORS} % of the descriptors")
    } else {
        let share = number_text(100.0 * connections as f64 / present as f64);
        format!("{present} are enough: {connections} connections take {share} % of them")
    };
    Some(AdviceItem {
        origin: None,
        setting: Setting::Descriptors,
        present: SettingValue::limit(present),
        suggested: SettingValue::limit(suggested),
        figures: vec![
            Figure::count("connections", connections as u64),
            Figure::count("waited for a descriptor", waited),
            Figure::count("closed to free a descriptor", load.stats.closed_by(CloseCause::Descriptors)),
        ],
        reason,
    })
}
