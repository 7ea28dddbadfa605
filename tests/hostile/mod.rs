//! Peers that break the rules, and input that is wrong: a clear error or a right answer, in time.

mod dns;
mod http;
mod input;
