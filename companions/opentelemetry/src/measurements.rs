//! Measurements for OpenTelemetry.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Counter, Histogram, Meter, UpDownCounter};
use speeddial::trace::RequestInfo;
use speeddial::{Client, WeakClient};
use speeddial_meter::{self as meter, Attributes, CLIENT_NAME, Instrument, InstrumentKind, READINGS, Sink, Value};

use super::lock;

/// Measures the calls, connections and lookups of one client with an OpenTelemetry [`Meter`].
///
/// [speeddial-meter](speeddial_meter) has the table of what is measured, and of its names and attributes. Each client needs an observer of
/// its own, because connections of several clients have the same numbers. [`watch`](Self::watch) adds the figures of the pool and the DNS
/// cache.
///
/// Given to a request ([`RequestBuilder::observer`](speeddial::RequestBuilder::observer)), it measures that call, and neither
/// connections nor lookups: other calls use the same connections, and may open and close them.
///
/// ```
/// use speeddial_opentelemetry::Metrics;
///
/// let meter = opentelemetry::global::meter("my-service");
/// let client = speeddial::Client::builder().observer(Metrics::new(&meter)).build()?;
/// Metrics::watch(&meter, &client);
/// # Ok::<(), speeddial::Error>(())
/// ```
pub struct Metrics(meter::Meter<Instruments>);

/// The instruments of a meter as a sink.
#[derive(Default)]
struct Instruments {
    histograms: HashMap<Instrument, Histogram<f64>>,
    up_down_counters: HashMap<Instrument, UpDownCounter<i64>>,
    counters: HashMap<Instrument, Counter<u64>>,
}

impl Metrics {
    /// Creates the observer, with instruments of `meter`.
    pub fn new(meter: &Meter) -> Self {
        let mut instruments = Instruments::default();
        for instrument in Instrument::ALL {
            let (name, unit, description) = instrument.description();
            match instrument.kind() {
                InstrumentKind::Histogram(boundaries) => {
                    let histogram = meter.f64_histogram(name).with_unit(unit).with_description(description);
                    instruments.histograms.insert(instrument, histogram.with_boundaries(boundaries.to_vec()).build());
                }
                InstrumentKind::UpDownCounter => {
                    let counter = meter.i64_up_down_counter(name).with_unit(unit).with_description(description);
                    instruments.up_down_counters.insert(instrument, counter.build());
                }
                InstrumentKind::Counter => {
                    let counter = meter.u64_counter(name).with_unit(unit).with_description(description);
                    instruments.counters.insert(instrument, counter.build());
                }
            }
        }
        Self(meter::Meter::new(instruments))
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
    /// # use speeddial_opentelemetry::Metrics;
    /// let meter = opentelemetry::global::meter("my-service");
    /// let conventions = Metrics::new(&meter).only(|name| name.starts_with("http.client."));
    /// ```
    pub fn only(self, is_wanted: impl Fn(&str) -> bool) -> Self {
        Self(self.0.only(is_wanted))
    }

    /// Adds attributes to the measurements of each request: its duration, its time in the queue, and the sizes of its bodies.
    ///
    /// The function gets the request when it is over. Keep the number of different values small.
    pub fn attributes(self, of: impl Fn(&RequestInfo) -> Vec<(&'static str, String)> + Send + Sync + 'static) -> Self {
        Self(self.0.attributes(of))
    }

    /// Adds the figures of the client's pool and DNS cache to `meter`: `speeddial.pool.*` and `speeddial.dns.cache.*`. Returns the set
    /// of clients that the meter's figures are of, to which more can be [added](WatchedClients::add).
    ///
    /// The figures are read each time the meter is collected. The meter does not keep the client alive.
    pub fn watch(meter: &Meter, client: &Client) -> WatchedClients {
        let clients = WatchedClients::default();
        clients.add(client);
        // The instruments live as long as the meter's provider.
        for reading in &READINGS {
            let (clients, read) = (clients.clone(), reading.read);
            let observe = move |reader: &dyn AsyncInstrument<u64>| {
                for (name, figure) in clients.figures(read) {
                    let name = name.map(|name| KeyValue::new(CLIENT_NAME, name));
                    reader.observe(figure, name.as_slice());
                }
            };
            if reading.grows {
                let counter = meter.u64_observable_counter(reading.name).with_description(reading.description);
                let _ = counter.with_callback(observe).build();
            } else {
                let gauge = meter.u64_observable_gauge(reading.name).with_description(reading.description);
                let _ = gauge.with_callback(observe).build();
            }
        }
        clients
    }
}

/// The clients whose figures a meter has: [`Metrics::watch`].
///
/// A client's figures have its [name](speeddial::ClientBuilder::name) as the attribute `speeddial.client.name`. The figures of clients with
/// one name, or with none, are added up. A client that is dropped leaves the set, so that a program may make clients and drop them as long
/// as it runs: it watches the first one and adds the others to the same set. Clones are the same set.
#[derive(Clone, Default)]
pub struct WatchedClients(Arc<Mutex<Vec<WeakClient>>>);

impl WatchedClients {
    /// Adds a client to the set, which does not keep it alive.
    pub fn add(&self, client: &Client) {
        // A client that ends here does so after the lock.
        let mut living = Vec::new();
        let mut clients = lock(&self.0);
        clients.retain(|client| client.upgrade().map(|client| living.push(client)).is_some());
        clients.push(client.downgrade());
    }

    /// Returns a figure of the clients by their names.
    fn figures(&self, read: fn(&Client) -> u64) -> BTreeMap<Option<String>, u64> {
        // A client that ends here does so after the lock.
        let clients: Vec<_> = lock(&self.0).iter().filter_map(WeakClient::upgrade).collect();
        let mut figures = BTreeMap::new();
        for client in &clients {
            *figures.entry(client.name().map(str::to_owned)).or_default() += read(client);
        }
        figures
    }
}

impl std::fmt::Debug for WatchedClients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchedClients").field("clients", &lock(&self.0).len()).finish()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

speeddial_meter::observe_by_meter!(Metrics);

fn key_values(attributes: Attributes) -> Vec<KeyValue> {
    let key_value = |(name, value)| match value {
        Value::Text(text) => KeyValue::new(name, text),
        Value::Number(number) => KeyValue::new(name, number),
    };
    attributes.into_iter().map(key_value).collect()
}

impl Sink for Instruments {
    fn record(&self, instrument: Instrument, value: f64, attributes: Attributes) {
        if let Some(histogram) = self.histograms.get(&instrument) {
            histogram.record(value, &key_values(attributes));
        }
    }

    fn add(&self, instrument: Instrument, by: i64, attributes: Attributes) {
        let attributes = key_values(attributes);
        if let Some(counter) = self.up_down_counters.get(&instrument) {
            counter.add(by, &attributes);
        }
        if let Some(counter) = self.counters.get(&instrument) {
            counter.add(by.unsigned_abs(), &attributes);
        }
    }
}
