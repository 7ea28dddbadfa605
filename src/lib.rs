//! An async HTTP client for services that call the same APIs all day.
//!
//! speeddial keeps the numbers (DNS answers, for exactly as long as their TTL allows) and the lines (connections, per
//! host, under limits you set) ready, and says where every microsecond of a request went.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}/", listener.local_addr()?);
//! # tokio::spawn(async move {
//! #     let (mut socket, _) = listener.accept().await?;
//! #     socket.read(&mut [0; 1024]).await?;
//! #     socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await?;
//! #     Ok::<_, std::io::Error>(socket)
//! # });
//! let client = speeddial::Client::new();
//! let response = client.get(&url).send().await?.error_for_status()?;
//! println!("{:#}", response.timings()); // the waterfall of this request
//! assert_eq!(response.text().await?, "hi");
//! # Ok(()) }
//! ```
//!
//! # The parts
//! * [`Client`]: requests in, responses out. [`PoolConfig`] limits its connections, [`Error`] says what went wrong.
//! * [`dns`]: the cache, which works on its own, and the [`Resolve`](dns::Resolve) seam under it.
//! * [`transport`]: the [`Transport`](transport::Transport) seam: from an address to a byte stream.
//! * `tls` (feature `tls`): whom to trust and who to be. [`Proxy`], [`Addresses`]: which way to go.
//! * `interop` (features `hyper-util`, `reqwest`): the connector and the DNS cache under other people's clients; (features
//!   `metrics`, `opentelemetry`, `tracing`): what happens, as measurements and spans.
//! * [`trace`]: the [`Observer`](trace::Observer) seam: every event; and [`Timings`](trace::Timings), the sum of them.
//!
//! * [`guide`]: moving from reqwest, tuning the pool, DNS in containers, timeouts, production, tests of your own.
//!
//! # The walk of a request
//! 1. `client/call.rs` takes the deadline and starts the trace.
//! 2. `pool/mod.rs` leases a connection. One that is idle goes out at once: a warm request does nothing more.
//! 3. Otherwise the request queues, and the pool dials: `dns/cached.rs` answers, `race/mod.rs` connects to the first
//!    address that will, `connect/tunnel.rs` has a proxy lead on, `tls/handshake.rs` makes it secret, `connect/handshake.rs`
//!    begins to speak HTTP.
//! 4. `connect/conn.rs` sends the request. Where that fails and `client/retry.rs` finds it safe, again from 2.
//! 5. `client/response.rs` holds the connection until the body was read, then gives it back.
//! 6. `trace/timings.rs` adds up: queue + dns + connect + proxy + tls + send + wait + receive = total.

mod clock;
mod credentials;
mod latency;
mod list;
mod origin;
mod sync;
#[cfg(feature = "__tls")]
mod trust;

pub mod trace;

pub mod dns;
mod pool;
mod race;
#[cfg(feature = "__tls")]
pub mod tls;
pub mod transport;

mod connect;

mod error;

mod client;

#[cfg(any(
    feature = "hyper-util",
    feature = "reqwest",
    feature = "tower",
    feature = "metrics",
    feature = "opentelemetry",
    feature = "tracing"
))]
pub mod interop;

#[cfg(feature = "tower")]
pub use client::ClientService;
#[cfg(feature = "__compression")]
pub use client::Decompression;
pub mod guide;

pub use client::{
    Body, Client, ClientBuilder, IntoUrl, Redirect, RedirectAction, RedirectPolicy, Request, RequestBuilder, Response,
    RetryPolicy,
};
pub use connect::{Addresses, Proxy, ProxyError};
pub use error::{Error, ErrorKind, Result};
pub use latency::Latency;
pub use origin::{Host, Origin, OriginError, Scheme};
pub use pool::{FollowDns, HostLimits, HostStats, PoolConfig, PoolConfigError, PoolStats};

#[cfg(feature = "__bench")]
#[doc(hidden)]
pub use pool::benched::{BenchedLease, BenchedPool};
#[cfg(feature = "__bench")]
#[doc(hidden)]
pub use trace::untimed::without_timings;

pub use http::{Method, StatusCode, Version, header};
pub use url::Url;
pub use {bytes, http, url};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
