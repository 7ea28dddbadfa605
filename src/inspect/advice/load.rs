//! The load of a host in figures: what the advice is computed from. A core.

use std::time::Duration;

use super::staffing;
use crate::pool::{HostFacts, Limits, PoolStats};
use crate::trace::{CloseCause, Limit};

/// The load of a host over a span of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// The totals of the span.
    pub(super) stats: PoolStats,
    pub(super) limits: Limits,
    /// The streams of a connection, if the host speaks HTTP/2.
    pub(super) streams: Option<usize>,
    pub(super) keep_alive: Option<Duration>,
    /// The time for which requests held connections in the span.
    busy_time: Duration,
    span: Duration,
}

impl Load {
    pub(super) fn new(facts: &HostFacts, span: Duration) -> Self {
        let HostFacts { stats, busy_time, limits, streams, keep_alive } = *facts;
        Self { stats, limits, streams, keep_alive, busy_time, span }
    }

    /// Returns the requests that asked for a connection, those that did not get one included.
    pub(super) fn arrivals(&self) -> u64 {
        let queue = &self.stats.queue;
        let at_once = self.stats.queue_time.count().saturating_sub(queue.served);
        at_once + queue.entered + queue.refused
    }

    /// Returns the requests per second.
    pub(super) fn rate(&self) -> f64 {
        if self.span.is_zero() { 0.0 } else { self.arrivals() as f64 / self.span.as_secs_f64() }
    }

    /// Returns the mean time for which a request held its connection.
    pub(super) fn hold(&self) -> Duration {
        self.stats.hold_time.mean().unwrap_or_default()
    }

    /// Returns the mean time for which a request waited for its connection.
    pub(super) fn wait(&self) -> Duration {
        self.stats.queue_time.mean().unwrap_or_default()
    }

    /// Returns the mean time of the requests that did not get a connection at once.
    pub(super) fn wait_of_queued(&self) -> Duration {
        let queued = u32::try_from(self.stats.queue.served.max(1)).unwrap_or(u32::MAX);
        self.stats.queue_time.sum() / queued
    }

    /// Returns the mean number of requests that have a connection: the time for which they held one in the span, by the span.
    pub(super) fn concurrency(&self) -> f64 {
        if self.span.is_zero() { 0.0 } else { self.busy_time.as_secs_f64() / self.span.as_secs_f64() }
    }

    /// Returns the mean number of requests that would have a connection or wait for one if none was turned away (Little's law).
    pub(super) fn demand(&self) -> f64 {
        let accepted = self.arrivals().saturating_sub(self.stats.queue.refused);
        if accepted == 0 {
            return self.concurrency();
        }
        // Of a wait that began before the span, the part in it is at most the span.
        let waiting = staffing::concurrency(self.rate(), self.wait().min(self.span).as_secs_f64());
        self.concurrency() * self.arrivals() as f64 / accepted as f64 + waiting
    }

    /// Returns the share of the requests that waited because of a limit on the host's connections, or were refused.
    pub(super) fn limited_share(&self) -> f64 {
        let limited = self.queued_by(&[Limit::ConnectionsPerHost, Limit::Streams]);
        // A full queue refuses requests, whatever those in it wait for.
        let all = self.queued_by(&Limit::ALL);
        let refused = self.stats.queue.refused as f64 * if all == 0 { 1.0 } else { share(limited, all) };
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
        self.stats.opened.saturating_sub(self.stats.opened_ahead)
    }

    /// Returns the share of requests for which a connection was opened.
    pub(super) fn opened_share(&self) -> f64 {
        share(self.opened(), self.arrivals())
    }

    /// Returns the connections opened for requests that closed because the idle timeout passed. Those opened ahead of requests are
    /// taken for closed in this way, unless others were opened in their place.
    pub(super) fn timed_out_idle(&self) -> u64 {
        let ahead = self.stats.opened_ahead.saturating_sub(self.stats.closed_by(CloseCause::Replaced));
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
