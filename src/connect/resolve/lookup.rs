//! The addresses of a host that may be dialled, family by family as DNS answers.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::{BoxFuture, Either};

use crate::clock::{self, Instant};
use crate::connect::error::ConnectError;
use crate::connect::resolve::AddressPolicy;
use crate::dns::{Answer, CachedResolver, ResolveError, ResolveErrorKind, Sockets, comparable};
use crate::origin::{Host, Origin};
use crate::race::FailedAddress;
use crate::sync::lock;
use crate::trace::{DialTrace, DnsLookup, Event, Family, Source};

/// The addresses of one family that may be dialled, and when they were known.
pub(in crate::connect) type FamilyAddresses = (Family, Arc<[IpAddr]>, Instant);

/// The lookup of one host's addresses in all families. It keeps what went wrong, to explain a dial without a connection.
pub(in crate::connect) struct NameLookup<'a> {
    resolver: &'a CachedResolver,
    policy: &'a AddressPolicy,
    pins: &'a Pins,
    trace: &'a DialTrace,
    found: Mutex<FoundAddresses>,
}

/// The results of the lookup so far, of all families.
#[derive(Default)]
struct FoundAddresses {
    /// The failure of a family that explains most.
    failed: Option<Arc<ResolveError>>,
    /// An address that the policy does not allow.
    denied: Option<IpAddr>,
    /// The addresses with ports of their own, by [`Family`].
    sockets: [Option<Sockets>; 2],
    /// True if a family had an answer.
    has_answer: bool,
}

/// The answers of at most two families, each as it comes.
pub(in crate::connect) struct Answers<'a>([Option<PendingAnswer<'a>>; 2]);

/// A family's answer that is known at once, or has to be waited for.
enum PendingAnswer<'a> {
    Known(FamilyAddresses),
    Asked(BoxFuture<'a, FamilyAddresses>),
}

impl Stream for Answers<'_> {
    type Item = FamilyAddresses;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FamilyAddresses>> {
        let mut is_over = true;
        for pending in &mut self.0 {
            match pending.take() {
                None => {}
                Some(PendingAnswer::Known(answer)) => return Poll::Ready(Some(answer)),
                Some(PendingAnswer::Asked(mut asked)) => match asked.as_mut().poll(cx) {
                    Poll::Ready(answer) => return Poll::Ready(Some(answer)),
                    Poll::Pending => {
                        *pending = Some(PendingAnswer::Asked(asked));
                        is_over = false;
                    }
                },
            }
        }
        if is_over { Poll::Ready(None) } else { Poll::Pending }
    }
}

/// Returns the families in which `host` has addresses: one for an address in the URL, those of the settings for a name.
pub(in crate::connect) fn families_of(host: &Host, wanted: &'static [Family]) -> &'static [Family] {
    match host {
        Host::Name(_) => wanted,
        Host::Ip(ip) => match Family::of(*ip) {
            Family::V4 => &[Family::V4],
            Family::V6 => &[Family::V6],
        },
    }
}

impl<'a> NameLookup<'a> {
    pub(in crate::connect) fn new(
        resolver: &'a CachedResolver,
        policy: &'a AddressPolicy,
        pins: &'a Pins,
        trace: &'a DialTrace,
    ) -> Self {
        Self { resolver, policy, pins, trace, found: Mutex::default() }
    }

    /// Asks for the addresses of `host` in `families`, which are at most two. All are asked for at once; what is cached
    /// is known and traced at `now`.
    pub(in crate::connect) fn answers<'l>(&'l self, host: &'l Host, families: &[Family], now: Instant) -> Answers<'l> {
        match host {
            Host::Ip(ip) => Answers([Some(PendingAnswer::Known(self.literal(*ip, now))), None]),
            Host::Name(name) => {
                let pinned = self.pins.of(host);
                let lookup = |family: &Family| match pinned {
                    Some(pinned) => {
                        PendingAnswer::Known(self.known(name, *family, pinned_answer(name, pinned, *family), now))
                    }
                    None => self.family(name, *family, now),
                };
                Answers([families.first().map(lookup), families.get(1).map(lookup)])
            }
        }
    }

    /// Returns the addresses of `target`, which was looked up, that are reached at ports of their own: those that the user has set, or those
    /// that the resolver knows.
    pub(in crate::connect) fn sockets(&self, target: &Origin) -> Vec<SocketAddr> {
        let found = lock(&self.found);
        found.sockets.iter().flatten().flat_map(|sockets| with_ports(sockets, target)).collect()
    }

    /// Returns the answer for an address in the URL.
    fn literal(&self, ip: IpAddr, now: Instant) -> FamilyAddresses {
        let (name, family): (Arc<str>, _) = (ip.to_string().into(), Family::of(ip));
        let addresses: Arc<[IpAddr]> = Arc::new([ip]);
        let lookup = DnsLookup::answered(name.clone(), family, addresses.clone(), Duration::MAX, Source::Literal);
        self.trace.emit_both_at(now, Event::DnsStart { name, family }, Event::DnsEnd(lookup));
        (family, self.allowed(addresses), now)
    }

    /// Returns what is known of a name at once.
    fn known(
        &self,
        name: &Arc<str>,
        family: Family,
        outcome: Result<Answer, ResolveError>,
        now: Instant,
    ) -> FamilyAddresses {
        let (lookup, addresses) = self.answered(name, family, outcome, now);
        let start = Event::DnsStart { name: name.clone(), family };
        self.trace.emit_both_at(now, start, Event::DnsEnd(lookup));
        addresses
    }

    fn family<'l>(&'l self, name: &'l Arc<str>, family: Family, now: Instant) -> PendingAnswer<'l> {
        match self.resolver.lookup_at(now, name, family) {
            Either::Left(outcome) => PendingAnswer::Known(self.known(name, family, outcome, now)),
            Either::Right(asked) => {
                let guard = LookupGuard::start(name, family, now, self.trace);
                PendingAnswer::Asked(Box::pin(async move {
                    // The future owns the whole guard, not only the field that it sets.
                    let mut guard = guard;
                    let outcome = asked.wait().await;
                    guard.is_over = true;
                    let now = clock::now();
                    let (lookup, addresses) = self.answered(name, family, outcome, now);
                    self.trace.emit_at(now, Event::DnsEnd(lookup));
                    addresses
                }))
            }
        }
    }

    /// Turns the resolver's answer into one for the trace and one for the race.
    fn answered(
        &self,
        name: &Arc<str>,
        family: Family,
        outcome: Result<Answer, ResolveError>,
        now: Instant,
    ) -> (DnsLookup, FamilyAddresses) {
        match outcome {
            Ok(answer) => {
                let addresses = answer.addresses().clone();
                let lookup =
                    DnsLookup::answered(name.clone(), family, addresses.clone(), answer.ttl(), answer.source());
                let lookup = lookup.with_servers(answer.servers().cloned());
                let mut found = lock(&self.found);
                found.has_answer = true;
                found.sockets[family as usize] = answer.sockets().cloned();
                drop(found);
                (lookup, (family, self.allowed(addresses), now))
            }
            Err(error) => {
                let source = error.answered_from();
                let error = Arc::new(error);
                let lookup = DnsLookup::failed(name.clone(), family, source, error.clone());
                let lookup = lookup.with_servers(error.servers().cloned());
                self.note_failed(error);
                (lookup, (family, Arc::default(), now))
            }
        }
    }

    /// Keeps the addresses that the policy allows.
    ///
    /// Addresses are checked after every resolution, so a name cannot be rebound to an address that the client may not
    /// reach.
    fn allowed(&self, addresses: Arc<[IpAddr]>) -> Arc<[IpAddr]> {
        if let Some(denied) = addresses.iter().find(|ip| !self.policy.allows(**ip)) {
            lock(&self.found).denied.get_or_insert(*denied);
        }
        self.policy.filter(&addresses)
    }

    /// Keeps the failure that explains more: "no such name" more than a failed query, and that more than "no addresses
    /// in this family".
    fn note_failed(&self, error: Arc<ResolveError>) {
        let weight = |error: &ResolveError| match error.kind() {
            ResolveErrorKind::NoData => 0,
            kind if !kind.is_negative() => 1,
            _ => 2,
        };
        let kept = &mut lock(&self.found).failed;
        if kept.as_ref().is_none_or(|kept| weight(kept) <= weight(&error)) {
            *kept = Some(error);
        }
    }

    /// Explains a dial that found no connection, after these addresses `failed`.
    ///
    /// A failed address explains more than a failed lookup. Without either, a denied address is the reason.
    pub(in crate::connect) fn explain(&self, failed: Vec<FailedAddress>) -> ConnectError {
        let FoundAddresses { failed: lookup, denied, has_answer, .. } = std::mem::take(&mut *lock(&self.found));
        match (denied, lookup) {
            _ if !failed.is_empty() => ConnectError::Unreachable(failed),
            (Some(denied), _) => ConnectError::Denied(denied),
            (None, Some(error)) if !has_answer => ConnectError::Resolve(Arc::unwrap_or_clone(error)),
            (None, _) => ConnectError::Unreachable(failed),
        }
    }
}

/// Returns the answer for a name whose addresses the user has set.
fn pinned_answer(name: &str, pinned: &[SocketAddr], family: Family) -> Result<Answer, ResolveError> {
    let of_family = pinned.iter().copied().filter(|address| Family::of(address.ip()) == family);
    let answer = Answer::of_sockets(of_family, Duration::MAX, Source::Pinned);
    if answer.addresses().is_empty() {
        Err(ResolveError::new(ResolveErrorKind::NoData, name, family))
    } else {
        Ok(answer)
    }
}

/// Traces the end of a lookup that is dropped before its answer.
struct LookupGuard<'a> {
    family: Family,
    trace: &'a DialTrace,
    is_over: bool,
}

impl<'a> LookupGuard<'a> {
    fn start(name: &Arc<str>, family: Family, now: Instant, trace: &'a DialTrace) -> Self {
        trace.emit_at(now, Event::DnsStart { name: name.clone(), family });
        Self { family, trace, is_over: false }
    }
}

impl Drop for LookupGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.trace.emit(Event::DnsCancelled { family: self.family });
        }
    }
}

/// The names with addresses of the user. The resolver is not asked for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pins(HashMap<Box<str>, Vec<SocketAddr>>);

impl Pins {
    /// Sets the addresses of a name, in place of those set before.
    pub(crate) fn set(&mut self, name: &str, addresses: &[SocketAddr]) {
        self.0.insert(comparable(name).into(), addresses.to_vec());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the addresses of the name `host`; `None` if the resolver has to be asked, or if `host` is an address.
    pub(in crate::connect) fn of(&self, host: &Host) -> Option<&[SocketAddr]> {
        match host {
            Host::Name(name) if !self.is_empty() => self.0.get(&*comparable(name)).map(Vec::as_slice),
            _ => None,
        }
    }

    /// Returns the addresses of `target` with the ports to connect to. Empty if the resolver has to be asked.
    ///
    /// The port of a URL goes before that of an address, as in reqwest. A URL that names the scheme's usual port is the
    /// same as one without a port.
    pub(in crate::connect) fn sockets(&self, target: &Origin) -> Vec<SocketAddr> {
        with_ports(self.of(target.host()).unwrap_or_default(), target)
    }
}

/// Returns addresses with the ports to connect to: that of the URL, if it names one, or else their own.
pub(in crate::connect) fn with_ports(addresses: &[SocketAddr], target: &Origin) -> Vec<SocketAddr> {
    let port_of = |address: &SocketAddr| match address.port() {
        0 => target.port(),
        _ if !target.has_default_port() => target.port(),
        port => port,
    };
    let with_port = |mut address: SocketAddr, port: u16| {
        address.set_port(port);
        address
    };
    addresses.iter().map(|address| with_port(*address, port_of(address))).collect()
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    fn origin(url: &str) -> Origin {
        Origin::from_url(&Url::parse(url).unwrap()).unwrap()
    }

    #[test]
    fn the_port_of_a_url_goes_before_that_of_an_address() {
        let mut pins = Pins::default();
        pins.set("local.test", &["[fe80::1%7]:0".parse().unwrap()]);
        pins.set("API.test", &["192.0.2.1:0".parse().unwrap(), "192.0.2.2:8080".parse().unwrap()]);
        let sockets = |url| pins.sockets(&origin(url)).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(sockets("http://api.test/"), ["192.0.2.1:80", "192.0.2.2:8080"]);
        assert_eq!(sockets("http://api.test:80/"), ["192.0.2.1:80", "192.0.2.2:8080"]);
        assert_eq!(sockets("http://api.test:81/"), ["192.0.2.1:81", "192.0.2.2:81"]);
        assert_eq!(sockets("http://api.test./"), ["192.0.2.1:80", "192.0.2.2:8080"]);
        assert_eq!(sockets("http://local.test/"), ["[fe80::1%7]:80"]);
        assert!(sockets("http://other.test/").is_empty() && sockets("http://192.0.2.1/").is_empty());
    }

    #[test]
    fn the_last_addresses_of_a_name_count() {
        let mut pins = Pins::default();
        pins.set("bücher.test.", &["192.0.2.1:0".parse().unwrap()]);
        pins.set("xn--bcher-kva.test", &["[2001:db8::1]:1".parse().unwrap(), "[2001:db8::1]:2".parse().unwrap()]);
        let sockets = pins.sockets(&origin("http://bücher.test/"));
        assert_eq!(sockets.iter().map(SocketAddr::port).collect::<Vec<_>>(), [1, 2]);
        assert!(sockets.iter().all(SocketAddr::is_ipv6));
    }
}
