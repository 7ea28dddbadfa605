//! Measurements for OpenTelemetry.

use std::collections::HashMap;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

use super::instruments::{self, Attributes, Instrument, Kind, READINGS, Sink, Value};
use crate::client::Client;
use crate::trace::{EndedCall, Observer, Record, Wants};

/// Measures one client's calls, connections and lookups (a client each: numbers of several are not told apart) with an OpenTelemetry [`Meter`], by the names, units, attributes and bucket
/// boundaries of the [conventions](https://opentelemetry.io/docs/specs/semconv/http/http-metrics/) for HTTP clients.
///
/// Histograms: `http.client.request.duration`, `http.client.request.time_in_queue`, `http.client.connection.duration`,
/// `dns.lookup.duration`, `speeddial.request.phase.duration` (seconds), `http.client.request.body.size`,
/// `http.client.response.body.size` (bytes). Counters that go up and down: `http.client.active_requests`,
/// `http.client.open_connections`. Counters: `speeddial.request.retries`, `speeddial.request.redirects`,
/// `speeddial.connection.failures`, `speeddial.connection.closed`; and the numbers of the pool and the cache by
/// [`watch`](Self::watch).
///
/// ```
/// use speeddial::interop::OpenTelemetry;
///
/// let meter = opentelemetry::global::meter("my-service");
/// let client = speeddial::Client::builder().observer(OpenTelemetry::new(&meter)).build()?;
/// OpenTelemetry::watch(&meter, &client);
/// # Ok::<(), speeddial::Error>(())
/// ```
pub struct OpenTelemetry(instruments::Meter<Instruments>);

#[derive(Default)]
struct Instruments {
    histograms: HashMap<Instrument, Histogram<f64>>,
    up_down_counters: HashMap<Instrument, UpDownCounter<i64>>,
    counters: HashMap<Instrument, Counter<u64>>,
}

impl OpenTelemetry {
    /// Measurements of a client that is given this as its observer.
    pub fn new(meter: &Meter) -> Self {
        let mut made = Instruments::default();
        for instrument in Instrument::ALL {
            let (name, unit, about) = instrument.about();
            match instrument.kind() {
                Kind::Histogram(boundaries) => {
                    let histogram = meter.f64_histogram(name).with_unit(unit).with_description(about);
                    made.histograms.insert(instrument, histogram.with_boundaries(boundaries.to_vec()).build());
                }
                Kind::UpDownCounter => {
                    let counter = meter.i64_up_down_counter(name).with_unit(unit).with_description(about);
                    made.up_down_counters.insert(instrument, counter.build());
                }
                Kind::Counter => {
                    let counter = meter.u64_counter(name).with_unit(unit).with_description(about);
                    made.counters.insert(instrument, counter.build());
                }
            }
        }
        Self(instruments::Meter::new(made))
    }

    /// Has what the client's pool and DNS cache count themselves read whenever the meter is: `speeddial.pool.*` and
    /// `speeddial.dns.cache.*`. The client is not kept for that.
    pub fn watch(meter: &Meter, client: &Client) {
        for reading in &READINGS {
            let (client, read) = (client.downgrade(), reading.read);
            let value = move || client.upgrade().map(|client| read(&client));
            // They live as long as the meter's provider does.
            if reading.grows {
                let counter = meter.u64_observable_counter(reading.name).with_description(reading.description);
                let _ =
                    counter.with_callback(move |told| value().into_iter().for_each(|it| told.observe(it, &[]))).build();
            } else {
                let gauge = meter.u64_observable_gauge(reading.name).with_description(reading.description);
                let _ =
                    gauge.with_callback(move |told| value().into_iter().for_each(|it| told.observe(it, &[]))).build();
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
