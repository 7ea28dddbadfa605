//! Lookups through the cache and the resolver, over UDP, TCP, TLS and HTTPS.

#[cfg(feature = "dns-over-https")]
mod encrypted;
pub(crate) mod lookups;
