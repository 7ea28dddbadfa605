//! The settings of TLS under the names that reqwest has for them.

use std::any::{Any, type_name};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::ClientBuilder;
use crate::error::Error;
use crate::tls::{Certificate, CertificateRevocationList, Identity, TlsConfig, Version};

/// Settings of TLS. A [`TlsConfig`] has the same settings and more. [`tls`](ClientBuilder::tls) sets all of them at once,
/// so it comes before these; [`build`](ClientBuilder::build) refuses it after one of them.
#[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
impl ClientBuilder {
    /// Sets the TLS settings: the trusted certificate authorities, the client's own certificate, the versions of TLS.
    /// [`TlsConfig`] has the defaults. A `rustls::ClientConfig` is one of the forms that it takes.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses it after one of the settings that it would replace, such as
    /// [`tls_version_min`](Self::tls_version_min).
    pub fn tls(mut self, tls: impl Into<TlsConfig>) -> Self {
        if let Some(name) = self.connect.tls_setting {
            self.refuse(Error::refused_request(format!("build a client: tls() would replace {name}; call it first")));
        }
        self.connect.tls = tls.into();
        self
    }

    /// Sets the TLS settings: [`tls`](Self::tls) by reqwest's name. It takes a `rustls::ClientConfig` of rustls 0.23, an `Arc` of one,
    /// or a [`TlsConfig`].
    ///
    /// # Errors
    /// [`build`](Self::build) refuses a value of another type, and whatever [`tls`](Self::tls) would be refused for.
    pub fn tls_backend_preconfigured<T: Any>(mut self, tls: T) -> Self {
        let mut given = Some(tls);
        let given: &mut dyn Any = &mut given;
        let config = take::<TlsConfig>(given).or_else(|| take::<ClientConfig>(given));
        match config.or_else(|| take::<Arc<ClientConfig>>(given)) {
            Some(config) => self.tls(config),
            None => {
                let given = type_name::<T>();
                let what = format!(
                    "build a client: TLS settings of the type {given} are neither of rustls 0.23 nor a TlsConfig"
                );
                self.refuse(Error::refused_request(what));
                self
            }
        }
    }

    /// Sets the TLS settings: [`tls_backend_preconfigured`](Self::tls_backend_preconfigured) by its older name.
    ///
    /// # Errors
    /// As [`tls_backend_preconfigured`](Self::tls_backend_preconfigured).
    pub fn use_preconfigured_tls(self, tls: impl Any) -> Self {
        self.tls_backend_preconfigured(tls)
    }

    /// Sets the longest time that the TLS handshake with one address may take before the next address is tried. 5 s by
    /// default. While there are other addresses, it is at most half of the rest of the connect timeout.
    pub fn tls_timeout(mut self, timeout: Duration) -> Self {
        self.connect.tls_timeout = timeout;
        self
    }

    /// Sets how often files of certificates and keys are read again
    /// ([`Identity::watch_files`], [`TlsConfig::watch_roots`]). Every 10 s by default. Not zero.
    ///
    /// Without such files it has no effect. They are read while the client has a runtime to do so on: from its first request that needs a new connection, for as long as
    /// the runtime of that lasts.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses zero.
    pub fn tls_reload_interval(mut self, interval: Duration) -> Self {
        if interval.is_zero() {
            self.refuse(Error::refused_request("build a client: tls_reload_interval must not be 0"));
        }
        self.reload_interval = interval;
        self
    }

    /// Also trusts these certificate authorities, beside those of the platform. None by default.
    pub fn tls_certs_merge(self, certs: impl IntoIterator<Item = Certificate>) -> Self {
        self.with_tls("tls_certs_merge", |tls| tls.add_roots(certs))
    }

    /// Trusts these certificate authorities, and not those of the platform. If there are none, every handshake fails, unless any
    /// certificate is accepted.
    pub fn tls_certs_only(self, certs: impl IntoIterator<Item = Certificate>) -> Self {
        self.with_tls("tls_certs_only", |tls| tls.add_roots(certs).only_added_roots())
    }

    /// With false, trusts the added certificate authorities alone: [`tls_certs_only`](Self::tls_certs_only) under the name that
    /// reqwest 0.12 has for it. True by default: those of the platform are trusted as well.
    pub fn tls_built_in_root_certs(self, built_in: bool) -> Self {
        self.with_tls("tls_built_in_root_certs", |tls| tls.built_in_roots(built_in))
    }

    /// Also trusts this certificate authority: [`tls_certs_merge`](Self::tls_certs_merge) for one.
    pub fn add_root_certificate(self, cert: Certificate) -> Self {
        self.with_tls("add_root_certificate", |tls| tls.add_roots([cert]))
    }

    /// Refuses certificates that these lists name, and those of authorities without a list among them. Lists of several
    /// calls add up; of several lists of an authority the newest one counts alone, also after the date of its next update. None by default.
    ///
    /// # Errors
    /// [`build`](Self::build) fails unless the trusted authorities are the client's own
    /// ([`tls_certs_only`](Self::tls_certs_only)): the platform's verifier takes no lists.
    pub fn tls_crls_only(self, crls: impl IntoIterator<Item = CertificateRevocationList>) -> Self {
        self.with_tls("tls_crls_only", |tls| tls.add_revocation_lists(crls))
    }

    /// Adds a list of revoked certificates: [`tls_crls_only`](Self::tls_crls_only) for one.
    pub fn add_crl(self, crl: CertificateRevocationList) -> Self {
        self.with_tls("add_crl", |tls| tls.add_revocation_lists([crl]))
    }

    /// Adds lists of revoked certificates: [`tls_crls_only`](Self::tls_crls_only) under its older name.
    pub fn add_crls(self, crls: impl IntoIterator<Item = CertificateRevocationList>) -> Self {
        self.with_tls("add_crls", |tls| tls.add_revocation_lists(crls))
    }

    /// Sends this certificate to servers, and to `https` proxies, that ask for one (mTLS). None by default.
    pub fn identity(self, identity: Identity) -> Self {
        self.with_tls("identity", |tls| tls.identity(identity))
    }

    /// Sets whether a valid certificate is accepted also if it is for another host. False by default; for tests only.
    /// See [`TlsConfig::danger_accept_invalid_hostnames`].
    ///
    /// # Errors
    /// [`build`](Self::build) fails unless the trusted authorities are the client's own
    /// ([`tls_certs_only`](Self::tls_certs_only)), or any certificate is accepted
    /// ([`tls_danger_accept_invalid_certs`](Self::tls_danger_accept_invalid_certs)).
    pub fn tls_danger_accept_invalid_hostnames(self, accept_invalid_hostname: bool) -> Self {
        self.with_tls("tls_danger_accept_invalid_hostnames", |tls| {
            tls.danger_accept_invalid_hostnames(accept_invalid_hostname)
        })
    }

    /// Sets [`tls_danger_accept_invalid_hostnames`](Self::tls_danger_accept_invalid_hostnames), under its older name.
    pub fn danger_accept_invalid_hostnames(self, accept_invalid_hostname: bool) -> Self {
        self.tls_danger_accept_invalid_hostnames(accept_invalid_hostname)
    }

    /// Sets whether any certificate is accepted, also an expired or forged one, and one of another host. False by
    /// default; for tests only. See [`TlsConfig::danger_accept_invalid_certs`].
    ///
    /// **An attacker on the network can then read and change everything.**
    pub fn tls_danger_accept_invalid_certs(self, accept_invalid_certs: bool) -> Self {
        self.with_tls("tls_danger_accept_invalid_certs", |tls| tls.danger_accept_invalid_certs(accept_invalid_certs))
    }

    /// Sets [`tls_danger_accept_invalid_certs`](Self::tls_danger_accept_invalid_certs), under its older name.
    pub fn danger_accept_invalid_certs(self, accept_invalid_certs: bool) -> Self {
        self.tls_danger_accept_invalid_certs(accept_invalid_certs)
    }

    /// Sets whether servers are told the name that the client asks for (SNI, RFC 6066 §3). True by default.
    pub fn tls_sni(self, tls_sni: bool) -> Self {
        self.with_tls("tls_sni", |tls| tls.sni(tls_sni))
    }

    /// Sets whether the keys of connections are appended to the file that the environment variable `SSLKEYLOGFILE` names,
    /// for programs such as Wireshark. False by default.
    ///
    /// **A reader of that file can decrypt the connections.**
    pub fn tls_sslkeylogfile(self, on: bool) -> Self {
        self.with_tls("tls_sslkeylogfile", |tls| tls.key_log_file(on))
    }

    /// Sets the lowest version of TLS that the client speaks. TLS 1.2 by default.
    pub fn tls_version_min(self, version: Version) -> Self {
        self.with_tls("tls_version_min", |tls| tls.min_version(version))
    }

    /// Sets [`tls_version_min`](Self::tls_version_min), under its older name.
    pub fn min_tls_version(self, version: Version) -> Self {
        self.tls_version_min(version)
    }

    /// Sets the highest version of TLS that the client speaks. TLS 1.3 by default.
    ///
    /// # Errors
    /// [`build`](Self::build) fails if that leaves neither 1.2 nor 1.3.
    pub fn tls_version_max(self, version: Version) -> Self {
        self.with_tls("tls_version_max", |tls| tls.max_version(version))
    }

    /// Sets [`tls_version_max`](Self::tls_version_max), under its older name.
    pub fn max_tls_version(self, version: Version) -> Self {
        self.tls_version_max(version)
    }

    /// Uses rustls for TLS. It is the only choice, and the default.
    pub fn tls_backend_rustls(self) -> Self {
        self
    }

    /// Uses rustls for TLS: [`tls_backend_rustls`](Self::tls_backend_rustls) under its older name.
    pub fn use_rustls_tls(self) -> Self {
        self
    }

    /// Uses rustls for TLS, with the trust and the roots of the platform, as always: there is no native-tls here (features
    /// `native-tls…`, as in reqwest).
    #[cfg(feature = "__native-tls")]
    pub fn tls_backend_native(self) -> Self {
        self
    }

    /// Uses rustls for TLS: [`tls_backend_native`](Self::tls_backend_native) under its older name.
    #[cfg(feature = "__native-tls")]
    pub fn use_native_tls(self) -> Self {
        self
    }

    /// Sets whether responses over TLS have a [`TlsInfo`](crate::tls::TlsInfo) among their extensions. False by default.
    /// [`Response::tls`](crate::Response::tls) has more, and needs no setting.
    pub fn tls_info(mut self, tls_info: bool) -> Self {
        self.defaults.adds_tls_info = tls_info;
        self
    }

    fn with_tls(mut self, name: &'static str, set: impl FnOnce(TlsConfig) -> TlsConfig) -> Self {
        self.connect.tls = set(std::mem::take(&mut self.connect.tls));
        self.connect.tls_setting = Some(name);
        self
    }
}

/// Takes TLS settings out of an `Option`, if they are of this type.
fn take<T: Into<TlsConfig> + 'static>(given: &mut dyn Any) -> Option<TlsConfig> {
    given.downcast_mut::<Option<T>>()?.take().map(Into::into)
}
