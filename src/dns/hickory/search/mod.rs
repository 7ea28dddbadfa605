//! The lookup of a name: its turn, its time, and the search for the full name that it stands for.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::PoolContext;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;
use tokio::sync::Semaphore;

use super::servers::group::{Question, ServerGroup};
use super::servers::tries::HEAD_START;
use super::system::config::Plan;
use super::system::resolv_conf::Skipped;
use crate::clock::{Instant, before, now};
use crate::dns::answer::Place;
use crate::dns::hickory::search::verdict::candidates;
use crate::dns::hickory::servers::ServerLimits;
use crate::dns::resolve::Asking;
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind};
use crate::sync::lock;
use questions::Questions;
use verdict::{FamilyOutcome, Verdict, decide, merge};

/// The time after which a lookup without an answer is a slow one.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// The time for which a name is still asked for IPv6 after an NXDOMAIN for IPv4. NXDOMAIN counts for both families
/// (RFC 8020), but not every server knows that.
const NXDOMAIN_CHECK_TIMEOUT: Duration = Duration::from_millis(50);

/// Resolves names by a [`Plan`].
pub(super) struct SearchResolver {
    pub(super) servers: Arc<ServerGroup>,
    /// The plan, without what was left out of resolv.conf.
    plan: Plan,
    questions: Questions,
    skipped: Mutex<Vec<Skipped>>,
    limits: ServerLimits,
    /// One permit for each lookup that asks. Each lookup has a socket or more, and a burst of them would overrun the servers'
    /// receive buffers.
    turns: Semaphore,
    /// One permit for each slow lookup. It has given back its turn, so that it holds up no others.
    slow_turns: Semaphore,
}

impl SearchResolver {
    pub(super) fn new(mut plan: Plan, limits: ServerLimits, context: &Arc<PoolContext>) -> Result<Self, NetError> {
        let max_in_flight = limits.max_in_flight.clamp(1, Semaphore::MAX_PERMITS);
        Ok(Self {
            servers: Arc::new(ServerGroup::new(&plan.servers, plan.is_assumed, plan.options.rotate, limits, context)?),
            skipped: Mutex::new(std::mem::take(&mut plan.skipped)),
            plan,
            questions: Questions::default(),
            limits,
            turns: Semaphore::new(max_in_flight),
            slow_turns: Semaphore::new(max_in_flight),
        })
    }

    /// Returns true if servers are asked for this family.
    pub(super) fn asks_for(&self, family: Family) -> bool {
        self.plan.only.is_none_or(|only| only == family)
    }

    /// Returns the words of resolv.conf that were left out, once.
    pub(super) fn take_skipped(&self) -> Vec<Skipped> {
        std::mem::take(&mut *lock(&self.skipped))
    }

    /// Looks a name up within the limits, once it is its turn.
    ///
    /// A slow lookup gives its turn to another one and goes on, so that servers that are silent about some names do not hold
    /// up the others. It fails if there are too many slow ones already.
    pub(super) async fn lookup(
        &self,
        parsed: &Name,
        name: &str,
        family: Family,
        asking: &Asking,
    ) -> Result<Answer, ResolveError> {
        let turn = self.turns.acquire().await.expect("the semaphore is never closed");
        let start = now();
        // Boxed only now, so that the lookups that wait for their turn are small.
        let mut search = Box::pin(self.search(parsed, name, family, asking, start + self.limits.total_timeout));
        if let Some(result) = before(Some(start + SLOW_AFTER), &mut search).await {
            return result;
        }
        let slow_turn = self.slow_turns.try_acquire();
        drop(turn);
        match slow_turn {
            Ok(_slow_turn) => search.await,
            Err(_) => {
                let error = ResolveError::new(ResolveErrorKind::Timeout, name, family);
                Err(error.with_cause("too many other lookups are slow"))
            }
        }
    }

    /// Asks for one candidate after the other, until one of them has addresses in this family or in the other. The name stands for that
    /// one in both families.
    ///
    /// Where the cache knows addresses of the name, a later server's "does not exist" for their candidate ends the search, and a silent
    /// server about a candidate before that one does not.
    async fn search(
        &self,
        parsed: &Name,
        name: &str,
        family: Family,
        asking: &Asking,
        deadline: Instant,
    ) -> Result<Answer, ResolveError> {
        let mut candidates: VecDeque<_> =
            candidates(&self.plan.suffixes, &self.plan.options, parsed).into_iter().enumerate().collect();
        let is_single = candidates.len() == 1;
        let known = asking.known.filter(|known| usize::from(known.candidate) < candidates.len());
        let mut merged: Option<ResolveError> = None;
        let mut searched = 0;
        let mut place = Place::default();
        while let Some((index, candidate)) = candidates.pop_front() {
            place.candidate = u8::try_from(index).unwrap_or(u8::MAX);
            let question = Question { full_name: &candidate.name, name, family, place, late: asking.late.as_ref() };
            if is_single {
                return if self.plan.options.single_request {
                    self.ask(question, deadline).await
                } else {
                    self.servers.ask(question, deadline).await
                };
            }
            let has_failed = merged.as_ref().is_some_and(|merged| !merged.kind().is_negative());
            let is_before_known = known.is_some_and(|known| place.candidate < known.candidate);
            // A candidate that the name does not stand for has no more than one try's time.
            let end = if is_before_known { deadline.min(now() + self.limits.try_timeout) } else { deadline };
            let result = match self.remembered_miss(question) {
                Some(error) => Err(error),
                None => {
                    let result = self.ask(question, end).await;
                    let is_missing = |error: &ResolveError| error.kind() == ResolveErrorKind::NxDomain;
                    searched += u32::from(result.as_ref().is_err_and(is_missing));
                    result
                }
            };
            let error = match result {
                Ok(answer) => return Ok(answer.after_names(searched)),
                Err(error) => error,
            };
            if error.kind().is_silence() {
                if !is_before_known {
                    return Err(error);
                }
                merged = Some(merge(merged, error));
                continue;
            }
            if candidates.is_empty() && !has_failed {
                return Err(merge(merged, error));
            }
            let (verdict, at) = self.verdict(question, &error, deadline).await;
            match verdict {
                Verdict::Choose => return Err(as_existing(error).with_place(at)),
                Verdict::Fail(kind) if is_before_known => {
                    merged = Some(merge(merged, ResolveError::new(kind, name, family)));
                    continue;
                }
                Verdict::Fail(kind) => return Err(ResolveError::new(kind, name, family)),
                Verdict::Skip | Verdict::SkipToBare
                    if known.is_some_and(|known| known.candidate == place.candidate && known.outweighs_no(at)) =>
                {
                    return Err(error.with_place(at));
                }
                Verdict::SkipToBare if !candidate.is_bare => candidates.retain(|(_, candidate)| candidate.is_bare),
                Verdict::SkipToBare | Verdict::Skip => {}
            }
            place.server = at.server;
            merged = Some(merge(merged, error.with_place(at)));
        }
        Err(merged.unwrap_or_else(|| ResolveError::new(ResolveErrorKind::InvalidName, name, family)))
    }

    /// Asks the servers about a full name, and remembers the outcome.
    async fn ask(&self, question: Question<'_>, deadline: Instant) -> Result<Answer, ResolveError> {
        // A question that comes this much later than the one about the other family is not lost.
        let turn = self.plan.options.single_request.then(|| deadline.min(now() + HEAD_START));
        let asking = self.servers.ask(question, deadline);
        self.questions.ask((question.full_name, question.family), turn, asking).await
    }

    /// Returns the negative answer for a candidate that the search for the other family got a moment ago.
    fn remembered_miss(&self, question: Question<'_>) -> Option<ResolveError> {
        let Question { full_name, name, family, .. } = question;
        let outcome = self.questions.recall(now(), full_name, family)?;
        let place = Place { server: outcome.place.server.max(question.place.server), ..question.place };
        let error = ResolveError::new(outcome.absence()?, name, family);
        Some(error.with_negative_ttl(outcome.negative_ttl).with_place(place))
    }

    /// Decides about a candidate whose question ended with `error`. Returns the decision, and the place of the words that it is made of.
    async fn verdict(&self, question: Question<'_>, error: &ResolveError, deadline: Instant) -> (Verdict, Place) {
        let (other, place) = self.ask_other_family(question, error.kind(), deadline).await;
        let verdict = match question.family {
            Family::V4 => decide(Err(error.kind()), other),
            Family::V6 => decide(other, Err(error.kind())),
        };
        (verdict, Place { server: error.place().server.max(place.server), ..question.place })
    }

    /// Returns the outcome for a candidate in the family that was not asked for: remembered, by the question of the other
    /// family's lookup, or by a question of its own. `error` is the outcome in the family that was.
    async fn ask_other_family(
        &self,
        asked: Question<'_>,
        error: ResolveErrorKind,
        deadline: Instant,
    ) -> (FamilyOutcome, Place) {
        let family = asked.family.other();
        if !self.asks_for(family) {
            return (Err(ResolveErrorKind::NoData), Place::default());
        }
        let end = match (family, error) {
            (Family::V4, _) => deadline,
            (Family::V6, ResolveErrorKind::NxDomain) => deadline.min(now() + NXDOMAIN_CHECK_TIMEOUT),
            (Family::V6, _) => deadline.min(now() + self.limits.try_timeout),
        };
        let question = Question { family, late: None, ..asked };
        // The other family's lookup may run on a runtime that is not driven, so its question is not waited for without end.
        let give_up = end.min(now() + HEAD_START);
        if let Some(outcome) = self.questions.outcome(asked.full_name, family, give_up).await {
            return (outcome.family, outcome.place);
        }
        if end <= now() {
            return (Err(ResolveErrorKind::Timeout), Place::default());
        }
        match before(Some(end), pin!(self.ask(question, deadline))).await {
            None => (Err(ResolveErrorKind::Timeout), Place::default()),
            Some(Ok(answer)) => (Ok(()), answer.place()),
            Some(Err(error)) => (Err(error.kind()), error.place()),
        }
    }
}

/// Changes the error of a candidate that has addresses in the other family: "does not exist" becomes "no addresses".
fn as_existing(error: ResolveError) -> ResolveError {
    if error.kind() != ResolveErrorKind::NxDomain {
        return error;
    }
    ResolveError::new(ResolveErrorKind::NoData, error.name(), error.family()).with_negative_ttl(error.negative_ttl())
}

mod questions;
#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
pub(super) mod verdict;
