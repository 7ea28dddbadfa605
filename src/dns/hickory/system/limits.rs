//! The limits of a lookup: from the user, from resolv.conf, or by default.

use std::time::Duration;

use super::resolv_conf::Options;
use crate::dns::hickory::servers::limits::ServerLimits;

/// The limits that the user has set. Those of resolv.conf come next, and the defaults last.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::dns::hickory) struct UserLimits {
    pub(in crate::dns::hickory) try_timeout: Option<Duration>,
    pub(in crate::dns::hickory) tries: Option<usize>,
    pub(in crate::dns::hickory) total_timeout: Option<Duration>,
    pub(in crate::dns::hickory) max_in_flight: Option<usize>,
}

const DEFAULT_TRY_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_TRIES: usize = 2;
const DEFAULT_TOTAL_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_MAX_IN_FLIGHT: usize = 256;

/// The upper limit of the number of tries.
pub(in crate::dns::hickory) const MAX_TRIES: usize = 100;

impl UserLimits {
    /// Completes the limits by the options of resolv.conf. The total timeout leaves time for all tries of one server, if
    /// resolv.conf states their number or their timeout.
    pub(in crate::dns::hickory) fn or(self, options: &Options) -> ServerLimits {
        let try_timeout = self.try_timeout.or(options.timeout).unwrap_or(DEFAULT_TRY_TIMEOUT);
        let tries = self.tries.or(options.attempts).unwrap_or(DEFAULT_TRIES);
        let mut default_total = DEFAULT_TOTAL_TIMEOUT;
        if options.timeout.is_some() || options.attempts.is_some() {
            default_total = default_total.max(try_timeout.saturating_mul(tries as u32));
        }
        ServerLimits {
            try_timeout,
            tries,
            total_timeout: self.total_timeout.unwrap_or(default_total),
            max_in_flight: self.max_in_flight.unwrap_or(DEFAULT_MAX_IN_FLIGHT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_user_come_first_and_those_of_resolv_conf_second() {
        let second = Duration::from_secs(1);
        let said = |timeout: Option<u32>, attempts| Options {
            timeout: timeout.map(|seconds| second * seconds),
            attempts,
            ..Options::default()
        };
        let of = |user: UserLimits, options| {
            let limits = user.or(&options);
            (limits.try_timeout.as_secs(), limits.tries, limits.total_timeout.as_secs())
        };
        let none = UserLimits::default();
        assert_eq!(of(none, said(None, None)), (2, 2, 5));
        assert_eq!(of(none, said(Some(1), Some(1))), (1, 1, 5));
        assert_eq!(of(none, said(Some(3), None)), (3, 2, 6), "longer, because the file asks for it");
        let user = UserLimits {
            try_timeout: Some(second),
            tries: Some(4),
            total_timeout: Some(second * 2),
            max_in_flight: None,
        };
        assert_eq!(of(user, said(Some(9), Some(1))), (1, 4, 2));
    }
}
