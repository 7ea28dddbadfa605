//! The values of the factors of a suite, with a list of all of them.

/// Declares an enum with a list of its values.
macro_rules! factor {
    ($(#[$doc:meta])* $name:ident { $($value:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($value),+ }

        impl $name {
            pub(super) const ALL: &[Self] = &[$(Self::$value),+];
        }
    };
}

pub(crate) use factor;

/// Returns a number that the environment gives.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// Returns true if a row is to be tried: `SHAPE` names one alone.
pub(crate) fn is_chosen(row: &impl std::fmt::Display) -> bool {
    std::env::var("SHAPE").ok().is_none_or(|only| only == row.to_string())
}
