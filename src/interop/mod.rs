//! Adapters for other crates: the connector and the DNS cache for other HTTP clients, and measurements and spans made
//! from this crate's events.

// Each item has a label of its own: with the automatic ones they would repeat the features of the whole module.
#![cfg_attr(docsrs, doc(auto_cfg = false))]

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
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use self::metrics::Metrics;
#[cfg(feature = "opentelemetry")]
#[cfg_attr(docsrs, doc(cfg(feature = "opentelemetry")))]
pub use self::opentelemetry::OpenTelemetry;
#[cfg(feature = "tracing")]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub use self::tracing::Tracing;
#[cfg(feature = "hyper-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "hyper-util")))]
pub use hyper_util::{ConnectedStream, Connecting, Connector};
