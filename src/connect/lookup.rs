//! What a host's name answers, and which of that may be dialled.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::{BoxFuture, Either};

use super::{AddressPolicy, ConnectError, Connector};
use crate::clock::{self, Instant};
use crate::dns::{Answer, ResolveError, ResolveErrorKind};
use crate::origin::Host;
use crate::race::Failed;
use crate::sync::lock;
use crate::trace::{DialTrace, DnsLookup, Event, Family, Source};

/// What a family answers, and when that was known.
type Addressed = (Family, Arc<[IpAddr]>, Instant);

/// The answers of at most two families, each as it comes.
pub(super) struct Answers<'a>([Option<Answering<'a>>; 2]);

/// An answer that is there, or on its way.
enum Answering<'a> {
    Known(Addressed),
    Asked(BoxFuture<'a, Addressed>),
}

impl Stream for Answers<'_> {
    type Item = Addressed;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Addressed>> {
        for answering in &mut self.0 {
            let over = match answering.take() {
                Some(Answering::Known(answer)) => Poll::Ready(answer),
                Some(Answering::Asked(mut asked)) => {
                    let polled = asked.as_mut().poll(cx);
                    *answering = polled.is_pending().then_some(Answering::Asked(asked));
                    polled
                }
                None => continue,
            };
            if let Poll::Ready(answer) = over {
                return Poll::Ready(Some(answer));
            }
        }
        if self.0.iter().all(Option::is_none) { Poll::Ready(None) } else { Poll::Pending }
    }
}

fn family_of(ip: IpAddr) -> &'static [Family] {
    match Family::of(ip) {
        Family::V4 => &[Family::V4],
        Family::V6 => &[Family::V6],
    }
}

impl Connector {
    /// The answers of the host's families, each as it comes. They are asked for at once, and what is known is told to the trace.
    pub(super) fn resolve<'a>(
        &'a self,
        host: &'a Host,
        policy: &'a AddressPolicy,
        lookups: &'a Lookups,
        now: Instant,
        trace: &'a DialTrace,
    ) -> (&'static [Family], Answers<'a>) {
        match host {
            Host::Ip(ip) => {
                let (family, addresses) = literal(*ip, now, trace);
                let addresses = allowed(addresses, policy, |_| true, lookups);
                (family_of(*ip), Answers([Some(Answering::Known((family, addresses, now))), None]))
            }
            Host::Name(name) => {
                let families = self.addresses.families();
                let lookup = |family: &Family| self.lookup(name, *family, policy, lookups, now, trace);
                (families, Answers([families.first().map(lookup), families.get(1).map(lookup)]))
            }
        }
    }

    fn lookup<'a>(
        &'a self,
        name: &'a Arc<str>,
        family: Family,
        policy: &'a AddressPolicy,
        lookups: &'a Lookups,
        now: Instant,
        trace: &'a DialTrace,
    ) -> Answering<'a> {
        match self.resolver.lookup_at(now, name, family) {
            Either::Left(outcome) => {
                let (lookup, addressed) = self.answered(name, family, outcome, policy, lookups, now);
                let start = Event::DnsStart { name: name.clone(), family };
                trace.emit_both_at(now, start, Event::DnsEnd(lookup));
                Answering::Known(addressed)
            }
            Either::Right(asked) => {
                let asking = Asking::start(name, family, now, trace);
                Answering::Asked(Box::pin(async move {
                    let mut asking = asking;
                    let outcome = asked.wait().await;
                    asking.over = true;
                    let now = clock::now();
                    let (lookup, addressed) = self.answered(name, family, outcome, policy, lookups, now);
                    trace.emit_at(now, Event::DnsEnd(lookup));
                    addressed
                }))
            }
        }
    }

    fn answered(
        &self,
        name: &Arc<str>,
        family: Family,
        outcome: Result<Answer, ResolveError>,
        policy: &AddressPolicy,
        lookups: &Lookups,
        now: Instant,
    ) -> (DnsLookup, Addressed) {
        match outcome {
            Ok(answer) => {
                let addresses = answer.addresses().clone();
                let (ttl, source) = (answer.ttl(), answer.source());
                let lookup = DnsLookup::answered(name.clone(), family, addresses.clone(), ttl, source);
                lookups.answered.store(true, Ordering::Relaxed);
                (lookup, (family, allowed(addresses, policy, is_worth_dialling, lookups), now))
            }
            Err(error) => {
                let (source, error) = (error.answered_from(), Arc::new(error));
                let lookup = DnsLookup::failed(name.clone(), family, source, error.clone());
                lookups.failed(error);
                (lookup, (family, Arc::default(), now))
            }
        }
    }
}

fn literal(ip: IpAddr, now: Instant, trace: &DialTrace) -> (Family, Arc<[IpAddr]>) {
    let (family, addresses) = (Family::of(ip), Arc::new([ip]));
    let name: Arc<str> = ip.to_string().into();
    let lookup = DnsLookup::answered(name.clone(), family, addresses.clone(), Duration::MAX, Source::Literal);
    trace.emit_both_at(now, Event::DnsStart { name, family }, Event::DnsEnd(lookup));
    (family, addresses)
}

/// The addresses that are worth dialling and may be. The others are refused here, after resolution and before every
/// attempt, so that a name cannot be rebound to what its client may not reach.
fn allowed(
    addresses: Arc<[IpAddr]>,
    policy: &AddressPolicy,
    worth: impl Fn(&IpAddr) -> bool,
    lookups: &Lookups,
) -> Arc<[IpAddr]> {
    let wanted = |ip: &IpAddr| worth(ip) && policy.allows(*ip);
    if addresses.iter().all(&wanted) {
        return addresses;
    }
    lookups.denied(addresses.iter().find(|ip| !policy.allows(**ip)).copied());
    addresses.iter().copied().filter(wanted).collect()
}

/// A lookup under way; dropped before it is over, nobody waits for it any more.
struct Asking<'a> {
    family: Family,
    trace: &'a DialTrace,
    over: bool,
}

impl<'a> Asking<'a> {
    fn start(name: &Arc<str>, family: Family, now: Instant, trace: &'a DialTrace) -> Self {
        trace.emit_at(now, Event::DnsStart { name: name.clone(), family });
        Self { family, trace, over: false }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.trace.emit(Event::DnsCancelled { family: self.family });
        }
    }
}

/// Whether there can be a peer: DNS may list addresses that mean "any", or many, or need a scope it cannot give.
fn is_worth_dialling(ip: &IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_unicast_link_local(),
    }
}

/// What came of the lookups, to explain a race without a winner.
#[derive(Default)]
pub(super) struct Lookups {
    /// The one that is worth telling.
    failed: Mutex<Option<Arc<ResolveError>>>,
    denied: Mutex<Option<IpAddr>>,
    answered: AtomicBool,
}

impl Lookups {
    /// That there is no such name is worth the most, that it has no addresses of a family the least.
    fn failed(&self, error: Arc<ResolveError>) {
        let worth = |error: &ResolveError| match error.kind() {
            ResolveErrorKind::NoData => 0,
            kind if !kind.is_negative() => 1,
            _ => 2,
        };
        let mut told = lock(&self.failed);
        if told.as_ref().is_none_or(|told| worth(told) <= worth(&error)) {
            *told = Some(error);
        }
    }

    fn denied(&self, ip: Option<IpAddr>) {
        let mut denied = lock(&self.denied);
        *denied = denied.or(ip);
    }

    /// What is worth telling: an address that failed rather than a lookup, a failure rather than "no addresses".
    pub(super) fn explain(&self, failed: Vec<Failed>) -> ConnectError {
        let denied = *lock(&self.denied);
        if let Some(denied) = denied.filter(|_| failed.is_empty()) {
            return ConnectError::Denied(denied);
        }
        if !failed.is_empty() || self.answered.load(Ordering::Relaxed) {
            return ConnectError::Refused(failed);
        }
        match lock(&self.failed).take() {
            Some(error) => ConnectError::Resolve(Arc::unwrap_or_clone(error)),
            None => ConnectError::Refused(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_peer_are_not_worth_dialling() {
        let useless = ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1", "fe80::1", "::ffff:0.0.0.0"];
        assert!(useless.iter().all(|ip| !is_worth_dialling(&ip.parse().unwrap())));
        let useful = ["127.0.0.1", "10.0.0.1", "::1", "2001:db8::1", "fd00::1", "::ffff:192.0.2.1"];
        assert!(useful.iter().all(|ip| is_worth_dialling(&ip.parse().unwrap())));
    }
}
