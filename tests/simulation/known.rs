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

/// Ends that are guessed from a drop.
const TOLD: &[Known] = &[known("told: hedges", "a hedge whose call ended has no end")];

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Known> {
    [NAMES, TOLD].into_iter().flatten()
}

pub(crate) fn is_known(rule: &str) -> bool {
    all().any(|known| known.rule == rule)
}
