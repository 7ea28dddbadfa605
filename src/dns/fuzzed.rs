//! The way of a packet from a DNS server into the cache, for the fuzzer in `fuzz/` and for a test over its seeds.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::{Name, RData, Record};

use super::cache::state::{Cache, Config, Lookup};
use super::hickory::records;
use super::{Answer, Family, ResolveError, Source};
use crate::clock::{Instant, now};

const NAME: &str = "a.test";

/// Reads `packet` as the answer to a question for both families of one name, caches what it says, and checks that it says
/// nothing else.
///
/// # Panics
/// Where something wrong got into the cache.
pub fn answer_to_cache(packet: &[u8]) {
    let Ok(message) = Message::from_vec(packet) else { return };
    let owner = Name::from_ascii("a.test.").expect("a valid name");
    let (mut cache, now) = (Cache::new(Config::default(), 0, now()), now());
    for family in Family::BOTH {
        let outcome = records::answer(&message, &owner, NAME, family);
        if let Ok(answer) = &outcome {
            let owners = reachable(&message, &owner);
            let listed = |ip: &IpAddr| {
                let is_its = |record: &Record| record.data.ip_addr() == Some(*ip) && owners.contains(&record.name);
                message.answers.iter().any(is_its)
            };
            assert!(answer.addresses().iter().all(|ip| Family::of(*ip) == family && listed(ip)), "not the name's own");
            assert!(!answer.addresses().is_empty(), "an answer without addresses");
        }
        land(&mut cache, now, family, outcome);
    }
    while let Some(at) = cache.next_timeout() {
        cache.handle_timeout(at);
    }
    assert_eq!(cache.len(), 0, "kept for ever");
}

/// Every name that any order of the answer's aliases leads to: at least as many as there should be.
fn reachable(message: &Message, owner: &Name) -> Vec<Name> {
    let mut owners = vec![owner.clone()];
    for _ in &message.answers {
        for record in &message.answers {
            if let RData::CNAME(target) = &record.data
                && owners.contains(&record.name)
                && !owners.contains(&target.0)
            {
                owners.push(target.0.clone());
            }
        }
    }
    owners
}

fn land(cache: &mut Cache<()>, now: Instant, family: Family, outcome: Result<Answer, ResolveError>) {
    let Lookup::Start(query, None) = cache.get(now, NAME, family, || ()) else { return };
    let told = cache.complete(now, NAME, family, query.serial, outcome.clone()).outcome;
    assert_eq!(told.as_ref().ok(), outcome.as_ref().ok(), "told something else");
    let ttl = match &outcome {
        Ok(answer) => answer.ttl().min(Config::default().ttl_ceiling),
        Err(error) => error.negative_ttl().unwrap_or(Duration::from_secs(1)).min(Config::default().negative_ceiling),
    };
    let fresh = |step: &Lookup<()>| match step {
        Lookup::Known(Ok(answer), _) => answer.source() == Source::Hit,
        Lookup::Known(Err(error), _) => error.answered_from() == Source::Hit,
        _ => false,
    };
    if !ttl.is_zero() {
        let step = cache.get(now + ttl - Duration::from_nanos(1), NAME, family, || ());
        assert!(fresh(&step), "forgotten within its TTL");
    }
    let step = cache.get(now + ttl, NAME, family, || ());
    assert!(!fresh(&step), "served as fresh after its TTL");
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a test says loudly what it did not find")]
mod tests {
    #[test]
    fn the_seeds_hold() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/answer");
        let mut seeds = 0;
        let Ok(files) = std::fs::read_dir(folder) else {
            eprintln!("SKIPPED: the seeds are in the repository, not in the published crate");
            return;
        };
        for file in files {
            let packet = std::fs::read(file.unwrap().path()).unwrap();
            super::answer_to_cache(&packet);
            // Whatever is cut off, and whichever bit is turned over.
            for length in 0..packet.len() {
                super::answer_to_cache(&packet[..length]);
            }
            for bit in 0..packet.len() * 8 {
                let mut turned = packet.clone();
                turned[bit / 8] ^= 1 << (bit % 8);
                super::answer_to_cache(&turned);
            }
            seeds += 1;
        }
        assert!(seeds >= 8, "{seeds} seeds");
    }
}
