//! Measurements and spans, made from this crate's events.
//!
//! | file | what it does |
//! |---|---|
//! | `meter.rs`, `instruments.rs`, `readings.rs` | what is measured |
//! | `conventions.rs`, `known_names.rs` | the names of OpenTelemetry, and which values a label may have |
//! | `metrics.rs`, `opentelemetry_metrics.rs` | to whom measurements go |
//! | `opentelemetry.rs`, `tracing.rs`, `propagation.rs` | spans, and the headers by which a server joins them |

#[cfg(any(feature = "metrics-0-24", feature = "opentelemetry-0-33", feature = "tracing"))]
pub(super) mod conventions;
#[cfg(any(feature = "metrics-0-24", feature = "opentelemetry-0-33"))]
pub(super) mod instruments;
#[cfg(any(feature = "metrics-0-24", feature = "opentelemetry-0-33"))]
pub(super) mod known_names;
#[cfg(any(feature = "metrics-0-24", feature = "opentelemetry-0-33"))]
pub(super) mod meter;
#[cfg(feature = "metrics-0-24")]
pub(super) mod metrics;
#[cfg(feature = "opentelemetry-0-33")]
pub(super) mod opentelemetry;
#[cfg(feature = "opentelemetry-0-33")]
pub(super) mod opentelemetry_metrics;
#[cfg(any(feature = "opentelemetry-0-33", feature = "tracing"))]
pub(super) mod propagation;
#[cfg(any(feature = "metrics-0-24", feature = "opentelemetry-0-33"))]
pub(super) mod readings;
#[cfg(feature = "tracing")]
pub(super) mod tracing;
