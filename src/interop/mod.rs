//! Adapters: parts of this crate in other libraries, and this crate's events as their measurements and spans.

#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod conventions;
#[cfg(feature = "hyper-util")]
mod hyper_util;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod instruments;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod meter;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod readings;
#[cfg(feature = "reqwest")]
mod reqwest;
#[cfg(feature = "tower")]
mod tower;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "opentelemetry")]
pub use self::opentelemetry::OpenTelemetry;
#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
#[cfg(feature = "hyper-util")]
pub use hyper_util::{ConnectedStream, Connecting, Connector};
