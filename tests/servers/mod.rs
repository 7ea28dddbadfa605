//! Servers that people run: dnsmasq, unbound and BIND; nginx and haproxy. Those not installed are skipped, loudly.

mod dns;
#[cfg(feature = "__tls")]
mod web;
