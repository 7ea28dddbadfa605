//! What is wrong with configuration files, and with the lookup as a whole. A core.

use super::super::failure::FailureKind;
use super::super::finding::{Finding, Problem};
use super::super::report::NameReport;
use super::words::{list, verb};

/// Checks the configuration files.
pub(super) fn files(names: &NameReport) -> Vec<Finding> {
    let unreadable = names.files.iter().filter_map(|file| {
        let (path, error) = (&file.path, file.error.as_ref()?);
        Some(Finding::new(
            Problem::ResolvConfUnreadable,
            format!("{path} cannot be read: {error}."),
            "Let this user read the file. Without its DNS servers, no name is looked up.",
        ))
    });
    let skipped = names.files.iter().filter(|file| !file.skipped.is_empty()).map(|file| {
        let (path, words) = (&file.path, &file.skipped);
        Finding::new(
            Problem::ResolvConfWord,
            format!("{path} has {} that cannot be understood: {}.", verb(words.len(), "a word", "words"), list(words)),
            "Correct the lines. The words are left out.",
        )
    });
    unreadable.chain(skipped).collect()
}

/// Checks the outcome of the lookup. A failure that `found` explains is not told again.
pub(super) fn outcome(names: &NameReport, found: &[Finding]) -> Option<Finding> {
    let answers = names.lookups.iter().filter_map(|lookup| lookup.answer.as_ref().ok());
    if names.lookups.is_empty() || answers.into_iter().any(|answer| !answer.addresses.is_empty()) {
        return None;
    }
    let failures: Vec<_> = names.lookups.iter().filter_map(|lookup| lookup.answer.as_ref().err()).collect();
    let is_denied = failures.iter().any(|failure| failure.kind == FailureKind::NoSuchName);
    let is_negative =
        failures.iter().all(|failure| matches!(failure.kind, FailureKind::NoSuchName | FailureKind::NoAddresses));
    let disagree = found.iter().any(|finding| finding.problem == Problem::DnsServersDisagree);
    let name = &names.name;
    match failures.last() {
        _ if disagree => None,
        _ if is_denied => Some(Finding::new(
            Problem::NameDoesNotExist,
            format!("The name {name} does not exist."),
            "Correct the name, or add it to its zone or to the hosts file. A name without dots needs a search list.",
        )),
        _ if is_negative => Some(Finding::new(
            Problem::NameHasNoAddresses,
            format!("The name {name} exists, but has no addresses."),
            "Add an A or AAAA record to its zone, or let the client look up both families.",
        )),
        Some(failure) if found.is_empty() => Some(Finding::new(
            Problem::LookupFails,
            format!("The name {name} cannot be looked up: {failure}."),
            "Look into the resolver that the client was given, and into the log of its servers.",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::failure::Failure;
    use super::super::samples::{lookup, names};
    use super::*;
    use crate::dns::FileRead;

    fn problem(kinds: [FailureKind; 2], found: &[Finding]) -> Option<Problem> {
        let mut names = names(Vec::new());
        names.lookups = kinds.map(|kind| lookup(Err(Failure::new(kind, "no")))).into();
        outcome(&names, found).map(|finding| finding.problem)
    }

    #[test]
    fn a_failed_lookup_is_told_unless_something_explains_it() {
        use FailureKind::{NoAddresses, NoSuchName, TimedOut};
        assert_eq!(problem([NoSuchName, NoSuchName], &[]), Some(Problem::NameDoesNotExist));
        assert_eq!(problem([NoAddresses, NoAddresses], &[]), Some(Problem::NameHasNoAddresses));
        assert_eq!(problem([TimedOut, NoAddresses], &[]), Some(Problem::LookupFails));
        let other = [Finding::new(Problem::DnsServerSilent, "", "")];
        assert_eq!(problem([TimedOut, TimedOut], &other), None);
        let disagree = [Finding::new(Problem::DnsServersDisagree, "", "")];
        assert_eq!(problem([NoSuchName, NoSuchName], &disagree), None);
        assert_eq!(outcome(&names(Vec::new()), &[]), None, "there is an address");
    }

    #[test]
    fn files_are_named_with_what_is_wrong_in_them() {
        let file = |error: Option<&str>, skipped: &[&str]| FileRead {
            path: "/etc/resolv.conf".to_owned(),
            elapsed: std::time::Duration::ZERO,
            error: error.map(str::to_owned),
            settings: Vec::new(),
            skipped: skipped.iter().map(|word| (*word).to_owned()).collect(),
        };
        let mut names = names(Vec::new());
        names.files = vec![file(None, &[]), file(Some("denied"), &[]), file(None, &["line 1: x"])];
        let texts: Vec<_> = files(&names).into_iter().map(|finding| finding.text).collect();
        let word = "/etc/resolv.conf has a word that cannot be understood: line 1: x.";
        assert_eq!(texts, ["/etc/resolv.conf cannot be read: denied.", word]);
    }
}
