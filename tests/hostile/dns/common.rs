//! The resolvers, the servers and the helpers for outcomes that the tests of hostile DNS servers share.

use std::net::IpAddr;
use std::time::Duration;

use speeddial::dns::{Answer, HickoryResolver, ResolveError, ResolveErrorKind};

use support::scripted_dns::{Packets, ReceivedQuery, ScriptedDns, no_tcp, packet};

/// The outcome of a lookup.
pub(super) type Outcome = Result<Answer, ResolveError>;

/// The time that a resolver gives a try, so that a server which answers does so in time on a busy machine too.
pub(super) const TRY: Duration = Duration::from_secs(20);

/// Returns a resolver that asks these servers.
pub(super) fn resolver(servers: &[&ScriptedDns]) -> HickoryResolver {
    let resolver = HickoryResolver::with_servers(servers.iter().map(|server| server.address()));
    resolver.with_try_timeout(TRY).with_total_timeout(3 * TRY)
}

/// Returns a resolver that gives up soon, for servers of which no answer is awaited.
pub(super) fn impatient(servers: &[&ScriptedDns]) -> HickoryResolver {
    resolver(servers).with_try_timeout(Duration::from_millis(250)).with_total_timeout(Duration::from_secs(2))
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
