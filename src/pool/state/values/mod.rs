//! The values that all parts of the core share: identifiers, figures, effects, and the record of a connection.

pub(super) mod conn;
pub(super) mod counters;
pub(super) mod types;
