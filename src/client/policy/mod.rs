//! Rules about a call, as functions of values: none of them does I/O. The file of the same name in `call/` carries a rule out.
//!
//! | file | what it does |
//! |---|---|
//! | `redirect.rs` | which redirects are followed, and what becomes of the request |
//! | `retry.rs` | which calls are made once more, and when |
//! | `hedge.rs` | when a request is sent beside itself, and within which budget |
//! | `resend.rs` | whether a request may be sent twice, and whether a server may have acted on it |
//! | `framing.rs` | how messages are framed, and what of them is about one connection, such as how long the server keeps it |
//! | `deadlines.rs` | the time limits of a call, and the timer for them |

pub(super) mod deadlines;
pub(super) mod framing;
pub(super) mod hedge;
pub(super) mod redirect;
pub(super) mod resend;
pub(super) mod retry;
