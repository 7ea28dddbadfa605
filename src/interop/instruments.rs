//! What is measured, and when: OpenTelemetry's conventions for HTTP clients, made of events. Where it goes is a [`Sink`]'s.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use http::{Method, Version};

use super::conventions::{error_type, known, protocol};
use crate::client::Client;
use crate::origin::{Origin, Scheme};
use crate::sync::lock;
use crate::trace::{EndedCall, Event, Family, HopEnd, Observer, Phase, Record, Source, Subject, Wants};

/// Something that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Instrument {
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
    Redirects,
    DialFailures,
    ClosedConnections,
}

/// How values become a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Histogram(&'static [f64]),
    UpDownCounter,
    Counter,
}

/// The boundaries that the conventions recommend for requests, and those .NET has for connections.
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const LONG_SECONDS: &[f64] = &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
const BYTES: &[f64] = &[0.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

impl Instrument {
    pub(super) const ALL: [Self; 13] = [
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
        Self::Redirects,
        Self::DialFailures,
        Self::ClosedConnections,
    ];

    /// Name, unit, description.
    pub(super) fn about(self) -> (&'static str, &'static str, &'static str) {
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
            Self::Retries => ("speeddial.request.retries", "{retry}", "Requests that were made again."),
            Self::Redirects => ("speeddial.request.redirects", "{redirect}", "Redirects that were followed."),
            Self::DialFailures => {
                ("speeddial.connection.failures", "{connection}", "Connections that could not be opened.")
            }
            Self::ClosedConnections => {
                ("speeddial.connection.closed", "{connection}", "Connections that were closed, by cause.")
            }
        }
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Self::RequestDuration | Self::TimeInQueue | Self::DnsLookupDuration | Self::PhaseDuration => {
                Kind::Histogram(SECONDS)
            }
            Self::ConnectionDuration => Kind::Histogram(LONG_SECONDS),
            Self::RequestBodySize | Self::ResponseBodySize => Kind::Histogram(BYTES),
            Self::ActiveRequests | Self::OpenConnections => Kind::UpDownCounter,
            Self::Retries | Self::Redirects | Self::DialFailures | Self::ClosedConnections => Kind::Counter,
        }
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Value {
    Text(Cow<'static, str>),
    Number(i64),
}

pub(super) type Attributes = Vec<(&'static str, Value)>;

fn text(value: impl Into<Cow<'static, str>>) -> Value {
    Value::Text(value.into())
}

/// Where measurements go.
pub(super) trait Sink: Send + Sync + 'static {
    /// Takes a histogram's value.
    fn record(&self, instrument: Instrument, value: f64, attributes: Attributes);

    /// Adds to a counter.
    fn add(&self, instrument: Instrument, by: i64, attributes: Attributes);
}

/// An observer that measures.
pub(super) struct Meter<S> {
    sink: S,
    connections: Mutex<HashMap<u64, Connection>>,
}

/// A connection that is open, or being opened.
struct Connection {
    origin: Option<Origin>,
    version: Version,
    remote: Option<SocketAddr>,
    opened: Option<Instant>,
    /// How many requests it carries.
    carries: usize,
    /// When lookups of either family began.
    asked: [Option<Instant>; 2],
}

impl<S> Meter<S> {
    pub(super) fn new(sink: S) -> Self {
        Self { sink, connections: Mutex::default() }
    }

    // Its steps leave nothing half done.
    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Connection>> {
        lock(&self.connections)
    }
}

impl<S: Sink> Observer for Meter<S> {
    fn wants(&self) -> Wants {
        Wants::CALLS.and(Wants::CONNECTIONS).and(Wants::ENDS)
    }

    fn observe(&self, record: &Record) {
        match record.subject {
            Subject::Call(_) => self.call(&record.event),
            Subject::Connection(number) => self.connection(number, record),
            Subject::Resolver => {}
        }
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let (origin, timings) = (&call.request.origin, call.timings);
        let mut about = requested(&call.request.method, origin);
        self.sink.add(Instrument::ActiveRequests, -1, about.clone());
        if let Some(version) = timings.version() {
            about.push(("network.protocol.version", text(protocol(version))));
        }
        self.sink.record(Instrument::TimeInQueue, timings.queue().as_secs_f64(), about.clone());
        for hop in timings.hops() {
            let (instrument, what) = match hop.end {
                HopEnd::Retried(cause) => (Instrument::Retries, ("speeddial.retry.cause", text(cause.as_str()))),
                HopEnd::Redirected(status) => (Instrument::Redirects, ("http.response.status_code", number(status))),
            };
            self.sink.add(instrument, 1, [server(origin), vec![what]].concat());
        }
        for phase in Phase::ALL {
            let spent = timings.spent(phase);
            if !spent.is_zero() {
                let about = [server(origin), vec![("speeddial.phase", text(phase.as_str()))]].concat();
                self.sink.record(Instrument::PhaseDuration, spent.as_secs_f64(), about);
            }
        }
        about.extend(timings.status().map(|status| ("http.response.status_code", number(status))));
        about.extend(error_type(timings).map(|error| ("error.type", Value::Text(error))));
        if timings.failure().is_none() {
            self.sink.record(Instrument::RequestBodySize, timings.sent_bytes() as f64, about.clone());
            self.sink.record(Instrument::ResponseBodySize, timings.received_bytes() as f64, about.clone());
        }
        self.sink.record(Instrument::RequestDuration, timings.total().as_secs_f64(), about);
    }
}

impl<S: Sink> Meter<S> {
    fn call(&self, event: &Event) {
        match event {
            Event::CallStart(asked) => {
                self.sink.add(Instrument::ActiveRequests, 1, requested(&asked.method, &asked.origin));
            }
            Event::Leased { connection, .. } => self.carries(*connection, |carries| carries + 1),
            _ => {}
        }
    }

    fn connection(&self, number: u64, record: &Record) {
        match &record.event {
            Event::DialStart { origin } => {
                let (version, origin) = (Version::HTTP_11, Some(origin.clone()));
                let (remote, opened, carries, asked) = Default::default();
                let connection = Connection { origin, version, remote, opened, carries, asked };
                self.connections().insert(number, connection);
            }
            Event::DnsStart { family, .. } => {
                if let Some(connection) = self.connections().get_mut(&number) {
                    connection.asked[*family as usize] = Some(record.at);
                }
            }
            Event::DnsEnd(lookup) => self.looked_up(number, record.at, lookup),
            Event::HandshakeStart { version } => {
                if let Some(connection) = self.connections().get_mut(&number) {
                    connection.version = *version;
                }
            }
            Event::Opened { remote } => self.opened(number, *remote, record.at),
            Event::DialFailed => {
                let gone = self.connections().remove(&number);
                let about = gone.and_then(|connection| connection.origin).map(|origin| server(&origin));
                self.sink.add(Instrument::DialFailures, 1, about.unwrap_or_default());
            }
            Event::DialPostponed => drop(self.connections().remove(&number)),
            Event::Released { .. } => self.carries(number, |carries| carries.saturating_sub(1)),
            Event::Closed { cause } => self.closed(number, cause.as_str(), record.at),
            _ => {}
        }
    }

    fn looked_up(&self, number: u64, at: Instant, lookup: &crate::trace::DnsLookup) {
        // An address in a URL is looked up nowhere.
        if lookup.source == Source::Literal {
            return;
        }
        let asked = self.connections().get(&number).and_then(|connection| connection.asked[lookup.family as usize]);
        let Some(asked) = asked else { return };
        let record_type = if lookup.family == Family::V4 { "A" } else { "AAAA" };
        let mut about = vec![
            ("dns.question.name", text(lookup.name.to_string())),
            ("dns.question.type", text(record_type)),
            ("speeddial.dns.source", text(lookup.source.as_str())),
        ];
        about.extend(lookup.error.as_ref().map(|_| ("error.type", text("resolve"))));
        self.sink.record(Instrument::DnsLookupDuration, at.saturating_duration_since(asked).as_secs_f64(), about);
    }

    fn opened(&self, number: u64, remote: Option<SocketAddr>, at: Instant) {
        let about = self.connections().get_mut(&number).map(|connection| {
            (connection.remote, connection.opened) = (remote, Some(at));
            connection.attributes()
        });
        if let Some(about) = about {
            self.sink.add(Instrument::OpenConnections, 1, about);
        }
    }

    /// Counts a connection's requests: it is active while it has some.
    fn carries(&self, number: u64, change: impl Fn(usize) -> usize) {
        let changed = self.connections().get_mut(&number).and_then(|connection| {
            let before = connection.attributes();
            let was_idle = connection.carries == 0;
            connection.carries = change(connection.carries);
            (was_idle != (connection.carries == 0)).then(|| (before, connection.attributes()))
        });
        if let Some((before, after)) = changed {
            self.sink.add(Instrument::OpenConnections, -1, before);
            self.sink.add(Instrument::OpenConnections, 1, after);
        }
    }

    fn closed(&self, number: u64, cause: &'static str, at: Instant) {
        let Some(connection) = self.connections().remove(&number) else { return };
        let Some(opened) = connection.opened else { return };
        self.sink.add(Instrument::OpenConnections, -1, connection.attributes());
        let about = connection.without_state();
        let lived = at.saturating_duration_since(opened);
        self.sink.record(Instrument::ConnectionDuration, lived.as_secs_f64(), about);
        let about = connection.origin.as_ref().map(server).unwrap_or_default();
        let cause = vec![("speeddial.close.cause", text(cause))];
        self.sink.add(Instrument::ClosedConnections, 1, [about, cause].concat());
    }
}

impl Connection {
    fn without_state(&self) -> Attributes {
        let mut about = self.origin.as_ref().map(server).unwrap_or_default();
        about.push(("network.protocol.version", text(protocol(self.version))));
        about.extend(self.remote.map(|remote| ("network.peer.address", text(remote.ip().to_string()))));
        about
    }

    fn attributes(&self) -> Attributes {
        let state = if self.carries == 0 { "idle" } else { "active" };
        [self.without_state(), vec![("http.connection.state", text(state))]].concat()
    }
}

fn server(origin: &Origin) -> Attributes {
    let scheme = match origin.scheme() {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    vec![
        ("server.address", text(origin.host().to_string())),
        ("server.port", Value::Number(origin.port().into())),
        ("url.scheme", text(scheme)),
    ]
}

fn requested(method: &Method, origin: &Origin) -> Attributes {
    [vec![("http.request.method", text(known(method)))], server(origin)].concat()
}

fn number(status: http::StatusCode) -> Value {
    Value::Number(status.as_u16().into())
}

/// A number that a client's pool or cache has of itself.
pub(super) struct Reading {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    /// Whether it only grows.
    pub(super) grows: bool,
    pub(super) read: fn(&Client) -> u64,
}

/// All of them.
pub(super) const READINGS: [Reading; 18] = [
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
    reading("speeddial.pool.opened", "Connections opened.", true, |client| client.pool_stats().opened),
    reading("speeddial.pool.closed", "Connections closed.", true, |client| client.pool_stats().closed),
    reading("speeddial.pool.reused", "Requests on connections that had carried others.", true, |client| {
        client.pool_stats().reused
    }),
    reading("speeddial.dns.cache.names", "Names of which something is known.", false, |client| {
        client.dns_stats().names as u64
    }),
    reading("speeddial.dns.cache.hits", "Lookups answered from the cache.", true, |client| client.dns_stats().hits),
    reading("speeddial.dns.cache.negative_hits", "Failures answered from the cache.", true, |client| {
        client.dns_stats().negative_hits
    }),
    reading("speeddial.dns.cache.stale_hits", "Lookups answered with an expired answer.", true, |client| {
        client.dns_stats().stale_hits
    }),
    reading("speeddial.dns.cache.coalesced", "Lookups that waited for another's query.", true, |client| {
        client.dns_stats().coalesced
    }),
    reading("speeddial.dns.cache.misses", "Lookups that started a query.", true, |client| client.dns_stats().misses),
    reading("speeddial.dns.cache.refreshes", "Queries ahead of need.", true, |client| client.dns_stats().refreshes),
    reading("speeddial.dns.cache.failures", "Queries that failed.", true, |client| client.dns_stats().failures),
    reading("speeddial.dns.cache.evictions", "Names that left for others.", true, |client| {
        client.dns_stats().evictions
    }),
    reading("speeddial.pool.hosts", "Hosts with connections or requests that wait.", false, |client| {
        client.host_stats().len() as u64
    }),
];

const fn reading(name: &'static str, description: &'static str, grows: bool, read: fn(&Client) -> u64) -> Reading {
    Reading { name, description, grows, read }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Adds up what it is given, by instrument and attributes.
    #[derive(Default)]
    struct Books(Mutex<HashMap<(Instrument, String), (f64, usize)>>);

    impl Books {
        fn take(&self, instrument: Instrument, value: f64, attributes: &Attributes) {
            let of = |value: &Value| match value {
                Value::Text(text) => text.to_string(),
                Value::Number(number) => number.to_string(),
            };
            let about: Vec<_> = attributes.iter().map(|(name, value)| format!("{name}={}", of(value))).collect();
            let mut books = self.0.lock().unwrap();
            let entry = books.entry((instrument, about.join(" "))).or_default();
            *entry = (entry.0 + value, entry.1 + 1);
        }

        fn sum(&self, instrument: Instrument, about: &str) -> f64 {
            let books = self.0.lock().unwrap();
            let fitting = books.iter().filter(|((other, text), _)| *other == instrument && text.contains(about));
            fitting.map(|(_, (sum, _))| sum).sum()
        }
    }

    impl Sink for std::sync::Arc<Books> {
        fn record(&self, instrument: Instrument, value: f64, attributes: Attributes) {
            assert!(matches!(instrument.kind(), Kind::Histogram(_)));
            self.take(instrument, value, &attributes);
        }

        fn add(&self, instrument: Instrument, by: i64, attributes: Attributes) {
            assert!(!matches!(instrument.kind(), Kind::Histogram(_)));
            self.take(instrument, by as f64, &attributes);
        }
    }

    #[test]
    fn connections_are_active_while_they_carry_requests_and_gone_when_they_are_closed() {
        let books = std::sync::Arc::new(Books::default());
        let meter = Meter::new(books.clone());
        let at = crate::clock::now().into_std();
        let origin = Origin::from_url(&url::Url::parse("http://api.test:81/").unwrap()).unwrap();
        let tell = |after: u64, subject, event| {
            meter.observe(&Record { subject, at: at + Duration::from_secs(after), event });
        };
        let (connection, call) = (Subject::Connection(7), Subject::Call(1));
        let (idle, waited) = Default::default();
        let leased =
            || Event::Leased { connection: 7, remote: None, requests: 0, idle, tls: None, waited, freed: false };
        let open = |state: &str| books.sum(Instrument::OpenConnections, &format!("http.connection.state={state}"));
        tell(0, connection, Event::DialStart { origin });
        tell(1, connection, Event::HandshakeStart { version: Version::HTTP_2 });
        tell(1, connection, Event::Opened { remote: None });
        assert_eq!((open("idle"), open("active")), (1.0, 0.0));
        tell(2, call, leased());
        tell(2, call, leased());
        assert_eq!((open("idle"), open("active")), (0.0, 1.0));
        tell(3, connection, Event::Released { kept: true });
        assert_eq!(open("active"), 1.0, "it carries another one");
        tell(3, connection, Event::Released { kept: true });
        assert_eq!((open("idle"), open("active")), (1.0, 0.0));
        tell(9, connection, Event::Closed { cause: crate::trace::CloseCause::Peer });
        assert_eq!((open("idle"), open("active")), (0.0, 0.0));
        assert_eq!(books.sum(Instrument::ConnectionDuration, "network.protocol.version=2"), 8.0);
        assert_eq!(
            books.sum(Instrument::ClosedConnections, "server.port=81 url.scheme=http speeddial.close.cause=peer"),
            1.0
        );
        assert!(meter.connections().is_empty());
    }

    #[test]
    fn names_are_those_of_the_conventions_and_each_is_there_once() {
        let mut names: Vec<_> = Instrument::ALL.iter().map(|instrument| instrument.about().0).collect();
        names.extend(READINGS.iter().map(|reading| reading.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for name in ["http.client.request.duration", "http.client.open_connections", "dns.lookup.duration"] {
            assert!(names.contains(&name));
        }
    }
}
