//! Widely used servers: dnsmasq, unbound, BIND and Knot DNS; nginx and haproxy. Those that are not installed are skipped with a message.

mod dns;
#[cfg(all(feature = "__tls", feature = "https-records"))]
mod https_records;
#[cfg(feature = "__tls")]
mod web;
