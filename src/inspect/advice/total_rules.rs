//! The advice on the settings for all hosts together. A core.

use super::item::{AdviceItem, Figure, Setting, SettingValue, number_text};
use super::load::share;
use super::staffing;
use crate::pool::{PoolConfig, PoolStats};
use crate::trace::{CloseCause, Limit};

/// The share of the descriptors of a process that connections should take, in percent. It is that of the default of
/// [`PoolConfig::max_connections`].
const OF_DESCRIPTORS: usize = 70;

/// The load of all hosts together over a span of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct TotalLoad<'a> {
    /// The totals of the span.
    pub(super) stats: PoolStats,
    pub(super) config: &'a PoolConfig,
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
pub(super) fn advise(load: &TotalLoad<'_>) -> Vec<AdviceItem> {
    let connections = connections(load);
    let total = match connections.suggested {
        SettingValue::Count(total) => total,
        _ => usize::MAX,
    };
    let descriptors = descriptors(load, total.min(load.needed.max(open(&load.stats))));
    [Some(connections), max_idle(load), descriptors].into_iter().flatten().collect()
}

/// Returns the connections that are open at the moment or about to be.
fn open(stats: &PoolStats) -> usize {
    stats.idle + stats.in_use + stats.dialling + stats.closing
}

/// Returns the share of the requests that waited because the pool had all its connections.
fn limited_share(load: &TotalLoad<'_>) -> f64 {
    share(load.stats.queued_by(Limit::Connections), load.arrivals)
}

/// Advises on the limit of connections in total.
fn connections(load: &TotalLoad<'_>) -> AdviceItem {
    let present = load.config.max_connections;
    let limited = limited_share(load);
    let made_room = load.stats.closed_by(CloseCause::MadeRoom);
    let most = present.saturating_mul(staffing::BIGGEST_STEP);
    let suggested = match limited > staffing::MAY_WAIT {
        true => load.needed.max(present.saturating_add(1)).min(most),
        false if load.is_host_raised => load.needed.max(present).min(most),
        false => present,
    };
    let needed = load.needed;
    let reason = if limited > staffing::MAY_WAIT {
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
            Figure::count("most requests at a time", load.stats.most_leased as u64),
            Figure::percent("waited for the limit", limited),
            Figure::count("closed to make room", made_room),
        ],
        reason,
    }
}

/// Advises on the limit of idle connections in total, if it closed many.
fn max_idle(load: &TotalLoad<'_>) -> Option<AdviceItem> {
    let present = load.config.max_idle;
    let closed = load.stats.closed_by(CloseCause::IdleLimit);
    if present >= load.needed || share(closed, load.arrivals) <= staffing::MAY_WAIT {
        return None;
    }
    Some(AdviceItem {
        origin: None,
        setting: Setting::MaxIdle,
        present: SettingValue::limit(present),
        suggested: SettingValue::Count(load.needed),
        figures: vec![
            Figure::count("closed by the idle limit", closed),
            Figure::count("opened", load.stats.opened),
            Figure::count("needed by all hosts", load.needed as u64),
        ],
        reason: format!(
            "{closed} connections were closed because more than {present} were idle, and others opened instead"
        ),
    })
}

/// Advises on the descriptors of the process, which `connections` take a share of.
fn descriptors(load: &TotalLoad<'_>, connections: usize) -> Option<AdviceItem> {
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
