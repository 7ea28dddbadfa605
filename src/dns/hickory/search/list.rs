//! The search list: the full names that a name may stand for. A core: no more than names.

use hickory_resolver::proto::rr::Name;

use crate::dns::hickory::system::resolv_conf::Options;

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
