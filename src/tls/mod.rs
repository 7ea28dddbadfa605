//! TLS by rustls: the client's settings, the handshake, and its result.

mod background;
mod certificate;
mod config;
mod error;
mod failure;
mod handshake;
mod identity;
mod info;
mod lazy_config;
mod pem;
mod roots;
mod setters;
mod verify;
mod version;

pub use certificate::{Certificate, CertificateRevocationList};
pub use config::TlsConfig;
pub use error::TlsConfigError;
pub(crate) use failure::{TlsFailed, is_of_proxy, of_proxy, refusal};
pub(crate) use handshake::{Tls, TlsConnected};
pub use identity::Identity;
pub use info::TlsInfo;
pub use version::Version;
