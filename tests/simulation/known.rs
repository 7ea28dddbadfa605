//! Rules that are broken by faults that are known. The list only shrinks.

/// A rule, and the fault that breaks it.
pub(crate) struct Known {
    pub(crate) rule: &'static str,
    pub(crate) fault: &'static str,
}

const fn known(rule: &'static str, fault: &'static str) -> Known {
    Known { rule, fault }
}

/// The faults of names.
const NAMES: &[Known] = &[known("dials", "a call dials all addresses of an answer")];

/// Facts that are kept for longer, or about more, than their evidence says; and ages that are not looked at.
const FACTS: &[Known] = &[
    known("idle age", "after a time without the program, a request is sent on a connection that was idle for too long"),
    known("lifetime: idle", "an idle connection has no timer for the end of its lifetime"),
    known("lifetime", "the lifetime of a connection is not looked at whenever it is leased"),
    known("no reuse", "one `Keep-Alive: timeout=0` counts for the host, for good"),
    known("ejection", "under a limit, connections to an ejected address are used on"),
    known("calm: certificates", "a client that was idle since it was built uses the files of then"),
    known("calm: interim responses", "21 interim responses on a stream end all requests of its connection"),
];

/// Requests that are made anew without the rules of those that redirects make.
const REQUESTS: &[Known] = &[
    known("cut upload as whole", "a peer's RST_STREAM(NO_ERROR) ends an upload that a gateway passes on"),
    known("gateway: target", "a path that is passed on is written anew"),
    known("gateway: cookies of others", "the cookie store of a client that passes requests on"),
    known("gateway: cookie fields", "the cookie fields of HTTP/2 are passed on to HTTP/1.1 one by one"),
];

/// Ends that are guessed from a drop.
const TOLD: &[Known] = &[
    known("told: unread", "a response that is dropped unread is told as a failure"),
    known("told: counted", "a response whose announced length has come is told as cancelled"),
    known("told: bytes", "of a body that was dropped, the bytes that came are not told"),
    known("told: hedges", "a hedge whose call ended has no end"),
];

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Known> {
    [NAMES, FACTS, REQUESTS, TOLD].into_iter().flatten()
}

pub(crate) fn is_known(rule: &str) -> bool {
    all().any(|known| known.rule == rule)
}
