//! Certificates, keys and the roots of trust.
//!
//! | file | what it does |
//! |---|---|
//! | `certificate.rs`, `identity.rs`, `pem.rs` | those that the user gives |
//! | `revocation.rs` | which ones are trusted |
//! | `watched.rs` | files of them that are read again |
//! | `verify.rs` | the verification of a server |
//! | `x509.rs` | what a certificate says of itself |

pub(super) mod certificate;
pub(super) mod identity;
pub(super) mod pem;
pub(super) mod revocation;
pub(super) mod verify;
pub(super) mod watched;
#[cfg(feature = "doctor")]
pub(super) mod x509;
