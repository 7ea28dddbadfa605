//! The crate's behaviour from outside, one file each.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test says loudly what it found, or did not")]

mod addresses;
mod bad_input;
mod bodies;
mod call;
mod deadlines;
mod dns;
#[cfg(feature = "dns-over-https")]
mod dns_encrypted;
mod dns_evil;
mod dns_servers;
mod evil;
#[cfg(all(feature = "charset", feature = "form", feature = "json", feature = "query"))]
mod from_reqwest;
mod http2;
mod httpstat;
mod input;
#[cfg(all(feature = "hyper-util", feature = "reqwest", feature = "__tls"))]
mod interop;
#[cfg(all(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod measurements;
#[cfg(target_os = "linux")]
mod netns;
mod observers;
mod pool;
mod proxies;
mod redirects;
mod requests;
mod retries;
mod support;
mod timings;
#[cfg(feature = "__tls")]
mod tls;
#[cfg(feature = "tower")]
mod tower;
mod uploads;
#[cfg(feature = "__tls")]
mod web_servers;
