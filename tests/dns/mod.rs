//! Lookups through the cache and the resolver, in the clear and encrypted.

#[cfg(feature = "dns-over-https")]
mod encrypted;
pub(crate) mod lookups;
