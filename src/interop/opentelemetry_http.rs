//! The client under exporters of OpenTelemetry.
