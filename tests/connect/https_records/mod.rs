//! HTTPS records (RFC 9460): which endpoints are dialled, when, and what the request sees of them.

mod common;
mod delays;
#[cfg(feature = "tls")]
mod encrypted_hello;
mod endpoints;
mod upgrades;
mod wire;
