//! Requests, responses and their bodies; HTTP/2; errors; redirects, retries and deadlines; the client under other crates.

mod bodies;
#[cfg(feature = "sse")]
mod broken_event_streams;
mod calls;
#[cfg(feature = "cookies")]
mod cookies;
mod deadlines;
#[cfg(all(feature = "cookies", feature = "sse"))]
mod doors;
mod error_details;
mod error_messages;
mod errors;
#[cfg(feature = "sse")]
mod event_streams;
#[cfg(all(
    feature = "charset",
    feature = "cookies",
    feature = "gzip",
    feature = "brotli",
    feature = "zstd",
    feature = "deflate",
    feature = "json",
    feature = "multipart",
    feature = "__tls"
))]
mod from_reqwest;
pub(crate) mod gateways;
mod grpc;
mod hedges;
mod http2;
#[cfg(all(feature = "hyper-util", feature = "__tls"))]
mod interop;
mod middleware;
mod quiet_streams;
mod reconfigurations;
mod redirects;
mod request_options;
mod requests;
mod retries;
mod send_all;
mod settings;
mod tokens;
mod tower;
mod upgraded_streams;
mod upgrades;
mod uploads;
