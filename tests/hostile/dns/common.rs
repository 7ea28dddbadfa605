//! The resolvers, the servers and the helpers for outcomes that the tests of hostile DNS servers share.

use std::net::IpAddr;
use std::time::Duration;

use speeddial::dns::{Answer, HickoryResolver, ResolveError, ResolveErrorKind};

use support::scripted_dns::{Packets, ReceivedQuery, ScriptedDns, no_tcp, packet};

/// The outcome of a lookup.
pub(super) type Outcome = Result<Answer, ResolveError>;

/// Returns a resolver that asks these servers, with a short timeout for each try.
pub(super) fn resolver(servers: &[&ScriptedDns]) -> HickoryResolver {
    let resolver = HickoryResolver::with_servers(servers.iter().map(|server| server.address()));
    resolver.with_try_timeout(Duration::from_millis(250))
}

/// Returns the last bytes of an answer's addresses, and its TTL in seconds.
pub(super) fn answer_of(outcome: &Outcome) -> (Vec<u8>, u64) {
    let answer = outcome.as_ref().unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(error)));
    let last = |ip: &IpAddr| ip.to_string().rsplit('.').next().unwrap().parse().unwrap();
    (answer.addresses().iter().map(last).collect(), answer.ttl().as_secs())
}

/// Returns the kind of a lookup's error.
pub(super) fn kind_of(outcome: &Outcome) -> ResolveErrorKind {
    outcome.as_ref().expect_err("no answer").kind()
}

/// Starts a server that answers every name correctly, without TCP.
pub(super) fn correct_server() -> ScriptedDns {
    ScriptedDns::start(|query| packet(&query.good(1, 60)), no_tcp)
}

/// Starts a server without TCP.
pub(super) fn by_udp(script: impl Fn(&ReceivedQuery) -> Packets + Send + 'static) -> ScriptedDns {
    ScriptedDns::start(script, no_tcp)
}
