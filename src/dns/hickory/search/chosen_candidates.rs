//! The candidates that names of a search list stand for, so that the list is not searched each time. A core: it is given the
//! time.

use std::collections::HashMap;
use std::time::Duration;

use hickory_resolver::proto::rr::Name;

use crate::clock::Instant;

/// The time after which a name's list is searched again, because a candidate in front of the chosen one may exist by then.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);
/// The most names that are remembered.
const MAX_NAMES: usize = 1_024;

/// The candidates that were chosen lately, by the names that stand for them.
#[derive(Debug, Default)]
pub(in crate::dns::hickory) struct ChosenCandidates(HashMap<Name, Chosen>);

#[derive(Debug)]
struct Chosen {
    candidate: Name,
    until: Instant,
}

impl ChosenCandidates {
    /// Remembers the candidate that a search for `name` has found.
    pub(in crate::dns::hickory) fn note(&mut self, now: Instant, name: &Name, candidate: &Name) {
        if self.0.len() >= MAX_NAMES {
            self.0.retain(|_, chosen| now < chosen.until);
        }
        if self.0.len() >= MAX_NAMES {
            self.0.clear();
        }
        self.0.insert(name.clone(), Chosen { candidate: candidate.clone(), until: now + MAX_AGE });
    }

    /// Returns the candidate that `name` stands for, if that was found out lately.
    pub(in crate::dns::hickory) fn recall(&self, now: Instant, name: &Name) -> Option<&Name> {
        let chosen = self.0.get(name)?;
        if chosen.until <= now {
            return None;
        }
        Some(&chosen.candidate)
    }

    /// Forgets the candidate of `name`.
    pub(in crate::dns::hickory) fn forget(&mut self, name: &Name) {
        self.0.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from_str_relaxed(text).unwrap()
    }

    #[test]
    fn a_choice_holds_for_five_minutes_or_until_it_is_forgotten() {
        let (mut chosen, now) = (ChosenCandidates::default(), crate::clock::now());
        let at = |secs| now + Duration::from_secs(secs);
        chosen.note(now, &name("api"), &name("api.b.test."));
        assert_eq!(chosen.recall(at(299), &name("API")), Some(&name("api.b.test.")));
        assert_eq!(chosen.recall(at(300), &name("api")), None);
        assert_eq!(chosen.recall(now, &name("db")), None);
        chosen.note(at(300), &name("api"), &name("api.a.test."));
        assert_eq!(chosen.recall(at(599), &name("api")), Some(&name("api.a.test.")), "the last search counts");
        chosen.forget(&name("api"));
        assert_eq!(chosen.recall(at(300), &name("api")), None);
    }

    #[test]
    fn the_number_of_choices_is_bounded() {
        let (mut chosen, now) = (ChosenCandidates::default(), crate::clock::now());
        for number in 0..3 * MAX_NAMES {
            chosen.note(now, &name(&format!("n{number}")), &name("api.b.test."));
            assert!(chosen.0.len() <= MAX_NAMES);
        }
    }
}
