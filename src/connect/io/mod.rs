//! The stream between hyper and a connection's socket, with its record of reads and writes.
//!
//! | file | what it holds |
//! |---|---|
//! | `stream_io.rs` | the stream that hyper reads and writes |
//! | `io_record.rs` | the times of reads and writes |
//! | `tcp_notes.rs` | how long a dial's answers were here before they were read |
//! | `interim.rs` | the number of interim responses |
//! | `message.rs`, `protocol.rs` | what is sent and why it failed; HTTP/1.1 or HTTP/2 |

pub(super) mod interim;
pub(super) mod io_record;
pub(super) mod message;
pub(super) mod protocol;
pub(super) mod stream_io;
pub(super) mod tcp_notes;
