//! The way from an origin to the endpoints of its service by HTTPS records (RFC 9460 §3): which names are asked for, and which
//! endpoints follow from the answers. A core.
//!
//! | question | see |
//! |---|---|
//! | Which name is asked for first? | [`Resolution::first_name`] |
//! | Which aliases are followed? | [`Resolution::follow`] |
//! | Which records are used, and in which order? | [`Resolution::endpoints`] |
//! | What if the service has no records at the end of the aliases? | [`Resolution::finish`] |

use std::net::IpAddr;
use std::sync::Arc;

use super::record::HttpsRecord;

/// The most aliases that are followed. A longer chain counts as no records.
const MAX_ALIASES: usize = 8;
/// The most endpoints that are tried, so that each of them has enough of the connect timeout.
const MAX_ENDPOINTS: usize = 4;

/// The abilities of the client. Records that need others are not used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abilities {
    /// The protocols that the client offers by ALPN.
    pub(crate) protocols: &'static [&'static [u8]],
    /// True if the client uses Encrypted Client Hello.
    pub(crate) uses_ech: bool,
}

/// A host and port at which a service can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The priority of its record; 0 for the end of a chain of aliases without other records.
    pub(crate) priority: u16,
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    pub(crate) hints: Vec<IpAddr>,
    /// The keys for Encrypted Client Hello.
    pub(crate) ech: Option<Arc<[u8]>>,
}

/// The next step of a resolution.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The HTTPS records of this name have to be looked up.
    Ask(Arc<str>),
    /// The endpoints to try, in their order, before the origin's own addresses.
    Done(Vec<Endpoint>),
}

/// A resolution under way.
#[derive(Debug)]
pub(crate) struct Resolution {
    /// The origin's port, which is that of endpoints without one.
    port: u16,
    abilities: Abilities,
    /// The names that were asked for: the origin's, then the targets of aliases.
    asked: Vec<Arc<str>>,
}

impl Resolution {
    /// Begins with an `https` origin.
    pub(crate) fn new(host: &Arc<str>, port: u16, abilities: Abilities) -> Self {
        Self { port, abilities, asked: vec![Self::first_name(host, port)] }
    }

    /// Returns the name whose records are those of an origin. With another port than 443 the port is part of it (§9.1).
    pub(crate) fn first_name(host: &Arc<str>, port: u16) -> Arc<str> {
        match port {
            443 => host.clone(),
            port => format!("_{port}._https.{host}").into(),
        }
    }

    /// Returns the name that is asked for at the moment.
    pub(crate) fn name(&self) -> &Arc<str> {
        self.asked.last().expect("the origin's name is asked for first")
    }

    /// Takes the records of [`Self::name`]: none if there are none, or if the lookup failed. `rng` orders endpoints of the same
    /// priority.
    pub(crate) fn step(&mut self, records: &[HttpsRecord], rng: &mut fastrand::Rng) -> Step {
        // Beside an alias, other records do not count (§2.4.1).
        if records.iter().any(HttpsRecord::is_alias) {
            return self.follow(records, rng);
        }
        let endpoints = self.endpoints(records, rng);
        Step::Done(self.finish(endpoints))
    }

    /// Follows one of the aliases, by chance. An alias to `.` says that there is no service (§2.5.1), which a client may ignore; a
    /// chain that loops or is too long says nothing.
    fn follow(&mut self, records: &[HttpsRecord], rng: &mut fastrand::Rng) -> Step {
        let targets: Vec<&str> =
            records.iter().filter(|record| record.is_alias()).filter_map(HttpsRecord::target).collect();
        let Some(target) = rng.choice(&targets) else { return Step::Done(self.finish(Vec::new())) };
        let is_loop = self.asked.iter().any(|asked| asked.trim_end_matches('.') == *target);
        if is_loop || self.asked.len() > MAX_ALIASES {
            return Step::Done(Vec::new());
        }
        // Absolute, so that no search list applies to it.
        let target: Arc<str> = format!("{target}.").into();
        self.asked.push(target.clone());
        Step::Ask(target)
    }

    /// Returns the endpoints of the records that the client can use, those of a lower priority first. Those of the same priority
    /// are in an order by chance (§2.4.1).
    fn endpoints(&self, records: &[HttpsRecord], rng: &mut fastrand::Rng) -> Vec<Endpoint> {
        let is_usable = |record: &&HttpsRecord| {
            record.is_understood(self.abilities.uses_ech)
                && record.speaks(self.abilities.protocols)
                && record.port() != Some(0)
        };
        let mut usable: Vec<&HttpsRecord> = records.iter().filter(is_usable).collect();
        rng.shuffle(&mut usable);
        usable.sort_by_key(|record| record.priority());
        usable.truncate(MAX_ENDPOINTS);
        usable.into_iter().map(|record| self.endpoint(record)).collect()
    }

    fn endpoint(&self, record: &HttpsRecord) -> Endpoint {
        let host = match record.target() {
            // Absolute, so that no search list applies to it.
            Some(target) if target != self.name().trim_end_matches('.') => format!("{target}.").into(),
            // The addresses of a name that is an alias in DNS are those of the name that has the record.
            _ => self.name().clone(),
        };
        Endpoint {
            priority: record.priority(),
            host,
            port: record.port().unwrap_or(self.port),
            hints: record.hints().to_vec(),
            ech: record.ech().filter(|_| self.abilities.uses_ech).cloned(),
        }
    }

    /// Adds the end of a chain of aliases as the last endpoint: it may have addresses without records of its own (§3). Not if all
    /// records have keys for an encrypted hello, which this one would not have (RFC 9848 §5.1).
    fn finish(&self, mut endpoints: Vec<Endpoint>) -> Vec<Endpoint> {
        let hides_name = !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.ech.is_some());
        if self.asked.len() > 1 && !hides_name {
            let (host, port) = (self.name().clone(), self.port);
            if !endpoints.iter().any(|endpoint| endpoint.host == host && endpoint.port == port) {
                endpoints.push(Endpoint { priority: 0, host, port, hints: Vec::new(), ech: None });
            }
        }
        endpoints
    }
}

#[cfg(test)]
#[path = "resolution_tests.rs"]
mod tests;
