//! The record of a call or a dial while it goes on: it folds events into timings, and tells observers.

pub(super) mod call_trace;
pub(super) mod dial_trace;
