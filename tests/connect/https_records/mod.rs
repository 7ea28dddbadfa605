//! HTTPS records (RFC 9460): which endpoints are dialled, when, and what the request sees of them.

mod common;
mod delays;
mod endpoints;
mod upgrades;
mod wire;
