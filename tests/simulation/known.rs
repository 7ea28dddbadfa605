//! Rules that are broken by faults that are known. The list only shrinks.

/// A rule, and the fault that breaks it.
pub(crate) struct Known {
    pub(crate) rule: &'static str,
    pub(crate) fault: &'static str,
}

const fn known(rule: &'static str, fault: &'static str) -> Known {
    Known { rule, fault }
}

/// The faults of names.
const NAMES: &[Known] = &[known("dials", "a call dials all addresses of an answer")];

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Known> {
    NAMES.iter()
}

pub(crate) fn is_known(rule: &str) -> bool {
    all().any(|known| known.rule == rule)
}
