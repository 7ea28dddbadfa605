//! The recent outcomes for candidates of a search list. A core: it is given the time.

use std::collections::HashMap;
use std::time::Duration;

use hickory_resolver::proto::rr::Name;

use super::verdict::FamilyOutcome;
use crate::clock::Instant;
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind};

/// The most candidates that are remembered, each family counted.
const MAX_CANDIDATES: usize = 1_024;
/// The longest time for which addresses are remembered.
const MAX_TTL: Duration = Duration::from_secs(60 * 60);
/// The longest time for which a negative answer is remembered.
const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(30);
/// The time for a negative answer without an SOA record, and for a server's failure.
const DEFAULT_TTL: Duration = Duration::from_secs(1);

/// The recent outcomes for candidates. The search for one family does not ask again for what the other has learnt, and no
/// search asks again for a candidate that does not exist.
#[derive(Debug, Default)]
pub(in crate::dns::hickory) struct CandidateMemory(HashMap<(Name, Family), RememberedOutcome>);

#[derive(Debug)]
struct RememberedOutcome {
    outcome: FamilyOutcome,
    until: Instant,
}

impl CandidateMemory {
    /// Remembers the outcome for a candidate, for as long as its TTL allows. A failure of this machine is not remembered.
    pub(in crate::dns::hickory) fn note(
        &mut self,
        now: Instant,
        candidate: &Name,
        family: Family,
        outcome: &Result<Answer, ResolveError>,
    ) {
        let ttl = match outcome {
            Ok(answer) => answer.ttl().min(MAX_TTL),
            Err(error) if error.kind().is_negative() => {
                error.negative_ttl().unwrap_or(DEFAULT_TTL).min(MAX_NEGATIVE_TTL)
            }
            Err(error) if error.kind().is_local() => Duration::ZERO,
            Err(_) => DEFAULT_TTL,
        };
        if self.0.len() >= MAX_CANDIDATES {
            self.0.retain(|_, remembered| now < remembered.until);
        }
        if self.0.len() >= MAX_CANDIDATES {
            self.0.clear();
        }
        let outcome = outcome.as_ref().map(|_| ()).map_err(ResolveError::kind);
        self.0.insert((candidate.clone(), family), RememberedOutcome { outcome, until: now + ttl });
    }

    /// Returns the outcome for a candidate, if its time has not passed.
    pub(in crate::dns::hickory) fn recall(
        &self,
        now: Instant,
        candidate: &Name,
        family: Family,
    ) -> Option<FamilyOutcome> {
        let remembered = self.0.get(&(candidate.clone(), family))?;
        if remembered.until <= now {
            return None;
        }
        Some(remembered.outcome)
    }

    /// Returns the negative answer for a candidate and what is left of its time. `None` if there was none, or its time has
    /// passed.
    pub(in crate::dns::hickory) fn recall_miss(
        &self,
        now: Instant,
        candidate: &Name,
        family: Family,
    ) -> Option<(ResolveErrorKind, Duration)> {
        let remembered = self.0.get(&(candidate.clone(), family))?;
        let left = remembered.until - now;
        match remembered.outcome {
            Err(kind) if kind.is_negative() && !left.is_zero() => Some((kind, left)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::Source;
    use Family::{V4, V6};
    use ResolveErrorKind::{Local, NoData, NxDomain, ServFail};

    fn name(text: &str) -> Name {
        Name::from_str_relaxed(text).unwrap()
    }

    #[test]
    fn an_outcome_is_remembered_for_its_ttl_within_bounds() {
        let (mut memory, now) = (CandidateMemory::default(), crate::clock::now());
        let at = |ms| now + Duration::from_millis(ms);
        let answer = |ttl| Ok(Answer::new([[192, 0, 2, 1].into()], Duration::from_secs(ttl), Source::Miss));
        let error = |kind, ttl: Option<u64>| {
            Err(ResolveError::new(kind, "n", V4).with_negative_ttl(ttl.map(Duration::from_secs)))
        };
        let cases = [
            (answer(5), Some(Ok(())), 5_000),
            (answer(0), None, 0),
            (answer(u64::from(u32::MAX)), Some(Ok(())), 3_600_000),
            (error(NoData, Some(5)), Some(Err(NoData)), 5_000),
            (error(NxDomain, Some(90)), Some(Err(NxDomain)), 30_000),
            (error(NoData, None), Some(Err(NoData)), 1_000),
            (error(ServFail, None), Some(Err(ServFail)), 1_000),
            (error(Local, None), None, 0),
        ];
        for (outcome, recalled, lasts) in cases {
            memory.note(now, &name("a.test."), V4, &outcome);
            assert_eq!(memory.recall(at(0), &name("A.test."), V4), recalled, "{outcome:?}");
            assert_eq!(memory.recall(at(lasts), &name("a.test."), V4), None, "{outcome:?}");
            assert_eq!(memory.recall(at(0), &name("a.test."), V6), None, "{outcome:?}");
        }
    }

    #[test]
    fn a_negative_answer_is_recalled_with_what_is_left_of_its_time() {
        let (mut memory, now) = (CandidateMemory::default(), crate::clock::now());
        let at = |secs| now + Duration::from_secs(secs);
        let mut recalled = |outcome: Result<Answer, ResolveError>, secs| {
            memory.note(now, &name("a.test."), V4, &outcome);
            memory.recall_miss(at(secs), &name("a.test."), V4).map(|(kind, left)| (kind, left.as_secs()))
        };
        let error = |kind| ResolveError::new(kind, "n", V4).with_negative_ttl(Some(Duration::from_secs(20)));
        assert_eq!(recalled(Err(error(NxDomain)), 5), Some((NxDomain, 15)));
        assert_eq!(recalled(Err(error(NoData)), 19), Some((NoData, 1)));
        assert_eq!(recalled(Err(error(NoData)), 20), None);
        assert_eq!(recalled(Err(error(ServFail)), 0), None, "a failure may be over by the next lookup");
        let answer = Answer::new([[192, 0, 2, 1].into()], Duration::from_secs(60), Source::Miss);
        assert_eq!(recalled(Ok(answer), 0), None);
    }

    #[test]
    fn the_memory_is_bounded() {
        let (mut memory, now) = (CandidateMemory::default(), crate::clock::now());
        let answer = Ok(Answer::new([[192, 0, 2, 1].into()], Duration::from_secs(5), Source::Miss));
        for number in 0..3 * MAX_CANDIDATES {
            memory.note(now, &name(&format!("n{number}.test.")), V4, &answer);
            assert!(memory.0.len() <= MAX_CANDIDATES);
        }
    }
}
