//! The way of a packet from a DNS server into the cache, for the fuzzer in `fuzz/` and for a test over its seeds.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::Name;

use super::cache::{Cache, Config, Step};
use super::{Answer, Family, ResolveError, Source, records};
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
            let listed = |ip: &IpAddr| message.answers.iter().any(|record| record.data.ip_addr() == Some(*ip));
            assert!(answer.addresses().iter().all(|ip| Family::of(*ip) == family && listed(ip)), "not from the answer");
            assert!(!answer.addresses().is_empty(), "an answer without addresses");
        }
        land(&mut cache, now, family, outcome);
    }
    while let Some(at) = cache.next_timeout() {
        cache.handle_timeout(at);
    }
    assert_eq!(cache.len(), 0, "kept for ever");
}

fn land(cache: &mut Cache<()>, now: Instant, family: Family, outcome: Result<Answer, ResolveError>) {
    let Step::Start(flight, None) = cache.get(now, NAME, family, || ()) else { return };
    let told = cache.landed(now, NAME, family, flight.serial, outcome.clone()).told;
    assert_eq!(told.as_ref().ok(), outcome.as_ref().ok(), "told something else");
    let ttl = match &outcome {
        Ok(answer) => answer.ttl().min(Config::default().ttl_ceiling),
        Err(error) => error.negative_ttl().unwrap_or(Duration::from_secs(1)).min(Config::default().negative_ceiling),
    };
    let fresh = |step: &Step<()>| match step {
        Step::Known(Ok(answer), _) => answer.source() == Source::Hit,
        Step::Known(Err(_), _) => true,
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
mod tests {
    #[test]
    fn the_seeds_hold() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/answer");
        let mut seeds = 0;
        for file in std::fs::read_dir(folder).unwrap() {
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
