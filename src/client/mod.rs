//! The client: requests in, responses out.
//!
//! From the highest floor to the lowest. Nothing imports from a floor above its own (`tests/tidy`).
//!
//! | floor | room or file | what it holds |
//! |---|---|---|
//! | face | `sse/` | server-sent events |
//! | | `client_builder/` | the builder of a client; how its settings are replaced, and what it has learned |
//! | | `request_builder/` | the builder of a request; requests that are passed on; many requests as one stream |
//! | | `handle.rs` | [`Client`]: sends requests, reports statistics, drains |
//! | | `layers/` | tower layers around the client |
//! | engine | `call/` | one call: redirects around retries around resends around one exchange on one connection |
//! | | `inner.rs` | what all calls share |
//! | | `token/` | bearer tokens |
//! | settings | `settings/` | the settings of a client and of its hosts, and the parts that are made of them |
//! | message | `response/` | a response: during its call, as its user reads it, made by hand, and the other protocol after an upgrade |
//! | | `request/` | a request: its settings, its URL, and what must not be sent |
//! | body | `body/` | bodies of requests and responses, and the connection's way back to the pool |
//! | pool | `pool_side/` | what the pool dials, by which settings; changes of DNS and of files |
//! | rules | `policy/` | rules that know no connection; time limits |

mod body;
mod call;
mod client_builder;
mod handle;
mod inner;
mod layers;
mod policy;
mod pool_side;
mod request;
mod request_builder;
mod response;
mod settings;
#[cfg(feature = "sse")]
pub mod sse;
mod token;

pub use crate::client::response::http_messages::ResponseBuilderExt;
pub use crate::client::settings::services::AttemptService;
pub use body::Body;
pub use body::Decompression;
#[cfg(feature = "multipart")]
pub use body::multipart;
pub use client_builder::ClientBuilder;
pub use client_builder::learned::Learned;
pub use client_builder::reconfigure::Reconfiguration;
pub use handle::{Client, WeakClient, get};
pub use policy::hedge::HedgePolicy;
pub use policy::retry::RetryPolicy;
pub use request::Request;
pub use request::attempt_head::AttemptHead;
pub use request::into_url::IntoUrl;
pub use request::options::RequestOptions;
pub use request_builder::RequestBuilder;
pub use request_builder::send_all::SendAll;
pub use response::Response;
pub use response::upgraded::Upgraded;
pub use settings::host_config::HostConfig;
pub use settings::services::ClientService;
pub use token::{Token, TokenSource};

/// Policies for following redirects.
pub mod redirect {
    pub use crate::client::policy::redirect::{Action, Attempt, Policy};
}

/// Policies for retrying calls under reqwest's names, and what a policy's classifier sees. The policy itself is
/// [`RetryPolicy`](crate::RetryPolicy).
pub mod retry {
    pub use crate::client::policy::retry::{Action, ReqRep, RetryPolicy as Builder, for_host, never};
}
