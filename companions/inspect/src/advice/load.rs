//! The load of a host in figures, and the number of connections that a load needs, by the theory of queues. A core.

use std::time::Duration;

use speeddial::pool::{HostLoad, PoolStats};
use speeddial::trace::{CloseCause, Limit};

/// The share of requests that may wait for a connection. With it, the 99th percentile of the time of a request has no wait.
pub(super) const MAY_WAIT: f64 = 0.01;
/// The most by which one piece of advice multiplies a limit. The time for which requests hold connections may rise with the limit,
/// because the server has no more to give: smaller steps let the user see that.
pub(super) const BIGGEST_STEP: usize = 4;
/// The most connections that are ever computed.
const MOST: usize = 1_000_000;

/// Returns the mean number of requests that hold a connection: their rate per second times the mean time in seconds for which
/// one holds it (J. D. C. Little, "A Proof for the Queuing Formula: L = λW", 1961).
pub(super) fn concurrency(rate: f64, hold: f64) -> f64 {
    rate * hold
}

/// Returns the fewest connections with which at most one request in a hundred waits, for a mean of `load` requests at the same
/// time.
///
/// This is Erlang's formula C (A. K. Erlang, 1917): arrivals are random and independent (Poisson), holding times have any mean. For
/// large loads it is about `load + 2.4 * sqrt(load)` ("square-root staffing", S. Halfin and W. Whitt, 1981). It is exact for
/// exponential holding times, and close for others.
pub(super) fn fewest_connections(load: f64) -> usize {
    let mut blocked = 1.0; // Erlang's formula B for no connection
    for connections in 1..MOST {
        let servers = connections as f64;
        blocked = load * blocked / (servers + load * blocked);
        if servers > load && waiting_share(load, servers, blocked) <= MAY_WAIT {
            return connections;
        }
    }
    MOST
}

/// Returns the share of requests that wait, from the share that would be turned away if there were no queue.
fn waiting_share(load: f64, servers: f64, blocked: f64) -> f64 {
    servers * blocked / (servers - load * (1.0 - blocked))
}

/// Returns a maximum that was observed with a margin for longer times of observation: one standard deviation, if requests arrive
/// at random.
pub(super) fn with_margin(most: usize) -> usize {
    most + (most as f64).sqrt().ceil() as usize
}

/// The figures of a pool or of a host, with those by cause and by limit as values.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) pool: PoolStats,
    closed: [u64; CloseCause::ALL.len()],
    queued: [u64; Limit::ALL.len()],
}

impl From<PoolStats> for Totals {
    fn from(pool: PoolStats) -> Self {
        let closed = CloseCause::ALL.map(|cause| pool.closed_by(cause));
        Self { pool, closed, queued: Limit::ALL.map(|limit| pool.queued_by(limit)) }
    }
}

impl Totals {
    /// Returns the number of connections that were closed for this reason.
    pub(super) fn closed_by(&self, cause: CloseCause) -> u64 {
        of(&self.closed, &CloseCause::ALL, cause)
    }

    /// Returns the number of requests that entered the queue because of this limit.
    pub(super) fn queued_by(&self, limit: Limit) -> u64 {
        of(&self.queued, &Limit::ALL, limit)
    }

    #[cfg(test)]
    pub(super) fn closed(mut self, cause: CloseCause, count: u64) -> Self {
        CloseCause::ALL
            .iter()
            .zip(&mut self.closed)
            .filter(|(of, _)| **of == cause)
            .for_each(|(_, place)| *place = count);
        self
    }

    #[cfg(test)]
    pub(super) fn queued(mut self, limit: Limit, count: u64) -> Self {
        Limit::ALL.iter().zip(&mut self.queued).filter(|(of, _)| **of == limit).for_each(|(_, place)| *place = count);
        self
    }
}

fn of<T: PartialEq>(counts: &[u64], names: &[T], name: T) -> u64 {
    names.iter().zip(counts).find(|(other, _)| **other == name).map_or(0, |(_, count)| *count)
}

/// The load of a host over a span of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// The totals of the span.
    pub(super) stats: Totals,
    pub(super) limits: Limits,
    /// The streams of a connection, if the host speaks HTTP/2.
    pub(super) streams: Option<usize>,
    pub(super) keep_alive: Option<Duration>,
    /// The time for which requests held connections in the span.
    pub(super) busy_time: Duration,
    pub(super) span: Duration,
}

/// The limits of a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) max_connections: usize,
    pub(super) max_http2_connections: usize,
    pub(super) max_idle: usize,
    pub(super) min_idle: usize,
    pub(super) idle_timeout: Duration,
}

impl Load {
    pub(super) fn new(load: &HostLoad, span: Duration) -> Self {
        let HostLoad { stats, busy_time, streams, keep_alive, max_connections, max_http2_connections, .. } = *load;
        let HostLoad { max_idle, min_idle, idle_timeout, .. } = *load;
        let limits = Limits { max_connections, max_http2_connections, max_idle, min_idle, idle_timeout };
        Self { stats: stats.into(), limits, streams, keep_alive, busy_time, span }
    }

    /// Returns the requests that asked for a connection, those that did not get one included.
    pub(super) fn arrivals(&self) -> u64 {
        let queue = &self.stats.pool.queue;
        let at_once = self.stats.pool.queue_time.count().saturating_sub(queue.served);
        at_once + queue.entered + queue.refused
    }

    /// Returns the requests per second.
    pub(super) fn rate(&self) -> f64 {
        if self.span.is_zero() { 0.0 } else { self.arrivals() as f64 / self.span.as_secs_f64() }
    }

    /// Returns the mean time for which a request held its connection.
    pub(super) fn hold(&self) -> Duration {
        self.stats.pool.hold_time.mean().unwrap_or_default()
    }

    /// Returns the mean time for which a request waited for its connection.
    pub(super) fn wait(&self) -> Duration {
        self.stats.pool.queue_time.mean().unwrap_or_default()
    }

    /// Returns the mean time of the requests that did not get a connection at once.
    pub(super) fn wait_of_queued(&self) -> Duration {
        let queued = u32::try_from(self.stats.pool.queue.served.max(1)).unwrap_or(u32::MAX);
        self.stats.pool.queue_time.sum() / queued
    }

    /// Returns the mean number of requests that have a connection: the time for which they held one in the span, by the span.
    pub(super) fn concurrency(&self) -> f64 {
        if self.span.is_zero() { 0.0 } else { self.busy_time.as_secs_f64() / self.span.as_secs_f64() }
    }

    /// Returns the mean number of requests that would have a connection or wait for one if none was turned away (Little's law).
    pub(super) fn demand(&self) -> f64 {
        let accepted = self.arrivals().saturating_sub(self.stats.pool.queue.refused);
        if accepted == 0 {
            return self.concurrency();
        }
        // Of a wait that began before the span, the part in it is at most the span.
        let waiting = concurrency(self.rate(), self.wait().min(self.span).as_secs_f64());
        self.concurrency() * self.arrivals() as f64 / accepted as f64 + waiting
    }

    /// Returns the share of the requests that waited because of a limit on the host's connections, or were refused.
    pub(super) fn limited_share(&self) -> f64 {
        let limited = self.queued_by(&[Limit::ConnectionsPerHost, Limit::Streams]);
        // A full queue refuses requests, whatever those in it wait for.
        let all = self.queued_by(&Limit::ALL);
        let refused = self.stats.pool.queue.refused as f64 * if all == 0 { 1.0 } else { share(limited, all) };
        let arrivals = self.arrivals().max(1) as f64;
        (limited as f64 + refused) / arrivals
    }

    /// Returns the share of the requests that waited for a limit of all hosts together, or because the server asked for a pause.
    pub(super) fn throttled_share(&self) -> f64 {
        share(
            self.queued_by(&[Limit::Connections, Limit::Descriptors, Limit::Ports, Limit::EnhanceYourCalm]),
            self.arrivals(),
        )
    }

    /// Returns the requests that waited for one of these limits.
    fn queued_by(&self, limits: &[Limit]) -> u64 {
        limits.iter().map(|limit| self.stats.queued_by(*limit)).sum()
    }

    /// Returns the connections that were opened for requests. Others are opened however many requests there are, and say nothing of
    /// the load.
    pub(super) fn opened(&self) -> u64 {
        self.stats.pool.opened.saturating_sub(self.stats.pool.opened_ahead)
    }

    /// Returns the share of requests for which a connection was opened.
    pub(super) fn opened_share(&self) -> f64 {
        share(self.opened(), self.arrivals())
    }

    /// Returns the connections opened for requests that closed because the idle timeout passed. Those opened ahead of requests are
    /// taken for closed in this way, unless others were opened in their place.
    pub(super) fn timed_out_idle(&self) -> u64 {
        let ahead = self.stats.pool.opened_ahead.saturating_sub(self.stats.closed_by(CloseCause::Replaced));
        self.stats.closed_by(CloseCause::IdleTimeout).saturating_sub(ahead)
    }

    /// Returns the mean time between two requests, or the longest time if there was none.
    pub(super) fn gap(&self) -> Duration {
        u32::try_from(self.arrivals())
            .ok()
            .and_then(|arrivals| self.span.checked_div(arrivals))
            .unwrap_or(Duration::MAX)
    }
}

/// Returns a part's share of a whole, or 0 if there is no whole.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn littles_law() {
        assert_eq!(concurrency(200.0, 0.1), 20.0);
    }

    /// Figures from published tables of Erlang C, computed here by the sum that defines it.
    fn by_definition(load: f64, servers: usize) -> f64 {
        let mut term = 1.0;
        let mut sum = 0.0;
        for number in 0..servers {
            sum += term;
            term *= load / (number + 1) as f64;
        }
        let waiting = term * servers as f64 / (servers as f64 - load);
        waiting / (sum + waiting)
    }

    #[test]
    fn the_fewest_connections_are_those_of_erlangs_formula() {
        assert!((by_definition(2.0, 3) - 0.4444).abs() < 1e-4, "2 Erlang, 3 servers: 44 % wait");
        for load in [0.01, 0.1, 0.5, 1.0, 2.0, 5.5, 16.0, 64.0, 100.0] {
            let connections = fewest_connections(load);
            assert!(by_definition(load, connections) <= MAY_WAIT, "{load}: {connections} are enough");
            if connections as f64 - 1.0 > load {
                assert!(by_definition(load, connections - 1) > MAY_WAIT, "{load}: fewer than {connections} are not");
            }
        }
        assert_eq!([0.0, 0.001, 1.0, 16.0].map(fewest_connections), [1, 1, 5, 27]);
    }

    #[test]
    fn large_loads_need_a_margin_of_about_the_square_root() {
        for load in [400.0_f64, 2_500.0, 40_000.0] {
            let margin = (fewest_connections(load) as f64 - load) / load.sqrt();
            assert!((1.8..2.6).contains(&margin), "{load}: {margin}");
        }
        assert_eq!(fewest_connections(1e9), MOST, "it ends");
    }

    #[test]
    fn an_observed_maximum_has_a_margin() {
        assert_eq!([0, 1, 16, 100].map(with_margin), [0, 2, 20, 110]);
    }
}
