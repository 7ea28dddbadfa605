//! Adapters for other crates: the client below SDKs and exporters, the connector and the DNS cache for other HTTP clients, and
//! measurements and spans made from this crate's events.

#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "hyper-util")]
mod connection_use;
#[cfg(feature = "hyper-util")]
mod hyper_util;
mod measured;
#[cfg(feature = "oauth2")]
mod oauth2;
#[cfg(feature = "opentelemetry-http-0-33")]
mod opentelemetry_http;
#[cfg(feature = "reqwest-0-13")]
mod reqwest;
mod stores;
mod tower;

#[cfg(feature = "aws")]
pub use self::aws::Aws;
#[cfg(feature = "opentelemetry-http-0-33")]
pub use self::opentelemetry_http::OpenTelemetryHttp;
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
#[cfg(feature = "object-store-0-14")]
pub use stores::object_store::ObjectStore;
#[cfg(feature = "opendal-0-59")]
pub use stores::opendal::OpenDal;
