//! The problems, by the facts of a report: one file for each part of the way; `requests.rs` has what is slow as well. A core.
//!
//! A finding explains those that would follow from it: where no DNS server answers, that the lookup fails is not told again.

mod addresses;
#[cfg(feature = "__tls")]
mod certificates;
mod dns_servers;
mod requests;
#[cfg(test)]
mod samples;

use super::finding::{Finding, Problem};
use super::report::Report;

/// Returns what is wrong, in the order of the steps.
pub(super) fn of(report: &Report) -> Vec<Finding> {
    let mut found: Vec<Finding> = route(report).into_iter().collect();
    if let Some(names) = &report.names {
        found.extend(dns_servers::files(names));
        found.extend(dns_servers::check(names));
        let last = dns_servers::outcome(names, &found);
        found.extend(last);
    }
    found.extend(addresses::check(report));
    #[cfg(feature = "__tls")]
    found.extend(certificates::check(report));
    found.extend(requests::check(report));
    let slow = requests::slow(report, &found);
    found.extend(slow);
    found
}

fn route(report: &Report) -> Option<Finding> {
    if report.route.https_only {
        return Some(Finding::new(
            Problem::HttpsOnly,
            format!(
                "The client sends requests to https URLs alone, and none to http://{}. Nothing was sent.",
                report.origin
            ),
            "Use the https URL, or build the client without `https_only`.",
        ));
    }
    let error = report.route.error.as_ref()?;
    Some(Finding::new(
        Problem::ProxyInvalid,
        format!("The proxy cannot be used, and every request fails: {error}."),
        "Correct the proxy's URL, or remove it.",
    ))
}
