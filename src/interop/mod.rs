//! Adapters for other crates: the connector and the DNS cache for hyper-util's clients, and measurements and spans made from this crate's
//! events. The client under other crates is in the companion crates `speeddial-aws`, `speeddial-object-store` and so on.

#[cfg(feature = "hyper-util")]
mod connection_use;
#[cfg(feature = "hyper-util")]
mod hyper_util;
mod measured;
mod tower;

#[cfg(feature = "hyper-util")]
pub use hyper_util::{ConnectedStream, Connecting, Connector};
#[cfg(feature = "metrics-0-24")]
pub use measured::metrics::Metrics;
#[cfg(feature = "opentelemetry-0-33")]
pub use measured::opentelemetry::{OpenTelemetry, PhaseDetail};
#[cfg(feature = "opentelemetry-0-33")]
pub use measured::opentelemetry_metrics::{OpenTelemetryMetrics, WatchedClients};
#[cfg(feature = "tracing")]
pub use measured::tracing::Tracing;
