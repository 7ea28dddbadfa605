//! The state of a client beside the calls of its recorder: its pool and its DNS cache, as tables.

use std::time::SystemTime;

use super::{Snapshot, StateTable};
use crate::client::Client;
use crate::clock::wall;
use crate::latency::Latency;
use crate::origin::Origin;
use crate::pool::{AddressState, AddressStats};
use crate::trace::{CloseCause, span};

impl Snapshot {
    /// Adds the state of a client's pool, of its hosts and of its DNS cache as [tables](Snapshot::tables). The recorder should be
    /// an observer of this client. Those of several clients are told apart by their [names](crate::ClientBuilder::name).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let recorder = speeddial::inspect::Recorder::new();
    /// let client = speeddial::Client::builder().observer(recorder.clone()).build()?;
    /// let snapshot = recorder.snapshot().with_client(&client);
    /// let titles: Vec<_> = snapshot.tables.iter().map(|table| table.title()).collect();
    /// assert_eq!(titles, ["Connection pool", "Hosts", "DNS cache", "DNS answers"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_client(mut self, client: &Client) -> Self {
        let tables = [client.pool_table(), client.hosts_table(), client.dns_table(), client.answers_table()];
        let addresses = Some(client.address_stats()).filter(|addresses| !addresses.is_empty()).map(addresses_table);
        for table in tables.into_iter().chain(addresses) {
            self.add_table(match client.name() {
                Some(name) => table.of(name),
                None => table,
            });
        }
        self
    }
}

impl Client {
    fn pool_table(&self) -> StateTable {
        let stats = self.pool_stats();
        let mut rows = vec![
            ("Connections in use", stats.in_use.to_string()),
            ("Idle connections", stats.idle.to_string()),
            ("Connections being opened", stats.dialling.to_string()),
            ("Connections being closed", stats.closing.to_string()),
            ("Requests with a connection", stats.leased.to_string()),
            ("Requests in the queue", stats.waiting.to_string()),
            ("Connections opened", stats.opened.to_string()),
            ("Requests on reused connections", stats.reused.to_string()),
            ("Requests that were queued", stats.queue.entered.to_string()),
            ("Requests that the full queue refused", stats.queue.refused.to_string()),
            ("Requests that timed out in the queue", stats.queue.timed_out.to_string()),
            ("Time in the queue, 99 %", quantile(&stats.queue_time)),
            ("Time on a connection, 99 %", quantile(&stats.hold_time)),
        ];
        let closed = CloseCause::ALL.into_iter().map(|cause| (cause, stats.closed_by(cause)));
        let closed: Vec<_> = closed.filter(|(_, count)| *count > 0).collect();
        let names: Vec<_> = closed.iter().map(|(cause, _)| format!("Connections closed: {cause}")).collect();
        rows.extend(names.iter().zip(closed).map(|(name, (_, count))| (name.as_str(), count.to_string())));
        rows.into_iter().fold(StateTable::new("Connection pool", ["Figure", "Value"]), |table, (name, value)| {
            table.row([name.to_owned(), value])
        })
    }

    fn hosts_table(&self) -> StateTable {
        let columns = [
            "Host",
            "In use",
            "Idle",
            "Opening",
            "Waiting",
            "Opened",
            "Closed",
            "Reused",
            "Queue time, 99 %",
            "Hold time, 99 %",
        ];
        let mut hosts = self.host_stats();
        hosts.sort_by_cached_key(|(origin, _)| origin.to_string());
        hosts.into_iter().fold(StateTable::new("Hosts", columns), |table, (origin, stats)| {
            table.row([
                origin.to_string(),
                stats.in_use.to_string(),
                stats.idle.to_string(),
                stats.dialling.to_string(),
                stats.waiting.to_string(),
                stats.opened.to_string(),
                stats.closed.to_string(),
                stats.reused.to_string(),
                quantile(&stats.queue_time),
                quantile(&stats.hold_time),
            ])
        })
    }

    fn dns_table(&self) -> StateTable {
        let stats = self.dns_stats();
        let rows = [
            ("Names", stats.names.to_string()),
            ("Answers from the cache", stats.hits.to_string()),
            ("Negative answers from the cache", stats.negative_hits.to_string()),
            ("Stale answers", stats.stale_hits.to_string()),
            ("Lookups that waited for another's query", stats.coalesced.to_string()),
            ("Lookups that asked", stats.misses.to_string()),
            ("Refreshes", stats.refreshes.to_string()),
            ("Queries that failed", stats.failures.to_string()),
            ("Names evicted", stats.evictions.to_string()),
            ("Time of a query, 99 %", quantile(&stats.upstream_latency)),
        ];
        rows.into_iter().fold(StateTable::new("DNS cache", ["Figure", "Value"]), |table, (name, value)| {
            table.row([name.to_owned(), value])
        })
    }

    fn answers_table(&self) -> StateTable {
        let snapshot = self.dns_answers();
        let now = wall();
        let table = StateTable::new("DNS answers", ["Name", "Valid for", "Addresses"]);
        // The most recently used name comes last in a snapshot.
        snapshot.answers().rev().fold(table, |table, (name, addresses, expires)| {
            let addresses: Vec<_> = addresses.iter().take(16).map(ToString::to_string).collect();
            table.row([name.to_owned(), time_left(expires, now), addresses.join(", ")])
        })
    }
}

fn addresses_table(hosts: Vec<(Origin, Vec<AddressStats>)>) -> StateTable {
    let columns = ["Host", "Address", "State", "Connections", "In flight", "Latency", "Requests", "Failed"];
    let mut rows = Vec::new();
    for (origin, addresses) in hosts {
        for stats in addresses {
            let state = match stats.state {
                AddressState::InUse => "in use",
                AddressState::Ejected => "ejected",
                AddressState::Probed => "probed",
                AddressState::Left => "left DNS",
            };
            rows.push([
                origin.to_string(),
                stats.address.to_string(),
                state.to_owned(),
                stats.connections.to_string(),
                stats.in_flight.to_string(),
                stats.latency.map_or("–".to_owned(), span),
                stats.requests.to_string(),
                stats.failed.to_string(),
            ]);
        }
    }
    rows.into_iter().fold(StateTable::new("Addresses", columns), StateTable::row)
}

fn quantile(latency: &Latency) -> String {
    latency.quantile(0.99).map_or("–".to_owned(), |time| format!("≤ {}", span(time)))
}

fn time_left(expires: SystemTime, now: SystemTime) -> String {
    match expires.duration_since(now) {
        Ok(left) => format!("{} s", left.as_secs()),
        Err(past) => format!("0 s, expired {} s ago", past.duration().as_secs()),
    }
}
