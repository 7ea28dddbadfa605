//! From a name to an open connection: addresses, TLS, proxies, networks that lose packets, and reports of all that.

mod addresses;
#[cfg(feature = "doctor")]
mod doctor;
#[cfg(all(feature = "__tls", feature = "https-records"))]
mod https_records;
#[cfg(target_os = "linux")]
mod network_namespaces;
mod proxies;
#[cfg(feature = "__tls")]
mod tls;
