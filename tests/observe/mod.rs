//! Timings, events, measurements, and the `httpstat` example that shows them.

mod httpstat;
#[cfg(all(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod measurements;
mod observers;
mod timings;
