//! TLS by rustls: the client's settings, the handshake, and its result.

mod background;
mod certificate;
mod config;
#[cfg(all(feature = "https-records", feature = "tls"))]
mod encrypted_hello;
mod error;
mod failure;
mod handshake;
mod identity;
mod info;
mod lazy_config;
mod pem;
#[cfg(feature = "doctor")]
mod probe;
mod revocation;
mod roots;
mod setters;
mod verify;
mod version;
mod watched;
#[cfg(feature = "doctor")]
mod x509;

pub use certificate::{Certificate, CertificateRevocationList};
pub use config::TlsConfig;
#[cfg(all(feature = "https-records", feature = "tls"))]
pub(crate) use encrypted_hello::{HelloRejected, hello_rejected};
pub use error::TlsConfigError;
pub(crate) use failure::{TlsFailed, is_of_proxy, of_proxy, refusal};
pub(crate) use handshake::{Tls, TlsConnected};
pub use identity::Identity;
pub use info::TlsInfo;
#[cfg(feature = "doctor")]
pub use probe::CertificateProblem;
#[cfg(feature = "doctor")]
pub(crate) use probe::{certificate_problem, has_no_common_protocol, refuses_client, speaks_no_tls};
pub use version::Version;
#[cfg(feature = "doctor")]
pub use x509::CertificateSummary;
