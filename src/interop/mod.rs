//! Adapters for other crates: the connector and the DNS cache for hyper-util's clients, and spans of the `tracing` crate.
//!
//! Other neighbours have companion crates over the public API, such as `speeddial-opentelemetry`, `speeddial-metrics` and `speeddial-aws`.

#[cfg(feature = "hyper-util")]
mod connection_use;
#[cfg(feature = "hyper-util")]
mod hyper_util;
mod tower;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
#[cfg(feature = "hyper-util")]
pub use hyper_util::{ConnectedStream, Connecting, Connector};
