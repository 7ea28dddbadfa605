//! One piece of advice: a setting, its value, the suggested value, and the figures behind it. A core.

use std::fmt;
use std::time::Duration;

use speeddial::origin::Origin;

/// A setting of [`PoolConfig`](speeddial::PoolConfig) or of the system that advice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Setting {
    /// [`PoolConfig::max_connections_per_host`](speeddial::PoolConfig::max_connections_per_host).
    MaxConnectionsPerHost,
    /// [`PoolConfig::max_http2_connections_per_host`](speeddial::PoolConfig::max_http2_connections_per_host).
    MaxHttp2ConnectionsPerHost,
    /// [`PoolConfig::max_idle_per_host`](speeddial::PoolConfig::max_idle_per_host).
    MaxIdlePerHost,
    /// [`PoolConfig::idle_timeout`](speeddial::PoolConfig::idle_timeout).
    IdleTimeout,
    /// [`PoolConfig::max_connections`](speeddial::PoolConfig::max_connections).
    MaxConnections,
    /// [`PoolConfig::max_idle`](speeddial::PoolConfig::max_idle).
    MaxIdle,
    /// The number of descriptors that the process may open: the soft limit `RLIMIT_NOFILE`, `ulimit -n` in a shell. It is not
    /// part of a [`PoolConfig`](speeddial::PoolConfig).
    Descriptors,
}

impl Setting {
    /// Returns the setting's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxConnectionsPerHost => "max_connections_per_host",
            Self::MaxHttp2ConnectionsPerHost => "max_http2_connections_per_host",
            Self::MaxIdlePerHost => "max_idle_per_host",
            Self::IdleTimeout => "idle_timeout",
            Self::MaxConnections => "max_connections",
            Self::MaxIdle => "max_idle",
            Self::Descriptors => "RLIMIT_NOFILE",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The value of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SettingValue {
    /// A number of connections or descriptors.
    Count(usize),
    /// A time.
    Time(Duration),
    /// No limit.
    Unlimited,
}

impl SettingValue {
    /// Returns a limit on a number, which may be the highest there is.
    pub(super) fn limit(count: usize) -> Self {
        if count == usize::MAX { Self::Unlimited } else { Self::Count(count) }
    }
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => f.pad(&count.to_string()),
            Self::Time(Duration::MAX) | Self::Unlimited => f.pad("no limit"),
            Self::Time(time) => f.pad(&time_text(*time)),
        }
    }
}

/// A figure behind a piece of advice.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Figure {
    /// The name, such as `arrivals`.
    pub name: &'static str,
    /// The value, in [`unit`](Self::unit).
    pub value: f64,
    /// The unit: `/s`, `ms`, `s`, `%`, or empty for a number of things.
    pub unit: &'static str,
}

impl Figure {
    pub(super) fn count(name: &'static str, count: u64) -> Self {
        Self { name, value: count as f64, unit: "" }
    }

    pub(super) fn number(name: &'static str, value: f64) -> Self {
        Self { name, value, unit: "" }
    }

    pub(super) fn rate(name: &'static str, per_second: f64) -> Self {
        Self { name, value: per_second, unit: "/s" }
    }

    pub(super) fn millis(name: &'static str, time: Duration) -> Self {
        Self { name, value: time.as_secs_f64() * 1e3, unit: "ms" }
    }

    /// Creates the figure of a time in seconds, or in milliseconds below a second.
    pub(super) fn time(name: &'static str, time: Duration) -> Self {
        if time < Duration::from_secs(1) {
            return Self::millis(name, time);
        }
        Self { name, value: time.as_secs_f64(), unit: "s" }
    }

    pub(super) fn percent(name: &'static str, share: f64) -> Self {
        Self { name, value: share * 100.0, unit: "%" }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, unit } = self;
        let gap = if unit.is_empty() || *unit == "/s" { "" } else { " " };
        write!(f, "{name} {}{gap}{unit}", number_text(*value))
    }
}

/// One piece of advice about one setting.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AdviceItem {
    /// The origin that the advice is for; `None` for all hosts together.
    pub origin: Option<Origin>,
    /// The setting.
    pub setting: Setting,
    /// The setting's present value.
    pub present: SettingValue,
    /// The suggested value. It is the present one if nothing should change.
    pub suggested: SettingValue,
    /// The figures from which the suggestion follows.
    pub figures: Vec<Figure>,
    /// The reason, as a sentence without the full stop.
    pub reason: String,
}

impl AdviceItem {
    /// Returns true if the suggested value is another one than the present.
    pub fn is_change(&self) -> bool {
        self.present != self.suggested
    }
}

/// Formats a number with about three digits.
pub(super) fn number_text(value: f64) -> String {
    let digits = match value.abs() {
        rounded if rounded.fract() == 0.0 => 0,
        ..0.995 => 3,
        ..9.95 => 2,
        ..99.5 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// Formats a time in seconds, or in milliseconds below a second.
pub(super) fn time_text(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 || time.is_zero() {
        format!("{} s", number_text(seconds))
    } else {
        format!("{} ms", number_text(seconds * 1e3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_figures_have_units() {
        let millis = Duration::from_millis;
        let values = [
            SettingValue::limit(16),
            SettingValue::limit(usize::MAX),
            SettingValue::Time(millis(50_000)),
            SettingValue::Time(millis(4_500)),
            SettingValue::Time(Duration::MAX),
        ];
        assert_eq!(values.map(|value| value.to_string()), ["16", "no limit", "50 s", "4.50 s", "no limit"]);
        let figures =
            [Figure::rate("arrivals", 123.4), Figure::millis("held", millis(20)), Figure::percent("waited", 0.005)];
        assert_eq!(figures.map(|figure| figure.to_string()), ["arrivals 123/s", "held 20 ms", "waited 0.500 %"]);
    }
}
