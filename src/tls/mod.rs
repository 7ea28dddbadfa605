//! TLS by rustls: the client's settings, the handshake, and its result.

mod background;
mod config;
mod error;
mod failure;
mod handshake;
mod identity;
mod lazy_config;
mod pem;
mod roots;
mod verify;

pub use config::{TlsConfig, TlsVersion};
pub use error::TlsConfigError;
pub(crate) use failure::{TlsFailed, is_of_proxy, of_proxy, refusal};
pub(crate) use handshake::{Tls, TlsConnected};
