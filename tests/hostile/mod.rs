//! Peers that break the rules, and input that is wrong: a clear error or a right answer, in time.

mod common;
mod dns;
mod http1;
mod http2;
mod input;
