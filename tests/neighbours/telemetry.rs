//! Traces that join, and exporters of OpenTelemetry.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod exporting;
mod joined;
