//! A configuration of the pool as the lines of Rust that make it.

use std::fmt::Display;
use std::time::Duration;

use super::config::{FollowDns, HostLimits, Limits, PoolConfig};
use super::ejection::Ejection;

impl PoolConfig {
    /// Returns the lines of Rust that make this configuration: the settings that differ from the defaults, one in a line.
    pub(crate) fn to_code(&self) -> String {
        let default = Self::default();
        let mut calls = Calls::default();
        calls.count("max_connections", self.max_connections, default.max_connections);
        calls.count("max_idle", self.max_idle, default.max_idle);
        calls.count("max_waiting", self.max_waiting, default.max_waiting);
        if self.follow_dns != default.follow_dns {
            calls.add("follow_dns", follow_dns(self.follow_dns));
        }
        calls.limits_of_all(&self.per_host, &default.per_host);
        for (hosts, limits) in self.overrides.iter() {
            calls.add("for_host", format!("{:?}, {}", hosts.to_string(), limits.to_code()));
        }
        format!("PoolConfig::new(){}", calls.lines)
    }
}

impl HostLimits {
    /// Returns the Rust that makes these limits, in one line.
    fn to_code(self) -> String {
        let mut code = "HostLimits::new()".to_owned();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                code.push_str(&format!(".{name}({value})"));
            }
        };
        add("max_connections", self.max_connections.map(count));
        add("max_idle", self.max_idle.map(count));
        add("min_idle", self.min_idle.map(count));
        add("max_waiting", self.max_waiting.map(count));
        add("max_dials", self.max_dials.map(count));
        add("max_http2_connections", self.max_http2_connections.map(count));
        add("max_streams_per_connection", self.max_streams.map(count));
        add("max_requests_per_connection", self.max_requests.map(requests));
        add("idle_timeout", self.idle_timeout.map(duration));
        add("lifetime", self.lifetime.map(duration));
        add("wait_timeout", self.wait_timeout.map(duration));
        add("ejection", self.ejection.map(ejection));
        code
    }
}

/// The calls of a builder's methods, each in a line of its own.
#[derive(Default)]
struct Calls {
    lines: String,
}

impl Calls {
    fn add(&mut self, name: &str, value: impl Display) {
        self.lines.push_str(&format!("\n    .{name}({value})"));
    }

    fn count(&mut self, name: &str, value: usize, default: usize) {
        if value != default {
            self.add(name, count(value));
        }
    }

    fn time(&mut self, name: &str, value: Duration, default: Duration) {
        if value != default {
            self.add(name, duration(value));
        }
    }

    /// Adds the limits that apply to each host.
    fn limits_of_all(&mut self, limits: &Limits, default: &Limits) {
        self.count("max_connections_per_host", limits.max_connections, default.max_connections);
        self.count("max_idle_per_host", limits.max_idle, default.max_idle);
        self.count("min_idle_per_host", limits.min_idle, default.min_idle);
        self.count("max_waiting_per_host", limits.max_waiting, default.max_waiting);
        self.count("max_dials_per_host", limits.max_dials, default.max_dials);
        self.count("max_http2_connections_per_host", limits.max_http2_connections, default.max_http2_connections);
        self.count("max_streams_per_connection", limits.max_streams, default.max_streams);
        if limits.max_requests != default.max_requests {
            self.add("max_requests_per_connection", requests(limits.max_requests));
        }
        self.time("idle_timeout", limits.idle_timeout, default.idle_timeout);
        self.time("lifetime", limits.lifetime, default.lifetime);
        self.time("wait_timeout", limits.wait_timeout, default.wait_timeout);
        if limits.ejection != default.ejection {
            self.add("ejection", ejection(limits.ejection));
        }
    }
}

fn count(count: usize) -> String {
    if count == usize::MAX { "usize::MAX".to_owned() } else { count.to_string() }
}

fn requests(requests: u64) -> String {
    if requests == u64::MAX { "u64::MAX".to_owned() } else { requests.to_string() }
}

/// Returns the Rust that makes a duration, in the largest unit without a fraction.
fn duration(time: Duration) -> String {
    if time == Duration::MAX {
        return "Duration::MAX".to_owned();
    }
    let nanos = time.as_nanos();
    let units = [("secs", 1_000_000_000), ("millis", 1_000_000), ("micros", 1_000)];
    match units.into_iter().find(|(_, unit)| nanos.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("Duration::from_{name}({})", nanos / unit),
        None => format!("Duration::new({}, {})", time.as_secs(), time.subsec_nanos()),
    }
}

fn follow_dns(policy: FollowDns) -> &'static str {
    match policy {
        FollowDns::AfterTwoTtls => "FollowDns::AfterTwoTtls",
        FollowDns::AtOnce => "FollowDns::AtOnce",
        FollowDns::Off => "FollowDns::Off",
    }
}

/// Returns the Rust that makes these rules, in one line.
fn ejection(rules: Ejection) -> String {
    let (off, default) = (Ejection::off(), Ejection::new());
    let (mut code, default) = match rules.max_percent {
        0 => ("Ejection::off()".to_owned(), off),
        _ => ("Ejection::new()".to_owned(), default),
    };
    let mut add = |name: &str, is_default: bool, value: String| {
        if !is_default {
            code.push_str(&format!(".{name}({value})"));
        }
    };
    add("failures", rules.failures == default.failures, rules.failures.to_string());
    add("failure_percent", rules.failure_percent == default.failure_percent, rules.failure_percent.to_string());
    add("base_time", rules.base_time == default.base_time, duration(rules.base_time));
    add("max_time", rules.max_time == default.max_time, duration(rules.max_time));
    add("max_percent", rules.max_percent == default.max_percent, rules.max_percent.to_string());
    code
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(limits.to_code(), source.replace("second", "Duration::from_secs(1)"));
    }
}
