//! One attempt of a call: a message on a connection, and its response.
//!
//! | file | what it does |
//! |---|---|
//! | `admit.rs` | the check of the request |
//! | `message.rs`, `cookies.rs` | the message that is sent |
//! | `dispatch.rs` | hands it to the connection, with its content if the server wants it |
//! | `exchange.rs` | sends it, and waits for the head of its response |
//! | `receive.rs` | the response, or another protocol on the connection |
//! | `end.rs` | the end without one |

pub(super) mod admit;
pub(super) mod context;
#[cfg(feature = "cookies")]
pub(super) mod cookies;
pub(super) mod dispatch;
pub(super) mod end;
pub(super) mod exchange;
pub(super) mod message;
pub(super) mod receive;
