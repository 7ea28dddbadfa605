//! From a name to an open connection: addresses, TLS, proxies, and networks that lose packets.

mod addresses;
#[cfg(target_os = "linux")]
mod network_namespaces;
mod proxies;
#[cfg(feature = "__tls")]
mod tls;
