//! Traces that join, and exporters of OpenTelemetry.
