//! The client under oauth2, and the DNS cache under other clients.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod resolvers;
mod tokens;
