//! An async HTTP client with its own DNS cache, connection pool and timings.
//!
//! speeddial is for services that call the same APIs all day. It keeps DNS answers for as long as their TTL allows, and longer
//! only while DNS fails or is slow, keeps connections open under limits that you set, and reports how long each phase of every request took. Its API follows
//! reqwest's. It runs on tokio and speaks HTTP/1.1 and HTTP/2, with TLS by rustls.
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
//! println!("{:#}", response.timings()); // the phases of this request as a waterfall
//! assert_eq!(response.text().await?, "hi");
//! # Ok(()) }
//! ```
//!
//! A [`Client`] is cheap to clone; make one and share it. Its clones use the same pool and the same DNS cache.
//!
//! # The parts
//! * [`Client`] sends a [`Request`] and returns a [`Response`]. [`ClientBuilder`] configures it, and [`Error`] is the error of
//!   every call.
//! * [`PoolConfig`] sets the limits of the connection pool, and [`RetryPolicy`], [`HedgePolicy`] and [`redirect::Policy`] the rules
//!   for further requests of a call.
//! * [`pool`] has the limits of some hosts and the figures of the pool, [`settings`] the other settings of some hosts and of one request,
//!   [`token`] bearer tokens, [`layers`] code around calls and attempts, and [`origin`] what tells hosts apart.
//! * [`Client::send_all`] makes many requests as a stream of responses. `sse` (feature `sse`) has server-sent events.
//! * [`Upgraded`] is the byte stream of another protocol, such as WebSocket, after an upgrade or a CONNECT.
//! * [`dns`] has the DNS cache, which can be used without a client, and the [`Resolver`](dns::Resolver) trait of the resolvers
//!   below it.
//! * [`transport`] has the [`Transport`](transport::Transport) trait, which connects an address to a byte stream.
//! * `tls` (features `tls` and `tls-ring`) configures trust and client certificates. [`Proxy`] and [`Addresses`](settings::Addresses) choose the way
//!   to a server.
//! * `cookie` (feature `cookies`) has the cookie store.
//! * [`trace`] has the events of calls and connections, the [`Observer`](trace::Observer) trait that receives them, and the
//!   [`Timings`](trace::Timings) of each call.
//! * `doctor` (feature `doctor`) is a report of how a client reaches an origin. The companion crate `speeddial-inspect` has recorders of
//!   calls with their page, HAR documents, and advice on the limits of the pool.
//! * `interop` has the connector under hyper-util's client (feature `hyper-util`), and spans of the `tracing` crate (`tracing`). A
//!   [`Client`] is a `tower::Service`. Companion crates [measure](guide::in_production) its calls: `speeddial-metrics`,
//!   `speeddial-opentelemetry`. Others put the client [under other crates](guide::under_other_crates): `speeddial-aws`,
//!   `speeddial-object-store`, `speeddial-opendal`, `speeddial-oauth2`, `speeddial-opentelemetry`; and its DNS cache under reqwest:
//!   `speeddial-reqwest`.
//!
//! # Features
//! | feature | adds |
//! |---|---|
//! | `tls` (default) | TLS by rustls with aws-lc-rs, including its post-quantum key exchange, unless the process installs another provider |
//! | `tls-ring` | TLS by rustls with ring, quicker to build: with `default-features = false`; without effect beside `tls` and what turns that on |
//! | `webpki-roots` | Mozilla's certificate authorities, compiled in, for `TlsConfig::webpki_roots` |
//! | `dns-over-tls`, `dns-over-https` | DNS servers that are asked over TLS and over HTTPS |
//! | `multipart` | forms of several parts, with files |
//! | `json`; `charset` (default) | bodies made of values; text in charsets other than UTF-8 |
//! | `cookies` | a cookie store with the rules of browsers and the public suffix list, and the cookies of responses |
//! | `sse` | server-sent events: `Response::events`, and an event source that opens its connection again |
//! | `gzip`, `brotli`, `zstd`, `deflate` | decompression of response bodies |
//! | `hyper-util` | the connector and the DNS cache under hyper-util's client and tonic |
//! | `tracing` | spans under the names of OpenTelemetry's conventions |
//! | `doctor` | a report of how a client reaches an origin, step by step, with what is wrong and advice |
//! | `serde` | serialization of timings, DNS snapshots, cookie jars, reports of the doctor, and what a client has learned |
//!
//! The features of reqwest exist as well, so that a manifest which renames the crate is accepted:
//! [moving from reqwest](guide::moving_from_reqwest) has them.
//!
//! # Guides
//! * [Moving from reqwest](guide::moving_from_reqwest)
//! * [Every default with its reason](guide::defaults)
//! * [Timeouts](guide::timeouts); [uploads and streams](guide::uploads_and_streams): large bodies, long polls, quiet streams;
//!   [transfers](guide::transfers) that go on
//! * [Middleware](guide::middleware): tokens, signatures, layers around calls and attempts
//! * [Upgrades](guide::upgrades): WebSocket, CONNECT, other protocols; [gateways](guide::gateways) that pass requests on; [crawlers and batch
//!   jobs](guide::crawlers)
//! * [For authors of libraries](guide::libraries)
//! * [Under other crates](guide::under_other_crates): AWS SDKs, object_store, kube, exporters of OpenTelemetry, hyper-util, reqwest
//! * [Tuning the pool](guide::tuning_the_pool); [load balancers](guide::load_balancers); [gRPC](guide::grpc), [balanced over pods](guide::balancing_grpc)
//! * [DNS in containers](guide::dns_in_containers); [proxies and sidecars](guide::proxies_and_sidecars)
//! * [Trust stores](guide::trust_stores): certificates in minimal images, your own authorities; [FIPS](guide::fips)
//! * [Rotation](guide::rotation): certificates, proxies and limits that change while a service runs
//! * [In production](guide::in_production): measurements, slow calls, secrets; [shutdown](guide::shutdown)
//! * [Why was it slow](guide::why_was_it_slow): the reasons for slow calls; [when calls fail](guide::when_calls_fail): errors by kind
//!   and by symptom
//! * [Testing your service](guide::testing_your_service) without a network; [with sockets and TLS](guide::testing_with_sockets)

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(docsrs, doc(auto_cfg(hide(feature = "__tls", feature = "__bench", feature = "__simulation"))))]

mod clock;
#[cfg(feature = "cookies")]
#[cfg_attr(docsrs, doc(cfg(feature = "cookies")))]
pub mod cookie;
mod memory;
#[cfg(feature = "doctor")]
#[macro_use]
mod getters;
mod host_pattern;
mod latency;
mod list;
pub mod origin;
mod os;
pub mod redact;
mod sync;
#[cfg(feature = "__tls")]
mod trust;
mod world;

pub mod trace;

pub mod dns;
pub mod pool;
mod race;
#[cfg(feature = "__tls")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
pub mod tls;
#[cfg(not(feature = "__tls"))]
#[path = "tls/off.rs"]
mod tls;
pub mod transport;

mod connect;

pub mod error;

mod client;

#[cfg(feature = "doctor")]
pub mod doctor;
pub mod interop;

pub mod guide;

#[cfg(feature = "multipart")]
pub use client::multipart;
#[cfg(feature = "sse")]
pub use client::sse;
pub use client::{
    Body, Client, ClientBuilder, HedgePolicy, IntoUrl, Request, RequestBuilder, Response, ResponseBuilderExt,
    RetryPolicy, Upgraded, WeakClient, get, redirect, retry,
};
pub use connect::{NoProxy, Proxy};
#[doc(inline)]
pub use error::{Error, ErrorKind, Result};
pub use pool::PoolConfig;
#[cfg(feature = "__tls")]
#[doc(hidden)]
pub use tls::{Certificate, Identity};

/// Settings beside those of a [`Client`] as a whole: of some of its hosts, of one request, and while it runs.
pub mod settings {
    pub use crate::client::Decompression;
    pub use crate::client::{HostConfig, Learned, Reconfiguration, RequestOptions};
    pub use crate::connect::{Addresses, ProxyError};
}

/// Code of the program around requests: functions before each attempt, and tower layers around calls, attempts and dials.
pub mod layers {
    pub use crate::client::AttemptHead;
    pub use crate::client::{AttemptService, ClientService};
    pub use crate::connect::{ConnectorService, DialRequest, DialedStream};
}

/// Bearer tokens that a client gets by itself.
pub mod token {
    pub use crate::client::{Token, TokenSource};
}

/// Many requests, a limited number of them at a time: [`Client::send_all`].
pub mod send_all {
    pub use crate::client::SendAll;
}

/// Private parts of the crate, for its benches.
#[cfg(feature = "__bench")]
#[doc(hidden)]
pub mod benched {
    pub use crate::pool::benched::{BenchedLease, BenchedPool};
    pub use crate::trace::benched::{BenchedHooks, time_warm_request};
}

/// The parts of the world around the crate that `tests/simulation` replaces.
#[cfg(feature = "__simulation")]
#[doc(hidden)]
pub mod simulation {
    pub use crate::world::{Connecting, Datagrams, ReadWrite, World, enter};
}

/// Walks through the states of a pool as the bytes say. For the target in `fuzz/` only.
///
/// # Panics
/// If an invariant of the pool does not hold.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn walk_through_pool(bytes: &[u8]) {
    pool::walk_by_bytes(bytes);
}

pub use http::{Method, StatusCode, Version, header};
pub use url::Url;
pub use {bytes, http, url};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
