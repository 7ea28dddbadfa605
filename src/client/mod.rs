//! The client: requests in, responses out.
//!
//! | room or file | what it holds |
//! |---|---|
//! | `settings/` | the settings of a client and of its hosts, the parts that are made of them, and how they are replaced |
//! | `send_all.rs`, `sse/` | many requests as one stream; server-sent events |
//! | `handle.rs`, `inner.rs` | [`Client`]: sends requests, reports statistics, drains; what all calls share |
//! | `layers/` | tower layers around the client and its attempts |
//! | `call/` | one call: redirects around retries around resends around one exchange on one connection |
//! | `request/` | a request: its builder, its settings, its URL, and what must not be sent |
//! | `response/` | a response: during its call, as its user reads it, made by hand, and the other protocol after an upgrade |
//! | `token/` | bearer tokens |
//! | `body/` | bodies of requests and responses, and the connection's way back to the pool |
//! | `pool_side/` | the client's side of the pool: dials, hosts, changes of DNS |
//! | `policy/` | rules that know no connection; time limits |

mod body;
mod call;
mod handle;
mod inner;
mod layers;
mod policy;
mod pool_side;
mod request;
mod response;
mod send_all;
mod settings;
#[cfg(feature = "sse")]
pub mod sse;
mod token;

pub use body::Body;
pub use body::Decompression;
#[cfg(feature = "multipart")]
pub use body::multipart;
pub use call::attempt::head::AttemptHead;
pub use handle::{Client, WeakClient, get};
pub use layers::ClientService;
pub use layers::attempt_service::AttemptService;
pub use policy::hedge::HedgePolicy;
pub use policy::retry::RetryPolicy;
pub use request::Request;
pub use request::builder::RequestBuilder;
pub use request::into_url::IntoUrl;
pub use request::options::RequestOptions;
pub use response::Response;
pub use response::by_hand::ResponseBuilderExt;
pub use response::upgraded::Upgraded;
pub use send_all::SendAll;
pub use settings::builder::ClientBuilder;
pub use settings::host_config::HostConfig;
pub use settings::learned::Learned;
pub use settings::reconfigure::Reconfiguration;
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
