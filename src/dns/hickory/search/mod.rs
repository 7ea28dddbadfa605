//! The lookup of a name: its turn, its time, and the search for the full name that it stands for.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;
use tokio::sync::Semaphore;

use super::servers::client::ClientFactory;
use super::servers::group::{Question, ServerGroup};
use super::servers::server::Endpoint;
use super::servers::tries::HEAD_START;
use super::system::limits::Limits;
use super::system::resolv_conf::Skipped;
use crate::clock::{Instant, before, now};
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind};
use crate::sync::lock;
use candidate_memory::CandidateMemory;
use chosen_candidates::ChosenCandidates;
use list::{Candidate, SearchList};
use questions_in_flight::QuestionsInFlight;
use verdict::{FamilyOutcome, Verdict, decide, is_silence, merge};

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
    pub(super) servers: Arc<ServerGroup>,
    pub(super) search_list: SearchList,
    /// The recent outcomes for candidates of names that have several.
    memory: Mutex<CandidateMemory>,
    /// The candidates that names stood for lately.
    pub(super) chosen: Mutex<ChosenCandidates>,
    in_flight: QuestionsInFlight,
    only: Option<Family>,
    skipped: Mutex<Vec<Skipped>>,
    pub(super) limits: Limits,
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
            servers: Arc::new(ServerGroup::new(servers, is_assumed, rotate, single_request, limits, factory)?),
            search_list,
            memory: Mutex::default(),
            chosen: Mutex::default(),
            in_flight: QuestionsInFlight::default(),
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
            Err(_) => {
                let error = ResolveError::new(ResolveErrorKind::Timeout, name, family);
                Err(error.with_cause("too many other lookups are slow"))
            }
        }
    }

    /// Asks for the full name that `parsed` stands for: the candidate that an earlier search has chosen, or the one that this
    /// search chooses.
    async fn search(
        &self,
        parsed: &Name,
        name: &str,
        family: Family,
        deadline: Instant,
    ) -> Result<Answer, ResolveError> {
        let candidates = self.search_list.candidates(parsed);
        if let [Candidate { name: full_name, .. }] = &candidates[..] {
            return self.servers.ask(Question { full_name, name, family }, deadline).await;
        }
        let chosen = lock(&self.chosen).recall(now(), parsed).cloned();
        if let Some(full_name) = &chosen {
            if let Some(result) = self.ask_chosen(Question { full_name, name, family }, deadline).await {
                return result;
            }
            lock(&self.chosen).forget(parsed);
        }
        self.search_all(parsed, candidates.into(), name, family, deadline).await
    }

    /// Asks for a candidate that was chosen by an earlier search. Returns `None` if it has no addresses in either family any
    /// more, so that the list has to be searched again.
    async fn ask_chosen(&self, question: Question<'_>, deadline: Instant) -> Option<Result<Answer, ResolveError>> {
        let error = match self.ask(question, deadline).await {
            Ok(answer) => return Some(Ok(answer)),
            Err(error) => error,
        };
        if is_silence(error.kind()) {
            return Some(Err(error));
        }
        let other = question.family.other();
        let is_other_unknown =
            self.asks_for(other) && lock(&self.memory).recall(now(), question.full_name, other).is_none();
        if error.kind() == ResolveErrorKind::NoData && is_other_unknown {
            // The name exists. If it has lost its addresses of the other family as well, the lookup for that one notices it.
            return Some(Err(error));
        }
        match self.verdict(question, error.kind(), deadline).await {
            Verdict::Choose => Some(Err(as_existing(error))),
            Verdict::Fail(kind) => Some(Err(ResolveError::new(kind, question.name, question.family))),
            Verdict::Skip | Verdict::SkipToBare => None,
        }
    }

    /// Asks for one candidate after the other, until one of them has addresses in this family or in the other. The name
    /// stands for that one, and the result is its answer in this family.
    ///
    /// Each family's lookup searches by itself, so that a slow family does not hold up the other one. Both come to the same
    /// candidate, because each asks for both families, or remembers what the other has learnt.
    async fn search_all(
        &self,
        parsed: &Name,
        mut candidates: VecDeque<Candidate>,
        name: &str,
        family: Family,
        deadline: Instant,
    ) -> Result<Answer, ResolveError> {
        let mut merged: Option<ResolveError> = None;
        let mut searched = 0;
        while let Some(candidate) = candidates.pop_front() {
            let question = Question { full_name: &candidate.name, name, family };
            let has_failed = merged.as_ref().is_some_and(|merged| !merged.kind().is_negative());
            let result = match self.remembered_miss(question) {
                Some(error) => Err(error),
                None => {
                    let result = self.ask(question, deadline).await;
                    let is_missing = |error: &ResolveError| error.kind() == ResolveErrorKind::NxDomain;
                    searched += u32::from(result.as_ref().is_err_and(is_missing));
                    result
                }
            };
            let error = match result {
                Ok(answer) => {
                    self.note_choice(parsed, &candidate, has_failed);
                    return Ok(answer.after_names(searched));
                }
                Err(error) => error,
            };
            if is_silence(error.kind()) {
                return Err(error);
            }
            if candidates.is_empty() && !has_failed {
                return Err(merge(merged, error));
            }
            match self.verdict(question, error.kind(), deadline).await {
                Verdict::Choose => {
                    self.note_choice(parsed, &candidate, has_failed);
                    return Err(as_existing(error));
                }
                Verdict::Fail(kind) => return Err(ResolveError::new(kind, name, family)),
                Verdict::SkipToBare if !candidate.is_bare => candidates.retain(|candidate| candidate.is_bare),
                Verdict::SkipToBare | Verdict::Skip => {}
            }
            merged = Some(merge(merged, error));
        }
        Err(merged.unwrap_or_else(|| ResolveError::new(ResolveErrorKind::InvalidName, name, family)))
    }

    /// Remembers the candidate that a name stands for, unless the servers failed to answer for one in front of it.
    fn note_choice(&self, parsed: &Name, candidate: &Candidate, has_failed: bool) {
        if !has_failed {
            lock(&self.chosen).note(now(), parsed, &candidate.name);
        }
    }

    /// Asks the servers about a candidate, and remembers the outcome.
    async fn ask(&self, question: Question<'_>, deadline: Instant) -> Result<Answer, ResolveError> {
        let _in_flight = self.in_flight.begin(question.full_name, question.family);
        let result = self.servers.ask(question, deadline).await;
        lock(&self.memory).note(now(), question.full_name, question.family, &result);
        result
    }

    /// Returns the negative answer for a candidate that an earlier search got, with what is left of its time.
    fn remembered_miss(&self, question: Question<'_>) -> Option<ResolveError> {
        let Question { full_name, name, family } = question;
        let (kind, left) = lock(&self.memory).recall_miss(now(), full_name, family)?;
        Some(ResolveError::new(kind, name, family).with_negative_ttl(Some(left)))
    }

    /// Decides about a candidate whose question ended with `error`.
    async fn verdict(&self, question: Question<'_>, error: ResolveErrorKind, deadline: Instant) -> Verdict {
        let other = self.ask_other_family(question, error, deadline).await;
        match question.family {
            Family::V4 => decide(Err(error), other),
            Family::V6 => decide(other, Err(error)),
        }
    }

    /// Returns the outcome for a candidate in the family that was not asked for: remembered, by the question of the other
    /// family's lookup, or by a question of its own. `error` is the outcome in the family that was.
    async fn ask_other_family(&self, asked: Question<'_>, error: ResolveErrorKind, deadline: Instant) -> FamilyOutcome {
        let family = asked.family.other();
        if !self.asks_for(family) {
            return Err(ResolveErrorKind::NoData);
        }
        let end = match (family, error) {
            (Family::V4, _) => deadline,
            (Family::V6, ResolveErrorKind::NxDomain) => deadline.min(now() + NXDOMAIN_CHECK_TIMEOUT),
            (Family::V6, _) => deadline.min(now() + self.limits.try_timeout),
        };
        let question = Question { family, ..asked };
        // The other family's lookup may run on a runtime that is not driven, so its question is not waited for without end.
        let give_up = end.min(now() + HEAD_START);
        loop {
            let ended = self.in_flight.ended();
            if let Some(outcome) = lock(&self.memory).recall(now(), asked.full_name, family) {
                return outcome;
            }
            let is_in_flight = self.in_flight.contains(asked.full_name, family);
            if !is_in_flight || before(Some(give_up), pin!(ended)).await.is_none() {
                break;
            }
        }
        if end <= now() {
            return Err(ResolveErrorKind::Timeout);
        }
        let result = before(Some(end), pin!(self.ask(question, deadline))).await;
        let Some(result) = result else { return Err(ResolveErrorKind::Timeout) };
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

pub(super) mod candidate_memory;
pub(super) mod chosen_candidates;
pub(super) mod list;
pub(super) mod questions_in_flight;
#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
pub(super) mod verdict;
