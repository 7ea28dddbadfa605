//! Widely used servers: dnsmasq, unbound, BIND and Knot DNS; nginx and haproxy. Those that are not installed are skipped with a message.

mod dns;
#[cfg(feature = "__tls")]
mod gateways;
#[cfg(feature = "__tls")]
mod web;
