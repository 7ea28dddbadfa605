#![doc = include_str!("../README.md")]

mod instruments;
mod known_names;
mod readings;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use speeddial::dns::{Family, ResolveError, ResolveErrorKind, Source};
use speeddial::http::{StatusCode, Version};
use speeddial::origin::Origin;
use speeddial::trace::semconv::{method_name, protocol_version, server_address};
use speeddial::trace::{
    DnsLookup, EndedCall, EndedRequest, Event, Observer, Phase, Record, RequestEnd, RequestInfo, StartedRequest,
    Subject, Wants,
};

pub use self::instruments::{Instrument, InstrumentKind};
use self::known_names::KnownNames;
pub use self::readings::{CLIENT_NAME, READINGS, Reading};

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "attributes are texts and numbers, and a sink has to write both")]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
}

/// Names and values of attributes.
pub type Attributes = Vec<(&'static str, Value)>;

/// A receiver of measurements: a metrics library.
pub trait Sink: Send + Sync + 'static {
    /// Records a value of a histogram.
    fn record(&self, instrument: Instrument, value: f64, attributes: Attributes);

    /// Adds to a counter, or to one that goes up and down.
    fn add(&self, instrument: Instrument, by: i64, attributes: Attributes);
}

/// A user's function that returns more attributes for the measurements of a request.
type MoreAttributes = Box<dyn Fn(&RequestInfo) -> Vec<(&'static str, String)> + Send + Sync>;

/// The value of attributes for the names beyond the limit.
const OTHER: &str = "_OTHER";

/// An observer that measures the requests, connections and lookups of one client.
///
/// Each client needs one of its own, because connections of several clients have the same numbers. Given to a request, it measures that
/// call, and neither connections nor lookups.
pub struct Meter<S> {
    sink: S,
    /// The instruments that measure nothing.
    off: [bool; Instrument::ALL.len()],
    /// Origins, names that are looked up, and addresses of peers.
    hosts: KnownNames,
    names: KnownNames,
    peers: KnownNames,
    more_attributes: Option<MoreAttributes>,
    /// The attributes of the requests that are active, by call and number.
    active: Mutex<HashMap<(u64, u32), Attributes>>,
    /// The connections that are open or being opened, by number.
    connections: Mutex<HashMap<u64, ConnectionState>>,
}

struct ConnectionState {
    origin: Origin,
    version: Version,
    remote: Option<SocketAddr>,
    /// The time at which the connection was ready for requests.
    opened: Option<Instant>,
    /// The number of requests that the connection carries.
    requests: usize,
    /// The time at which the lookup of each family began.
    lookups: [Option<Instant>; 2],
}

#[doc(hidden)]
pub use speeddial;

/// Makes a type around a meter, such as `struct Metrics(Meter<Facade>)`, an observer: one that measures for a metrics library.
#[macro_export]
macro_rules! observe_by_meter {
    ($adapter:ty) => {
        impl $crate::speeddial::trace::Observer for $adapter {
            fn wants(&self) -> $crate::speeddial::trace::Wants {
                self.0.wants()
            }

            fn wants_of_call(&self) -> $crate::speeddial::trace::Wants {
                self.0.wants_of_call()
            }

            fn observe(&self, record: &$crate::speeddial::trace::Record) {
                self.0.observe(record);
            }

            fn ended(&self, call: &$crate::speeddial::trace::EndedCall<'_>) {
                self.0.ended(call);
            }

            fn request_started(&self, request: &$crate::speeddial::trace::StartedRequest<'_>) {
                self.0.request_started(request);
            }

            fn request_ended(&self, request: &$crate::speeddial::trace::EndedRequest<'_>) {
                self.0.request_ended(request);
            }
        }
    };
}

impl<S> Meter<S> {
    /// Creates the observer of a client.
    pub fn new(sink: S) -> Self {
        Self {
            sink,
            off: Default::default(),
            hosts: KnownNames::default(),
            names: KnownNames::default(),
            peers: KnownNames::default(),
            more_attributes: None,
            active: Mutex::default(),
            connections: Mutex::default(),
        }
    }

    /// Sets the highest number of origins, of names that are looked up, and of peers' addresses that are told apart.
    pub fn max_hosts(mut self, limit: usize) -> Self {
        self.hosts = KnownNames::new(limit);
        self.names = KnownNames::new(limit);
        self.peers = KnownNames::new(limit);
        self
    }

    /// Measures by the instruments alone whose name is wanted.
    pub fn only(mut self, is_wanted: impl Fn(&str) -> bool) -> Self {
        self.off = Instrument::ALL.map(|instrument| !is_wanted(instrument.description().0));
        self
    }

    /// Adds attributes to the measurements of each request: its duration, its time in the queue, and the sizes of its bodies. The function
    /// gets the request when it is over.
    pub fn attributes(
        mut self,
        of: impl Fn(&RequestInfo) -> Vec<(&'static str, String)> + Send + Sync + 'static,
    ) -> Self {
        self.more_attributes = Some(Box::new(of));
        self
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<u64, ConnectionState>> {
        lock(&self.connections)
    }
}

impl<S: Sink> Observer for Meter<S> {
    fn wants(&self) -> Wants {
        const OF_CONNECTIONS: [Instrument; 5] = [
            Instrument::OpenConnections,
            Instrument::ConnectionDuration,
            Instrument::DnsLookupDuration,
            Instrument::DialFailures,
            Instrument::ClosedConnections,
        ];
        if OF_CONNECTIONS.into_iter().all(|instrument| self.is_off(instrument)) {
            return self.wants_of_call();
        }
        self.wants_of_call().union(Wants::CALLS).union(Wants::CONNECTIONS)
    }

    fn wants_of_call(&self) -> Wants {
        // A connection serves other calls too, and only the client's observers are told of its end: an observer of one call
        // would count connections that never close.
        Wants::REQUESTS.union(Wants::ENDS)
    }

    fn observe(&self, record: &Record) {
        match (record.subject, &record.event) {
            (Subject::Call(_), Event::Leased { connection, .. }) => {
                self.change_requests(*connection, |requests| requests + 1);
            }
            (Subject::Connection(number), _) => self.observe_connection(number, record),
            _ => {}
        }
    }

    fn request_started(&self, request: &StartedRequest<'_>) {
        let mut about = self.request_attributes(request.request);
        about.extend(request.url_template().map(|template| ("url.template", Value::Text(template))));
        self.add(Instrument::ActiveRequests, 1, about.clone());
        lock(&self.active).insert((request.call, request.number), about);
    }

    fn request_ended(&self, ended: &EndedRequest<'_>) {
        let EndedRequest { request, timings, .. } = ended;
        let active = lock(&self.active).remove(&(request.call, request.number));
        let Some(mut about) = active else { return };
        self.add(Instrument::ActiveRequests, -1, about.clone());
        let server = self.server_attributes(&request.request.origin);
        let repeated = match ended.end {
            RequestEnd::Repeated(cause) => Some((Instrument::Retries, ("speeddial.retry.cause", text(cause.as_str())))),
            RequestEnd::Redirected(status) => {
                Some((Instrument::Redirects, ("http.response.status_code", status_value(status))))
            }
            _ => None,
        };
        if let Some((instrument, reason)) = repeated {
            self.add(instrument, 1, with(server.clone(), reason));
        }
        // The backoff before a request is no part of it.
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::Backoff) {
            self.measure_phase(phase, ended.spent(phase), server.clone());
        }
        if !ended.runtime_delay().is_zero() {
            self.record(Instrument::RuntimeDelay, ended.runtime_delay().as_secs_f64(), server);
        }
        if let Some(of) = &self.more_attributes {
            about.extend(of(request.request).into_iter().map(|(name, value)| (name, text(value))));
        }
        about.extend(timings.version().map(|version| ("network.protocol.version", text(protocol_version(version)))));
        self.record(Instrument::TimeInQueue, ended.spent(Phase::Queue).as_secs_f64(), about.clone());
        about.extend(timings.status().map(|status| ("http.response.status_code", status_value(status))));
        about.extend(ended.error_type().map(|error| ("error.type", Value::Text(error))));
        about.extend(ended.dropped().map(is_true));
        if timings.status().is_some() && ended.failure.is_none() {
            self.record(Instrument::RequestBodySize, timings.sent_bytes() as f64, about.clone());
        }
        if ended.end == RequestEnd::Answered {
            self.record(Instrument::ResponseBodySize, timings.received_bytes() as f64, about.clone());
        }
        self.record(Instrument::RequestDuration, ended.elapsed().as_secs_f64(), about);
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let timings = call.timings;
        let mut about = self.request_attributes(call.request);
        about.extend(call.error_type().map(|error| ("error.type", Value::Text(error))));
        about.extend(call.dropped().map(is_true));
        self.record(Instrument::CallDuration, timings.total().as_secs_f64(), about);
        let server = self.server_attributes(&call.request.origin);
        for hedge in timings.hedges() {
            let outcome = ("speeddial.hedge.outcome", text(hedge.outcome.as_str()));
            self.add(Instrument::Hedges, 1, with(server.clone(), outcome));
        }
        for repeat in timings.over_budget() {
            let repeat = ("speeddial.repeat", text(repeat.as_str()));
            self.add(Instrument::OverBudget, 1, with(server.clone(), repeat));
        }
        self.measure_phase(Phase::Backoff, timings.backoff(), server);
    }
}

// Each step leaves a sound state behind, so a poisoned lock still guards one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_true(name: &'static str) -> (&'static str, Value) {
    (name, text("true"))
}

impl<S: Sink> Meter<S> {
    fn is_off(&self, instrument: Instrument) -> bool {
        self.off[instrument as usize]
    }

    fn record(&self, instrument: Instrument, value: f64, attributes: Attributes) {
        if !self.is_off(instrument) {
            self.sink.record(instrument, value, attributes);
        }
    }

    fn add(&self, instrument: Instrument, by: i64, attributes: Attributes) {
        if !self.is_off(instrument) {
            self.sink.add(instrument, by, attributes);
        }
    }

    fn measure_phase(&self, phase: Phase, spent: Duration, server: Attributes) {
        if !spent.is_zero() && !self.is_off(Instrument::PhaseDuration) {
            let about = with(server, ("speeddial.phase", text(phase.as_str())));
            self.record(Instrument::PhaseDuration, spent.as_secs_f64(), about);
        }
    }

    fn observe_connection(&self, number: u64, record: &Record) {
        match &record.event {
            Event::DialStart { origin, .. } => {
                self.connections().insert(number, ConnectionState::new(origin.clone()));
            }
            Event::DnsStart { family, .. } => {
                if let Some(connection) = self.connections().get_mut(&number) {
                    connection.lookups[*family as usize] = Some(record.at);
                }
            }
            Event::DnsEnd(lookup) => self.end_lookup(number, record.at, lookup),
            Event::HandshakeStart { version, .. } => {
                if let Some(connection) = self.connections().get_mut(&number) {
                    connection.version = *version;
                }
            }
            Event::Opened { remote, .. } => self.open(number, *remote, record.at),
            Event::DialFailed => {
                let failed = self.connections().remove(&number);
                let about = failed.map(|connection| self.server_attributes(&connection.origin)).unwrap_or_default();
                self.add(Instrument::DialFailures, 1, about);
            }
            Event::DialPostponed | Event::DialCancelled => drop(self.connections().remove(&number)),
            Event::Active => self.change_requests(number, |requests| requests + 1),
            Event::Released { .. } => self.change_requests(number, |requests| requests.saturating_sub(1)),
            Event::Closed { cause, .. } => self.close(number, cause.as_str(), record.at),
            _ => {}
        }
    }

    fn end_lookup(&self, number: u64, at: Instant, lookup: &DnsLookup) {
        // An address in a URL is not looked up.
        if lookup.source == Source::Literal {
            return;
        }
        let started = match self.connections().get(&number) {
            Some(connection) => connection.lookups[lookup.family as usize],
            None => None,
        };
        let Some(started) = started else { return };
        let record_type = if lookup.family == Family::V4 { "A" } else { "AAAA" };
        let mut about = vec![
            ("dns.question.name", self.names.limited(&lookup.name)),
            ("dns.question.type", text(record_type)),
            ("speeddial.dns.source", text(lookup.source.as_str())),
        ];
        // That a name has no addresses of one family is an answer.
        let is_answer = |error: &ResolveError| error.kind() == ResolveErrorKind::NoData;
        if let Some(error) = &lookup.error
            && !error.downcast_ref().is_some_and(is_answer)
        {
            about.push(("error.type", text("resolve")));
        }
        self.record(Instrument::DnsLookupDuration, at.saturating_duration_since(started).as_secs_f64(), about);
    }

    fn open(&self, number: u64, remote: Option<SocketAddr>, at: Instant) {
        let about = self.connections().get_mut(&number).map(|connection| {
            connection.remote = remote;
            connection.opened = Some(at);
            self.connection_attributes(connection)
        });
        if let Some(about) = about {
            self.add(Instrument::OpenConnections, 1, about);
        }
    }

    /// Changes the number of a connection's requests. The connection is active while it has some, and idle otherwise.
    fn change_requests(&self, number: u64, change: impl Fn(usize) -> usize) {
        if self.is_off(Instrument::OpenConnections) {
            return;
        }
        let (before, after) = {
            let mut connections = self.connections();
            let Some(connection) = connections.get_mut(&number) else { return };
            let before = self.connection_attributes(connection);
            let was_idle = connection.requests == 0;
            connection.requests = change(connection.requests);
            let is_idle = connection.requests == 0;
            if was_idle == is_idle {
                return;
            }
            (before, self.connection_attributes(connection))
        };
        self.add(Instrument::OpenConnections, -1, before);
        self.add(Instrument::OpenConnections, 1, after);
    }

    fn close(&self, number: u64, cause: &'static str, at: Instant) {
        let Some(connection) = self.connections().remove(&number) else { return };
        let Some(opened) = connection.opened else { return };
        self.add(Instrument::OpenConnections, -1, self.connection_attributes(&connection));
        let lived = at.saturating_duration_since(opened);
        self.record(Instrument::ConnectionDuration, lived.as_secs_f64(), self.attributes_without_state(&connection));
        let about = with(self.server_attributes(&connection.origin), ("speeddial.close.cause", text(cause)));
        self.add(Instrument::ClosedConnections, 1, about);
    }

    /// Returns the attributes of an origin. Those beyond the limit of hosts have the same ones.
    fn server_attributes(&self, origin: &Origin) -> Attributes {
        let scheme = ("url.scheme", text(origin.scheme().to_string()));
        if !self.hosts.knows(&origin.to_string()) {
            return vec![("server.address", text(OTHER)), scheme];
        }
        let port = ("server.port", Value::Number(origin.port().into()));
        vec![("server.address", text(server_address(origin))), port, scheme]
    }

    fn request_attributes(&self, request: &RequestInfo) -> Attributes {
        let mut about = vec![("http.request.method", text(method_name(&request.method)))];
        about.extend(self.server_attributes(&request.origin));
        about
    }

    fn attributes_without_state(&self, connection: &ConnectionState) -> Attributes {
        let mut about = self.server_attributes(&connection.origin);
        about.push(("network.protocol.version", text(protocol_version(connection.version))));
        let peer = connection.remote.map(|remote| self.peers.limited(&remote.ip().to_string()));
        about.extend(peer.map(|peer| ("network.peer.address", peer)));
        about
    }

    fn connection_attributes(&self, connection: &ConnectionState) -> Attributes {
        let state = if connection.requests == 0 { "idle" } else { "active" };
        with(self.attributes_without_state(connection), ("http.connection.state", text(state)))
    }
}

impl<S> fmt::Debug for Meter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl KnownNames {
    /// Returns a name as the value of an attribute, or `_OTHER` for a name beyond the limit.
    fn limited(&self, name: &str) -> Value {
        if self.knows(name) { text(name.to_owned()) } else { text(OTHER) }
    }
}

impl ConnectionState {
    /// Returns the state of a connection that begins to be opened.
    fn new(origin: Origin) -> Self {
        Self { origin, version: Version::HTTP_11, remote: None, opened: None, requests: 0, lookups: [None; 2] }
    }
}

fn with(mut attributes: Attributes, attribute: (&'static str, Value)) -> Attributes {
    attributes.push(attribute);
    attributes
}

fn text(value: impl Into<Cow<'static, str>>) -> Value {
    Value::Text(value.into())
}

fn status_value(status: StatusCode) -> Value {
    Value::Number(status.as_u16().into())
}
