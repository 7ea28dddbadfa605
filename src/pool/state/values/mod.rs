//! What is said of connections, requests and hosts: the values that the parts share.

pub(super) mod conn;
pub(super) mod counters;
pub(super) mod types;
