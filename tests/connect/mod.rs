//! From a name to an open connection: addresses, TLS, proxies, networks that lose packets, and reports of all that.

mod addresses;
mod delays;
#[cfg(feature = "doctor")]
mod doctor;
#[cfg(feature = "__tls")]
#[cfg(target_os = "linux")]
mod network_namespaces;
#[cfg(feature = "__tls")]
mod pool_key;
mod proxies;
mod resolver_ports;
#[cfg(feature = "__tls")]
mod tls;
