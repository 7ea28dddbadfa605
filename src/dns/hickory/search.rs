//! The lookup of a name: its turn, its time, and the search for the full name that it stands for.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;
use tokio::sync::Semaphore;

use super::candidate_memory::CandidateMemory;
use super::limits::Limits;
use super::resolv_conf::Skipped;
use super::search_list::SearchList;
use super::server::Endpoint;
use super::server_client::ClientFactory;
use super::server_group::{Question, ServerGroup};
use super::verdict::{FamilyOutcome, Verdict, decide, is_silence, merge};
use crate::clock::{Instant, before, now};
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind};
use crate::sync::lock;

/// The time after which a lookup without an answer is a slow one.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// The time for which a name is still asked for IPv6 after an NXDOMAIN for IPv4. NXDOMAIN counts for both families
/// (RFC 8020), but not every server knows that.
const NXDOMAIN_CHECK_TIMEOUT: Duration = Duration::from_millis(50);

/// The servers to ask, and the full names to ask them for, in order.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) servers: Vec<Endpoint>,
    /// True if no server is configured, and this machine is asked in case it is one.
    pub(super) is_assumed: bool,
    pub(super) search_list: SearchList,
    /// True if each question goes to the next server first.
    pub(super) rotate: bool,
    /// True if only one question about a name is asked at a time.
    pub(super) single_request: bool,
    /// The only family to ask for; `None` for both.
    pub(super) only: Option<Family>,
    /// The words of resolv.conf that were left out.
    pub(super) skipped: Vec<Skipped>,
}

/// Resolves names by a [`Plan`].
pub(super) struct SearchResolver {
    pub(super) servers: ServerGroup,
    search_list: SearchList,
    /// The recent outcomes for candidates of names that have several.
    memory: Mutex<CandidateMemory>,
    only: Option<Family>,
    skipped: Mutex<Vec<Skipped>>,
    limits: Limits,
    /// One permit for each lookup that asks. Each lookup has a socket or more, and a burst of them would overrun the servers'
    /// receive buffers.
    turns: Semaphore,
    /// One permit for each slow lookup. It has given back its turn, so that it holds up no others.
    slow_turns: Semaphore,
}

impl SearchResolver {
    pub(super) fn new(plan: Plan, limits: Limits, factory: ClientFactory) -> Result<Self, NetError> {
        let Plan { servers, is_assumed, search_list, rotate, single_request, only, skipped } = plan;
        let max_in_flight = limits.max_in_flight.clamp(1, Semaphore::MAX_PERMITS);
        Ok(Self {
            servers: ServerGroup::new(servers, is_assumed, rotate, single_request, limits, factory)?,
            search_list,
            memory: Mutex::default(),
            only,
            skipped: Mutex::new(skipped),
            limits,
            turns: Semaphore::new(max_in_flight),
            slow_turns: Semaphore::new(max_in_flight),
        })
    }

    /// Returns true if servers are asked for this family.
    pub(super) fn asks_for(&self, family: Family) -> bool {
        self.only.is_none_or(|only| only == family)
    }

    /// Returns the words of resolv.conf that were left out, once.
    pub(super) fn take_skipped(&self) -> Vec<Skipped> {
        std::mem::take(&mut *lock(&self.skipped))
    }

    /// Looks a name up within the limits, once it is its turn.
    ///
    /// A slow lookup gives its turn to another one and goes on, so that servers that are silent about some names do not hold
    /// up the others. It fails if there are too many slow ones already.
    pub(super) async fn lookup(&self, parsed: &Name, name: &str, family: Family) -> Result<Answer, ResolveError> {
        let turn = self.turns.acquire().await.expect("the semaphore is never closed");
        let start = now();
        // Boxed only now, so that the lookups that wait for their turn are small.
        let mut search = Box::pin(self.search(parsed, name, family, start + self.limits.total_timeout));
        if let Some(result) = before(Some(start + SLOW_AFTER), &mut search).await {
            return result;
        }
        let slow_turn = self.slow_turns.try_acquire();
        drop(turn);
        match slow_turn {
            Ok(_slow_turn) => search.await,
            Err(_) => Err(ResolveError::new(ResolveErrorKind::Timeout, name, family)),
        }
    }

    /// Asks for one candidate after the other, until one of them has addresses in this family or in the other. The name
    /// stands for that one, and the result is its answer in this family.
    ///
    /// Each family's lookup searches by itself, so that a slow family does not hold up the other one. Both come to the same
    /// candidate, because each asks for both families, or remembers what the other has learnt.
    async fn search(
        &self,
        parsed: &Name,
        name: &str,
        family: Family,
        deadline: Instant,
    ) -> Result<Answer, ResolveError> {
        let mut candidates = VecDeque::from(self.search_list.candidates(parsed));
        let is_search = candidates.len() > 1;
        let mut merged: Option<ResolveError> = None;
        while let Some(candidate) = candidates.pop_front() {
            let question = Question { full_name: &candidate.name, name, family };
            let result = self.servers.ask(question, deadline).await;
            if is_search {
                lock(&self.memory).note(now(), &candidate.name, family, &result);
            }
            let error = match result {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if is_silence(error.kind()) {
                return Err(error);
            }
            let has_failed = merged.as_ref().is_some_and(|merged| !merged.kind().is_negative());
            if candidates.is_empty() && !has_failed {
                return Err(merge(merged, error));
            }
            let own = Err(error.kind());
            let other = self.ask_other_family(question, error.kind(), deadline).await;
            let verdict = match family {
                Family::V4 => decide(own, other),
                Family::V6 => decide(other, own),
            };
            match verdict {
                Verdict::Choose => return Err(as_existing(error)),
                Verdict::Fail(kind) => return Err(ResolveError::new(kind, name, family)),
                Verdict::SkipToBare if !candidate.is_bare => candidates.retain(|candidate| candidate.is_bare),
                Verdict::SkipToBare | Verdict::Skip => {}
            }
            merged = Some(merge(merged, error));
        }
        Err(merged.unwrap_or_else(|| ResolveError::new(ResolveErrorKind::InvalidName, name, family)))
    }

    /// Returns the outcome for a candidate in the family that was not asked for: remembered, or by a question of its own.
    /// `error` is the outcome in the family that was.
    async fn ask_other_family(&self, asked: Question<'_>, error: ResolveErrorKind, deadline: Instant) -> FamilyOutcome {
        let family = asked.family.other();
        if !self.asks_for(family) {
            return Err(ResolveErrorKind::NoData);
        }
        if let Some(outcome) = lock(&self.memory).recall(now(), asked.full_name, family) {
            return outcome;
        }
        let end = match (family, error) {
            (Family::V4, _) => deadline,
            (Family::V6, ResolveErrorKind::NxDomain) => deadline.min(now() + NXDOMAIN_CHECK_TIMEOUT),
            (Family::V6, _) => deadline.min(now() + self.limits.try_timeout),
        };
        let question = Question { family, ..asked };
        let result = before(Some(end), pin!(self.servers.ask(question, deadline))).await;
        let Some(result) = result else { return Err(ResolveErrorKind::Timeout) };
        lock(&self.memory).note(now(), asked.full_name, family, &result);
        result.map(drop).map_err(|error| error.kind())
    }
}

/// Changes the error of a candidate that has addresses in the other family: "does not exist" becomes "no addresses".
fn as_existing(error: ResolveError) -> ResolveError {
    if error.kind() != ResolveErrorKind::NxDomain {
        return error;
    }
    ResolveError::new(ResolveErrorKind::NoData, error.name(), error.family()).with_negative_ttl(error.negative_ttl())
}

// A panic under these locks leaves nothing half changed.

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
