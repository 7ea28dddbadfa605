//! The path of a packet from a DNS server into the cache, for fuzzing only: for the target in `fuzz/`, and for a test over
//! its seeds.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::{Name, RData, Record};

use super::cache::state::{Cache, Config, Lookup};
use super::hickory::servers::records;
use super::{Answer, Family, ResolveError, Source};
use crate::clock::{Instant, now};

const NAME: &str = "a.test";

/// Reads `packet` as the answer to a question for both families of one name, and puts the answer into a cache.
///
/// # Panics
/// If the answer has addresses that are not the name's own, or if the cache serves it after its TTL or keeps it forever.
pub fn answer_to_cache(packet: &[u8]) {
    let Ok(message) = Message::from_vec(packet) else { return };
    let owner = Name::from_ascii("a.test.").expect("a valid name");
    let now = now();
    let mut cache = Cache::new(Config::default(), 0);
    for family in Family::BOTH {
        let result = records::answer(&message, &owner, NAME, family);
        if let Ok(answer) = &result {
            check_addresses(&message, &owner, family, answer);
        }
        complete_query(&mut cache, now, family, result);
    }
    while let Some(at) = cache.next_timeout() {
        cache.handle_timeout(at);
    }
    assert_eq!(cache.len(), 0, "a name is kept forever");
}

fn check_addresses(message: &Message, owner: &Name, family: Family, answer: &Answer) {
    let owners = reachable(message, owner);
    let is_listed = |ip: &IpAddr| {
        let is_its = |record: &Record| record.data.ip_addr() == Some(*ip) && owners.contains(&record.name);
        message.answers.iter().any(is_its)
    };
    let mut addresses = answer.addresses().iter();
    assert!(addresses.all(|ip| Family::of(*ip) == family && is_listed(ip)), "an address of another name or family");
    assert!(!answer.addresses().is_empty(), "an answer without addresses");
}

/// Returns every name to which any order of the message's aliases leads. There may be more of them than a resolver follows.
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

/// Completes a query with `result`, and checks that the cache serves it as fresh until its TTL expires and no longer.
fn complete_query(cache: &mut Cache<()>, now: Instant, family: Family, result: Result<Answer, ResolveError>) {
    let Lookup::Start(query, None) = cache.get(now, NAME, family) else { return };
    let outcome = cache.complete(now, NAME, family, query.serial, result.clone()).outcome;
    assert_eq!(outcome.as_ref().ok(), result.as_ref().ok(), "another outcome");
    let ttl = match &result {
        Ok(answer) => answer.ttl().min(Config::default().ttl_ceiling),
        Err(error) => error.negative_ttl().unwrap_or(Duration::from_secs(1)).min(Config::default().negative_ceiling),
    };
    let is_fresh = |lookup: &Lookup<()>| match lookup {
        Lookup::Known(Ok(answer), _) => answer.source() == Source::Hit,
        Lookup::Known(Err(error), _) => error.answered_from() == Source::Hit,
        _ => false,
    };
    if !ttl.is_zero() {
        let lookup = cache.get(now + ttl - Duration::from_nanos(1), NAME, family);
        assert!(is_fresh(&lookup), "forgotten within its TTL");
    }
    let lookup = cache.get(now + ttl, NAME, family);
    assert!(!is_fresh(&lookup), "served as fresh after its TTL");
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
mod tests {
    #[test]
    fn no_change_of_a_seed_puts_a_wrong_answer_into_the_cache() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/answer");
        let mut seeds = 0;
        let Ok(files) = std::fs::read_dir(folder) else {
            eprintln!("SKIPPED: the seeds are in the repository, not in the published crate");
            return;
        };
        for file in files {
            let packet = std::fs::read(file.unwrap().path()).unwrap();
            super::answer_to_cache(&packet);
            // Each truncation of the packet, and each flip of one bit.
            for length in 0..packet.len() {
                super::answer_to_cache(&packet[..length]);
            }
            for bit in 0..packet.len() * 8 {
                let mut flipped = packet.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                super::answer_to_cache(&flipped);
            }
            seeds += 1;
        }
        assert!(seeds >= 8, "{seeds} seeds");
    }
}
