//! Parts of the crate under other people's clients, and what is observed in other people's words.

#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod conventions;
#[cfg(feature = "hyper-util")]
mod hyper_util;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod instruments;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
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
pub use hyper_util::{Connecting, Connector, Line};
