//! TLS by rustls: the client's settings, the handshake, and its result.

mod background;
mod config;
mod error;
mod failure;
mod handshake;
mod identity;
mod lazy_config;
mod pem;
mod verify;

pub use config::{TlsConfig, TlsVersion};
pub use error::TlsConfigError;
pub(crate) use failure::refusal;
pub(crate) use handshake::{Tls, TlsConnected};
