//! HTTP/2 against a peer that is scripted frame by frame, in paused time; and over real sockets.

mod balancing;
mod cancelled;
mod common;
mod early_answers;
mod liveness;
mod no_content;
mod real_sockets;
mod refusals;
#[cfg(feature = "__tls")]
mod sizes;
mod streams;
