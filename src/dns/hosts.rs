//! The hosts file, and a file that is read again when it changes.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use super::Family;
use crate::clock::{Instant, now};
use crate::sync::lock;

/// How often a file is looked at, and for how long what it says is kept.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Names and their addresses, as a hosts file lists them.
#[derive(Debug, Default)]
pub(super) struct Hosts(HashMap<Box<str>, Vec<IpAddr>>);

impl Hosts {
    /// Reads what is well formed, and leaves out what is not.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut table: HashMap<Box<str>, Vec<IpAddr>> = HashMap::new();
        for line in String::from_utf8_lossy(text).lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(ip) = words.next().and_then(|word| word.parse().ok()) else { continue };
            for name in words {
                let known = table.entry(canonical(name).into()).or_default();
                if !known.contains(&ip) {
                    known.push(ip);
                }
            }
        }
        Self(table)
    }

    /// A name's addresses in one family, which may be none; `None` where the name is not in the file in either.
    pub(super) fn lookup(&self, name: &str, family: Family) -> Option<Vec<IpAddr>> {
        let known = self.0.get(&*canonical(name))?;
        Some(known.iter().copied().filter(|ip| Family::of(*ip) == family).collect())
    }
}

/// The loopback address, for `localhost` and what lies below it (RFC 6761 §6.3).
pub(super) fn localhost(name: &str, family: Family) -> Option<IpAddr> {
    let name = canonical(name);
    let is_localhost = name == "localhost" || name.ends_with(".localhost");
    is_localhost.then_some(match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    })
}

fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Something made from a file, and made anew when the file has changed.
pub(super) struct Watched<T> {
    path: PathBuf,
    last: Mutex<Option<Look<T>>>,
}

struct Look<T> {
    at: Instant,
    stamp: Option<(SystemTime, u64)>,
    made: Arc<T>,
}

impl<T> Watched<T> {
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), last: Mutex::default() }
    }

    /// What `make` makes of the file, at most [`LOOK_EVERY`] old. While a changed file cannot be read or understood, what
    /// was made of it before stands.
    pub(super) fn get<E>(&self, make: impl FnOnce(io::Result<Vec<u8>>) -> Result<T, E>) -> Result<Arc<T>, E> {
        let mut last = lock(&self.last);
        let now = now();
        if let Some(look) = &*last
            && now < look.at + LOOK_EVERY
        {
            return Ok(look.made.clone());
        }
        let stamp = fs::metadata(&self.path).ok().and_then(|file| Some((file.modified().ok()?, file.len())));
        let (stamp, made) = match &*last {
            Some(look) if look.stamp == stamp => (stamp, look.made.clone()),
            before => match (make(fs::read(&self.path)), before) {
                (Ok(made), _) => (stamp, Arc::new(made)),
                // With its old stamp, so that the next look tries again.
                (Err(_), Some(look)) => (look.stamp, look.made.clone()),
                (Err(error), None) => return Err(error),
            },
        };
        *last = Some(Look { at: now, stamp, made: made.clone() });
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Family::{V4, V6};

    #[test]
    fn a_hosts_file_is_read_as_it_is_meant() {
        let hosts = Hosts::parse(
            b"127.0.0.1 localhost Api.Test # alias\n::1\tlocalhost\n\n# 10.0.0.1 no.test\nbroken no.test\n10.0.0.2 api.test. api.test\n",
        );
        let v4 = |last: [u8; 4]| IpAddr::from(last);
        assert_eq!(hosts.lookup("API.test.", V4), Some(vec![v4([127, 0, 0, 1]), v4([10, 0, 0, 2])]));
        assert_eq!(hosts.lookup("api.test", V6), Some(vec![]), "known in one family is known in both");
        assert_eq!(hosts.lookup("localhost", V6), Some(vec![Ipv6Addr::LOCALHOST.into()]));
        assert_eq!(hosts.lookup("no.test", V4), None);
    }

    #[test]
    fn localhost_needs_no_file() {
        assert_eq!(localhost("LocalHost.", V4), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(localhost("a.localhost", V6), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(localhost("notlocalhost", V4), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_again_when_it_changed_but_not_more_often_than_every_five_seconds() {
        let path = std::env::temp_dir().join(format!("speeddial-hosts-{}", std::process::id()));
        let watched = Watched::new(&path);
        let read = || watched.get(|bytes| bytes.map(|bytes| bytes.len())).map(|length| *length);
        assert!(read().is_err(), "there is no file yet");
        fs::write(&path, "1").unwrap();
        assert_eq!(read().unwrap(), 1);
        fs::write(&path, "22").unwrap();
        tokio::time::advance(LOOK_EVERY - Duration::from_millis(1)).await;
        assert_eq!(read().unwrap(), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(read().unwrap(), 2);
        fs::remove_file(&path).unwrap();
        tokio::time::advance(LOOK_EVERY).await;
        assert_eq!(read().unwrap(), 2, "what was known stands");
        fs::write(&path, "333").unwrap();
        tokio::time::advance(LOOK_EVERY).await;
        let unreadable = watched.get(|_| Err::<usize, _>(io::Error::other("as scripted")));
        assert_eq!(*unreadable.unwrap(), 2);
        tokio::time::advance(LOOK_EVERY).await;
        assert_eq!(read().unwrap(), 3, "and is read as soon as it can be");
        fs::remove_file(&path).unwrap();
    }
}
