//! The reasons for folded calls.
