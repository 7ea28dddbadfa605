//! Problems of DNS servers, by their answers to the same questions, and of lookups. A core.

use std::net::SocketAddr;

use crate::dns::{DnsTransport, NOT_OF_A_HOST};
use crate::doctor::failure::{Failure, FailureKind};
use crate::doctor::finding::{FileKind, Finding, Problem, list, verb};
use crate::doctor::report::{DnsReply, NameReport, QuestionReport};
use crate::trace::Family;

/// A server, and the questions to it.
struct CheckedServer<'a> {
    address: SocketAddr,
    questions: Vec<&'a QuestionReport>,
}

pub(super) fn check(names: &NameReport) -> Vec<Finding> {
    let servers = by_server(&names.questions);
    if names.lists_no_server && !servers.is_empty() && servers.iter().all(|server| server.replies().next().is_none()) {
        return vec![no_server()];
    }
    let mut found: Vec<Finding> = servers.iter().flat_map(CheckedServer::check).collect();
    found.extend(disagreement(&servers));
    found
}

fn by_server(questions: &[QuestionReport]) -> Vec<CheckedServer<'_>> {
    let mut servers: Vec<CheckedServer<'_>> = Vec::new();
    for question in questions {
        match servers.iter_mut().find(|server| server.address == question.server) {
            Some(server) => server.questions.push(question),
            None => servers.push(CheckedServer { address: question.server, questions: vec![question] }),
        }
    }
    servers
}

fn no_server() -> Finding {
    Finding::new(
        Problem::NoDnsServer,
        "resolv.conf lists no DNS server, and none answers on this machine.",
        "Add a line `nameserver` with the address of a DNS server to resolv.conf.",
    )
}

impl CheckedServer<'_> {
    fn check(&self) -> Vec<Finding> {
        if self.replies().next().is_none() {
            return self.unanswered().into_iter().collect();
        }
        let one_protocol = [self.without_tcp(), self.without_udp()];
        let codes = [self.refuses(), self.fails()];
        one_protocol.into_iter().chain([self.one_family()]).chain(codes).flatten().collect()
    }

    fn replies(&self) -> impl Iterator<Item = (&QuestionReport, &DnsReply)> {
        self.questions.iter().filter_map(|question| Some((*question, question.reply.as_ref().ok()?)))
    }

    /// Returns the failure of a protocol by which the server answers nothing.
    fn silence(&self, transport: DnsTransport) -> Option<&Failure> {
        let mut questions = self.questions.iter().filter(|question| question.transport == transport).peekable();
        let failure = questions.peek()?.reply.as_ref().err()?;
        if questions.all(|question| question.reply.is_err()) { Some(failure) } else { None }
    }

    fn answers_by(&self, transport: DnsTransport) -> bool {
        self.replies().any(|(question, _)| question.transport == transport)
    }

    /// Describes a server that answers nothing at all. A closed UDP port says more than a closed TCP port, because a server
    /// may answer by UDP alone.
    fn unanswered(&self) -> Option<Finding> {
        let failure = self.questions.first()?.reply.as_ref().err()?;
        let server = self.address;
        Some(match failure.kind {
            FailureKind::Refused | FailureKind::NoRoute => Finding::new(
                Problem::DnsServerUnreachable,
                format!("The DNS server {server} cannot be reached: {failure}."),
                "Start a DNS server there, or name another one in the configuration.",
            ),
            _ => Finding::new(
                Problem::DnsServerSilent,
                format!("The DNS server {server} does not answer: {failure}."),
                "Check that it runs, and that no firewall drops packets to it or from it; or name another one in the \
                 configuration, because each lookup waits for it first.",
            ),
        })
    }

    fn without_tcp(&self) -> Option<Finding> {
        let failure = self.silence(DnsTransport::Tcp).filter(|_| self.answers_by(DnsTransport::Udp))?;
        Some(Finding::new(
            Problem::DnsTcpFails,
            format!("The DNS server {} answers by UDP and not by TCP: {failure}.", self.address),
            "Let the server, and firewalls on the way, serve port 53 of TCP too (RFC 7766): answers that are too long for UDP are \
             lost.",
        ))
    }

    fn without_udp(&self) -> Option<Finding> {
        let failure = self.silence(DnsTransport::Udp).filter(|_| self.answers_by(DnsTransport::Tcp))?;
        Some(Finding::new(
            Problem::DnsUdpFails,
            format!("The DNS server {} answers by TCP and not by UDP: {failure}.", self.address),
            "Let firewalls pass UDP to its port, or set `options use-vc` in resolv.conf to ask by TCP at once.",
        ))
    }

    /// Describes a server that answers about one family and not about the other, by the same protocol.
    fn one_family(&self) -> Option<Finding> {
        let is_silent = |transport, family| {
            let asked = || self.questions.iter().filter(|asked| (asked.transport, asked.family) == (transport, family));
            asked().next().is_some() && asked().all(|question| question.reply.is_err())
        };
        let transports = self.replies().map(|(question, _)| question.transport);
        let mut silent = transports.flat_map(|transport| Family::BOTH.map(|family| (transport, family)));
        let (transport, family) = silent.find(|(transport, family)| is_silent(*transport, *family))?;
        Some(Finding::new(
            Problem::DnsFamilyUnanswered,
            format!(
                "The DNS server {} does not answer questions for {} records by {transport}, but it does answer others.",
                self.address,
                record(family)
            ),
            "Let the server answer that there are none; or, if this machine needs only the other family, do not look this one up \
             (`ClientBuilder::addresses`).",
        ))
    }

    fn refuses(&self) -> Option<Finding> {
        let questions = self.with_code(|code| code == "REFUSED")?;
        Some(Finding::new(
            Problem::DnsServerRefuses,
            format!("The DNS server {} refuses this client: it answers REFUSED about {questions}.", self.address),
            "Let the server's access list have this machine's network, or name a server that resolves names for it.",
        ))
    }

    fn fails(&self) -> Option<Finding> {
        let is_failure = |code: &str| !matches!(code, "NOERROR" | "NXDOMAIN" | "REFUSED");
        let code = self.replies().map(|(_, reply)| &reply.code).find(|code| is_failure(code))?;
        let questions = self.with_code(is_failure)?;
        Some(Finding::new(
            Problem::DnsServerFails,
            format!("The DNS server {} answers {code} about {questions}.", self.address),
            "Look into the server's log: with SERVFAIL it could not reach the zone's own servers, or DNSSEC refused their answer.",
        ))
    }

    /// Returns the names that are answered with such a code, with their record types.
    fn with_code(&self, is_meant: impl Fn(&str) -> bool) -> Option<String> {
        let meant = self.replies().filter(|(_, reply)| is_meant(&reply.code));
        let questions = list(meant.map(|(question, _)| format!("{} ({})", question.name, record(question.family))));
        if questions.is_empty() { None } else { Some(questions) }
    }

    /// Returns true if the server has addresses for the question of `asked`, false if it says that there are none, and `None` if
    /// it does not know.
    fn knows(&self, asked: &QuestionReport) -> Option<bool> {
        let same = |question: &QuestionReport| question.name == asked.name && question.family == asked.family;
        let replies = || self.replies().filter(|(question, _)| same(question)).map(|(_, reply)| reply);
        if replies().any(|reply| !reply.addresses.is_empty()) {
            return Some(true);
        }
        let is_negative = |reply: &DnsReply| !reply.truncated && matches!(&*reply.code, "NOERROR" | "NXDOMAIN");
        if replies().any(is_negative) { Some(false) } else { None }
    }
}

fn disagreement(servers: &[CheckedServer<'_>]) -> Option<Finding> {
    let questions = servers.iter().flat_map(|server| &server.questions);
    questions.into_iter().find_map(|asked| {
        let knows = servers.iter().find(|server| server.knows(asked) == Some(true))?;
        let denies = servers.iter().find(|server| server.knows(asked) == Some(false))?;
        Some(Finding::new(
            Problem::DnsServersDisagree,
            format!(
                "The DNS servers disagree: {} has {} records of {}, and {} says that there are none.",
                knows.address,
                record(asked.family),
                asked.name,
                denies.address
            ),
            "Name only servers that know the same zones. A lookup takes the first answer, so the name is found or not by chance.",
        ))
    })
}

fn record(family: Family) -> &'static str {
    match family {
        Family::V4 => "A",
        Family::V6 => "AAAA",
    }
}

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
    use super::super::samples::{answer, asked, names, no_answer};
    use super::*;

    fn problems(questions: Vec<QuestionReport>) -> Vec<Problem> {
        check(&names(questions)).iter().map(|finding| finding.problem).collect()
    }

    /// Asks one server by both protocols for both families, with the replies in the order UDP A, UDP AAAA, TCP A, TCP AAAA.
    fn all(last: u8, replies: [Result<DnsReply, Failure>; 4]) -> Vec<QuestionReport> {
        let [a, b, c, d] = replies;
        let (udp, tcp) = (DnsTransport::Udp, DnsTransport::Tcp);
        vec![
            asked(last, udp, Family::V4, a),
            asked(last, udp, Family::V6, b),
            asked(last, tcp, Family::V4, c),
            asked(last, tcp, Family::V6, d),
        ]
    }

    #[test]
    fn a_server_is_judged_by_its_protocols_and_families() {
        let yes = || answer("NOERROR", &["192.0.2.7"]);
        let none = || answer("NOERROR", &[]);
        let late = || no_answer(FailureKind::TimedOut);
        let closed = || no_answer(FailureKind::Refused);
        assert_eq!(problems(all(1, [yes(), none(), yes(), none()])), []);
        assert_eq!(problems(all(1, [late(), late(), late(), late()])), [Problem::DnsServerSilent]);
        assert_eq!(problems(all(1, [late(), late(), closed(), closed()])), [Problem::DnsServerSilent]);
        assert_eq!(problems(all(1, [closed(), closed(), closed(), closed()])), [Problem::DnsServerUnreachable]);
        assert_eq!(problems(all(1, [yes(), none(), closed(), closed()])), [Problem::DnsTcpFails]);
        assert_eq!(problems(all(1, [late(), late(), yes(), none()])), [Problem::DnsUdpFails]);
        assert_eq!(problems(all(1, [yes(), late(), yes(), none()])), [Problem::DnsFamilyUnanswered]);
    }

    #[test]
    fn a_server_is_judged_by_its_codes() {
        let of = |code: &str| problems(all(1, [(); 4].map(|()| answer(code, &[]))));
        assert_eq!(of("REFUSED"), [Problem::DnsServerRefuses]);
        assert_eq!(of("SERVFAIL"), [Problem::DnsServerFails]);
        assert_eq!(of("NXDOMAIN"), []);
        let text = &check(&names(all(1, [(); 4].map(|()| answer("SERVFAIL", &[])))))[0].text;
        assert_eq!(text, "The DNS server 192.0.2.1:53 answers SERVFAIL about api.test. (A) and api.test. (AAAA).");
    }

    #[test]
    fn servers_that_disagree_are_named() {
        let yes = || answer("NOERROR", &["192.0.2.7"]);
        let none = || answer("NOERROR", &[]);
        let unknown = || answer("NXDOMAIN", &[]);
        let both = |second: Vec<_>| [all(1, [yes(), none(), yes(), none()]), second].concat();
        assert_eq!(problems(both(all(2, [yes(), none(), yes(), none()]))), []);
        let differing = both(all(2, [unknown(), unknown(), unknown(), unknown()]));
        assert_eq!(problems(differing.clone()), [Problem::DnsServersDisagree]);
        let text = &check(&names(differing))[0].text;
        assert!(text.contains("192.0.2.1:53 has A records of api.test., and 192.0.2.2:53 says"), "{text}");
    }

    #[test]
    fn this_machine_is_asked_where_no_server_is_listed() {
        let closed = || no_answer(FailureKind::Refused);
        let mut names = names(all(1, [closed(), closed(), closed(), closed()]));
        names.lists_no_server = true;
        let found = check(&names);
        assert_eq!(found.iter().map(|finding| finding.problem).collect::<Vec<_>>(), [Problem::NoDnsServer]);
    }
}

#[cfg(test)]
mod lookups_tests {
    use super::*;
    use crate::dns::DnsTransport;
    use crate::doctor::finding::FileRead;
    use crate::doctor::findings::samples::{answer, asked, lookup, names, no_answer};
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
