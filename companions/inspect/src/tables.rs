//! Tables of state that is not the recorder's own: that of a client's pool and of its DNS cache, and that of the program.

use std::time::SystemTime;

use speeddial::Client;
use speeddial::origin::Origin;
use speeddial::pool::{AddressState, AddressStats};
use speeddial::trace::{CloseCause, Latency};

use crate::snapshot::Snapshot;
use crate::text::{cut, span};

/// A table of texts below the calls of a [`Snapshot`](crate::Snapshot), for state of the program.
///
/// ```
/// use speeddial_inspect::{Recorder, StateTable};
///
/// let mut snapshot = Recorder::new().snapshot();
/// snapshot.add_table(StateTable::new("Queues", ["name", "length"]).row(["mails", "12"]));
/// assert!(snapshot.to_html().contains("mails"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateTable {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// The number of rows beyond those that are kept.
    pub(crate) left_out: usize,
}

/// The most rows of a table.
const MAX_ROWS: usize = 1_000;
/// The most characters of a text in a table.
const MAX_TEXT: usize = 256;

impl StateTable {
    /// Creates a table without rows.
    pub fn new<const N: usize>(title: impl Into<String>, columns: [&str; N]) -> Self {
        let columns = columns.map(str::to_owned).into();
        Self { title: title.into(), columns, rows: Vec::new(), left_out: 0 }
    }

    /// Adds a row. Texts are cut to 256 characters, and rows beyond 1,000 are counted only.
    pub fn row<T: Into<String>>(mut self, texts: impl IntoIterator<Item = T>) -> Self {
        if self.rows.len() < MAX_ROWS {
            let texts = texts.into_iter().take(self.columns.len());
            self.rows.push(texts.map(|text| cut(text.into(), MAX_TEXT)).collect());
        } else {
            self.left_out += 1;
        }
        self
    }

    /// Says whose state it is.
    fn of(mut self, name: &str) -> Self {
        self.title = format!("{} of {name}", self.title);
        self
    }

    /// Returns the table's title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the rows, each with a text for each column.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
}

impl Snapshot {
    /// Adds the state of a client's pool, of its hosts and of its DNS cache as [tables](Snapshot::tables). The recorder should be
    /// an observer of this client. Those of several clients are told apart by their [names](speeddial::ClientBuilder::name).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let recorder = speeddial_inspect::Recorder::new();
    /// let client = speeddial::Client::builder().observer(recorder.clone()).build()?;
    /// let snapshot = recorder.snapshot().with_client(&client);
    /// let titles: Vec<_> = snapshot.tables.iter().map(|table| table.title()).collect();
    /// assert_eq!(titles, ["Connection pool", "Hosts", "DNS cache", "DNS answers"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_client(mut self, client: &Client) -> Self {
        let tables = [pool_table(client), hosts_table(client), dns_table(client), answers_table(client)];
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

fn pool_table(client: &Client) -> StateTable {
    let stats = client.pool_stats();
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

fn hosts_table(client: &Client) -> StateTable {
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
    let mut hosts = client.host_stats();
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

fn dns_table(client: &Client) -> StateTable {
    let stats = client.dns_stats();
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

fn answers_table(client: &Client) -> StateTable {
    let snapshot = client.dns_answers();
    let now = SystemTime::now();
    let table = StateTable::new("DNS answers", ["Name", "Valid for", "Addresses"]);
    // The most recently used name comes last in a snapshot.
    snapshot.answers().rev().fold(table, |table, (name, addresses, expires)| {
        let addresses: Vec<_> = addresses.iter().take(16).map(ToString::to_string).collect();
        table.row([name.to_owned(), time_left(expires, now), addresses.join(", ")])
    })
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
                _ => "–",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_texts_are_bounded() {
        let table = StateTable::new("Many", ["number", "text"]);
        let table = (0..1_500).fold(table, |table, number| table.row([number.to_string(), "x".repeat(1_000)]));
        assert_eq!((table.rows().len(), table.left_out), (MAX_ROWS, 500));
        assert_eq!(table.rows()[0][1].chars().count(), MAX_TEXT);
    }
}
