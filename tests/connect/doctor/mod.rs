//! Reports of how a client reaches an origin: nothing is wrong in a healthy setup, and each broken one is named rightly.
//!
//! Each test breaks one thing, and checks that the report names that problem and no other.

mod addresses;
#[cfg(feature = "__tls")]
mod certificates;
mod common;
mod dns_servers;
mod healthy;
mod limits;
mod proxies;
mod requests;
