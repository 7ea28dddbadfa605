//! The candidates of a search list, and the decision which of them a name stands for: the same one for both families. A core: a table.

use hickory_resolver::proto::rr::Name;

use crate::dns::hickory::system::resolv_conf::Options;
use crate::dns::{ResolveError, ResolveErrorKind};

/// The outcome for a candidate in one family: addresses, or why it has none.
pub(in crate::dns::hickory) type FamilyOutcome = Result<(), ResolveErrorKind>;

/// The decision about a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dns::hickory) enum Verdict {
    /// The name stands for this candidate, in both families.
    Choose,
    /// The search goes on with the next candidate.
    Skip,
    /// The search goes on with the name as it is, and leaves out all other candidates.
    SkipToBare,
    /// The search fails, for this reason.
    Fail(ResolveErrorKind),
}

/// Decides about a candidate by its outcomes in both families, as glibc's `res_search` does.
///
/// The first candidate with an address in either family is chosen. One without any is skipped, and so is one whose servers
/// fail. After one that is refused, only the name as it is is left.
///
/// When the question for IPv4 goes unanswered, the search fails, so that lost packets do not send a request to another host;
/// glibc would go on after ten seconds. The question for IPv6 may go unanswered, because some networks drop it.
pub(in crate::dns::hickory) fn decide(v4: FamilyOutcome, v6: FamilyOutcome) -> Verdict {
    match (v4, v6) {
        (Ok(()), _) | (_, Ok(())) => Verdict::Choose,
        (Err(kind), _) if kind.is_silence() => Verdict::Fail(kind),
        (Err(v4), Err(v6)) if is_refusal(v4) || is_refusal(v6) => Verdict::SkipToBare,
        _ => Verdict::Skip,
    }
}

fn is_refusal(kind: ResolveErrorKind) -> bool {
    !kind.is_negative() && !kind.is_silence() && kind != ResolveErrorKind::ServFail
}

/// Merges the errors of two candidates into the error of their name. A failure outweighs "no addresses", which outweighs
/// "does not exist". A negative answer may be kept for the shorter time of the two.
pub(in crate::dns::hickory) fn merge(earlier: Option<ResolveError>, error: ResolveError) -> ResolveError {
    let Some(earlier) = earlier else { return error };
    if !error.kind().is_negative() {
        return error;
    }
    if !earlier.kind().is_negative() {
        return earlier;
    }
    let negative_ttl = earlier.negative_ttl().min(error.negative_ttl());
    let place = if error.place().is_before(earlier.place()) { earlier.place() } else { error.place() };
    let kept = if earlier.kind() == ResolveErrorKind::NoData { earlier } else { error };
    kept.with_negative_ttl(negative_ttl).with_place(place)
}

/// A full name that a name may stand for.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::dns::hickory) struct Candidate {
    pub(in crate::dns::hickory) name: Name,
    /// True for the name as it is, without a suffix.
    pub(in crate::dns::hickory) is_bare: bool,
}

/// Returns the full names that a name may stand for, in the order in which they are asked for, each once.
pub(in crate::dns::hickory) fn candidates(suffixes: &[Name], options: &Options, name: &Name) -> Vec<Candidate> {
    let mut bare = name.clone();
    bare.set_fqdn(true);
    if name.is_fqdn() || bare.is_root() {
        return vec![Candidate { name: bare, is_bare: true }];
    }
    let dots = name.iter().count() - 1;
    let is_bare_first = dots >= options.ndots.unwrap_or(1);
    let is_bare_left_out = options.no_tld_query && dots == 0 && !suffixes.is_empty();
    let mut names = Vec::new();
    if is_bare_first {
        names.push(bare.clone());
    }
    // A name that would be too long for DNS is left out.
    names.extend(suffixes.iter().filter_map(|suffix| name.clone().append_domain(suffix).ok()));
    if !is_bare_first && !is_bare_left_out {
        names.push(bare.clone());
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for name in names {
        if candidates.iter().all(|known| known.name != name) {
            candidates.push(Candidate { is_bare: name == bare, name });
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::dns::Family::V4;
    use ResolveErrorKind::{Local, NoData, NxDomain, Other, Refused, ServFail, Timeout, Unreachable};

    /// Returns the decisions of glibc 2.36, unless a comment says otherwise.
    #[test]
    fn the_first_candidate_with_an_address_in_either_family_is_chosen() {
        let cases = [
            (Ok(()), Ok(()), Verdict::Choose),
            (Ok(()), Err(NoData), Verdict::Choose),
            (Ok(()), Err(NxDomain), Verdict::Choose),
            (Ok(()), Err(ServFail), Verdict::Choose),
            (Ok(()), Err(Timeout), Verdict::Choose),
            (Err(NoData), Ok(()), Verdict::Choose),
            (Err(NxDomain), Ok(()), Verdict::Choose),
            (Err(ServFail), Ok(()), Verdict::Choose),
            (Err(NoData), Err(NoData), Verdict::Skip),
            (Err(NxDomain), Err(NxDomain), Verdict::Skip),
            (Err(NoData), Err(ServFail), Verdict::Skip),
            (Err(ServFail), Err(ServFail), Verdict::Skip),
            (Err(NxDomain), Err(Timeout), Verdict::Skip),
            (Err(NoData), Err(Timeout), Verdict::Skip),
            (Err(Refused), Err(Refused), Verdict::SkipToBare),
            (Err(NoData), Err(Refused), Verdict::SkipToBare),
            (Err(Other), Err(NoData), Verdict::SkipToBare),
            // Here glibc goes on, after ten seconds.
            (Err(Timeout), Err(NoData), Verdict::Fail(Timeout)),
            (Err(Unreachable), Err(Timeout), Verdict::Fail(Unreachable)),
            (Err(Local), Err(Local), Verdict::Fail(Local)),
        ];
        for (v4, v6, verdict) in cases {
            assert_eq!(decide(v4, v6), verdict, "{v4:?} {v6:?}");
        }
    }

    #[test]
    fn a_failure_outweighs_no_addresses_and_that_outweighs_no_such_name() {
        let error =
            |kind, ttl: Option<u64>| ResolveError::new(kind, "n", V4).with_negative_ttl(ttl.map(Duration::from_secs));
        let merged = |errors: &[(ResolveErrorKind, Option<u64>)]| {
            let error =
                errors.iter().fold(None, |earlier, (kind, ttl)| Some(merge(earlier, error(*kind, *ttl)))).unwrap();
            (error.kind(), error.negative_ttl().map(|ttl| ttl.as_secs()))
        };
        assert_eq!(merged(&[(NxDomain, Some(9)), (NoData, Some(5)), (NxDomain, Some(7))]), (NoData, Some(5)));
        assert_eq!(merged(&[(NxDomain, Some(9)), (NxDomain, None)]), (NxDomain, None));
        assert_eq!(merged(&[(ServFail, None), (NxDomain, Some(9))]), (ServFail, None));
        assert_eq!(merged(&[(NxDomain, Some(9)), (ServFail, None), (Refused, None)]), (Refused, None));
    }
}

#[cfg(test)]
mod list_tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from_str_relaxed(text).unwrap()
    }

    fn candidates((suffixes, options): &(Vec<Name>, Options), asked: &str) -> Vec<String> {
        let candidates = super::candidates(suffixes, options, &name(asked));
        candidates.iter().map(|candidate| candidate.name.to_string()).collect()
    }

    fn list(suffixes: &[&str], ndots: usize) -> (Vec<Name>, Options) {
        let suffixes = suffixes.iter().map(|suffix| name(suffix)).collect();
        (suffixes, Options { ndots: Some(ndots), ..Options::default() })
    }

    #[test]
    fn candidates_come_in_the_order_of_resolv_conf() {
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
    fn with_no_tld_query_a_name_without_dots_is_not_asked_for_as_it_is() {
        let mut list = list(&["a.test."], 2);
        list.1.no_tld_query = true;
        assert_eq!(candidates(&list, "api"), ["api.a.test."]);
        assert_eq!(candidates(&list, "a.b"), ["a.b.a.test.", "a.b."]);
        assert_eq!(candidates(&(vec![], list.1), "api"), ["api."], "there is nothing else");
    }
}
