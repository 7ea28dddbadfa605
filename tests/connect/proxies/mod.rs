//! Proxies, real ones (tinyproxy, microsocks) and scripted ones, and Unix domain sockets.

mod common;
mod http_proxies;
mod per_request;
mod socks_proxies;
#[cfg(unix)]
mod unix_sockets;
