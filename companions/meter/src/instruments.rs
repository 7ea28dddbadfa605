//! The instruments of the measurements, by the names and units of
//! [OpenTelemetry's conventions](https://opentelemetry.io/docs/specs/semconv/http/http-metrics/) for HTTP clients, version
//! 1.42.0.

/// A measurement. Name, unit, description and kind are those of the conventions, where they define it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each has a description")]
pub enum Instrument {
    RequestDuration,
    TimeInQueue,
    RequestBodySize,
    ResponseBodySize,
    ActiveRequests,
    OpenConnections,
    ConnectionDuration,
    DnsLookupDuration,
    PhaseDuration,
    Retries,
    CallDuration,
    Redirects,
    Hedges,
    OverBudget,
    RuntimeDelay,
    DialFailures,
    ClosedConnections,
}

/// The way in which an instrument aggregates its values.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "a sink has to make an instrument of each kind")]
pub enum InstrumentKind {
    /// A histogram with these bucket boundaries.
    Histogram(&'static [f64]),
    /// A number that goes up and down.
    UpDownCounter,
    /// A number that never falls.
    Counter,
}

/// Bucket boundaries for requests and lookups in seconds, as the conventions recommend.
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Bucket boundaries for connections in seconds, as in .NET.
const LONG_SECONDS: &[f64] = &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Bucket boundaries for bodies in bytes.
const BYTES: &[f64] = &[0.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

impl Instrument {
    /// All instruments.
    pub const ALL: [Self; 17] = [
        Self::RequestDuration,
        Self::TimeInQueue,
        Self::RequestBodySize,
        Self::ResponseBodySize,
        Self::ActiveRequests,
        Self::OpenConnections,
        Self::ConnectionDuration,
        Self::DnsLookupDuration,
        Self::PhaseDuration,
        Self::Retries,
        Self::CallDuration,
        Self::Redirects,
        Self::Hedges,
        Self::OverBudget,
        Self::RuntimeDelay,
        Self::DialFailures,
        Self::ClosedConnections,
    ];

    /// Returns name, unit and description.
    pub fn description(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::RequestDuration => ("http.client.request.duration", "s", "Duration of HTTP client requests."),
            Self::TimeInQueue => {
                ("http.client.request.time_in_queue", "s", "The time requests waited for a connection.")
            }
            Self::RequestBodySize => ("http.client.request.body.size", "By", "Size of HTTP client request bodies."),
            Self::ResponseBodySize => ("http.client.response.body.size", "By", "Size of HTTP client response bodies."),
            Self::ActiveRequests => ("http.client.active_requests", "{request}", "Number of active HTTP requests."),
            Self::OpenConnections => (
                "http.client.open_connections",
                "{connection}",
                "Number of outbound HTTP connections that are currently active or idle.",
            ),
            Self::ConnectionDuration => {
                ("http.client.connection.duration", "s", "The duration of established outbound HTTP connections.")
            }
            Self::DnsLookupDuration => ("dns.lookup.duration", "s", "The time taken to perform a DNS lookup."),
            Self::PhaseDuration => {
                ("speeddial.request.phase.duration", "s", "The time requests spent in each of their phases.")
            }
            Self::CallDuration => (
                "speeddial.call.duration",
                "s",
                "Duration of calls, with all their requests and the waits between them.",
            ),
            Self::Retries => ("speeddial.request.retries", "{retry}", "Requests that were sent again."),
            Self::Redirects => ("speeddial.request.redirects", "{redirect}", "Redirects that were followed."),
            Self::Hedges => (
                "speeddial.request.hedges",
                "{request}",
                "Requests that were sent once more before they were answered.",
            ),
            Self::OverBudget => (
                "speeddial.request.over_budget",
                "{request}",
                "Requests that were not sent once more because the origin's budget was used up.",
            ),
            Self::RuntimeDelay => (
                "speeddial.runtime.delay",
                "s",
                "The time for which responses were here, or timers due, before a busy runtime came to them.",
            ),
            Self::DialFailures => {
                ("speeddial.connection.failures", "{connection}", "Connections that could not be opened.")
            }
            Self::ClosedConnections => {
                ("speeddial.connection.closed", "{connection}", "Connections that were closed, by cause.")
            }
        }
    }

    /// Returns the way in which it aggregates its values.
    pub fn kind(self) -> InstrumentKind {
        match self {
            Self::RequestDuration
            | Self::TimeInQueue
            | Self::DnsLookupDuration
            | Self::PhaseDuration
            | Self::RuntimeDelay
            | Self::CallDuration => InstrumentKind::Histogram(SECONDS),
            Self::ConnectionDuration => InstrumentKind::Histogram(LONG_SECONDS),
            Self::RequestBodySize | Self::ResponseBodySize => InstrumentKind::Histogram(BYTES),
            Self::ActiveRequests | Self::OpenConnections => InstrumentKind::UpDownCounter,
            Self::Retries
            | Self::Redirects
            | Self::Hedges
            | Self::OverBudget
            | Self::DialFailures
            | Self::ClosedConnections => InstrumentKind::Counter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::READINGS;

    #[test]
    fn each_name_is_used_once_and_the_conventions_names_are_there() {
        let mut names: Vec<_> = Instrument::ALL.iter().map(|instrument| instrument.description().0).collect();
        names.extend(READINGS.iter().map(|reading| reading.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let listed =
            |name: &str| TABLE.lines().any(|line| line.starts_with("| `") && line.contains(&format!("`{name}`")));
        let missing =
            Instrument::ALL.map(|instrument| instrument.description().0).into_iter().filter(|name| !listed(name));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new(), "names that the documentation does not list");
        let places = Instrument::ALL.map(|instrument| instrument as usize);
        assert!(places.into_iter().eq(0..places.len()), "each instrument stands at its number");
        for name in ["http.client.request.duration", "http.client.open_connections", "dns.lookup.duration"] {
            assert!(names.contains(&name));
        }
    }

    const TABLE: &str = include_str!("../README.md");
}
