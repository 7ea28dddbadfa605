//! The outcomes of the last moment for candidates of a search list. A core: it is given the time.

use std::time::Duration;

use hickory_resolver::proto::rr::Name;

use super::verdict::FamilyOutcome;
use crate::bounded::Bounded;
use crate::clock::Instant;
use crate::dns::answer::Place;
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind};

/// The most candidates that are remembered, each family counted.
const MAX_CANDIDATES: usize = 1_024;
/// The time for which an outcome is remembered. The lookups of both families begin together; no later search counts on it.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);

/// The outcomes of the last moment, so that the searches for both families ask for each candidate once.
#[derive(Debug)]
pub(in crate::dns::hickory) struct CandidateMemory(Bounded<(Name, Family), RememberedOutcome>);

impl Default for CandidateMemory {
    fn default() -> Self {
        Self(Bounded::new(MAX_CANDIDATES, REMEMBERED_FOR))
    }
}

#[derive(Debug)]
struct RememberedOutcome {
    outcome: FamilyOutcome,
    negative_ttl: Option<Duration>,
    place: Place,
    until: Instant,
}

impl CandidateMemory {
    /// Remembers the outcome for a candidate. A failure of this machine, and addresses that are not to be kept, are not remembered.
    pub(in crate::dns::hickory) fn note(
        &mut self,
        now: Instant,
        candidate: &Name,
        family: Family,
        outcome: &Result<Answer, ResolveError>,
    ) {
        let ttl = match outcome {
            Ok(answer) => answer.ttl(),
            Err(error) if error.kind().is_local() => Duration::ZERO,
            Err(error) if error.kind().is_negative() => error.negative_ttl().unwrap_or(REMEMBERED_FOR),
            Err(_) => REMEMBERED_FOR,
        };
        let until = now + ttl.min(REMEMBERED_FOR);
        let remembered = match outcome {
            Ok(answer) => RememberedOutcome { outcome: Ok(()), negative_ttl: None, place: answer.place(), until },
            Err(error) => RememberedOutcome {
                outcome: Err(error.kind()),
                negative_ttl: error.negative_ttl(),
                place: error.place(),
                until,
            },
        };
        self.0.insert(now, (candidate.clone(), family), remembered);
    }

    /// Returns the outcome for a candidate with its place, if its time has not passed.
    pub(in crate::dns::hickory) fn recall(
        &self,
        now: Instant,
        candidate: &Name,
        family: Family,
    ) -> Option<(FamilyOutcome, Place)> {
        let remembered = self.0.get(now, &(candidate.clone(), family)).filter(|remembered| now < remembered.until)?;
        Some((remembered.outcome, remembered.place))
    }

    /// Returns the negative answer for a candidate, with its TTL and its place. `None` if there was none, or its time has passed.
    pub(in crate::dns::hickory) fn recall_miss(
        &self,
        now: Instant,
        candidate: &Name,
        family: Family,
    ) -> Option<(ResolveErrorKind, Option<Duration>, Place)> {
        let (outcome, place) = self.recall(now, candidate, family)?;
        let kind = outcome.err().filter(|kind| kind.is_negative())?;
        Some((kind, self.0.get(now, &(candidate.clone(), family))?.negative_ttl, place))
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
    fn an_outcome_is_remembered_for_a_second_with_its_place() {
        let (mut memory, now) = (CandidateMemory::default(), crate::clock::now());
        let at = |ms| now + Duration::from_millis(ms);
        let place = Place { server: 1, candidate: 2 };
        let answer = |ttl| Ok(Answer::new([[192, 0, 2, 1].into()], ttl, Source::Miss).with_place(place));
        let secs = Duration::from_secs;
        let error = |kind, ttl: Option<u64>| {
            Err(ResolveError::new(kind, "n", V4).with_negative_ttl(ttl.map(secs)).with_place(place))
        };
        let cases = [
            (answer(secs(5)), Some(Ok(())), 1_000),
            (answer(Duration::from_millis(300)), Some(Ok(())), 300),
            (answer(secs(0)), None, 0),
            (error(NoData, Some(5)), Some(Err(NoData)), 1_000),
            (error(NxDomain, Some(90)), Some(Err(NxDomain)), 1_000),
            (error(NxDomain, Some(0)), None, 0),
            (error(NoData, None), Some(Err(NoData)), 1_000),
            (error(ServFail, None), Some(Err(ServFail)), 1_000),
            (error(Local, None), None, 0),
        ];
        for (outcome, recalled, lasts) in cases {
            memory.note(now, &name("a.test."), V4, &outcome);
            let known = recalled.map(|outcome| (outcome, place));
            assert_eq!(memory.recall(at(0), &name("A.test."), V4), known, "{outcome:?}");
            assert_eq!(memory.recall(at(lasts), &name("a.test."), V4), None, "{outcome:?}");
            assert_eq!(memory.recall(at(0), &name("a.test."), V6), None, "{outcome:?}");
        }
    }

    #[test]
    fn a_negative_answer_is_recalled_with_its_ttl() {
        let (mut memory, now) = (CandidateMemory::default(), crate::clock::now());
        let mut recalled = |outcome: Result<Answer, ResolveError>| {
            memory.note(now, &name("a.test."), V4, &outcome);
            memory.recall_miss(now, &name("a.test."), V4).map(|(kind, ttl, _)| (kind, ttl.unwrap().as_secs()))
        };
        let error = |kind| ResolveError::new(kind, "n", V4).with_negative_ttl(Some(Duration::from_secs(20)));
        assert_eq!(recalled(Err(error(NxDomain))), Some((NxDomain, 20)));
        assert_eq!(recalled(Err(error(NoData))), Some((NoData, 20)));
        assert_eq!(recalled(Err(error(ServFail))), None, "a failure may be over by the next lookup");
        let answer = Answer::new([[192, 0, 2, 1].into()], Duration::from_secs(60), Source::Miss);
        assert_eq!(recalled(Ok(answer)), None);
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
