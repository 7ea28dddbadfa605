//! Values for settings, made of the user's text: constructors whose error is [`Error`], as that of the client's calls is.

use crate::connect::Proxy;
use crate::error::Error;
#[cfg(feature = "__tls")]
use crate::tls::{Certificate, CertificateRevocationList, Identity};

impl Proxy {
    /// Creates a proxy for all requests. `url` is a `&str`, a `String` or a [`Url`](crate::Url).
    ///
    /// # Errors
    /// An [`Error`] whose source is a [`ProxyError`](crate::settings::ProxyError), if `url` is not the URL of a proxy.
    pub fn all<U: AsRef<str>>(url: U) -> Result<Self, Error> {
        Ok(Self::for_all(url.as_ref())?)
    }

    /// Creates a proxy for requests to `http` URLs.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn http<U: AsRef<str>>(url: U) -> Result<Self, Error> {
        Ok(Self::for_http(url.as_ref())?)
    }

    /// Creates a proxy for requests to `https` URLs.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn https<U: AsRef<str>>(url: U) -> Result<Self, Error> {
        Ok(Self::for_https(url.as_ref())?)
    }
}

#[cfg(feature = "__tls")]
impl Certificate {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// An [`Error`] whose source is [`TlsConfigError::Root`](crate::tls::TlsConfigError::Root), if it cannot be read.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        Ok(Self::read_der(der)?)
    }

    /// Reads all certificates of a text in PEM.
    ///
    /// # Errors
    /// An [`Error`] whose source is [`TlsConfigError::Pem`](crate::tls::TlsConfigError::Pem) if there is none or the text is not valid,
    /// [`TlsConfigError::Root`](crate::tls::TlsConfigError::Root) if one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        Ok(Self::read_pem(pem)?)
    }

    /// Reads the certificates of a text in PEM, each as a value of its own.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn from_pem_bundle(pem_bundle: &[u8]) -> Result<Vec<Self>, Error> {
        Ok(Self::read_pem_bundle(pem_bundle)?)
    }
}

#[cfg(feature = "__tls")]
impl CertificateRevocationList {
    /// Reads the first list of a text in PEM.
    ///
    /// # Errors
    /// An [`Error`] whose source is [`TlsConfigError::Pem`](crate::tls::TlsConfigError::Pem), if there is none or it cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        Ok(Self::read_pem_bundle(pem)?.swap_remove(0))
    }

    /// Reads all lists of a text in PEM.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn from_pem_bundle(pem_bundle: &[u8]) -> Result<Vec<Self>, Error> {
        Ok(Self::read_pem_bundle(pem_bundle)?)
    }
}

#[cfg(feature = "__tls")]
impl Identity {
    /// Reads a private key and a chain of certificates, the client's own first, from one text in PEM.
    ///
    /// # Errors
    /// An [`Error`] whose source is a [`TlsConfigError`](crate::tls::TlsConfigError): `Pem` if either is missing or invalid;
    /// `EncryptedKey`, `KeyMismatch` or `ChainOrder` if they cannot be used together; `Refused` for a kind of key or certificate that
    /// rustls does not support.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        Self::from_pkcs8_pem(pem, pem)
    }

    /// Reads a chain of certificates, the client's own first, and its private key, from two texts in PEM. The key may also be in
    /// one of the older forms, PKCS #1 and SEC 1.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn from_pkcs8_pem(chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        Ok(Self::read_pem(chain, key)?)
    }

    /// Reads a private key and its chain of certificates from an archive in PKCS #12 (features `native-tls…`, as in reqwest).
    ///
    /// # Errors
    /// An [`Error`] whose source is a [`TlsConfigError`](crate::tls::TlsConfigError): `Pkcs12` if the archive or the password is wrong,
    /// or those of [`from_pem`](Self::from_pem).
    #[cfg(feature = "__native-tls")]
    pub fn from_pkcs12_der(der: &[u8], password: &str) -> Result<Self, Error> {
        Ok(Self::read_pkcs12(der, password)?)
    }
}
