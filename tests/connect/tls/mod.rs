//! TLS: handshakes, certificates of servers and clients, failures, and what the trace shows of them.

mod certificates;
mod client_certificates;
mod common;
mod failures;
mod handshakes;
mod preparation;
mod rotation;
mod settings;
