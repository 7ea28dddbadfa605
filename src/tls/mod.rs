//! TLS by rustls: the client's settings, the handshake, and its result.

mod certs;
mod config;
mod error;
mod failure;
mod handshake;
mod info;
#[cfg(feature = "doctor")]
mod probe;
mod version;

pub use certs::certificate::{Certificate, CertificateRevocationList};
pub use certs::identity::Identity;
#[cfg(feature = "doctor")]
pub use certs::x509::CertificateSummary;
pub use config::TlsConfig;
pub use error::TlsConfigError;
pub use failure::CertificateProblem;
pub(crate) use failure::{
    TlsFailed, certificate_problem, is_of_proxy, of_proxy, refusal, refuses_client, speaks_no_tls,
};
pub(crate) use handshake::{Tls, TlsConnected};
pub use info::TlsInfo;
#[cfg(feature = "doctor")]
pub(crate) use probe::has_no_common_protocol;
pub use version::Version;
