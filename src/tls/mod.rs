//! TLS by rustls: the client's settings, the handshake, and its result.

mod certs;
mod config;
mod encrypted_hello;
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
pub(crate) use encrypted_hello::{HelloRejected, hello_rejected};
pub use error::TlsConfigError;
pub(crate) use failure::{TlsFailed, is_of_proxy, of_proxy, refusal};
pub(crate) use handshake::{Tls, TlsConnected};
pub use info::TlsInfo;
#[cfg(feature = "doctor")]
pub use probe::CertificateProblem;
#[cfg(feature = "doctor")]
pub(crate) use probe::{certificate_problem, has_no_common_protocol, refuses_client, speaks_no_tls};
pub use version::Version;
