//! Problems of the addresses of a host. A core.

use super::super::failure::{Failure, FailureKind};
use super::super::finding::{Finding, Problem};
use super::super::report::{AddressReport, Report, ResolverKind};
use crate::connect::is_name_of_this_machine;
use crate::doctor::finding::{list, verb};
use crate::trace::Family;

type Failed<'a> = (&'a AddressReport, &'a Failure);

pub(super) fn check(report: &Report) -> Vec<Finding> {
    let all = &report.addresses;
    if all.is_empty() {
        return Vec::new();
    }
    let failed: Vec<Failed<'_>> = all.iter().filter_map(|address| Some((address, address.failure.as_ref()?))).collect();
    if let (Some(proxy), true) = (&report.route.proxy, failed.len() == all.len()) {
        return vec![unreachable_proxy(proxy, &failed)];
    }
    let is_local = report.names.as_ref().is_some_and(|names| is_name_of_this_machine(&names.name));
    let matters = |(address, failure): &Failed<'_>| matters(all, address, failure, is_local);
    let failed: Vec<_> = failed.into_iter().filter(matters).collect();
    let has_other = all.iter().any(AddressReport::is_usable);
    let is_given = report.names.as_ref().is_some_and(|names| names.resolver == ResolverKind::Pinned);
    let kinds = [FailureKind::Refused, FailureKind::TimedOut, FailureKind::NoRoute, FailureKind::NotAllowed];
    let mut found: Vec<Finding> = Vec::new();
    for kind in kinds {
        let these: Vec<_> = failed.iter().filter(|(_, failure)| failure.kind == kind).copied().collect();
        found.extend(finding(kind, &these, has_other, is_given));
    }
    let others: Vec<_> = failed.into_iter().filter(|(_, failure)| !kinds.contains(&failure.kind)).collect();
    found.extend(finding(FailureKind::Other, &others, has_other, is_given));
    found
}

/// Returns false for what is no problem beside another address: a family that this machine does not have, a rule of the client, and
/// a name of this machine that has a server in one family alone. `is_local` is true for such a name.
fn matters(all: &[AddressReport], address: &AddressReport, failure: &Failure, is_local: bool) -> bool {
    let family = |address: &AddressReport| Family::of(address.address.ip());
    let is_of_other = |other: &&AddressReport| family(other) != family(address);
    match failure.kind {
        FailureKind::NotAllowed => all.iter().all(|other| other.failure.is_some()),
        FailureKind::NoRoute => {
            let is_whole_family = all.iter().filter(|other| !is_of_other(other)).all(has_no_route);
            let has_other_family = all.iter().filter(is_of_other).any(|other| !has_no_route(other));
            !(is_whole_family && has_other_family)
        }
        // The resolver has ::1 and 127.0.0.1 for `localhost`, whatever the server listens on.
        FailureKind::Refused if is_local => all.iter().filter(is_of_other).all(|other| other.failure.is_some()),
        _ => true,
    }
}

fn has_no_route(address: &AddressReport) -> bool {
    address.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::NoRoute)
}

fn unreachable_proxy(proxy: &str, failed: &[Failed<'_>]) -> Finding {
    let reasons = list(failed.iter().map(|(address, failure)| format!("{}: {failure}", address.address)));
    Finding::new(
        Problem::ProxyUnreachable,
        format!("The proxy {proxy} cannot be connected to ({reasons})."),
        "Start the proxy, correct its host and port, or except this origin from it (`NO_PROXY`, `Proxy::no_proxy`).",
    )
}

/// Describes the addresses that failed in one way. `has_other` is true if another address of the host can be used, `is_given` if the
/// user has set the addresses.
fn finding(kind: FailureKind, failed: &[Failed<'_>], has_other: bool, is_given: bool) -> Option<Finding> {
    let correct = match is_given {
        true => "correct the address that the client was given for the name (`resolve`)",
        false => "take the address out of DNS",
    };
    let (first, failure) = failed.first()?;
    let addresses = list(failed.iter().map(|(address, _)| address.address));
    let count = failed.len();
    let whose = if first.is_proxy { " (of the proxy)" } else { "" };
    let subject = format!("{addresses}{whose}");
    let (problem, text, advice) = match kind {
        FailureKind::Refused => (
            Problem::AddressRefuses,
            format!("{subject} {} connections: the port is closed.", verb(count, "refuses", "refuse")),
            format!("Start the server there, correct the port, or {correct}."),
        ),
        FailureKind::TimedOut => (
            Problem::AddressSilent,
            format!("{subject} {} not answer: {failure}.", verb(count, "does", "do")),
            match has_other || is_given {
                true => format!("Check that the host runs, and that no firewall drops packets to it; or {correct}."),
                false => "Check that the host runs, and that no firewall drops packets to it.".to_owned(),
            } + match has_other {
                true => " Until then, each new connection may wait 250 ms for it before the next address is tried.",
                false => "",
            },
        ),
        FailureKind::NoRoute => (
            Problem::AddressWithoutRoute,
            format!("This machine has no route to {subject}: {failure}."),
            format!(
                "Give this machine an address and a route for this family of addresses, or {correct}. A `local_address` of the client \
                 has to be one of this machine that leads there."
            ),
        ),
        FailureKind::NotAllowed => (
            Problem::AddressNotAllowed,
            format!("A rule of the client excludes {subject}."),
            "Change the rule for addresses of this client, if the host is to be trusted.".to_owned(),
        ),
        _ => (
            Problem::AddressFails,
            format!("{subject} cannot be connected to: {failure}."),
            "Look up the error; a firewall of this machine may be its reason.".to_owned(),
        ),
    };
    Some(Finding::new(problem, text, advice))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{address, failed_address, report};
    use super::*;

    fn problems(addresses: Vec<AddressReport>, proxy: Option<&str>) -> Vec<Problem> {
        let mut report = report();
        report.addresses = addresses;
        report.route.proxy = proxy.map(str::to_owned);
        check(&report).iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn each_kind_of_failure_is_a_finding() {
        for (kind, problem) in [
            (FailureKind::Refused, Problem::AddressRefuses),
            (FailureKind::TimedOut, Problem::AddressSilent),
            (FailureKind::NoRoute, Problem::AddressWithoutRoute),
            (FailureKind::NotAllowed, Problem::AddressNotAllowed),
            (FailureKind::Other, Problem::AddressFails),
        ] {
            assert_eq!(problems(vec![failed_address("192.0.2.1:80", kind)], None), [problem]);
        }
        let refused = |at| failed_address(at, FailureKind::Refused);
        assert_eq!(problems(vec![refused("192.0.2.1:80"), refused("192.0.2.2:80")], None), [Problem::AddressRefuses]);
    }

    #[test]
    fn a_family_that_this_machine_does_not_have_is_no_problem_beside_one_that_works() {
        let no_route = |at| failed_address(at, FailureKind::NoRoute);
        assert_eq!(problems(vec![no_route("[2001:db8::1]:80"), address("192.0.2.1:80")], None), []);
        let of_v4 = vec![no_route("192.0.2.2:80"), address("192.0.2.1:80")];
        assert_eq!(problems(of_v4, None), [Problem::AddressWithoutRoute]);
        let refused = failed_address("192.0.2.1:80", FailureKind::Refused);
        let of_v6 = vec![no_route("[2001:db8::1]:80"), refused];
        assert_eq!(problems(of_v6, None), [Problem::AddressRefuses], "the other family has a route");
        let neither = vec![no_route("[2001:db8::1]:80"), no_route("192.0.2.1:80")];
        assert_eq!(problems(neither, None), [Problem::AddressWithoutRoute]);
        let denied = failed_address("10.0.0.1:80", FailureKind::NotAllowed);
        assert_eq!(problems(vec![address("192.0.2.1:80"), denied], None), []);
    }

    #[test]
    fn a_server_on_this_machine_may_listen_in_one_family_alone() {
        let mut report = report();
        let refused = || failed_address("[::1]:80", FailureKind::Refused);
        report.addresses = vec![refused(), address("127.0.0.1:80")];
        assert_eq!(check(&report).len(), 1, "a name that DNS has");
        for name in ["localhost", "api.localhost."] {
            report.names.as_mut().unwrap().name = name.to_owned();
            assert_eq!(check(&report), [], "{name}");
        }
        report.addresses = vec![refused(), failed_address("127.0.0.1:80", FailureKind::Refused)];
        assert_eq!(check(&report).len(), 1, "no address works");
    }

    #[test]
    fn only_an_address_beside_another_one_is_waited_for() {
        let silent = || failed_address("192.0.2.1:80", FailureKind::TimedOut);
        let mut report = report();
        report.addresses = vec![silent()];
        assert!(!check(&report)[0].advice.contains("250 ms"));
        report.addresses = vec![silent(), address("192.0.2.2:80")];
        assert!(check(&report)[0].advice.contains("each new connection may wait 250 ms"));
    }

    #[test]
    fn a_proxy_is_unreachable_if_all_of_its_addresses_are() {
        let proxy = Some("http://proxy.test:3128");
        let refused = || failed_address("192.0.2.1:80", FailureKind::Refused);
        assert_eq!(problems(vec![refused()], proxy), [Problem::ProxyUnreachable]);
        assert_eq!(problems(vec![refused(), address("192.0.2.2:80")], proxy), [Problem::AddressRefuses]);
    }
}
