#![doc = include_str!("../README.md")]

use metrics::{Key, KeyName, Label, Level, Metadata, Unit, with_recorder};
use speeddial::Client;
use speeddial::trace::RequestInfo;
use speeddial_meter::{Attributes, CLIENT_NAME, Instrument, InstrumentKind, Meter, READINGS, Sink, Value};

/// Measures the calls, connections and lookups of one client for the [`metrics`](https://docs.rs/metrics) facade.
///
/// [speeddial-meter](speeddial_meter) has the table of what is measured, and of its names and attributes. Each client needs an observer of
/// its own, because connections of several clients have the same numbers.
///
/// Given to a request ([`RequestBuilder::observer`](speeddial::RequestBuilder::observer)), it measures that call, and neither
/// connections nor lookups: other calls use the same connections, and may open and close them.
///
/// Each value goes to the recorder that is installed when the value is measured.
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

    /// Measures only what has a name for which `is_wanted` returns true. It is asked once about each name in the table;
    /// the figures of the pool and the DNS cache are apart from these.
    ///
    /// ```
    /// # use speeddial_metrics::Metrics;
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
    /// `speeddial.client.name` is the client's [name](speeddial::ClientBuilder::name): clients without one overwrite each other's figures.
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

speeddial_meter::observe_by_meter!(Metrics);

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
