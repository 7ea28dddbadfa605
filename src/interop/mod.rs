//! Adapters for other crates: the client below SDKs and exporters, the connector and the DNS cache for other HTTP clients, and
//! measurements and spans made from this crate's events.

// Each item has a label of its own: with the automatic ones they would repeat the features of the whole module.
#![cfg_attr(docsrs, doc(auto_cfg = false))]

#[cfg(feature = "aws")]
mod aws;
#[cfg(any(feature = "metrics-0-24", feature = "opentelemetry-0-33", feature = "tracing"))]
mod conventions;
#[cfg(feature = "hyper-util")]
mod hyper_util;
#[cfg(any(feature = "metrics-0-24", feature = "opentelemetry-0-33"))]
mod instruments;
#[cfg(any(feature = "metrics-0-24", feature = "opentelemetry-0-33"))]
mod known_names;
#[cfg(feature = "__adapter")]
mod library;
#[cfg(any(feature = "metrics-0-24", feature = "opentelemetry-0-33"))]
mod meter;
#[cfg(feature = "metrics-0-24")]
mod metrics;
#[cfg(feature = "oauth2")]
mod oauth2;
#[cfg(feature = "object-store-0-14")]
mod object_store;
#[cfg(feature = "object-store-0-14")]
mod object_store_options;
#[cfg(feature = "opendal-0-59")]
mod opendal;
#[cfg(feature = "opentelemetry-0-33")]
mod opentelemetry;
#[cfg(feature = "opentelemetry-http-0-33")]
mod opentelemetry_http;
#[cfg(feature = "opentelemetry-0-33")]
mod opentelemetry_metrics;
#[cfg(any(feature = "opentelemetry-0-33", feature = "tracing"))]
mod propagation;
#[cfg(any(feature = "metrics-0-24", feature = "opentelemetry-0-33"))]
mod readings;
#[cfg(feature = "reqwest-0-13")]
mod reqwest;
#[cfg(feature = "tower")]
mod tower;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "aws")]
#[cfg_attr(docsrs, doc(cfg(feature = "aws")))]
pub use self::aws::Aws;
#[cfg(feature = "metrics-0-24")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics-0-24")))]
pub use self::metrics::Metrics;
#[cfg(feature = "object-store-0-14")]
#[cfg_attr(docsrs, doc(cfg(feature = "object-store-0-14")))]
pub use self::object_store::ObjectStore;
#[cfg(feature = "opendal-0-59")]
#[cfg_attr(docsrs, doc(cfg(feature = "opendal-0-59")))]
pub use self::opendal::OpenDal;
#[cfg(feature = "opentelemetry-0-33")]
#[cfg_attr(docsrs, doc(cfg(feature = "opentelemetry-0-33")))]
pub use self::opentelemetry::{OpenTelemetry, PhaseDetail};
#[cfg(feature = "opentelemetry-http-0-33")]
#[cfg_attr(docsrs, doc(cfg(feature = "opentelemetry-http-0-33")))]
pub use self::opentelemetry_http::OpenTelemetryHttp;
#[cfg(feature = "opentelemetry-0-33")]
#[cfg_attr(docsrs, doc(cfg(feature = "opentelemetry-0-33")))]
pub use self::opentelemetry_metrics::OpenTelemetryMetrics;
#[cfg(feature = "tracing")]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub use self::tracing::Tracing;
#[cfg(feature = "hyper-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "hyper-util")))]
pub use hyper_util::{ConnectedStream, Connecting, Connector};
