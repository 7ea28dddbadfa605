//! Timings, events, measurements, HAR documents, and the `httpstat` example that shows them.

mod examples;
mod har;
mod httpstat;
#[cfg(feature = "__tls")]
mod inspect_page;
#[cfg(feature = "tracing")]
mod measurements;
mod observers;
mod requests;
mod server_timing;
mod timings;
mod traces;
mod why;
