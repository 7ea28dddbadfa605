//! The machine's configuration of names.
//!
//! | file | what it does |
//! |---|---|
//! | `config.rs` | the servers and the search list |
//! | `resolv_conf.rs`, `hosts.rs` | the files |
//! | `watched_file.rs` | reads a file again when it has changed |
//! | `limits.rs` | timeouts and numbers, of the user, of resolv.conf, or by default |

pub(super) mod config;
pub(super) mod hosts;
pub(super) mod limits;
#[cfg_attr(not(unix), allow(dead_code, reason = "resolv.conf is Unix's"))]
pub(super) mod resolv_conf;
pub(super) mod watched_file;
