//! The lookup of a name: each DNS server by itself, and the client's resolver as a whole, with its kind.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};

use super::failure::Failure;
use super::report::{DnsReply, LookupAnswer, LookupReport, NameReport, QuestionReport, ResolverKind};
use crate::connect::{Connector, ProbeTarget};
use crate::dns::{
    CachedResolver, DnsProbe, FixedResolver, HickoryResolver, Inspection, Reply, Resolver, Source, SystemResolver,
};
use crate::doctor::finding::{FileRead, timed};
use crate::origin::Host;
use crate::trace::Family;

/// The most addresses of a lookup or of an answer that are reported.
const MAX_ADDRESSES: usize = 16;

/// Looks up the host of `target`. Returns `None` for an address, which needs no lookup.
pub(super) async fn look_up(connector: &Connector, target: ProbeTarget<'_>, limit: Duration) -> Option<NameReport> {
    let Host::Name(name) = target.origin.host() else { return None };
    let families = connector.probed_families(target.origin);
    if let Some(ips) = connector.pinned(target.origin.host()) {
        let lookups = families.iter().map(|family| pinned(*family, &ips)).collect();
        return Some(report(name, ResolverKind::Pinned, lookups));
    }
    let resolver = connector.resolver.upstream();
    let lookups = join_all(families.iter().map(|family| lookup(&*resolver, name, *family, limit)));
    let kind = match kind_of(resolver.clone()) {
        Kind::Hickory(hickory) => {
            let inspection = hickory.get().inspect(name);
            let (questions, lookups) = join(ask_all(&inspection, families, limit), lookups).await;
            let known = report(name, ResolverKind::Hickory, lookups);
            let Inspection { resolv_conf, hosts, is_known, .. } = inspection;
            let settings = resolv_conf.as_ref().and_then(|reading| reading.contents.as_ref().ok());
            let lists_no_server = settings.is_some_and(|settings| settings.servers.is_empty());
            let hosts = hosts.as_ref().map(|reading| FileRead::of_hosts(reading, name));
            let files = resolv_conf.as_ref().map(FileRead::of_resolv_conf).into_iter().chain(hosts).collect();
            return Some(NameReport { files, lists_no_server, is_known, questions, ..known });
        }
        Kind::System => ResolverKind::System,
        Kind::Fixed => ResolverKind::Fixed,
        Kind::Other => ResolverKind::Other,
    };
    Some(report(name, kind, lookups.await))
}

/// Returns the report on a name about which no DNS server was asked.
fn report(name: &str, resolver: ResolverKind, lookups: Vec<LookupReport>) -> NameReport {
    NameReport {
        name: name.to_owned(),
        resolver,
        files: Vec::new(),
        lists_no_server: false,
        is_known: false,
        questions: Vec::new(),
        lookups,
    }
}

/// Asks each server by each of its protocols, for each full name and family. All questions run at the same time. Those about names
/// that a lookup would not come to are left out of the result.
async fn ask_all(inspection: &Inspection, families: &[Family], limit: Duration) -> Vec<QuestionReport> {
    if inspection.is_known {
        return Vec::new();
    }
    let families = || inspection.families.iter().filter(|family| families.contains(family));
    let mut questions = Vec::new();
    for probe in &inspection.probes {
        for name in &inspection.full_names {
            questions.extend(families().map(|family| ask(probe, name, *family, limit)));
        }
    }
    let mut questions = join_all(questions).await;
    leave_out_after_the_first_found(&mut questions, &inspection.full_names);
    questions
}

/// Leaves out the questions about the names after the first one with addresses: the search ends there.
fn leave_out_after_the_first_found(questions: &mut Vec<QuestionReport>, full_names: &[String]) {
    let has_addresses =
        |question: &QuestionReport| question.reply.as_ref().is_ok_and(|reply| !reply.addresses.is_empty());
    let is_found = |name: &String| questions.iter().any(|question| question.name == *name && has_addresses(question));
    if let Some(number) = full_names.iter().position(is_found) {
        let never_asked = &full_names[number + 1..];
        questions.retain(|question| !never_asked.contains(&question.name));
    }
}

async fn ask(probe: &DnsProbe, name: &str, family: Family, limit: Duration) -> QuestionReport {
    let (elapsed, reply) = timed(limit, probe.ask(name, family)).await;
    let reply = match reply {
        Some(reply) => reply.map(reported).map_err(|error| Failure::of_io(&error)),
        None => Err(Failure::timed_out(limit)),
    };
    let (server, transport) = (probe.server(), probe.transport());
    QuestionReport { server, transport, name: name.to_owned(), family, elapsed, reply }
}

fn reported(reply: Reply) -> DnsReply {
    let Reply { code, addresses, ttl, is_truncated } = reply;
    let code = match code {
        0 => "NOERROR".to_owned(),
        1 => "FORMERR".to_owned(),
        2 => "SERVFAIL".to_owned(),
        3 => "NXDOMAIN".to_owned(),
        4 => "NOTIMP".to_owned(),
        5 => "REFUSED".to_owned(),
        other => format!("code {other}"),
    };
    DnsReply { code, addresses: addresses.into_iter().take(MAX_ADDRESSES).collect(), ttl, truncated: is_truncated }
}

async fn lookup(resolver: &dyn Resolver, name: &str, family: Family, limit: Duration) -> LookupReport {
    let (elapsed, outcome) = timed(limit, resolver.resolve(name, family)).await;
    let answer = match outcome {
        Some(Ok(answer)) => Ok(LookupAnswer {
            addresses: answer.addresses().iter().copied().take(MAX_ADDRESSES).collect(),
            sockets: answer.sockets().map(|sockets| sockets.to_vec()).unwrap_or_default(),
            ttl: limited(answer.ttl()),
            source: answer.source(),
        }),
        Some(Err(error)) => Err(Failure::of_lookup(&error)),
        None => Err(Failure::timed_out(limit)),
    };
    LookupReport { family, elapsed, answer }
}

/// Returns a TTL; `None` if it stands for no limit.
fn limited(ttl: Duration) -> Option<Duration> {
    if ttl == Duration::MAX { None } else { Some(ttl) }
}

/// Returns the lookup of a name whose addresses the user has set.
fn pinned(family: Family, ips: &[IpAddr]) -> LookupReport {
    let addresses = ips.iter().copied().filter(|ip| Family::of(*ip) == family).take(MAX_ADDRESSES).collect();
    let answer = LookupAnswer { addresses, sockets: Vec::new(), ttl: None, source: Source::Pinned };
    LookupReport { family, elapsed: Duration::ZERO, answer: Ok(answer) }
}

/// A resolver of this crate, or one of the user.
pub(super) enum Kind {
    Hickory(FoundHickory),
    System,
    Fixed,
    Other,
}

/// A resolver that is known to be a [`HickoryResolver`], or an `Arc` of one.
pub(super) struct FoundHickory(Arc<dyn Resolver>);

impl FoundHickory {
    pub(super) fn get(&self) -> &HickoryResolver {
        hickory(&*self.0).expect("the resolver was found to be hickory")
    }
}

/// Returns the kind of a resolver, which may be behind `Arc`s and caches.
pub(super) fn kind_of(mut resolver: Arc<dyn Resolver>) -> Kind {
    while let Some(inner) = inner(&*resolver) {
        resolver = inner;
    }
    let any: &dyn Any = &*resolver;
    if any.is::<SystemResolver>() {
        return Kind::System;
    }
    if any.is::<FixedResolver>() {
        return Kind::Fixed;
    }
    if hickory(&*resolver).is_some() { Kind::Hickory(FoundHickory(resolver)) } else { Kind::Other }
}

/// Returns the resolver behind an `Arc` or a cache.
fn inner(resolver: &dyn Resolver) -> Option<Arc<dyn Resolver>> {
    let any: &dyn Any = resolver;
    if let Some(cache) = any.downcast_ref::<CachedResolver>() {
        return Some(cache.upstream());
    }
    any.downcast_ref::<Arc<dyn Resolver>>().cloned()
}

fn hickory(resolver: &dyn Resolver) -> Option<&HickoryResolver> {
    let any: &dyn Any = resolver;
    any.downcast_ref::<HickoryResolver>().or_else(|| any.downcast_ref::<Arc<HickoryResolver>>().map(|shared| &**shared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::DnsTransport;

    #[test]
    fn names_after_the_first_with_addresses_are_left_out() {
        let asked = |name: &str, code: &str, addresses: Vec<IpAddr>| QuestionReport {
            server: ([192, 0, 2, 1], 53).into(),
            transport: DnsTransport::Udp,
            name: name.to_owned(),
            family: Family::V4,
            elapsed: Duration::ZERO,
            reply: Ok(DnsReply { code: code.to_owned(), addresses, ttl: None, truncated: false }),
        };
        let names = ["api.a.test.", "api.b.test.", "api."].map(str::to_owned);
        let left = |found: Option<usize>| {
            let reply = |number| if Some(number) == found { vec![[192, 0, 2, 7].into()] } else { Vec::new() };
            let mut questions: Vec<_> =
                names.iter().enumerate().map(|(number, name)| asked(name, "SERVFAIL", reply(number))).collect();
            leave_out_after_the_first_found(&mut questions, &names);
            questions.len()
        };
        assert_eq!([left(Some(0)), left(Some(1)), left(Some(2)), left(None)], [1, 2, 3, 3]);
    }
}

#[cfg(test)]
mod resolver_kind_tests {
    use super::*;

    #[test]
    fn a_resolver_is_found_behind_caches_and_arcs() {
        let is_hickory = |resolver: Arc<dyn Resolver>| match kind_of(resolver) {
            Kind::Hickory(found) => {
                found.get();
                true
            }
            _ => false,
        };
        assert!(is_hickory(Arc::new(HickoryResolver::system())));
        let shared: Arc<dyn Resolver> = Arc::new(HickoryResolver::system());
        assert!(is_hickory(Arc::new(CachedResolver::new(shared))));
        assert!(is_hickory(Arc::new(Arc::new(HickoryResolver::system()))));
        assert!(!is_hickory(Arc::new(FixedResolver::new())));
    }
}
