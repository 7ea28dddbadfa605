//! One attempt of a call: a message on a connection, and its response.
//!
//! | file | what it does |
//! |---|---|
//! | `admit.rs` | the check of the request |
//! | `content.rs`, `message.rs`, `cookies.rs` | the message that is sent |
//! | `dispatch.rs` | hands it to the connection |
//! | `exchange.rs` | sends it, and waits for the head of its response |
//! | `upgrade.rs` | another protocol on the connection |
//! | `receive.rs` | the response |
//! | `end.rs` | the end without one |

pub(super) mod admit;
pub(super) mod content;
pub(super) mod context;
#[cfg(feature = "cookies")]
pub(super) mod cookies;
pub(super) mod dispatch;
pub(super) mod end;
pub(super) mod exchange;
pub(super) mod message;
pub(super) mod receive;
pub(super) mod upgrade;
