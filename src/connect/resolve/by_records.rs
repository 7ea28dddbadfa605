//! Dials by HTTPS records (RFC 9460): the endpoints that they name, then the origin's own addresses.
//!
//! | question | see |
//! |---|---|
//! | Which origins are asked about? | [`Connector::asks_for_https_records`] |
//! | How long are the records waited for? | [`Connector::endpoints`] |
//! | Which endpoints follow from them? | `dns/https/resolution.rs` |
//! | How much time does each endpoint have? | [`share_of_time`] |
//! | When are the addresses in a record dialled? | [`Connector::dial_endpoint`] |

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;

use super::lookup::{Answers, Lookup};
use crate::clock::{self, Instant};
use crate::connect::conn::connected::ConnectedStream;
use crate::connect::error::ConnectError;
use crate::connect::proxy::choice::ProxyChoice;
use crate::connect::{Connector, DialFailed, DialTarget, DialTerms};
use crate::dns::ResolveErrorKind;
use crate::dns::{Abilities, Endpoint, Resolution, Step};
use crate::origin::{Host, Origin, Scheme};
use crate::trace::{DialTrace, Event, Family};

/// The longest that records are waited for once there are addresses: as long as for the addresses of the other family (RFC 8305
/// §3). A quarter of the time that is left at most.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

impl Connector {
    /// Returns true if the HTTPS records of `origin` are asked for: those of a name, unless the user has set its addresses.
    pub(in crate::connect) fn asks_for_https_records(&self, origin: &Origin) -> bool {
        let is_name = || matches!(origin.host(), Host::Name(_)) && self.pins.of(origin.host()).is_none();
        self.https_records.is_enabled && origin.scheme() == Scheme::Https && is_name()
    }

    /// Connects to an endpoint of the records, or to the origin's own addresses if there are none or if none of them works
    /// (RFC 9460 §3).
    pub(in crate::connect) async fn connect_by_records(
        &self,
        origin: &Origin,
        lookup: &Lookup<'_>,
        terms: &DialTerms,
        trace: &DialTrace,
    ) -> Result<ConnectedStream, ConnectError> {
        let families = self.families_of(origin);
        let mut answers = lookup.answers(origin.host(), families, terms.start);
        let endpoints = self.endpoints(origin, lookup, &mut answers, terms, trace).await;
        let targets = targets(origin, endpoints);
        let mut answers = Some(answers);
        let mut failed = DialFailed::default();
        for (index, (target, endpoint)) in targets.iter().enumerate() {
            let terms = DialTerms { start: clock::now(), ..*terms };
            let terms = &share_of_time(terms, targets.len() - index);
            // What is known of the origin's name is of use only for that name.
            let answers = match answers.take().filter(|_| target.host() == origin.host()) {
                Some(answers) => answers,
                None => lookup.answers(target.host(), families, terms.start),
            };
            if let Some(Endpoint { priority, host, port, .. }) = endpoint {
                let host = host.trim_end_matches('.').into();
                trace.emit(Event::EndpointChosen { host, port: *port, priority: *priority });
            }
            let hints = endpoint.as_ref().map_or(&[][..], |endpoint| &endpoint.hints);
            let target = DialTarget {
                endpoint: target,
                hello_keys: endpoint.as_ref().and_then(|endpoint| endpoint.ech.as_deref()),
                lookup: if endpoint.is_none() { Some(lookup) } else { None },
            };
            let dial = pin!(self.dial_endpoint(origin, target, hints, (lookup, answers), terms, trace));
            // The last one has all that is left, and the connect timeout ends it.
            let is_last = index + 1 == targets.len();
            match clock::before(if is_last { None } else { terms.end }, dial).await {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(more)) => failed.add(more),
                // Its share of the time is over.
                None => {}
            }
            if self.failed_by_exhaustion(&failed.addresses) {
                break;
            }
        }
        Err(self.explain(lookup, failed))
    }

    /// Looks up the records beside the addresses. Returns the endpoints that follow from them; none if they come more than the
    /// resolution delay after the first addresses.
    ///
    /// Without addresses there is nothing else to dial, so the records are waited for until the connect timeout, unless the name
    /// does not exist.
    async fn endpoints(
        &self,
        origin: &Origin,
        lookup: &Lookup<'_>,
        answers: &mut Answers<'_>,
        terms: &DialTerms,
        trace: &DialTrace,
    ) -> Vec<Endpoint> {
        let Host::Name(name) = origin.host() else { return Vec::new() };
        tokio::select! {
            biased;
            endpoints = self.resolve_endpoints(name, origin.port(), terms.start, Some(trace)) => endpoints,
            () = resolution_delay(answers, lookup, terms.end) => Vec::new(),
        }
    }

    /// Follows the records of a name to endpoints. What is cached is known at `now`.
    async fn resolve_endpoints(
        &self,
        name: &Arc<str>,
        port: u16,
        mut now: Instant,
        trace: Option<&DialTrace>,
    ) -> Vec<Endpoint> {
        let abilities = Abilities { protocols: self.versions.alpn(), uses_ech: self.https_records.encrypts_hello };
        let mut resolution = Resolution::new(name, port, abilities);
        loop {
            let mut end = LookupEnd { name: resolution.name().clone(), start: now, records: None, trace };
            let outcome = match self.resolver.lookup_https_at(now, resolution.name()) {
                Either::Left(outcome) => outcome,
                Either::Right(pending) => pending.await,
            };
            end.records = outcome.as_ref().ok().map(|records| records.len());
            drop(end);
            let records = outcome.as_deref().unwrap_or_default();
            match resolution.step(records, &mut fastrand::Rng::new()) {
                Step::Ask(_) => now = clock::now(),
                Step::Done(endpoints) => return endpoints,
            }
        }
    }

    /// Connects to an endpoint. Until its addresses are known, those in its record are dialled; what DNS says outweighs them
    /// (RFC 9460 §7.3).
    async fn dial_endpoint(
        &self,
        origin: &Origin,
        target: DialTarget<'_>,
        hints: &[IpAddr],
        (lookup, mut answers): (&Lookup<'_>, Answers<'_>),
        terms: &DialTerms,
        trace: &DialTrace,
    ) -> Result<ConnectedStream, DialFailed> {
        let mut failed = DialFailed::default();
        let is_known = answers.known().any(|(_, addresses, _)| !addresses.is_empty());
        let hinted = if is_known { None } else { lookup.hinted(hints, self.families_of(target.endpoint), terms.start) };
        if let Some(hinted) = hinted {
            tokio::select! {
                biased;
                () = std::future::poll_fn(|cx| poll_contradiction(&mut answers, hints, cx)) => {}
                dialled = self.dial(origin, target, hinted, terms, trace) => match dialled {
                    Ok(connected) => return Ok(connected),
                    Err(more) => failed.add(more),
                },
            }
        }
        let terms = &DialTerms { start: clock::now(), ..*terms };
        match self.dial(origin, target, answers, terms, trace).await {
            Ok(connected) => Ok(connected),
            Err(more) => {
                failed.add(more);
                Err(failed)
            }
        }
    }
}

/// Requests to `http` URLs of names that have HTTPS records (RFC 9460 §9.5).
impl Connector {
    /// Returns true if the service of an `http` origin can be reached by `https`, as its records say. A request with a proxy goes
    /// by that. What is cached is known at `now`.
    pub(crate) async fn has_https_service(&self, origin: &Origin, choice: Option<&ProxyChoice>, now: Instant) -> bool {
        let Host::Name(name) = origin.host() else { return false };
        let server = match choice {
            Some(choice) => choice.find(origin),
            None => self.proxies.find(origin),
        };
        if !matches!(server, Ok(None)) || self.pins.of(origin.host()).is_some() {
            return false;
        }
        let port = if origin.port() == 80 { 443 } else { origin.port() };
        let end = now.checked_add(self.timeout);
        let endpoints = pin!(async {
            tokio::select! {
                biased;
                endpoints = self.resolve_endpoints(name, port, now, None) => endpoints,
                () = self.delay_after_addresses(origin, name) => Vec::new(),
            }
        });
        clock::before(end, endpoints).await.is_some_and(|endpoints| !endpoints.is_empty())
    }

    /// Looks up the addresses of a name, which the request will need, and ends at the resolution delay after the first of them,
    /// or at once if the name does not exist.
    async fn delay_after_addresses(&self, origin: &Origin, name: &str) {
        let families = self.families_of(origin);
        let mut lookups: FuturesUnordered<_> =
            families.iter().map(|family| self.resolver.lookup(name, *family)).collect();
        let mut exists = true;
        while let Some(outcome) = lookups.next().await {
            match outcome {
                Ok(_) => return tokio::time::sleep(RESOLUTION_DELAY).await,
                Err(error) => exists &= error.kind() != ResolveErrorKind::NxDomain,
            }
        }
        if exists {
            std::future::pending().await
        }
    }
}

impl DialFailed {
    /// Adds the failures of another dial. An address that failed in both is listed once.
    fn add(&mut self, more: Self) {
        self.has_tls_failed |= more.has_tls_failed;
        self.addresses.retain(|(address, _)| more.addresses.iter().all(|(other, _)| other != address));
        self.addresses.extend(more.addresses);
    }
}

/// Traces the end of a lookup of records, also of one that is no longer waited for.
struct LookupEnd<'a> {
    name: Arc<str>,
    start: Instant,
    records: Option<usize>,
    /// `None` for a lookup that belongs to no dial.
    trace: Option<&'a DialTrace>,
}

impl Drop for LookupEnd<'_> {
    fn drop(&mut self) {
        let Some(trace) = self.trace else { return };
        let now = clock::now();
        let event = Event::HttpsLookup { name: self.name.clone(), records: self.records, elapsed: now - self.start };
        trace.emit_at(now, event);
    }
}

/// Returns what to dial, each with its record: the endpoints, then the origin itself, unless it is one of them.
///
/// Where each endpoint has keys for an encrypted hello, the origin is left out: a dial without any would show the name to the
/// network (RFC 9848 §5.1).
fn targets(origin: &Origin, endpoints: Vec<Endpoint>) -> Vec<(Origin, Option<Endpoint>)> {
    let hides_name = !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.ech.is_some());
    let target = |endpoint: Endpoint| (origin.endpoint(&endpoint.host, endpoint.port), Some(endpoint));
    let mut targets: Vec<_> = endpoints.into_iter().map(target).collect();
    if !hides_name && targets.iter().all(|(target, _)| target != origin) {
        targets.push((origin.clone(), None));
    }
    targets
}

/// Gives a dial an equal share of the time that is left for `dials`.
fn share_of_time(terms: DialTerms, dials: usize) -> DialTerms {
    let dials = u32::try_from(dials).unwrap_or(u32::MAX);
    let end = terms.end.map(|end| terms.start + (end - terms.start) / dials);
    DialTerms { end, ..terms }
}

/// Ends at the resolution delay after the first addresses, or at once if the name does not exist. Keeps the answers.
async fn resolution_delay(answers: &mut Answers<'_>, lookup: &Lookup<'_>, end: Option<Instant>) {
    let known = std::future::poll_fn(|cx| poll_first_addresses(answers, lookup, cx)).await;
    let Some(known) = known else { return };
    let delay = end.map_or(RESOLUTION_DELAY, |end| RESOLUTION_DELAY.min((end - known) / 4));
    let mut delay = pin!(clock::sleep_until(known.checked_add(delay)));
    std::future::poll_fn(|cx| {
        answers.poll_known(cx);
        delay.as_mut().poll(cx)
    })
    .await;
}

/// Waits for the first addresses, and returns the time at which they were known; `None` if the name does not exist.
fn poll_first_addresses(answers: &mut Answers<'_>, lookup: &Lookup<'_>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
    answers.poll_known(cx);
    let with_addresses = answers.known().filter(|(_, addresses, _)| !addresses.is_empty());
    match with_addresses.map(|(_, _, known)| *known).min() {
        Some(known) => Poll::Ready(Some(known)),
        None if !answers.is_incomplete() && lookup.has_no_name() => Poll::Ready(None),
        None => Poll::Pending,
    }
}

/// Waits until DNS has answered with other addresses than those in the record.
fn poll_contradiction(answers: &mut Answers<'_>, hints: &[IpAddr], cx: &mut Context<'_>) -> Poll<()> {
    answers.poll_known(cx);
    let known = answers.known().map(|(family, addresses, _)| (*family, &**addresses));
    if is_contradiction(&known.collect::<Vec<_>>(), hints) { Poll::Ready(()) } else { Poll::Pending }
}

/// Returns true if one of the hints is not among the addresses of its family. A family without addresses says so only if the
/// other one has some; otherwise its lookup may have failed.
fn is_contradiction(known: &[(Family, &[IpAddr])], hints: &[IpAddr]) -> bool {
    let has_some = known.iter().any(|(_, addresses)| !addresses.is_empty());
    let is_missing = |hint: &IpAddr| {
        let of_family = known.iter().find(|(family, _)| *family == Family::of(*hint));
        of_family.is_some_and(|(_, addresses)| !addresses.contains(hint))
    };
    has_some && hints.iter().any(is_missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Known<'a> = &'a [(Family, &'a [IpAddr])];

    #[test]
    fn hints_count_until_dns_says_otherwise() {
        let [a, b, v6]: [IpAddr; 3] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        let (one, both): (&[IpAddr], &[IpAddr]) = (&[a], &[a, b]);
        let cases: [(Known<'_>, &[IpAddr], bool); 8] = [
            (&[], one, false),
            (&[(Family::V4, both)], one, false),
            (&[(Family::V4, one)], both, true),
            (&[(Family::V4, &[])], one, false),
            (&[(Family::V4, &[]), (Family::V6, &[v6])], one, true),
            (&[(Family::V6, &[v6])], one, false),
            (&[(Family::V4, one), (Family::V6, &[])], &[a, v6], true),
            (&[(Family::V4, one), (Family::V6, &[v6])], &[a, v6], false),
        ];
        for (known, hints, expected) in cases {
            assert_eq!(is_contradiction(known, hints), expected, "{known:?} {hints:?}");
        }
    }

    #[test]
    fn each_dial_has_a_share_of_the_time_that_is_left() {
        let start = clock::now();
        let terms = DialTerms { start, end: Some(start + Duration::from_secs(9)), first: None, avoid: None };
        assert_eq!(share_of_time(terms, 3).end, Some(start + Duration::from_secs(3)));
        assert_eq!(share_of_time(terms, 1).end, terms.end);
        assert_eq!(share_of_time(DialTerms { end: None, ..terms }, 3).end, None);
    }
}
