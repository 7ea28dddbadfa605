//! Figures that the pool and the DNS cache count themselves, as measurements read them.

use speeddial::Client;

/// A figure that a client's pool or DNS cache counts itself.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reading {
    /// The name of the measurement.
    pub name: &'static str,
    /// What it is, for the metrics library.
    pub description: &'static str,
    /// True if the figure never falls, so that it is a counter.
    pub grows: bool,
    /// Reads the figure.
    pub read: fn(&Client) -> u64,
}

/// The attribute with the client's name.
pub const CLIENT_NAME: &str = "speeddial.client.name";

/// All figures of the pool and the DNS cache.
pub const READINGS: [Reading; 22] = [
    reading("speeddial.pool.idle", "Connections without a request.", false, |client| client.pool_stats().idle as u64),
    reading("speeddial.pool.in_use", "Connections with requests.", false, |client| client.pool_stats().in_use as u64),
    reading("speeddial.pool.dialling", "Connections being opened.", false, |client| {
        client.pool_stats().dialling as u64
    }),
    reading("speeddial.pool.leased", "Requests that have a connection.", false, |client| {
        client.pool_stats().leased as u64
    }),
    reading("speeddial.pool.waiting", "Requests that wait for a connection.", false, |client| {
        client.pool_stats().waiting as u64
    }),
    reading("speeddial.pool.queue.entered", "Requests that had to wait for a connection.", true, |client| {
        client.pool_stats().queue.entered
    }),
    reading("speeddial.pool.queue.timed_out", "Requests that timed out in the queue.", true, |client| {
        client.pool_stats().queue.timed_out
    }),
    reading("speeddial.pool.queue.cancelled", "Requests that were cancelled in the queue.", true, |client| {
        client.pool_stats().queue.cancelled
    }),
    reading("speeddial.pool.queue.refused", "Requests refused because the queue was full.", true, |client| {
        client.pool_stats().queue.refused
    }),
    reading("speeddial.pool.opened", "Connections opened.", true, |client| client.pool_stats().opened),
    reading("speeddial.pool.closed", "Connections closed.", true, |client| client.pool_stats().closed),
    reading("speeddial.pool.reused", "Requests on reused connections.", true, |client| client.pool_stats().reused),
    reading("speeddial.dns.cache.names", "Names in the cache.", false, |client| client.dns_stats().names as u64),
    reading("speeddial.dns.cache.hits", "Lookups answered from the cache.", true, |client| client.dns_stats().hits),
    reading("speeddial.dns.cache.negative_hits", "Failures answered from the cache.", true, |client| {
        client.dns_stats().negative_hits
    }),
    reading("speeddial.dns.cache.stale_hits", "Lookups answered with a stale answer.", true, |client| {
        client.dns_stats().stale_hits
    }),
    reading("speeddial.dns.cache.coalesced", "Lookups that shared another lookup's query.", true, |client| {
        client.dns_stats().coalesced
    }),
    reading("speeddial.dns.cache.misses", "Lookups that started a query.", true, |client| client.dns_stats().misses),
    reading("speeddial.dns.cache.refreshes", "Queries that refreshed an answer before it expired.", true, |client| {
        client.dns_stats().refreshes
    }),
    reading("speeddial.dns.cache.failures", "Queries that failed.", true, |client| client.dns_stats().failures),
    reading("speeddial.dns.cache.evictions", "Names evicted to make room for others.", true, |client| {
        client.dns_stats().evictions
    }),
    reading("speeddial.pool.hosts", "Hosts with connections or waiting requests.", false, |client| {
        client.host_stats().len() as u64
    }),
];

const fn reading(name: &'static str, description: &'static str, grows: bool, read: fn(&Client) -> u64) -> Reading {
    Reading { name, description, grows, read }
}
