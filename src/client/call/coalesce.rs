//! A stream of an open connection that was opened for another origin (RFC 9113 §9.1.1), for a request that would wait for a dial.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use super::state::Call;
use crate::client::coalescing::{Candidate, Candidates, Coalescing};
use crate::client::dialer::Dialer;
use crate::clock::{self, Instant};
use crate::connect::Connector;
use crate::error::{Error, Result};
use crate::pool::{Lease, Wish};
use crate::trace::{DnsLookup, Event, Family, Trace};

/// The longest that the second family's addresses are waited for after the first one's, which a dial could use (RFC 8305 §3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// Leases a connection for the call if there is a free one of its own origin, or one of another origin that may carry the request.
/// Returns the time, which has passed if the addresses of the host had to be looked up.
///
/// # Errors
/// The deadline of the call or its limit for connecting passed during the lookup, or the pool drains and the call is new.
pub(super) async fn lease(
    call: &mut Call<'_>,
    coalescing: &Coalescing,
    wish: &Wish,
    now: Instant,
    held: &mut Option<Lease<Dialer>>,
) -> Result<Instant> {
    call.opened_for = None;
    // A resend leaves the connection on which it failed, and an upgrade may take its connection over.
    if wish.failed.is_some() || wish.avoid.is_some() || call.request.asks_for_upgrade() {
        return Ok(now);
    }
    let connector = call.client.pool.dialer().connector_for(&call.request.key().origin);
    let Some(candidates) = coalescing.candidates(call.request.key(), &connector) else { return Ok(now) };
    let wish = Wish { despite_drain: !call.is_new, ..*wish };
    if let Some(own) = call.client.pool.checkout_ready(call.request.key(), &wish, now) {
        call.is_new = false;
        *held = Some(own);
        return Ok(now);
    }
    let Some(candidates) = candidates.with_valid_certificate() else { return Ok(now) };
    let key = call.request.key();
    if !connector.is_direct(&key.origin, key.proxy.as_ref()) {
        return Ok(now);
    }
    let (reached, now) = at_its_addresses(call, &connector, &candidates, now).await?;
    for candidate in reached {
        if let Some(lent) = call.client.pool.lend(candidate.id, now) {
            call.is_new = false;
            call.opened_for = Some(candidate.origin);
            *held = Some(lent);
            break;
        }
    }
    Ok(now)
}

/// Returns the connections that lead to an address of the request's host, and the time.
async fn at_its_addresses(
    call: &mut Call<'_>,
    connector: &Connector,
    candidates: &Candidates,
    now: Instant,
) -> Result<(Vec<Candidate>, Instant)> {
    if let Some(sockets) = connector.pinned_sockets(&candidates.origin) {
        return Ok((candidates.at_sockets(&sockets), now));
    }
    let (with_candidates, others): (Vec<Family>, Vec<Family>) =
        connector.families().iter().partition(|family| candidates.have(**family));
    let mut known: Vec<IpAddr> = Vec::new();
    let mut asked = Vec::new();
    for family in with_candidates {
        match connector.addresses_of(now, &candidates.name, family) {
            Either::Left(addresses) => known.extend(addresses.iter()),
            Either::Right(lookup) => asked.push((family, lookup)),
        }
    }
    let reached = candidates.at_addresses(&known);
    // Without a runtime there is no timer for the wait, and no dial either.
    if !reached.is_empty() || asked.is_empty() || Handle::try_current().is_err() {
        return Ok((reached, now));
    }
    // A dial would begin with the addresses of either family.
    for family in others {
        match connector.addresses_of(now, &candidates.name, family) {
            Either::Left(addresses) => known.extend(addresses.iter()),
            Either::Right(lookup) => asked.push((family, lookup)),
        }
    }
    call.enter()?;
    let mut lookups = TracedLookups { trace: &call.trace, open: Vec::new() };
    asked.iter().for_each(|(family, _)| lookups.start(now, candidates, *family));
    let mut pending: FuturesUnordered<_> = asked.into_iter().map(|(_, lookup)| lookup).collect();
    let limit = call.limit(|limits| limits.connect).unwrap_or(connector.timeout);
    let end = now.checked_add(limit);
    let deadline = call.deadline.map(|deadline| deadline.at);
    let mut until = end.into_iter().chain(deadline).min();
    let mut has_answer = !known.is_empty();
    loop {
        if has_answer {
            until = until.into_iter().chain(clock::now().checked_add(RESOLUTION_DELAY)).min();
        }
        let Some(next) = call.client.deadlines.before(until, pending.next()).await else { break };
        let now = clock::now();
        let Some(lookup) = next else { return Ok((Vec::new(), now)) };
        let reached = candidates.at_addresses(&lookup.addresses);
        has_answer |= !lookup.addresses.is_empty();
        lookups.end(now, lookup);
        if !reached.is_empty() {
            return Ok((reached, now));
        }
    }
    let now = clock::now();
    drop(lookups);
    call.check_deadline(now)?;
    if end.is_some_and(|end| end <= now) {
        return Err(Error::stalled(call.trace.phase(), "no connection", limit));
    }
    Ok((Vec::new(), now))
}

/// Lookups of a call. Those that are dropped before their answer are traced as cancelled.
struct TracedLookups<'a> {
    trace: &'a Trace,
    open: Vec<Family>,
}

impl TracedLookups<'_> {
    fn start(&mut self, now: Instant, candidates: &Candidates, family: Family) {
        self.trace.emit_at(now, Event::DnsStart { name: candidates.name.clone(), family });
        self.open.push(family);
    }

    fn end(&mut self, now: Instant, lookup: DnsLookup) {
        self.open.retain(|family| *family != lookup.family);
        self.trace.emit_at(now, Event::DnsEnd(lookup));
    }
}

impl Drop for TracedLookups<'_> {
    fn drop(&mut self) {
        for &family in &self.open {
            self.trace.emit(Event::DnsCancelled { family });
        }
    }
}
