//! Timings, events, measurements, HAR documents, and the `httpstat` example that shows them.

mod examples;
#[cfg(feature = "inspect")]
mod har;
mod httpstat;
#[cfg(feature = "__tls")]
#[cfg(feature = "inspect")]
mod inspect_page;
#[cfg(all(feature = "metrics-0-24", feature = "opentelemetry-0-33", feature = "tracing"))]
mod measurements;
mod observers;
mod requests;
mod server_timing;
mod timings;
#[cfg(feature = "opentelemetry-0-33")]
mod traces;
mod why;
