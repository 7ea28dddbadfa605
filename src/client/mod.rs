//! The client: requests in, responses out.
//!
//! A file calls files further down in this list, and none further up:
//!
//! | files | what they hold |
//! |---|---|
//! | `doctor/` | a report of how a client reaches an origin, step by step |
//! | `builder/` | the settings, and how a client is made of them |
//! | `send_all.rs`, `sse/` | many requests as one stream; server-sent events |
//! | `request_builder/` | a request that is being put together, from `client.get(url)` to `send()` |
//! | `reconfigure.rs` | settings that are replaced while a client runs |
//! | `learned.rs` | what a client has learned, for another process |
//! | `snapshot.rs` | the state of pool and DNS cache beside the calls of a recorder |
//! | `handle.rs` | [`Client`]: sends requests, reports statistics, drains |
//! | `advice/` | advice on the limits of the pool, from its statistics |
//! | `layers.rs` | tower layers around the client |
//! | `call/` | one call: redirects around retries around resends around one exchange on one connection |
//! | `response_by_hand.rs` | responses that users make for their tests |
//! | `http_messages.rs` | requests and responses as those of the `http` crate, and back |
//! | `response/`, `text.rs` | a response as its user reads it; the charset of its text |
//! | `call_data.rs` | the allocation that holds a request, and its response beside it |
//! | `answer.rs` | a response during its call, which may not be the last one |
//! | `upgraded.rs` | the byte stream of another protocol after an upgrade |
//! | `inner.rs`, `hedging.rs` | what all calls of a client share |
//! | `settings.rs`, `call_defaults.rs` | the settings that can be replaced; the default headers and time limits by host |
//! | `host_config.rs`, `connect_settings.rs` | the settings of some hosts; how a client connects |
//! | `dns_watch.rs`, `file_watch.rs`, `watch_task.rs` | tasks that tell the pool of changed DNS answers, and the client of changed files |
//! | `body/`: `reader.rs` and what it calls | bodies of responses, and the connection's way back to the pool |
//! | `attempt_head.rs`, `attempt_service.rs`, `boxed_service.rs`, `token/` | functions before each attempt; layers around it; bearer tokens |
//! | `dialer.rs`, `connectors.rs` | how the pool opens connections; the connectors of most hosts and of some |
//! | `request_checks.rs`, `request.rs`, `request_options.rs`, `into_url.rs`, `request_url.rs` | a request, its settings, its URL, and what must not be sent |
//! | `pool_key.rs` | which requests share connections |
//! | `body/`: `outgoing.rs` and what it calls | bodies of requests |
//! | `lease_notes.rs` | the connections that a call had, for another library |
//! | `retry_policy.rs`, `hedge_policy.rs`, `redirect_policy.rs`, `safe_to_resend.rs`, `keep_alive.rs`, `deadlines.rs` | rules that know no connection; time limits |

mod advice;
mod answer;
mod attempt_head;
#[cfg(feature = "tower")]
mod attempt_service;
mod body;
#[cfg(feature = "tower")]
mod boxed_service;
mod builder;
mod call;
mod call_data;
mod call_defaults;
mod connect_settings;
mod connectors;
mod deadlines;
mod dialer;
mod dns_watch;
#[cfg(feature = "doctor")]
pub mod doctor;
#[cfg(feature = "__tls")]
mod file_watch;
mod handle;
mod hedge_policy;
mod hedging;
mod host_config;
mod http_messages;
mod inner;
mod into_url;
mod keep_alive;
#[cfg(feature = "tower")]
mod layers;
mod learned;
#[cfg(feature = "aws")]
mod lease_notes;
mod pool_key;
mod reconfigure;
mod redirect_policy;
mod request;
mod request_builder;
mod request_checks;
mod request_options;
mod request_url;
mod response;
mod response_by_hand;
mod retry_policy;
mod safe_to_resend;
mod send_all;
mod settings;
mod snapshot;
#[cfg(feature = "sse")]
pub mod sse;
mod text;
mod token;
mod upgraded;
mod watch_task;

pub use advice::{Advice, AdviceItem, Figure, HostAdvice, Setting, SettingValue, StatsSnapshot};
pub use attempt_head::AttemptHead;
#[cfg(feature = "tower")]
pub use attempt_service::AttemptService;
pub use body::Body;
#[cfg(feature = "__compression")]
pub use body::Decompression;
#[cfg(feature = "multipart")]
pub use body::multipart;
pub use builder::ClientBuilder;
#[cfg(feature = "aws")]
pub(crate) use handle::WeakClient;
pub use handle::{Client, get};
pub use hedge_policy::HedgePolicy;
pub use host_config::HostConfig;
pub use into_url::IntoUrl;
#[cfg(feature = "tower")]
pub use layers::ClientService;
pub use learned::Learned;
#[cfg(feature = "aws")]
pub(crate) use lease_notes::{LeaseNotes, NotedConn};
pub use reconfigure::Reconfiguration;
pub use request::Request;
pub use request_builder::RequestBuilder;
pub use request_options::RequestOptions;
pub use response::Response;
pub use response_by_hand::ResponseBuilderExt;
pub use retry_policy::RetryPolicy;
pub use send_all::SendAll;
pub use token::{Token, TokenSource};
pub use upgraded::Upgraded;

/// Policies for following redirects.
pub mod redirect {
    pub use crate::client::redirect_policy::{Action, Attempt, Policy};
}

/// Policies for retrying calls under reqwest's names, and what a policy's classifier sees. The policy itself is
/// [`RetryPolicy`](crate::RetryPolicy).
pub mod retry {
    pub use crate::client::retry_policy::{Action, ReqRep, RetryPolicy as Builder, for_host, never};
}
