//! Traces that join, and exporters of OpenTelemetry.

mod exporting;
