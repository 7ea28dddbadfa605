//! Facts about names, addresses and servers that a client has learned, for the next process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use url::Url;

use crate::client::handle::Client;
use crate::client::pool_side::dialer::PoolKey;
use crate::clock::{now, wall};
use crate::dns::{self, Family};
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::pool::{IdleLimit, KnownServer, Speaks};
use crate::race::{AddressResult, RaceResults};

/// The facts that a client has learned, to be [restored](Client::restore) in another process: the addresses in its DNS cache, the
/// results of connecting to addresses, the family of addresses that worked last for a name, and of each server the version of HTTP, the
/// number of requests at a time that an HTTP/2 connection takes, and the idle timeout.
///
/// It holds names, addresses and ports, and no secrets. With the feature `serde` it can be serialized and deserialized. Sessions of
/// TLS are not among it: rustls has no form in which they could leave the process.
///
/// ```
/// # #[cfg(all(feature = "serde", feature = "json"))]
/// # fn run(client: &speeddial::Client, path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
/// // Before the process ends (feature `serde`, crate serde_json):
/// std::fs::write(path, serde_json::to_vec(&client.learned())?)?;
/// // When the next one has made its client:
/// client.restore(&serde_json::from_slice(&std::fs::read(path)?)?)?;
/// # Ok(()) }
/// # #[cfg(all(feature = "serde", feature = "json"))]
/// # run(&speeddial::Client::new(), &std::env::temp_dir().join(format!("speeddial-doc-{}", std::process::id()))).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Learned {
    /// The version of the form.
    #[cfg_attr(feature = "serde", serde(rename = "speeddial"))]
    version: u32,
    /// The time at which it was taken, in milliseconds of Unix time.
    taken: u64,
    dns: dns::Snapshot,
    addresses: Vec<LearnedAddress>,
    families: Vec<LastFamily>,
    servers: Vec<LearnedServer>,
}

/// The version of the form that this code writes and reads.
const VERSION: u32 = 1;
/// The most entries of each kind that are restored.
const MAX_ENTRIES: usize = 4_096;
/// The longest time that is taken over from a restored entry, so that wrong ones do no lasting harm.
const LONGEST: u64 = 24 * 60 * 60 * 1_000;

/// The shortest idle timeout that is taken over: the pool learns none that is shorter.
const SHORTEST_IDLE: Duration = Duration::from_millis(400);

/// The results of connecting to an address. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct LearnedAddress {
    address: SocketAddr,
    failures: u32,
    connect: Option<u64>,
    age: u64,
}

/// The family that worked last for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct LastFamily {
    host: String,
    is_v6: bool,
    age: u64,
}

/// The facts about a server. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct LearnedServer {
    /// The URL of the origin.
    origin: String,
    http2: bool,
    streams: usize,
    idle_limit: Option<u64>,
    /// The age of that, which is of its own; that of the rest where an earlier version of the crate wrote none.
    #[cfg_attr(feature = "serde", serde(default))]
    idle_limit_age: Option<u64>,
    age: u64,
}

impl Learned {
    /// Returns the number of entries: answers of DNS, addresses, names and servers.
    pub fn len(&self) -> usize {
        self.dns.len() + self.addresses.len() + self.families.len() + self.servers.len()
    }

    /// Returns true if nothing was learned.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the time since it was taken, by the system's clock; zero if that was set back.
    fn age(&self, wall: SystemTime) -> Duration {
        Duration::from_millis(unix_ms(wall).saturating_sub(self.taken))
    }
}

impl Client {
    /// Returns what the client has learned, for [`restore`](Self::restore) in another process.
    ///
    /// What belongs to a proxy that single requests chose is not among it.
    pub fn learned(&self) -> Learned {
        let connectors = self.inner.pool.dialer().connectors();
        let RaceResults { addresses, families } = connectors.general().scores.results(now());
        let servers = self.inner.pool.known_servers();
        Learned {
            version: VERSION,
            taken: unix_ms(wall()),
            dns: self.inner.resolver.snapshot(),
            addresses: addresses.into_iter().map(LearnedAddress::from).collect(),
            families: families
                .into_iter()
                .map(|(host, family, age)| LastFamily {
                    host: host.as_ref().to_owned(),
                    is_v6: family == Family::V6,
                    age: ms(age),
                })
                .collect(),
            servers: servers
                .into_iter()
                .filter_map(|(key, server, age)| LearnedServer::new(&key, server, age))
                .collect(),
        }
    }

    /// Adds what another client has learned, of an earlier process as a rule, except where this one knows better by now.
    ///
    /// The time since then counts, by the system's clock: addresses keep what is left of their TTL, and the rest is forgotten after
    /// 10 minutes (addresses) or an hour (servers). What was wrong or has changed costs what it costs without it: an address that
    /// fails is left for the next one, and a server that speaks another version of HTTP by now is spoken to in that.
    ///
    /// # Errors
    /// [`ErrorKind::Request`](crate::ErrorKind::Request) if `learned` has the form of another version of this crate. Then nothing
    /// is added. Entries that are not valid are left out, and those beyond 4,096 of a kind.
    pub fn restore(&self, learned: &Learned) -> Result<()> {
        if learned.version != VERSION {
            let found = learned.version;
            let what = format!("restore what was learned: it has the form of version {found}, and not of {VERSION}");
            return Err(Error::refused_request(what));
        }
        let later = learned.age(wall());
        self.inner.resolver.restore(&learned.dns);
        let results = RaceResults {
            addresses: learned.addresses.iter().take(MAX_ENTRIES).map(AddressResult::from).collect(),
            families: learned.families.iter().take(MAX_ENTRIES).map(LastFamily::result).collect(),
        };
        self.inner.pool.dialer().connectors().general().scores.restore(now(), &results, later);
        for server in learned.servers.iter().take(MAX_ENTRIES) {
            if let Some((key, known)) = server.known(later)
                && let Some(age) = time(server.age).checked_add(later)
            {
                self.inner.pool.restore_server(&key, known, age);
            }
        }
        Ok(())
    }
}

impl From<AddressResult> for LearnedAddress {
    fn from(AddressResult { address, failures, connect_time, age }: AddressResult) -> Self {
        Self { address, failures, connect: connect_time.map(ms), age: ms(age) }
    }
}

impl From<&LearnedAddress> for AddressResult {
    fn from(LearnedAddress { address, failures, connect, age }: &LearnedAddress) -> Self {
        Self { address: *address, failures: *failures, connect_time: connect.map(time), age: time(*age) }
    }
}

impl LastFamily {
    fn result(&self) -> (Arc<str>, Family, Duration) {
        let family = if self.is_v6 { Family::V6 } else { Family::V4 };
        (self.host.as_str().into(), family, time(self.age))
    }
}

impl LearnedServer {
    /// Returns the entry of a server; `None` if requests chose the way to it, or its protocol is not known.
    fn new(PoolKey { origin, proxy }: &PoolKey, server: KnownServer, age: Duration) -> Option<Self> {
        if proxy.is_some() || server.speaks == Speaks::Unknown {
            return None;
        }
        Some(Self {
            origin: format!("{}://{origin}/", origin.scheme()),
            http2: server.speaks == Speaks::Http2,
            streams: server.streams,
            idle_limit: server.idle_limit.map(|known| ms(known.limit)),
            idle_limit_age: server.idle_limit.map(|known| ms(known.age)),
            age: ms(age),
        })
    }

    /// Returns the key of the server's connections, and what is known of it; `None` if the origin is not valid.
    /// `since` is the time since all was taken.
    fn known(&self, since: Duration) -> Option<(PoolKey, KnownServer)> {
        let origin = Origin::from_url(&Url::parse(&self.origin).ok()?).ok()?;
        let limit = self.idle_limit.map(time).filter(is_kept_alive);
        let age = time(self.idle_limit_age.unwrap_or(self.age)).saturating_add(since);
        let known = KnownServer {
            speaks: if self.http2 { Speaks::Http2 } else { Speaks::Http1 },
            streams: self.streams,
            idle_limit: limit.map(|limit| IdleLimit { limit, age }),
        };
        Some((origin.into(), known))
    }
}

/// Returns true if an idle timeout lets connections be used again. A shorter one may be wrong, and would never be found out to be.
fn is_kept_alive(timeout: &Duration) -> bool {
    *timeout >= SHORTEST_IDLE
}

fn ms(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// Returns a time of an entry, which may come from anywhere.
fn time(ms: u64) -> Duration {
    Duration::from_millis(ms.min(LONGEST))
}

fn unix_ms(wall: SystemTime) -> u64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, ms)
}

#[cfg(all(test, feature = "serde", feature = "json"))]
mod tests {
    use super::*;

    fn learned() -> Learned {
        let server = LearnedServer {
            origin: "https://api.test:443/".to_owned(),
            http2: true,
            streams: 100,
            idle_limit: Some(5_000),
            idle_limit_age: Some(9),
            age: 7,
        };
        Learned {
            version: VERSION,
            taken: unix_ms(wall()),
            dns: dns::Snapshot::default(),
            addresses: vec![LearnedAddress {
                address: ([192, 0, 2, 1], 443).into(),
                failures: 1,
                connect: Some(9),
                age: 3,
            }],
            families: vec![LastFamily { host: "api.test".to_owned(), is_v6: true, age: 3 }],
            servers: vec![server],
        }
    }

    #[test]
    fn what_is_restored_is_what_was_taken_and_survives_json() {
        let learned = learned();
        let text = serde_json::to_string(&learned).unwrap();
        assert!(text.starts_with("{\"speeddial\":1,\"taken\":"), "{text}");
        let read: Learned = serde_json::from_str(&text).unwrap();
        assert_eq!(read, learned);
        let client = Client::builder().no_proxy().build().unwrap();
        client.restore(&read).unwrap();
        let again = client.learned();
        assert_eq!(again.addresses[0].address, learned.addresses[0].address);
        assert_eq!((again.families[0].is_v6, again.len()), (true, 3));
        let LearnedServer { origin, http2, streams, idle_limit, .. } = &again.servers[0];
        assert_eq!((origin.as_str(), *http2, *streams, *idle_limit), ("https://api.test:443/", true, 100, Some(5_000)));
    }

    #[test]
    fn an_idle_timeout_that_a_server_showed_keeps_its_age_from_process_to_process() {
        let age = |age| LearnedServer { idle_limit_age: age, ..learned().servers.remove(0) };
        let known = |server: &LearnedServer| server.known(time(5)).unwrap().1.idle_limit.map(|known| known.age);
        assert_eq!(known(&age(Some(7))), Some(time(12)));
        assert_eq!(known(&age(None)), Some(time(age(None).age + 5)), "as an earlier version wrote it");
    }

    #[test]
    fn a_foreign_form_is_refused_and_wrong_entries_are_left_out() {
        assert!(serde_json::from_str::<Learned>("{\"taken\":1}").is_err());
        let client = Client::builder().no_proxy().build().unwrap();
        let other = Learned { version: 2, ..learned() };
        let error = client.restore(&other).unwrap_err();
        assert_eq!(error.to_string(), "restore what was learned: it has the form of version 2, and not of 1");
        assert!(client.learned().is_empty());
        let mut wrong = learned();
        for origin in ["", "ftp://api.test/", "http://", "http://api.test:0/", "no url"] {
            wrong.servers.push(LearnedServer { origin: origin.to_owned(), ..wrong.servers[0].clone() });
        }
        wrong.servers[0].streams = 0;
        wrong.servers[0].idle_limit = Some(0);
        wrong.addresses[0].connect = Some(u64::MAX);
        wrong.addresses[0].failures = u32::MAX;
        wrong.families[0].age = u64::MAX;
        client.restore(&wrong).unwrap();
        let restored = client.learned();
        assert_eq!((restored.servers.len(), restored.addresses.len(), restored.families.len()), (1, 1, 0));
        assert_eq!(restored.servers[0].idle_limit, None);
    }

    #[test]
    fn the_number_of_entries_is_bounded_and_old_ones_are_left_out() {
        let mut many = learned();
        for number in 0..20_000_u32 {
            many.servers.push(LearnedServer { origin: format!("http://{number}.test/"), ..many.servers[0].clone() });
            let [.., a, b] = number.to_be_bytes();
            many.addresses.push(LearnedAddress { address: ([10, 0, a, b], 80).into(), ..many.addresses[0].clone() });
            many.families.push(LastFamily { host: format!("{number}.test"), ..many.families[0].clone() });
        }
        let client = Client::builder().no_proxy().build().unwrap();
        client.restore(&many).unwrap();
        let kept = client.learned();
        assert!(kept.servers.len() <= MAX_ENTRIES && kept.addresses.len() <= MAX_ENTRIES, "{}", kept.len());
        let old = Learned { taken: 0, ..learned() };
        let client = Client::builder().no_proxy().build().unwrap();
        client.restore(&old).unwrap();
        assert!(client.learned().is_empty());
    }
}
