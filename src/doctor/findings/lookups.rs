//! Problems of configuration files, and of the lookup as a whole. A core.

use super::super::failure::{Failure, FailureKind};
use super::super::files::FileKind;
use super::super::finding::{Finding, Problem};
use super::super::report::{DnsReply, NameReport, QuestionReport};
use super::words::{list, verb};
use crate::dns::NOT_OF_A_HOST;

/// Checks the configuration files. A file that cannot be read does not matter for a name that is known without a question to a
/// server.
pub(super) fn files(names: &NameReport) -> Vec<Finding> {
    let unreadable = names.files.iter().filter(|_| !names.is_known).filter_map(|file| {
        let (path, error) = (&file.path, file.error.as_ref()?);
        let (problem, advice) = match file.kind {
            FileKind::ResolvConf => (
                Problem::ResolvConfUnreadable,
                "Let this user read the file. Without its DNS servers, no name is looked up.",
            ),
            FileKind::Hosts => (
                Problem::HostsUnreadable,
                "Let this user read the file. Until then, the DNS servers are asked for the names in it too.",
            ),
        };
        Some(Finding::new(problem, format!("{path} cannot be read: {error}."), advice))
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
    let is_negative = failures.iter().all(|failure| is_negative(failure));
    let is_explained = found.iter().any(|finding| explains(finding.problem, names)) || has_no_answer(names);
    let disagree = found.iter().any(|finding| finding.problem == Problem::DnsServersDisagree);
    let name = &names.name;
    match failures.last() {
        _ if disagree => None,
        _ if is_denied => Some(Finding::new(
            Problem::NameDoesNotExist,
            format!("The name {name} does not exist."),
            "Correct the name, or add it to its zone or to the hosts file. A name without dots needs a search list.",
        )),
        _ if is_negative => {
            let useless = failures.iter().map(ToString::to_string).find(|text| text.contains(NOT_OF_A_HOST));
            Some(match useless {
                Some(useless) => Finding::new(
                    Problem::NameHasNoAddresses,
                    format!("The name {name} has no addresses that can be connected to: {useless}."),
                    "Correct its records. A filter in the DNS server may have put such an address in place of the real one.",
                ),
                None => Finding::new(
                    Problem::NameHasNoAddresses,
                    format!("The name {name} exists, but has no addresses."),
                    "Add an A or AAAA record to its zone, or let the client look up both families.",
                ),
            })
        }
        Some(failure) if !is_explained => Some(Finding::new(
            Problem::LookupFails,
            format!("The name {name} cannot be looked up: {failure}."),
            "Look into the resolver that the client was given, and into the log of its servers.",
        )),
        _ => None,
    }
}

/// Returns true for a problem for which a lookup fails as a whole.
fn explains(problem: Problem, names: &NameReport) -> bool {
    match problem {
        Problem::ResolvConfUnreadable
        | Problem::NoDnsServer
        | Problem::DnsServersDisagree
        | Problem::DnsUdpFails
        | Problem::DnsFamilyUnanswered => true,
        // An answer that was too long for UDP is lost.
        Problem::DnsTcpFails => {
            let mut replies = names.questions.iter().filter_map(|question| question.reply.as_ref().ok());
            replies.any(|reply| reply.truncated)
        }
        _ => false,
    }
}

/// Returns true if a question whose lookup failed has no answer from any server: each is silent or fails, which is told of each.
fn has_no_answer(names: &NameReport) -> bool {
    let has_failed = |question: &QuestionReport| {
        let lookup = names.lookups.iter().find(|lookup| lookup.family == question.family);
        lookup.is_some_and(|lookup| lookup.answer.as_ref().is_err_and(|failure| !is_negative(failure)))
    };
    let is_answer = |reply: &DnsReply| matches!(&*reply.code, "NOERROR" | "NXDOMAIN");
    names.questions.iter().filter(|asked| has_failed(asked)).any(|asked| {
        let same = |other: &&QuestionReport| (&other.name, other.family) == (&asked.name, asked.family);
        names.questions.iter().filter(same).all(|question| !question.reply.as_ref().is_ok_and(is_answer))
    })
}

/// Returns true for a failure by which the servers answered that there are no addresses.
fn is_negative(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::NoSuchName | FailureKind::NoAddresses)
}

#[cfg(test)]
mod tests {
    use super::super::super::files::FileRead;
    use super::super::samples::{answer, asked, lookup, names, no_answer};
    use super::*;
    use crate::dns::DnsTransport;
    use crate::trace::Family;

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
        let file = [Finding::new(Problem::ResolvConfUnreadable, "", "")];
        assert_eq!(problem([TimedOut, TimedOut], &file), None);
        let others =
            [Problem::ResolvConfWord, Problem::HostsUnreadable, Problem::DnsTcpFails, Problem::DnsServerSilent];
        let others = others.map(|problem| Finding::new(problem, "", ""));
        assert_eq!(problem([TimedOut, TimedOut], &others), Some(Problem::LookupFails), "none of these explains it");
        let disagree = [Finding::new(Problem::DnsServersDisagree, "", "")];
        assert_eq!(problem([NoSuchName, NoSuchName], &disagree), None);
        assert_eq!(outcome(&names(Vec::new()), &[]), None, "there is an address");
    }

    #[test]
    fn servers_explain_a_failed_lookup_if_none_of_them_answers() {
        let silent = || no_answer(FailureKind::TimedOut);
        let problem = |replies: [Result<DnsReply, Failure>; 2]| {
            let servers = [1, 2].into_iter().zip(replies);
            let questions = servers.map(|(last, reply)| asked(last, DnsTransport::Udp, Family::V4, reply));
            let mut names = names(questions.collect());
            names.lookups = vec![lookup(Err(Failure::new(FailureKind::TimedOut, "no")))];
            outcome(&names, &[Finding::new(Problem::DnsServerSilent, "", "")]).map(|finding| finding.problem)
        };
        assert_eq!(problem([silent(), silent()]), None);
        assert_eq!(problem([silent(), answer("SERVFAIL", &[])]), None);
        assert_eq!(problem([silent(), answer("NOERROR", &["192.0.2.7"])]), Some(Problem::LookupFails));
    }

    #[test]
    fn files_are_named_with_what_is_wrong_in_them() {
        let file = |error: Option<&str>, skipped: &[&str]| FileRead {
            kind: FileKind::ResolvConf,
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

        let mut hosts = file(Some("denied"), &[]);
        (hosts.kind, hosts.path) = (FileKind::Hosts, "/etc/hosts".to_owned());
        names.files = vec![hosts];
        let [finding] = &files(&names)[..] else { panic!() };
        assert_eq!((finding.problem, &*finding.text), (Problem::HostsUnreadable, "/etc/hosts cannot be read: denied."));
        names.is_known = true;
        assert_eq!(files(&names), [], "no server is asked");
    }
}
