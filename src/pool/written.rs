//! Values of settings as the Rust that makes them.

use std::time::Duration;

use super::ejection::Ejection;

/// A value of a setting, as the Rust that makes it.
pub(super) trait Written {
    fn written(self) -> String;
}

impl Written for usize {
    fn written(self) -> String {
        if self == Self::MAX { "usize::MAX".to_owned() } else { self.to_string() }
    }
}

impl Written for u64 {
    fn written(self) -> String {
        if self == Self::MAX { "u64::MAX".to_owned() } else { self.to_string() }
    }
}

impl Written for Duration {
    /// In the largest unit without a fraction.
    fn written(self) -> String {
        if self == Self::MAX {
            return "Duration::MAX".to_owned();
        }
        let nanos = self.as_nanos();
        let units = [("secs", 1_000_000_000), ("millis", 1_000_000), ("micros", 1_000)];
        match units.into_iter().find(|(_, unit)| nanos.is_multiple_of(*unit)) {
            Some((name, unit)) => format!("Duration::from_{name}({})", nanos / unit),
            None => format!("Duration::new({}, {})", self.as_secs(), self.subsec_nanos()),
        }
    }
}

impl Written for Ejection {
    fn written(self) -> String {
        let (start, default) = match self.max_percent {
            0 => ("Ejection::off()", Self::off()),
            _ => ("Ejection::new()", Self::new()),
        };
        let rules = [
            ("failures", self.failures == default.failures, self.failures.to_string()),
            ("failure_percent", self.failure_percent == default.failure_percent, self.failure_percent.to_string()),
            ("base_time", self.base_time == default.base_time, self.base_time.written()),
            ("max_time", self.max_time == default.max_time, self.max_time.written()),
            ("max_percent", self.max_percent == default.max_percent, self.max_percent.to_string()),
        ];
        let rules = rules.into_iter().filter(|(_, is_default, _)| !is_default);
        rules.fold(start.to_owned(), |code, (name, _, value)| format!("{code}.{name}({value})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{FollowDns, HostLimits, PoolConfig};

    /// Returns a value and its source text without white space.
    macro_rules! with_source {
        ($code:expr) => {
            ($code, stringify!($code).split_whitespace().collect::<String>())
        };
    }

    fn without_space(code: &str) -> String {
        code.split_whitespace().collect()
    }

    #[test]
    fn the_code_of_a_configuration_makes_it_again() {
        let (config, source) = with_source!(
            PoolConfig::new()
                .max_connections(300)
                .max_idle(200)
                .max_waiting(100)
                .follow_dns(FollowDns::Off)
                .max_connections_per_host(10)
                .max_idle_per_host(9)
                .min_idle_per_host(1)
                .max_waiting_per_host(8)
                .max_dials_per_host(7)
                .max_http2_connections_per_host(6)
                .max_streams_per_connection(5)
                .max_requests_per_connection(4)
                .idle_timeout(Duration::from_millis(3500))
                .lifetime(Duration::from_secs(2))
                .wait_timeout(Duration::new(1, 1))
                .ejection(Ejection::off().failures(3))
                .for_host("a.test:8443", HostLimits::new().max_connections(1).idle_timeout(Duration::MAX))
                .for_host(".internal", HostLimits::new().max_idle(usize::MAX).max_requests_per_connection(2))
                .for_host("[::1]", HostLimits::new())
        );
        assert_eq!(without_space(&config.to_code()), source);
        assert_eq!(PoolConfig::new().to_code(), "PoolConfig::new()");
    }

    #[test]
    fn every_limit_of_a_host_is_written() {
        let second = Duration::from_secs(1);
        let (limits, source) = with_source!(
            HostLimits::new()
                .max_connections(1)
                .max_idle(2)
                .min_idle(8)
                .max_waiting(3)
                .max_dials(4)
                .max_http2_connections(5)
                .max_streams_per_connection(6)
                .max_requests_per_connection(7)
                .idle_timeout(second)
                .lifetime(second)
                .wait_timeout(second)
                .ejection(
                    Ejection::new().failures(1).failure_percent(2).base_time(second).max_time(second).max_percent(3)
                )
        );
        let config = PoolConfig::new().for_host("a", limits).to_code();
        let source = format!("PoolConfig::new()\n    .for_host(\"a\", {source})");
        assert_eq!(config, source.replace("second", "Duration::from_secs(1)"));
    }
}
