//! Real sockets in a network namespace of their own. Skipped with a message if the process may not create namespaces.

#[cfg(feature = "__tls")]
mod beside_curl;
mod distances;
mod ports;
#[cfg(feature = "doctor")]
mod reports;
#[cfg(target_env = "gnu")]
mod search_lists;
