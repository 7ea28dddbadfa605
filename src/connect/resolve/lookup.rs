//! The addresses of a host that may be dialled, family by family as DNS answers.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::{BoxFuture, Either};

use super::addresses::AddressPolicy;
use super::pins::{self, Pins};
use crate::clock::{self, Instant};
use crate::connect::error::ConnectError;
use crate::dns::{Answer, CachedResolver, ResolveError, ResolveErrorKind, Sockets, ips_of};
use crate::origin::{Host, Origin};
use crate::race::FailedAddress;
use crate::sync::lock;
use crate::trace::{DialTrace, DnsLookup, Event, Family, Source};

/// The addresses of one family that may be dialled, and when they were known.
pub(in crate::connect) type FamilyAddresses = (Family, Arc<[IpAddr]>, Instant);

/// The lookup of a host's addresses in all families. It keeps what went wrong, to explain a dial without a connection.
pub(in crate::connect) struct Lookup<'a> {
    resolver: &'a CachedResolver,
    policy: &'a AddressPolicy,
    pins: &'a Pins,
    trace: &'a DialTrace,
    /// The failure of a family that explains most.
    failed: Mutex<Option<Arc<ResolveError>>>,
    /// An address that the policy does not allow.
    denied: Mutex<Option<IpAddr>>,
    /// The last answers of names with ports.
    sockets: Mutex<Vec<(Arc<str>, Family, Sockets)>>,
    /// True if a family had an answer.
    has_answer: AtomicBool,
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

impl<'a> Lookup<'a> {
    pub(in crate::connect) fn new(
        resolver: &'a CachedResolver,
        policy: &'a AddressPolicy,
        pins: &'a Pins,
        trace: &'a DialTrace,
    ) -> Self {
        Self {
            resolver,
            policy,
            pins,
            trace,
            failed: Mutex::default(),
            denied: Mutex::default(),
            sockets: Mutex::default(),
            has_answer: AtomicBool::new(false),
        }
    }

    /// Asks for the addresses of `host` in `families`, which are at most two. All are asked for at once; what is cached
    /// is known and traced at `now`.
    pub(in crate::connect) fn answers<'l>(&'l self, host: &'l Host, families: &[Family], now: Instant) -> Answers<'l> {
        match host {
            Host::Ip(ip) => Answers([Some(PendingAnswer::Known(self.literal(*ip, now))), None]),
            Host::Name(name) => {
                let pinned = self.pins.of(host);
                let lookup = |family: &Family| match pinned {
                    Some(pinned) => PendingAnswer::Known(self.pinned(name, pinned, *family, now)),
                    None => self.family(name, *family, now),
                };
                Answers([families.first().map(lookup), families.get(1).map(lookup)])
            }
        }
    }

    /// Returns the addresses of `target`, whose host was looked up, that are reached at ports of their own: those that the user
    /// has set, or those that the resolver knows.
    pub(in crate::connect) fn sockets(&self, target: &Origin) -> Vec<SocketAddr> {
        let pinned = self.pins.sockets(target);
        if !pinned.is_empty() {
            return pinned;
        }
        let known = lock(&self.sockets);
        let of_target = known.iter().filter(|(name, ..)| Some(name) == target.name());
        of_target.flat_map(|(.., sockets)| pins::with_ports(sockets, target)).collect()
    }

    /// Keeps the ports of an answer, in place of those of the last one.
    fn keep_sockets(&self, name: &Arc<str>, family: Family, sockets: Option<&Sockets>) {
        let mut known = lock(&self.sockets);
        known.retain(|(other, of, _)| (other, *of) != (name, family));
        known.extend(sockets.map(|sockets| (name.clone(), family, sockets.clone())));
    }

    /// Returns the answer for an address in the URL.
    fn literal(&self, ip: IpAddr, now: Instant) -> FamilyAddresses {
        let family = Family::of(ip);
        let addresses: Arc<[IpAddr]> = Arc::new([ip]);
        let name: Arc<str> = ip.to_string().into();
        let lookup = DnsLookup::answered(name.clone(), family, addresses.clone(), Duration::MAX, Source::Literal);
        self.trace.emit_both_at(now, Event::DnsStart { name, family }, Event::DnsEnd(lookup));
        (family, self.allowed(addresses), now)
    }

    /// Returns the answer for a name whose addresses the user has set.
    fn pinned(&self, name: &Arc<str>, pinned: &[SocketAddr], family: Family, now: Instant) -> FamilyAddresses {
        let ips = ips_of(pinned, family);
        let outcome = match ips.is_empty() {
            true => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)),
            false => Ok(Answer::new(ips.to_vec(), Duration::MAX, Source::Pinned)),
        };
        let (lookup, addresses) = self.answered(name, family, outcome, now);
        let start = Event::DnsStart { name: name.clone(), family };
        self.trace.emit_both_at(now, start, Event::DnsEnd(lookup));
        addresses
    }

    fn family<'l>(&'l self, name: &'l Arc<str>, family: Family, now: Instant) -> PendingAnswer<'l> {
        match self.resolver.lookup_at(now, name, family) {
            Either::Left(outcome) => {
                let (lookup, addresses) = self.answered(name, family, outcome, now);
                let start = Event::DnsStart { name: name.clone(), family };
                self.trace.emit_both_at(now, start, Event::DnsEnd(lookup));
                PendingAnswer::Known(addresses)
            }
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
                self.has_answer.store(true, Ordering::Relaxed);
                self.keep_sockets(name, family, answer.sockets());
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
            lock(&self.denied).get_or_insert(*denied);
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
        let mut kept = lock(&self.failed);
        if kept.as_ref().is_none_or(|kept| weight(kept) <= weight(&error)) {
            *kept = Some(error);
        }
    }

    /// Explains a dial that found no connection, after these addresses `failed`.
    ///
    /// A failed address explains more than a failed lookup. Without either, a denied address is the reason.
    pub(in crate::connect) fn explain(&self, failed: Vec<FailedAddress>) -> ConnectError {
        if !failed.is_empty() {
            return ConnectError::Unreachable(failed);
        }
        if let Some(denied) = *lock(&self.denied) {
            return ConnectError::Denied(denied);
        }
        if self.has_answer.load(Ordering::Relaxed) {
            return ConnectError::Unreachable(failed);
        }
        match lock(&self.failed).take() {
            Some(error) => ConnectError::Resolve(Arc::unwrap_or_clone(error)),
            None => ConnectError::Unreachable(failed),
        }
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
