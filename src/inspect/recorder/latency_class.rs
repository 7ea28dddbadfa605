//! A core: ranges of durations, by which calls are counted and kept.

use std::fmt;
use std::time::Duration;

/// A range of durations. Each call belongs to one class by its [total](crate::trace::Timings::total).
///
/// ```
/// use std::time::Duration;
/// use speeddial::inspect::LatencyClass;
///
/// let class = LatencyClass::of(Duration::from_millis(120));
/// assert_eq!(class.to_string(), "≥ 100 ms");
/// assert_eq!(class.upper(), Some(Duration::from_millis(200)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LatencyClass(u8);

/// The lower ends of the classes in milliseconds, and their names.
const CLASSES: [(u64, &str); LatencyClass::COUNT] = [
    (0, "< 10 ms"),
    (10, "≥ 10 ms"),
    (50, "≥ 50 ms"),
    (100, "≥ 100 ms"),
    (200, "≥ 200 ms"),
    (500, "≥ 500 ms"),
    (1_000, "≥ 1 s"),
    (10_000, "≥ 10 s"),
    (100_000, "≥ 100 s"),
];

impl LatencyClass {
    /// The number of classes.
    pub(super) const COUNT: usize = 9;

    /// All classes, the fastest first: those that begin at 0, 10, 50, 100, 200 and 500 ms, and at 1, 10 and 100 s.
    pub const ALL: [Self; Self::COUNT] =
        [Self(0), Self(1), Self(2), Self(3), Self(4), Self(5), Self(6), Self(7), Self(8)];

    /// Returns the class of a duration.
    pub fn of(duration: Duration) -> Self {
        let is_at_least = |class: &Self| class.lower() <= duration;
        Self::ALL.into_iter().take_while(is_at_least).last().unwrap_or(Self(0))
    }

    /// Returns the shortest duration in the class.
    pub const fn lower(self) -> Duration {
        Duration::from_millis(CLASSES[self.0 as usize].0)
    }

    /// Returns the duration at which the next class begins; `None` for the last class.
    pub fn upper(self) -> Option<Duration> {
        Self::ALL.get(self.index() + 1).map(|next| next.lower())
    }

    /// Returns the class's name, for example `≥ 100 ms`.
    pub fn as_str(self) -> &'static str {
        CLASSES[self.index()].1
    }

    /// Returns the class's place in [`Self::ALL`].
    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

impl fmt::Display for LatencyClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_in_the_one_class_whose_bounds_hold_it() {
        for ms in [0, 9, 10, 49, 50, 99, 100, 199, 200, 499, 500, 999, 1_000, 9_999, 10_000, 99_999, 100_000, 1 << 40] {
            let duration = Duration::from_millis(ms);
            let holds =
                |class: &LatencyClass| class.lower() <= duration && class.upper().is_none_or(|upper| duration < upper);
            let holding: Vec<_> = LatencyClass::ALL.into_iter().filter(holds).collect();
            assert_eq!(holding, [LatencyClass::of(duration)], "{ms} ms");
        }
        assert_eq!(LatencyClass::of(Duration::from_micros(9_999)).as_str(), "< 10 ms");
    }
}
