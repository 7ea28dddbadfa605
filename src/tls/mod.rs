//! TLS by rustls: the client's settings, the handshake, and its result.

mod certs;
mod config;
mod failure;
mod handshake;
#[cfg(feature = "doctor")]
mod probe;
mod version;

pub use crate::tls::certs::{Certificate, CertificateRevocationList};
pub use crate::tls::failure::TlsConfigError;
pub use crate::tls::handshake::TlsInfo;
pub use certs::identity::Identity;
#[cfg(feature = "doctor")]
pub use certs::x509::CertificateSummary;
pub use config::TlsConfig;
pub use failure::CertificateProblem;
pub(crate) use failure::{
    TlsFailed, certificate_problem, is_of_proxy, of_proxy, refusal, refuses_client, speaks_no_tls,
};
pub(crate) use handshake::{Tls, TlsConnected};
#[cfg(feature = "doctor")]
pub(crate) use probe::has_no_common_protocol;
pub use version::Version;
