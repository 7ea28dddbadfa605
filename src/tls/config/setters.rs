//! The methods that set a [`TlsConfig`].

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;

use super::{Roots, TlsConfig};
use crate::tls::certs::certificate::{Certificate, CertificateRevocationList};
use crate::tls::certs::identity::Identity;
use crate::tls::certs::watched::{WatchedFiles, read_roots};
use crate::tls::error::TlsConfigError;
use crate::tls::version::Version;

impl TlsConfig {
    /// Creates the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also trusts these certificate authorities.
    pub fn add_roots(mut self, roots: impl IntoIterator<Item = Certificate>) -> Self {
        self.extra_roots.extend(roots.into_iter().flat_map(|root| root.ders));
        self
    }

    /// Also trusts the certificate authorities of a file in PEM, or of the files in a directory whose names end in `.pem`, `.crt`
    /// or `.cer`, which clients read again while they run: every 10 s, or as
    /// [`ClientBuilder::tls_reload_interval`](crate::ClientBuilder::tls_reload_interval) says.
    ///
    /// When they have changed, a client trusts the new ones from then on. If an authority was removed, the connections that were
    /// made before take no new requests, and close after those that they carry. As long as a file cannot be read or is not valid,
    /// the client goes on with the last ones that were, and reports
    /// [`Event::TlsFilesRefused`](crate::trace::Event::TlsFilesRefused).
    ///
    /// # Errors
    /// [`TlsConfigError::Unreadable`] if a file or the directory cannot be read now, or there is none in it;
    /// [`TlsConfigError::InFile`] if the content of a file is not valid.
    pub fn watch_roots(mut self, path: impl Into<PathBuf>) -> Result<Self, TlsConfigError> {
        self.watched_roots.push(Arc::new(WatchedFiles::open(vec![path.into()], read_roots)?));
        Ok(self)
    }

    /// Trusts the added certificate authorities alone, rather than those of the platform.
    ///
    /// If none was added, every handshake fails, unless any certificate is accepted.
    pub fn only_added_roots(mut self) -> Self {
        self.roots = Roots::Added;
        self.lacks_built_in = false;
        self
    }

    /// Trusts the added certificate authorities alone, or takes that back.
    pub(crate) fn built_in_roots(mut self, trusted: bool) -> Self {
        if !trusted {
            self.roots = Roots::Added;
        } else if self.lacks_built_in {
            self.roots = Roots::Platform;
        }
        self.lacks_built_in = !trusted;
        self
    }

    /// Trusts Mozilla's certificate authorities, compiled in, rather than those of the platform.
    #[cfg(feature = "webpki-roots")]
    pub fn webpki_roots(mut self) -> Self {
        self.roots = Roots::Webpki;
        self
    }

    /// Sends this certificate to servers, and to `https` proxies, that ask for one (mTLS).
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Pins a public key: only servers whose own certificate has one of the pinned keys are accepted. The certificate
    /// must be valid as well, unless [any is accepted](Self::danger_accept_invalid_certs). The pins are not applied to
    /// `https` proxies.
    ///
    /// `pin` is the SHA-256 of the key's SubjectPublicKeyInfo (RFC 7469 §2.4).
    pub fn pin_spki_sha256(mut self, pin: [u8; 32]) -> Self {
        self.pins.push(pin);
        self
    }

    /// Asks servers for this name (SNI) and requires certificates for it, instead of the URL's host.
    ///
    /// # Errors
    /// [`TlsConfigError::ServerName`] if it is neither a host name nor an IP address.
    pub fn server_name(mut self, name: &str) -> Result<Self, TlsConfigError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| TlsConfigError::ServerName(name.to_owned()))?;
        self.server_name = Some(name);
        Ok(self)
    }

    /// Sets the lowest version of TLS that the client speaks. TLS 1.2 by default.
    pub fn min_version(mut self, version: Version) -> Self {
        self.min_version = Some(version);
        self
    }

    /// Sets the highest version of TLS that the client speaks. TLS 1.3 by default.
    ///
    /// [`build`](crate::ClientBuilder::build) fails if that leaves neither 1.2 nor 1.3.
    pub fn max_version(mut self, version: Version) -> Self {
        self.max_version = Some(version);
        self
    }

    /// Refuses certificates that these lists name, and those of authorities without a list among them. Lists of several
    /// calls add up; of several lists of an authority the newest one counts alone. A list counts after the date of its next update as
    /// well: the client gets no newer ones by itself. None by default: then revocation is not checked, except by the verifiers of some platforms.
    ///
    /// [`build`](crate::ClientBuilder::build) fails unless the platform's authorities are turned off
    /// ([`only_added_roots`](Self::only_added_roots), `webpki_roots`): its verifier takes no lists.
    pub fn add_revocation_lists(mut self, lists: impl IntoIterator<Item = CertificateRevocationList>) -> Self {
        self.revoked.extend(lists.into_iter().map(|list| list.der));
        self
    }

    /// Sets whether servers are told the name that the client asks for (SNI, RFC 6066 §3). True by default. Without it a
    /// server of several names sends the certificate of its default one.
    pub fn sni(mut self, sni: bool) -> Self {
        self.hides_name = !sni;
        self
    }

    /// Sets whether the keys of connections are appended to the file that the environment variable `SSLKEYLOGFILE` names,
    /// for programs such as Wireshark. False by default.
    ///
    /// **A reader of that file can decrypt the connections.** The variable is read when the first handshake is prepared.
    pub fn key_log_file(mut self, log: bool) -> Self {
        self.logs_keys = log;
        self
    }

    /// Sets the protocols that are offered to servers (ALPN, RFC 7301), the preferred one first. By default those that
    /// the client speaks: `h2` and `http/1.1`.
    ///
    /// [`build`](crate::ClientBuilder::build) fails for a version of HTTP that the client's version settings exclude,
    /// and for a name that is empty or longer than 255 bytes.
    pub fn alpn(mut self, protocols: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.alpn = Some(protocols.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the number of hosts whose sessions are kept for resumption, at most 1,000,000. 1,024 by default; 0 turns
    /// resumption off.
    pub fn session_cache(mut self, hosts: usize) -> Self {
        self.session_hosts = Some(hosts);
        self
    }

    /// Sets whether any certificate is accepted, also an expired or forged one, and one of another host. False by
    /// default; for tests only.
    ///
    /// **An attacker on the network can then read and change everything.**
    /// [`TlsFacts::verified`](crate::trace::TlsFacts::verified) is `false` on such connections.
    ///
    /// Nothing in a certificate is read, and nothing shows that the server has its key, so a certificate of X.509 version 1 or with a short
    /// key is accepted as well. Pinned keys still apply: a server whose key is not pinned, or that does not have it, is refused, even with
    /// a valid certificate. They do not apply to `https` proxies, of which nothing is verified then. A choice of trusted authorities would
    /// have no effect, so [`build`](crate::ClientBuilder::build) fails with both.
    pub fn danger_accept_invalid_certs(mut self, accept: bool) -> Self {
        self.accepts_any_cert = accept;
        self
    }

    /// Sets whether a valid certificate is accepted also if it is for another host. False by default; for tests only.
    ///
    /// **An attacker on the network with a certificate for any host can then read and change everything.**
    /// [`TlsFacts::verified`](crate::trace::TlsFacts::verified) is `false` on such connections.
    ///
    /// [`build`](crate::ClientBuilder::build) fails unless the platform's authorities are turned off
    /// ([`only_added_roots`](Self::only_added_roots), `webpki_roots`), because not every platform verifies certificates
    /// without the name, or [any certificate is accepted](Self::danger_accept_invalid_certs).
    pub fn danger_accept_invalid_hostnames(mut self, accept: bool) -> Self {
        self.accepts_any_name = accept;
        self
    }

    /// Sets whether the first handshake is prepared in the background when a client is built. True by default.
    ///
    /// A thread collects entropy for the random generator (once in a process) and reads the trusted certificates, which
    /// takes tens of milliseconds of processor time. It ends when that is done, and does nothing for a client that was
    /// dropped. With `false` the first handshake does this work; choose it for clients that make no HTTPS requests, and
    /// in processes that fork.
    pub fn prepare_in_background(mut self, prepare: bool) -> Self {
        self.prepared_late = !prepare;
        self
    }
}
