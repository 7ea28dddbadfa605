//! Which of the full names that a search list makes of a name it stands for: one for both families. A core.

use std::collections::HashMap;
use std::time::Duration;

use hickory_resolver::proto::rr::Name;

use crate::clock::Instant;
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind};

/// A search list, as resolv.conf(5) has it.
#[derive(Debug, Clone, Default)]
pub(super) struct SearchList {
    /// What is appended to names that have no trailing dot.
    pub(super) suffixes: Vec<Name>,
    /// A name with so many dots is asked for as it is before it is asked for with a suffix.
    pub(super) ndots: usize,
    /// A name without dots is not asked for as it is.
    pub(super) no_tld_query: bool,
}

/// A full name that a name may stand for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidate {
    pub(super) name: Name,
    /// True for the name as it is, without a suffix.
    pub(super) is_bare: bool,
}

impl SearchList {
    /// The full names that a name may stand for, in the order in which they are asked for, each once.
    pub(super) fn candidates(&self, name: &Name) -> Vec<Candidate> {
        let mut bare = name.clone();
        bare.set_fqdn(true);
        if name.is_fqdn() || bare.is_root() {
            return vec![Candidate { name: bare, is_bare: true }];
        }
        let dots = name.iter().count() - 1;
        let is_first = dots >= self.ndots;
        let is_left_out = self.no_tld_query && dots == 0 && !self.suffixes.is_empty();
        let is_last = !is_first && !is_left_out;
        // One that would be too long for DNS is left out.
        let suffixed = self.suffixes.iter().filter_map(|suffix| name.clone().append_domain(suffix).ok());
        let names = is_first.then(|| bare.clone()).into_iter().chain(suffixed).chain(is_last.then(|| bare.clone()));
        let mut candidates: Vec<Candidate> = Vec::new();
        for name in names {
            if candidates.iter().all(|known| known.name != name) {
                candidates.push(Candidate { is_bare: name == bare, name });
            }
        }
        candidates
    }
}

/// What a candidate has in one family: addresses, or why it has none.
pub(super) type Said = Result<(), ResolveErrorKind>;

/// What becomes of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The name stands for this candidate, in both families.
    Chosen,
    /// The next candidate is asked for.
    Next,
    /// Of the other candidates only the name as it is is asked for.
    Bare,
    /// It cannot be told, for this reason.
    Unknown(ResolveErrorKind),
}

/// Decides about a candidate as glibc's `res_search` does, by what it has in both families: the first one with an address
/// in either is chosen; one without any is passed over, and so is one whose servers fail; one that is refused ends the list.
///
/// Where IPv4 goes unanswered nothing is decided, so that no request goes astray because packets are lost: glibc would go
/// on after ten seconds. IPv6 may go unanswered, because some networks drop its questions.
pub(super) fn judge(v4: Said, v6: Said) -> Verdict {
    match (v4, v6) {
        (Ok(()), _) | (_, Ok(())) => Verdict::Chosen,
        (Err(kind), _) if is_silence(kind) => Verdict::Unknown(kind),
        (Err(v4), Err(v6)) if is_refusal(v4) || is_refusal(v6) => Verdict::Bare,
        _ => Verdict::Next,
    }
}

/// Returns true if no server said anything.
pub(super) fn is_silence(kind: ResolveErrorKind) -> bool {
    matches!(kind, ResolveErrorKind::Timeout | ResolveErrorKind::Unreachable) || kind.is_local()
}

fn is_refusal(kind: ResolveErrorKind) -> bool {
    !kind.is_negative() && !is_silence(kind) && kind != ResolveErrorKind::ServFail
}

/// The error of a name none of whose candidates has addresses: a failure rather than "no addresses", that rather than "does
/// not exist"; to be remembered for as long as the first of them may be.
pub(super) fn merge(told: Option<ResolveError>, error: ResolveError) -> ResolveError {
    let Some(told) = told else { return error };
    match (told.kind(), error.kind()) {
        (told_kind, kind) if !told_kind.is_negative() && kind.is_negative() => told,
        (_, kind) if !kind.is_negative() => error,
        (told_kind, _) => {
            let negative_ttl = told.negative_ttl().min(error.negative_ttl());
            let kept = if told_kind == ResolveErrorKind::NoData { told } else { error };
            kept.with_negative_ttl(negative_ttl)
        }
    }
}

/// What was said of candidates a moment ago, so that one family's search does not ask again what the other's has learnt.
#[derive(Debug, Default)]
pub(super) struct Memory(HashMap<(Name, Family), Remembered>);

#[derive(Debug)]
struct Remembered {
    said: Said,
    until: Instant,
}

/// How many candidates are remembered in a family.
const MOST_REMEMBERED: usize = 1_024;
/// The longest time for which anything is.
const LONGEST: Duration = Duration::from_secs(60 * 60);
const LONGEST_NEGATIVE: Duration = Duration::from_secs(30);
/// The same for "no addresses" without an SOA record, and for a failure.
const MOMENT: Duration = Duration::from_secs(1);

impl Memory {
    /// Remembers what came of asking for a candidate, for as long as that may be remembered.
    pub(super) fn note(
        &mut self,
        now: Instant,
        candidate: &Name,
        family: Family,
        outcome: &Result<Answer, ResolveError>,
    ) {
        let lasts = match outcome {
            Ok(answer) => answer.ttl().min(LONGEST),
            Err(error) if error.kind().is_negative() => error.negative_ttl().unwrap_or(MOMENT).min(LONGEST_NEGATIVE),
            Err(error) if error.kind().is_local() => Duration::ZERO,
            Err(_) => MOMENT,
        };
        if self.0.len() >= MOST_REMEMBERED {
            self.0.retain(|_, remembered| now < remembered.until);
        }
        if self.0.len() >= MOST_REMEMBERED {
            self.0.clear();
        }
        let said = outcome.as_ref().map(|_| ()).map_err(ResolveError::kind);
        self.0.insert((candidate.clone(), family), Remembered { said, until: now + lasts });
    }

    /// What is still known of a candidate.
    pub(super) fn recall(&self, now: Instant, candidate: &Name, family: Family) -> Option<Said> {
        let remembered = self.0.get(&(candidate.clone(), family))?;
        (now < remembered.until).then_some(remembered.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::Source;
    use Family::{V4, V6};
    use ResolveErrorKind::{Local, NoData, NxDomain, Other, Refused, ServFail, Timeout, Unreachable};

    fn name(text: &str) -> Name {
        Name::from_str_relaxed(text).unwrap()
    }

    fn candidates(list: &SearchList, asked: &str) -> Vec<String> {
        let candidates = list.candidates(&name(asked));
        candidates.iter().map(|candidate| candidate.name.to_string()).collect()
    }

    fn list(suffixes: &[&str], ndots: usize) -> SearchList {
        SearchList { suffixes: suffixes.iter().map(|suffix| name(suffix)).collect(), ndots, no_tld_query: false }
    }

    #[test]
    fn names_are_searched_for_in_the_order_of_resolv_conf() {
        let two = list(&["corp.test.", "lan."], 2);
        assert_eq!(candidates(&two, "api"), ["api.corp.test.", "api.lan.", "api."]);
        assert_eq!(candidates(&two, "a.b"), ["a.b.corp.test.", "a.b.lan.", "a.b."]);
        assert_eq!(candidates(&two, "a.b.c"), ["a.b.c.", "a.b.c.corp.test.", "a.b.c.lan."]);
        assert_eq!(candidates(&two, "api."), ["api."]);
        assert_eq!(candidates(&list(&[], 1), "api"), ["api."]);
        assert_eq!(candidates(&list(&["a.test."], 0), "api"), ["api.", "api.a.test."]);
        assert_eq!(candidates(&list(&["a.test."], 1), ""), ["."]);
    }

    #[test]
    fn a_candidate_is_asked_for_once() {
        assert_eq!(candidates(&list(&["."], 1), "api"), ["api."], "the root as a suffix is the name as it is");
        assert_eq!(candidates(&list(&[".", "a.test.", "A.test."], 1), "api"), ["api.", "api.a.test."]);
        let long = ["a"; 120].join(".");
        assert_eq!(candidates(&list(&["long.suffix.test."], 1), &long), [format!("{long}.")]);
    }

    #[test]
    fn a_name_without_dots_is_not_asked_for_as_it_is_where_that_is_said() {
        let list = SearchList { no_tld_query: true, ..list(&["a.test."], 2) };
        assert_eq!(candidates(&list, "api"), ["api.a.test."]);
        assert_eq!(candidates(&list, "a.b"), ["a.b.a.test.", "a.b."]);
        assert_eq!(candidates(&SearchList { suffixes: vec![], ..list }, "api"), ["api."], "there is nothing else");
    }

    /// What glibc 2.36 makes of a candidate, where it is not said otherwise.
    #[test]
    fn the_first_candidate_with_an_address_in_either_family_is_chosen() {
        let cases = [
            (Ok(()), Ok(()), Verdict::Chosen),
            (Ok(()), Err(NoData), Verdict::Chosen),
            (Ok(()), Err(NxDomain), Verdict::Chosen),
            (Ok(()), Err(ServFail), Verdict::Chosen),
            (Ok(()), Err(Timeout), Verdict::Chosen),
            (Err(NoData), Ok(()), Verdict::Chosen),
            (Err(NxDomain), Ok(()), Verdict::Chosen),
            (Err(ServFail), Ok(()), Verdict::Chosen),
            (Err(NoData), Err(NoData), Verdict::Next),
            (Err(NxDomain), Err(NxDomain), Verdict::Next),
            (Err(NoData), Err(ServFail), Verdict::Next),
            (Err(ServFail), Err(ServFail), Verdict::Next),
            (Err(NxDomain), Err(Timeout), Verdict::Next),
            (Err(NoData), Err(Timeout), Verdict::Next),
            (Err(Refused), Err(Refused), Verdict::Bare),
            (Err(NoData), Err(Refused), Verdict::Bare),
            (Err(Other), Err(NoData), Verdict::Bare),
            // Here glibc goes on, after ten seconds.
            (Err(Timeout), Err(NoData), Verdict::Unknown(Timeout)),
            (Err(Unreachable), Err(Timeout), Verdict::Unknown(Unreachable)),
            (Err(Local), Err(Local), Verdict::Unknown(Local)),
        ];
        for (v4, v6, verdict) in cases {
            assert_eq!(judge(v4, v6), verdict, "{v4:?} {v6:?}");
        }
    }

    #[test]
    fn a_failure_says_more_than_no_addresses_and_that_more_than_no_such_name() {
        let error =
            |kind, ttl: Option<u64>| ResolveError::new(kind, "n", V4).with_negative_ttl(ttl.map(Duration::from_secs));
        let told = |errors: &[(ResolveErrorKind, Option<u64>)]| {
            let merged = errors.iter().fold(None, |told, (kind, ttl)| Some(merge(told, error(*kind, *ttl)))).unwrap();
            (merged.kind(), merged.negative_ttl().map(|ttl| ttl.as_secs()))
        };
        assert_eq!(told(&[(NxDomain, Some(9)), (NoData, Some(5)), (NxDomain, Some(7))]), (NoData, Some(5)));
        assert_eq!(told(&[(NxDomain, Some(9)), (NxDomain, None)]), (NxDomain, None));
        assert_eq!(told(&[(ServFail, None), (NxDomain, Some(9))]), (ServFail, None));
        assert_eq!(told(&[(NxDomain, Some(9)), (ServFail, None), (Refused, None)]), (Refused, None));
    }

    #[test]
    fn what_was_said_is_remembered_for_as_long_as_it_may_be() {
        let (mut memory, now) = (Memory::default(), crate::clock::now());
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
        for (outcome, said, lasts) in cases {
            memory.note(now, &name("a.test."), V4, &outcome);
            assert_eq!(memory.recall(at(0), &name("A.test."), V4), said, "{outcome:?}");
            assert_eq!(memory.recall(at(lasts), &name("a.test."), V4), None, "{outcome:?}");
            assert_eq!(memory.recall(at(0), &name("a.test."), V6), None, "{outcome:?}");
        }
    }

    #[test]
    fn not_more_is_remembered_than_may_be() {
        let (mut memory, now) = (Memory::default(), crate::clock::now());
        let answer = Ok(Answer::new([[192, 0, 2, 1].into()], Duration::from_secs(5), Source::Miss));
        for number in 0..3 * MOST_REMEMBERED {
            memory.note(now, &name(&format!("n{number}.test.")), V4, &answer);
            assert!(memory.0.len() <= MOST_REMEMBERED);
        }
    }
}
