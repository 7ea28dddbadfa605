//! Guides for common tasks.
//!
//! * [Moving from reqwest](moving_from_reqwest)
//!
//! Settings:
//!
//! * [Every default with its reason](defaults)
//! * [Timeouts](timeouts)
//! * [Uploads and streams](uploads_and_streams): large bodies, long polls, quiet streams
//! * [Transfers](transfers): downloads that go on, progress of forms, a limit of bandwidth
//! * [Tuning the pool](tuning_the_pool)
//! * [Rotation](rotation): certificates, proxies and limits that change while a service runs
//! * [gRPC](grpc): tonic, pings, balancing
//! * [Balancing gRPC](balancing_grpc): calls over all pods of a headless service
//! * [Upgrades](upgrades): WebSocket, CONNECT, other protocols
//! * [Middleware](middleware): tokens, signatures, layers
//! * [Gateways](gateways): requests that are passed on
//! * [Crawlers and batch jobs](crawlers): many requests with bounded connections, memory and time
//! * [For authors of libraries](libraries): a client that the program gives, tests, features
//! * [Under other crates](under_other_crates): the client, the connector or the DNS cache below SDKs, exporters and other clients
//!
//! The surroundings:
//!
//! * [Load balancers](load_balancers)
//! * [Proxies and sidecars](proxies_and_sidecars)
//! * [DNS in containers](dns_in_containers)
//! * [Trust stores](trust_stores): certificates in minimal images, your own authorities
//! * [FIPS](fips)
//!
//! Operation:
//!
//! * [In production](in_production): measurements, slow calls, secrets
//! * [Why was it slow](why_was_it_slow): the reasons for slow calls, and advice
//! * [When calls fail](when_calls_fail): errors by kind and by symptom
//! * [Shutdown](shutdown)
//!
//! Tests:
//!
//! * [Testing your service](testing_your_service): a network in memory, paused time
//! * [Testing with sockets](testing_with_sockets): TLS, a client that all tests share

#[doc = include_str!("moving_from_reqwest.md")]
pub mod moving_from_reqwest {}

#[doc = include_str!("defaults.md")]
pub mod defaults {}

#[doc = include_str!("timeouts.md")]
pub mod timeouts {}

#[doc = include_str!("uploads_and_streams.md")]
pub mod uploads_and_streams {}

#[doc = include_str!("transfers.md")]
pub mod transfers {}

#[doc = include_str!("libraries.md")]
pub mod libraries {}

#[doc = include_str!("tuning_the_pool.md")]
pub mod tuning_the_pool {}

#[doc = include_str!("rotation.md")]
pub mod rotation {}

#[doc = include_str!("crawlers.md")]
pub mod crawlers {}

#[doc = include_str!("gateways.md")]
pub mod gateways {}

#[doc = include_str!("grpc.md")]
pub mod grpc {}

#[doc = include_str!("balancing_grpc.md")]
pub mod balancing_grpc {}

#[doc = include_str!("upgrades.md")]
pub mod upgrades {}

#[doc = include_str!("middleware.md")]
pub mod middleware {}

// Its examples are tested in `tests/neighbours/guide.rs`, where they find the other crates.
#[cfg_attr(not(doctest), doc = include_str!("under_other_crates.md"))]
pub mod under_other_crates {}

#[doc = include_str!("load_balancers.md")]
pub mod load_balancers {}

#[doc = include_str!("proxies_and_sidecars.md")]
pub mod proxies_and_sidecars {}

#[doc = include_str!("dns_in_containers.md")]
pub mod dns_in_containers {}

#[doc = include_str!("trust_stores.md")]
pub mod trust_stores {}

#[doc = include_str!("fips.md")]
pub mod fips {}

// Its examples run in `tests/guide.rs`, where they find the companion crates.
#[cfg_attr(not(doctest), doc = include_str!("in_production.md"))]
pub mod in_production {}

// Its examples run in `tests/guide.rs`, where they find the companion crates.
#[cfg_attr(not(doctest), doc = include_str!("why_was_it_slow.md"))]
pub mod why_was_it_slow {}

#[doc = include_str!("when_calls_fail.md")]
pub mod when_calls_fail {}

#[doc = include_str!("shutdown.md")]
pub mod shutdown {}

#[doc = include_str!("testing_your_service.md")]
pub mod testing_your_service {}

// Its examples run in `tests/guide.rs`, where they find a certificate authority.
#[cfg_attr(not(doctest), doc = include_str!("testing_with_sockets.md"))]
pub mod testing_with_sockets {}
