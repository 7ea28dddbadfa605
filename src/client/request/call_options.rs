//! The settings of calls that a client, some hosts, and a request may each have.

use crate::client::body::Decompression;
use crate::client::policy::deadlines::Timeouts;
use crate::client::policy::hedge::HedgePolicy;
use crate::client::policy::redirect;
use crate::client::policy::retry::RetryPolicy;

/// Settings of calls. `None` leaves one to the next wider place: to the host, to the client, to the default.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct CallOptions {
    pub(in crate::client) timeouts: Timeouts,
    pub(in crate::client) redirects: Option<redirect::Policy>,
    pub(in crate::client) retries: Option<RetryPolicy>,
    pub(in crate::client) hedges: Option<HedgePolicy>,
    pub(in crate::client) decompression: Option<Decompression>,
    pub(in crate::client) max_body_size: Option<u64>,
}

impl CallOptions {
    /// Fills settings that are not set with those of `defaults`.
    pub(in crate::client) fn or(self, defaults: &Self) -> Self {
        Self {
            timeouts: self.timeouts.or(&defaults.timeouts),
            redirects: self.redirects.or_else(|| defaults.redirects.clone()),
            retries: self.retries.or_else(|| defaults.retries.clone()),
            hedges: self.hedges.or_else(|| defaults.hedges.clone()),
            decompression: self.decompression.or(defaults.decompression),
            max_body_size: self.max_body_size.or(defaults.max_body_size),
        }
    }

    /// Returns true if there is any setting.
    pub(in crate::client) fn is_any_set(&self) -> bool {
        let Self { timeouts, redirects, retries, hedges, decompression, max_body_size } = self;
        let has_policy = redirects.is_some() || retries.is_some() || hedges.is_some();
        timeouts.is_any_set() || has_policy || decompression.is_some() || max_body_size.is_some()
    }
}

/// Makes the setters of [`CallOptions`] methods of types that have them.
macro_rules! call_setters {
    ($owner:ident) => {
        impl $owner {
            /// Sets the longest time a call may take: [`ClientBuilder::timeout`](crate::ClientBuilder::timeout).
            #[must_use]
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.call_options().timeouts.total = Some(timeout);
                self
            }

            /// Sets the longest wait in the pool's queue: [`ClientBuilder::queue_timeout`](crate::ClientBuilder::queue_timeout).
            #[must_use]
            pub fn queue_timeout(mut self, timeout: std::time::Duration) -> Self {
                self.call_options().timeouts.queue = Some(timeout);
                self
            }

            /// Sets the longest wait for the headers of a response:
            /// [`ClientBuilder::headers_timeout`](crate::ClientBuilder::headers_timeout).
            #[must_use]
            pub fn headers_timeout(mut self, timeout: std::time::Duration) -> Self {
                self.call_options().timeouts.headers = Some(timeout);
                self
            }

            /// Sets the longest time without progress of a body:
            /// [`ClientBuilder::body_idle_timeout`](crate::ClientBuilder::body_idle_timeout).
            #[must_use]
            pub fn body_idle_timeout(self, timeout: std::time::Duration) -> Self {
                self.min_speed(1, timeout)
            }

            /// Sets the lowest speed of a body: [`ClientBuilder::min_speed`](crate::ClientBuilder::min_speed).
            #[must_use]
            pub fn min_speed(mut self, bytes: u64, over: std::time::Duration) -> Self {
                let least = $crate::client::policy::deadlines::MinSpeed { bytes: bytes.max(1), over };
                self.call_options().timeouts.body = Some(least);
                self
            }

            /// Sets the longest silence of a server: [`headers_timeout`](Self::headers_timeout) and
            /// [`body_idle_timeout`](Self::body_idle_timeout) at once.
            #[must_use]
            pub fn read_timeout(self, timeout: std::time::Duration) -> Self {
                self.headers_timeout(timeout).body_idle_timeout(timeout)
            }

            /// Sets the policy for following redirects: [`ClientBuilder::redirect`](crate::ClientBuilder::redirect).
            #[must_use]
            pub fn redirect(mut self, policy: $crate::client::policy::redirect::Policy) -> Self {
                self.call_options().redirects = Some(policy);
                self
            }

            /// Sets the policy for retrying calls: [`ClientBuilder::retry`](crate::ClientBuilder::retry). [`RetryPolicy::none`](crate::RetryPolicy::none) turns
            /// retries off.
            #[must_use]
            pub fn retry(mut self, policy: $crate::client::policy::retry::RetryPolicy) -> Self {
                self.call_options().retries = Some(policy);
                self
            }

            /// Sets the policy for hedging: [`ClientBuilder::hedge`](crate::ClientBuilder::hedge). [`HedgePolicy::none`](crate::HedgePolicy::none) turns hedging
            /// off.
            #[must_use]
            pub fn hedge(mut self, policy: $crate::client::policy::hedge::HedgePolicy) -> Self {
                self.call_options().hedges = Some(policy);
                self
            }

            /// Turns decompression off or on, or sets its limits: [`ClientBuilder::decompress`](crate::ClientBuilder::decompress).
            #[must_use]
            pub fn decompress(mut self, decompression: impl Into<$crate::client::body::Decompression>) -> Self {
                self.call_options().decompression = Some(decompression.into());
                self
            }

            /// Sets the maximum length of a response's body in bytes:
            /// [`ClientBuilder::max_body_size`](crate::ClientBuilder::max_body_size). `u64::MAX` for no limit.
            #[must_use]
            pub fn max_body_size(mut self, bytes: u64) -> Self {
                self.call_options().max_body_size = Some(bytes);
                self
            }
        }
    };
}

pub(in crate::client) use call_setters;
