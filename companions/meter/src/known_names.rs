//! The names that measurements tell apart: the first ones, up to a limit.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::lock;

/// The default of the highest number of names.
const MAX_NAMES: usize = 200;

/// The first names that were asked for, up to a limit. A name that was known once stays known.
pub(crate) struct KnownNames {
    limit: usize,
    names: Mutex<HashSet<Box<str>>>,
}

impl KnownNames {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, names: Mutex::default() }
    }

    /// Returns true if the name is one of the first ones.
    pub(crate) fn knows(&self, name: &str) -> bool {
        let mut names = lock(&self.names);
        if names.contains(name) {
            return true;
        }
        let is_new = names.len() < self.limit;
        if is_new {
            names.insert(name.into());
        }
        is_new
    }
}

impl Default for KnownNames {
    fn default() -> Self {
        Self::new(MAX_NAMES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_stay_known_and_no_others_are() {
        let names = KnownNames::new(2);
        assert_eq!(
            ["a", "b", "c", "a", "c", "b"].map(|name| names.knows(name)),
            [true, true, false, true, false, true]
        );
        assert!(!KnownNames::new(0).knows("a"));
    }
}
