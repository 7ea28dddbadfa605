//! Measurements for OpenTelemetry.

use std::collections::HashMap;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

use super::instruments::{Instrument, InstrumentKind};
use super::meter::{self, Attributes, Sink, Value};
use super::readings::READINGS;
use crate::client::Client;
use crate::trace::{EndedCall, Observer, Record, Wants};

/// Measures the calls, connections and lookups of one client with an OpenTelemetry [`Meter`].
///
/// Names, units, attributes and bucket boundaries are those of the
/// [conventions](https://opentelemetry.io/docs/specs/semconv/http/http-metrics/) for HTTP clients. Each client needs an
/// observer of its own, because connections of several clients have the same numbers.
///
/// Histograms: `http.client.request.duration`, `http.client.request.time_in_queue`, `http.client.connection.duration`,
/// `dns.lookup.duration`, `speeddial.request.phase.duration` (seconds), `http.client.request.body.size`,
/// `http.client.response.body.size` (bytes). Counters that go up and down: `http.client.active_requests`,
/// `http.client.open_connections`. Counters: `speeddial.request.retries`, `speeddial.request.redirects`,
/// `speeddial.connection.failures`, `speeddial.connection.closed`. [`watch`](Self::watch) adds the figures of the pool and the
/// DNS cache.
///
/// Given to a request ([`RequestBuilder::observer`](crate::RequestBuilder::observer)), it measures that call, and neither
/// connections nor lookups: `http.client.open_connections`, `http.client.connection.duration`, `dns.lookup.duration`,
/// `speeddial.connection.failures` and `speeddial.connection.closed` need an observer of the client. Other calls use the same
/// connections, and may open and close them.
///
/// ```
/// use speeddial::interop::OpenTelemetry;
///
/// let meter = opentelemetry::global::meter("my-service");
/// let client = speeddial::Client::builder().observer(OpenTelemetry::new(&meter)).build()?;
/// OpenTelemetry::watch(&meter, &client);
/// # Ok::<(), speeddial::Error>(())
/// ```
pub struct OpenTelemetry(meter::Meter<Instruments>);

/// The instruments of a meter as a sink.
#[derive(Default)]
struct Instruments {
    histograms: HashMap<Instrument, Histogram<f64>>,
    up_down_counters: HashMap<Instrument, UpDownCounter<i64>>,
    counters: HashMap<Instrument, Counter<u64>>,
}

impl OpenTelemetry {
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

    /// Adds the figures of the client's pool and DNS cache to `meter`: `speeddial.pool.*` and `speeddial.dns.cache.*`.
    ///
    /// The figures are read each time the meter is collected. The meter does not keep the client alive.
    pub fn watch(meter: &Meter, client: &Client) {
        for reading in &READINGS {
            let client = client.downgrade();
            let read = reading.read;
            let value = move || client.upgrade().map(|client| read(&client));
            // The instruments live as long as the meter's provider.
            if reading.grows {
                let counter = meter.u64_observable_counter(reading.name).with_description(reading.description);
                let _ = counter
                    .with_callback(move |reader| value().into_iter().for_each(|figure| reader.observe(figure, &[])))
                    .build();
            } else {
                let gauge = meter.u64_observable_gauge(reading.name).with_description(reading.description);
                let _ = gauge
                    .with_callback(move |reader| value().into_iter().for_each(|figure| reader.observe(figure, &[])))
                    .build();
            }
        }
    }
}

impl std::fmt::Debug for OpenTelemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenTelemetry")
    }
}

impl Observer for OpenTelemetry {
    fn wants(&self) -> Wants {
        self.0.wants()
    }

    fn wants_of_call(&self) -> Wants {
        self.0.wants_of_call()
    }

    fn observe(&self, record: &Record) {
        self.0.observe(record);
    }

    fn ended(&self, call: &EndedCall<'_>) {
        self.0.ended(call);
    }
}

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
