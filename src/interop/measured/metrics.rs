//! Measurements for the `metrics` facade.

use metrics::{Key, KeyName, Label, Level, Metadata, Unit, with_recorder};

use super::instruments::{Instrument, InstrumentKind};
use super::meter::{Attributes, Meter, Sink, Value, observes_by_meter};
use super::readings::{CLIENT_NAME, READINGS};
use crate::client::Client;
use crate::trace::RequestInfo;

/// Measures the calls, connections and lookups of one client for the [`metrics`](https://docs.rs/metrics) facade.
///
/// Names, units and attributes are those of the
/// [OpenTelemetry conventions](https://opentelemetry.io/docs/specs/semconv/http/http-metrics/) for HTTP clients, version 1.42.0. Each client
/// needs an observer of its own, because connections of several clients have the same numbers.
///
/// | name | measured |
/// |---|---|
/// | `http.client.request.duration` (s) | each request of a call, with its own host: after a redirect the other host, and each resend, retry and hedge apart, without the backoff between them |
/// | `http.client.request.time_in_queue` (s) | the wait of each request for a connection |
/// | `http.client.request.body.size`, `http.client.response.body.size` (By) | bodies of requests that were answered, as they went over the connection |
/// | `http.client.active_requests` | requests that have begun and not ended |
/// | `http.client.open_connections` | connections by state, `active` or `idle` |
/// | `http.client.connection.duration` (s) | the time for which a connection was open |
/// | `dns.lookup.duration` (s) | each lookup, also one that the cache answered |
/// | `speeddial.call.duration` (s) | each call with all its requests and the waits between them, with its first host |
/// | `speeddial.request.phase.duration` (s) | the phases of each request; `backoff` for each call |
/// | `speeddial.request.retries`, `speeddial.request.redirects`, `speeddial.request.hedges` | requests that were followed by another one, by the reason |
/// | `speeddial.runtime.delay` | the time for which responses were here, or timers due, before a busy runtime came to them |
/// | `speeddial.request.over_budget` | requests that were not sent once more because the origin's budget was used up |
/// | `speeddial.connection.failures`, `speeddial.connection.closed` | dials that failed; connections that were closed, by cause |
///
/// [`report`](Self::report) adds the figures of the pool and the DNS cache: `speeddial.pool.*` and `speeddial.dns.cache.*`.
///
/// The first 200 hosts are told apart ([`max_hosts`](Self::max_hosts)); the others have the `server.address` `_OTHER` and no port. So have
/// names that are looked up, and addresses of peers. A [`UrlTemplate`](crate::trace::UrlTemplate) among a request's extensions becomes
/// `url.template`, and [`attributes`](Self::attributes) adds your own.
///
/// Requests end when the call's future is dropped, too. That is not an error by the conventions: they have no `error.type` then, but
/// `speeddial.cancelled`, or `speeddial.unread` if the response was dropped before the end of its body. One that was
/// answered with an error and retried has an `error.type`, though its call may have succeeded: `speeddial.call.duration` has the
/// results of calls. A method that the conventions do not know is `_OTHER`; the environment variable
/// `OTEL_INSTRUMENTATION_HTTP_KNOWN_METHODS` replaces their list, separated by commas.
///
/// Given to a request ([`RequestBuilder::observer`](crate::RequestBuilder::observer)), it measures that call, and neither
/// connections nor lookups: `http.client.open_connections`, `http.client.connection.duration`, `dns.lookup.duration`,
/// `speeddial.connection.failures` and `speeddial.connection.closed` need an observer of the client. Other calls use the same
/// connections, and may open and close them.
///
/// Each value goes to the recorder that is installed when the value is measured.
///
/// ```
/// let client = speeddial::Client::builder().observer(speeddial::interop::Metrics::new()).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
pub struct Metrics(Meter<Facade>);

/// The facade as a sink.
struct Facade;

const METADATA: Metadata<'static> = Metadata::new("speeddial", Level::INFO, Some(module_path!()));

impl Metrics {
    /// Creates the observer, and describes its instruments to the recorder that is installed now.
    pub fn new() -> Self {
        for instrument in Instrument::ALL {
            let (name, unit, description) = instrument.description();
            let name = KeyName::from_const_str(name);
            let unit = Unit::from_string(unit_name(unit));
            with_recorder(|recorder| match instrument.kind() {
                InstrumentKind::Histogram(_) => recorder.describe_histogram(name, unit, description.into()),
                InstrumentKind::UpDownCounter => recorder.describe_gauge(name, unit, description.into()),
                InstrumentKind::Counter => recorder.describe_counter(name, unit, description.into()),
            });
        }
        for reading in &READINGS {
            let name = KeyName::from_const_str(reading.name);
            let unit = Some(Unit::Count);
            with_recorder(|recorder| match reading.grows {
                true => recorder.describe_counter(name, unit, reading.description.into()),
                false => recorder.describe_gauge(name, unit, reading.description.into()),
            });
        }
        Self(Meter::new(Facade))
    }

    /// Sets the highest number of hosts that are told apart. 200 by default.
    ///
    /// The first ones keep their names for as long as the observer lives. The same limit applies to the names that are looked up,
    /// and to the addresses of peers.
    pub fn max_hosts(self, limit: usize) -> Self {
        Self(self.0.max_hosts(limit))
    }

    /// Measures only what has a name for which `is_wanted` returns true. It is asked once about each name in the table above;
    /// the figures of the pool and the DNS cache are apart from these.
    ///
    /// ```
    /// # use speeddial::interop::Metrics;
    /// let no_phases = Metrics::new().only(|name| name != "speeddial.request.phase.duration");
    /// ```
    pub fn only(self, is_wanted: impl Fn(&str) -> bool) -> Self {
        Self(self.0.only(is_wanted))
    }

    /// Returns the names of the histograms, each with its bucket boundaries, for exporters that make buckets of values only if they
    /// are told to, such as metrics-exporter-prometheus (`set_buckets_for_metric`). They are those of
    /// OpenTelemetry's conventions where these name some.
    pub fn buckets() -> impl Iterator<Item = (&'static str, &'static [f64])> {
        Instrument::ALL.into_iter().filter_map(|instrument| match instrument.kind() {
            InstrumentKind::Histogram(boundaries) => Some((instrument.description().0, boundaries)),
            _ => None,
        })
    }

    /// Adds attributes to the measurements of each request: its duration, its time in the queue, and the sizes of its bodies.
    ///
    /// The function gets the request when it is over. Keep the number of different values small.
    pub fn attributes(self, of: impl Fn(&RequestInfo) -> Vec<(&'static str, String)> + Send + Sync + 'static) -> Self {
        Self(self.0.attributes(of))
    }

    /// Reports the figures of the client's pool and DNS cache: `speeddial.pool.*` and `speeddial.dns.cache.*`. The label
    /// `speeddial.client.name` is the client's [name](crate::ClientBuilder::name): clients without one overwrite each other's figures.
    ///
    /// Call it regularly, best right before the metrics are read.
    pub fn report(client: &Client) {
        let labels: Vec<_> = client.name().map(|name| Label::new(CLIENT_NAME, name.to_owned())).into_iter().collect();
        for reading in &READINGS {
            let key = Key::from_parts(reading.name, labels.clone());
            let value = (reading.read)(client);
            with_recorder(|recorder| match reading.grows {
                true => recorder.register_counter(&key, &METADATA).absolute(value),
                false => recorder.register_gauge(&key, &METADATA).set(value as f64),
            });
        }
    }
}

/// Returns the facade's name of a unit. It has none for requests and connections.
fn unit_name(unit: &str) -> &str {
    match unit {
        "s" => "seconds",
        "By" => "bytes",
        _ => "count",
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

observes_by_meter!(Metrics);

fn key(instrument: Instrument, attributes: Attributes) -> Key {
    let label = |(name, value)| match value {
        Value::Text(text) => Label::new(name, text),
        Value::Number(number) => Label::new(name, number.to_string()),
    };
    Key::from_parts(instrument.description().0, attributes.into_iter().map(label).collect::<Vec<_>>())
}

impl Sink for Facade {
    fn record(&self, instrument: Instrument, value: f64, attributes: Attributes) {
        let key = key(instrument, attributes);
        with_recorder(|recorder| recorder.register_histogram(&key, &METADATA).record(value));
    }

    fn add(&self, instrument: Instrument, by: i64, attributes: Attributes) {
        let key = key(instrument, attributes);
        with_recorder(|recorder| match instrument.kind() {
            InstrumentKind::Counter => recorder.register_counter(&key, &METADATA).increment(by.unsigned_abs()),
            _ => recorder.register_gauge(&key, &METADATA).increment(by as f64),
        });
    }
}
